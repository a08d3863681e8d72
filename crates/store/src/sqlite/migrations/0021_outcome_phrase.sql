-- Durable: what the message of an outcome says, as the JSON of its id and arguments, so that it can be told in another
-- language. NULL where the message is text alone, as in every row of before.
ALTER TABLE outcome ADD COLUMN phrase TEXT;
