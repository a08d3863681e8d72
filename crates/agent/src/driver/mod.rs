//! The agent's main loop: events in, machines in the middle, actions out.
//!
//! A turn takes what has arrived, lets the machines handle it, writes what must not be forgotten, and acts; see
//! `commit` for what has to be written when. The driver's state is in types that make no decisions and never await
//! (`processes`, `outbox`, `commands`, `admission`, …); `impl Driver` is what involves several of them.
//!
//! Absent: decisions about processes (see `proctor_supervise`), and anything that may block.
//! Start at `Driver::run`.

mod admission;
mod answers;
mod arrivals;
mod cancel;
mod commands;
mod commit;
mod config_files;
mod estates;
mod execute;
mod held;
mod inspect;
mod instances;
mod leaves;
mod ledger_writer;
mod limits;
mod lives;
mod local;
mod logs;
mod metrics;
mod notices;
mod operations;
mod outbox;
mod pid_files;
mod processes;
mod registered;
mod registrations;
mod remnants;
mod reports;
mod schedules;
mod slots;
mod spans;
mod telemetry;
#[cfg(test)]
mod tests;
mod timers;
mod usage;
mod workers;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use proctor_host::Host;
use proctor_model::{
    AgentState, Code, CommandLine, Incarnation, Message, OperationId, OperationKind, Outcome, ProcessKey, Spec, Usage,
    messages,
};
use proctor_runtime::{Tasks, clock};
use proctor_supervise::{Elder, Event, Process, Request, Time};
use proctor_traces::Traces;
use proctor_wire::{Assign, FromAgent, FromServer};
use tokio::sync::{mpsc, oneshot};

use admission::Admission;
use commands::CommandsUnderWay;
use config_files::{Checked, ConfigMonitor};
use inspect::Sighting;
use leaves::UsedLeaf;
use ledger_writer::LedgerWriter;
use limits::{LimitMonitor, Verdict, cgroup_name};
use lives::Lives;
use operations::OperationsUnderWay;
use outbox::Outbox;
use processes::Processes;
use registered::ArrivingList;
use registrations::Registrations;
use remnants::Remnants;
use schedules::{Clocks, Plan, Schedules};
use spans::OperationSpans;
use telemetry::Telemetry;
use usage::UsageMonitor;
use workers::Workers;

use crate::history::Keeper;
use crate::ledger::{HeldName, Ledger, LedgerState};
use crate::link::LinkOutbox;
use crate::local::LocalCall;
use crate::metrics::AgentMetrics;
use crate::policy::PolicyFile;
use crate::spool::{Draft, EventSpool};

/// Inputs that may wait; beyond it the link and the watchers wait.
const INBOX_MAX: usize = 4096;
/// Inputs handled in one turn, and so written in one transaction.
const TURN_MAX: usize = 256;
/// Usage is reported at least this often.
const REPORT_PERIOD: Duration = Duration::from_secs(60);
/// With nothing to do the loop turns this often.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// Outcomes that wait for a slow link are tried again after this.
const SLOW_LINK_PAUSE: Duration = Duration::from_millis(50);

/// What reaches the driver.
#[derive(Debug)]
pub(crate) enum Input {
    Machine(ProcessKey, Event),
    Server(FromServer),
    /// The link is about to greet a server: what does this agent have?
    Greeting(oneshot::Sender<AgentState>),
    Connected {
        link: LinkOutbox,
        /// The server has all that the last greeting said.
        is_state_known: bool,
    },
    Disconnected,
    /// The link wants to tell the server that this agent is alive: only a driver that turns can.
    Beat,
    /// The link was given something that the control plane did not sign, and ended the session.
    CommandRefused {
        server: String,
        reason: String,
    },
    /// An event of the agent itself.
    Tell(Box<Draft>),
    /// A status query is answered.
    Inspected {
        operation: OperationId,
        sightings: Vec<Sighting>,
        outcome: Box<Outcome>,
    },
    /// What `line`, a version command, said of that life.
    Version {
        key: ProcessKey,
        life: Incarnation,
        line: CommandLine,
        version: String,
    },
    /// The paths of the oldest operation that waits for it are resolved; the error says why not.
    Admitted {
        key: ProcessKey,
        operation: OperationId,
        verdict: Result<(), Message>,
    },
    ConfigsChecked(Box<Checked>),
    /// What the processes use that run.
    Measured(HashMap<ProcessKey, Usage>),
    /// The cgroup of a process that rests is gone.
    LeafReleased(UsedLeaf),
    /// Nothing of this forgotten process is there any more.
    EstateSettled(ProcessKey, Elder),
    /// From the control socket.
    Local(LocalCall),
}

