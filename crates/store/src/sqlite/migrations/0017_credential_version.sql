-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: nothing; read and compared when somebody signs in.

-- Rises when the password is set or removed, and when the user is disabled.
ALTER TABLE user ADD COLUMN credential_version INTEGER NOT NULL DEFAULT 0;
