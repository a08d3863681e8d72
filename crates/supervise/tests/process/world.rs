//! A host in virtual time: one process machine, the commands it runs and the lives they make.
//!
//! The world carries actions out as the agent's driver does (record, then act), can crash the
//! agent between any two actions, and checks at every step what must never happen.

#![allow(clippy::unwrap_used, reason = "a test's world")]

mod commands;
mod people;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    BootId, Code, CommandExit, CommandResult, Exit, Incarnation, Leftovers, OperationId, OperationKind, Outcome, Probe,
    ProcessKey, Signal, Spec, messages,
};
use proctor_supervise::{Action, Elder, Event, Notice, Process, Record, Request, Time};

use commands::{Command, end_of};

pub(crate) use super::setting::{Habits, spec};

/// So many ticks in a row, each leaving a timeout that is over already, are a busy loop.
const IDLE_TICKS_MAX: u32 = 8;
const PID_PATH: &str = "/run/p.pid";
/// How long the driver waits for what ends leftovers.
const CLEAR_LIMIT_MS: u64 = 120_000;

#[derive(Debug)]
enum Due {
    ToMachine {
        agent: u32,
        event: Event,
    },
    /// The command of that pid has done its work.
    Worked {
        command: i32,
    },
    Appears,
    /// The time of a command is over.
    TimesOut {
        agent: u32,
        ticket: u64,
    },
    /// The agent's signals reach the tree.
    Killed {
        agent: u32,
        life: Incarnation,
    },
    Dies(Incarnation, Option<Exit>),
}

/// What counts for the retries of supervision, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    Relaunch(Time),
    /// An operation ended, a life was long enough, or it was ended for its use of resources: the
    /// count begins anew.
    Anew,
}

#[derive(Debug)]
pub(crate) struct World {
    pub now: Time,
    pub habits: Habits,
    pub machine: Process,
    pub notices: Vec<(Time, Notice)>,
    pub outcomes: BTreeMap<OperationId, Outcome>,
    pub launches: Vec<(Time, bool)>,
    pub history: Vec<Mark>,
    /// When the health command was run.
    pub checks: Vec<Time>,
    /// Executes this many actions, then crashes the agent.
    pub crash_after: Option<usize>,
    seed: u64,
    /// How many machines there were before this one.
    replaced: u64,
    spec: Arc<Spec>,
    registered_at: i64,
    /// The planned time of the newest run.
    planned: i64,
    due: BTreeMap<(Time, u64), Due>,
    order: u64,
    agent: u32,
    life: Option<Incarnation>,
    born: Time,
    by_hand: bool,
    starts_by_hand: bool,
    /// When each process began that lives forked and that is there.
    descendants: Vec<u64>,
    elder: Option<u64>,
    known_lives: BTreeSet<i32>,
    next_pid: i32,
    /// The pid file.
    named: i32,
    /// The pid file cannot be read.
    pub(crate) unreadable: bool,
    /// Who kills is stuck: nothing is ended, and nobody hears of it.
    pub(crate) killer_stuck: bool,
    /// The life that an operator's stop or kill was carried out on, until a later operation wants the process back.
    touched: Option<i32>,
    /// Commands that an agent found when it came back: it does not see how they end.
    rejoined: BTreeSet<(u32, u64)>,
    launch_commands: u32,
    commands: Vec<Command>,
    /// The command that is the process.
    foreground: Option<i32>,
    /// Operations of which a command has run.
    pub ran: BTreeSet<OperationId>,
    /// The same with the command: none runs twice for one operation.
    ran_commands: BTreeSet<(OperationId, &'static str)>,
    cancelled: BTreeSet<OperationId>,
    /// Cancelled before they began: no command of theirs may ever run.
    never: BTreeSet<OperationId>,
    watched: Vec<Incarnation>,
    /// What was last asked to be ended of earlier lives.
    pub(crate) asked: Option<(Option<Leftovers>, Option<Box<Elder>>)>,
    disk: Option<Record>,
    begun: BTreeMap<OperationId, Request>,
    requested: BTreeMap<OperationId, Request>,
}

impl World {
    /// Registered, and nothing runs.
    pub(crate) fn new(spec: Arc<Spec>, habits: Habits) -> Self {
        Self::on_host(7, spec, habits)
    }