pub(crate) type Inbox = mpsc::Sender<Input>;

pub(crate) fn inbox() -> (Inbox, mpsc::Receiver<Input>) {
    mpsc::channel(INBOX_MAX)
}

/// The rooms of the driver; each is a type of its own, in the module of its name or nearly so. `impl Driver` is what
/// concerns several of them.
#[derive(Debug)]
pub(crate) struct Driver {
    host: Host,
    /// Tasks beside the driver, which answer to its inbox.
    workers: Workers,
    /// The machines, who was touched, and when each wants to be woken.
    processes: Processes,
    lives: Lives,
    /// What may be left on the host.
    remnants: Remnants,
    registrations: Registrations,
    ledger: LedgerWriter,
    /// What may be done: policy, paths, pid files.
    admission: Admission,
    operations: OperationsUnderWay,
    commands: CommandsUnderWay,
    usage: UsageMonitor,
    schedules: Schedules,
    configs: ConfigMonitor,
    log_reads: logs::LogReads,
    /// What the server is to hear.
    outbox: Outbox,
    telemetry: Telemetry,
}

impl Driver {
    /// Restores every process of the ledger.
    pub(crate) fn new(
        host: Host,
        policy: Arc<PolicyFile>,
        ledger: Ledger,
        mut memory: LedgerState,
        keeper: Keeper,
        inbox: Inbox,
        tasks: Tasks,
    ) -> Result<Self, proctor_host::Error> {
        let same_boot = memory.boot.as_ref() == Some(host.boot_id());
        let now = Time::since_boot(host.now());
        let seed = seed_of(&host);
        let limits = LimitMonitor::new(&host, &memory.pools, now);
        let mut driver = Self {
            workers: Workers::new(inbox, tasks),
            processes: Processes::new(seed),
            lives: Lives::new(&host)?,
            remnants: Remnants::default(),
            registrations: Registrations::new(memory.generation, std::mem::take(&mut memory.held)),
            ledger: LedgerWriter::new(ledger, host.boot_id().clone()),
            admission: Admission::new(host.clone(), policy),
            operations: OperationsUnderWay::default(),
            commands: CommandsUnderWay::default(),
            usage: UsageMonitor::new(limits, keeper),
            schedules: Schedules::default(),
            configs: ConfigMonitor::default(),
            log_reads: logs::LogReads::default(),
            outbox: Outbox::new(EventSpool::new(&mut memory, same_boot, clock::unix_millis())),
            telemetry: Telemetry::default(),
            host,
        };
        memory.estates.keys().for_each(|key| driver.remnants.leaves.used(key.clone()));
        driver.resume_local(&mut memory);
        driver.outbox.restore(memory.outcomes.into_iter().filter(|(operation, _)| operation.part == 0));
        driver.ledger.batch.append(memory.owed);
        if same_boot {
            for (key, elder) in memory.estates {
                driver.host.set_lives(&cgroup_name(&key), None, elder.all().filter_map(|elder| elder.life.as_ref()));
                driver.remnants.keep_estate(key, elder);
            }
        } else {
            driver.ledger.batch.estates.extend(memory.estates.into_keys().map(|key| (key, None)));
        }
        let mut unfinished: HashMap<ProcessKey, Request> = HashMap::new();
        for (operation, key, kind) in memory.unfinished {
            let request = Request { operation, kind, spec: None, expires: now + Duration::from_secs(3600) };
            if let Some(older) = unfinished.insert(key, request) {
                let message = messages::agent_restarted_during(older.kind.message());
                driver.finish(older.operation, Outcome::new(Code::CommandFailed, message, false));
            }
        }
        tracing::info!(processes = memory.processes.len(), same_boot, "driver started");
        for (key, record) in memory.processes {
            let request = unfinished.remove(&key);
            let process = Process::restore(now, key.clone(), record, same_boot, request, seed);
            driver.processes.touch(key.clone());
            driver.remnants.leaves.used(key.clone());
            driver.remnants.set_stray(&key, true);
            driver.admission.pid_files.follow(&process);
            driver.publish_lives(&process);
            driver.set_registration_deferred(&key, process.spec_of_next().is_some());
            driver.processes.insert(process);
        }
        for (key, request) in unfinished {
            let message = messages::process_forgotten_during(key, request.kind.message());
            driver.finish(request.operation, Outcome::new(Code::CommandFailed, message, false));
        }
        Ok(driver)
    }

