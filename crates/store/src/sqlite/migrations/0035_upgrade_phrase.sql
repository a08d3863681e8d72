-- Durable: everything here. Rebuilt at start: nothing.
-- The entry of the message catalogue, with its arguments, that the reason of an upgrade is; null where it is text alone.
ALTER TABLE upgrade ADD COLUMN phrase TEXT;
