//! What goes into the machine of a process, and what comes out.

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

/// Numbers the commands and looks of one process, so that a late answer to an older question is
/// told from the answer to the newest.
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
    /// How many more of its kind may wait than of others.
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

/// What the world tells the machine.
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
    /// No longer registered: released, and it lives on.
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
    /// What was left behind is ended: how many that were, and how many are there after SIGKILL. What an
    /// elder left behind is not touched while it, or one after it, lives: these are `elder`.
    LeftoversCleared {
        ticket: Ticket,
        ended: usize,
        left: usize,
        elder: Option<Box<Elder>>,
    },
    /// What was left behind could not be looked for, or not be ended: it may be there.
    LeftoversNotCleared {
        ticket: Ticket,
        reason: String,
    },
    /// The health command ended.
    HealthChecked {
        ticket: Ticket,
        end: CommandExit,
    },
    /// The signals of [`Action::KillTree`] for that life are sent; or the reason why they are not.
    TreeKilled {
        life: Incarnation,
        failed: Option<String>,
    },
    /// The present life is in this session, which it does not lead.
    SharesSession {
        life: Incarnation,
        session: ProcessSession,
    },
    /// A watched life is over.
    Exited {
        life: Incarnation,
        exit: Option<Exit>,
        /// When it was last proven to hold its pid. Who hears of the end may have slept for long since.
        alive_at: Option<Time>,
    },
    /// The operation could not be recorded, so nothing of it was done.
    Refused {
        operation: OperationId,
        reason: Message,
    },
    /// Somebody else looked (a status query) and saw this.
    Observed(Probe),
    /// The life uses more than it may, or more than its pool can bear.
    Exceeded(LimitBreach),
    /// The schedule says that a periodic process runs now, for this planned time (Unix seconds); a cycle
    /// is counted in time since boot.
    RunDue {
        planned: i64,
        since_boot: Option<Time>,
    },
    Tick,
}

/// Too much of something, and who says so.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitBreach {
    /// The life that was measured: a later one is innocent.
    pub life: Incarnation,
    pub breach: Breach,
    /// The pool whose limit it is; None: its own.
    pub pool: Option<PoolBreach>,
}

/// What a pool has decided.
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
        /// The operation that wants it, and until when it may wait for its turn among the commands of
        /// the host. None: supervision does, and asks again.
        operation: Option<(OperationId, Time)>,
    },
    /// The command of this ticket is on disk: it may run.
    Proceed {
        ticket: Ticket,
    },
    /// The command of this ticket is no longer wanted: end it with its tree. Its end is awaited.
    KillCommand {
        ticket: Ticket,
    },
    /// A command of the agent before this one: wait for its end, and end it when its time is over.
    RejoinCommand {
        ticket: Ticket,
        command: Incarnation,
        kind: CommandKind,
        until: Time,
    },
    /// The command of this ticket is the process itself, in the foreground: no longer wait for its
    /// end, nor end it when its time is over.
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
    /// End what an earlier life or a failed start has left behind: SIGTERM, and SIGKILL after `grace`.
    /// Nothing that is known as the process runs, and nothing is started before the answer. What `elder` left
    /// behind goes with it, unless that still lives.
    ClearLeftovers {
        ticket: Ticket,
        remains: Option<Leftovers>,
        elder: Option<Box<Elder>>,
        grace: Duration,
    },
    /// The operation begins to have effects: to be on disk before the next action is carried out.
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
    /// Whether it cannot be undone: it must find everything on disk that led to it.
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

/// What the health command says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    Healthy,
    Unhealthy,
    /// The command could not be run, so nothing is known of the process.
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

/// What people may want to hear of.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// A command of ours brought it to life.
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
    /// It is ended for its use of resources and comes back later.
    Exceeded(LimitBreach),
    HealthChanged {
        state: HealthState,
        reason: Message,
    },
    /// A run by schedule has ended.
    RunEnded {
        result: CommandResult,
    },
    /// A run by schedule could not begin before it was too late for it.
    RunMissed {
        planned: i64,
        reason: Message,
    },
}
