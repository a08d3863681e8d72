//! Events in the ledger: a bounded table, the next sequence number, and how many events were dropped.
//!
//! The number of dropped events is recorded; an event of kind `events_dropped` reports its share of it. An event that
//! cannot be parsed (a newer agent wrote it) counts as dropped: it is no reason to set the whole ledger aside.

use proctor_model::{Event, EventKind};
use rusqlite::{Connection, params};

use super::{LedgerBatch, LedgerState, json, number_fact, set_fact};
use crate::spool::{COUNT, SPOOLED_MAX};

const NEXT: &str = "next_event";
const DROPPED: &str = "events_dropped";

/// How many events the table holds, counted once and then kept.
#[derive(Debug, Default)]
pub(super) struct Spooled {
    count: Option<usize>,
}

impl Spooled {
    /// After a transaction that was rolled back the count is not known.
    pub(super) fn forget(&mut self) {
        self.count = None;
    }

    fn count(&mut self, connection: &Connection) -> rusqlite::Result<&mut usize> {
        let count = match self.count {
            Some(count) => count,
            None => connection.query_row("SELECT count(*) FROM event", [], |row| row.get::<_, u32>(0))? as usize,
        };
        Ok(self.count.insert(count))
    }
}

pub(super) fn read(connection: &Connection, memory: &mut LedgerState) -> rusqlite::Result<()> {
    memory.next_event = number_fact(connection, NEXT)?;
    memory.events_dropped = number_fact(connection, DROPPED)?;
    let mut statement = connection.prepare("SELECT event FROM event ORDER BY sequence")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match serde_json::from_str::<Event>(row.get_ref(0)?.as_str()?) {
            Ok(event) => memory.events.push(event),
            Err(_) => memory.events_dropped += 1,
        }
    }
    Ok(())
}

/// Adds and removes what the batch says, then drops the oldest beyond the bound.
pub(super) fn write(connection: &Connection, batch: &LedgerBatch, spooled: &mut Spooled) -> rusqlite::Result<()> {
    if batch.events.is_empty() && batch.events_seen.is_none() {
        return Ok(());
    }
    let count = spooled.count(connection)?;
    for event in &batch.events {
        *count += connection
            .prepare_cached("INSERT OR IGNORE INTO event (sequence, event) VALUES (?1, ?2)")?
            .execute(params![signed(event.sequence), json(event)])?;
    }
    if let Some(newest) = batch.events.iter().map(|event| event.sequence).max() {
        set_fact(connection, NEXT, &newest.saturating_add(1).to_string())?;
    }
    if let Some(up_to) = batch.events_seen {
        let seen = connection.prepare_cached("DELETE FROM event WHERE sequence <= ?1")?.execute([signed(up_to)])?;
        *count = count.saturating_sub(seen);
    }
    let excess = count.saturating_sub(SPOOLED_MAX);
    if excess > 0 {
        let oldest = "DELETE FROM event WHERE sequence IN (SELECT sequence FROM event ORDER BY sequence LIMIT ?1)";
        *count -= connection.prepare_cached(oldest)?.execute([signed(excess as u64)])?;
    }
    write_dropped(connection, batch, excess)
}

/// What was dropped before and now, minus what the events of this batch report.
fn write_dropped(connection: &Connection, batch: &LedgerBatch, more: usize) -> rusqlite::Result<()> {
    let told: u64 = batch.events.iter().filter_map(told_by).sum();
    if told == 0 && more == 0 {
        return Ok(());
    }
    let dropped = number_fact(connection, DROPPED)?.saturating_add(more as u64).saturating_sub(told);
    set_fact(connection, DROPPED, &dropped.to_string())
}

fn told_by(event: &Event) -> Option<u64> {
    let count = event.details.get(COUNT).filter(|_| event.kind == EventKind::EventsDropped)?;
    count.parse().ok()
}

/// SQLite has no unsigned numbers; no honest sequence comes near the border.
fn signed(sequence: u64) -> i64 {
    i64::try_from(sequence).unwrap_or(i64::MAX)
}
