//! The store is the source of truth of the control plane; memory is only a cache.
//!
//! Promised: a call that returned `Ok` has been written durably; every call is atomic; every
//! implementation passes `conformance` (a feature). Absent: any knowledge of HTTP, links or agents' sessions
//! beyond their epoch, and any clock: times are arguments, in Unix milliseconds.
//!
//! What is stored: apps, users with their tokens, roles and bindings, businesses, sets of them and
//! the placement of hosts, the audit log, join tokens, relays, secrets of the server, hosts with the epoch of
//! their newest session, specs (content-addressed), registrations with their generation, the last observation
//! of each registered process, pools, tasks with their targets, outcomes, events with the last
//! sequence of each agent, and webhooks with their cursors.
//! What is not: sessions and heartbeats (memory), queues (rebuilt from the targets without an
//! outcome by [`TaskStore::open_targets`]).
//! Hot: `create_task`, `record_outcomes`, `task`, `append_events`, `events`.
//!
//! Start at [`Store`] and its areas; the implementation is `sqlite`.

mod access_records;
mod area;
pub mod audit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod enrolment_records;
mod event_records;
mod fleet;
mod fleet_filter;
mod records;
mod relay_records;
mod retention;
pub mod sqlite;
mod stats;
mod task_records;
mod upgrade_records;

pub use access_records::{
    Binding, Business, BusinessSet, Refusal, SESSIONS_PER_USER_MAX, TokenKind, User, UserCredential, UserToken,
};
pub use area::{
    AccessStore, AuditStore, EventStore, HostStore, ProcessStore, RelayStore, Store, TaskStore, UpgradeStore,
    UpkeepStore, prelude,
};
pub use audit::{AuditDraft, AuditEntry, AuditPhase, AuditQuery};
pub use enrolment_records::{
    ENROLMENT_ACTOR, EndedSession, EnrolRefusal, Enrolled, Enrolment, JoinToken, JoinTokenRecord, REFUSALS_AUDITED_MAX,
    ReturnRequest, SessionOpening, SessionRefusal,
};
pub use event_records::{EventCountQuery, EventPage, EventQuery, StoredEvent, Webhook, WebhookFormat};
pub use fleet::{CRASH_LOOP_STARTS, Fleet, FleetHost, FleetProcess, FleetSpec, Health, SpecNumber, Trouble};
pub use fleet_filter::FleetFilter;
pub use records::{
    AgentReport, App, Assignment, Assignments, Cordon, HostLocation, HostQuery, HostRecord, HostRemoval, HostState,
    LabelTerm, Managed, Millis, Observation, PeerTrust, PoolAssignment, PoolRecord, ProcessCursor, ProcessOrder,
    ProcessQuery, ProcessRecord, ProcessSort, Rank, RegisterMode, Registered, Registration, SpecRevision, UnservedHost,
};
pub use relay_records::{RelayEnrolment, RelayRecord, RelayToken, RelayTokenRecord};
pub use retention::{AuditAnchor, DiskSpace, Prune, TableSize, Uptime};
pub use stats::{LATENCY_BUCKETS, Latency, OperationStats, StoreStats};
pub use task_records::{
    CreatedTask, FinishedTarget, Idempotency, NewTask, OpenRollout, OpenTarget, ProcessTaskQuery, Rollout,
    RolloutState, RolloutStep, Target, TargetFilter, TargetQuery, TargetRow, TargetView, TaskItem, TaskQuery,
    TaskState, TaskSummary, TaskView,
};

pub use upgrade_records::{
    UPGRADES_KEPT_MAX, Upgrade, UpgradeBuild, UpgradeCount, UpgradeHost, UpgradeHostChange, UpgradeHostQuery,
    UpgradeHostState, UpgradePlan, UpgradeState, UpgradeTransition,
};

use proctor_model::{Message, messages};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot {what}")]
    Failed { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the store has no space left to {what}")]
    Full { what: &'static str },
    #[error("the store holds a damaged {what}")]
    Damaged { what: String },
    #[error("the store was written by a newer version (schema {found}, this program knows {known})")]
    Newer { found: u32, known: u32 },
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// For the caller: does not name any file of the server.
    pub fn message(&self) -> Message {
        match self {
            Self::Failed { what, .. } => messages::store_failed(what),
            Self::Full { what } => messages::store_full(what),
            Self::Damaged { what } => messages::store_damaged(what),
            Self::Newer { found, known } => messages::store_newer(found, known),
            Self::Closed => messages::store_closed(),
        }
    }
}

pub type Result<T> = std::result::Result<T, StoreError>;
