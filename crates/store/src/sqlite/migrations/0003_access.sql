-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: binding by subject, placement by address; audit is added at the end and read in order.
-- Times are Unix milliseconds; `classes` and `targets` are JSON; `role`, `subject` and `scope` are
-- the text forms of the model's types. The built-in roles are code, not rows.

CREATE TABLE business (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;

CREATE TABLE business_set (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;

CREATE TABLE business_set_member (
    business_set INTEGER NOT NULL REFERENCES business_set (id) ON DELETE CASCADE,
    business     INTEGER NOT NULL REFERENCES business (id) ON DELETE CASCADE,
    PRIMARY KEY (business_set, business)
) STRICT, WITHOUT ROWID;

CREATE INDEX business_set_by_member ON business_set_member (business);

-- By address and not by host: a host is placed before it enrols, too.
CREATE TABLE placement (
    cloud    INTEGER NOT NULL,
    ip       TEXT NOT NULL,
    business INTEGER NOT NULL REFERENCES business (id) ON DELETE CASCADE,
    PRIMARY KEY (cloud, ip)
) STRICT, WITHOUT ROWID;

CREATE INDEX placement_by_business ON placement (business);

ALTER TABLE token ADD COLUMN business INTEGER REFERENCES business (id) ON DELETE SET NULL;

-- The secret itself, sealed, for apps that sign their calls.
ALTER TABLE app ADD COLUMN sealed_secret BLOB;

CREATE TABLE role (
    name    TEXT PRIMARY KEY,
    classes TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE binding (
    id         BLOB PRIMARY KEY,
    role       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    scope      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (subject, role, scope)
) STRICT, WITHOUT ROWID;

-- Until now a trusted app could do everything.
INSERT INTO binding (id, role, subject, scope, created_at)
SELECT randomblob(16), 'admin', 'app:' || code, 'everything', created_at FROM app WHERE trusted;

CREATE TABLE user (
    name       TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    disabled   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE user_token (
    id          TEXT PRIMARY KEY,
    user        TEXT NOT NULL REFERENCES user (name) ON DELETE CASCADE,
    secret_hash TEXT NOT NULL,
    note        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX user_token_by_user ON user_token (user);

-- Each entry holds the hash of the one before it, so that a change of any shows in all later ones.
CREATE TABLE audit (
    seq          INTEGER PRIMARY KEY,
    at           INTEGER NOT NULL,
    phase        TEXT NOT NULL,
    of_seq       INTEGER,
    app          TEXT NOT NULL,
    user         TEXT NOT NULL,
    remote       TEXT,
    request_id   TEXT NOT NULL,
    action       TEXT NOT NULL,
    classes      TEXT NOT NULL,
    target_count INTEGER NOT NULL,
    targets      TEXT NOT NULL,
    outcome      TEXT NOT NULL,
    prev_hash    BLOB NOT NULL,
    hash         BLOB NOT NULL
) STRICT;

CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN
    SELECT raise(ABORT, 'audit entries are never changed');
END;

CREATE TRIGGER audit_is_never_forgotten BEFORE DELETE ON audit
BEGIN
    SELECT raise(ABORT, 'audit entries are never forgotten');
END;
