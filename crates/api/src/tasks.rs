//! Tasks: their progress, and the outcome of each target.

use proctor_model::{OperationKind, Snapshot, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{LocalizedMessage, OptionalReason};

/// A task without its targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    pub task_id: TaskId,
    pub created_at: i64,
    /// When the last outcome became known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<i64>,
    pub app: String,
    pub user: String,
    /// The dialect of the call.
    pub family: String,
    /// The operations on its targets.
    #[serde(default)]
    pub operations: Vec<OperationKind>,
    /// The first three of its processes, `NAMESPACE/NAME`, by name.
    #[serde(default)]
    pub processes: Vec<String>,
    /// Whether it has more processes than these.
    #[serde(default)]
    pub has_more_processes: bool,
    pub total: usize,
    pub pending: usize,
    pub succeeded: usize,
    pub failed: usize,
    /// What had not begun by then never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<i64>,
    /// The task whose failed targets this one retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutView>,
}

impl TaskView {
    pub fn is_finished(&self) -> bool {
        self.pending == 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutView {
    pub state: RolloutState,
    pub max_parallel: u32,
    pub max_failures: u32,
    pub canary: u32,
    pub wait_healthy: bool,
    /// How many targets have been released so far.
    pub released: u32,
    /// Why it ended before all targets were released.
    #[serde(flatten)]
    pub why: OptionalReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    Running,
    /// After the canary, until it is resumed.
    Paused,
    /// More failures than allowed; the rest did not start.
    Failed,
    Cancelled,
    Done,
}

/// Newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskPage {
    pub tasks: Vec<TaskView>,
    /// `after` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which tasks; a field that is absent does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TaskQuery {
    pub app: Option<String>,
    pub user: Option<String>,
    /// Only tasks with pending targets.
    pub unfinished: Option<bool>,
    /// `NAMESPACE/NAME`: only tasks that operate this process.
    pub process: Option<String>,
    pub operation: Option<OperationKind>,
    pub state: Option<TaskState>,
    /// Unix seconds; created from then on.
    pub since: Option<i64>,
    /// Unix seconds; created before then.
    pub until: Option<i64>,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// Default: 100.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
}

/// The progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Has pending targets, and is not paused.
    Running,
    Paused,
    /// Finished, with failed targets.
    Failed,
    /// Finished, without failed targets.
    Done,
}

/// One target of a task; 115 `handling` while it has no outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetRow {
    /// Its index in the task, from 0.
    pub index: u32,
    pub host: String,
    pub process: String,
    /// Absent if the caller's number stood for no operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    pub code: u32,
    pub name: String,
    #[serde(flatten)]
    pub localized: LocalizedMessage,
    /// Output of the command, bounded.
    pub output: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

/// In the order of the task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetPage {
    pub targets: Vec<TargetRow>,
    /// `after` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetState {
    Pending,
    Succeeded,
    /// With any outcome but success.
    Failed,
    Cancelled,
    /// Never released by its rolling task.
    Skipped,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TargetQuery {
    pub state: Option<TargetState>,
    /// Only those with this outcome.
    pub code: Option<u32>,
    /// False: without command output.
    pub output: Option<bool>,
    /// `next` of the previous page: the targets after this one.
    pub after: Option<u32>,
    /// Default: 100.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GridQuery {
    /// The `version` that the caller already has.
    pub version: Option<u64>,
    /// If nothing has changed since that version, wait this many seconds for a change.
    #[param(maximum = 30)]
    pub wait: Option<u64>,
}

/// All targets of a task, one character each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskGrid {
    pub total: usize,
    /// Rises with every change.
    pub version: u64,
    /// In the order of the task: `p` waits to be released, `r` released, `s` succeeded, `f` failed, `c` cancelled, `k`
    /// skipped, `m` host in maintenance, `x` forbidden, `a` agent absent.
    pub states: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ProcessOperationQuery {
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: Option<String>,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// Default: 100.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
}

/// Operations on a process, newest task first. A page may end within a task; the next one continues there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessOperations {
    pub operations: Vec<ProcessOperation>,
    /// `after` of the next page, which may be empty; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One target of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessOperation {
    pub task_id: TaskId,
    /// Its index in the task, from 0.
    pub index: u32,
    /// When the task was created.
    pub at_ms: i64,
    /// When the last outcome of the task became known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at_ms: Option<i64>,
    pub app: String,
    pub user: String,
    /// Absent if the caller's number stood for no operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    pub host: String,
    pub code: u32,
    pub name: String,
    #[serde(flatten)]
    pub localized: LocalizedMessage,
    /// Output of the command, bounded.
    pub output: String,
}
