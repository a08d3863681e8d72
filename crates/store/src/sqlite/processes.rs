//! Registered processes, assignments for agents, and the last observation of each process.

use proctor_model::{AgentId, ProcessKey, Snapshot};
use rusqlite::{Connection, OptionalExtension, Row};

use super::column::{SpecReader, alias, counter, finite, host_and_agent, process_key, signed, snapshot, snapshot_json};
use super::failure::Tried;
use super::process_filter::Filter;
use super::process_order as order;
use super::registrations::Since;
use crate::{AgentReport, Assignment, Managed, Observation, ProcessOrder, ProcessQuery, ProcessRecord, Rank};

pub(super) fn list(connection: &Connection, query: &ProcessQuery) -> Tried<(u64, Vec<ProcessRecord>)> {
    let filter = Filter::new(connection, query)?;
    let is_whole = query.limit.is_none() && query.offset == 0 && query.after.is_none();
    if is_whole && query.order == ProcessOrder::default() {
        let mut all = read_all(connection, &filter)?;
        // SQLite would carry every row through its sorter.
        all.sort_by_cached_key(|record| (record.key.clone(), record.host.cloud, record.host.ip.to_string()));
        return Ok((all.len() as u64, all));
    }
    let total = if query.is_uncounted { 0 } else { count(connection, &filter)? };
    Ok((total, page(connection, filter, query)?))
}

fn count(connection: &Connection, filter: &Filter) -> Tried<u64> {
    let mut statement = connection.prepare_cached(&format!("SELECT count(*) {}", filter.sql()))?;
    let count: i64 = statement.query_row(filter.params().as_slice(), |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

/// First which rows, then their contents: only the rows of the page are read in full.
fn page(connection: &Connection, mut filter: Filter, query: &ProcessQuery) -> Tried<Vec<ProcessRecord>> {
    if let Some(cursor) = &query.after {
        order::behind(&mut filter, query.order, cursor);
    }
    filter.value(":limit", query.limit.map_or(-1, signed));
    filter.value(":offset", signed(query.offset));
    // The text may match few processes or none: in index order, all of them would be looked up, each in another
    // page of the table. The unary plus keeps SQLite from doing that.
    let unordered = if query.text.is_some() { "+" } else { "" };
    let mut which = connection.prepare_cached(&format!(
        "SELECT process.id, {} {} ORDER BY {unordered}{} LIMIT :limit OFFSET :offset",
        order::rank(query.order.by).unwrap_or("NULL"),
        filter.sql(),
        order::terms(query.order)
    ))?;
    let mut what = connection.prepare_cached(&format!(
        "{SELECT_RECORD} FROM process JOIN host ON host.id = process.host LEFT JOIN placement USING (cloud, ip)
         {WITH_SNAPSHOT} WHERE process.id = ?1"
    ))?;
    let mut specs = SpecReader::default();
    let mut records = Vec::new();
    let mut rows = which.query(filter.params().as_slice())?;
    while let Some(row) = rows.next()? {
        let mut found = what.query([row.get::<_, i64>(0)?])?;
        if let Some(whole) = found.next()? {
            records.push(ProcessRecord { rank: order::rank_at(row, 1)?, ..record(connection, whole, &mut specs)? });
        }
    }
    Ok(records)
}

const SELECT_RECORD: &str = "SELECT cloud, supplier, ip, agent, online, namespace, name, spec, process.generation,
    registered_at, snapshot.json, business, alias, presence_changed_at, phase_since, managed ";
const WITH_SNAPSHOT: &str = " LEFT JOIN snapshot ON snapshot.process = process.id ";

fn read_all(connection: &Connection, filter: &Filter) -> Tried<Vec<ProcessRecord>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT_RECORD} {}", filter.sql_joined(WITH_SNAPSHOT)))?;
    let mut rows = statement.query(filter.params().as_slice())?;
    let mut specs = SpecReader::default();
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(record(connection, row, &mut specs)?);
    }
    Ok(records)
}

pub(super) fn at(connection: &Connection, keys: &[(AgentId, ProcessKey)]) -> Tried<Vec<Option<ProcessRecord>>> {
    let mut statement = connection.prepare_cached(&format!(
        "{SELECT_RECORD} FROM host JOIN process ON process.host = host.id LEFT JOIN placement USING (cloud, ip)
         {WITH_SNAPSHOT} WHERE agent = ?1 AND namespace = ?2 AND name = ?3 AND spec IS NOT NULL"
    ))?;
    let mut specs = SpecReader::default();
    let mut read = |(agent, key): &(AgentId, ProcessKey)| {
        let mut rows = statement.query((agent.as_str(), key.namespace.as_str(), key.name.as_str()))?;
        rows.next()?.map(|row| record(connection, row, &mut specs)).transpose()
    };
    keys.iter().map(&mut read).collect()
}

