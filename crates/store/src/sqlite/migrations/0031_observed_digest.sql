-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: an agent that opens a session says a hash of what it has; the store's is made of one narrow row for each process.

-- The digest of the last snapshot (`Snapshot::digest`), written with it. NULL: none, or of a version before this column,
-- which agrees with nothing until the process is next reported as changed.
ALTER TABLE process ADD COLUMN observed INTEGER;
