-- Tasks of which nothing reached a host, such as those that were refused, are kept no longer than status queries.
ALTER TABLE task ADD COLUMN reached_nothing INTEGER NOT NULL DEFAULT 0;
DROP INDEX task_status_finished;
CREATE INDEX task_brief_finished ON task (finished_uptime)
WHERE (kinds = '["status"]' OR reached_nothing = 1) AND finished_uptime IS NOT NULL;
