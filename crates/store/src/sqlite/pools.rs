//! Pools: the limits that processes of a namespace share on a host.

use proctor_model::{AgentId, Namespace, Percent, Pool, PoolId, PoolLimits, Weight};
use rusqlite::{Connection, OptionalExtension, Row, ToSql};

use super::column::{counter, from_json, host_and_agent, parsed, signed, to_json};
use super::failure::{Failure, Tried};
use super::hosts;
use super::registrations::Since;
use crate::{Millis, PoolAssignment, PoolRecord};

/// Adds each pool or replaces its limits; equal limits change nothing.
pub(super) fn set(connection: &Connection, agents: &[AgentId], pools: &[Pool], now: Millis) -> Tried<Vec<bool>> {
    let pools: Vec<(&Pool, String)> = pools.iter().map(|pool| (pool, to_json(&pool.limits))).collect();
    let set_on = |agent: &AgentId| {
        let Some(host) = hosts::row_of(connection, agent)? else { return Ok(false) };
        for (pool, limits) in &pools {
            set_one(connection, host, pool, limits, now)?;
        }
        Ok(true)
    };
    agents.iter().map(set_on).collect()
}

fn set_one(connection: &Connection, host: i64, pool: &Pool, limits: &str, now: Millis) -> Tried<()> {
    let present: Option<String> = connection
        .prepare_cached("SELECT limits FROM pool WHERE namespace = ?1 AND id = ?2 AND host = ?3 AND NOT deleted")?
        .query_row((pool.namespace.as_str(), pool.id.as_str(), host), |row| row.get(0))
        .optional()?;
    if present.as_deref() == Some(limits) {
        return Ok(());
    }
    let generation = hosts::next_generation(connection)?;
    connection
        .prepare_cached(
            "INSERT INTO pool (namespace, id, host, limits, generation, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (namespace, id, host) DO UPDATE
             SET limits = excluded.limits, generation = excluded.generation, changed_at = excluded.changed_at, deleted = 0",
        )?
        .execute((pool.namespace.as_str(), pool.id.as_str(), host, limits, generation, now))?;
    Ok(())
}

/// Leaves a pool that limits nothing, which agents already understand.
pub(super) fn delete(
    connection: &Connection,
    agents: &[AgentId],
    namespace: &Namespace,
    id: &PoolId,
    now: Millis,
) -> Tried<Vec<bool>> {
    let mut present = connection
        .prepare_cached("SELECT 1 FROM pool WHERE namespace = ?1 AND id = ?2 AND host = ?3 AND NOT deleted")?;
    let mut bury = connection.prepare_cached(
        "UPDATE pool SET limits = ?4, generation = ?5, changed_at = ?6, deleted = 1
         WHERE namespace = ?1 AND id = ?2 AND host = ?3",
    )?;
    let limits = to_json(&no_limits());
    let delete_on = |agent: &AgentId| {
        let Some(host) = hosts::row_of(connection, agent)? else { return Ok(false) };
        if !present.exists((namespace.as_str(), id.as_str(), host))? {
            return Ok(false);
        }
        let generation = hosts::next_generation(connection)?;
        bury.execute((namespace.as_str(), id.as_str(), host, &limits, generation, now))?;
        Ok(true)
    };
    agents.iter().map(delete_on).collect()
}

fn no_limits() -> PoolLimits {
    let none = Percent::try_from(0.0).expect("0 is a percentage");
    PoolLimits { cpu: none, memory: none, cpu_weight: Weight::Usage, memory_weight: Weight::Usage, dry_run: false }
}

/// Sorted by namespace, id, cloud and ip.
pub(super) fn list(
    connection: &Connection,
    namespace: Option<&Namespace>,
    agents: Option<&[AgentId]>,
) -> Tried<Vec<PoolRecord>> {
    let mut sql = "SELECT cloud, supplier, ip, agent, pool.namespace, pool.id, limits
                   FROM pool JOIN host ON host.id = pool.host WHERE host.agent IS NOT NULL AND NOT deleted"
        .to_owned();
    let namespace = namespace.map(Namespace::as_str);
    let agents = agents.map(to_json);
    let mut params: Vec<(&str, &dyn ToSql)> = Vec::new();
    if let Some(namespace) = &namespace {
        sql.push_str(" AND pool.namespace = :namespace");
        params.push((":namespace", namespace));
    }
    if let Some(agents) = &agents {
        sql.push_str(" AND host.agent IN (SELECT value FROM json_each(:agents))");
        params.push((":agents", agents));
    }
    sql.push_str(" ORDER BY pool.namespace, pool.id, cloud, ip");

    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params.as_slice())?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let (host, agent) = host_and_agent(row, 0)?;
        records.push(PoolRecord { host, agent, pool: pool(row, 4)? });
    }
    Ok(records)
}

pub(super) fn assignments(connection: &Connection, agent: &AgentId, since: Since) -> Tried<Vec<PoolAssignment>> {
    let mut statement = connection.prepare_cached(
        "SELECT pool.generation, pool.namespace, pool.id, limits FROM host JOIN pool ON pool.host = host.id
         WHERE host.agent = ?1 AND pool.generation > ?2 AND (NOT deleted OR (?3 > 0 AND pool.generation > ?3))
         ORDER BY pool.generation",
    )?;
    let mut rows = statement.query((agent.as_str(), signed(since.registered), signed(since.tombstones)))?;
    let mut assignments = Vec::new();
    while let Some(row) = rows.next()? {
        assignments.push(PoolAssignment { generation: counter(row, 0)?, pool: pool(row, 1)? });
    }
    Ok(assignments)
}

/// From three columns beginning with `first`: namespace, id, limits.
fn pool(row: &Row<'_>, first: usize) -> Tried<Pool> {
    let limits = row.get_ref(first + 2)?.as_str().map_err(|error| Failure::damaged("pool limits", error))?;
    Ok(Pool {
        namespace: parsed(row, first, "namespace")?,
        id: parsed(row, first + 1, "pool id")?,
        limits: from_json("pool limits", limits)?,
    })
}
