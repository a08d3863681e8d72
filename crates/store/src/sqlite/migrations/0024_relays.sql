-- Durable: everything here. Rebuilt at start: which relays are connected, and with which agents.

-- Lets relays enrol. A table of its own, so that a token of one kind is never one of the other.
CREATE TABLE relay_token (
    id           TEXT PRIMARY KEY,
    secret_hash  TEXT NOT NULL,
    uses         INTEGER NOT NULL,
    used         INTEGER NOT NULL DEFAULT 0,
    refused      INTEGER NOT NULL DEFAULT 0,
    expires_at   INTEGER NOT NULL,
    cloud        INTEGER NOT NULL,
    ended_uptime INTEGER
) STRICT, WITHOUT ROWID;

-- A relay is known by its key. One that was revoked stays, so that its key does not come back.
CREATE TABLE relay (
    id           TEXT PRIMARY KEY,
    cloud        INTEGER NOT NULL,
    fingerprint  TEXT NOT NULL UNIQUE,
    token        TEXT NOT NULL,
    remote       TEXT,
    enrolled_at  INTEGER NOT NULL,
    last_seen_at INTEGER,
    revoked_at   INTEGER
) STRICT, WITHOUT ROWID;

-- The host's last session came through a relay of its cloud area.
ALTER TABLE host ADD COLUMN relayed INTEGER NOT NULL DEFAULT 0;
-- It is not online, and nobody was told: it is out of reach with the relays of its area.
ALTER TABLE host ADD COLUMN untold INTEGER NOT NULL DEFAULT 0;
