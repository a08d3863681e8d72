-- Durable: everything here. Rebuilt at start: nothing.
-- Read as a whole when a server starts; a row is written when an agent or relay says something new of itself.

-- What an agent ('agent:ID') or a relay ('relay:ID') has said that it believes, while the authority is being replaced
-- and until it believes the last one alone.
CREATE TABLE follower (
    peer         TEXT PRIMARY KEY,
    -- Fingerprints, as JSON.
    authorities  TEXT NOT NULL,
    certified_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;
