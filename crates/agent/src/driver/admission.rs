//! What the owner of the host allows, checked when an operation arrives and before every command.
//!
//! Promised: a refused operation has no effect; no command runs, and nothing is signalled, for a process that the
//! policy forbids, whoever asked; operations on one process keep their order while paths are resolved; the driver
//! never waits for a file system, and an operation only for those of its own process and of the policy's roots; a
//! known life can be ended even if its own file system does not answer.
//! Absent: forgetting. A forbidden process stays registered, monitored and reported.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proctor_host::Host;
use proctor_model::{
    Code, CommandExit, CommandResult, Identity, Message, OperationId, OperationKind, Outcome, ProcessKey, Spec,
    messages,
};
use proctor_supervise::{CommandKind, Event, Process, Request};
use tokio::time::Instant;

use super::answers::PANICKED;
use super::arrivals::{ARRIVED_MAX, Arrivals, ArrivedOperation};
use super::pid_files::{PidFileClaims, PidFileConflict};
use super::{Driver, Input};
use crate::policy::{PathCheck, Policy, PolicyFile, Refusal, is_in_root};

/// A file system that needs longer to resolve a path does not answer. Less than what commands may
/// wait for their turn, because they wait for both at the same time.
const RESOLVE_MAX: Duration = Duration::from_secs(3);
/// The same for an operation that continues without an answer.
const RESOLVE_MAX_TO_END: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Admission {
    file: Arc<PolicyFile>,
    resolver: PathResolver,
    /// Operations whose paths are being resolved.
    pub(super) arrivals: Arrivals,
    pub(super) pid_files: PidFileClaims,
}

impl Admission {
    pub(super) fn new(host: Host, file: Arc<PolicyFile>) -> Self {
        let (arrivals, pid_files) = (Arrivals::default(), PidFileClaims::default());
        Self { file, resolver: PathResolver { host }, arrivals, pid_files }
    }
}

/// Resolves one path after the other, each on the threads of its own mount, whose number the host bounds: a hanging
/// mount delays nobody whose paths are elsewhere.
#[derive(Clone, Debug)]
struct PathResolver {
    host: Host,
}

/// Why a path is not known to stay inside.
#[derive(Debug)]
enum PathDenied {
    Refused(Refusal),
    NoAnswer(Message),
}

impl PathDenied {
    fn into_reason(self) -> Message {
        match self {
            Self::Refused(refusal) => refusal.into(),
            Self::NoAnswer(reason) => reason,
        }
    }
}

impl PathResolver {
    async fn resolve(
        &self,
        policy: &Arc<Policy>,
        key: &ProcessKey,
        identity: &Identity,
        limit: Duration,
    ) -> Result<(), PathDenied> {
        let deadline = Instant::now() + limit;
        for check in policy.path_checks(&key.namespace, identity) {
            self.check(Arc::new(check), deadline).await?;
        }
        Ok(())
    }

    async fn check(&self, check: Arc<PathCheck>, deadline: Instant) -> Result<(), PathDenied> {
        let located = Arc::clone(&check);
        let located = self.ask(check.path(), deadline, move || located.locate()).await?;
        let Some(real) = located.map_err(PathDenied::Refused)? else { return Ok(()) };
        let mut denied = PathDenied::Refused(check.outside(&real));
        for root in check.other_roots() {
            let (real, asked) = (real.clone(), root.clone());
            match self.ask(Path::new(root.as_str()), deadline, move || is_in_root(&real, &asked)).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(no_answer) => denied = no_answer,
            }
        }
        Err(denied)
    }

    /// One question to the file system of a path.
    async fn ask<T: Send + 'static>(
        &self,
        path: &Path,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PathDenied> {
        let name = format!("path {}", path.display());
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = if left.is_zero() { None } else { self.host.blocking(&name, left, work).await };
        answer.ok_or_else(|| PathDenied::NoAnswer(no_answer(&name)))
    }

    /// Whether a rival has its own pid file: its path is that of a directory.
    async fn outlive(&self, rival: PidFileConflict) -> Result<(), Message> {
        let Some(path) = rival.unless_directory else { return Err(rival.reason) };
        let name = format!("pid_path {}", path.display());
        match self.host.blocking(&name, RESOLVE_MAX, move || path.is_dir()).await {
            Some(true) => Ok(()),
            Some(false) => Err(rival.reason),
            None => Err(no_answer(&name)),
        }
    }
}

fn no_answer(name: &str) -> Message {
    messages::path_without_answer(name)
}

/// Who wants a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    /// An operation, whose class was allowed when it arrived.
    Operation,
    /// A relaunch or a scheduled run: a start that nobody requested just now.
    Launch,
    /// An eviction, health, version.
    Other,
}

impl CommandPurpose {
    pub(super) fn of(command: CommandKind, by_operation: bool) -> Self {
        match (by_operation, command) {
            (true, _) => Self::Operation,
            (false, CommandKind::Start | CommandKind::Restart) => Self::Launch,
            (false, CommandKind::Stop | CommandKind::Reload | CommandKind::Kill) => Self::Other,
        }
    }
}

