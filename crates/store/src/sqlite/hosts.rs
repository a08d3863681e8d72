//! Hosts and the presence of their agents.

use proctor_model::{AgentId, HostFacts, HostKey, Places};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row};

use super::column::{counter, exact, from_json, host_and_agent, parsed, signed, to_json};
use super::failure::{Failure, Tried};
use super::narrowed::Narrowed;
use crate::{HostQuery, HostRecord, Millis};

/// The columns that [`host_record`] reads.
macro_rules! select_host {
    ($rest:literal) => {
        concat!(
            "SELECT cloud, supplier, ip, agent, facts, enrolled_at, online, epoch, presence_changed_at, business, alias
             FROM host LEFT JOIN placement USING (cloud, ip) ",
            $rest
        )
    };
}

pub(super) fn list(connection: &Connection, query: &HostQuery) -> Tried<Vec<HostRecord>> {
    let mut narrowed = Narrowed::default();
    narrowed.by_fact("agent IS NOT NULL");
    narrowed.by_some("cloud = ?", query.cloud);
    narrowed.by_some("business = ?", query.business.map(exact).transpose()?);
    narrowed.by_some("online = ?", query.online);
    if let Some(Places { everywhere: false, businesses, clouds, namespaces: _ }) = &query.places {
        // A host as a whole is in no namespace.
        let inside = "(business IN (SELECT value FROM json_each(?)) OR cloud IN (SELECT value FROM json_each(?)))";
        narrowed.by_both(inside, to_json(businesses), to_json(clouds));
    }
    if let Some(after) = &query.after {
        narrowed.by_both("(cloud, ip) > (?, ?)", after.cloud, after.ip.to_string());
    }
    let sql = format!("{} WHERE {} ORDER BY cloud, ip LIMIT ?", select_host!(""), narrowed.conditions());
    narrowed.read(connection, &sql, query.limit.unwrap_or(u32::MAX), host_record)
}

pub(super) fn by_key(connection: &Connection, keys: &[HostKey]) -> Tried<Vec<Option<HostRecord>>> {
    let mut statement =
        connection.prepare_cached(select_host!("WHERE cloud = ?1 AND ip = ?2 AND agent IS NOT NULL"))?;
    let find = |key: &HostKey| {
        let mut rows = statement.query((key.cloud, key.ip.to_string()))?;
        rows.next()?.map(host_record).transpose()
    };
    keys.iter().map(find).collect()
}

pub(super) fn by_agent(connection: &Connection, agents: &[AgentId]) -> Tried<Vec<Option<HostRecord>>> {
    let mut by_own = connection.prepare_cached(select_host!("WHERE agent = ?1"))?;
    let mut by_alias = connection.prepare_cached(select_host!("WHERE alias = ?1 AND agent IS NOT NULL"))?;
    let find = |agent: &AgentId| {
        if let Some(row) = by_own.query([agent.as_str()])?.next()? {
            return host_record(row).map(Some);
        }
        by_alias.query([agent.as_str()])?.next()?.map(host_record).transpose()
    };
    agents.iter().map(find).collect()
}

fn host_record(row: &Row<'_>) -> Tried<HostRecord> {
    let (key, agent) = host_and_agent(row, 0)?;
    let facts = row.get_ref(4)?.as_str().map_err(|error| Failure::damaged("host facts", error))?;
    Ok(HostRecord {
        key,
        agent,
        alias: if row.get_ref(10)?.data_type() == Type::Null { None } else { Some(parsed(row, 10, "agent id")?) },
        business: row.get::<_, Option<i64>>(9)?.map(i64::cast_unsigned),
        facts: from_json("host facts", facts)?,
        enrolled_at: row.get(5)?,
        online: row.get(6)?,
        epoch: counter(row, 7)?,
        presence_changed_at: row.get(8)?,
    })
}

pub(super) fn bind_aliases(connection: &Connection, bindings: &[(HostKey, AgentId)]) -> Tried<Vec<bool>> {
    let mut statement = connection.prepare_cached(
        "UPDATE host SET alias = iif(agent = ?3, NULL, ?3)
         WHERE cloud = ?1 AND ip = ?2 AND agent IS NOT NULL AND NOT EXISTS
             (SELECT 1 FROM host AS other WHERE other.id <> host.id AND (other.agent = ?3 OR other.alias = ?3))",
    )?;
    let bind = |(host, agent): &(HostKey, AgentId)| {
        Ok(statement.execute((host.cloud, host.ip.to_string(), agent.as_str()))? == 1)
    };
    bindings.iter().map(bind).collect()
}

/// An agent's own id goes before the alias of another host.
pub(super) fn forget_alias(connection: &Connection, agent: &AgentId) -> Tried<()> {
    connection.prepare_cached("UPDATE host SET alias = NULL WHERE alias = ?1")?.execute([agent.as_str()])?;
    Ok(())
}

/// The row of the host that the agent is bound to.
pub(super) fn row_of(connection: &Connection, agent: &AgentId) -> Tried<Option<i64>> {
    let id = connection
        .prepare_cached("SELECT id FROM host WHERE agent = ?1")?
        .query_row([agent.as_str()], |row| row.get(0))
        .optional()?;
    Ok(id)
}

/// Raises the host's generation and returns it.
pub(super) fn next_generation(connection: &Connection, host: i64) -> Tried<i64> {
    let generation = connection
        .prepare_cached("UPDATE host_generation SET generation = generation + 1 WHERE host = ?1 RETURNING generation")?
        .query_row([host], |row| row.get(0))?;
    Ok(generation)
}

pub(super) fn open_session(
    connection: &Connection,
    agent: &AgentId,
    facts: &HostFacts,
    now: Millis,
) -> Tried<Option<u64>> {
    let mut statement = connection.prepare_cached(
        "UPDATE host SET epoch = epoch + 1, online = 1, facts = ?2,
                presence_changed_at = iif(online, presence_changed_at, ?3)
         WHERE agent = ?1 RETURNING epoch",
    )?;
    let epoch: Option<i64> = statement.query_row((agent.as_str(), to_json(facts), now), |row| row.get(0)).optional()?;
    Ok(epoch.map(i64::cast_unsigned))
}

pub(super) fn close_session(connection: &Connection, agent: &AgentId, epoch: u64, now: Millis) -> Tried<()> {
    connection
        .prepare_cached(
            "UPDATE host SET online = 0, presence_changed_at = ?3 WHERE agent = ?1 AND epoch <= ?2 AND online",
        )?
        .execute((agent.as_str(), signed(epoch), now))?;
    Ok(())
}

pub(super) fn reset_presence(connection: &Connection, now: Millis) -> Tried<Vec<AgentId>> {
    let mut statement = connection
        .prepare_cached("UPDATE host SET online = 0, presence_changed_at = ?1 WHERE online RETURNING agent")?;
    let mut rows = statement.query([now])?;
    let mut agents = Vec::new();
    while let Some(row) = rows.next()? {
        agents.push(parsed(row, 0, "agent id")?);
    }
    Ok(agents)
}
