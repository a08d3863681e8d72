-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: observations; lists, counts and sums over all processes.
-- A snapshot is most of what is kept of a process. In a table of its own, a pass over all processes reads a few
-- megabytes. What lists are narrowed, sorted and summed by is copied from the snapshot to the process's row.

CREATE TABLE snapshot (
    process INTEGER PRIMARY KEY REFERENCES process (id) ON DELETE CASCADE,
    json    TEXT NOT NULL
) STRICT;

INSERT INTO snapshot (process, json) SELECT id, snapshot FROM process WHERE snapshot IS NOT NULL;

ALTER TABLE process DROP COLUMN snapshot;
-- Unix seconds, by the host's clock; 0: not known.
ALTER TABLE process ADD COLUMN phase_since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN reported_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN started_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN restarts INTEGER NOT NULL DEFAULT 0;
-- In percent of the host.
ALTER TABLE process ADD COLUMN cpu REAL NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN memory REAL NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN evicted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN health TEXT NOT NULL DEFAULT '';
ALTER TABLE process ADD COLUMN version TEXT NOT NULL DEFAULT '';
ALTER TABLE process ADD COLUMN reason TEXT NOT NULL DEFAULT '';

UPDATE process SET
    reported_at = coalesce(json_extract(json, '$.reported_at'), 0),
    started_at = coalesce(json_extract(json, '$.started_at'), 0),
    restarts = coalesce(json_extract(json, '$.restarts'), 0),
    cpu = coalesce(json_extract(json, '$.usage.cpu_percent'), 0),
    memory = coalesce(json_extract(json, '$.usage.memory_percent'), 0),
    memory_bytes = coalesce(CAST(json_extract(json, '$.usage.memory_bytes') AS INTEGER), 0),
    health = coalesce(json_extract(json, '$.health'), ''),
    version = coalesce(json_extract(json, '$.version'), ''),
    reason = coalesce(json_extract(json, '$.reason'), '')
FROM snapshot WHERE snapshot.process = process.id;
