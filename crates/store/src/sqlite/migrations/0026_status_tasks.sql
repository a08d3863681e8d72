-- Tasks that only asked for the status of processes are kept for less time than others.
CREATE INDEX task_status_finished ON task (finished_uptime) WHERE kinds = '["status"]' AND finished_uptime IS NOT NULL;
