-- Console sessions are user tokens that a browser keeps in a cookie. One that was opened with another
-- token ends with it.
ALTER TABLE user_token ADD COLUMN is_session INTEGER NOT NULL DEFAULT 0;
ALTER TABLE user_token ADD COLUMN parent TEXT REFERENCES user_token (id) ON DELETE CASCADE;

CREATE INDEX user_token_by_parent ON user_token (parent) WHERE parent IS NOT NULL;

-- argon2id, in PHC format. A user without a row has no password.
CREATE TABLE user_password (
    user       TEXT PRIMARY KEY REFERENCES user (name) ON DELETE CASCADE,
    hash       TEXT NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
