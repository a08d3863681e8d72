//! Whole tasks, and everything that is open.

use proctor_model::{OperationId, TaskId};
use rusqlite::Connection;

use super::super::column::SpecReader;
use super::super::failure::{Failure, Tried};
use super::super::outcomes;
use super::header::{Header, SELECT_HEADER, task_id};
use crate::{OpenTarget, TargetView, TaskView};

pub(in super::super) fn get(connection: &Connection, id: TaskId) -> Tried<Option<TaskView>> {
    let Some(header) = Header::find(connection, id)? else { return Ok(None) };
    let items = header.items(connection, &mut SpecReader::default())?;
    let targets = header.targets(connection)?;
    let outcomes = outcomes::of_task(connection, header.seq, 0, targets.len())?;
    let targets = targets.into_iter().zip(outcomes).map(|(target, outcome)| TargetView { target, outcome }).collect();
    let Header { id, created_at, app, user, owners, scope, family, cancelled_at, retry_of, rollout, .. } = header;
    Ok(Some(TaskView {
        id,
        created_at,
        app,
        user,
        owners,
        scope,
        family,
        cancelled_at,
        retry_of,
        rollout,
        items,
        targets,
    }))
}

pub(in super::super) fn ids(connection: &Connection, limit: u32) -> Tried<Vec<TaskId>> {
    let mut statement = connection
        .prepare_cached("SELECT id FROM task WHERE forgotten = 0 ORDER BY created_at DESC, seq DESC LIMIT ?1")?;
    let ids = statement.query_map([limit], |row| row.get(0).map(task_id))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

pub(in super::super) fn open_targets(connection: &Connection) -> Tried<Vec<OpenTarget>> {
    let mut statement =
        connection.prepare_cached(&format!("{SELECT_HEADER} WHERE open_count > 0 ORDER BY created_at, seq"))?;
    let mut rows = statement.query([])?;
    let mut specs = SpecReader::default();
    let mut open = Vec::new();
    while let Some(row) = rows.next()? {
        open.append(&mut open_targets_of(connection, &Header::from_row(row)?, &mut specs)?);
    }
    Ok(open)
}

fn open_targets_of(connection: &Connection, task: &Header, specs: &mut SpecReader) -> Tried<Vec<OpenTarget>> {
    let items = task.items(connection, specs)?;
    let targets = task.targets(connection)?;
    let is_final = outcomes::known(connection, task.seq, 0, targets.len())?;
    let mut open = Vec::new();
    for ((index, target), is_final) in (0..).zip(targets).zip(is_final) {
        if is_final {
            continue;
        }
        let item = items
            .get(target.item as usize)
            .ok_or_else(|| Failure::Damaged(format!("task {}: target {index} names no item", task.id)))?;
        // Creating a task with such a target is refused.
        let Some(kind) = item.kind else { continue };
        open.push(OpenTarget {
            operation: OperationId::first(task.id, index),
            agent: target.agent,
            key: item.key.clone(),
            kind,
            spec: item.spec.clone(),
            created_at: task.created_at,
            time_limit_ms: item.time_limit_ms,
            wait_ms: item.wait_ms,
        });
    }
    Ok(open)
}
