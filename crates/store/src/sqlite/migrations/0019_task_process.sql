-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: one row for each process of a new task.

-- Which tasks operate a process.
CREATE TABLE task_process (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    task      INTEGER NOT NULL REFERENCES task (seq) ON DELETE CASCADE,
    PRIMARY KEY (namespace, name, task)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_process_by_task ON task_process (task);

INSERT OR IGNORE INTO task_process (namespace, name, task)
SELECT json_extract(value, '$.key.namespace'), json_extract(value, '$.key.name'), seq
FROM task, json_each(task.items) WHERE json_extract(value, '$.key.namespace') IS NOT NULL;

-- How many events of which kind were stored when, without reading the events themselves.
CREATE INDEX event_by_time ON event (stored_at, kind, namespace, name);
