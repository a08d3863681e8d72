-- Durable: everything here. Rebuilt at start: nothing.
-- Whether a target of a rolling task became healthy after its operation succeeded. A target that
-- succeeded and has no row here is still waited for.
CREATE TABLE rollout_health (
    task    INTEGER NOT NULL REFERENCES task (seq) ON DELETE CASCADE,
    idx     INTEGER NOT NULL,
    healthy INTEGER NOT NULL,
    PRIMARY KEY (task, idx)
) STRICT, WITHOUT ROWID;
