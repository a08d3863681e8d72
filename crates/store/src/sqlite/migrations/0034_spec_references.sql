-- Durable: everything here. Rebuilt at start: nothing.

-- Who refers to a spec: deleting one must not read all processes and their history.
CREATE INDEX process_by_spec ON process (spec);
CREATE INDEX spec_revision_by_spec ON spec_revision (spec);
-- Tombstones, which are few: looking for old ones must not read the others.
CREATE INDEX process_tombstone ON process (generation) WHERE spec IS NULL;
CREATE INDEX pool_tombstone ON pool (generation) WHERE deleted;
