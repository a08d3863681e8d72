//! One simulated agent, without IO: messages and time in, messages out.
//!
//! Promised: the rules of a real agent's ledger. An operation runs at most once however often it is delivered, its
//! outcome is repeated on every new session until it is acknowledged, operations on one process run one after
//! another, and assignments survive a lost connection. Time is an argument. Absent: commands and processes; what
//! they would do is drawn from the [`Group`]'s behaviour.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proctor_model::{
    AgentState, BootId, Code, Event, EventKind, LogState, LogTail, Message, Namespace, OperationId, OperationKind,
    Outcome, Phase, Pool, PoolId, ProcessKey, Snapshot, Spec, StateHash, messages,
};
use proctor_wire::{Assign, FromAgent, FromServer};

use crate::behaviour::Group;
use crate::record::{Happened, Recorder};
use crate::rng::SeededRng;
use crate::stats::{Latency, Stats, Violation};

/// Like a real agent: the usage of all processes is reported this often.
const REPORT_PERIOD: Duration = Duration::from_secs(60);
/// Acknowledged operations that are remembered, to notice one that is delivered again.
const ACKNOWLEDGED_MAX: usize = 256;
/// Observations per frame: about as many bytes as a real agent sends.
const OBSERVATIONS_MAX: usize = 32;
/// Between the crash of a simulated process and its next life.
const RELAUNCH: Duration = Duration::from_millis(100);

/// Two clocks: time since the swarm began for durations, the wall clock for timestamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) since_start: Duration,
    pub(crate) unix_ms: i64,
}

#[derive(Debug)]
struct SimProcess {
    spec: Arc<Spec>,
    generation: u64,
    managed: bool,
    pid: Option<i32>,
    started_at: i64,
    registered_at: i64,
    restarts: u32,
}

/// An operation that has begun.
#[derive(Debug)]
struct Begun {
    operation: OperationId,
    key: ProcessKey,
    kind: OperationKind,
    ends_at: Duration,
}

/// An operation that waits for earlier ones.
#[derive(Debug)]
struct Waiting {
    operation: OperationId,
    kind: OperationKind,
    /// It must not begin after this.
    expires_at: Duration,
}

#[derive(Debug)]
struct Done {
    outcome: Outcome,
    sent_at: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct SimAgent {
    group: Group,
    figures: Arc<Stats>,
    draw: SeededRng,
    boot: BootId,
    epoch: u64,
    generation: u64,
    /// The server sends everything again.
    is_resync: bool,
    /// Those that limit something, with their generations.
    pools: BTreeMap<(Namespace, PoolId), u64>,
    processes: BTreeMap<ProcessKey, SimProcess>,
    begun: Vec<Begun>,
    waiting: HashMap<ProcessKey, VecDeque<Waiting>>,
    /// Not acknowledged yet.
    outcomes: BTreeMap<OperationId, Done>,
    acknowledged: VecDeque<OperationId>,
    events: VecDeque<Event>,
    sequence: u64,
    changed: HashSet<ProcessKey>,
    outbox: VecDeque<FromAgent>,
    is_connected: bool,
    report_at: Duration,
    crash_at: Option<Duration>,
    relaunch_at: Option<Duration>,
    /// With the name of this agent's host.
    record: Option<(Arc<Recorder>, String)>,
}

impl SimAgent {
    pub(crate) fn new(group: Group, seed: u64, figures: Arc<Stats>, now: Now) -> Self {
        let mut draw = SeededRng::new(seed);
        let boot = BootId::from(format!("swarm-{:016x}", draw.number()));
        let spread = |draw: &mut SeededRng, period: Duration| now.since_start + period.mul_f64(draw.unit());
        let report_at = spread(&mut draw, REPORT_PERIOD);
        let crash_at = group.crash_every_secs.map(|secs| spread(&mut draw, Duration::from_secs(secs)));
        // Above every number of an earlier run: a server accepts only events that are newer than the last one.
        let sequence = u64::try_from(now.unix_ms).unwrap_or(0) * 1000;
        Self {
            group,
            figures,
            draw,
            boot,
            epoch: 0,
            generation: 0,
            is_resync: false,
            pools: BTreeMap::new(),
            processes: BTreeMap::new(),
            begun: Vec::new(),
            waiting: HashMap::new(),
            outcomes: BTreeMap::new(),
            acknowledged: VecDeque::new(),
            events: VecDeque::new(),
            sequence,
            changed: HashSet::new(),
            outbox: VecDeque::new(),
            is_connected: false,
            report_at,
            crash_at,
            relaunch_at: None,
            record: None,
        }
    }

