//! Events: one row each, appended, read in order, pruned from the beginning.
//!
//! An agent reports only on processes of its own host: an event about another process is stored as one about the
//! host, so that readers of a namespace, and its webhooks, get nothing that a stranger made up.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proctor_model::{AgentId, Event, HostKey, ProcessKey};
use rusqlite::{Connection, OptionalExtension};

use super::column::{counter, from_json, host_and_agent, signed, to_json};
use super::failure::{Failure, Tried};
use super::hosts;
use super::where_clause::WhereClause;
use crate::{Cordon, EventCountQuery, EventPage, EventQuery, Millis, StoredEvent};

pub(super) fn append(
    connection: &Connection,
    agent: &AgentId,
    epoch: u64,
    events: &[Event],
    now: Millis,
) -> Tried<u64> {
    let highest = highest(connection, agent)?;
    let Some((host, current, cordon)) = host_of(connection, agent)? else { return Ok(highest) };
    if epoch < current {
        return Ok(highest);
    }
    let mut fresh: Vec<&Event> = events.iter().filter(|event| event.sequence > highest).collect();
    fresh.sort_by_key(|event| event.sequence);
    fresh.dedup_by_key(|event| event.sequence);
    let Some(newest) = fresh.last() else { return Ok(highest) };
    let is_muted = cordon.is_some_and(|cordon| cordon.holds_at(now));
    for event in &fresh {
        let own = about_own(connection, agent, event)?;
        insert(connection, &host, agent, &own, is_muted, now)?;
    }
    connection
        .prepare_cached(
            "INSERT INTO event_source (agent, highest) VALUES (?1, ?2)
             ON CONFLICT (agent) DO UPDATE SET highest = excluded.highest",
        )?
        .execute((agent.as_str(), signed(newest.sequence)))?;
    Ok(newest.sequence)
}

pub(super) fn append_own(connection: &Connection, events: Vec<(AgentId, Event)>, now: Millis) -> Tried<u64> {
    let mut kept = 0;
    for (agent, mut event) in events {
        let Some((host, _, cordon)) = host_of(connection, &agent)? else { continue };
        event.sequence = 0;
        insert(connection, &host, &agent, &event, cordon.is_some_and(|cordon| cordon.holds_at(now)), now)?;
        kept += 1;
    }
    Ok(kept)
}

/// The event; without its process (whose name becomes a detail) if the host does not have it and did not have it
/// recently; and without a report id that no spec of the process has, or had.
fn about_own<'a>(connection: &Connection, agent: &AgentId, event: &'a Event) -> Tried<Cow<'a, Event>> {
    let process = event.process.as_ref().map(|key| process_of(connection, agent, key)).transpose()?.flatten();
    match (&event.process, process, event.report_id) {
        (None, _, None) | (Some(_), Some(_), None) => Ok(Cow::Borrowed(event)),
        (Some(_), Some(process), Some(report_id)) if reports(connection, process, report_id)? => {
            Ok(Cow::Borrowed(event))
        }
        (Some(_), Some(_), Some(_)) => Ok(Cow::Owned(Event { report_id: None, ..event.clone() })),
        (key, None, _) | (key @ None, Some(_), _) => {
            let mut about_host = Event { process: None, proc_name: String::new(), report_id: None, ..event.clone() };
            if let Some(key) = key {
                about_host.details.insert("process".to_owned(), key.to_string());
            }
            Ok(Cow::Owned(about_host.fitted()))
        }
    }
}

/// The process on this agent's host, registered or no longer.
fn process_of(connection: &Connection, agent: &AgentId, key: &ProcessKey) -> Tried<Option<i64>> {
    let name = key.name.as_str();
    let mut statement = connection.prepare_cached(
        "SELECT process.id FROM process JOIN host ON host.id = process.host
         WHERE process.namespace = ?1 AND process.name IN (?2, ?3) AND host.agent = ?4",
    )?;
    let mut rows = statement.query((key.namespace.as_str(), name, without_instance(name), agent.as_str()))?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}

/// Whether a spec of the process has this report id: readers of its events rely on that.
fn reports(connection: &Connection, process: i64, report_id: i64) -> Tried<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT 1 FROM spec WHERE json ->> '$.report_id' = ?2
         AND id IN (SELECT spec FROM process WHERE id = ?1 UNION SELECT spec FROM spec_revision WHERE process = ?1)",
    )?;
    Ok(statement.exists((process, report_id))?)
}

/// `web#2` is an instance of `web`, which is what is registered.
fn without_instance(name: &str) -> &str {
    match name.rsplit_once('#') {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => base,
        Some(_) | None => name,
    }
}

fn highest(connection: &Connection, agent: &AgentId) -> Tried<u64> {
    let mut statement = connection.prepare_cached("SELECT highest FROM event_source WHERE agent = ?1")?;
    let mut rows = statement.query([agent.as_str()])?;
    rows.next()?.map_or(Ok(0), |row| counter(row, 0))
}

