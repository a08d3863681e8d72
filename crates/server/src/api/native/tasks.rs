//! Tasks: their progress, the outcome of each target, and controlling them. Tasks of every dialect are readable here.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use proctor_api::{
    RolloutState, RolloutView, TargetPage, TargetQuery, TargetRow, TargetState, TaskPage, TaskQuery, TaskState,
    TaskView,
};
use proctor_model::{Class, Code, FieldError, Message, OperationId, Outcome, TaskId, messages};
use proctor_store::{Rollout, TargetFilter, TaskSummary};

use super::body::{Params, page_limit};
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::localized::localized;
use super::operations::idempotency;
use super::{ApiState, Result};
use crate::control::SubmitOptions;

/// Tasks, newest first; callers who may not read everything see their own.
#[utoipa::path(get, path = "/tasks", operation_id = "tasks", params(TaskQuery), tag = "tasks",
               responses((status = 200, body = TaskPage)))]
pub(super) async fn list(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<TaskQuery>,
) -> Result<Json<TaskPage>> {
    if !caller.who.permissions.allows_anywhere(Class::Read) {
        caller.who.require(Class::Read)?;
    }
    let limit = page_limit(query.limit)?;
    let bad = |_| FieldError::new("after", messages::not_a_cursor());
    let wanted = proctor_store::TaskQuery {
        before: query.after.as_deref().map(str::parse).transpose().map_err(bad)?,
        limit: limit + 1,
        app: query.app,
        user: query.user,
        unfinished_only: query.unfinished.unwrap_or(false),
        process: query.process.as_deref().map(str::parse).transpose().map_err(process_error)?,
        kind: query.operation,
        state: query.state.map(task_state),
        since: query.since.map(|secs| secs.saturating_mul(1000)),
        until: query.until.map(|secs| secs.saturating_mul(1000)),
        ..proctor_store::TaskQuery::default()
    };
    let mut tasks = state.control.tasks(&caller.who, wanted).await?;
    let has_more = tasks.len() > limit as usize;
    tasks.truncate(limit as usize);
    let next = tasks.last().filter(|_| has_more).map(|last| last.id.to_string());
    Ok(Json(TaskPage { tasks: tasks.into_iter().map(view).collect(), next }))
}

/// The progress of a task.
#[utoipa::path(get, path = "/tasks/{task_id}", operation_id = "task", params(("task_id" = String, Path)),
               tag = "tasks", responses((status = 200, body = TaskView)))]
pub(super) async fn show(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<TaskView>> {
    let task = state.control.task_summary(&caller.who, parse_id(&text)?).await?;
    task.map(|task| Json(view(task))).ok_or_else(|| unknown(&text))
}

/// The outcomes of a task's targets.
#[utoipa::path(get, path = "/tasks/{task_id}/targets", operation_id = "task_targets", tag = "tasks",
               params(("task_id" = String, Path)), params(TargetQuery), responses((status = 200, body = TargetPage)))]
pub(super) async fn targets(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
    Params(query): Params<TargetQuery>,
) -> Result<Json<TargetPage>> {
    let limit = page_limit(query.limit)?;
    let which = which(query.state, query.code)?;
    let wanted = proctor_store::TargetQuery { after: query.after, limit: limit + 1, which };
    let id = parse_id(&text)?;
    let rows = state.control.task_targets(&caller.who, id, &wanted).await?.ok_or_else(|| unknown(&text))?;
    let has_more = rows.len() > limit as usize;
    let waiting = |row: proctor_store::TargetRow| {
        let operation = OperationId::first(id, row.index);
        let why = if row.outcome.is_none() { state.control.waits_for(&operation) } else { None };
        let shown = self::row(row);
        TargetRow { localized: why.as_ref().map_or(shown.localized, localized), ..shown }
    };
    let mut targets: Vec<TargetRow> = rows.into_iter().take(limit as usize).map(waiting).collect();
    if query.output == Some(false) {
        targets.iter_mut().for_each(|target| target.output.clear());
    }
    let next = targets.last().filter(|_| has_more).map(|last| last.index);
    Ok(Json(TargetPage { targets, next }))
}

/// Cancels a task: what has not begun never runs, and agents abort what is in progress.
#[utoipa::path(post, path = "/tasks/{task_id}/cancel", operation_id = "cancel_task", tag = "tasks",
               params(("task_id" = String, Path)), responses((status = 200, body = TaskView)))]
pub(super) async fn cancel(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<TaskView>> {
    let id = parse_id(&text)?;
    if !state.control.cancel(&caller.who, id).await? {
        return Err(NativeError::new(Kind::Conflict, messages::task_is_over(id)));
    }
    known(&state, &text).await.map(Json)
}

/// Pauses a rolling task: released targets continue, and nothing further is released until it is resumed.
#[utoipa::path(post, path = "/tasks/{task_id}/pause", operation_id = "pause_task", tag = "tasks",
               params(("task_id" = String, Path)), responses((status = 200, body = TaskView)))]
pub(super) async fn pause(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<TaskView>> {
    let id = parse_id(&text)?;
    state.control.pause(&caller.who, id).await?;
    known(&state, &text).await.map(Json)
}

/// Resumes a rolling task after its canary, or after a pause.
#[utoipa::path(post, path = "/tasks/{task_id}/resume", operation_id = "resume_task", tag = "tasks",
               params(("task_id" = String, Path)), responses((status = 200, body = TaskView)))]
