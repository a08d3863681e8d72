-- The newest generation of a tombstone of this host that was deleted. An agent that comes with an older one, from a
-- snapshot of its machine, must be told everything that is registered: nobody knows any more what is not. What was
-- deleted before this column was there is not known either, but it was no newer than what the agent had seen.
ALTER TABLE host ADD COLUMN pruned_generation INTEGER NOT NULL DEFAULT 0;
UPDATE host SET pruned_generation = seen_generation;