    /// Traces go there from now on.
    pub(crate) fn trace(&mut self, traces: Traces) {
        self.telemetry.spans = OperationSpans::new(traces);
    }

    /// Changes with every turn.
    pub(crate) fn turns(&self) -> Arc<AtomicU64> {
        self.telemetry.turns()
    }

    /// What it counts.
    pub(crate) fn metrics(&self) -> Arc<AgentMetrics> {
        self.telemetry.metrics.clone()
    }

    pub(crate) fn seen_generation(&self) -> Arc<AtomicU64> {
        self.registrations.written()
    }

    pub(crate) async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        let mut report = tokio::time::interval(REPORT_PERIOD);
        let mut turn = Vec::with_capacity(TURN_MAX);
        self.watch_exits();
        self.sweep_outputs();
        self.start_history();
        loop {
            self.finish_turn();
            self.telemetry.turned();
            let wait = self.until_next_timer();
            tokio::select! {
                count = inputs.recv_many(&mut turn, TURN_MAX) => if count == 0 { return },
                () = tokio::time::sleep(wait) => {}
                _ = report.tick() => {
                    // Without a session there are no beats, which do this more often.
                    self.lives.exits.confirm();
                    self.measure_all();
                    self.write_history();
                    self.remove_idle_cgroups();
                    self.settle_estates();
                }
            }
            for input in turn.drain(..) {
                self.handle(input);
            }
            self.fire_timers();
            self.give_back_memory();
            self.measure();
            self.run_schedules();
            self.check_configs();
        }
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Machine(key, event) => {
                if let Event::CommandEnded { ticket, .. } = &event {
                    self.commands.ended(&key, *ticket);
                }
                self.dispatch_event(&key, event);
            }
            Input::Server(message) => self.hear(message),
            Input::Greeting(answer) => self.greet(answer),
            Input::Connected { link, is_state_known } => {
                self.outbox.connect(link);
                self.tell_dropped_events();
                self.begin_reports(is_state_known);
            }
            Input::CommandRefused { server, reason } => self.command_refused(&server, &reason),
            Input::Tell(draft) => self.publish_event(*draft),
            Input::Beat => {
                self.lives.exits.confirm();
                self.outbox.send(FromAgent::Beat);
            }
            Input::Disconnected => {
                self.registrations.arriving = ArrivingList::default();
                self.outbox.disconnect();
            }
            Input::Inspected { operation, sightings, outcome } => {
                for sighting in sightings {
                    self.take_sighting(sighting);
                }
                if !self.operations.end_status(operation) {
                    return; // cancelled meanwhile
                }
                self.answer(operation, *outcome);
            }
            Input::LeafReleased(leaf) => self.remnants.leaves.released(&leaf),
            Input::EstateSettled(key, elder) => self.estate_settled(key, &elder),
            Input::Version { key, life, line, version } => {
                let process = self.processes.get(&key);
                if process.is_some_and(|process| process.spec().control.version.as_ref() == Some(&line)) {
                    self.lives.set_version(key.clone(), life, version);
                    self.outbox.reports.forget(&key);
                    self.processes.touch(key);
                }
            }
            Input::Admitted { key, operation, verdict } => self.admitted(key, operation, verdict),
            Input::Measured(measured) => {
                self.record_measured(&measured);
                self.report_all(&measured);
            }
            Input::ConfigsChecked(checked) => self.configs_checked(*checked),
            Input::Local(call) => self.local(call),
        }
    }

    fn hear(&mut self, message: FromServer) {
        match message {
            FromServer::Operate { operation, key, kind, spec, expires_in } => {
                self.operate(operation, key, kind, spec, expires_in);
            }
            FromServer::Acknowledge { operations } => {
                self.outbox.acknowledged(&operations);
                self.ledger.batch.acknowledged.extend(operations);
            }
            FromServer::Cancel { operations } => self.cancel(operations),
            FromServer::Assign { assignments } => {
                for assign in assignments {
                    self.assign(assign);
                }
            }
            FromServer::AssignPools { pools } => {
                for (generation, pool) in pools {
                    self.see(generation);
                    self.hold(HeldName::Pool(pool.namespace.clone(), pool.id.clone()), Some(generation));
                    self.usage.limits.set_pool(pool.clone(), self.now());
                    self.ledger.batch.pools.push(pool);
                }
            }
            FromServer::Registered(part) => self.handle_registered_part(part),
            FromServer::EventsSeen { up_to } => self.events_seen(up_to),
            FromServer::QueryUsage { request, key, range } => self.query_usage(request, &key, range),
            FromServer::QueryLog { request, key, query } => self.query_log(request, key, query),
            FromServer::Unreadable { operation, reason } => {
                let message = messages::operation_not_understood(reason);
                self.finish(operation, Outcome::new(Code::IllegalOperation, message, false));
            }
            FromServer::Enrolled { .. }
            | FromServer::RelayEnrolled { .. }
            | FromServer::Authorities(_)
            | FromServer::Challenge { .. }
            | FromServer::Refused { .. }
            | FromServer::Welcome { .. }
            | FromServer::Busy { .. }
            | FromServer::Renewed { .. }
            | FromServer::Signed(_)
            | FromServer::Upgrade(_)
            | FromServer::BuildPart { .. }
            | FromServer::Ping { .. }
            | FromServer::Pace { .. }
            | FromServer::Beat => {}
            // It may have been a part of the list.
            FromServer::Unknown => self.registrations.arriving = ArrivingList::default(),
        }
    }

    /// An operation arrives, perhaps not for the first time.
    fn operate(
        &mut self,
        operation: OperationId,
        key: ProcessKey,
        kind: OperationKind,
        spec: Option<Arc<Spec>>,
        expires_in: Duration,
    ) {
        if self.tell_known_outcome(operation, &key, kind) {
            return;
        }
        self.telemetry.spans.arrived(operation, &key, kind);
        if kind == OperationKind::Status {
            return match self.refusal(&key, kind, None) {
                Some(refusal) => self.refuse(&key, operation, refusal),
                None => self.inspect(operation, key, spec),
            };
        }
        let expires = self.now() + expires_in;
        self.admit(key, Request { operation, kind, spec, expires });
    }

    fn assign(&mut self, assign: Assign) {
        self.see(assign.generation);
        let Assign { generation, key, spec, managed, registered_at } = assign;
        self.hold(HeldName::Process(key.clone()), spec.is_some().then_some(generation));
        let instances = spec.as_ref().map_or(0, |spec| spec.instances());
        self.forget_others(&key, instances);
        let Some(spec) = spec else { return };
        // Unregistered a moment ago, perhaps in this very turn: the next one of its name is another process.
        let is_over = |process: &Process| !process.is_registered();
        if self.processes.get(&key).is_some_and(is_over) || self.processes.instances_of(&key).any(is_over) {
            self.finish_turn();
        }
        if instances > 1 {
            return self.assign_instances(&key, &spec, managed, registered_at);
        }
        let is_new = !self.processes.contains(&key);
        if is_new {
            let process = Process::new(key.clone(), spec.clone(), self.processes.seed());
            self.insert_new(process);
        }
        let managed = is_new && self.is_managed_on_assign(&key, managed, registered_at);
        self.assign_spec(&key, spec, managed, registered_at);
    }

    /// A changed version command is asked in the present life.
    fn assign_spec(&mut self, key: &ProcessKey, spec: Arc<Spec>, managed: bool, registered_at: i64) {
        let before = self.processes.get(key).map(|process| process.spec().clone());
        let version_command_changed = before.is_some_and(|before| before.control.version != spec.control.version);
        self.dispatch_event(key, Event::Assigned { spec, managed, registered_at });
        if version_command_changed {
            self.lives.forget_version(key);
            if let Some(life) = self.processes.get(key).and_then(|process| process.life().cloned()) {
                self.query_version(key, &life);
            }
        }
    }

    fn see(&mut self, generation: u64) {
        if self.registrations.hear(generation) {
            self.ledger.batch.generation = Some(generation);
        }
    }

    fn dispatch_event(&mut self, key: &ProcessKey, event: Event) {
        let event = self.ignore_foreign_pid(key, event);
        let now = self.now();
        let Some(process) = self.processes.get_mut(key) else { return };
        if let Some((life, at)) = self.lives.exits.alive_at(key) {
            process.see_alive(&life, Time::since_boot(at));
        }
        let (before, had_elder) = (process.life().cloned(), process.elder().is_some());
        process.handle(now, event);
        self.admission.pid_files.follow(process);
        let waits = process.spec_of_next().is_some();
        let has_another_life = process.life() != before.as_ref();
        let is_changed = has_another_life || process.elder().is_some() || had_elder;
        self.processes.touch(key.clone());
        if has_another_life {
            self.processes.life_changed(key, before.map(|life| life.pid));
        }
        if let Some(process) = self.processes.get(key).filter(|_| is_changed) {
            self.publish_lives(process);
        }
        self.set_registration_deferred(key, waits);
    }

    /// While a registration waits the ledger does not say that it was seen.
    fn set_registration_deferred(&mut self, key: &ProcessKey, waits: bool) {
        if self.registrations.set_deferred(key, waits) {
            self.ledger.batch.generation = Some(self.registrations.newest());
            tracing::info!(process = %key, waits, "new registration deferred until the current operation ends");
        }
    }

    /// Who is no part of any other process.
    fn publish_lives(&self, process: &Process) {
        let elders = process.elder().into_iter().flat_map(Elder::all).filter_map(|elder| elder.life.as_ref());
        self.host.set_lives(&cgroup_name(process.key()), process.life(), elders);
    }

    fn now(&self) -> Time {
        Time::since_boot(self.host.now())
    }

    fn until_next_timer(&self) -> Duration {
        let times = [self.processes.next(), self.usage.limits.next(), self.configs.next(), self.ledger.flush_at];
        let next = times.into_iter().flatten().min();
        let wait = next.map_or(IDLE_MAX, |time| time.since(self.now()));
        let planned = self.schedules.next().map(|next| next.saturating_sub(self.host.now()));
        let wait = planned.map_or(wait, |planned| wait.min(planned));
        if self.outbox.is_held_up() { wait.min(SLOW_LINK_PAUSE) } else { wait }
    }

    fn fire_timers(&mut self) {
        let now = self.now();
        while let Some(key) = self.processes.pop_due(now) {
            self.dispatch_event(&key, Event::Tick);
        }
    }

    /// Samples what is due; a machine decides what a breach means for its process.
    fn measure(&mut self) {
        let (now, boot_time) = (self.now(), self.host.now());
        if self.usage.limits.next().is_none_or(|at| at > now) {
            return;
        }
        for verdict in self.usage.turn(now, boot_time, &self.processes) {
            self.publish_warning(&verdict);
            if let Verdict::Exceeded { key, excess } = verdict
                && self.forbidden(&key).is_none()
            {
                self.dispatch_event(&key, Event::Exceeded(excess));
            }
        }
    }

    fn run_schedules(&mut self) {
        let processes = &self.processes;
        let is_busy = |key: &ProcessKey| processes.get(key).is_some_and(Process::is_busy);
        for plan in self.schedules.turn(&Clocks::read(&self.host), is_busy) {
            match plan {
                Plan::Run { key, planned, since_boot } => {
                    self.dispatch_event(&key, Event::RunDue { planned, since_boot })
                }
                Plan::Skipped { key, planned, skipped } => self.skipped(&key, planned, skipped),
            }
        }
    }
}

/// Differs between hosts, stays the same on one.
fn seed_of(host: &Host) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    host.boot_id().as_str().hash(&mut hasher);
    hasher.finish()
}