/// To be opened before a command runs.
#[derive(Debug)]
pub(super) struct AdmissionGate {
    policy: Option<Arc<Policy>>,
    resolver: PathResolver,
    key: ProcessKey,
    spec: Arc<Spec>,
    purpose: CommandPurpose,
}

impl AdmissionGate {
    /// The error is the end of a command that must not run.
    pub(super) async fn open(&self) -> Result<(), CommandExit> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let result = match self.check(policy).await {
            Ok(()) => return Ok(()),
            Err(PathDenied::NoAnswer(_)) if self.purpose != CommandPurpose::Operation => CommandResult::NoSlot,
            Err(closed) => CommandResult::NotStarted(closed.into_reason().into_text()),
        };
        tracing::warn!(process = %self.key, ?result, "command blocked by host policy");
        Err(CommandExit { result, output: String::new() })
    }

    async fn check(&self, policy: &Arc<Policy>) -> Result<(), PathDenied> {
        let (namespace, identity) = (&self.key.namespace, &self.spec.identity);
        if self.purpose == CommandPurpose::Launch {
            policy.check_operation(namespace, OperationKind::Start).map_err(PathDenied::Refused)?;
        }
        policy.check_identity(namespace, identity).map_err(PathDenied::Refused)?;
        if policy.has_paths(namespace) {
            self.resolver.resolve(policy, &self.key, identity, RESOLVE_MAX).await?;
        }
        Ok(())
    }
}

impl Driver {
    pub(super) fn gate(&self, key: &ProcessKey, spec: Arc<Spec>, purpose: CommandPurpose) -> AdmissionGate {
        let (policy, resolver) = (self.policy(), self.admission.resolver.clone());
        AdmissionGate { policy, resolver, key: key.clone(), spec, purpose }
    }

    pub(super) fn policy(&self) -> Option<Arc<Policy>> {
        self.admission.file.current(self.now())
    }

    /// Why an operation must not happen, as far as memory tells.
    pub(super) fn refusal(&self, key: &ProcessKey, kind: OperationKind, spec: Option<&Spec>) -> Option<Message> {
        let policy = self.policy()?;
        let result = policy.check_operation(&key.namespace, kind);
        let result = result.and_then(|()| match spec.filter(|_| touches_host(kind)) {
            Some(spec) => policy.check_identity(&key.namespace, &spec.identity),
            None => Ok(()),
        });
        result.err().map(Message::from)
    }

    pub(super) fn refuse(&mut self, key: &ProcessKey, operation: OperationId, reason: Message) {
        tracing::warn!(process = %key, %operation, %reason, "operation refused");
        self.telemetry.metrics.refused();
        let managed = self.processes.get(key).is_some_and(Process::managed);
        self.finish(operation, Outcome::new(Code::CommandFailed, reason, managed));
    }

    /// Hands an operation on, unless the owner of the host refuses it.
    pub(super) fn admit(&mut self, key: ProcessKey, request: Request) {
        if self.is_known(&key, request.operation) {
            return; // delivered again
        }
        let arrived = ArrivedOperation { registration: self.registration_for(&key, &request), request };
        let (request, spec) = (&arrived.request, arrived.spec());
        if let Some(refusal) = self.refusal(&key, request.kind, spec.as_deref()) {
            return self.refuse(&key, request.operation, refusal);
        }
        let rival = self.rival(&key, request, spec.as_deref());
        if let Some(PidFileConflict { reason, unless_directory: None }) = rival {
            return self.refuse(&key, request.operation, reason);
        }
        let must_resolve = rival.is_some()
            || spec.is_some()
                && touches_host(request.kind)
                && self.policy().is_some_and(|policy| policy.has_paths(&key.namespace));
        match self.admission.arrivals.waiting(&key) {
            Some(waiting) if waiting >= ARRIVED_MAX + arrived.request.reserve() => {
                let reason = messages::too_many_arrived(waiting);
                self.refuse(&key, arrived.request.operation, reason);
            }
            Some(_) => self.admission.arrivals.push(key, arrived),
            None if must_resolve => {
                self.admission.arrivals.push(key.clone(), arrived);
                self.resolve_next(key);
            }
            None => self.request(&key, arrived.request),
        }
    }

    /// The owner of the host has nothing against it.
    fn request(&mut self, key: &ProcessKey, request: Request) {
        if request.spec.as_ref().is_some_and(|spec| spec.instances() > 1) {
            return self.operate_instances(key, request);
        }
        if request.spec.is_none() && self.processes.instances_of(key).next().is_some() {
            return self.operate_registered(key, &request);
        }
        if !self.processes.contains(key) {
            let Some(spec) = &request.spec else {
                let message = messages::process_not_registered(key);
                return self.finish(request.operation, Outcome::new(Code::CommandFailed, message, false));
            };
            self.insert_new(Process::new(key.clone(), spec.clone(), self.processes.seed()));
        }
        self.dispatch_event(key, Event::Requested(request));
    }

