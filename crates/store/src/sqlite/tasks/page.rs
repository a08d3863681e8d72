//! Tasks without their targets, and pages of one task's targets.

use proctor_model::{ProcessKey, Subject, TaskId};
use rusqlite::{Connection, Row};

use super::super::column::from_json;
use super::super::failure::{Failure, Tried};
use super::super::outcomes;
use super::super::where_clause::WhereClause;
use super::header::{Header, lives, owners, rollout, task_id};
use crate::{TargetFilter, TargetQuery, TargetRow, TaskQuery, TaskState, TaskSummary};

/// The statement reads one more, to know whether there are more.
const PROCESSES_NAMED_MAX: usize = 3;

pub(super) const SELECT_SUMMARY: &str = concat!(
    "SELECT id, created_at, finished_at, cancelled_at, app, user, family, kinds, retry_of, rollout,
            target_count, open_count, failed_count,
            (SELECT json_group_array(json_array(namespace, name)) FROM
                (SELECT namespace, name FROM task_process WHERE task = task.seq ORDER BY namespace, name LIMIT 4)), ",
    lives!(),
    " FROM task "
);

pub(super) fn task_summary(row: &Row<'_>) -> Tried<TaskSummary> {
    let kinds = row.get_ref(7)?.as_str().map_err(|error| Failure::damaged("task", error))?;
    let (total, pending, failed): (u32, u32, u32) = (row.get(10)?, row.get(11)?, row.get(12)?);
    let mut processes = processes(row, 13)?;
    let has_more_processes = processes.len() > PROCESSES_NAMED_MAX;
    processes.truncate(PROCESSES_NAMED_MAX);
    Ok(TaskSummary {
        id: task_id(row.get(0)?),
        created_at: row.get(1)?,
        finished_at: row.get(2)?,
        cancelled_at: row.get(3)?,
        app: row.get(4)?,
        user: row.get(5)?,
        owners: owners(row, 4, 5, 14)?,
        family: row.get(6)?,
        kinds: from_json("task", kinds)?,
        processes,
        has_more_processes,
        retry_of: row.get::<_, Option<[u8; 16]>>(8)?.map(task_id),
        rollout: rollout(row, 9)?,
        total,
        pending,
        succeeded: total.saturating_sub(pending).saturating_sub(failed),
        failed,
    })
}

/// The names in an array of pairs; a task of several thousand processes lists only the first ones.
fn processes(row: &Row<'_>, column: usize) -> Tried<Vec<ProcessKey>> {
    let damaged = |error: proctor_model::FieldError| Failure::damaged("process of a task", error);
    let text = row.get_ref(column)?.as_str().map_err(|error| Failure::damaged("task", error))?;
    let names: Vec<(String, String)> = from_json("task", text)?;
    let key = |(namespace, name): (String, String)| {
        Ok(ProcessKey::new(namespace.parse().map_err(damaged)?, name.parse().map_err(damaged)?))
    };
    names.into_iter().map(key).collect()
}

pub(in super::super) fn summary(connection: &Connection, id: TaskId) -> Tried<Option<TaskSummary>> {
    let mut statement = connection.prepare_cached(&format!("{SELECT_SUMMARY} WHERE id = ?1 AND forgotten = 0"))?;
    let mut rows = statement.query([id.as_uuid().as_bytes().as_slice()])?;
    rows.next()?.map(task_summary).transpose()
}

pub(in super::super) fn list(connection: &Connection, query: &TaskQuery) -> Tried<Vec<TaskSummary>> {
    let mut narrowed = WhereClause::default();
    narrowed.by_fact("forgotten = 0");
    if let Some(ids) = &query.ids {
        let bytes = |id: &TaskId| id.as_uuid().into_bytes();
        narrowed.by_both("id BETWEEN ? AND ?", bytes(ids.start()), bytes(ids.end()));
    }
    let before = query.before.map(|id| id.as_uuid().into_bytes());
    narrowed.by_some("(created_at, seq) < (SELECT created_at, seq FROM task WHERE id = ? AND forgotten = 0)", before);
    narrowed.by_some("app = ?", query.app.clone());
    narrowed.by_some("user = ?", query.user.clone());
    owned_by(&mut narrowed, query.owner.clone());
    if query.unfinished_only {
        narrowed.by_fact("open_count > 0");
    }
    narrowed.by_some("created_at >= ?", query.since);
    narrowed.by_some("created_at < ?", query.until);
    narrowed
        .by_some("EXISTS (SELECT 1 FROM json_each(kinds) WHERE value = ?)", query.kind.map(|kind| kind.to_string()));
    if let Some(state) = query.state {
        narrowed.by_fact(condition(state));
    }
    if let Some(key) = &query.process {
        let names = (key.namespace.as_str().to_owned(), key.name.as_str().to_owned());
        narrowed.by_both("seq IN (SELECT task FROM task_process WHERE namespace = ? AND name = ?)", names.0, names.1);
    }
    let sql = format!("{SELECT_SUMMARY} WHERE {} ORDER BY created_at DESC, seq DESC LIMIT ?", narrowed.conditions());
    narrowed.read(connection, &sql, query.limit, task_summary)
}

