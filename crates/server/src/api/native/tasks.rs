//! Tasks: how far they are, and what came of each target. Tasks of every dialect are readable here.

use axum::Json;
use axum::extract::{Path, State};
use proctor_model::{Code, OperationKind, Outcome, Snapshot, TaskId};
use proctor_store::{TargetView, TaskItem};
use serde::Serialize;

use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::{ApiState, Result};

#[derive(Serialize)]
pub(super) struct TaskView {
    task_id: TaskId,
    created_at: i64,
    total: usize,
    pending: usize,
    succeeded: usize,
    failed: usize,
    targets: Vec<TargetRow>,
}

#[derive(Serialize)]
struct TargetRow {
    host: String,
    process: String,
    /// None where the caller's number meant no operation.
    operation: Option<OperationKind>,
    code: Code,
    name: &'static str,
    message: String,
    output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<Snapshot>,
}

pub(super) async fn show(
    _: Authenticated,
    State(state): State<ApiState>,
    Path(text): Path<String>,
) -> Result<Json<TaskView>> {
    let unknown = || {
        let message = format!("task '{text}' was never given out here, or was forgotten with old tasks");
        NativeError::new(Kind::NotFound, message)
    };
    let id: TaskId = text.parse().map_err(|_| unknown())?;
    let task = state.control.task(id).await?.ok_or_else(unknown)?;
    Ok(Json(view(task)))
}

fn view(task: proctor_store::TaskView) -> TaskView {
    let items = task.items;
    let targets: Vec<TargetRow> = task
        .targets
        .into_iter()
        .filter_map(|target| items.get(target.target.item as usize).map(|item| row(item, target)))
        .collect();
    let pending = targets.iter().filter(|target| target.code == Code::Handling).count();
    let succeeded = targets.iter().filter(|target| target.code.is_success()).count();
    TaskView {
        task_id: task.id,
        created_at: task.created_at / 1000,
        total: targets.len(),
        pending,
        succeeded,
        failed: targets.len() - pending - succeeded,
        targets,
    }
}

fn row(item: &TaskItem, TargetView { target, outcome }: TargetView) -> TargetRow {
    let outcome = outcome.unwrap_or_else(|| Outcome::new(Code::Handling, Code::Handling.name(), false));
    TargetRow {
        host: target.host.map_or(target.row_key, |host| host.to_string()),
        process: item.key.to_string(),
        operation: item.kind,
        code: outcome.code,
        name: outcome.code.name(),
        message: outcome.message,
        output: outcome.output,
        snapshot: outcome.snapshot,
    }
}

#[cfg(test)]
mod tests {
    use proctor_store::Target;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn every_target_is_counted_once_and_pending_ones_are_115() {
        let item = TaskItem {
            key: "demo/x".parse().unwrap(),
            kind: Some(OperationKind::Start),
            spec: None,
            register: false,
            time_limit_ms: 1,
        };
        let target = |key: &str, outcome| TargetView {
            target: Target { item: 0, agent: None, host: None, row_key: key.into() },
            outcome,
        };
        let task = proctor_store::TaskView {
            id: TaskId::from_uuid(Uuid::from_u128(1)),
            created_at: 5_000,
            app: String::new(),
            user: String::new(),
            family: String::new(),
            cancelled_at: None,
            retry_of: None,
            rollout: None,
            items: vec![item],
            targets: vec![
                target("a", None),
                target("b", Some(Outcome::success(true))),
                target("c", Some(Outcome::new(Code::AlreadyRunning, "runs", true))),
            ],
        };

        let view = view(task);

        assert_eq!((view.total, view.pending, view.succeeded, view.failed), (3, 1, 1, 1));
        assert_eq!((view.targets[0].code.number(), view.targets[0].message.as_str()), (115, "handling"));
        assert_eq!(view.targets[2].host, "c");
        assert_eq!(view.created_at, 5);
    }
}