    fn is_known(&self, key: &ProcessKey, operation: OperationId) -> bool {
        self.admission.arrivals.contains(key, operation)
            || self.operations.is_split(operation)
            || self.processes.get(key).is_some_and(|process| process.has_operation(&operation))
    }

    /// Resolves the paths of the oldest operation that waits for it.
    fn resolve_next(&mut self, key: ProcessKey) {
        self.admission.arrivals.settle(&key);
        let Some(arrived) = self.admission.arrivals.first(&key) else { return };
        let (request, spec) = (&arrived.request, arrived.spec());
        let operation = request.operation;
        let rival = self.rival(&key, request, spec.as_deref());
        let spec = spec.filter(|_| touches_host(request.kind));
        let only_ends = spec.as_deref().is_some_and(|spec| self.only_ends_known_lives(&key, request.kind, spec));
        let limit = if only_ends { RESOLVE_MAX_TO_END } else { RESOLVE_MAX };
        let (policy, resolver) = (self.policy(), self.admission.resolver.clone());
        let refused = Input::Admitted { key: key.clone(), operation, verdict: Err(messages::because(PANICKED)) };
        let owed = self.workers.owed(refused);
        self.workers.spawn("paths", async move {
            let verdict = match policy.zip(spec) {
                Some((policy, spec)) => resolver.resolve(&policy, &key, &spec.identity, limit).await,
                None => Ok(()),
            };
            let verdict = match verdict {
                Err(PathDenied::NoAnswer(_)) if only_ends => Ok(()),
                verdict => verdict,
            };
            let verdict = match (verdict, rival) {
                (Ok(()), Some(rival)) => resolver.outlive(rival).await,
                (verdict, _) => verdict.map_err(PathDenied::into_reason),
            };
            owed.send(Input::Admitted { key, operation, verdict }).await;
        });
    }

    /// Whether an operation signals lives that are known, and needs no file for that. Their names, users and paths were
    /// compared with the policy in memory, as for an eviction: whatever hangs, they can be ended. A kill does without its
    /// command if that must not run.
    fn only_ends_known_lives(&self, key: &ProcessKey, kind: OperationKind, spec: &Spec) -> bool {
        let by_signal = match kind {
            OperationKind::Kill => true,
            OperationKind::Stop => spec.control.stop.is_none(),
            OperationKind::Start
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Manage
            | OperationKind::Status
            | OperationKind::Release => false,
        };
        let is_meant = |process: &Process| match process.instance() {
            Some(instance) => spec.instance(instance.number).is_ok_and(|one| one.identity == process.spec().identity),
            None => spec.identity == process.spec().identity,
        };
        let lives = |process: &Process| process.life().is_some_and(|life| self.host.is_alive(life));
        let mut processes = self.processes.get(key).into_iter().chain(self.processes.instances_of(key)).peekable();
        by_signal && processes.peek().is_some() && processes.all(|process| is_meant(process) && lives(process))
    }

    pub(super) fn admitted(&mut self, key: ProcessKey, operation: OperationId, verdict: Result<(), Message>) {
        // It may have been cancelled meanwhile.
        if let Some(arrived) = self.admission.arrivals.take_first(&key, operation) {
            let rival = self.rival(&key, &arrived.request, arrived.spec().as_deref());
            match (verdict, rival) {
                _ if arrived.is_outdated(self.registration_for(&key, &arrived.request)) => {
                    self.refuse(&key, operation, messages::registered_elsewhere_before());
                }
                (Err(reason), _) | (Ok(()), Some(PidFileConflict { reason, unless_directory: None })) => {
                    self.refuse(&key, operation, reason);
                }
                (Ok(()), _) => self.request(&key, arrived.request),
            }
        }
        self.resolve_next(key);
    }

    /// Why nothing may be done to a process, as far as memory tells.
    pub(super) fn forbidden(&self, key: &ProcessKey) -> Option<Refusal> {
        let policy = self.policy()?;
        let process = self.processes.get(key)?;
        policy.check_identity(&key.namespace, &process.spec().identity).err()
    }

    pub(super) fn spares(&self, key: &ProcessKey) -> bool {
        let refusal = self.forbidden(key);
        if let Some(refusal) = &refusal {
            tracing::warn!(process = %key, %refusal, "signal blocked by host policy");
        }
        refusal.is_some()
    }

    /// Which registration an operation without a spec refers to if it arrives now.
    fn registration_for(&self, key: &ProcessKey, request: &Request) -> Option<(i64, Arc<Spec>)> {
        let process = self.processes.get(key).filter(|_| request.spec.is_none())?;
        let (registered_at, spec) = process.newest_registration();
        Some((registered_at, spec.clone()))
    }
}

/// Whether an operation has any effect on the host. Users and paths do not matter for the others: probing is
/// harmless, and a release makes the agent do less.
fn touches_host(kind: OperationKind) -> bool {
    match kind {
        OperationKind::Start
        | OperationKind::Stop
        | OperationKind::Restart
        | OperationKind::Reload
        | OperationKind::Kill
        | OperationKind::Manage => true,
        OperationKind::Status | OperationKind::Release => false,
    }
}
