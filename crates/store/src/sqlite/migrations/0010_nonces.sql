-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: one row for each signed request; a row goes when its signature is too old to count.

CREATE TABLE nonce (
    fingerprint BLOB PRIMARY KEY,
    until       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX nonce_by_end ON nonce (until);
