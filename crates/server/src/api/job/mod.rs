//! The JOB family: processes by path and index key instead of namespace and name.
//!
//! Promised: the documents' meaning of every number (manage_proc's 1 is manage, not stop); one
//! task for all process_infos of a call. A process is the one of the namespace `job` whose name is
//! its index key, so that the other dialects see it too.
//! Absent: permissions of businesses; the scope is checked for its form only.

pub(super) mod decode;

use serde::Serialize;

use super::content::{Content, content};
use super::error::ApiError;
use super::family;
use super::gse::task;
use super::request::Call;
use super::rows::{Row, Rows};
use crate::control::{Submission, SubmitOptions, SubmittedItem};
use proctor_model::{Code, FieldError};
use proctor_store::TaskView;
use serde_json::Value;

type Result<T> = std::result::Result<T, ApiError>;

#[derive(Debug, Serialize)]
pub(super) struct TaskAccepted {
    bk_gse_taskid: String,
}

pub(super) async fn submit(
    call: Call,
    read: fn(&Value) -> std::result::Result<Vec<SubmittedItem>, FieldError>,
) -> Result<TaskAccepted> {
    let items = read(&call.params)?;
    let submission = Submission { caller: call.caller, family: family::JOB, items, options: SubmitOptions::default() };
    let submitted = call.control.submit(submission).await?;
    Ok(TaskAccepted { bk_gse_taskid: submitted.task.to_string() })
}

/// The answer is serialised with its task at hand: contents borrow from it.
#[derive(Debug)]
pub(super) struct TaskResult(TaskView);

#[derive(Serialize)]
struct TaskRows<'a> {
    /// Reserved in the documents, but clients wait for something other than 115.
    status: u32,
    result: Rows<MaybeContent<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum MaybeContent<'a> {
    None {},
    Some(Content<'a>),
}

impl Serialize for TaskResult {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let task = &self.0;
        let is_pending = task.targets.iter().any(|target| target.outcome.is_none());
        let rows = task.targets.iter().map(|target| {
            let row = match &target.outcome {
                None => Row::pending(MaybeContent::None {}),
                Some(outcome) => Row::finished(outcome, MaybeContent::Some(content(task, target, outcome))),
            };
            (target.target.row_key.clone(), row)
        });
        let code = if is_pending { Code::Handling } else { Code::Success };
        TaskRows { status: code.number(), result: rows.collect() }.serialize(serializer)
    }
}

pub(super) async fn result(call: Call) -> Result<TaskResult> {
    let id = decode::task_id(&call.params)?;
    Ok(TaskResult(task(&call, &id).await?))
}
