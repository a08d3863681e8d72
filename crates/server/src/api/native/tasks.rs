//! Tasks: how far they are, and what came of each target. Tasks of every dialect are readable here.

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{TargetPage, TargetQuery, TargetRow, TargetState, TaskView};
use proctor_model::{Code, Outcome, TaskId};
use proctor_store::{TargetView, TaskItem};

use super::body::{Params, page_limit};
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::{ApiState, Result};

/// How far a task is.
#[utoipa::path(get, path = "/tasks/{task_id}", operation_id = "task", params(("task_id" = String, Path)),
               tag = "tasks", responses((status = 200, body = TaskView)))]
pub(super) async fn show(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<TaskView>> {
    let task = state.control.task(&caller.who, parse_id(&text)?).await?.ok_or_else(|| unknown(&text))?;
    Ok(Json(view(&task)))
}

/// What came of the targets of a task.
#[utoipa::path(get, path = "/tasks/{task_id}/targets", operation_id = "task_targets", tag = "tasks",
               params(("task_id" = String, Path)), params(TargetQuery), responses((status = 200, body = TargetPage)))]
pub(super) async fn targets(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
    Params(query): Params<TargetQuery>,
) -> Result<Json<TargetPage>> {
    let limit = page_limit(query.limit)? as usize;
    let task = state.control.task(&caller.who, parse_id(&text)?).await?.ok_or_else(|| unknown(&text))?;
    let items = task.items;
    let mut targets: Vec<TargetRow> = (0..)
        .zip(task.targets)
        .filter(|(index, _)| query.after.is_none_or(|after| *index > after))
        .filter(|(_, target)| query.state.is_none_or(|wanted| state_of(target) == wanted))
        .filter_map(|(index, target)| items.get(target.target.item as usize).map(|item| row(index, item, target)))
        .take(limit + 1)
        .collect();
    let has_more = targets.len() > limit;
    targets.truncate(limit);
    let next = targets.last().filter(|_| has_more).map(|last| last.index);
    Ok(Json(TargetPage { targets, next }))
}

fn parse_id(text: &str) -> Result<TaskId> {
    text.parse().map_err(|_| unknown(text))
}

fn unknown(text: &str) -> NativeError {
    let message = format!("task '{text}' was never given out here, or was forgotten with old tasks");
    NativeError::new(Kind::NotFound, message)
}

fn state_of(target: &TargetView) -> TargetState {
    match &target.outcome {
        None => TargetState::Pending,
        Some(outcome) if outcome.code.is_success() => TargetState::Succeeded,
        Some(_) => TargetState::Failed,
    }
}

fn view(task: &proctor_store::TaskView) -> TaskView {
    let count = |state| task.targets.iter().filter(|target| state_of(target) == state).count();
    TaskView {
        task_id: task.id,
        created_at: task.created_at / 1000,
        app: task.app.clone(),
        user: task.user.clone(),
        family: task.family.clone(),
        total: task.targets.len(),
        pending: count(TargetState::Pending),
        succeeded: count(TargetState::Succeeded),
        failed: count(TargetState::Failed),
        cancelled_at: None,
        retry_of: None,
        rollout: None,
    }
}

fn row(index: u32, item: &TaskItem, TargetView { target, outcome }: TargetView) -> TargetRow {
    let outcome = outcome.unwrap_or_else(|| Outcome::new(Code::Handling, Code::Handling.name(), false));
    TargetRow {
        index,
        host: target.host.map_or(target.row_key, |host| host.to_string()),
        process: item.key.to_string(),
        operation: item.kind.map(|kind| kind.to_string()),
        code: outcome.code.number(),
        name: outcome.code.name().to_owned(),
        message: outcome.message,
        output: outcome.output,
        snapshot: outcome.snapshot,
    }
}