pub(super) async fn resume(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<TaskView>> {
    let id = parse_id(&text)?;
    state.control.resume(&caller.who, id).await?;
    known(&state, &text).await.map(Json)
}

/// Creates a new task with the targets that failed.
#[utoipa::path(post, path = "/tasks/{task_id}/retry", operation_id = "retry_task", tag = "tasks",
               params(("task_id" = String, Path), ("Idempotency-Key" = Option<String>, Header, max_length = 128)),
               responses((status = 202, body = TaskView, description = "The new task."),
                         (status = 200, body = TaskView, description = "The task of an earlier call.")))]
pub(super) async fn retry(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<TaskView>)> {
    let id = parse_id(&text)?;
    let idempotency = idempotency(&headers, &("retry", id))?;
    let submitted =
        state.control.retry(&caller.who, id, SubmitOptions { idempotency, ..SubmitOptions::default() }).await?;
    let status = if submitted.is_new { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(known(&state, &submitted.task.to_string()).await?)))
}

/// The progress of a task, for callers that control it: control itself decides whether they may.
async fn known(state: &ApiState, text: &str) -> Result<TaskView> {
    let task = state.control.steered_task(parse_id(text)?).await?;
    task.map(view).ok_or_else(|| unknown(text))
}

pub(super) fn parse_id(text: &str) -> Result<TaskId> {
    text.parse().map_err(|_| unknown(text))
}

pub(super) fn unknown(text: &str) -> NativeError {
    NativeError::new(Kind::NotFound, messages::task_was_forgotten(text))
}

fn which(state: Option<TargetState>, code: Option<u32>) -> std::result::Result<TargetFilter, FieldError> {
    let which = match (state, code) {
        (None, None) => TargetFilter::All,
        (Some(TargetState::Pending), None) => TargetFilter::Pending,
        (Some(TargetState::Succeeded), None) => TargetFilter::Succeeded,
        (Some(TargetState::Failed), None) => TargetFilter::Failed,
        (Some(TargetState::Cancelled), None) => TargetFilter::Code(Code::Cancelled),
        (Some(TargetState::Skipped), None) => TargetFilter::Code(Code::Skipped),
        (Some(_), Some(_)) => return Err(FieldError::new("code", messages::not_together_with("state"))),
        (None, Some(number)) => match Code::try_from(number) {
            Ok(Code::Handling) => TargetFilter::Pending,
            Ok(code) => TargetFilter::Code(code),
            Err(_) => return Err(FieldError::new("code", messages::not_a_target_code(number))),
        },
    };
    Ok(which)
}

fn task_state(state: TaskState) -> proctor_store::TaskState {
    match state {
        TaskState::Running => proctor_store::TaskState::Running,
        TaskState::Paused => proctor_store::TaskState::Paused,
        TaskState::Failed => proctor_store::TaskState::Failed,
        TaskState::Done => proctor_store::TaskState::Done,
    }
}

fn process_error(error: FieldError) -> FieldError {
    FieldError::new("process", error.problem)
}

pub(super) fn view(task: TaskSummary) -> TaskView {
    TaskView {
        task_id: task.id,
        created_at: task.created_at / 1000,
        finished_at: task.finished_at.map(|at| at / 1000),
        app: task.app,
        user: task.user,
        family: task.family,
        operations: task.kinds,
        processes: task.processes.iter().map(ToString::to_string).collect(),
        has_more_processes: task.has_more_processes,
        total: task.total as usize,
        pending: task.pending as usize,
        succeeded: task.succeeded as usize,
        failed: task.failed as usize,
        cancelled_at: task.cancelled_at.map(|at| at / 1000),
        retry_of: task.retry_of,
        rollout: task.rollout.map(rollout_view),
    }
}

fn rollout_view(rollout: Rollout) -> RolloutView {
    RolloutView {
        state: match rollout.state {
            proctor_store::RolloutState::Running => RolloutState::Running,
            proctor_store::RolloutState::Paused => RolloutState::Paused,
            proctor_store::RolloutState::Failed => RolloutState::Failed,
            proctor_store::RolloutState::Cancelled => RolloutState::Cancelled,
            proctor_store::RolloutState::Done => RolloutState::Done,
        },
        max_parallel: rollout.max_parallel,
        max_failures: rollout.max_failures,
        canary: rollout.canary,
        wait_healthy: rollout.wait_healthy,
        released: rollout.released,
        why: rollout.reason().as_ref().map(localized).unwrap_or_default(),
    }
}

pub(super) fn row(row: proctor_store::TargetRow) -> TargetRow {
    let outcome =
        row.outcome.unwrap_or_else(|| Outcome::new(Code::Handling, Message::foreign(Code::Handling.name()), false));
    TargetRow {
        index: row.index,
        host: row.target.host.map_or(row.target.row_key, |host| host.to_string()),
        process: row.key.to_string(),
        operation: row.kind.map(|kind| kind.to_string()),
        code: outcome.code.number(),
        name: outcome.code.name().to_owned(),
        localized: localized(&outcome.message),
        output: outcome.output,
        snapshot: outcome.snapshot,
    }
}
