//! The records that cross the store's border.

use std::sync::Arc;

use proctor_model::{
    AgentId, HostFacts, HostKey, Namespace, OperationId, OperationKind, Outcome, Pool, ProcessKey, ProcessName,
    Snapshot, Spec, TaskId,
};
use serde::{Deserialize, Serialize};

use crate::audit::AuditDraft;

/// Unix milliseconds.
pub type Millis = i64;

/// An application that may call the API.
#[derive(Clone, PartialEq, Eq)]
pub struct App {
    pub code: String,
    pub secret_hash: String,
    /// The secret itself, sealed by the caller, for apps that sign their calls.
    pub sealed_secret: Option<Vec<u8>>,
    /// May name any user without proof.
    pub trusted: bool,
    pub created_at: Millis,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("code", &self.code).field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

/// Lets `uses` agents enrol until `expires_at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    pub id: String,
    pub secret_hash: String,
    pub uses: u32,
    pub expires_at: Millis,
    /// The only cloud area it is good for.
    pub cloud: Option<u32>,
    /// Where hosts that enrol with it are placed; it must be there.
    pub business: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Enrolment {
    pub token_id: String,
    pub token_secret_hash: String,
    pub host: HostKey,
    pub agent: AgentId,
    /// Fingerprint of the agent's public key: tells a repetition from a second agent.
    pub key_fingerprint: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolRefusal {
    #[error("the join token is not known")]
    UnknownToken,
    #[error("the join token has expired")]
    Expired,
    #[error("the join token has no uses left")]
    UsedUp,
    #[error("the join token is good only for cloud area {allowed}")]
    WrongCloud { allowed: u32 },
    #[error("host {host} is served by agent {agent}, which is connected")]
    HostTaken { host: HostKey, agent: AgentId },
    #[error("agent id {agent} belongs to host {host}, which is connected")]
    AgentTaken { agent: AgentId, host: HostKey },
}

#[derive(Clone, Debug, PartialEq)]
pub struct HostRecord {
    pub key: HostKey,
    pub agent: AgentId,
    /// The business that it belongs to.
    pub business: Option<u64>,
    pub facts: HostFacts,
    pub enrolled_at: Millis,
    pub online: bool,
    pub epoch: u64,
    /// When `online` last changed.
    pub presence_changed_at: Millis,
}

#[derive(Clone, Debug)]
pub struct Registration {
    pub agent: AgentId,
    pub key: ProcessKey,
    pub spec: Arc<Spec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterMode {
    /// An existing registration is left as it is.
    Create,
    Upsert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    Stored { generation: u64 },
    Exists,
    NoHost,
}

/// Which registered processes; a field that is None does not narrow.
#[derive(Clone, Debug, Default)]
pub struct ProcessQuery {
    pub namespace: Option<Namespace>,
    pub name: Option<ProcessName>,
    pub agents: Option<Vec<AgentId>>,
    pub offset: u64,
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRecord {
    pub host: HostKey,
    pub agent: AgentId,
    pub online: bool,
    pub key: ProcessKey,
    pub spec: Arc<Spec>,
    /// Grows with every change on the host.
    pub generation: u64,
    pub registered_at: Millis,
    /// The last observation; None before the first.
    pub snapshot: Option<Snapshot>,
}

/// One change that an agent must learn of.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub generation: u64,
    pub key: ProcessKey,
    /// None: no longer registered.
    pub spec: Option<Arc<Spec>>,
    /// Whether the last observation said that it is managed; an agent without a memory of the
    /// process takes it from here.
    pub managed: bool,
    pub registered_at: Millis,
}

#[derive(Clone, Debug)]
pub struct Observation {
    pub key: ProcessKey,
    pub snapshot: Snapshot,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PoolRecord {
    pub host: HostKey,
    pub agent: AgentId,
    pub pool: Pool,
}

/// Everything that an agent must learn of, from one moment of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignments {
    /// Oldest first.
    pub processes: Vec<Assignment>,
    /// Oldest first.
    pub pools: Vec<PoolAssignment>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PoolAssignment {
    pub generation: u64,
    pub pool: Pool,
}

#[derive(Clone, Debug)]
pub struct NewTask {
    pub id: TaskId,
    pub created_at: Millis,
    pub app: String,
    pub user: String,
    /// Who asked, in the words of the border; given back with the task.
    pub family: String,
    pub items: Vec<TaskItem>,
    pub targets: Vec<Target>,
    /// Outcomes known at submission: (index into `targets`, outcome).
    pub outcomes: Vec<(u32, Outcome)>,
    /// Appended to the audit log together with the task, at `created_at`.
    pub audit: Option<AuditDraft>,
}

/// What the targets of a task share.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskItem {
    pub key: ProcessKey,
    /// None where the caller's op_type means nothing; its targets are final from the start.
    pub kind: Option<OperationKind>,
    pub spec: Option<Arc<Spec>>,
    /// Register the spec on every target with an agent before anything is dispatched.
    pub register: bool,
    /// How long its targets may stay without an outcome, from the task's creation.
    pub time_limit_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Index into the task's items.
    pub item: u32,
    /// None where the caller's host is not known.
    pub agent: Option<AgentId>,
    /// The host's address, or the one that the caller gave.
    pub host: Option<HostKey>,
    /// The key of its row in the caller's dialect.
    pub row_key: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    pub id: TaskId,
    pub created_at: Millis,
    pub app: String,
    pub user: String,
    pub family: String,
    /// `register` is not kept: it is false here.
    pub items: Vec<TaskItem>,
    pub targets: Vec<TargetView>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TargetView {
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
}
