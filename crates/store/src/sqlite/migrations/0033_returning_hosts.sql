-- Durable: everything here. Rebuilt at start: nothing.

-- Since when the host's agent asks for another certificate in place of an expired one; NULL where it does not.
ALTER TABLE host ADD COLUMN returning_since INTEGER;
-- Until when it may have one; NULL before an operator has allowed it.
ALTER TABLE host ADD COLUMN return_until INTEGER;
