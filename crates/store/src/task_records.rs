//! Records of tasks.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    AgentId, Code, HostKey, Message, OperationId, OperationKind, Outcome, Phrase, ProcessKey, Scope, Spec, Subject,
    TaskId, known_phrase,
};
use serde::{Deserialize, Serialize};

use crate::{AuditDraft, Millis};

#[derive(Clone, Debug)]
pub struct NewTask {
    pub id: TaskId,
    pub created_at: Millis,
    pub app: String,
    pub user: String,
    /// Who asked, as the API layer names them; returned with the task.
    pub family: String,
    pub items: Vec<TaskItem>,
    pub targets: Vec<Target>,
    /// Outcomes known at submission: (index into `targets`, outcome).
    pub outcomes: Vec<(u32, Outcome)>,
    /// Appended to the audit log together with the task, at `created_at`.
    pub audit: Option<AuditDraft>,
    /// A repeated call finds this task instead of creating a second one.
    pub idempotency: Option<Idempotency>,
    /// The task whose failed targets this one retries.
    pub retry_of: Option<TaskId>,
    /// Details of a JOB call.
    pub scope: Option<Scope>,
    /// None: all targets are released at once.
    pub rollout: Option<Rollout>,
}

/// Identifies a repeated call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    pub app: String,
    /// Chosen by the caller; unique per app as long as the task is kept.
    pub key: String,
    /// Distinguishes a repetition from another call under the same key.
    pub body_hash: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreatedTask {
    Created {
        /// The targets that were registered by it, by index, each with the generation of its registration: an old
        /// one if it was registered with an equal spec before.
        registered: Vec<(u32, u64)>,
    },
    /// The key belongs to this task; nothing was written.
    Existing { id: TaskId, same_body: bool },
}

/// How the targets of a task are released in batches, and how far that has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Maximum number of released targets without an outcome.
    pub max_parallel: u32,
    /// One more failure than this stops the rollout.
    pub max_failures: u32,
    /// Pause after this many targets; 0: never.
    pub canary: u32,
    /// Wait until what was started is healthy before more is released.
    pub wait_healthy: bool,
    /// Number of targets released so far.
    pub released: u32,
    /// When the last batch was released; see [`Self::released_at_of`].
    #[serde(default)]
    pub released_at: Millis,
    /// Earlier releases that still have open targets, each with the index below which it released and its time; at
    /// most `max_parallel`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<(u32, Millis)>,
    pub state: RolloutState,
    /// Why it ended before all targets were released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same as an entry of the catalogue; absent if it is none, as from earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_phrase")]
    pub reason_phrase: Option<Phrase>,
    /// Whose permissions it continues with; None for the server's own, and for rollouts of an earlier version.
    #[serde(default)]
    pub makers: Vec<Subject>,
}

impl Rollout {
    pub fn reason(&self) -> Option<Message> {
        self.reason.clone().map(|text| Message::of_parts(text, self.reason_phrase.clone()))
    }

    /// The same, ended before all targets were released.
    #[must_use]
    pub fn ended(self, state: RolloutState, reason: Message) -> Self {
        let (text, reason_phrase) = reason.into_parts();
        Self { state, reason: Some(text), reason_phrase, ..self }
    }

    /// When an open target was released; its time limit counts from then.
    pub fn released_at_of(&self, index: u32) -> Millis {
        self.earlier.iter().find(|(below, _)| index < *below).map_or(self.released_at, |(_, at)| *at)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    Running,
    /// Waits for somebody to resume or cancel it.
    Paused,
    Failed,
    Cancelled,
    Done,
}

impl RolloutState {
    /// Whether targets may still be released.
    pub fn is_under_way(self) -> bool {
        match self {
            Self::Running | Self::Paused => true,
            Self::Failed | Self::Cancelled | Self::Done => false,
        }
    }
}

/// A transition of a rolling task, written atomically.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutStep {
    pub rollout: Rollout,
    /// Targets that succeeded, with whether they became healthy afterwards.
    pub judged: Vec<(u32, bool)>,
    /// The outcome of the targets that are not released, for a step that ends the rollout.
    pub unreleased: Option<Outcome>,
}

/// A rolling task that is not over.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenRollout {
    pub task: TaskId,
    /// Server uptime since the task was created.
    pub age: Duration,
    pub cancelled_at: Option<Millis>,
    pub rollout: Rollout,
    pub total: u32,
    /// The targets that have an outcome, by index.
    pub ended: BTreeMap<u32, FinishedTarget>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedTarget {
    /// Also true if its host was cordoned: maintenance is no failure of a rollout.
    pub is_success: bool,
    pub recorded_at: Millis,
    /// None: not judged.
    pub healthy: Option<bool>,
}