    /// From now on, everything that happens to this agent is recorded there under this name.
    pub(crate) fn record_to(&mut self, recorder: Arc<Recorder>, name: String) {
        self.record = Some((recorder, name));
    }

    fn note(&self, now: Now, happened: Happened) {
        if let Some((recorder, name)) = &self.record {
            recorder.add(now.unix_ms, name, happened);
        }
    }

    /// The server broke a promise.
    pub(crate) fn violated(&self, now: Now, what: Violation) {
        self.note(now, Happened::Violated { promise: what.as_str() });
        self.figures.violated(what);
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) fn boot(&self) -> &BootId {
        &self.boot
    }

    pub(crate) fn seen_generation(&self) -> u64 {
        self.generation
    }

    /// Of the last session; 0 before the first.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A summary of what it has.
    pub(crate) fn state(&self, now: Now) -> AgentState {
        let processes = || self.processes.iter();
        let pools = self.pools.iter().map(|((namespace, id), generation)| id.numbered(namespace, *generation));
        let digest = |process: &SimProcess| process.snapshot(now).digest();
        AgentState {
            assigned: StateHash::of_assigned(processes().map(|(key, it)| key.numbered(it.generation)), pools),
            observed: StateHash::of_observed(processes().map(|(key, it)| (key.numbered(digest(it)), it.managed))),
        }
    }

    /// A session has opened: what the server has not acknowledged is sent again, and so are all processes, unless
    /// the server already has them as this state says.
    pub(crate) fn handle_connected(&mut self, now: Now, epoch: u64, known: Option<AgentState>) {
        self.note(now, Happened::Connected { epoch });
        if epoch <= self.epoch {
            self.violated(now, Violation::EpochWentBack);
        }
        self.epoch = epoch;
        self.is_connected = true;
        for (operation, done) in &mut self.outcomes {
            done.sent_at = Some(now.since_start);
            self.outbox.push_back(FromAgent::Outcome { operation: *operation, outcome: done.outcome.clone() });
        }
        if !self.events.is_empty() {
            self.outbox.push_back(FromAgent::Events { events: self.events.iter().cloned().collect() });
        }
        self.is_resync = false;
        if known == Some(self.state(now)) {
            self.changed.clear();
        } else {
            self.changed.extend(self.processes.keys().cloned());
        }
    }

    pub(crate) fn handle_disconnected(&mut self) {
        self.is_connected = false;
        self.outbox.clear();
    }

    /// The agent was killed, and another run of it begins with the contents of the ledger: operations that have
    /// begun, outcomes, events and assignments. Processes keep running.
    pub(crate) fn handle_killed(&mut self) {
        self.handle_disconnected();
        self.waiting.clear();
        self.changed.clear();
    }

    pub(crate) fn handle_message(&mut self, now: Now, message: FromServer) {
        match message {
            FromServer::Operate { operation, key, kind, spec: _, expires_in } => {
                self.operate(now, operation, key, kind, expires_in);
            }
            FromServer::Acknowledge { operations } => self.acknowledge(now, &operations),
            FromServer::Cancel { operations } => self.cancel(now, &operations),
            FromServer::Assign { assignments } => self.assign(now, assignments),
            FromServer::AssignPools { pools } => {
                for (generation, Pool { namespace, id, limits }) in pools {
                    self.generation = self.generation.max(generation);
                    match limits.limit_something() {
                        true => self.pools.insert((namespace, id), generation),
                        false => self.pools.remove(&(namespace, id)),
                    };
                }
            }
            FromServer::Ping { number } => self.outbox.push_back(FromAgent::Pong { number }),
            FromServer::QueryLog { request, .. } => {
                let tail = LogTail::none(LogState::NoPath, "", "a simulated process has no log");
                self.outbox.push_back(FromAgent::LogTail { request, tail });
            }
            FromServer::EventsSeen { up_to } => self.events.retain(|event| event.sequence > up_to),
            // It never has more than what is registered: it has no snapshots of its disk.
            FromServer::Registered(_) => self.is_resync = true,
            // The session's own business, or from a newer server.
            FromServer::Enrolled { .. }
            | FromServer::Pace { .. }
            | FromServer::Refused { .. }
            | FromServer::RelayEnrolled { .. }
            | FromServer::Authorities(_)
            | FromServer::Challenge { .. }
            | FromServer::Welcome { .. }
            | FromServer::Busy { .. }
            | FromServer::Renewed { .. }
            | FromServer::Signed(_)
            | FromServer::Beat
            // It says that it keeps no usage, and accepts no upgrades.
            | FromServer::QueryUsage { .. }
            | FromServer::Upgrade(_)
            | FromServer::BuildPart { .. }
            | FromServer::Unreadable { .. }
            | FromServer::Unknown => {}
        }
    }

