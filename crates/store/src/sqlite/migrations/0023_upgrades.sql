-- Upgrades of agents, and how far each host has come.
CREATE TABLE upgrade (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    plan TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;
CREATE TABLE upgrade_host (
    upgrade INTEGER NOT NULL REFERENCES upgrade (seq) ON DELETE CASCADE,
    agent TEXT NOT NULL,
    host TEXT NOT NULL,
    place INTEGER NOT NULL,
    ring INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    phrase TEXT,
    version_before TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (upgrade, agent)
) STRICT, WITHOUT ROWID;
