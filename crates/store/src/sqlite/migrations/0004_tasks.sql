-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: task, task_chunk and outcome of one task; the changes of a process when a task registers it.

-- failed_count counts outcomes other than success; `kinds` is the JSON list of what is asked of the
-- targets; `rollout` is JSON, NULL where all targets are released at once.
ALTER TABLE task ADD COLUMN failed_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task ADD COLUMN finished_at INTEGER;
ALTER TABLE task ADD COLUMN cancelled_at INTEGER;
ALTER TABLE task ADD COLUMN retry_of BLOB;
ALTER TABLE task ADD COLUMN rollout TEXT;
ALTER TABLE task ADD COLUMN kinds TEXT NOT NULL DEFAULT '[]';

UPDATE task SET
    failed_count = (SELECT count(*) FROM outcome WHERE outcome.task = task.seq AND code <> 0),
    finished_at = iif(open_count > 0, NULL,
        coalesce((SELECT max(recorded_at) FROM outcome WHERE outcome.task = task.seq), created_at)),
    kinds = (SELECT json_group_array(kind) FROM
        (SELECT DISTINCT json_extract(value, '$.kind') AS kind FROM json_each(task.items)) WHERE kind IS NOT NULL);

CREATE INDEX task_rolling ON task (seq) WHERE rollout IS NOT NULL;

-- What a caller's key stands for, as long as the task is kept.
CREATE TABLE idempotency (
    app       TEXT NOT NULL,
    key       TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    task      INTEGER NOT NULL REFERENCES task (seq) ON DELETE CASCADE,
    PRIMARY KEY (app, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_task ON idempotency (task);

-- The present spec of a process is its last revision; those before it are rows of their own. So a
-- first registration, of which a task may make one on every host, writes none.
ALTER TABLE process ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;
ALTER TABLE process ADD COLUMN changed_at INTEGER NOT NULL DEFAULT 0;
-- The phase in `snapshot`, because questions narrow by it.
ALTER TABLE process ADD COLUMN phase TEXT NOT NULL DEFAULT 'unknown';

UPDATE process SET
    changed_at = registered_at,
    phase = coalesce(json_extract(snapshot, '$.phase'), 'unknown');

CREATE TABLE spec_revision (
    process    INTEGER NOT NULL REFERENCES process (id) ON DELETE CASCADE,
    revision   INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    spec       TEXT REFERENCES spec (hash),
    at         INTEGER NOT NULL,
    PRIMARY KEY (process, revision)
) STRICT, WITHOUT ROWID;

-- A second id that the host answers to; the agent itself keeps its own.
ALTER TABLE host ADD COLUMN alias TEXT;
CREATE UNIQUE INDEX host_by_alias ON host (alias) WHERE alias IS NOT NULL;
