//! What the API layer passes to the control plane, and what it gets back.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    AgentId, HostKey, Message, OperationKind, Permissions, ProcessKey, Scope, Spec, Subject, TaskId, messages,
};
use proctor_store::{Rollout, RolloutState, StoreError};
use proctor_traces::TraceParent;

use super::access::Missing;
use super::budget::{PLANNED_MAX, STATUS_BYTES_MAX, STRANGER_BYTES_MAX};

/// Who is calling, after authentication, and their permissions at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Empty for a user who came with their own token.
    pub app: String,
    pub user: String,
    /// Those of the two that were proved: the permissions are theirs.
    pub subjects: Vec<Subject>,
    pub proof: PresentedCredentials,
    pub permissions: Arc<Permissions>,
    pub origin: Origin,
}

/// What a caller presented that can be revoked. Anything that lasts longer than a call looks it up again.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PresentedCredentials {
    /// The hash of the app's secret.
    pub app_secret: Option<String>,
    /// The id of the user's token.
    pub user_token: Option<String>,
}

impl std::fmt::Debug for PresentedCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proof").field("user_token", &self.user_token).finish_non_exhaustive()
    }
}

impl Caller {
    /// This program itself, which may do everything.
    pub fn local(name: &str) -> Self {
        Self {
            app: name.to_owned(),
            user: name.to_owned(),
            subjects: Vec::new(),
            proof: PresentedCredentials::default(),
            permissions: Arc::new(Permissions::everything()),
            origin: Origin::default(),
        }
    }
}

/// Where a request came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub remote: Option<IpAddr>,
    pub request_id: String,
    /// The caller's span, if it sent one.
    pub trace_parent: Option<TraceParent>,
}

/// A host as a caller names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostRef {
    Key(HostKey),
    Agent(AgentId),
    /// What the caller wrote, which cannot be a host's address or id.
    Unusable(Arc<str>),
}

impl HostRef {
    pub fn key(&self) -> Option<HostKey> {
        match self {
            Self::Key(key) => Some(*key),
            Self::Agent(_) | Self::Unusable(_) => None,
        }
    }

    pub fn agent(&self) -> Option<AgentId> {
        match self {
            Self::Key(_) | Self::Unusable(_) => None,
            Self::Agent(agent) => Some(agent.clone()),
        }
    }
}

impl std::fmt::Display for HostRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Agent(agent) => agent.fmt(f),
            Self::Unusable(written) => write!(f, "'{written}'"),
        }
    }
}

/// Operations to be carried out in the background, one row for each target.
#[derive(Clone, Debug)]
pub struct Submission {
    pub caller: Caller,
    /// The dialect's name, given back with the task so that the answer can be encoded.
    pub family: &'static str,
    pub items: Vec<SubmittedItem>,
    pub options: SubmitOptions,
}

/// What only some dialects ask for.
#[derive(Clone, Debug, Default)]
pub struct SubmitOptions {
    /// Let the targets go a few at a time.
    pub rolling: Option<Rolling>,
    /// A second submission of the same app with the same key is the same task.
    pub idempotency: Option<IdempotencyKey>,
    pub retry_of: Option<TaskId>,
    /// Of calls of JOB.
    pub scope: Option<JobScope>,
    /// How long a target waits for its host if that is offline; zero: it fails at once.
    pub wait: Duration,
}

/// What a call of JOB is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobScope {
    Business(u64),
    /// By its number.
    BusinessSet(u64),
}

impl From<JobScope> for Scope {
    fn from(scope: JobScope) -> Self {
        match scope {
            JobScope::Business(id) => Self::Business(id),
            JobScope::BusinessSet(id) => Self::BusinessSet(id),
        }
    }
}

impl JobScope {
    /// As a task keeps it; calls of JOB have no others.
    pub(super) fn of_task(scope: &Scope) -> Option<Self> {
        match scope {
            Scope::Business(id) => Some(Self::Business(*id)),
            Scope::BusinessSet(id) => Some(Self::BusinessSet(*id)),
            Scope::Everything | Scope::Namespace(_) | Scope::Cloud(_) => None,
        }
    }
}

impl JobScope {
    fn message(self) -> Message {
        match self {
            Self::Business(id) => messages::business(id),
            Self::BusinessSet(id) => messages::business_set(id),
        }
    }
}

