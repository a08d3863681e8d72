-- Durable: everything here. Rebuilt at start: nothing.

-- Keys that were revoked. They outlive their hosts: such a key enrols nowhere, under whatever agent id.
CREATE TABLE revoked_key (
    fingerprint TEXT PRIMARY KEY,
    revoked_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO revoked_key (fingerprint, revoked_at)
SELECT fingerprint, min(revoked_at) FROM host WHERE revoked_at IS NOT NULL GROUP BY fingerprint;

-- A key may serve several hosts, and is revoked on all of them.
CREATE INDEX host_by_key ON host (fingerprint);

-- Who used a token for which host (CLOUD:IP): only the same key for the same host repeats its enrolment. '' stands
-- where the host was not noted: any.
CREATE TABLE new_token_use (
    token       TEXT NOT NULL REFERENCES token (id) ON DELETE CASCADE,
    fingerprint TEXT NOT NULL,
    host        TEXT NOT NULL,
    used_at     INTEGER NOT NULL,
    PRIMARY KEY (token, fingerprint, host)
) STRICT, WITHOUT ROWID;

INSERT INTO new_token_use (token, fingerprint, host, used_at) SELECT token, fingerprint, '', used_at FROM token_use;
DROP TABLE token_use;
ALTER TABLE new_token_use RENAME TO token_use;
