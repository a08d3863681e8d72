//! Inputs and outputs of the machine of a process.

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{
    CommandExit, CommandLine, CommandResult, Exit, Incarnation, Leftovers, Message, OperationId, OperationKind,
    Outcome, PoolId, Probe, ProcessKey, ProcessSession, Signal, Spec,
};
use serde::{Deserialize, Serialize};

use super::{Elder, QUEUE_RESERVE};
use crate::Time;
use crate::limit::Breach;

/// Numbers the commands and probes of one process, so that a late answer to an older one is not taken for the
/// answer to the newest.
pub type Ticket = u64;

/// An operation, as it reaches the machine. Status queries never do: they change nothing.
#[derive(Clone, Debug)]
pub struct Request {
    pub operation: OperationId,
    pub kind: OperationKind,
    /// The spec that came with it.
    pub spec: Option<Arc<Spec>>,
    /// It must not begin after this time.
    pub expires: Time,
}

impl Request {
    /// How many more of this kind may be queued than of others.
    pub fn reserve(&self) -> usize {
        match self.kind {
            OperationKind::Stop | OperationKind::Kill | OperationKind::Release => QUEUE_RESERVE,
            OperationKind::Start
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Manage
            | OperationKind::Status => 0,
        }
    }
}

/// What the world reports to the machine.
#[derive(Clone, Debug)]
pub enum Event {
    Requested(Request),
    /// The operation is no longer wanted.
    Cancelled {
        operation: OperationId,
    },
    /// The control plane's registration; `managed` says to manage it from now on.
    Assigned {
        spec: Arc<Spec>,
        managed: bool,
        registered_at: i64,
    },
    /// No longer registered: released, and it keeps running.
    Unregistered,
    Probed {
        ticket: Ticket,
        look: Probe,
    },
    /// The command of this ticket exists and waits for [`Action::Proceed`] before it does anything.
    CommandBegun {
        ticket: Ticket,
        command: Incarnation,
    },
    CommandEnded {
        ticket: Ticket,
        end: CommandExit,
        /// When the command was last proven to hold its pid.
        alive_at: Option<Time>,
    },
    /// Leftovers were ended: how many, and how many survived SIGKILL. What an elder left behind is not touched
    /// while it, or a later one, lives: these are `elder`.
    LeftoversCleared {
        ticket: Ticket,
        ended: usize,
        left: usize,
        elder: Option<Box<Elder>>,
    },
    /// Leftovers could not be looked for, or not be ended: there may be some.
    LeftoversNotCleared {
        ticket: Ticket,
        reason: String,
    },
    /// The health command ended.
    HealthChecked {
        ticket: Ticket,
        end: CommandExit,
    },
    /// The signals of [`Action::KillTree`] for that life were sent; or why not.
    TreeKilled {
        life: Incarnation,
        failed: Option<String>,
    },
    /// The current life is in this session, which it does not lead.
    SharesSession {
        life: Incarnation,
        session: ProcessSession,
    },
    /// A watched life is over.
    Exited {
        life: Incarnation,
        exit: Option<Exit>,
        /// When it was last proven to hold its pid. Whoever reports the exit may have slept for long since.
        alive_at: Option<Time>,
    },
    /// The operation could not be recorded, so nothing of it was done.
    Refused {
        operation: OperationId,
        reason: Message,
    },
    /// Another probe (a status query) saw this.
    Observed(Probe),
    /// The life exceeds its limit, or that of its pool.
    Exceeded(LimitBreach),
    /// A scheduled run of a periodic process is due, for this planned time (Unix seconds); a cycle is counted in
    /// time since boot.
    RunDue {
        planned: i64,
        since_boot: Option<Time>,
    },
    Tick,
}

/// A breach, and whose limit it is.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitBreach {
    /// The life that was measured: a later one is innocent.
    pub life: Incarnation,
    pub breach: Breach,
    /// The pool whose limit it is; None: its own.
    pub pool: Option<PoolBreach>,
}

/// A decision of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolBreach {
    pub id: PoolId,
    /// The candidates, for people.
    pub ranking: String,
    /// Who would be ended after this one.
    pub next: Option<ProcessKey>,
}

