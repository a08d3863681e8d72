-- Durable: everything here. Rebuilt at start: nothing.
-- A pool that was taken away stays as a row without limits, so that its host's agent learns of it.
ALTER TABLE pool ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;