/// What the targets of a task share.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskItem {
    pub key: ProcessKey,
    /// None if the caller's op_type is meaningless; its targets are final from the start.
    pub kind: Option<OperationKind>,
    pub spec: Option<Arc<Spec>>,
    /// The spec that came with the call. Without one, none is stored.
    pub carried: bool,
    /// Register the spec on every target with an agent before anything is dispatched.
    pub register: bool,
    /// How long its targets may stay without an outcome once they are on their way: from the task's creation or, if
    /// they wait, from their delivery.
    pub time_limit_ms: u64,
    /// How long its targets may wait for an offline host; 0: not at all.
    pub wait_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Index into the task's items.
    pub item: u32,
    /// None if the caller's host is unknown.
    pub agent: Option<AgentId>,
    /// The host's address, or the one that the caller gave.
    pub host: Option<HostKey>,
    /// The key of its row in the caller's dialect.
    pub row_key: String,
    /// Further rows with the same outcome: the caller named the host in other ways too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_row_keys: Vec<String>,
}

impl Target {
    /// The agent that the target reaches. None if the host is unknown or the caller may not touch it: then the
    /// target only records how the call named it, which may be an agent id.
    pub fn reached(&self) -> Option<&AgentId> {
        self.agent.as_ref().filter(|_| self.host.is_some())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    pub id: TaskId,
    pub created_at: Millis,
    pub app: String,
    pub user: String,
    /// Those of the two that are still the same: a removed name may belong to somebody else now.
    pub owners: Vec<Subject>,
    /// Details of a JOB call.
    pub scope: Option<Scope>,
    pub family: String,
    pub cancelled_at: Option<Millis>,
    pub retry_of: Option<TaskId>,
    pub rollout: Option<Rollout>,
    /// `register` is not stored: it is false here.
    pub items: Vec<TaskItem>,
    pub targets: Vec<TargetView>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TargetView {
    pub target: Target,
    pub outcome: Option<Outcome>,
}

/// A task without its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSummary {
    pub id: TaskId,
    pub created_at: Millis,
    /// When the last outcome became known.
    pub finished_at: Option<Millis>,
    pub cancelled_at: Option<Millis>,
    pub app: String,
    pub user: String,
    /// As in [`TaskView`].
    pub owners: Vec<Subject>,
    pub family: String,
    /// The operations on its targets, each once.
    pub kinds: Vec<OperationKind>,
    /// The first three of its processes, by name.
    pub processes: Vec<ProcessKey>,
    pub has_more_processes: bool,
    pub retry_of: Option<TaskId>,
    pub rollout: Option<Rollout>,
    pub total: u32,
    /// Without an outcome.
    pub pending: u32,
    pub succeeded: u32,
    /// With an outcome other than success.
    pub failed: u32,
}

/// Which tasks; a field that is None does not narrow.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    pub ids: Option<RangeInclusive<TaskId>>,
    /// Only what sorts after it; nothing sorts after a task that was pruned.
    pub before: Option<TaskId>,
    pub limit: u32,
    pub app: Option<String>,
    pub user: Option<String>,
    /// Only those that it created, under its current name.
    pub owner: Option<Subject>,
    pub unfinished_only: bool,
    /// Only those that operate this process.
    pub process: Option<ProcessKey>,
    pub kind: Option<OperationKind>,
    pub state: Option<TaskState>,
    /// Made from this moment on.
    pub since: Option<Millis>,
    /// Made before this moment.
    pub until: Option<Millis>,
}

/// The progress of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Has targets without an outcome, and is not paused.
    Running,
    Paused,
    /// Finished, with failed targets.
    Failed,
    /// Finished, without failed targets.
    Done,
}

/// Which targets of a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct TargetQuery {
    /// Only those of a higher index.
    pub after: Option<u32>,
    pub limit: u32,
    pub which: TargetFilter,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetFilter {
    #[default]
    All,
    Pending,
    Failed,
    Succeeded,
    /// With this outcome.
    Code(Code),
}

/// Which tasks operate a process.
#[derive(Clone, Debug)]
pub struct ProcessTaskQuery {
    pub key: ProcessKey,
    /// Only targets that these serve; tasks without one are left out.
    pub agents: Option<Vec<AgentId>>,
    /// Only those that it created, under its current name.
    pub owner: Option<Subject>,
    /// Only what comes after this target of this task: its later targets, and the tasks that sort after it; nothing
    /// sorts after a task that was pruned.
    pub after: Option<(TaskId, u32)>,
    /// At most this many tasks are examined.
    pub tasks: u32,
    /// At most this many targets, of all tasks together.
    pub targets: u32,
}

/// A target with its index in the task and the operation of its item.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetRow {
    pub index: u32,
    pub key: ProcessKey,
    pub kind: Option<OperationKind>,
    pub target: Target,
    pub outcome: Option<Outcome>,
}

/// A target that still has to be delivered or answered.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTarget {
    pub operation: OperationId,
    pub agent: Option<AgentId>,
    pub key: ProcessKey,
    pub kind: OperationKind,
    pub spec: Option<Arc<Spec>>,
    pub created_at: Millis,
    pub time_limit_ms: u64,
    /// See [`TaskItem::wait_ms`].
    pub wait_ms: u64,
}
