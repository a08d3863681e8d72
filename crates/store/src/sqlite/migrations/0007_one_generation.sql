-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: a task that registers a process on every host gives each a generation. Agents only need theirs to
-- rise, so one counter serves all hosts, and is written once.
CREATE TABLE generation (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    -- The last one given to a process or pool of any host.
    newest INTEGER NOT NULL
) STRICT;

INSERT INTO generation (id, newest) SELECT 1, coalesce(max(generation), 0) FROM host_generation;

DROP TABLE host_generation;
