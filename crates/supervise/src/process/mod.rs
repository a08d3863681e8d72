//! The state machine of one process.
//!
//! [`Process::handle`] takes what the world reports and what operators request; [`Process::poll_action`] returns what
//! must be done; [`Process::poll_timeout`] tells when to come back with [`Event::Tick`]. Everything else is getters.
//!
//! Work in progress is one value, [`Activity`]; what must survive a crash is another, [`Record`]. Operations run one
//! after the other; supervision acts only between them.
//!
//! Absent: IO, clocks, and deciding who may operate. Start at [`Process::handle`], the transition table.

mod activity;
mod cancel;
mod evict;
mod halt;
mod health;
mod launch;
mod leftovers;
mod life;
mod operate;
mod preempt;
mod record;
mod relaunch;
mod scheduled;
mod types;

use std::collections::VecDeque;
use std::sync::Arc;

use std::time::Duration;

use proctor_model::{
    Code, CommandExit, CommandLine, Exit, Incarnation, Lifetime, Message, OperationId, OperationKind, Outcome, Phase,
    Probe, ProcessKey, Spec, messages,
};

use crate::Time;
use activity::{Activity, AfterLeftovers, EvictionReason};
use health::Health;
use launch::seek_window;
use preempt::CutShort;
pub use record::{Elder, Instance, Launch, Record, RecordState, Registration, RunningCommand};
use scheduled::OwedRun;
pub use types::{Action, CommandKind, Event, HealthState, LimitBreach, Notice, PoolBreach, Request, Ticket};

/// Operations that may wait behind the current one; more are refused at once.
const QUEUE_MAX: usize = 64;
/// So many more may wait that end something: a crowd of others does not keep a process from being stopped.
const QUEUE_RESERVE: usize = 8;

/// The operation under way.
#[derive(Debug)]
struct CurrentOperation {
    request: Request,
    spec: Arc<Spec>,
    output: String,
    /// Whether it has had effects; after a crash of the agent such an operation is only observed.
    begun: bool,
    /// Since when it is under way.
    since: Time,
    /// Why it ends as soon as it can.
    cut_short: Option<CutShort>,
}

/// The machine. See the module's documentation.
#[derive(Debug)]
pub struct Process {
    key: ProcessKey,
    record: Record,
    /// Whether `record` changed since [`Process::take_record`].
    dirty: bool,
    work: Activity,
    current: Option<Box<CurrentOperation>>,
    queue: VecDeque<Request>,
    /// The same for the registration that waits.
    queue_of_next: VecDeque<Request>,
    actions: VecDeque<Action>,
    /// The newest look, command and check; answers to older ones are ignored.
    looks: Ticket,
    commands: Ticket,
    /// When the newest look was asked for: whoever it finds alive was so then.
    looked_at: Time,
    health: Health,
    /// Why supervision is ending the present life.
    evicting: Option<EvictionReason>,
    /// Whether the launch under way is a run by schedule.
    scheduled: bool,
    /// A run that was due and has not begun.
    owed_run: Option<OwedRun>,
    /// A stop or kill has ended the run by schedule that it found: it has reached its goal.
    run_ended_by_hand: bool,
    /// The leader of the session of an earlier process, mostly the start command, that the present life is in.
    shared_session: Option<(i32, u64)>,
    /// The newest command, until it has begun: what it is and how long it may take.
    announced: Option<(CommandKind, Duration)>,
    /// A command of the agent before this one, until the first look has told what is there.
    interrupted: Option<Box<RunningCommand>>,
    /// Since when the present life is known to run.
    running_since: Option<Time>,
    /// A life that supervision started counts as a success when it is alive at this time.
    trial: Option<Time>,
    /// Why it is not running, for people.
    reason: Message,
    /// Why supervision ended the last life; empty where it did not, or something has happened since.
    evicted_for: Message,
    /// The pid that the pid file named when it was last looked at outside a start.
    named: Option<i32>,
    /// Whether the newest look could not tell if it is there. Nothing is started then, nor ended.
    unclear: bool,
    /// The reason for which it was last said that supervision waits, until something is started or runs.
    told_waiting: Message,
    /// How the last life ended.
    last_exit: Option<Exit>,
    /// Spreads the waits of many hosts and processes.
    seed: u64,
}

