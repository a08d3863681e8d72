//! The JOB family: processes by path and index key instead of namespace and name.
//!
//! Promised: the documents' meaning of every number (manage_proc's 1 is manage, not stop); one
//! task for all process_infos of a call. A process is the one of the namespace `job` whose name is
//! its index key, so that the other dialects see it too.
//! Absent: permissions of businesses; the scope is checked for its form only.

pub(super) mod decode;

use serde::Serialize;

use super::answer::Written;
use super::error::ApiError;
use super::family;
use super::gse::rows;
use super::json::Value;
use super::renditions::Shape;
use super::request::Call;
use crate::control::{Submission, SubmitOptions, SubmittedItem};
use proctor_model::FieldError;

type Result<T> = std::result::Result<T, ApiError>;

#[derive(Debug, Serialize)]
pub(super) struct TaskAccepted {
    bk_gse_taskid: String,
}

pub(super) async fn submit(
    call: Call,
    read: fn(&Value<'_>) -> std::result::Result<Vec<SubmittedItem>, FieldError>,
) -> Result<TaskAccepted> {
    let items = call.params(read).await?;
    let submission = Submission { caller: call.caller, family: family::JOB, items, options: SubmitOptions::default() };
    let submitted = call.control.submit(submission).await?;
    Ok(TaskAccepted { bk_gse_taskid: submitted.task.to_string() })
}

pub(super) async fn result(call: Call) -> Result<Written> {
    let id = call.params(decode::task_id).await?;
    rows(&call, &id, Shape::Job).await
}
