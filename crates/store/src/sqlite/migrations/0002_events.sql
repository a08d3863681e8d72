-- Durable: events and who wants to hear of them. Rebuilt at start: nothing.
-- Hot: append at the end, read after an id. `details` of an event, with all the rest of it, are in
-- the JSON `event`; the columns beside it are those that a question narrows by.

-- An id is never given out twice, also after the newest events were forgotten: readers keep it as
-- their place.
CREATE TABLE event (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    cloud     INTEGER NOT NULL,
    supplier  INTEGER NOT NULL,
    ip        TEXT NOT NULL,
    agent     TEXT NOT NULL,
    kind      TEXT NOT NULL,
    namespace TEXT,
    name      TEXT,
    report_id INTEGER,
    event     TEXT NOT NULL,
    stored_at INTEGER NOT NULL
) STRICT;

CREATE INDEX event_by_process ON event (namespace, name, id);

-- The last event of an agent that was stored: what is not above it has been here before. Stays when
-- the events themselves are forgotten.
CREATE TABLE event_source (
    agent   TEXT PRIMARY KEY,
    highest INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Everything up to the event `cursor` has been delivered, or does not concern it.
CREATE TABLE webhook (
    id         BLOB PRIMARY KEY,
    url        TEXT NOT NULL,
    namespace  TEXT,
    report_id  INTEGER,
    kinds      TEXT NOT NULL,
    format     TEXT NOT NULL,
    secret     TEXT,
    created_at INTEGER NOT NULL,
    cursor     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
