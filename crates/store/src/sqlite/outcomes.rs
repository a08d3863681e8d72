//! Outcomes of targets: one row each, written once, never changed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use proctor_model::{Code, Message, OperationId, Outcome, Phrase, Sender, Snapshot, TaskId};
use rusqlite::{Connection, OptionalExtension, Row};

use super::column::{from_json, signed, snapshot, snapshot_json};
use super::failure::{Failure, Tried};
use crate::Millis;

/// A task while outcomes are added to it.
struct Task {
    seq: i64,
    target_count: u32,
    added: Added,
}

/// Outcomes that are new to a task.
#[derive(Default)]
struct Added {
    count: u32,
    failed: u32,
}

impl Added {
    fn count(&mut self, outcome: &Outcome) {
        self.count += 1;
        self.failed += u32::from(!outcome.code.is_success());
    }
}

pub(super) fn record(
    connection: &Connection,
    outcomes: &[(OperationId, Outcome)],
    now: Millis,
) -> Tried<Vec<OperationId>> {
    let mut tasks: HashMap<TaskId, Option<Task>> = HashMap::new();
    let mut recorded = Vec::new();
    for (operation, outcome) in outcomes {
        let task = match tasks.entry(operation.task) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(entry) => entry.insert(task(connection, operation.task)?),
        };
        let Some(task) = task else { continue };
        if operation.index < task.target_count && insert_one(connection, task.seq, operation.index, outcome, now)? {
            task.added.count(outcome);
            recorded.push(*operation);
        }
    }
    for task in tasks.values().flatten() {
        close(connection, task.seq, &task.added, now)?;
    }
    Ok(recorded)
}

/// The outcomes known at creation; if there are two for one target, the first wins.
pub(super) fn insert(connection: &Connection, task: i64, outcomes: &[(u32, Outcome)], now: Millis) -> Tried<()> {
    let mut added = Added::default();
    for (index, outcome) in outcomes {
        if insert_one(connection, task, *index, outcome, now)? {
            added.count(outcome);
        }
    }
    close(connection, task, &added, now)
}

/// Gives this outcome to all targets from index `first` on that have none.
pub(super) fn end_from(
    connection: &Connection,
    task: i64,
    first: u32,
    target_count: u32,
    outcome: &Outcome,
    now: Millis,
) -> Tried<()> {
    let mut added = Added::default();
    for index in first..target_count {
        if insert_one(connection, task, index, outcome, now)? {
            added.count(outcome);
        }
    }
    close(connection, task, &added, now)
}

fn task(connection: &Connection, id: TaskId) -> Tried<Option<Task>> {
    let task = connection
        .prepare_cached("SELECT seq, target_count FROM task WHERE id = ?1 AND forgotten = 0")?
        .query_row([id.as_uuid().as_bytes().as_slice()], |row| {
            Ok(Task { seq: row.get(0)?, target_count: row.get(1)?, added: Added::default() })
        })
        .optional()?;
    Ok(task)
}

/// Whether the target had no outcome before.
fn insert_one(connection: &Connection, task: i64, index: u32, outcome: &Outcome, now: Millis) -> Tried<bool> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO outcome (task, idx, code, message, output, managed, snapshot, instances, recorded_at, phrase)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
        )?
        .execute((
            task,
            index,
            outcome.code.number(),
            outcome.message.as_str(),
            &outcome.output,
            outcome.managed,
            outcome.snapshot.as_ref().map(snapshot_json),
            instances_json(&outcome.instances),
            now,
            outcome.message.phrase().map(Phrase::to_json),
        ))?;
    Ok(inserted == 1)
}

fn close(connection: &Connection, task: i64, added: &Added, now: Millis) -> Tried<()> {
    if added.count > 0 {
        connection
            .prepare_cached(
                "UPDATE task SET open_count = open_count - ?2, failed_count = failed_count + ?3,
                        finished_at = iif(open_count = ?2, ?4, NULL), finished_uptime = iif(open_count = ?2, ms, NULL)
                 FROM uptime WHERE seq = ?1",
            )?
            .execute((task, added.count, added.failed, now))?;
    }
    Ok(())
}

/// For each of `count` targets of the task from index `first` on, its outcome.
pub(super) fn of_task(connection: &Connection, task: i64, first: u32, count: usize) -> Tried<Vec<Option<Outcome>>> {
    const SQL: &str = "SELECT idx, code, message, output, managed, snapshot, instances, phrase FROM outcome
                       WHERE task = ?1 AND idx BETWEEN ?2 AND ?3";
    slots(connection, SQL, task, first, count, |row| outcome(row).map(Some))
}

