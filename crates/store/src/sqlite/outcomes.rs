//! Outcomes of targets: a row each, written once, never changed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use proctor_model::{Code, OperationId, Outcome, Snapshot, TaskId};
use rusqlite::{Connection, OptionalExtension, Row};

use super::column::{from_json, snapshot, snapshot_json};
use super::failure::{Failure, Tried};
use crate::Millis;

/// A task while outcomes are added to it.
struct Task {
    seq: i64,
    target_count: u32,
    added: u32,
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
            Entry::Vacant(place) => place.insert(task(connection, operation.task)?),
        };
        let Some(task) = task else { continue };
        if operation.index < task.target_count && insert_one(connection, task.seq, operation.index, outcome, now)? {
            task.added += 1;
            recorded.push(*operation);
        }
    }
    for task in tasks.values().flatten() {
        close(connection, task.seq, task.added)?;
    }
    Ok(recorded)
}

/// The outcomes that are known when the task is created; of two for one target the first counts.
pub(super) fn insert(connection: &Connection, task: i64, outcomes: &[(u32, Outcome)], now: Millis) -> Tried<()> {
    let mut added = 0;
    for (index, outcome) in outcomes {
        added += u32::from(insert_one(connection, task, *index, outcome, now)?);
    }
    close(connection, task, added)
}

fn task(connection: &Connection, id: TaskId) -> Tried<Option<Task>> {
    let task = connection
        .prepare_cached("SELECT seq, target_count FROM task WHERE id = ?1")?
        .query_row([id.as_uuid().as_bytes().as_slice()], |row| {
            Ok(Task { seq: row.get(0)?, target_count: row.get(1)?, added: 0 })
        })
        .optional()?;
    Ok(task)
}

/// Whether the target had no outcome before.
fn insert_one(connection: &Connection, task: i64, index: u32, outcome: &Outcome, now: Millis) -> Tried<bool> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO outcome (task, idx, code, message, output, managed, snapshot, instances, recorded_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
        )?
        .execute((
            task,
            index,
            outcome.code.number(),
            &outcome.message,
            &outcome.output,
            outcome.managed,
            outcome.snapshot.as_ref().map(snapshot_json),
            instances_json(&outcome.instances),
            now,
        ))?;
    Ok(inserted == 1)
}

fn close(connection: &Connection, task: i64, targets: u32) -> Tried<()> {
    if targets > 0 {
        connection
            .prepare_cached("UPDATE task SET open_count = open_count - ?2 WHERE seq = ?1")?
            .execute((task, targets))?;
    }
    Ok(())
}

/// For each of the task's targets, its outcome.
pub(super) fn of_task(connection: &Connection, task: i64, target_count: usize) -> Tried<Vec<Option<Outcome>>> {
    let mut outcomes = vec![None; target_count];
    let mut statement = connection.prepare_cached(
        "SELECT idx, code, message, output, managed, snapshot, instances FROM outcome WHERE task = ?1",
    )?;
    let mut rows = statement.query([task])?;
    while let Some(row) = rows.next()? {
        *slot(&mut outcomes, row)? = Some(outcome(row)?);
    }
    Ok(outcomes)
}

/// For each of the task's targets, whether it has an outcome.
pub(super) fn known(connection: &Connection, task: i64, target_count: usize) -> Tried<Vec<bool>> {
    let mut known = vec![false; target_count];
    let mut statement = connection.prepare_cached("SELECT idx FROM outcome WHERE task = ?1")?;
    let mut rows = statement.query([task])?;
    while let Some(row) = rows.next()? {
        *slot(&mut known, row)? = true;
    }
    Ok(known)
}

/// The place of the target whose index is in the first column.
fn slot<'a, T>(slots: &'a mut [T], row: &Row<'_>) -> Tried<&'a mut T> {
    let index: u32 = row.get(0)?;
    slots
        .get_mut(index as usize)
        .ok_or_else(|| Failure::Damaged(format!("outcome of target {index}, which is not there")))
}

fn outcome(row: &Row<'_>) -> Tried<Outcome> {
    let code = Code::try_from(row.get::<_, u32>(1)?).map_err(|error| Failure::damaged("outcome", error))?;
    Ok(Outcome {
        code,
        message: row.get(2)?,
        output: row.get(3)?,
        managed: row.get(4)?,
        snapshot: snapshot(row, 5)?,
        instances: instances(row, 6)?,
    })
}

/// NULL for the usual process, which has one instance.
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