/// What the machine wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Probe {
        ticket: Ticket,
        spec: Arc<Spec>,
        known: Option<Incarnation>,
    },
    Run {
        ticket: Ticket,
        command: CommandKind,
        line: CommandLine,
        spec: Arc<Spec>,
        timeout: Duration,
        /// The operation that wants it, and until when it may wait for a command slot of the host. None:
        /// supervision wants it, and asks again.
        operation: Option<(OperationId, Time)>,
    },
    /// The command of this ticket is on disk: it may run.
    Proceed {
        ticket: Ticket,
    },
    /// The command of this ticket is no longer wanted: kill it with its tree. Its exit is awaited.
    KillCommand {
        ticket: Ticket,
    },
    /// A command of the previous agent: wait for its exit, and kill it at its timeout.
    RejoinCommand {
        ticket: Ticket,
        command: Incarnation,
        kind: CommandKind,
        until: Time,
    },
    /// The command of this ticket is the process itself, in the foreground: no longer wait for its exit, nor
    /// enforce its timeout.
    DetachCommand {
        ticket: Ticket,
    },
    /// Run the health command, beside whatever else runs.
    CheckHealth {
        ticket: Ticket,
        line: CommandLine,
        spec: Arc<Spec>,
        timeout: Duration,
    },
    Watch(Incarnation),
    Signal(Incarnation, Signal),
    /// Answered by [`Event::TreeKilled`]: many kills may be waiting for their turn.
    KillTree(Incarnation),
    /// End the leftovers of an earlier life or a failed start: SIGTERM, and SIGKILL after `grace`. Nothing known as
    /// the process runs, and nothing is started before the answer. What `elder` left behind is ended too, unless it
    /// still lives.
    ClearLeftovers {
        ticket: Ticket,
        remains: Option<Leftovers>,
        elder: Option<Box<Elder>>,
        grace: Duration,
    },
    /// The operation begins to have effects: must be on disk before the next action is carried out.
    Begin {
        operation: OperationId,
        kind: OperationKind,
    },
    Finish {
        operation: OperationId,
        outcome: Box<Outcome>,
    },
    Notify(Notice),
}

impl Action {
    /// Whether it cannot be undone: everything that led to it must be on disk.
    pub fn is_irreversible(&self) -> bool {
        match self {
            Self::Begin { .. }
            | Self::Proceed { .. }
            | Self::KillCommand { .. }
            | Self::Signal(..)
            | Self::KillTree(_)
            | Self::Finish { .. } => true,
            Self::Probe { .. }
            | Self::Run { .. }
            | Self::RejoinCommand { .. }
            | Self::DetachCommand { .. }
            | Self::CheckHealth { .. }
            // An operation's comes after its Begin; what supervision clears is found again after a crash.
            | Self::ClearLeftovers { .. }
            | Self::Watch(_)
            | Self::Notify(_) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    Start,
    Stop,
    Restart,
    Reload,
    Kill,
}

impl CommandKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Reload => "reload",
            Self::Kill => "kill",
        }
    }
}

/// The result of the health command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    Healthy,
    Unhealthy,
    /// The command could not be run, so nothing is known about the process.
    CannotRun,
}

impl HealthState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::CannotRun => "cannot_run",
        }
    }
}

/// What people may want to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// One of our commands started it.
    Started {
        life: Incarnation,
    },
    /// It was found running.
    Adopted {
        life: Incarnation,
    },
    /// Its pid file names another process now.
    PidChanged {
        old: Incarnation,
        new: Incarnation,
    },
    Exited {
        life: Incarnation,
        exit: Option<Exit>,
    },
    RestartSucceeded {
        attempt: u32,
    },
    RestartFailed {
        attempt: u32,
        reason: Message,
    },
    /// The last retry failed: no longer managed.
    GaveUp {
        attempts: u32,
        reason: Message,
    },
    /// It is evicted and comes back later.
    Exceeded(LimitBreach),
    HealthChanged {
        state: HealthState,
        reason: Message,
    },
    /// A scheduled run has ended.
    RunEnded {
        result: CommandResult,
    },
    /// A scheduled run could not begin before the next one was due.
    RunMissed {
        planned: i64,
        reason: Message,
    },
}
