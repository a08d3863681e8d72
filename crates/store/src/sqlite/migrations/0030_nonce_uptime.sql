-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: one row for each signed request.

-- A row goes when its signature is too old to count by the wall clock, and the uptime says so, too: a clock that is
-- set ahead for a moment makes no signature count again.
ALTER TABLE nonce ADD COLUMN until_uptime INTEGER NOT NULL DEFAULT 0;
DROP INDEX nonce_by_end;
CREATE INDEX nonce_by_end ON nonce (until_uptime, until);

-- The last user of this name was disabled when it was removed: nobody acts in that name until it is created again.
ALTER TABLE subject_life ADD COLUMN disabled INTEGER NOT NULL DEFAULT 0;
