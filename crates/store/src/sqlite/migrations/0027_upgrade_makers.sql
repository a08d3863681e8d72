-- Whose rights an upgrade of agents goes on with. Nobody can tell for those of an earlier version: a person decides.
ALTER TABLE upgrade ADD COLUMN makers TEXT NOT NULL DEFAULT '[]';
UPDATE upgrade
SET state = 'paused', reason = 'the server was updated, and does not know whose rights this goes on with: resume or cancel it'
WHERE state = 'running';
