//! The store is the source of truth of the control plane; memory is only a cache.
//!
//! Promised: a call that returned `Ok` has been written durably; every call is atomic; every
//! implementation passes [`conformance`]. Absent: any knowledge of HTTP, links or agents' sessions
//! beyond their epoch, and any clock: times are arguments, in Unix milliseconds.
//!
//! What is stored: apps, users with their tokens, roles and bindings, businesses, sets of them and
//! the placement of hosts, the audit log, join tokens, secrets of the server, hosts with the epoch of
//! their newest session, specs (content-addressed), registrations with their generation, the last observation
//! of each registered process, pools, tasks with their targets, outcomes, events with the last
//! sequence of each agent, and webhooks with their cursors.
//! What is not: sessions and heartbeats (memory), queues (rebuilt from the targets without an
//! outcome by [`Store::open_targets`]).
//! Hot: `create_task`, `record_outcomes`, `task`, `append_events`, `events`.
//!
//! Start at [`Store`]; its implementation is `sqlite`.

mod access_records;
pub mod audit;
pub mod conformance;
mod enrolment_records;
mod event_records;
mod fleet;
mod fleet_filter;
mod records;
mod retention;
pub mod sqlite;
mod stats;
mod task_records;

pub use access_records::{
    Binding, Business, BusinessSet, Refusal, SESSIONS_PER_USER_MAX, TokenKind, User, UserCredential, UserToken,
};
pub use audit::{AuditDraft, AuditEntry, AuditPhase, AuditQuery};
pub use enrolment_records::{
    ENROLMENT_ACTOR, EndedSession, EnrolRefusal, Enrolled, Enrolment, JoinToken, JoinTokenRecord, REFUSALS_AUDITED_MAX,
    SessionOpening, SessionRefusal,
};
pub use event_records::{EventCountQuery, EventPage, EventQuery, StoredEvent, Webhook, WebhookFormat};
pub use fleet::{Fleet, FleetHost, FleetProcess, FleetSpec, Health, SpecNumber, Trouble};
pub use fleet_filter::FleetFilter;
pub use records::{
    App, Assignment, Assignments, Cordon, HostLocation, HostQuery, HostRecord, LabelTerm, Managed, Millis, Observation,
    PoolAssignment, PoolRecord, ProcessCursor, ProcessOrder, ProcessQuery, ProcessRecord, ProcessSort, Rank,
    RegisterMode, Registered, Registration, SpecRevision,
};
pub use retention::{AuditAnchor, DiskSpace, Prune, TableSize, Uptime};
pub use stats::{LATENCY_BUCKETS, Latency, OperationStats, StoreStats};
pub use task_records::{
    CreatedTask, FinishedTarget, Idempotency, NewTask, OpenRollout, OpenTarget, ProcessTaskQuery, Rollout,
    RolloutState, RolloutStep, Target, TargetFilter, TargetQuery, TargetRow, TargetView, TaskItem, TaskQuery,
    TaskState, TaskSummary, TaskView,
};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use proctor_model::{
    AgentId, Code, Event, HostKey, Namespace, OperationId, Outcome, Permissions, Pool, PoolId, ProcessKey, Role,
    RoleName, Subject, TaskId,
};
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
    // Health.

    /// Returns when the store can never be written again: every later change answers
    /// [`StoreError::Closed`].
    async fn closed(&self);
    /// Whether the store can be read.
    async fn check_readable(&self) -> Result<()>;
    /// Whether the store can be written: commits a small change that changes nothing, and asks for free
    /// space.
    async fn check_writable(&self) -> Result<()>;

    // Apps and secrets.

    /// Inserts the app, or replaces the one of the same code.
    async fn put_app(&self, app: App) -> Result<()>;
    /// Inserts the app with its bindings, all or nothing. One of the same code refuses it, and so does
    /// a binding that [`Self::put_binding`] would refuse.
    async fn create_app(&self, app: App, bindings: &[Binding]) -> Result<std::result::Result<(), Refusal>>;
    async fn app(&self, code: &str) -> Result<Option<App>>;
    /// Replaces the hash of the app's secret if it is `old`; false where it is not, or the app is gone.
    async fn renew_app_hash(&self, code: &str, old: &str, new: &str) -> Result<bool>;
    /// Replaces the secret of an app and nothing else of it, and returns the app; None for one that is not there.
    async fn set_app_secret(
        &self,
        code: &str,
        secret_hash: String,
        sealed_secret: Option<Vec<u8>>,
    ) -> Result<Option<App>>;
    /// Sorted by code.
    async fn apps(&self) -> Result<Vec<App>>;
    /// Whether it was there. Its bindings go with it.
    async fn delete_app(&self, code: &str) -> Result<bool>;
    /// The value under `name`, which is `value` if nothing was there: the first writer wins.
    async fn secret_or_insert(&self, name: &str, value: Vec<u8>) -> Result<Vec<u8>>;
    async fn secret(&self, name: &str) -> Result<Option<Vec<u8>>>;

    // Businesses.

    /// Inserts the business, or renames the one of the same id.
    async fn put_business(&self, business: Business) -> Result<()>;
    /// Sorted by id.
    async fn businesses(&self) -> Result<Vec<Business>>;
    /// Whether it was there. Its hosts belong to nobody then, sets lose it, join tokens no longer
    /// place hosts there, and the bindings on it go with it.
    async fn delete_business(&self, id: u64) -> Result<bool>;
    /// Inserts the set, or replaces the one of the same id. All members must be there.
    async fn put_business_set(&self, set: BusinessSet) -> Result<std::result::Result<(), Refusal>>;
    /// Sorted by id.
    async fn business_sets(&self) -> Result<Vec<BusinessSet>>;
    /// Whether it was there. The bindings on it go with it.
    async fn delete_business_set(&self, id: u64) -> Result<bool>;
    /// Says which business each host belongs to (None: to nobody), also before it enrols. By `cloud`
    /// and `ip`; of two for one host the last counts. A business that is not there refuses them all.
    async fn place_hosts(&self, placements: &[(HostKey, Option<u64>)]) -> Result<std::result::Result<(), Refusal>>;
    /// Where addresses are placed, in order, whether or not they have enrolled.
    async fn placements(&self, hosts: &[HostKey]) -> Result<Vec<Option<u64>>>;
    /// As [`Self::put_business`] for each of the businesses and then [`Self::place_hosts`], all or nothing.
    async fn import_hosts(
        &self,
        businesses: &[Business],
        placements: &[(HostKey, Option<u64>)],
    ) -> Result<std::result::Result<(), Refusal>>;

    // Access.

    /// Inserts the role, or replaces the one of the same name.
    async fn put_role(&self, role: Role) -> Result<std::result::Result<(), Refusal>>;
    /// The built-in ones first, then the others by name.
    async fn roles(&self) -> Result<Vec<Role>>;
    /// Whether it was there; a built-in one never goes. Its bindings go with it.
    async fn delete_role(&self, name: &RoleName) -> Result<bool>;
    /// Keeps the binding and returns its id. One that gives the same role to the same subject in the
    /// same scope within the same bounds stays as it is, and its id is returned. The role, and a business or set that the
    /// scope names, must be there; the subject need not.
    async fn put_binding(&self, binding: Binding) -> Result<std::result::Result<Uuid, Refusal>>;
    /// The oldest first.
    async fn bindings(&self) -> Result<Vec<Binding>>;
    /// Whether it was there.
    async fn delete_binding(&self, id: Uuid) -> Result<bool>;
    /// All that the bindings of these subjects allow together. A disabled user among them refuses it: nobody
    /// acts in the name of one, whatever else vouches for the call.
    async fn permissions(&self, subjects: &[Subject]) -> Result<std::result::Result<Permissions, Refusal>>;
    /// Takes the nonce of a signed request until then; false where it is taken already. Those whose time is
    /// over are forgotten.
    async fn take_nonce(&self, fingerprint: [u8; 32], until: Millis, now: Millis) -> Result<bool>;

    // Users.

    /// Inserts the user; one of the same name refuses it. What was done in this name before is not the user's.
    async fn create_user(&self, user: User) -> Result<std::result::Result<(), Refusal>>;
    /// Says whether the user is disabled, and returns it; None for one that is not there. The tokens stay;
    /// disabling closes the user's sessions.
    async fn disable_user(&self, name: &str, disabled: bool) -> Result<Option<User>>;
    async fn user(&self, name: &str) -> Result<Option<User>>;
    /// Sorted by name.
    async fn users(&self) -> Result<Vec<User>>;
    /// Whether it was there. The user's tokens and bindings go with it.
    async fn delete_user(&self, name: &str) -> Result<bool>;
    /// Inserts the token, or replaces the one of the same id. The user must be there, and the parent of a
    /// session too, or [`Refusal::UnknownToken`]. Of sessions the newest [`SESSIONS_PER_USER_MAX`] are kept.
    async fn put_user_token(&self, token: UserToken) -> Result<std::result::Result<(), Refusal>>;
    /// As [`Self::put_user_token`], for a session that was opened with a password or a link only while the
    /// credential is still the present one, or [`Refusal::CredentialChanged`]. The user must not be disabled.
    async fn put_session(
        &self,
        token: UserToken,
        credential: Option<UserCredential>,
    ) -> Result<std::result::Result<(), Refusal>>;
    /// Of one user or of all, the oldest first.
    async fn user_tokens(&self, user: Option<&str>) -> Result<Vec<UserToken>>;
    async fn user_token(&self, id: &str) -> Result<Option<UserToken>>;
    /// Whether it was there. Sessions that were opened with it go too.
    async fn delete_user_token(&self, id: &str) -> Result<bool>;
    /// Sets the hash of the user's password, or removes it; either closes the user's sessions. With an expected
    /// credential only while that is the present one, or [`Refusal::CredentialChanged`].
    async fn set_user_password(
        &self,
        name: &str,
        hash: Option<String>,
        expected: Option<UserCredential>,
        now: Millis,
    ) -> Result<std::result::Result<(), Refusal>>;
    /// None for a user that is not there.
    async fn user_credential(&self, name: &str) -> Result<Option<UserCredential>>;

    // Audit.

    /// Appends the entry to the chain and returns its number. Entries are never changed, and removed only
    /// from the beginning, once they are archived ([`Prune::Audit`]).
    async fn append_audit(&self, draft: AuditDraft, now: Millis) -> Result<u64>;
    /// The matching entries, oldest first; with `newest`, the newest of them.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>>;
    /// The last entry that was removed; the oldest that is here follows it.
    async fn audit_anchor(&self) -> Result<AuditAnchor>;
    /// The newest entry that was written before; 0 where none was. May be a while too low.
    async fn audit_before(&self, before: Uptime) -> Result<u64>;

    // Hosts.

    /// Keeps the token; one that is put again keeps the count of its uses.
    async fn put_token(&self, token: JoinToken) -> Result<()>;
    /// The one that expires last comes first.
    async fn tokens(&self) -> Result<Vec<JoinTokenRecord>>;
    /// Whether it was there. Nobody enrols with it any more; hosts that did stay.
    async fn delete_token(&self, id: &str) -> Result<bool>;
    /// Whether there is a token of this id with this secret, expired or not. Changes nothing.
    async fn knows_token(&self, id: &str, secret_hash: &str) -> Result<bool>;
    /// Checks the token, uses it up once and binds the host to the agent, all or nothing, together with
    /// its audit entry. A refusal is audited too, where the token is known, and otherwise changes nothing.
    /// A repetition with the same token and key fingerprint succeeds again without a further use.
    ///
    /// A host that is known, by its address or by the agent's id, is taken over only by its own key, by a
    /// token that names it, or after [`Self::allow_rejoin`]; connected or not is no reason. It keeps its
    /// registrations and its business. Only a new host that has no business is placed in the token's.
    async fn enrol(&self, enrolment: Enrolment, now: Millis) -> Result<std::result::Result<Enrolled, EnrolRefusal>>;
    /// Lets any key that has a good token take the host over until then, or an older copy of its agent's
    /// state come back; whichever is first. None withdraws it. False for a host that is not known.
    async fn allow_rejoin(&self, host: &HostKey, until: Option<Millis>) -> Result<bool>;
    /// The host's key opens no session any more, and does not enrol again. Returns the agent and an epoch
    /// that no session of that key reaches; None for a host that no agent serves.
    async fn revoke_host(&self, host: &HostKey, now: Millis) -> Result<Option<(AgentId, u64)>>;
    /// Sets the host's cordon in place of the one that it has, or ends it (None). Returns the one that it had,
    /// over or not; the outer None is a host that no agent serves.
    async fn set_cordon(&self, host: &HostKey, cordon: Option<Cordon>) -> Result<Option<Option<Cordon>>>;
    /// The host may open sessions from now on. Whether it was waiting; None for a host that no agent serves.
    async fn approve_host(&self, host: &HostKey) -> Result<Option<bool>>;
    /// Forgets the host with its registrations and pools; its address stays in its business. Returns
    /// the agent; None for a host that no agent serves.
    async fn remove_host(&self, host: &HostKey) -> Result<Option<AgentId>>;
    /// The matching hosts that an agent serves, sorted by cloud and ip (as text).
    async fn hosts(&self, query: &HostQuery) -> Result<Vec<HostRecord>>;
    /// By `cloud` and `ip`; the supplier is not part of a host's identity.
    async fn hosts_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostRecord>>>;
    /// By the agent's own id, or by the alias that a host was given.
    async fn hosts_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostRecord>>>;
    /// As [`Self::hosts_by_key`], only where they are.
    async fn sites_by_key(&self, keys: &[HostKey]) -> Result<Vec<Option<HostLocation>>>;
    /// As [`Self::hosts_by_agent`], only where they are.
    async fn sites_by_agent(&self, agents: &[AgentId]) -> Result<Vec<Option<HostLocation>>>;
    /// Gives each host a second id that it answers to, in place of the one that it was given before.
    /// False for a host that no agent serves, and for an id that is another host's.
    async fn bind_agent_ids(&self, bindings: &[(HostKey, AgentId)]) -> Result<Vec<bool>>;
    /// Raises the session epoch of the agent, marks it online and returns the new epoch. Refused are
    /// keys that do not serve the agent's host (any more), state that is older than what
    /// [`Self::settle_session`] has recorded, and hosts that await approval; of those the facts are kept.
    async fn open_session(
        &self,
        opening: &SessionOpening,
        now: Millis,
    ) -> Result<std::result::Result<u64, SessionRefusal>>;
    /// The agent's state directory holds this epoch: from now on, state with an earlier one is a copy.
    /// False if the session is not the newest any more.
    async fn settle_session(&self, agent: &AgentId, epoch: u64) -> Result<bool>;
    /// Marks the agents offline and keeps the event of each, in one transaction. Those that have a newer
    /// session by now, and those that are bound to no host, are left out.
    async fn end_sessions(&self, ended: &[EndedSession], now: Millis) -> Result<()>;

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
    /// The matching registered processes in the order that is asked for, with their number before paging.
    async fn processes(&self, query: &ProcessQuery) -> Result<(u64, Vec<ProcessRecord>)>;
    /// All hosts and processes at once. `before` is an earlier answer, which makes this one quicker.
    async fn fleet(&self, before: Option<Arc<Fleet>>) -> Result<Fleet>;
    /// The newest revisions first, the present one included; of one process the last 20 are kept.
    async fn spec_history(&self, agent: &AgentId, key: &ProcessKey, limit: u32) -> Result<Vec<SpecRevision>>;
    /// What changed for the agent after generation `since`, tombstones included unless `since` is
    /// 0. Processes and pools share one counter, so they are read together.
    async fn assignments(&self, agent: &AgentId, since: u64) -> Result<Assignments>;
    /// Keeps the newest observations; those of an older epoch than the agent's, and of processes
    /// that are not registered, are dropped. For each, whether it was kept.
    async fn observe(&self, agent: &AgentId, epoch: u64, observations: &[Observation]) -> Result<Vec<bool>>;
    /// As the newest observations of these processes would say it; of an older epoch than the agent's:
    /// dropped.
    async fn keep_managed(&self, managed: &[Managed]) -> Result<()>;

    // Pools.

    /// One answer for each agent: false for one that is bound to no host.
    async fn set_pools(&self, agents: &[AgentId], pools: &[Pool], now: Millis) -> Result<Vec<bool>>;
    /// For each agent, whether it had the pool. The agent learns of it as of a pool without limits.
    async fn delete_pool(
        &self,
        agents: &[AgentId],
        namespace: &Namespace,
        id: &PoolId,
        now: Millis,
    ) -> Result<Vec<bool>>;
    async fn pools(&self, namespace: Option<&Namespace>, agents: Option<&[AgentId]>) -> Result<Vec<PoolRecord>>;

    // Tasks.

    /// Writes the task, its targets, the outcomes that are known already, its audit entry, and (for
    /// items with `register`) the registrations of its targets but those that are cordoned, in one transaction. Where
    /// its idempotency key is known, nothing is written.
    async fn create_task(&self, task: NewTask) -> Result<CreatedTask>;
    /// The task that the idempotency key stands for, and whether the call was the same.
    async fn task_of_key(&self, key: &Idempotency) -> Result<Option<(TaskId, bool)>>;
    async fn task(&self, id: TaskId) -> Result<Option<TaskView>>;
    async fn task_summary(&self, id: TaskId) -> Result<Option<TaskSummary>>;
    /// The newest tasks first.
    async fn tasks(&self, query: &TaskQuery) -> Result<Vec<TaskSummary>>;
    /// The matching targets in their order; none of an unknown task.
    async fn task_targets(&self, id: TaskId, query: &TargetQuery) -> Result<Vec<TargetRow>>;
    /// The codes of the targets that have an outcome, by index; none of an unknown task.
    async fn target_codes(&self, id: TaskId) -> Result<Vec<(u32, Code)>>;
    /// The newest tasks first that operate the process, each with its targets for it.
    async fn process_tasks(&self, query: &ProcessTaskQuery) -> Result<Vec<(TaskSummary, Vec<TargetRow>)>>;
    /// Marks the task as cancelled; false if it is unknown, finished or marked already. A rollout that
    /// is under way becomes cancelled and its unreleased targets end with `unreleased`, in the same
    /// transaction. Other targets stay open until they get their outcomes.
    async fn cancel_task(&self, id: TaskId, unreleased: Outcome, now: Millis) -> Result<bool>;
    /// Writes a transition of a rolling task: its rollout, what was judged, and the outcomes of
    /// unreleased targets. False, with nothing written, for a task without a rollout; for a rollout that
    /// is over, unless its state stays; for a cancelled task, unless its rollout ends.
    async fn step_rollout(&self, id: TaskId, step: RolloutStep, now: Millis) -> Result<bool>;
    /// The rollouts of tasks that are not finished, and those that run or pause; oldest task first.
    async fn open_rollouts(&self) -> Result<Vec<OpenRollout>>;
    /// The newest tasks first, without their targets' outcomes.
    async fn task_ids(&self, limit: u32) -> Result<Vec<TaskId>>;
    /// Every target without an outcome, oldest task first.
    async fn open_targets(&self) -> Result<Vec<OpenTarget>>;
    /// Adds outcomes to targets that have none yet and returns those. A second outcome for a
    /// target, or one for an unknown target, is dropped.
    async fn record_outcomes(&self, outcomes: &[(OperationId, Outcome)], now: Millis) -> Result<Vec<OperationId>>;
    /// The outcomes of targets of the task for which `known` does not say true, by index. Of a task that
    /// somebody has read before, this is what has changed.
    async fn new_outcomes(&self, id: TaskId, known: &[bool]) -> Result<Vec<(u32, Outcome)>>;

    // Events.

    /// Keeps the events of an agent whose sequence is above all that it had before, and returns the
    /// highest sequence that is kept of it. Those of a host that is cordoned now are muted. Those of an older epoch than the agent's, and of an agent
    /// that is bound to no host, are dropped.
    async fn append_events(&self, agent: &AgentId, epoch: u64, events: &[Event], now: Millis) -> Result<u64>;
    /// Keeps events that the server made about the agents' hosts; their sequence is kept as 0. Returns how
    /// many: those of agents that are bound to no host are dropped.
    async fn append_server_events(&self, events: &[(AgentId, Event)], now: Millis) -> Result<u64>;
    /// The matching events, oldest first, and where to go on. Without `after` they are the newest of those.
    async fn events(&self, query: &EventQuery) -> Result<EventPage>;

    /// How many matching events of each kind were stored in each step; kinds without any are left out.
    async fn count_events(&self, query: &EventCountQuery) -> Result<BTreeMap<String, Vec<u64>>>;

    // Retention.

    /// Adds to the time that servers have run on this store and returns it. Called about once a minute.
    async fn advance_uptime(&self, by: Duration) -> Result<Uptime>;
    /// The generations that agents have on disk: tombstones up to there are no longer needed.
    async fn note_generations(&self, seen: &[(AgentId, u64)]) -> Result<()>;
    /// Deletes a slice of what is old and returns how many rows that were; 0: nothing is left to delete.
    async fn prune(&self, what: Prune) -> Result<u64>;
    /// What the file system of the store has; None where it does not say.
    /// What was done since the store was opened, and what it holds; without a look into it.
    fn stats(&self) -> StoreStats;
    async fn disk_space(&self) -> Result<Option<DiskSpace>>;
    /// What each table takes, the largest first.
    async fn sizes(&self) -> Result<Vec<TableSize>>;

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
