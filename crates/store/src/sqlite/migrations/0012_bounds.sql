-- Durable: everything here. Rebuilt at start: nothing.
-- Hot: binding by subject.
-- `bounds` is JSON of the model's type, empty where the binding has none. It is part of what makes a binding
-- another one: two bindings of one role on one scope may admit different specs.

CREATE TABLE new_binding (
    id         BLOB PRIMARY KEY,
    role       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    scope      TEXT NOT NULL,
    bounds     TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    UNIQUE (subject, role, scope, bounds)
) STRICT, WITHOUT ROWID;

INSERT INTO new_binding (id, role, subject, scope, created_at)
SELECT id, role, subject, scope, created_at FROM binding;

DROP TABLE binding;
ALTER TABLE new_binding RENAME TO binding;