impl Process {
    /// A process that is new on this host.
    pub fn new(key: ProcessKey, spec: Arc<Spec>, seed: u64) -> Self {
        Self::with_record(key, Record::new(spec), seed)
    }

    /// One of several processes of one spec; `spec` is that of this instance.
    pub fn new_instance(key: ProcessKey, spec: Arc<Spec>, instance: Instance, seed: u64) -> Self {
        let record = Record { instance: Some(instance), ..Record::new(spec) };
        Self::with_record(key, record, seed)
    }

    /// A process known from an earlier run; probes its state at once. `unfinished` is the
    /// operation that had begun and has no outcome: its command is never run again.
    pub fn restore(
        now: Time,
        key: ProcessKey,
        record: Record,
        same_boot: bool,
        unfinished: Option<Request>,
        seed: u64,
    ) -> Self {
        let mut process = Self::with_record(key, record, seed);
        if !same_boot {
            process.record.forget_boot();
        }
        process.current = unfinished.map(|request| process.current_of(now, request));
        process.looked_at = now;
        process.resume(now, same_boot);
        process
    }

    fn with_record(key: ProcessKey, record: Record, seed: u64) -> Self {
        Self {
            key,
            record,
            dirty: true,
            work: Activity::Idle,
            current: None,
            queue: VecDeque::new(),
            queue_of_next: VecDeque::new(),
            actions: VecDeque::new(),
            looks: 0,
            commands: 0,
            looked_at: Time::default(),
            health: Health::default(),
            evicting: None,
            scheduled: false,
            owed_run: None,
            run_ended_by_hand: false,
            shared_session: None,
            announced: None,
            interrupted: None,
            running_since: None,
            trial: None,
            reason: Message::default(),
            evicted_for: Message::default(),
            named: None,
            unclear: false,
            told_waiting: Message::default(),
            last_exit: None,
            seed,
        }
    }

    /// Numbers its looks, commands and checks from `first` on, so that no answer to an earlier process of its key is
    /// taken for one of its own.
    pub fn number_from(&mut self, first: Ticket) {
        (self.looks, self.commands) = (first, first);
        self.health.number_from(first);
    }

    pub fn key(&self) -> &ProcessKey {
        &self.key
    }

    pub fn instance(&self) -> Option<&Instance> {
        self.record.instance.as_ref()
    }

    pub fn spec(&self) -> &Arc<Spec> {
        &self.record.spec
    }

    /// The spec of the registration that waits for the end of what is under way.
    pub fn spec_of_next(&self) -> Option<&Arc<Spec>> {
        self.record.next.as_ref().map(|next| &next.spec)
    }

    /// What an operation is meant for that comes now without a spec: the registration that waits, or the present one.
    pub fn newest_registration(&self) -> (i64, &Arc<Spec>) {
        let next = self.record.next.as_ref().map(|next| (next.registered_at, &next.spec));
        next.unwrap_or((self.record.registered_at, &self.record.spec))
    }

    /// The specs for which it is managed or operated: the present one, and that of a registration that waits.
    pub fn specs_in_use(&self) -> impl Iterator<Item = &Arc<Spec>> {
        let is_used = self.record.managed || self.current.is_some() || !self.queue.is_empty();
        let next = self.record.next.as_deref();
        let next = next.filter(|next| next.managed || !self.queue_of_next.is_empty()).map(|next| &next.spec);
        is_used.then_some(&self.record.spec).into_iter().chain(next)
    }

    /// False for one that is here for a single operation with a spec of its own.
    pub fn is_registered(&self) -> bool {
        self.record.registered
    }

    pub fn managed(&self) -> bool {
        self.record.managed
    }

    pub fn life(&self) -> Option<&Incarnation> {
        self.record.life.as_ref()
    }

