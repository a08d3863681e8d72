-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: a task that registers a process on every host writes a row of each, and where its spec has changed
-- also what it was. A spec is named by a number there: its hash was half of such a row.

CREATE TABLE new_spec (
    id   INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    json TEXT NOT NULL
) STRICT;

INSERT INTO new_spec (hash, json) SELECT hash, json FROM spec;

-- The snapshot comes last: who does not ask for it does not read past it.
CREATE TABLE new_process (
    id            INTEGER PRIMARY KEY,
    namespace     TEXT NOT NULL,
    name          TEXT NOT NULL,
    host          INTEGER NOT NULL REFERENCES host (id),
    spec          INTEGER REFERENCES new_spec (id),
    generation    INTEGER NOT NULL,
    revision      INTEGER NOT NULL DEFAULT 1,
    registered_at INTEGER NOT NULL,
    changed_at    INTEGER NOT NULL,
    managed       INTEGER NOT NULL DEFAULT 0,
    phase         TEXT NOT NULL DEFAULT 'unknown',
    snapshot      TEXT,
    UNIQUE (namespace, name, host)
) STRICT;

INSERT INTO new_process
SELECT process.id, namespace, name, host, new_spec.id, generation, revision, registered_at, changed_at, managed, phase,
       snapshot
FROM process LEFT JOIN new_spec ON new_spec.hash = process.spec;

CREATE TABLE new_revision (
    process    INTEGER NOT NULL REFERENCES new_process (id) ON DELETE CASCADE,
    revision   INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    spec       INTEGER REFERENCES new_spec (id),
    at         INTEGER NOT NULL,
    PRIMARY KEY (process, revision)
) STRICT, WITHOUT ROWID;

INSERT INTO new_revision
SELECT process, revision, generation, new_spec.id, at
FROM spec_revision LEFT JOIN new_spec ON new_spec.hash = spec_revision.spec;

DROP TABLE spec_revision;
DROP TABLE process;
DROP TABLE spec;
ALTER TABLE new_spec RENAME TO spec;
ALTER TABLE new_process RENAME TO process;
ALTER TABLE new_revision RENAME TO spec_revision;
CREATE INDEX process_by_host ON process (host);