/// How the targets of a task are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rolling {
    /// At most so many at once.
    pub max_parallel: Share,
    /// With more failures than this, the rest is skipped.
    pub max_failures: u32,
    /// This many first, then wait for somebody to resume; 0 is none.
    pub canary: u32,
    /// A target's slot is free only when its process is seen running, and healthy.
    pub wait_healthy: bool,
}

impl Rolling {
    pub(super) fn begin(self, targets: usize, makers: &[Subject]) -> Rollout {
        let total = u32::try_from(targets).expect("targets are bounded by the body");
        Rollout {
            max_parallel: self.max_parallel.of(total),
            max_failures: self.max_failures,
            canary: self.canary,
            wait_healthy: self.wait_healthy,
            released: 0,
            released_at: 0,
            earlier: Vec::new(),
            state: RolloutState::Running,
            reason: None,
            reason_phrase: None,
            makers: makers.to_vec(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Number(u32),
    /// Of the task's targets; at least one.
    Percent(u8),
}

impl Share {
    pub fn of(self, total: u32) -> u32 {
        let share = match self {
            Self::Number(number) => number,
            Self::Percent(percent) => (u64::from(total) * u64::from(percent) / 100) as u32,
        };
        share.max(1)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// A hash of the request, to distinguish a repetition from a mistake.
    pub body_hash: [u8; 32],
}

/// A task was made, or one of the same idempotency key was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub task: TaskId,
    pub is_new: bool,
}

#[derive(Clone, Debug)]
pub struct SubmittedItem {
    pub key: ProcessKey,
    /// None: the caller's number means no operation; its rows end with 832.
    pub kind: Option<OperationKind>,
    pub spec: SpecSource,
    pub targets: Vec<SubmittedTarget>,
}

#[derive(Clone, Debug)]
pub enum SpecSource {
    /// What is registered on each host.
    Registered,
    /// What came with the call. Start, restart and manage also register it.
    Given(GivenSpec),
    /// What an earlier task did, target by target.
    Again(Vec<Before>),
}

/// What an earlier task had for a target.
#[derive(Clone, Debug)]
pub struct Before {
    pub spec: Option<Arc<Spec>>,
    /// The spec came with the call. Without one, it was not kept.
    pub was_carried: bool,
}

/// A spec that came with a call.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenSpec {
    pub spec: Arc<Spec>,
    pub omitted: Omitted,
}

/// Parts that a call omitted: what is registered stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    pub labels: bool,
    pub limits: bool,
}

impl Omitted {
    pub fn any(self) -> bool {
        self.labels || self.limits
    }
}

impl GivenSpec {
    /// The spec with the registered one's parts where the call has none; the registered one itself where
    /// they are then equal.
    pub fn over(&self, registered: Option<&Arc<Spec>>) -> Arc<Spec> {
        let Some(registered) = registered else { return self.spec.clone() };
        let mut spec = self.spec.clone();
        if self.omitted.labels && spec.labels != registered.labels {
            Arc::make_mut(&mut spec).labels = registered.labels.clone();
        }
        if self.omitted.limits && spec.limits != registered.limits {
            Arc::make_mut(&mut spec).limits = registered.limits.clone();
        }
        if spec == *registered { registered.clone() } else { spec }
    }
}

/// A given spec over those that are registered on many hosts: equal ones stay one.
#[derive(Debug)]
pub(super) struct Merged<'a> {
    given: &'a GivenSpec,
    /// By the address of the registered one, which is kept so that the address stays its own.
    made: HashMap<usize, (Arc<Spec>, Arc<Spec>)>,
}

impl<'a> Merged<'a> {
    pub(super) fn new(given: &'a GivenSpec) -> Self {
        Self { given, made: HashMap::new() }
    }

    pub(super) fn over(&mut self, registered: Option<&Arc<Spec>>) -> Arc<Spec> {
        let Some(registered) = registered.filter(|_| self.given.omitted.any()) else { return self.given.spec.clone() };
        let make = || (registered.clone(), self.given.over(Some(registered)));
        self.made.entry(Arc::as_ptr(registered).addr()).or_insert_with(make).1.clone()
    }
}

/// Complete as it is.
impl From<Arc<Spec>> for GivenSpec {
    fn from(spec: Arc<Spec>) -> Self {
        Self { spec, omitted: Omitted::default() }
    }
}

#[derive(Clone, Debug)]
pub struct SubmittedTarget {
    pub host: HostRef,
    /// The key of its row in the answer; unique in the submission.
    pub row_key: String,
}

