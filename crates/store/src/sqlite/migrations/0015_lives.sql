-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: a task stores the lives of its app and user when it is created, and reads theirs with it.

-- How often an app or user of this name was removed. Who has the name next does not own what was made before.
CREATE TABLE subject_life (
    subject TEXT PRIMARY KEY,
    ended   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE task ADD COLUMN app_life INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task ADD COLUMN user_life INTEGER NOT NULL DEFAULT 0;

-- What a call of JOB was about; a retry is held to it, too.
ALTER TABLE task ADD COLUMN scope TEXT;
