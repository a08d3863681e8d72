-- Durable: everything here. Rebuilt at start: nothing.
-- A session belongs to the key in `fingerprint`, unless `revoked_at` is set. `settled_epoch` is the last
-- epoch that the agent's state directory has recorded: a copy that knows less is an old one.
ALTER TABLE host ADD COLUMN settled_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN revoked_at INTEGER;
-- Until then an operator lets another key (or an older copy of the state) take the host over, once.
ALTER TABLE host ADD COLUMN rejoin_until INTEGER;

-- The only host that a token is good for, as CLOUD:IP.
ALTER TABLE token ADD COLUMN host TEXT;
-- Refused enrolments that knew the secret; only the first of them are audited.
ALTER TABLE token ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