#[derive(Debug)]
pub enum ControlError {
    Store(StoreError),
    ShuttingDown,
    /// A disabled user, or a secret or token that was taken back.
    Unauthenticated(Message),
    Forbidden(Missing),
    /// A call of JOB on hosts that its scope does not contain.
    OutOfScope {
        scope: JobScope,
        missing: Box<Missing>,
    },
    /// A call that is forbidden on every target, or on more than the store keeps rows for.
    AllForbidden {
        message: Message,
        missing: Box<Missing>,
    },
    /// One host under two names, of which different things are asked for.
    Contradiction {
        first: String,
        second: String,
    },
    /// More rows than a caller may leave in the store for targets that reach nothing.
    TooManyStrangers {
        targets: usize,
        wait: Duration,
    },
    /// More than a caller may have planned.
    TooManyPlanned {
        targets: usize,
        wait: Duration,
    },
    /// More than the status queries of a caller may leave in the store.
    TooManyStatus {
        targets: usize,
        wait: Duration,
    },
    /// More than the caller may ever have at once of what is counted by the hour: waiting does not help.
    TooLarge {
        targets: usize,
    },
    /// More targets than may be open at once.
    TooManyOpen {
        limit: usize,
        /// Of the caller, rather than of all.
        is_own: bool,
    },
    /// More rolling tasks than may be open at once.
    TooManyRollouts {
        limit: usize,
        /// Of the caller, rather than of all.
        is_own: bool,
    },
    KeyReused {
        task: TaskId,
    },
    UnknownTask(TaskId),
    TaskState(Message),
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.message().fmt(f)
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Store(error) = self { error.source() } else { None }
    }
}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Missing> for ControlError {
    fn from(missing: Missing) -> Self {
        Self::Forbidden(missing)
    }
}

impl ControlError {
    /// For the caller: it names no file of the server.
    pub fn message(&self) -> Message {
        let secs = |wait: &Duration| wait.as_secs().max(1);
        match self {
            Self::Store(error) => error.message(),
            Self::ShuttingDown => messages::shutting_down(),
            Self::Unauthenticated(reason) => reason.clone(),
            Self::Forbidden(missing) => missing.message(),
            Self::OutOfScope { scope, missing } => {
                messages::scope_lacks_host(scope.message(), missing.targets.join(", "))
            }
            Self::AllForbidden { message, .. } => message.clone(),
            Self::Contradiction { first, second } => messages::targets_are_one_host(first, second),
            Self::TooManyStrangers { targets, wait } => {
                messages::too_many_unknown_targets(targets, STRANGER_BYTES_MAX / (1024 * 1024), secs(wait))
            }
            Self::TooManyPlanned { targets, wait } => messages::too_many_planned(targets, PLANNED_MAX, secs(wait)),
            Self::TooManyStatus { targets, wait } => {
                messages::too_many_status(targets, STATUS_BYTES_MAX / (1024 * 1024), secs(wait))
            }
            Self::TooLarge { targets } => messages::call_is_too_large(targets),
            Self::TooManyOpen { limit, is_own: true } => messages::too_many_open_targets_of_caller(limit),
            Self::TooManyOpen { limit, is_own: false } => messages::too_many_open_targets(limit),
            Self::TooManyRollouts { limit, is_own: true } => messages::too_many_rollouts_of_caller(limit),
            Self::TooManyRollouts { limit, is_own: false } => messages::too_many_rollouts(limit),
            Self::KeyReused { task } => messages::idempotency_key_reused(task),
            Self::UnknownTask(task) => messages::task_was_forgotten(task),
            Self::TaskState(problem) => problem.clone(),
        }
    }

    /// For want of permission.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Forbidden(_) | Self::OutOfScope { .. } | Self::AllForbidden { .. } => true,
            Self::Store(_)
            | Self::ShuttingDown
            | Self::Unauthenticated(_)
            | Self::Contradiction { .. }
            | Self::TooManyStrangers { .. }
            | Self::TooManyPlanned { .. }
            | Self::TooManyStatus { .. }
            | Self::TooLarge { .. }
            | Self::TooManyOpen { .. }
            | Self::TooManyRollouts { .. }
            | Self::KeyReused { .. }
            | Self::UnknownTask(_)
            | Self::TaskState(_) => false,
        }
    }
}
