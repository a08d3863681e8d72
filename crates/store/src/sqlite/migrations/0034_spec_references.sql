-- Durable: everything here. Rebuilt at start: nothing.

-- Who refers to a spec: deleting one must not read all processes and their history.
CREATE INDEX process_by_spec ON process (spec) WHERE spec IS NOT NULL;
CREATE INDEX spec_revision_by_spec ON spec_revision (spec) WHERE spec IS NOT NULL;
