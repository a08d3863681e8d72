//! The summary of a host.
//!
//! Promised: reads one narrow row per process and pool, no spec and no snapshot. There is nothing to invalidate:
//! the hashes are computed from the same rows as assignments and observations, from one snapshot of the store.

use proctor_model::{AgentId, AgentState, PoolLimits, StateHash};
use rusqlite::{Connection, OptionalExtension};

use super::column::{counter, from_json};
use super::failure::{Failure, Tried};
use crate::HostState;

/// Of a process: namespace, name, generation, managed, digest.
type Process = (String, String, u64, bool, Option<u64>);

pub(super) fn read(connection: &Connection, agent: &AgentId) -> Tried<Option<HostState>> {
    let host: Option<(i64, i64, i64)> = connection
        .prepare_cached("SELECT id, epoch, pruned_generation FROM host WHERE agent = ?1")?
        .query_row([agent.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((host, epoch, mut newest)) = host else { return Ok(None) };
    let processes = processes(connection, host, &mut newest)?;
    let pools = pools(connection, host, &mut newest)?;
    let assigned = StateHash::of_assigned(
        processes.iter().map(|(namespace, name, generation, ..)| (namespace.as_str(), name.as_str(), *generation)),
        pools.iter().map(|(namespace, id, generation)| (namespace.as_str(), id.as_str(), *generation)),
    );
    // A name that no process has: an agent cannot have observed a process that is unknown here.
    let unknown = processes.iter().any(|(.., digest)| digest.is_none()).then_some((("", "", 0), false));
    let observed = processes.iter().map(|(namespace, name, _, managed, digest)| {
        ((namespace.as_str(), name.as_str(), digest.unwrap_or_default()), *managed)
    });
    let observed = StateHash::of_observed(observed.chain(unknown));
    let (epoch, generation) = (epoch.cast_unsigned(), newest.cast_unsigned());
    Ok(Some(HostState { epoch, generation, state: AgentState { assigned, observed } }))
}

/// Those that are registered.
fn processes(connection: &Connection, host: i64, newest: &mut i64) -> Tried<Vec<Process>> {
    let mut statement = connection.prepare_cached(
        "SELECT namespace, name, generation, managed, observed, spec IS NOT NULL FROM process WHERE host = ?1",
    )?;
    let mut rows = statement.query([host])?;
    let mut processes = Vec::new();
    while let Some(row) = rows.next()? {
        let generation: i64 = row.get(2)?;
        *newest = generation.max(*newest);
        if row.get(5)? {
            let observed: Option<i64> = row.get(4)?;
            let (namespace, name, managed) = (row.get(0)?, row.get(1)?, row.get(3)?);
            processes.push((namespace, name, generation.cast_unsigned(), managed, observed.map(i64::cast_unsigned)));
        }
    }
    Ok(processes)
}

/// Those that limit something.
fn pools(connection: &Connection, host: i64, newest: &mut i64) -> Tried<Vec<(String, String, u64)>> {
    let mut statement =
        connection.prepare_cached("SELECT namespace, id, generation, limits FROM pool WHERE host = ?1")?;
    let mut rows = statement.query([host])?;
    let mut pools = Vec::new();
    while let Some(row) = rows.next()? {
        *newest = row.get::<_, i64>(2)?.max(*newest);
        let limits = row.get_ref(3)?.as_str().map_err(|error| Failure::damaged("pool limits", error))?;
        let limits: PoolLimits = from_json("pool limits", limits)?;
        if limits.limit_something() {
            pools.push((row.get(0)?, row.get(1)?, counter(row, 2)?));
        }
    }
    Ok(pools)
}