/// None: any creator.
pub(super) fn owned_by(narrowed: &mut WhereClause, owner: Option<Subject>) {
    match owner {
        None => {}
        Some(Subject::App(code)) => narrowed.by(
            "app = ? AND app_life = coalesce((SELECT ended FROM subject_life WHERE subject = 'app:' || app), 0)",
            code,
        ),
        Some(Subject::User(name)) => narrowed.by(
            "user = ? AND user <> app
             AND user_life = coalesce((SELECT ended FROM subject_life WHERE subject = 'user:' || user), 0)",
            name,
        ),
    }
}

fn condition(state: TaskState) -> &'static str {
    match state {
        TaskState::Running => "open_count > 0 AND json_extract(rollout, '$.state') IS NOT 'paused'",
        TaskState::Paused => "open_count > 0 AND json_extract(rollout, '$.state') IS 'paused'",
        TaskState::Failed => "open_count = 0 AND failed_count > 0",
        TaskState::Done => "open_count = 0 AND failed_count = 0",
    }
}

pub(in super::super) fn targets(connection: &Connection, id: TaskId, query: TargetQuery) -> Tried<Vec<TargetRow>> {
    let Some(header) = Header::find(connection, id)? else { return Ok(Vec::new()) };
    let indexes = wanted(connection, &header, query)?;
    rows(connection, &header, &indexes)
}

/// The indexes of the targets of the page, ascending.
fn wanted(connection: &Connection, header: &Header, query: TargetQuery) -> Tried<Vec<u32>> {
    let first = query.after.map_or(0, |after| after.saturating_add(1));
    let limit = query.limit as usize;
    let all = first..header.target_count;
    match query.which {
        TargetFilter::All => Ok(all.take(limit).collect()),
        TargetFilter::Pending => {
            let known = outcomes::known(connection, header.seq, first, all.len())?;
            Ok(all.zip(known).filter(|(_, is_known)| !is_known).map(|(index, _)| index).take(limit).collect())
        }
        TargetFilter::Succeeded => outcomes::indexes(connection, header.seq, true, first, query.limit),
        TargetFilter::Code(code) => outcomes::indexes_of(connection, header.seq, code, first, query.limit),
        TargetFilter::Failed => outcomes::indexes(connection, header.seq, false, first, query.limit),
    }
}

/// Reads only the chunks that hold one of them.
pub(super) fn rows(connection: &Connection, header: &Header, indexes: &[u32]) -> Tried<Vec<TargetRow>> {
    let items = header.stored_items()?;
    let damaged = |index: u32| Failure::Damaged(format!("task {}: target {index} is not whole", header.id));
    let mut rows = Vec::with_capacity(indexes.len());
    let mut rest = indexes;
    while let Some(first) = rest.first().copied() {
        let chunk = header.chunk(connection, first)?.ok_or_else(|| damaged(first))?;
        let (here, later) = rest.split_at(rest.partition_point(|index| chunk.holds(*index)));
        let last = here.last().copied().ok_or_else(|| damaged(first))?;
        let mut outcomes = outcomes::of_task(connection, header.seq, first, (last - first + 1) as usize)?;
        for index in here.iter().copied() {
            let target = chunk.target(index).clone();
            let item = items.get(target.item as usize).ok_or_else(|| damaged(index))?;
            let outcome = outcomes[(index - first) as usize].take();
            rows.push(TargetRow { index, key: item.key.clone(), kind: item.kind, target, outcome });
        }
        rest = later;
    }
    Ok(rows)
}
