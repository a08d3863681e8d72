-- Durable: how many events each agent has in the store, kept by the triggers. Of what is beyond the bound, the agents
-- with the most give first.
CREATE TABLE event_count (
    agent  TEXT PRIMARY KEY,
    events INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO event_count (agent, events) SELECT agent, count(*) FROM event GROUP BY agent;

CREATE INDEX event_by_agent ON event (agent, id);

CREATE TRIGGER event_added AFTER INSERT ON event BEGIN
    INSERT INTO event_count (agent, events) VALUES (new.agent, 1)
    ON CONFLICT (agent) DO UPDATE SET events = events + 1;
END;

CREATE TRIGGER event_removed AFTER DELETE ON event BEGIN
    UPDATE event_count SET events = events - 1 WHERE agent = old.agent;
    DELETE FROM event_count WHERE agent = old.agent AND events <= 0;
END;
