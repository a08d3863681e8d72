//! The generation in which each process and pool was assigned.
//!
//! Promised: written in the transaction that records the newest generation, so what the agent says it has is what its
//! ledger has. A missing entry (an agent of an earlier version wrote the ledger) is generation 0, which no server
//! ever issued: the hash then differs, and the server assigns everything again, once.

use std::collections::{BTreeMap, HashMap};

use proctor_model::{Namespace, PoolId, ProcessKey};
use rusqlite::{Connection, params};

/// Whose generation it is; of a process with several instances there is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum HeldName {
    Process(ProcessKey),
    Pool(Namespace, PoolId),
}

pub(crate) type Held = HashMap<HeldName, u64>;

const PROCESS: &str = "process";
const POOL: &str = "pool";

impl HeldName {
    fn columns(&self) -> (&'static str, &str, &str) {
        match self {
            Self::Process(key) => (PROCESS, key.namespace.as_str(), key.name.as_str()),
            Self::Pool(namespace, id) => (POOL, namespace.as_str(), id.as_str()),
        }
    }

    fn of_columns(kind: &str, namespace: &str, name: &str) -> Option<Self> {
        let namespace: Namespace = namespace.parse().ok()?;
        match kind {
            PROCESS => Some(Self::Process(ProcessKey::new(namespace, name.parse().ok()?))),
            POOL => Some(Self::Pool(namespace, name.parse().ok()?)),
            _ => None,
        }
    }
}

/// A row that cannot be understood is like one that is missing.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Held> {
    let mut statement = connection.prepare("SELECT kind, namespace, name, generation FROM held")?;
    let mut rows = statement.query([])?;
    let mut held = Held::new();
    while let Some(row) = rows.next()? {
        let [kind, namespace, name]: [String; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
        let generation = row.get::<_, i64>(3)?.cast_unsigned();
        held.extend(HeldName::of_columns(&kind, &namespace, &name).map(|name| (name, generation)));
    }
    Ok(held)
}

pub(super) fn write(connection: &Connection, held: &BTreeMap<HeldName, Option<u64>>) -> rusqlite::Result<()> {
    for (held, generation) in held {
        let (kind, namespace, name) = held.columns();
        match generation {
            Some(generation) => connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO held (kind, namespace, name, generation) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![kind, namespace, name, generation.cast_signed()])?,
            None => connection
                .prepare_cached("DELETE FROM held WHERE kind = ?1 AND namespace = ?2 AND name = ?3")?
                .execute(params![kind, namespace, name])?,
        };
    }
    Ok(())
}