/// From the columns of [`SELECT_RECORD`].
fn record(connection: &Connection, row: &Row<'_>, specs: &mut SpecReader) -> Tried<ProcessRecord> {
    let (host, agent) = host_and_agent(row, 0)?;
    let managed = row.get(15)?;
    // An operation may have reported it since the observation.
    let snapshot = snapshot(row, 10)?.map(|snapshot| Snapshot { managed, ..snapshot });
    Ok(ProcessRecord {
        host,
        agent,
        alias: alias(row, 12)?,
        business: row.get::<_, Option<i64>>(11)?.map(i64::cast_unsigned),
        online: row.get(4)?,
        presence_changed_at: row.get(13)?,
        key: process_key(row, 5)?,
        spec: specs.get(connection, row.get(7)?)?,
        generation: counter(row, 8)?,
        registered_at: row.get(9)?,
        snapshot,
        phase_since: Some(row.get(14)?).filter(|since| *since > 0),
        rank: None::<Rank>,
    })
}

/// What was registered since one generation, and the tombstones since another.
pub(super) fn assignments(
    connection: &Connection,
    specs: &mut SpecReader,
    agent: &AgentId,
    since: Since,
) -> Tried<Vec<Assignment>> {
    let mut statement = connection.prepare_cached(
        "SELECT process.generation, namespace, name, spec, managed, registered_at
         FROM host JOIN process ON process.host = host.id
         WHERE host.agent = ?1 AND process.generation > ?2 AND (spec IS NOT NULL OR (?3 > 0 AND process.generation > ?3))
         ORDER BY process.generation",
    )?;
    let mut rows = statement.query((agent.as_str(), signed(since.registered), signed(since.tombstones)))?;
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

/// For each observation of each report, whether it was stored.
pub(super) fn observe(connection: &Connection, reports: &[AgentReport]) -> Tried<Vec<Vec<bool>>> {
    let mut host_of = connection.prepare_cached("SELECT id FROM host WHERE agent = ?1 AND epoch <= ?2")?;
    let mut update = connection.prepare_cached(
        "UPDATE process SET phase_since = iif(phase = ?4 AND phase_since > 0, phase_since, ?6), phase = ?4, managed = ?5,
             reported_at = ?6, started_at = ?7, restarts = ?8, cpu = ?9, memory = ?10, memory_bytes = ?11, evicted = ?12,
             health = ?13, version = ?14, reason = ?15, observed = ?16
         WHERE host = ?1 AND namespace = ?2 AND name = ?3 AND spec IS NOT NULL RETURNING id",
    )?;
    let mut keep = connection.prepare_cached(
        "INSERT INTO snapshot (process, json) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET json = excluded.json",
    )?;
    let mut write = |host: i64, Observation { key, snapshot }: &Observation| -> Tried<bool> {
        let usage = &snapshot.usage;
        let columns = rusqlite::params![
            host,
            key.namespace.as_str(),
            key.name.as_str(),
            snapshot.phase.as_str(),
            snapshot.managed,
            snapshot.reported_at,
            snapshot.started_at,
            snapshot.restarts,
            finite(usage.cpu_percent),
            finite(usage.memory_percent),
            signed(usage.memory_bytes),
            snapshot.is_evicted(),
            &snapshot.health,
            &snapshot.version,
            &snapshot.reason,
            snapshot.digest().cast_signed(),
        ];
        let process: Option<i64> = update.query_row(columns, |row| row.get(0)).optional()?;
        if let Some(process) = process {
            keep.execute((process, snapshot_json(snapshot)))?;
        }
        Ok(process.is_some())
    };
    let mut kept = Vec::with_capacity(reports.len());
    for AgentReport { agent, epoch, observations } in reports {
        let host: Option<i64> = host_of.query_row((agent.as_str(), signed(*epoch)), |row| row.get(0)).optional()?;
        kept.push(match host {
            Some(host) => observations.iter().map(|observation| write(host, observation)).collect::<Tried<_>>()?,
            None => vec![false; observations.len()],
        });
    }
    Ok(kept)
}

pub(super) fn observations(connection: &Connection, agent: &AgentId) -> Tried<Vec<Observation>> {
    let mut statement = connection.prepare_cached(
        "SELECT namespace, name, managed, snapshot.json
         FROM host JOIN process ON process.host = host.id JOIN snapshot ON snapshot.process = process.id
         WHERE host.agent = ?1 AND spec IS NOT NULL ORDER BY namespace, name",
    )?;
    let mut rows = statement.query([agent.as_str()])?;
    let mut observations = Vec::new();
    while let Some(row) = rows.next()? {
        let (key, managed) = (process_key(row, 0)?, row.get(2)?);
        let snapshot = snapshot(row, 3)?.map(|snapshot| Snapshot { managed, ..snapshot });
        observations.extend(snapshot.map(|snapshot| Observation { key, snapshot }));
    }
    Ok(observations)
}

/// Of processes that are no longer registered; `rows` is a JSON list of their numbers.
pub(super) fn forget_observations(connection: &Connection, rows: &str) -> Tried<()> {
    connection
        .prepare_cached(
            "UPDATE process SET phase = 'unknown', managed = 0, phase_since = 0, reported_at = 0, started_at = 0,
                 restarts = 0, cpu = 0, memory = 0, memory_bytes = 0, evicted = 0, health = '', version = '', reason = '', observed = NULL
             WHERE id IN (SELECT value FROM json_each(?1))",
        )?
        .execute([rows])?;
    connection
        .prepare_cached("DELETE FROM snapshot WHERE process IN (SELECT value FROM json_each(?1))")?
        .execute([rows])?;
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
