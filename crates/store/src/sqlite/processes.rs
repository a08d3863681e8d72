//! The processes that are registered, what agents must learn of them, and what was last seen of each.

use proctor_model::AgentId;
use rusqlite::{Connection, OptionalExtension};

use super::column::{SpecReader, alias, counter, host_and_agent, process_key, signed, snapshot, snapshot_json};
use super::failure::Tried;
use super::process_filter::Filter;
use crate::{Assignment, Managed, Observation, ProcessQuery, ProcessRecord};

pub(super) fn list(connection: &Connection, query: &ProcessQuery) -> Tried<(u64, Vec<ProcessRecord>)> {
    let filter = Filter::new(connection, query)?;
    if query.limit.is_none() && query.offset == 0 && query.after.is_none() {
        let mut all = read(connection, &filter, "")?;
        // SQLite would carry every snapshot through its sorter.
        all.sort_by_cached_key(|record| (record.key.clone(), record.host.cloud, record.host.ip.to_string()));
        return Ok((all.len() as u64, all));
    }
    let total: i64 = connection
        .prepare_cached(&format!("SELECT count(*) {}", filter.sql()))?
        .query_row(filter.params().as_slice(), |row| row.get(0))?;
    Ok((total.cast_unsigned(), page(connection, filter, query)?))
}

fn page(connection: &Connection, mut filter: Filter, query: &ProcessQuery) -> Tried<Vec<ProcessRecord>> {
    if let Some(cursor) = &query.after {
        filter.behind(cursor);
    }
    filter.value(":limit", query.limit.map_or(-1, signed));
    filter.value(":offset", signed(query.offset));
    read(connection, &filter, "ORDER BY namespace, name, cloud, ip LIMIT :limit OFFSET :offset")
}

fn read(connection: &Connection, filter: &Filter, order: &str) -> Tried<Vec<ProcessRecord>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT cloud, supplier, ip, agent, online, namespace, name, spec, process.generation, registered_at, snapshot,
                business, alias
         {} {order}",
        filter.sql()
    ))?;
    let mut rows = statement.query(filter.params().as_slice())?;
    let mut specs = SpecReader::default();
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let (host, agent) = host_and_agent(row, 0)?;
        records.push(ProcessRecord {
            host,
            agent,
            alias: alias(row, 12)?,
            business: row.get::<_, Option<i64>>(11)?.map(i64::cast_unsigned),
            online: row.get(4)?,
            key: process_key(row, 5)?,
            spec: specs.get(connection, row.get(7)?)?,
            generation: counter(row, 8)?,
            registered_at: row.get(9)?,
            snapshot: snapshot(row, 10)?,
        });
    }
    Ok(records)
}

pub(super) fn assignments(connection: &Connection, agent: &AgentId, since: u64) -> Tried<Vec<Assignment>> {
    let mut statement = connection.prepare_cached(
        "SELECT process.generation, namespace, name, spec, managed, registered_at
         FROM host JOIN process ON process.host = host.id
         WHERE host.agent = ?1 AND process.generation > ?2 AND (spec IS NOT NULL OR ?2 > 0)
         ORDER BY process.generation",
    )?;
    let mut rows = statement.query((agent.as_str(), signed(since)))?;
    let mut specs = SpecReader::default();
    let mut assignments = Vec::new();
    while let Some(row) = rows.next()? {
        let spec: Option<i64> = row.get(3)?;
        assignments.push(Assignment {
            generation: counter(row, 0)?,
            key: process_key(row, 1)?,
            spec: spec.map(|number| specs.get(connection, number)).transpose()?,
            managed: row.get(4)?,
            registered_at: row.get(5)?,
        });
    }
    Ok(assignments)
}

pub(super) fn observe(connection: &Connection, agent: &AgentId, epoch: u64, observations: &[Observation]) -> Tried<()> {
    let host: Option<i64> = connection
        .prepare_cached("SELECT id FROM host WHERE agent = ?1 AND epoch <= ?2")?
        .query_row((agent.as_str(), signed(epoch)), |row| row.get(0))
        .optional()?;
    let Some(host) = host else { return Ok(()) };
    let mut statement = connection.prepare_cached(
        "UPDATE process SET snapshot = ?4, managed = ?5, phase = ?6
         WHERE host = ?1 AND namespace = ?2 AND name = ?3 AND spec IS NOT NULL",
    )?;
    for Observation { key, snapshot } in observations {
        let (json, phase) = (snapshot_json(snapshot), snapshot.phase.as_str());
        statement.execute((host, key.namespace.as_str(), key.name.as_str(), json, snapshot.managed, phase))?;
    }
    Ok(())
}

pub(super) fn keep_managed(connection: &Connection, managed: &[Managed]) -> Tried<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE process SET managed = ?5
         WHERE host = (SELECT id FROM host WHERE agent = ?1 AND epoch <= ?2)
           AND namespace = ?3 AND name = ?4 AND spec IS NOT NULL AND managed <> ?5",
    )?;
    for Managed { agent, epoch, key, managed } in managed {
        statement.execute((agent.as_str(), signed(*epoch), key.namespace.as_str(), key.name.as_str(), managed))?;
    }
    Ok(())
}