    /// What is due by now happens.
    pub(crate) fn handle_timeout(&mut self, now: Now) {
        while let Some(index) = self.begun.iter().position(|begun| begun.ends_at <= now.since_start) {
            let Begun { operation, key, kind, .. } = self.begun.swap_remove(index);
            let outcome = self.run(now, &key, kind);
            self.finish(now, operation, outcome);
            self.begin_next(now, &key);
        }
        if self.crash_at.is_some_and(|at| at <= now.since_start) {
            self.crash(now);
        }
        if self.relaunch_at.is_some_and(|at| at <= now.since_start) {
            self.relaunch(now);
        }
        if self.report_at <= now.since_start {
            self.report_at = now.since_start + REPORT_PERIOD;
            self.changed.extend(self.processes.keys().cloned());
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Duration {
        let commands = self.begun.iter().map(|begun| begun.ends_at);
        let fixed = [Some(self.report_at), self.crash_at, self.relaunch_at];
        commands.chain(fixed.into_iter().flatten()).min().unwrap_or(self.report_at)
    }

    /// The next message for the server; none without a session.
    pub(crate) fn poll_message(&mut self, now: Now) -> Option<FromAgent> {
        if !self.is_connected {
            return None;
        }
        if let Some(message) = self.outbox.pop_front() {
            return Some(message);
        }
        let keys: Vec<ProcessKey> = self.changed.iter().take(OBSERVATIONS_MAX).cloned().collect();
        if keys.is_empty() {
            return None;
        }
        let observations = keys
            .into_iter()
            .filter_map(|key| {
                self.changed.remove(&key);
                let snapshot = self.processes.get(&key)?.snapshot(now);
                Some((key, snapshot))
            })
            .collect();
        Some(FromAgent::Observed { observations })
    }

    fn operate(
        &mut self,
        now: Now,
        operation: OperationId,
        key: ProcessKey,
        kind: OperationKind,
        expires_in: Duration,
    ) {
        let expires_in_ms = u64::try_from(expires_in.as_millis()).unwrap_or(u64::MAX);
        self.note(now, Happened::Delivered { operation, expires_in_ms });
        if self.acknowledged.contains(&operation) {
            return self.violated(now, Violation::DeliveredAfterAcknowledgement);
        }
        let is_same = |waiting: &Waiting| waiting.operation == operation;
        let is_waiting = self.waiting.get(&key).is_some_and(|queue| queue.iter().any(is_same));
        if is_waiting || self.begun.iter().any(|begun| begun.operation == operation) {
            return Stats::count(&self.figures.counters.repeated_deliveries);
        }
        if let Some(done) = self.outcomes.get(&operation) {
            self.outbox.push_back(FromAgent::Outcome { operation, outcome: done.outcome.clone() });
            return Stats::count(&self.figures.counters.repeated_deliveries);
        }
        if expires_in.is_zero() {
            self.violated(now, Violation::DeliveredTooLate);
        }
        if let Some(created_ms) = created_at(operation) {
            let age = u64::try_from(now.unix_ms - created_ms).unwrap_or(0);
            self.figures.took(Latency::FanOut, Duration::from_millis(age));
        }
        let waiting = Waiting { operation, kind, expires_at: now.since_start + expires_in };
        self.waiting.entry(key.clone()).or_default().push_back(waiting);
        self.begin_next(now, &key);
    }

    /// Operations on one process run one after another; a status query waits for nothing.
    fn begin_next(&mut self, now: Now, key: &ProcessKey) {
        if self.begun.iter().any(|begun| begun.key == *key) {
            return;
        }
        let Some(queue) = self.waiting.get_mut(key) else { return };
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(key);
        }
        let Some(Waiting { operation, kind, expires_at }) = next else { return };
        if expires_at <= now.since_start {
            let managed = self.processes.get(key).is_some_and(|process| process.managed);
            self.finish(now, operation, Outcome::new(Code::CommandFailed, messages::expired(), managed));
            return self.begin_next(now, key);
        }
        self.note(now, Happened::Begun { operation });
        Stats::count(&self.figures.counters.operations);
        let time = match kind {
            OperationKind::Status | OperationKind::Manage | OperationKind::Release => Duration::ZERO,
            OperationKind::Start
            | OperationKind::Stop
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Kill => self.group.command_time(self.draw.unit()),
        };
        self.begun.push(Begun { operation, key: key.clone(), kind, ends_at: now.since_start + time });
    }

    fn finish(&mut self, now: Now, operation: OperationId, outcome: Outcome) {
        self.note(now, Happened::Ended { operation, code: outcome.code.number() });
        let sent_at = self.is_connected.then_some(now.since_start);
        if self.is_connected {
            self.outbox.push_back(FromAgent::Outcome { operation, outcome: outcome.clone() });
        }
        self.outcomes.insert(operation, Done { outcome, sent_at });
    }

    fn acknowledge(&mut self, now: Now, operations: &[OperationId]) {
        for operation in operations {
            let Some(done) = self.outcomes.remove(operation) else { continue };
            self.note(now, Happened::Acknowledged { operation: *operation });
            if let Some(sent_at) = done.sent_at {
                self.figures.took(Latency::Acknowledge, now.since_start.saturating_sub(sent_at));
            }
            self.figures.counters.acknowledged.fetch_add(1, Ordering::Relaxed);
            self.acknowledged.push_back(*operation);
            if self.acknowledged.len() > ACKNOWLEDGED_MAX {
                self.acknowledged.pop_front();
            }
        }
    }

    fn cancel(&mut self, now: Now, operations: &[OperationId]) {
        for operation in operations {
            let queued = self.waiting.iter_mut().find_map(|(key, queue)| {
                let index = queue.iter().position(|waiting| waiting.operation == *operation)?;
                queue.remove(index);
                Some(key.clone())
            });
            let begun = self.begun.iter().position(|begun| begun.operation == *operation);
            let key = queued.or_else(|| Some(self.begun.swap_remove(begun?).key));
            let Some(key) = key else { continue };
            let managed = self.processes.get(&key).is_some_and(|process| process.managed);
            self.finish(now, *operation, Outcome::new(Code::Cancelled, messages::cancelled_before(), managed));
            self.begin_next(now, &key);
        }
    }

    fn assign(&mut self, now: Now, assignments: Vec<Assign>) {
        for Assign { generation, key, spec, managed, registered_at } in assignments {
            self.note(now, Happened::Assigned { generation });
            if generation <= self.generation && !self.is_resync {
                self.violated(now, Violation::GenerationWentBack);
            }
            self.generation = self.generation.max(generation);
            let Some(spec) = spec else {
                self.processes.remove(&key);
                continue;
            };
            let process = self.processes.entry(key.clone()).or_insert_with(|| SimProcess {
                spec: spec.clone(),
                generation,
                managed,
                pid: None,
                started_at: 0,
                registered_at,
                restarts: 0,
            });
            process.spec = spec;
            process.generation = generation;
            self.changed.insert(key);
        }
    }

    /// What an operation does to the simulated process.
    fn run(&mut self, now: Now, key: &ProcessKey, kind: OperationKind) -> Outcome {
        let fails = self.draw.unit() < self.group.failures;
        let pid = i32::try_from(self.draw.number() % 4_000_000).expect("below the largest pid") + 2;
        let Some(process) = self.processes.get_mut(key) else {
            return match kind {
                OperationKind::Status => Outcome { snapshot: Some(Snapshot::default()), ..Outcome::success(false) },
                OperationKind::Stop | OperationKind::Kill => {
                    Outcome::new(Code::NotRunning, messages::no_process_runs(), false)
                }
                OperationKind::Start
                | OperationKind::Manage
                | OperationKind::Release
                | OperationKind::Restart
                | OperationKind::Reload => {
                    Outcome::new(Code::CommandFailed, messages::process_not_registered(key), false)
                }
            };
        };
        self.changed.insert(key.clone());
        let is_running = process.pid.is_some();
        if fails && !matches!(kind, OperationKind::Status | OperationKind::Manage | OperationKind::Release) {
            return Outcome::new(Code::CommandFailed, messages::simulated_failure(), process.managed);
        }
        match kind {
            OperationKind::Status => {
                return Outcome { snapshot: Some(process.snapshot(now)), ..Outcome::success(process.managed) };
            }
            OperationKind::Start if is_running => {
                return Outcome::new(
                    Code::AlreadyRunning,
                    messages::process_runs_already(process.pid.unwrap_or_default()),
                    process.managed,
                );
            }
            OperationKind::Stop | OperationKind::Kill | OperationKind::Reload if !is_running => {
                process.managed &= kind == OperationKind::Reload;
                return Outcome::new(Code::NotRunning, messages::no_process_runs(), process.managed);
            }
            OperationKind::Start | OperationKind::Restart => process.start(now, pid),
            OperationKind::Manage if !is_running => process.start(now, pid),
            OperationKind::Manage => process.managed = true,
            OperationKind::Release => process.managed = false,
            OperationKind::Stop | OperationKind::Kill => {
                process.pid = None;
                process.managed = false;
            }
            OperationKind::Reload => {}
        }
        Outcome::success(process.managed)
    }

    /// Every running process exits.
    fn crash(&mut self, now: Now) {
        let period = Duration::from_secs(self.group.crash_every_secs.unwrap_or(1));
        self.crash_at = Some(now.since_start + period);
        let mut exited = Vec::new();
        for (key, process) in self.processes.iter_mut().filter(|(_, process)| process.managed) {
            if let Some(pid) = process.pid.take() {
                exited.push((key.clone(), process.spec.identity.proc_name.to_string(), pid));
            }
        }
        if !exited.is_empty() {
            self.relaunch_at = Some(now.since_start + RELAUNCH);
        }
        for (key, proc_name, pid) in exited {
            self.changed.insert(key.clone());
            let told = messages::process_has_ended_with(&key, pid, messages::exit_code(1));
            self.tell(now, EventKind::Exited, key, proc_name, told);
        }
    }

    /// What supervision does about it.
    fn relaunch(&mut self, now: Now) {
        self.relaunch_at = None;
        let dead = self.processes.iter().filter(|(_, process)| process.managed && process.pid.is_none());
        let dead: Vec<ProcessKey> = dead.map(|(key, _)| key.clone()).collect();
        for key in dead {
            let pid = i32::try_from(self.draw.number() % 4_000_000).expect("below the largest pid") + 2;
            let Some(process) = self.processes.get_mut(&key) else { continue };
            process.start(now, pid);
            process.restarts += 1;
            let proc_name = process.spec.identity.proc_name.to_string();
            self.changed.insert(key.clone());
            let told = messages::restart_succeeded(&proc_name);
            self.tell(now, EventKind::RestartSucceeded, key, proc_name, told);
        }
    }

    fn tell(&mut self, now: Now, kind: EventKind, key: ProcessKey, proc_name: String, content: Message) {
        /// Like a real agent's spool, but smaller: the oldest are dropped.
        const EVENTS_MAX: usize = 1000;
        self.sequence += 1;
        let event = Event {
            sequence: self.sequence,
            at: now.unix_ms + self.group.clock_offset_ms,
            process: Some(key),
            proc_name,
            report_id: None,
            kind,
            content,
            details: BTreeMap::new(),
        };
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event.clone());
        if self.is_connected {
            self.outbox.push_back(FromAgent::Events { events: vec![event] });
        }
    }
}

impl SimProcess {
    fn start(&mut self, now: Now, pid: i32) {
        self.pid = Some(pid);
        self.managed = true;
        self.started_at = now.unix_ms / 1000;
    }

    fn snapshot(&self, now: Now) -> Snapshot {
        let phase = match (self.pid, self.managed) {
            (Some(_), _) => Phase::Running,
            (None, true) => Phase::Waiting,
            (None, false) => Phase::Stopped,
        };
        Snapshot {
            phase,
            managed: self.managed,
            pid: self.pid,
            started_at: self.started_at,
            registered_at: self.registered_at,
            reported_at: now.unix_ms / 1000,
            restarts: self.restarts,
            ..Snapshot::default()
        }
    }
}

/// When the task of an operation was created: its id is a version 7 UUID.
fn created_at(operation: OperationId) -> Option<i64> {
    let (seconds, nanos) = operation.task.as_uuid().get_timestamp()?.to_unix();
    i64::try_from(seconds * 1000 + u64::from(nanos) / 1_000_000).ok()
}

#[cfg(test)]
mod tests;
