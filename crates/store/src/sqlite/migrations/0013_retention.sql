-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: a task stores the uptime at which it is created and finished.

-- The time that servers ran on this store. What is old is told by it, not by the wall clock.
CREATE TABLE uptime (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    ms INTEGER NOT NULL
) STRICT;

INSERT INTO uptime (id, ms) VALUES (1, 0);

-- The newest event, audit entry and generation at some uptimes: what has a lower number is older.
CREATE TABLE uptime_mark (
    ms         INTEGER PRIMARY KEY,
    event      INTEGER NOT NULL,
    audit      INTEGER NOT NULL,
    generation INTEGER NOT NULL
) STRICT;

INSERT INTO uptime_mark (ms, event, audit, generation)
SELECT 0, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0),
       (SELECT coalesce(max(seq), 0) FROM audit), (SELECT newest FROM generation);

-- A forgotten task is no longer readable; its rows are deleted a few at a time.
ALTER TABLE task ADD COLUMN created_uptime INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task ADD COLUMN finished_uptime INTEGER;
ALTER TABLE task ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
UPDATE task SET finished_uptime = 0 WHERE open_count = 0;
CREATE INDEX task_by_finish ON task (finished_uptime) WHERE finished_uptime IS NOT NULL;
CREATE INDEX task_forgotten ON task (seq) WHERE forgotten = 1;

-- When a token was first seen expired or used up.
ALTER TABLE token ADD COLUMN ended_uptime INTEGER;
ALTER TABLE user_token ADD COLUMN ended_uptime INTEGER;
-- When a task or registration last named the spec, to the hour.
ALTER TABLE spec ADD COLUMN used_uptime INTEGER NOT NULL DEFAULT 0;
-- The generation that the host's agent had on disk when it last connected.
ALTER TABLE host ADD COLUMN seen_generation INTEGER NOT NULL DEFAULT 0;

-- The last audit entry that was archived and removed; the next one holds its hash.
CREATE TABLE audit_anchor (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    seq  INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

INSERT INTO audit_anchor (id, seq, hash) VALUES (1, 0, zeroblob(32));

DROP TRIGGER audit_is_never_forgotten;
CREATE TRIGGER audit_is_only_removed_once_archived BEFORE DELETE ON audit
WHEN old.seq > (SELECT seq FROM audit_anchor)
BEGIN
    SELECT raise(ABORT, 'audit entries are only removed once they are archived');
END;
