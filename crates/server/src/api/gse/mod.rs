//! The GSE families: the ESB's, the gateway's and the backend's, in both generations.
//!
//! Promised: one function for each capability; `routes` mounts it on every path that offers it. Rows
//! are keyed by the capability's generation, not by the path it was called on. A task can be read
//! through either generation's result call.

pub(super) mod agents;
pub(super) mod decode;
pub(super) mod status;
pub(super) mod task_state;

use proctor_store::RegisterMode;
use serde::Serialize;

use super::error::{ApiError, Problem};
use super::json::Value;
use super::request::Call;
use super::response::Written;
use super::rows::{Row, Rows};
use super::task_cache::Shape;
use crate::control::{ControlError, Submission, SubmitOptions, SubmittedItem};
use proctor_model::{FieldError, Outcome, messages};

type Result<T> = std::result::Result<T, ApiError>;

pub(super) async fn register(call: Call, mode: RegisterMode) -> Result<Rows<&'static str>> {
    let (process, spec) = call.params(move |params| decode::registration(params, mode)).await?;
    let outcomes = call.control.register(&call.caller, &process.key, &spec, &process.hosts, mode).await?;
    Ok(plain_rows(process.row_keys, &outcomes))
}

pub(super) async fn unregister(call: Call) -> Result<Rows<&'static str>> {
    let process = call.params(decode::unregistration).await?;
    let outcomes = call.control.unregister(&call.caller, &process.key, &process.hosts).await?;
    Ok(plain_rows(process.row_keys, &outcomes))
}

pub(super) async fn set_pools(call: Call) -> Result<Rows<&'static str>> {
    let change = call.params(decode::pool_change).await?;
    let outcomes = call.control.set_pools(&call.caller, &change.hosts, &change.pools).await?;
    Ok(plain_rows(change.row_keys, &outcomes))
}

/// Rows of the calls that answer at once; their content has no meaning.
fn plain_rows(row_keys: Vec<String>, outcomes: &[Outcome]) -> Rows<&'static str> {
    row_keys.into_iter().zip(outcomes).map(|(key, outcome)| (key, Row::finished(outcome, ""))).collect()
}

#[derive(Debug, Serialize)]
pub(super) struct TaskAccepted {
    task_id: String,
}

pub(super) async fn operate(
    call: Call,
    family: &'static str,
    read: fn(&Value<'_>) -> std::result::Result<Vec<SubmittedItem>, FieldError>,
) -> Result<TaskAccepted> {
    let items = call.params(read).await?;
    let submission = Submission { caller: call.caller, family, items, options: SubmitOptions::default() };
    let submitted = call.control.submit(submission).await?;
    Ok(TaskAccepted { task_id: submitted.task.to_string() })
}

pub(super) async fn result(call: Call) -> Result<Written> {
    let id = call.params(decode::task_id).await?;
    rows(&call, &id, Shape::Gse).await
}

/// Every target of the task with this id, in any family, whether it has an outcome or not.
pub(super) async fn rows(call: &Call, id: &str, shape: Shape) -> Result<Written> {
    let summary = match decode::known_form(id) {
        Some(id) => call.control.task_summary(&call.caller, id).await?,
        None => None,
    };
    let summary = summary.ok_or_else(|| unknown(id))?;
    let rendition = call.border.renditions.of(&call.control, &summary, shape).await;
    let rendition = rendition.map_err(ControlError::from)?.ok_or_else(|| unknown(id))?;
    Ok(Written { pieces: rendition.data(), shared: rendition.shared() })
}

/// The task with this id, in any family.
pub(super) async fn task(call: &Call, id: &str) -> Result<proctor_store::TaskView> {
    let task = match decode::known_form(id) {
        Some(id) => call.control.task(&call.caller, id).await?,
        None => None,
    };
    task.ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> ApiError {
    let shown: String = id.chars().take(128).collect();
    ApiError::new(Problem::UnknownTask, messages::task_is_not_known(shown))
}
