//! The store is the truth of the control plane; memory is only speed.
//!
//! Promised: a call that returned `Ok` has been written durably; every call is atomic; both
//! implementations pass [`conformance`]. Absent: any knowledge of HTTP, links or agents' sessions
//! beyond their epoch, and any clock: times are arguments, in Unix milliseconds.
//!
//! What is stored: apps, join tokens, secrets of the server, hosts with the epoch of their newest
//! session, specs (content-addressed), registrations with their generation, the last observation
//! of each registered process, pools, tasks with their targets, outcomes, events with the last
//! sequence of each agent, and webhooks with how far each has come.
//! What is not: sessions and heartbeats (memory), queues (rebuilt from the targets without an
//! outcome by [`Store::open_targets`]).
//! Hot: `create_task`, `record_outcomes`, `task`, `append_events`, `events`.

pub mod conformance;
mod event_records;
mod records;
pub mod sqlite;

pub use event_records::{EventPage, EventQuery, StoredEvent, Webhook, WebhookFormat};
pub use records::{
    App, Assignment, Assignments, EnrolRefusal, Enrolment, HostRecord, JoinToken, Millis, NewTask, Observation,
    OpenTarget, PoolAssignment, PoolRecord, ProcessQuery, ProcessRecord, RegisterMode, Registered, Registration,
    Target, TargetView, TaskItem, TaskView,
};

use async_trait::async_trait;
use proctor_model::{AgentId, Event, HostFacts, HostKey, Namespace, OperationId, Outcome, Pool, ProcessKey, TaskId};
use uuid::Uuid;

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

pub type Result<T> = std::result::Result<T, StoreError>;

#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    // Apps and secrets.

    /// Inserts the app, or replaces the one of the same code.
    async fn put_app(&self, app: App) -> Result<()>;
    async fn app(&self, code: &str) -> Result<Option<App>>;
    /// The value under `name`, which is `value` if nothing was there: the first writer wins.
    async fn secret_or_insert(&self, name: &str, value: Vec<u8>) -> Result<Vec<u8>>;
    async fn secret(&self, name: &str) -> Result<Option<Vec<u8>>>;

    // Hosts.

    async fn put_token(&self, token: JoinToken) -> Result<()>;
    /// Checks the token, uses it up once and binds the host to the agent, all or nothing.
    /// A repetition with the same token and key fingerprint succeeds again without a further use.
    /// A host that was bound to another agent keeps its registrations and moves to the new one.
    async fn enrol(&self, enrolment: Enrolment, now: Millis) -> Result<std::result::Result<(), EnrolRefusal>>;
    async fn hosts(&self) -> Result<Vec<HostRecord>>;
    /// By `cloud` and `ip`; the supplier is not part of a host's identity.
    async fn hosts_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostRecord>>>;
    async fn hosts_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostRecord>>>;
    /// Raises the session epoch of the agent, marks it online and returns the new epoch; None for
    /// an agent that is bound to no host.
    async fn open_session(&self, agent: &AgentId, facts: &HostFacts, now: Millis) -> Result<Option<u64>>;
    /// Marks the agent offline, unless a newer session is open.
    async fn close_session(&self, agent: &AgentId, epoch: u64, now: Millis) -> Result<()>;
    /// Marks every host offline and returns the agents that were online: called once, when the
    /// server starts, to know whom to expect back.
    async fn reset_presence(&self, now: Millis) -> Result<Vec<AgentId>>;

    // Processes.

    /// One answer for each registration, in order. Registrations of agents that are bound to no
    /// host answer [`Registered::NoHost`]. An upsert with an equal spec changes nothing.
    async fn register(
        &self,
        registrations: &[Registration],
        mode: RegisterMode,
        now: Millis,
    ) -> Result<Vec<Registered>>;
    /// For each, whether it was registered. Leaves a tombstone with a new generation.
    async fn unregister(&self, processes: &[(AgentId, ProcessKey)], now: Millis) -> Result<Vec<bool>>;
    /// The matching registered processes, sorted by namespace, name, cloud and ip (as text), with
    /// their number before paging.
    async fn processes(&self, query: &ProcessQuery) -> Result<(u64, Vec<ProcessRecord>)>;
    /// What changed for the agent after generation `since`, tombstones included unless `since` is
    /// 0. Processes and pools share one counter, so they are read together.
    async fn assignments(&self, agent: &AgentId, since: u64) -> Result<Assignments>;
    /// Keeps the newest observations; those of an older epoch than the agent's, and of processes
    /// that are not registered, are dropped.
    async fn observe(&self, agent: &AgentId, epoch: u64, observations: &[Observation]) -> Result<()>;

    // Pools.

    /// One answer for each agent: false for one that is bound to no host.
    async fn set_pools(&self, agents: &[AgentId], pools: &[Pool], now: Millis) -> Result<Vec<bool>>;
    async fn pools(&self, namespace: Option<&Namespace>, agents: Option<&[AgentId]>) -> Result<Vec<PoolRecord>>;

    // Tasks.

    /// Writes the task, its targets, the outcomes that are known already, and (for items with
    /// `register`) the registrations of its targets, in one transaction.
    async fn create_task(&self, task: NewTask) -> Result<()>;
    async fn task(&self, id: TaskId) -> Result<Option<TaskView>>;
    /// The newest tasks first, without their targets' outcomes.
    async fn task_ids(&self, limit: u32) -> Result<Vec<TaskId>>;
    /// Every target without an outcome, oldest task first.
    async fn open_targets(&self) -> Result<Vec<OpenTarget>>;
    /// Adds outcomes to targets that have none yet and returns those. A second outcome for a
    /// target, or one for an unknown target, is dropped.
    async fn record_outcomes(&self, outcomes: &[(OperationId, Outcome)], now: Millis) -> Result<Vec<OperationId>>;
    /// Forgets finished tasks created before `before`; returns how many.
    async fn prune_tasks(&self, before: Millis) -> Result<u64>;

    // Events.

    /// Keeps the events of an agent whose sequence is above all that it had before, and returns the
    /// highest sequence that is kept of it. Those of an older epoch than the agent's, and of an agent
    /// that is bound to no host, are dropped.
    async fn append_events(&self, agent: &AgentId, epoch: u64, events: &[Event], now: Millis) -> Result<u64>;
    /// Keeps an event that the server made about the agent's host; its sequence is kept as 0. False
    /// for an agent that is bound to no host.
    async fn append_server_event(&self, agent: &AgentId, event: &Event, now: Millis) -> Result<bool>;
    /// The matching events, oldest first, and where to go on.
    async fn events(&self, query: &EventQuery) -> Result<EventPage>;
    /// Forgets events that were stored before `before`, and the oldest beyond `keep`; returns how many.
    async fn prune_events(&self, before: Millis, keep: u64) -> Result<u64>;

    // Webhooks.

    /// Inserts the webhook, or replaces the one of the same id.
    async fn put_webhook(&self, webhook: Webhook) -> Result<()>;
    /// The oldest first.
    async fn webhooks(&self) -> Result<Vec<Webhook>>;
    /// Whether it was there.
    async fn delete_webhook(&self, id: Uuid) -> Result<bool>;
    /// Moves the cursor of a webhook forward, never back; one that is gone is left alone.
    async fn advance_webhook(&self, id: Uuid, cursor: u64) -> Result<()>;
}
