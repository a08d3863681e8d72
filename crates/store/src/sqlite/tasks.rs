//! Tasks: written once, read while their outcomes arrive, forgotten when old.

use proctor_model::{OperationId, OperationKind, ProcessKey, TaskId};
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::audit;
use super::column::{SpecReader, from_json, signed, to_json};
use super::failure::{Failure, Tried};
use super::outcomes;
use super::processes::Registrar;
use crate::{Millis, NewTask, OpenTarget, RegisterMode, Target, TargetView, TaskItem, TaskView};

/// Large enough that a chunk costs little beside its targets, small enough to be parsed at once.
const TARGETS_PER_CHUNK: usize = 1000;

/// An item as it lies in the column `items`: its spec lies beside it, under its hash.
#[derive(Serialize, Deserialize)]
struct StoredItem {
    key: ProcessKey,
    kind: Option<OperationKind>,
    spec: Option<String>,
    time_limit_ms: u64,
}

pub(super) fn create(connection: &Connection, task: &NewTask) -> Tried<()> {
    check(task)?;
    let mut registrar = Registrar::new(connection, task.created_at)?;
    let items = to_json(&stored_items(&mut registrar, &task.items)?);
    let seq: i64 = connection
        .prepare_cached(
            "INSERT INTO task (id, created_at, app, user, family, items, target_count, open_count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) RETURNING seq",
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
            ),
            |row| row.get(0),
        )?;
    insert_chunks(connection, seq, &task.targets)?;
    outcomes::insert(connection, seq, &task.outcomes, task.created_at)?;
    register_targets(&mut registrar, task)?;
    if let Some(draft) = &task.audit {
        audit::append(connection, draft.clone(), task.created_at)?;
    }
    Ok(())
}

/// What would make a task that can never be read or finished.
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
        Ok(StoredItem { key: item.key.clone(), kind: item.kind, spec, time_limit_ms: item.time_limit_ms })
    };
    items.iter().map(store).collect()
}

fn insert_chunks(connection: &Connection, seq: i64, targets: &[Target]) -> Tried<()> {
    let mut statement =
        connection.prepare_cached("INSERT INTO task_chunk (task, first_index, targets) VALUES (?1, ?2, ?3)")?;
    for (first_index, chunk) in (0_i64..).step_by(TARGETS_PER_CHUNK).zip(targets.chunks(TARGETS_PER_CHUNK)) {
        statement.execute((seq, first_index, to_json(chunk)))?;
    }
    Ok(())
}

fn register_targets(registrar: &mut Registrar<'_>, task: &NewTask) -> Tried<()> {
    for target in &task.targets {
        let item = &task.items[target.item as usize];
        let (true, Some(spec), Some(agent)) = (item.register, &item.spec, &target.agent) else { continue };
        registrar.register(agent, &item.key, spec, RegisterMode::Upsert)?;
    }
    Ok(())
}

/// A task's row, without what lies in the other tables.
struct Header {
    seq: i64,
    id: TaskId,
    created_at: Millis,
    app: String,
    user: String,
    family: String,
    items: String,
}

const SELECT_HEADER: &str = "SELECT seq, id, created_at, app, user, family, items FROM task ";

impl Header {
    fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            id: task_id(row.get(1)?),
            created_at: row.get(2)?,
            app: row.get(3)?,
            user: row.get(4)?,
            family: row.get(5)?,
            items: row.get(6)?,
        })
    }

    fn items(&self, connection: &Connection, specs: &mut SpecReader) -> Tried<Vec<TaskItem>> {
        let stored: Vec<StoredItem> = from_json("task item", &self.items)?;
        let read = |item: StoredItem| {
            let spec = item.spec.map(|hash| specs.get(connection, &hash)).transpose()?;
            let StoredItem { key, kind, time_limit_ms, .. } = item;
            Ok(TaskItem { key, kind, spec, register: false, time_limit_ms })
        };
        stored.into_iter().map(read).collect()
    }

    fn targets(&self, connection: &Connection) -> Tried<Vec<Target>> {
        let mut statement =
            connection.prepare_cached("SELECT targets FROM task_chunk WHERE task = ?1 ORDER BY first_index")?;
        let mut rows = statement.query([self.seq])?;
        let mut targets: Vec<Target> = Vec::new();
        while let Some(row) = rows.next()? {
            let text = row.get_ref(0)?.as_str().map_err(|error| Failure::damaged("task targets", error))?;
            targets.append(&mut from_json("task targets", text)?);
        }
        Ok(targets)
    }
}

fn task_id(bytes: [u8; 16]) -> TaskId {
    TaskId::from_uuid(Uuid::from_bytes(bytes))
}

pub(super) fn get(connection: &Connection, id: TaskId) -> Tried<Option<TaskView>> {
    let header = connection
        .prepare_cached(&format!("{SELECT_HEADER} WHERE id = ?1"))?
        .query_row([id.as_uuid().as_bytes().as_slice()], Header::from_row)
        .optional()?;
    let Some(header) = header else { return Ok(None) };
    let items = header.items(connection, &mut SpecReader::default())?;
    let targets = header.targets(connection)?;
    let outcomes = outcomes::of_task(connection, header.seq, targets.len())?;
    let targets = targets.into_iter().zip(outcomes).map(|(target, outcome)| TargetView { target, outcome }).collect();
    let Header { id, created_at, app, user, family, .. } = header;
    Ok(Some(TaskView { id, created_at, app, user, family, items, targets }))
}

pub(super) fn ids(connection: &Connection, limit: u32) -> Tried<Vec<TaskId>> {
    let mut statement = connection.prepare_cached("SELECT id FROM task ORDER BY created_at DESC, seq DESC LIMIT ?1")?;
    let ids = statement.query_map([limit], |row| row.get(0).map(task_id))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn open_targets(connection: &Connection) -> Tried<Vec<OpenTarget>> {
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
    let is_final = outcomes::known(connection, task.seq, targets.len())?;
    let mut open = Vec::new();
    for ((index, target), is_final) in (0..).zip(targets).zip(is_final) {
        if is_final {
            continue;
        }
        let item = items
            .get(target.item as usize)
            .ok_or_else(|| Failure::Damaged(format!("task {}: target {index} names no item", task.id)))?;
        // A task with such a target is refused when it is created.
        let Some(kind) = item.kind else { continue };
        open.push(OpenTarget {
            operation: OperationId::first(task.id, index),
            agent: target.agent,
            key: item.key.clone(),
            kind,
            spec: item.spec.clone(),
            created_at: task.created_at,
            time_limit_ms: item.time_limit_ms,
        });
    }
    Ok(open)
}

pub(super) fn prune(connection: &Connection, before: Millis) -> Tried<u64> {
    let pruned =
        connection.prepare_cached("DELETE FROM task WHERE open_count = 0 AND created_at < ?1")?.execute([before])?;
    Ok(pruned as u64)
}
