//! Other views of tasks than rows: a grid of all targets, and the operations on one process.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{GridQuery, ProcessOperation, ProcessOperationQuery, ProcessOperations, TaskGrid};
use proctor_model::{Code, ProcessKey};
use proctor_store::{ProcessTaskQuery, TargetRow, TaskSummary};
use tokio::time::Instant;

use super::body::{Params, bounded, page_limit};
use super::caller::Authenticated;
use super::hosts::parse_host_param;
use super::tasks::{parse_id, row, unknown};
use super::{ApiState, Result, cursor};
use crate::api::error::ApiError;

const WAIT_SECS_MAX: u64 = 30;
/// Who waits for a change looks this often.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// Tasks that are looked at for one page of what was asked of a process.
const TASKS_MAX: u32 = 20;

/// The state of every target of a task, one character each.
#[utoipa::path(get, path = "/tasks/{task_id}/grid", operation_id = "task_grid", tag = "tasks",
               params(("task_id" = String, Path)), params(GridQuery), responses((status = 200, body = TaskGrid)))]
pub(super) async fn grid(
    mut caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
    Params(query): Params<GridQuery>,
) -> Result<Json<TaskGrid>> {
    let wait = bounded("wait", query.wait.unwrap_or(0), WAIT_SECS_MAX)?;
    let id = parse_id(&text)?;
    let _ticket = match wait {
        0 => None,
        _ => Some(state.border.waits.take(&caller.who).map_err(ApiError::from)?),
    };
    if wait > 0 {
        caller.waits();
    }
    let deadline = Instant::now() + Duration::from_secs(wait);
    let shutdown = state.control.shutdown();
    let mut standing = state.control.live_caller(caller.who);
    loop {
        let who = standing.current(&state.control).await?;
        let task = state.control.task_summary(who, id).await?.ok_or_else(|| unknown(&text))?;
        let is_new = query.version != Some(version(&task));
        if is_new || task.pending == 0 || Instant::now() >= deadline || shutdown.is_cancelled() {
            let found = state.control.target_codes(who, id).await?;
            let (task, codes) = found.ok_or_else(|| unknown(&text))?;
            return Ok(Json(view(&task, &codes)));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_PERIOD) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// Both numbers only grow.
fn version(task: &TaskSummary) -> u64 {
    let released = task.rollout.as_ref().map_or(0, |rollout| rollout.released);
    u64::from(task.total - task.pending) + u64::from(released)
}

fn view(task: &TaskSummary, codes: &[(u32, Code)]) -> TaskGrid {
    let released = task.rollout.as_ref().map_or(task.total, |rollout| rollout.released);
    let mut states: Vec<u8> = (0..task.total).map(|index| if index < released { b'r' } else { b'p' }).collect();
    for (index, code) in codes {
        if let Some(state) = states.get_mut(*index as usize) {
            *state = letter(*code);
        }
    }
    let states = String::from_utf8(states).expect("the letters are ASCII");
    TaskGrid { total: task.total as usize, version: version(task), states }
}

fn letter(code: Code) -> u8 {
    match code {
        Code::Success => b's',
        Code::Handling => b'r',
        Code::Cancelled => b'c',
        Code::Skipped => b'k',
        Code::Cordoned => b'm',
        Code::Forbidden => b'x',
        Code::AgentAbsent => b'a',
        Code::AlreadyRunning
        | Code::NotRunning
        | Code::IllegalOperation
        | Code::CheckFailed
        | Code::AlreadyRegistered
        | Code::CommandFailed => b'f',
    }
}

/// Operations on a process and their outcomes, from the tasks that the caller may read.
#[utoipa::path(get, path = "/processes/{namespace}/{name}/operations", operation_id = "process_operations",
               params(("namespace" = String, Path), ("name" = String, Path)), params(ProcessOperationQuery),
               tag = "processes", responses((status = 200, body = ProcessOperations)))]
pub(super) async fn of_process(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Params(query): Params<ProcessOperationQuery>,
) -> Result<Json<ProcessOperations>> {
    let host = parse_host_param(query.host.as_deref())?;
    let wanted = ProcessTaskQuery {
        key: ProcessKey::new(namespace.parse()?, name.parse()?),
        agents: None,
        owner: None,
        after: cursor::decode(query.after.as_deref())?,
        tasks: TASKS_MAX,
        targets: page_limit(query.limit)?,
    };
    let found = state.control.process_tasks(&caller.who, wanted.clone(), host.as_ref()).await?;
    let targets: usize = found.iter().map(|(_, rows)| rows.len()).sum();
    let has_more = found.len() == TASKS_MAX as usize || targets >= wanted.targets as usize;
    // Of a task without further targets nothing is left.
    let last = |(task, rows): &(TaskSummary, Vec<TargetRow>)| (task.id, rows.last().map_or(u32::MAX, |row| row.index));
    let next = found.last().filter(|_| has_more).map(|found| cursor::encode(&last(found)));
    let of_task = |(task, rows): (TaskSummary, Vec<TargetRow>)| {
        rows.into_iter().map(move |row| operation(&task, row)).collect::<Vec<_>>()
    };
    Ok(Json(ProcessOperations { operations: found.into_iter().flat_map(of_task).collect(), next }))
}

fn operation(task: &TaskSummary, target: TargetRow) -> ProcessOperation {
    let row = row(target);
    ProcessOperation {
        task_id: task.id,
        index: row.index,
        at_ms: task.created_at,
        finished_at_ms: task.finished_at,
        app: task.app.clone(),
        user: task.user.clone(),
        operation: row.operation,
        host: row.host,
        code: row.code,
        name: row.name,
        localized: row.localized,
        output: row.output,
    }
}