    /// Since when the present life is known to run.
    pub fn running_since(&self) -> Option<Time> {
        self.running_since
    }

    /// When the start command of the present life began, in ticks since boot, where we started it.
    pub fn since(&self) -> Option<u64> {
        self.record.since
    }

    /// The process of this name before it was unregistered and registered again, which may live.
    pub fn elder(&self) -> Option<&Elder> {
        self.record.elder.as_deref()
    }

    pub fn restarts(&self) -> u32 {
        self.record.attempts
    }

    pub fn registered_at(&self) -> i64 {
        self.record.registered_at
    }

    /// When the newest registration was made, which may still wait, if that one is released.
    pub fn released_registration(&self) -> Option<i64> {
        let next = self.record.next.as_ref().map(|next| (next.registered_at, next.managed));
        let present = self.record.registered.then_some((self.record.registered_at, self.record.managed));
        let (registered_at, is_managed) = next.or(present)?;
        (!is_managed).then_some(registered_at)
    }

    /// The planned time of the last run by schedule, in Unix seconds.
    pub fn planned_at(&self) -> Option<i64> {
        self.record.planned_at
    }

    /// The same in time since boot, for a cycle; None after a reboot.
    pub fn planned_since_boot(&self) -> Option<Time> {
        self.record.planned
    }

    /// Why it does not run, or its registration does not take effect. What was seen after an eviction does not hide why there was one.
    pub fn reason(&self) -> Message {
        if self.record.next.is_some() {
            return messages::registration_waits();
        }
        match self.record.life {
            Some(_) => Message::default(),
            None if self.phase() == Phase::Waiting && !self.evicted_for.is_empty() => self.evicted_for.clone(),
            None => self.reason.clone(),
        }
    }

