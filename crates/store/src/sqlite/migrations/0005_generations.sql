-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: a task that registers a process on every host reads and raises every host's generation. In
-- a table of its own that is a row of a few bytes, not the host's with all its facts.
CREATE TABLE host_generation (
    host       INTEGER PRIMARY KEY REFERENCES host (id) ON DELETE CASCADE,
    -- The last generation given to a process or pool of this host.
    generation INTEGER NOT NULL
) STRICT;

INSERT INTO host_generation (host, generation) SELECT id, generation FROM host;

ALTER TABLE host DROP COLUMN generation;

-- By host alone: a host has few processes, and a change of one does not touch the index then.
DROP INDEX process_by_generation;
CREATE INDEX process_by_host ON process (host);
