-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: `cordon` and `awaits_approval` are read with every host that an operation names.

-- Why the host takes no starts from the fleet, by whom, since and until when, as JSON. One whose time is over
-- counts no longer and stays until it is replaced.
ALTER TABLE host ADD COLUMN cordon TEXT;
-- It enrolled while every new host needs the approval of an operator, and has none yet.
ALTER TABLE host ADD COLUMN awaits_approval INTEGER NOT NULL DEFAULT 0;

-- Its host was cordoned when it was stored: webhooks do not get it.
ALTER TABLE event ADD COLUMN muted INTEGER NOT NULL DEFAULT 0;