/// The outcomes of the task for which `known` is false. The others are skipped unread.
pub(super) fn besides(connection: &Connection, id: TaskId, known: &[bool]) -> Tried<Vec<(u32, Outcome)>> {
    let Some(Task { seq, .. }) = task(connection, id)? else { return Ok(Vec::new()) };
    let mut statement = connection.prepare_cached(
        "SELECT idx, code, message, output, managed, snapshot, instances, phrase FROM outcome WHERE task = ?1 ORDER BY idx",
    )?;
    let mut rows = statement.query([seq])?;
    let mut new = Vec::new();
    while let Some(row) = rows.next()? {
        let index: u32 = row.get(0)?;
        if known.get(index as usize) != Some(&true) {
            new.push((index, outcome(row)?));
        }
    }
    Ok(new)
}

/// For each of `count` targets of the task from index `first` on, whether it has an outcome.
pub(super) fn known(connection: &Connection, task: i64, first: u32, count: usize) -> Tried<Vec<bool>> {
    const SQL: &str = "SELECT idx FROM outcome WHERE task = ?1 AND idx BETWEEN ?2 AND ?3";
    slots(connection, SQL, task, first, count, |_| Ok(true))
}

/// A value for each of `count` targets, read from a row whose first column is the index.
fn slots<T: Default + Clone>(
    connection: &Connection,
    sql: &str,
    task: i64,
    first: u32,
    count: usize,
    read: impl Fn(&Row<'_>) -> Tried<T>,
) -> Tried<Vec<T>> {
    let mut slots = vec![T::default(); count];
    let last = i64::from(first) + signed(count as u64) - 1;
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((task, first, last))?;
    while let Some(row) = rows.next()? {
        let index: u32 = row.get(0)?;
        slots[(index - first) as usize] = read(row)?;
    }
    Ok(slots)
}

/// The codes of the targets that have an outcome.
pub(super) fn codes(connection: &Connection, id: TaskId) -> Tried<Vec<(u32, Code)>> {
    let Some(Task { seq, .. }) = task(connection, id)? else { return Ok(Vec::new()) };
    let mut statement = connection.prepare_cached("SELECT idx, code FROM outcome WHERE task = ?1 ORDER BY idx")?;
    let mut rows = statement.query([seq])?;
    let mut codes = Vec::new();
    while let Some(row) = rows.next()? {
        let code = Code::try_from(row.get::<_, u32>(1)?).map_err(|error| Failure::damaged("outcome", error))?;
        codes.push((row.get(0)?, code));
    }
    Ok(codes)
}

/// At most `limit` targets of the task from index `first` on that ended with this code.
pub(super) fn indexes_of(connection: &Connection, task: i64, code: Code, first: u32, limit: u32) -> Tried<Vec<u32>> {
    let mut statement = connection
        .prepare_cached("SELECT idx FROM outcome WHERE task = ?1 AND idx >= ?2 AND code = ?3 ORDER BY idx LIMIT ?4")?;
    let indexes = statement.query_map((task, first, code.number(), limit), |row| row.get(0))?;
    Ok(indexes.collect::<rusqlite::Result<_>>()?)
}

/// At most `limit` targets of the task from index `first` on that succeeded, or that failed.
pub(super) fn indexes(connection: &Connection, task: i64, is_success: bool, first: u32, limit: u32) -> Tried<Vec<u32>> {
    let mut statement = connection.prepare_cached(
        "SELECT idx FROM outcome WHERE task = ?1 AND idx >= ?2 AND (code = ?3) = ?4 ORDER BY idx LIMIT ?5",
    )?;
    let indexes = statement.query_map((task, first, Code::Success.number(), is_success, limit), |row| row.get(0))?;
    Ok(indexes.collect::<rusqlite::Result<_>>()?)
}

fn outcome(row: &Row<'_>) -> Tried<Outcome> {
    let code = Code::try_from(row.get::<_, u32>(1)?).map_err(|error| Failure::damaged("outcome", error))?;
    Ok(Outcome {
        code,
        message: Message::of_parts(row.get(2)?, phrase(row, 7)?),
        output: row.get(3)?,
        managed: row.get(4)?,
        snapshot: snapshot(row, 5)?,
        instances: instances(row, 6)?,
    })
}

/// A code written by a newer server is unknown here; its text is still available.
fn phrase(row: &Row<'_>, column: usize) -> Tried<Option<Phrase>> {
    let json = row.get::<_, Option<String>>(column)?;
    Ok(json.and_then(|json| Phrase::from_json(&json, Sender::Server)))
}

/// NULL for the usual process with one instance.
fn instances_json(instances: &[Snapshot]) -> Option<String> {
    let all: Vec<String> = instances.iter().map(snapshot_json).collect();
    (!all.is_empty()).then(|| format!("[{}]", all.join(",")))
}

fn instances(row: &Row<'_>, column: usize) -> Tried<Vec<Snapshot>> {
    match row.get::<_, Option<String>>(column)? {
        Some(json) => from_json("instances", &json),
        None => Ok(Vec::new()),
    }
}