    /// The last word of the health command; empty where there is none.
    pub fn health(&self) -> &'static str {
        self.health.word()
    }

    /// Whether a limit may end it: running, managed, and nothing else under way.
    pub fn may_be_evicted(&self) -> bool {
        self.record.managed && self.record.life.is_some() && matches!(self.work, Activity::Idle)
    }

    /// Whether a limit is about to end it.
    pub fn is_being_evicted(&self) -> bool {
        self.evicting.is_some()
    }

    /// Whether a start or restart command is under way.
    pub fn is_launching(&self) -> bool {
        matches!(self.work, Activity::Launching { .. })
    }

    /// Whether an operation is under way.
    pub fn is_operated(&self) -> bool {
        self.current.is_some()
    }

    /// Whether a run by schedule would overlap.
    pub fn is_busy(&self) -> bool {
        self.record.life.is_some() || !matches!(self.work, Activity::Idle | Activity::Backoff { .. })
    }

    pub fn phase(&self) -> Phase {
        match (&self.work, &self.record.life) {
            (Activity::Launching { .. }, _) if self.scheduled => Phase::Running,
            (Activity::Probing, None) if self.reason.is_empty() && self.current.is_none() => Phase::Unknown,
            (Activity::Launching { .. } | Activity::WaitingForPid { .. } | Activity::StartCheck { .. }, _) => {
                Phase::Starting
            }
            (
                Activity::ClearingLeftovers { next: AfterLeftovers::Launch { .. } | AfterLeftovers::LaunchFailed(_) }
                | Activity::LookingAgain { .. },
                _,
            ) => Phase::Starting,
            (Activity::Stopping { .. } | Activity::WaitingForExit { .. } | Activity::ClearingLeftovers { .. }, _) => {
                Phase::Stopping
            }
            (Activity::Idle | Activity::Backoff { .. } | Activity::Probing, None) if self.unclear => Phase::Unknown,
            (Activity::Backoff { .. }, _) => Phase::Waiting,
            (Activity::Idle | Activity::Probing | Activity::Reloading { .. }, Some(_)) => Phase::Running,
            (Activity::Idle | Activity::Probing | Activity::Reloading { .. }, None) if self.record.failed => {
                Phase::Failed
            }
            (Activity::Idle | Activity::Probing | Activity::Reloading { .. }, None) => Phase::Stopped,
        }
    }

    /// Whether what is under way is to end the process: a stop, a kill or an eviction.
    pub fn is_ending(&self) -> bool {
        let kind = self.current.as_ref().map(|current| current.request.kind);
        self.evicting.is_some() || matches!(kind, Some(OperationKind::Stop | OperationKind::Kill))
    }

    /// The operations that are under way or wait here.
    pub fn operations(&self) -> impl Iterator<Item = OperationId> {
        let current = self.current.iter().map(|current| current.request.operation);
        current.chain(self.queue.iter().chain(&self.queue_of_next).map(|request| request.operation))
    }

    /// Whether the operation is waiting or under way here, or has ended and nobody has polled that.
    pub fn has_operation(&self, operation: &OperationId) -> bool {
        let ends = |action: &Action| matches!(action, Action::Finish { operation: of, .. } if of == operation);
        self.operations().any(|known| known == *operation) || self.actions.iter().any(ends)
    }

    /// Whether nothing would be lost by dropping it: made for one operation and at rest.
    pub fn can_be_dropped(&self) -> bool {
        let is_wanted = self.record.registered || self.record.managed || self.record.next.is_some();
        !is_wanted && matches!(self.work, Activity::Idle) && self.queue.is_empty()
    }

    /// The durable part, if it changed since the last call. To be on disk before the actions that
    /// are polled after it are carried out.
    pub fn take_record(&mut self) -> Option<&Record> {
        std::mem::take(&mut self.dirty).then_some(&self.record)
    }

    pub fn poll_action(&mut self) -> Option<Action> {
        pop(&mut self.actions)
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        [self.work.timeout(), self.trial, self.health_timeout(), self.run_again_at(), self.gives_way_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The table: every event against what is under way.
    pub fn handle(&mut self, now: Time, event: Event) {
        let looks = self.looks;
        match event {
            Event::Requested(request) => self.request(now, request),
            Event::Cancelled { operation } => self.cancel(now, operation),
            Event::Assigned { spec, managed, registered_at } => {
                self.assign(now, Registration { spec, managed, registered_at })
            }
            Event::Unregistered => self.forget(now),
            Event::Observed(look) => self.on_observed(now, look),
            Event::Exited { life, exit, alive_at } => {
                self.see_alive_until(&life, alive_at);
                self.ended(now, &life, exit);
            }
            Event::SharesSession { life, session } => self.share_session(&life, &session),
            Event::TreeKilled { life, failed } => self.tree_killed(now, &life, failed),
            Event::Probed { ticket, look } if ticket == self.looks => {
                let seen = if let Probe::Running(life) = &look { Some(life.clone()) } else { None };
                let asked_at = self.looked_at;
                self.on_probed(now, look);
                seen.iter().for_each(|life| self.see_alive(life, asked_at));
            }
            Event::CommandBegun { ticket, command } if ticket == self.commands => self.command_begun(now, command),
            Event::CommandEnded { ticket, end, alive_at } if ticket == self.commands => {
                self.command_ended(now, end, alive_at);
            }
            Event::LeftoversCleared { ticket, ended, left, elder } if ticket == self.commands => {
                self.cleared(now, ended, left, elder);
            }
            Event::LeftoversNotCleared { ticket, reason } if ticket == self.commands => self.not_cleared(now, &reason),
            Event::HealthChecked { ticket, end } => self.checked(now, ticket, &end),
            Event::Probed { .. }
            | Event::CommandBegun { .. }
            | Event::CommandEnded { .. }
            | Event::LeftoversCleared { .. }
            | Event::LeftoversNotCleared { .. } => {}
            Event::Refused { operation, reason } => self.refused(now, operation, reason),
            Event::Exceeded(excess) => self.on_limit_breach(now, excess),
            Event::RunDue { planned, since_boot } => self.due(now, planned, since_boot),
            Event::Tick => self.tick(now),
        }
        if self.looks != looks {
            self.looked_at = now;
        }
    }

    fn on_probed(&mut self, now: Time, look: Probe) {
        match std::mem::replace(&mut self.work, Activity::Idle) {
            Activity::Probing => self.handle_probe(now, look),
            Activity::WaitingForPid { old, until, pause, plan, .. } => {
                self.on_probe_while_waiting(now, look, old, until, pause, plan)
            }
            Activity::Launching { old, pause, since, .. } => {
                self.on_probe_while_launching(now, look, old, pause, since)
            }
            Activity::LookingAgain { command, timeout } => self.looked_again(now, look, command, timeout),
            other @ (Activity::Idle
            | Activity::Backoff { .. }
            | Activity::ClearingLeftovers { .. }
            | Activity::StartCheck { .. }
            | Activity::Stopping { .. }
            | Activity::WaitingForExit { .. }
            | Activity::Reloading { .. }) => self.work = other,
        }
    }

    /// On disk before it runs: whoever comes after a crash knows whom to wait for.
    fn command_begun(&mut self, now: Time, command: Incarnation) {
        let Some((kind, timeout)) = self.announced.take() else { return };
        if self.is_cut_short() {
            return; // its end is asked for already, and it does not proceed
        }
        let until = now + timeout + seek_window(self.policy_of_current());
        if let (CommandKind::Start | CommandKind::Restart, Some(launch)) = (kind, &mut self.record.launch) {
            (launch.begun, launch.until, launch.since) = (true, until, Some(command.start_ticks));
            self.add_session(&command);
        }
        self.note_wish();
        if self.scheduled {
            self.note_run();
        }
        self.record.running = Some(RunningCommand { command, kind, until: now + timeout, scheduled: self.scheduled });
        self.dirty = true;
        self.actions.push_back(Action::Proceed { ticket: self.commands });
    }

    fn command_ended(&mut self, now: Time, end: CommandExit, alive_at: Option<Time>) {
        self.announced = None;
        if let Some(running) = self.record.running.take() {
            self.see_alive_until(&running.command, alive_at);
            self.dirty = true;
        }
        match std::mem::replace(&mut self.work, Activity::Idle) {
            Activity::Launching { old, .. } => self.launched(now, old, end),
            Activity::Stopping { life } => self.on_stop_command_exit(now, life, end),
            Activity::Reloading { life } => self.reloaded(now, &life, end),
            other @ (Activity::Idle
            | Activity::Backoff { .. }
            | Activity::Probing
            | Activity::WaitingForPid { .. }
            | Activity::ClearingLeftovers { .. }
            | Activity::LookingAgain { .. }
            | Activity::StartCheck { .. }
            | Activity::WaitingForExit { .. }) => self.work = other,
        }
    }

    fn ended(&mut self, now: Time, life: &Incarnation, exit: Option<Exit>) {
        if self.record.life.as_ref() != Some(life) {
            return; // the end of an older life
        }
        self.on_exit(now, exit);
        match std::mem::replace(&mut self.work, Activity::Idle) {
            Activity::Idle => self.become_idle(now),
            Activity::StartCheck { first, .. } => self.exited_during_start_check(now, first, life),
            Activity::WaitingForExit { .. } => self.on_exit_reached(now),
            // The answer or the end of the command that is awaited decides.
            other @ (Activity::Backoff { .. }
            | Activity::Probing
            | Activity::Launching { .. }
            | Activity::WaitingForPid { .. }
            | Activity::ClearingLeftovers { .. }
            | Activity::LookingAgain { .. }
            | Activity::Stopping { .. }
            | Activity::Reloading { .. }) => self.work = other,
        }
    }

    fn tick(&mut self, now: Time) {
        if self.trial.is_some_and(|until| until <= now) {
            self.confirm_restart();
        }
        self.check_health(now);
        if self.run_again_at().is_some_and(|at| at <= now) {
            return self.run_owed(now);
        }
        if self.gives_way_at().is_some_and(|at| at <= now) {
            return self.give_way(now);
        }
        if self.work.timeout().is_none_or(|at| at > now) {
            return;
        }
        match std::mem::replace(&mut self.work, Activity::Idle) {
            Activity::Backoff { .. } => self.probe(),
            Activity::WaitingForPid { old, until, pause, plan, .. } => self.probe_again(old, until, pause, plan),
            Activity::Launching { old, pause, since, .. } => self.probe_while_launching(old, pause, since),
            Activity::StartCheck { .. } => self.pass_start_check(now),
            Activity::WaitingForExit { life, fallback, .. } => self.on_exit_timeout(now, life, fallback),
            other @ (Activity::Idle
            | Activity::Probing
            | Activity::ClearingLeftovers { .. }
            | Activity::LookingAgain { .. }
            | Activity::Stopping { .. }
            | Activity::Reloading { .. }) => {
                self.work = other;
            }
        }
    }

    fn request(&mut self, now: Time, request: Request) {
        if self.has_operation(&request.operation) {
            return; // delivered again
        }
        let Some(request) = self.apply_immediately(now, request) else { return };
        let waiting = self.queue.len() + self.queue_of_next.len();
        if waiting >= QUEUE_MAX + request.reserve() {
            return self.answer_unbegun(&request, messages::too_many_waiting(waiting));
        }
        if self.record.next.is_some() {
            return self.queue_of_next.push_back(request);
        }
        let kind = request.kind;
        let is_first = !self.queue.iter().any(|waiting| waiting.kind == kind);
        self.queue.push_back(request);
        if self.current.is_none() && matches!(self.work, Activity::Idle | Activity::Backoff { .. }) {
            self.work = Activity::Idle;
            self.become_idle(now);
        } else if is_first {
            self.preempt(now, kind);
        }
        if self.gives_way_at().is_some_and(|at| at <= now) {
            self.give_way(now);
        }
    }

    /// The end of an operation that waits.
    fn answer_unbegun(&mut self, request: &Request, message: Message) {
        let outcome = Box::new(Outcome::new(Code::CommandFailed, message, self.record.managed));
        self.actions.push_back(Action::Finish { operation: request.operation, outcome });
    }

    /// Nothing is under way: the next operation, the registration that waits for the last of them, or supervision.
    fn become_idle(&mut self, now: Time) {
        debug_assert!(self.current.is_none());
        if self.queue.is_empty() && self.register_next(now) {
            return self.probe(); // nothing is known of it yet, and not every operation looks by itself
        }
        if let Some(request) = pop(&mut self.queue) {
            self.begin(now, request);
        } else if self.has_unwanted_remains() {
            self.clear(now, AfterLeftovers::Swept);
        } else if self.needs_relaunch() {
            self.probe();
        } else {
            self.watch_unclear(now);
        }
    }

    /// Dead, managed and resident.
    fn needs_relaunch(&self) -> bool {
        self.record.managed && self.record.life.is_none() && self.record.spec.policy.lifetime == Lifetime::Resident
    }

    fn probe(&mut self) {
        let spec = self.current.as_ref().map_or(&self.record.spec, |current| &current.spec).clone();
        self.looks += 1;
        self.actions.push_back(Action::Probe { ticket: self.looks, spec, known: self.record.life.clone() });
        self.work = Activity::Probing;
    }

    fn run(&mut self, command: CommandKind, line: CommandLine, timeout: Duration) {
        let request = self.current.as_ref().map(|current| &current.request);
        let operation = request.map(|request| (request.operation, request.expires));
        let spec = self.current.as_ref().map_or(&self.record.spec, |current| &current.spec).clone();
        self.commands += 1;
        self.announced = Some((command, timeout));
        self.actions.push_back(Action::Run { ticket: self.commands, command, line, spec, timeout, operation });
    }

    fn current_of(&self, now: Time, request: Request) -> Box<CurrentOperation> {
        let spec = request.spec.clone().unwrap_or_else(|| self.record.spec.clone());
        Box::new(CurrentOperation { request, spec, output: String::new(), begun: false, since: now, cut_short: None })
    }
}

/// The first of a queue. There are many processes, and most wait for nothing: an empty queue holds no memory.
fn pop<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if queue.is_empty() {
        queue.shrink_to_fit();
    }
    first
}
