-- Durable: everything here. Rebuilt at start: sessions and queues, which are not here.
-- Hot: task, task_chunk and outcome of one task; process by host.
-- Times are Unix milliseconds; booleans are 0 and 1; `facts`, `limits`, `items`, `targets` and
-- `snapshot` are JSON of the model's types.

CREATE TABLE app (
    code        TEXT PRIMARY KEY,
    secret_hash TEXT NOT NULL,
    trusted     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Secrets of the server, such as the key of its certificate authority.
CREATE TABLE secret (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
    id          TEXT PRIMARY KEY,
    secret_hash TEXT NOT NULL,
    uses        INTEGER NOT NULL,
    used        INTEGER NOT NULL DEFAULT 0,
    expires_at  INTEGER NOT NULL,
    cloud       INTEGER
) STRICT, WITHOUT ROWID;

-- Who used a token: a second enrolment of the same key is a repetition.
CREATE TABLE token_use (
    token       TEXT NOT NULL REFERENCES token (id) ON DELETE CASCADE,
    fingerprint TEXT NOT NULL,
    used_at     INTEGER NOT NULL,
    PRIMARY KEY (token, fingerprint)
) STRICT, WITHOUT ROWID;

-- A host without an agent is one whose agent enrolled for another host; nobody sees it until an
-- agent enrols for it again.
CREATE TABLE host (
    id                  INTEGER PRIMARY KEY,
    cloud               INTEGER NOT NULL,
    supplier            INTEGER NOT NULL,
    ip                  TEXT NOT NULL,
    agent               TEXT UNIQUE,
    fingerprint         TEXT NOT NULL,
    facts               TEXT NOT NULL,
    enrolled_at         INTEGER NOT NULL,
    online              INTEGER NOT NULL DEFAULT 0,
    epoch               INTEGER NOT NULL DEFAULT 0,
    presence_changed_at INTEGER NOT NULL,
    -- The last generation given to a process or pool of this host.
    generation          INTEGER NOT NULL DEFAULT 0,
    UNIQUE (cloud, ip)
) STRICT;

-- A spec that nothing names any more stays: the next registration of it finds it, and there are
-- as many as people wrote, not as many as hosts.
CREATE TABLE spec (
    hash TEXT PRIMARY KEY,
    json TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- spec is NULL in a tombstone: the process is no longer registered, and agents must learn of it.
-- Tombstones stay, one for each name that was ever used on the host.
CREATE TABLE process (
    id            INTEGER PRIMARY KEY,
    namespace     TEXT NOT NULL,
    name          TEXT NOT NULL,
    host          INTEGER NOT NULL REFERENCES host (id),
    spec          TEXT REFERENCES spec (hash),
    generation    INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    managed       INTEGER NOT NULL DEFAULT 0,
    snapshot      TEXT,
    UNIQUE (namespace, name, host)
) STRICT;

CREATE INDEX process_by_generation ON process (host, generation);

CREATE TABLE pool (
    namespace  TEXT NOT NULL,
    id         TEXT NOT NULL,
    host       INTEGER NOT NULL REFERENCES host (id),
    limits     TEXT NOT NULL,
    generation INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, id, host)
) STRICT, WITHOUT ROWID;

CREATE INDEX pool_by_generation ON pool (host, generation);

-- A task is one row plus chunks of at most 1,000 targets; an outcome is a row of its own, written
-- when it becomes known. A target without an outcome is open; open_count counts those.
CREATE TABLE task (
    seq          INTEGER PRIMARY KEY,
    id           BLOB NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    app          TEXT NOT NULL,
    user         TEXT NOT NULL,
    family       TEXT NOT NULL,
    items        TEXT NOT NULL,
    target_count INTEGER NOT NULL,
    open_count   INTEGER NOT NULL CHECK (open_count BETWEEN 0 AND target_count)
) STRICT;

CREATE INDEX task_by_age ON task (created_at);
CREATE INDEX task_open ON task (created_at) WHERE open_count > 0;

CREATE TABLE task_chunk (
    task        INTEGER NOT NULL REFERENCES task (seq) ON DELETE CASCADE,
    first_index INTEGER NOT NULL,
    targets     TEXT NOT NULL,
    PRIMARY KEY (task, first_index)
) STRICT;

CREATE TABLE outcome (
    task        INTEGER NOT NULL REFERENCES task (seq) ON DELETE CASCADE,
    idx         INTEGER NOT NULL,
    code        INTEGER NOT NULL,
    message     TEXT NOT NULL,
    output      TEXT NOT NULL,
    managed     INTEGER NOT NULL,
    snapshot    TEXT,
    instances   TEXT,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (task, idx)
) STRICT, WITHOUT ROWID;
