//! The operations on one process, task by task.

use proctor_model::AgentId;
use rusqlite::Connection;

use super::super::column::to_json;
use super::super::failure::Tried;
use super::super::where_clause::WhereClause;
use super::header::Header;
use super::page::{SELECT_SUMMARY, owned_by, rows, task_summary};
use crate::{ProcessTaskQuery, TargetRow, TaskSummary};

pub(in super::super) fn of_process(
    connection: &Connection,
    query: &ProcessTaskQuery,
) -> Tried<Vec<(TaskSummary, Vec<TargetRow>)>> {
    let mut found = Vec::new();
    let mut left = query.targets as usize;
    for task in tasks(connection, query)? {
        if left == 0 {
            break;
        }
        let after = query.after.filter(|(id, _)| *id == task.id).map(|(_, index)| index);
        let targets = targets(connection, query, &task, after, left)?;
        left = left.saturating_sub(targets.len());
        found.push((task, targets));
    }
    Ok(found)
}

fn tasks(connection: &Connection, query: &ProcessTaskQuery) -> Tried<Vec<TaskSummary>> {
    let mut narrowed = WhereClause::default();
    narrowed.by_fact("forgotten = 0");
    let (namespace, name) = (query.key.namespace.as_str().to_owned(), query.key.name.as_str().to_owned());
    narrowed.by_both("seq IN (SELECT task FROM task_process WHERE namespace = ? AND name = ?)", namespace, name);
    let from = query.after.map(|(id, _)| id.as_uuid().into_bytes());
    narrowed.by_some("(created_at, seq) <= (SELECT created_at, seq FROM task WHERE id = ? AND forgotten = 0)", from);
    owned_by(&mut narrowed, query.owner.clone());
    let sql = format!("{SELECT_SUMMARY} WHERE {} ORDER BY created_at DESC, seq DESC LIMIT ?", narrowed.conditions());
    narrowed.read(connection, &sql, query.tasks, task_summary)
}

/// The targets of the task for the process. If agents are given, SQLite searches the chunks: a large task is not
/// parsed for one of its targets.
fn targets(
    connection: &Connection,
    query: &ProcessTaskQuery,
    task: &TaskSummary,
    after: Option<u32>,
    limit: usize,
) -> Tried<Vec<TargetRow>> {
    let Some(header) = Header::find(connection, task.id)? else { return Ok(Vec::new()) };
    let items: Vec<u32> =
        (0..).zip(header.stored_items()?).filter(|(_, item)| item.key == query.key).map(|(i, _)| i).collect();
    let agents = query.agents.as_ref().map(|agents: &Vec<AgentId>| to_json(agents));
    let mut statement = connection.prepare_cached(
        "SELECT first_index + target.key FROM task_chunk, json_each(task_chunk.targets) AS target
         WHERE task = ?1 AND json_extract(target.value, '$.item') IN (SELECT value FROM json_each(?2))
           AND (?3 IS NULL OR json_extract(target.value, '$.agent') IN (SELECT value FROM json_each(?3)))
           AND first_index + target.key > ?4
         ORDER BY first_index, target.key LIMIT ?5",
    )?;
    let (after, limit) = (after.map_or(-1, i64::from), i64::try_from(limit).unwrap_or(i64::MAX));
    let wanted = statement.query_map((header.seq, to_json(&items), agents, after, limit), |row| row.get(0))?;
    let indexes = wanted.collect::<rusqlite::Result<Vec<u32>>>()?;
    rows(connection, &header, &indexes)
}
