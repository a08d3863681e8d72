//! Tasks: written once, read while their outcomes arrive, deleted when old.
//!
//! Absent: outcomes and rollouts, which have their own files. Start at `read`.

mod header;
mod of_process;
mod page;
mod read;

use std::collections::{BTreeSet, HashSet};

use proctor_model::{Code, OperationKind, Outcome, ProcessKey, TaskId};
use rusqlite::{Connection, OptionalExtension};

use self::header::StoredItem;
pub(super) use self::header::{rollout, task_id};
pub(super) use self::of_process::of_process;
pub(super) use self::page::{list, summary, targets};
pub(super) use self::read::{get, ids, open_targets};
use super::audit;
use super::column::{signed, to_json};
use super::failure::{Failure, Tried};
use super::outcomes;
use super::registrations::{Registrar, Wanted};
use crate::{CreatedTask, Idempotency, NewTask, RegisterMode, Registered, Target, TaskItem};

/// Large enough for little overhead per target, small enough to parse in one go.
const TARGETS_PER_CHUNK: usize = 1000;

pub(super) fn create(connection: &Connection, task: &NewTask) -> Tried<CreatedTask> {
    check(task)?;
    if let Some(existing) = existing(connection, task)? {
        return Ok(existing);
    }
    let mut registrar = Registrar::new(connection, task.created_at)?;
    let items = to_json(&stored_items(&mut registrar, &task.items)?);
    let seq = insert(connection, task, &items)?;
    insert_processes(connection, seq, &task.items)?;
    insert_chunks(connection, seq, &task.targets)?;
    outcomes::insert(connection, seq, &task.outcomes, task.created_at)?;
    let registered = register_targets(&mut registrar, task)?;
    if let Some(draft) = &task.audit {
        audit::append(connection, draft.clone(), task.created_at)?;
    }
    if let Some(Idempotency { app, key, body_hash }) = &task.idempotency {
        connection
            .prepare_cached("INSERT INTO idempotency (app, key, body_hash, task) VALUES (?1, ?2, ?3, ?4)")?
            .execute((app, key, body_hash.as_slice(), seq))?;
    }
    Ok(CreatedTask::Created { registered })
}

/// The task that the idempotency key stands for already.
fn existing(connection: &Connection, task: &NewTask) -> Tried<Option<CreatedTask>> {
    let Some(key) = &task.idempotency else { return Ok(None) };
    Ok(of_key(connection, key)?.map(|(id, same_body)| CreatedTask::Existing { id, same_body }))
}

pub(super) fn of_key(connection: &Connection, key: &Idempotency) -> Tried<Option<(TaskId, bool)>> {
    let Idempotency { app, key, body_hash } = key;
    let found = connection
        .prepare_cached(
            "SELECT task.id, body_hash = ?3 FROM idempotency JOIN task ON task.seq = idempotency.task
             WHERE idempotency.app = ?1 AND key = ?2",
        )?
        .query_row((app, key, body_hash.as_slice()), |row| Ok((task_id(row.get(0)?), row.get(1)?)))
        .optional()?;
    Ok(found)
}

/// The row of the task; returns its number.
fn insert(connection: &Connection, task: &NewTask, items: &str) -> Tried<i64> {
    let kinds: BTreeSet<OperationKind> = task.items.iter().filter_map(|item| item.kind).collect();
    let seq = connection
        .prepare_cached(
            "INSERT INTO task (id, created_at, app, user, family, items, target_count, open_count, finished_at,
                               retry_of, rollout, kinds, scope, app_life, user_life, created_uptime, finished_uptime,
                               reached_nothing)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, iif(?7 = 0, ?2, NULL), ?8, ?9, ?10, ?11,
                    coalesce((SELECT ended FROM subject_life WHERE subject = 'app:' || ?3), 0),
                    coalesce((SELECT ended FROM subject_life WHERE subject = 'user:' || ?4), 0),
                    ms, iif(?7 = 0, ms, NULL), ?12
             FROM uptime RETURNING seq",
        )?
        .query_row(
            (
                task.id.as_uuid().as_bytes().as_slice(),
                task.created_at,
                &task.app,
                &task.user,
                &task.family,
                items,
                signed(task.targets.len() as u64),
                task.retry_of.map(|id| id.as_uuid().into_bytes()),
                task.rollout.as_ref().map(to_json),
                to_json(&kinds),
                task.scope.as_ref().map(ToString::to_string),
                task.outcomes.len() == task.targets.len(),
            ),
            |row| row.get(0),
        )?;
    Ok(seq)
}