    /// As [`Self::new`]; hosts differ by their seeds.
    pub(crate) fn on_host(seed: u64, spec: Arc<Spec>, habits: Habits) -> Self {
        Self::of_key(seed, "ns/p".parse().unwrap(), spec, habits)
    }

    /// As [`Self::on_host`]; processes differ by their keys.
    pub(crate) fn of_key(seed: u64, key: ProcessKey, spec: Arc<Spec>, habits: Habits) -> Self {
        let mut world = Self::empty(seed, key, spec.clone(), habits);
        world.assign(1, spec);
        world.pass(Duration::from_millis(5));
        world
    }

    fn empty(seed: u64, key: ProcessKey, spec: Arc<Spec>, habits: Habits) -> Self {
        Self {
            now: Time::since_boot(Duration::from_secs(1000)),
            habits,
            machine: Process::new(key, spec.clone(), seed),
            notices: Vec::new(),
            outcomes: BTreeMap::new(),
            launches: Vec::new(),
            history: Vec::new(),
            checks: Vec::new(),
            crash_after: None,
            seed,
            replaced: 0,
            spec,
            registered_at: 1,
            planned: 0,
            due: BTreeMap::new(),
            order: 0,
            agent: 0,
            life: None,
            born: Time::default(),
            by_hand: false,
            starts_by_hand: false,
            descendants: Vec::new(),
            elder: None,
            known_lives: BTreeSet::new(),
            next_pid: 100,
            named: 0,
            unreadable: false,
            killer_stuck: false,
            touched: None,
            rejoined: BTreeSet::new(),
            launch_commands: 0,
            commands: Vec::new(),
            foreground: None,
            ran: BTreeSet::new(),
            ran_commands: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            never: BTreeSet::new(),
            watched: Vec::new(),
            asked: None,
            disk: None,
            begun: BTreeMap::new(),
            requested: BTreeMap::new(),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.life.is_some()
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.life.as_ref().map(|life| life.pid)
    }

    pub(crate) fn outcome(&self, operation: OperationId) -> Option<&Outcome> {
        self.outcomes.get(&operation)
    }

    /// The process dies by a hand that is not ours.
    pub(crate) fn kill_outside(&mut self) {
        if let Some(life) = self.life.clone() {
            self.die(&life, Some(Exit::Signal(9)));
        }
    }

    /// As [`Self::kill_outside`], and the agent does not hear of it any more.
    pub(crate) fn kill_outside_unheard(&mut self) {
        self.watched.clear();
        self.kill_outside();
    }

    /// SIGKILL to the agent, and a new one on the same disk.
    pub(crate) fn crash_agent(&mut self, same_boot: bool) {
        self.crash_after = None;
        self.agent += 1;
        self.watched.clear();
        self.commands.retain(|command| command.proceeds);
        if !same_boot {
            self.life = None;
            self.descendants.clear();
            self.launch_commands = 0;
            self.commands.clear();
            self.foreground = None;
            self.due.clear();
        }
        let key = self.machine.key().clone();
        let unfinished = self.begun.values().find(|r| !self.outcomes.contains_key(&r.operation)).cloned();
        self.machine = match self.disk.clone() {
            Some(record) => Process::restore(self.now, key, record, same_boot, unfinished, self.seed),
            None => Process::new(key, self.spec.clone(), self.seed),
        };
        self.carry_out();
        // The control plane delivers again what has no outcome.
        let open: Vec<Request> =
            self.requested.values().filter(|r| !self.outcomes.contains_key(&r.operation)).cloned().collect();
        self.assign(self.registered_at, self.spec.clone());
        for request in open {
            if !self.machine.has_operation(&request.operation) && !self.outcomes.contains_key(&request.operation) {
                assert!(!self.begun.contains_key(&request.operation), "an operation that had begun runs again");
                self.feed(Event::Requested(request));
            }
        }
        for operation in self.cancelled.clone() {
            self.feed(Event::Cancelled { operation });
        }
    }

    /// Lets `duration` pass.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut idle_ticks = 0;
        loop {
            let next_due = self.due.keys().next().map(|(time, _)| *time);
            let next = [next_due, self.machine.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if next_due == Some(next) {
                let ((_, _), due) = self.due.pop_first().unwrap();
                self.happen(due);
            } else {
                self.feed(Event::Tick);
                let wants_again = self.machine.poll_timeout().is_some_and(|at| at <= self.now);
                idle_ticks = if wants_again { idle_ticks + 1 } else { 0 };
                assert!(idle_ticks < IDLE_TICKS_MAX, "the machine asks to be woken for nothing");
            }
        }
        self.now = end;
    }

    fn feed(&mut self, event: Event) {
        if let Some(life) = self.life.as_ref().filter(|life| self.watched.contains(life)) {
            self.machine.see_alive(life, self.now);
        }
        self.machine.handle(self.now, event);
        let reason = self.machine.reason();
        assert!(reason.is_empty() || reason.chinese().is_some(), "no Chinese for a reason: {reason}");
        self.carry_out();
    }

    fn later(&mut self, after_ms: u64, due: Due) {
        self.order += 1;
        self.due.insert((self.now + Duration::from_millis(after_ms), self.order), due);
    }

    fn tell(&mut self, after_ms: u64, event: Event) {
        let agent = self.agent;
        self.later(after_ms, Due::ToMachine { agent, event });
    }

    /// Record first, then act; a crash may come between any two actions.
    fn carry_out(&mut self) {
        if let Some(record) = self.machine.take_record() {
            self.disk = Some(record.clone());
        }
        let mut actions = Vec::new();
        while let Some(action) = self.machine.poll_action() {
            actions.push(action);
        }
        for action in &actions {
            match action {
                Action::Begin { operation, .. } => {
                    self.begun.insert(*operation, self.requested[operation].clone());
                }
                Action::Finish { operation, outcome } => {
                    let earlier = self.outcomes.insert(*operation, (**outcome).clone());
                    assert!(earlier.is_none(), "operation {operation} ended twice");
                    let kind = self.requested[operation].kind;
                    if matches!(kind, OperationKind::Stop | OperationKind::Kill) && outcome.code == Code::Success {
                        assert!(self.descendants.is_empty(), "a {kind} left something behind");
                    }
                    let is_wanted = match kind {
                        OperationKind::Manage => outcome.code == Code::Success,
                        OperationKind::Start => outcome.code == Code::AlreadyRunning,
                        OperationKind::Restart
                        | OperationKind::Stop
                        | OperationKind::Kill
                        | OperationKind::Reload
                        | OperationKind::Release
                        | OperationKind::Status => false,
                    };
                    if is_wanted {
                        self.touched = None;
                    }
                    self.history.push(Mark::Anew);
                }
                Action::Proceed { ticket } => self.note_wish(*ticket),
                Action::Probe { .. }
                | Action::DetachCommand { .. }
                | Action::ClearLeftovers { .. }
                | Action::CheckHealth { .. }
                | Action::Run { .. }
                | Action::KillCommand { .. }
                | Action::RejoinCommand { .. }
                | Action::Watch(_)
                | Action::Signal(..)
                | Action::KillTree(_)
                | Action::Notify(_) => {}
            }
        }
        for action in actions {
            if let Some(left) = &mut self.crash_after {
                if *left == 0 {
                    return self.crash_agent(true);
                }
                *left -= 1;
            }
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Probe { ticket, known, .. } => {
                let look = match &self.life {
                    life if self.unreadable && (life.is_none() || *life != known) => {
                        Probe::Unclear { reason: messages::pid_file_cannot_be_read(PID_PATH, "EIO"), named: None }
                    }
                    Some(life) => {
                        self.known_lives.insert(life.pid);
                        Probe::Running(life.clone())
                    }
                    None if self.named > 0 => {
                        let reason = messages::pid_does_not_run(self.named, PID_PATH);
                        Probe::Dead { pid: self.named, reason }
                    }
                    None => Probe::Absent(messages::no_pid_file(PID_PATH)),
                };
                self.tell(1, Event::Probed { ticket, look });
            }
            Action::Run { ticket, command, operation, timeout, .. } => {
                self.announce(ticket, command, operation.map(|(operation, _)| operation), timeout);
            }
            Action::Proceed { ticket } => self.proceed(ticket),
            Action::KillCommand { ticket } => self.end_command(ticket, CommandResult::Cancelled),
            Action::RejoinCommand { ticket, command, until, .. } => {
                self.rejoin(ticket, &command);
                let (agent, left) = (self.agent, until.since(self.now).as_millis());
                self.later(u64::try_from(left).unwrap(), Due::TimesOut { agent, ticket });
            }
            Action::Watch(life) => {
                if self.life.as_ref() == Some(&life) {
                    self.watched.push(life);
                } else {
                    self.tell(0, Event::Exited { life, exit: None, alive_at: None });
                }
            }
            Action::Signal(life, signal) => {
                assert!(self.known_lives.contains(&life.pid), "a signal to a foreign process");
                self.touch(life.pid, self.operation_under_way());
                match signal {
                    Signal::Terminate => self.fade(&life),
                    Signal::Kill => self.die(&life, Some(Exit::Signal(9))),
                }
            }
            Action::KillTree(life) => {
                assert!(self.known_lives.contains(&life.pid), "a kill of a foreign process");
                self.touch(life.pid, self.operation_under_way());
                if self.killer_stuck {
                    return;
                }
                let agent = self.agent;
                self.later(self.habits.kill_sent_after_ms, Due::Killed { agent, life });
            }
            Action::Notify(notice) => {
                if let Notice::Exceeded(_) = &notice {
                    self.history.push(Mark::Anew);
                }
                self.notices.push((self.now, notice));
            }
            Action::DetachCommand { ticket } => {
                self.detach(ticket);
            }
            Action::ClearLeftovers { ticket, remains, elder, .. } => {
                self.asked = Some((remains.clone(), elder.clone()));
                assert!(self.life.is_none() || self.watched.is_empty(), "a known life is swept away");
                if self.killer_stuck {
                    let reason = "it did not end in time".to_owned();
                    return self.tell(CLEAR_LIMIT_MS, Event::LeftoversNotCleared { ticket, reason });
                }
                if self.habits.cannot_clear {
                    let reason = "too many open files".to_owned();
                    return self.tell(5, Event::LeftoversNotCleared { ticket, reason });
                }
                let lives = |elder: &Elder| elder.life.is_some() && elder.life == self.life;
                let elders: Vec<Elder> = elder.iter().flat_map(|elder| elder.all().cloned()).collect();
                let over = elders.iter().take_while(|elder| !lives(elder)).map(|elder| elder.since);
                let since = remains.map(|remains| remains.since).into_iter().chain(over).min().unwrap_or(u64::MAX);
                let elder = Elder::of(elders.into_iter().skip_while(|elder| !lives(elder))).map(Box::new);
                let is_swept = |life: &mut Incarnation| life.start_ticks >= since;
                let mut ended = usize::from(!self.by_hand && self.life.take_if(is_swept).is_some());
                // All that the start left behind is in its cgroup, also what is still to show itself.
                let unborn = self.end_unborn();
                let descendants = self.end_descendants(since);
                ended += unborn + descendants;
                let left = if self.habits.children_resist { descendants } else { 0 };
                self.tell(5, Event::LeftoversCleared { ticket, ended, left, elder });
            }
            Action::CheckHealth { ticket, .. } => {
                self.checks.push(self.now);
                let postponed = || CommandExit { result: CommandResult::NoSlot, output: String::new() };
                let end = self.habits.health_exit.map_or_else(postponed, end_of);
                self.tell(self.habits.health_takes_ms, Event::HealthChecked { ticket, end });
            }
            Action::Begin { .. } | Action::Finish { .. } => {}
        }
    }

    /// Ends what a start command has brought and is still to show itself; how many.
    fn end_unborn(&mut self) -> usize {
        let before = self.due.len();
        self.due.retain(|_, due| !matches!(due, Due::Appears));
        let unborn = before - self.due.len();
        self.launch_commands -= u32::try_from(unborn).unwrap();
        if let Some(command) = self.foreground.take_if(|_| unborn > 0) {
            self.command_over(command, 1);
        }
        unborn
    }

    /// Kills what began at `since` or later; how many there were.
    fn end_descendants(&mut self, since: u64) -> usize {
        self.elder.take_if(|elder| *elder >= since);
        let found = self.descendants.iter().filter(|start| **start >= since).count();
        if !self.habits.children_resist {
            self.descendants.retain(|start| *start < since);
        }
        found
    }

    /// Something in the cgroup of the process that is older than all it was ever launched for: an earlier
    /// registration of its name still runs.
    pub(crate) fn add_elder(&mut self) {
        self.elder = Some(1);
    }

    pub(crate) fn has_elder(&self) -> bool {
        self.elder.is_some()
    }

    /// What the lives so far have forked and is still there.
    pub(crate) fn descendants(&self) -> usize {
        self.descendants.len()
    }

    fn next_life(&mut self) -> Incarnation {
        self.next_pid += 1;
        let start_ticks = u64::try_from(self.next_pid).unwrap();
        Incarnation { boot: BootId::from("b"), pid: self.next_pid, start_ticks, pidfd_inode: None }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::ToMachine { agent, event } if agent == self.agent => self.feed(event),
            Due::ToMachine { .. } => {}
            Due::Worked { command } => self.worked(command),
            Due::Appears => {
                self.launch_commands -= 1; // in the foreground it is the process from now on
                assert!(self.life.is_none(), "two copies");
                let life = self.next_life();
                self.named = life.pid;
                self.life = Some(life.clone());
                self.by_hand = std::mem::take(&mut self.starts_by_hand);
                for _ in 0..self.habits.children {
                    let child = self.next_life().start_ticks;
                    self.descendants.push(child);
                }
                self.born = self.now;
                if let Some(after) = self.habits.lives_ms {
                    self.later(after, Due::Dies(life, Some(Exit::Code(1))));
                }
            }
            Due::TimesOut { agent, ticket } if agent == self.agent => self.end_command(ticket, CommandResult::TimedOut),
            Due::TimesOut { .. } => {}
            Due::Killed { agent, life } if agent == self.agent && self.habits.kills_fail > 0 => {
                self.habits.kills_fail -= 1;
                self.feed(Event::TreeKilled { life, failed: Some("too many open files".to_owned()) });
            }
            Due::Killed { agent, life } if agent == self.agent => {
                self.later(self.habits.killed_after_ms, Due::Dies(life.clone(), Some(Exit::Signal(9))));
                self.feed(Event::TreeKilled { life, failed: None });
            }
            Due::Killed { .. } => {}
            Due::Dies(life, exit) => self.die(&life, exit),
        }
    }

    fn fade(&mut self, life: &Incarnation) {
        if let Some(after) = self.habits.dies_after_ms {
            self.later(after, Due::Dies(life.clone(), Some(Exit::Signal(15))));
        }
    }

    fn die(&mut self, life: &Incarnation, exit: Option<Exit>) {
        if self.life.as_ref() == Some(life) {
            self.life = None;
            if let Some(command) = self.foreground.take() {
                self.command_over(command, 1);
            }
            if self.now.since(self.born) >= Duration::from_secs(59) {
                self.history.push(Mark::Anew);
            }
            if self.watched.contains(life) {
                self.watched.retain(|watched| watched != life);
                let alive_at = Some(self.now);
                self.tell(0, Event::Exited { life: life.clone(), exit, alive_at });
            }
        }
    }
}