/// The host that the agent is bound to, the epoch of its newest session, and its last cordon.
fn host_of(connection: &Connection, agent: &AgentId) -> Tried<Option<(HostKey, u64, Option<Cordon>)>> {
    let mut statement =
        connection.prepare_cached("SELECT cloud, supplier, ip, agent, epoch, cordon FROM host WHERE agent = ?1")?;
    let mut rows = statement.query([agent.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some((host_and_agent(row, 0)?.0, counter(row, 4)?, hosts::cordon_at(row, 5)?)))
}

fn insert(
    connection: &Connection,
    host: &HostKey,
    agent: &AgentId,
    event: &Event,
    is_muted: bool,
    now: Millis,
) -> Tried<()> {
    let process = event.process.as_ref();
    connection
        .prepare_cached(
            "INSERT INTO event (cloud, supplier, ip, agent, kind, namespace, name, report_id, event, stored_at, muted)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute((
            host.cloud,
            host.supplier,
            host.ip.to_string(),
            agent.as_str(),
            event.kind.as_str(),
            process.map(|key| key.namespace.as_str()),
            process.map(|key| key.name.as_str()),
            event.report_id,
            to_json(event),
            now,
            is_muted,
        ))?;
    Ok(())
}

pub(super) fn list(connection: &Connection, query: &EventQuery) -> Tried<EventPage> {
    let newest = newest(connection)?;
    let mut narrowed = narrowed_by(query);
    narrowed.by("id > ?", signed(query.after.unwrap_or(0)));
    narrowed.by_some("id < ?", query.before.map(signed));
    narrowed.by_some("stored_at >= ?", query.since);
    narrowed.by_some("stored_at < ?", query.until);
    let Some(after) = query.after else {
        let mut events = read(narrowed, connection, "DESC", query.limit)?;
        events.reverse();
        return Ok(EventPage { events, next: newest });
    };
    let events = read(narrowed, connection, "ASC", query.limit)?;
    let next = match events.last() {
        Some(last) if events.len() >= query.limit as usize => last.id,
        Some(_) | None => newest.max(after),
    };
    Ok(EventPage { events, next })
}

/// What the events are about.
fn narrowed_by(query: &EventQuery) -> WhereClause {
    let mut narrowed = WhereClause::default();
    narrowed.by_some("namespace = ?", query.namespace.as_ref().map(|namespace| namespace.as_str().to_owned()));
    narrowed.by_some("name = ?", query.name.as_ref().map(|name| name.as_str().to_owned()));
    narrowed.by_some("agent = ?", query.agent.as_ref().map(|agent| agent.as_str().to_owned()));
    narrowed.by_some("report_id = ?", query.report_id);
    if query.is_alarm {
        narrowed.by_fact("NOT muted");
    }
    if !query.kinds.is_empty() {
        narrowed.by("kind IN (SELECT value FROM json_each(?))", to_json(&query.kinds));
    }
    narrowed
}

pub(super) fn count(connection: &Connection, query: &EventCountQuery) -> Tried<BTreeMap<String, Vec<u64>>> {
    let step = i64::from(query.step_ms.get());
    let until = query.from.saturating_add(step.saturating_mul(i64::from(query.steps)));
    let mut narrowed = narrowed_by(&query.which);
    narrowed.by_both("stored_at >= ? AND stored_at < ?", query.from, until);
    // The step and count are our own, so steps times kinds bounds the rows.
    let sql = format!(
        "SELECT (stored_at - {}) / {step}, kind, count(*) FROM event WHERE {} GROUP BY 1, 2 LIMIT ?",
        query.from,
        narrowed.conditions()
    );
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?, counter(row, 2)?));
    let mut series: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (step, kind, count) in narrowed.read(connection, &sql, u32::MAX, read)? {
        let steps = series.entry(kind).or_insert_with(|| vec![0; query.steps as usize]);
        if let Some(slot) = steps.get_mut(step as usize) {
            *slot = count;
        }
    }
    Ok(series)
}

/// The id of the newest event ever stored.
fn newest(connection: &Connection) -> Tried<u64> {
    let newest: Option<i64> = connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'event'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(newest.map_or(0, i64::cast_unsigned))
}

/// At most `limit`, in the order of their ids.
fn read(narrowed: WhereClause, connection: &Connection, order: &str, limit: u32) -> Tried<Vec<StoredEvent>> {
    let sql = format!(
        "SELECT id, cloud, supplier, ip, agent, event, stored_at, muted FROM event WHERE {} ORDER BY id {order} LIMIT ?",
        narrowed.conditions()
    );
    narrowed.read(connection, &sql, limit, |row| {
        let (host, agent) = host_and_agent(row, 1)?;
        let event = row.get_ref(5)?.as_str().map_err(|error| Failure::damaged("event", error))?;
        let event = from_json("event", event)?;
        Ok(StoredEvent { id: counter(row, 0)?, host, agent, event, stored_at: row.get(6)?, muted: row.get(7)? })
    })
}