/// What would create a task that can never be read or finished.
fn check(task: &NewTask) -> Tried<()> {
    let mut is_final = vec![false; task.targets.len()];
    for (index, _) in &task.outcomes {
        let Some(is_final) = is_final.get_mut(*index as usize) else {
            return Err(Failure::Argument(format!("there is an outcome for target {index}, which is not there")));
        };
        *is_final = true;
    }
    for (index, (target, is_final)) in task.targets.iter().zip(is_final).enumerate() {
        match task.items.get(target.item as usize) {
            None => return Err(Failure::Argument(format!("target {index} names an item that is not there"))),
            Some(TaskItem { kind: None, .. }) if !is_final => {
                return Err(Failure::Argument(format!("target {index} has no operation and no outcome")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn stored_items(registrar: &mut Registrar<'_>, items: &[TaskItem]) -> Tried<Vec<StoredItem>> {
    let store = |item: &TaskItem| {
        let spec = item.spec.as_ref().map(|spec| registrar.put_spec(spec)).transpose()?;
        let TaskItem { key, kind, carried, time_limit_ms, wait_ms, .. } = item;
        let (carried, time_limit_ms, wait_ms) = (*carried, *time_limit_ms, *wait_ms);
        Ok(StoredItem { key: key.clone(), kind: *kind, spec, carried, time_limit_ms, wait_ms })
    };
    items.iter().map(store).collect()
}

fn insert_processes(connection: &Connection, seq: i64, items: &[TaskItem]) -> Tried<()> {
    let keys: BTreeSet<&ProcessKey> = items.iter().map(|item| &item.key).collect();
    let mut statement =
        connection.prepare_cached("INSERT INTO task_process (namespace, name, task) VALUES (?1, ?2, ?3)")?;
    for key in keys {
        statement.execute((key.namespace.as_str(), key.name.as_str(), seq))?;
    }
    Ok(())
}

fn insert_chunks(connection: &Connection, seq: i64, targets: &[Target]) -> Tried<()> {
    let mut statement =
        connection.prepare_cached("INSERT INTO task_chunk (task, first_index, targets) VALUES (?1, ?2, ?3)")?;
    for (first_index, chunk) in (0_i64..).step_by(TARGETS_PER_CHUNK).zip(targets.chunks(TARGETS_PER_CHUNK)) {
        statement.execute((seq, first_index, to_json(chunk)))?;
    }
    Ok(())
}

/// The generations of what is now registered, by target.
fn register_targets(registrar: &mut Registrar<'_>, task: &NewTask) -> Tried<Vec<(u32, u64)>> {
    // On a host in maintenance the call has no effect at all.
    let is_cordoned = |(index, outcome): &(u32, Outcome)| (outcome.code == Code::Cordoned).then_some(*index);
    let cordoned: HashSet<u32> = task.outcomes.iter().filter_map(is_cordoned).collect();
    let (mut wanted, mut indexes) = (Vec::new(), Vec::new());
    for (index, target) in (0..).zip(&task.targets).filter(|(index, _)| !cordoned.contains(index)) {
        let TaskItem { register, key, spec, .. } = &task.items[target.item as usize];
        if let (true, Some(agent), Some(_)) = (register, &target.agent, spec) {
            wanted.push(Wanted { agent, key, spec: spec.as_ref() });
            indexes.push(index);
        }
    }
    let generation = |(index, answer)| match answer {
        Registered::Stored { generation } => Some((index, generation)),
        Registered::Exists | Registered::NoHost => None,
    };
    let answers = registrar.change(&wanted, RegisterMode::Upsert)?;
    Ok(indexes.into_iter().zip(answers).filter_map(generation).collect())
}
