//! The JOB family: processes by path and index key instead of namespace and name.
//!
//! Promised: the documents' meaning of every number (manage_proc's 1 is manage, not stop); one task for all
//! process_infos of a call. A process is the one in the namespace `job` whose name is its index key, so that the
//! other dialects see it too. A call is limited to its scope: see `control::job`.
//! Absent: the scope of a result, of which only the form is checked.

pub(super) mod decode;

use serde::Serialize;

use super::error::ApiError;
use super::family;
use super::gse::rows;
use super::json::Value;
use super::request::Call;
use super::response::Written;
use super::task_cache::Shape;
use crate::control::{Submission, SubmitOptions};
use decode::JobCall;
use proctor_model::FieldError;

type Result<T> = std::result::Result<T, ApiError>;

#[derive(Debug, Serialize)]
pub(super) struct TaskAccepted {
    bk_gse_taskid: String,
}

pub(super) async fn submit(
    call: Call,
    read: fn(&Value<'_>) -> std::result::Result<JobCall, FieldError>,
) -> Result<TaskAccepted> {
    let JobCall { scope, items } = call.params(read).await?;
    let options = SubmitOptions { scope: Some(scope), ..SubmitOptions::default() };
    let submission = Submission { caller: call.caller, family: family::JOB, items, options };
    let submitted = call.control.submit(submission).await?;
    Ok(TaskAccepted { bk_gse_taskid: submitted.task.to_string() })
}

pub(super) async fn result(call: Call) -> Result<Written> {
    let id = call.params(decode::task_id).await?;
    rows(&call, &id, Shape::Job).await
}
