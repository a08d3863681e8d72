//! What is under way for a process, and until when.

use std::time::Duration;

use proctor_model::{Code, Incarnation, Message};

use super::CommandKind;
use crate::Time;

/// Exactly one of these at any time. Whether an operation or supervision is behind it is told by
/// `Process::current`.
#[derive(Debug)]
pub(super) enum Activity {
    /// Nothing; the record's life tells whether it runs.
    Idle,
    /// Dead and managed: the next start is due at `at`.
    Backoff { at: Time },
    /// A look decides how to go on.
    Probing,
    /// The start or restart command runs; the life that comes must not be `old`.
    Launching {
        old: Option<Incarnation>,
        /// The next look, when none is on its way: the command may be the process itself.
        next: Option<Time>,
        /// Grows from look to look.
        pause: Duration,
        /// Since when the new life is there.
        since: Option<Time>,
    },
    /// The command has ended; a life other than `old` must show until `until`.
    WaitingForPid {
        old: Option<Incarnation>,
        until: Time,
        /// The next look, when none is on its way.
        next: Option<Time>,
        /// Grows from look to look.
        pause: Duration,
        plan: ProbePlan,
    },
    /// What an earlier life or a failed start has left behind is being ended; `next` comes after it.
    ClearingLeftovers { next: AfterLeftovers },
    /// Something was ended before a start, which took its time: what is there by now is looked at once more.
    LookingAgain { command: CommandKind, timeout: Duration },
    /// An operation's start: alive, and must be so until `until`. `first` is the first check; without a second
    /// one it is `until`.
    StartCheck { first: Time, until: Time },
    /// The stop or kill command runs.
    Stopping { life: Incarnation },
    /// The life must be over at `until`.
    WaitingForExit { life: Incarnation, until: Time, fallback: Fallback },
    /// The reload command runs.
    Reloading { life: Incarnation },
}

/// What goes on when nothing of an earlier life is left.
#[derive(Debug)]
pub(super) enum AfterLeftovers {
    /// The start or restart command runs, for at most so long.
    Launch { command: CommandKind, old: Option<Incarnation>, timeout: Duration },
    /// The start has failed with this.
    LaunchFailed(Failure),
    /// A stop, kill or the first half of a restart has reached its goal.
    Stopped,
    /// There was nothing to stop or kill.
    NotRunning(Failure),
    /// Supervision has ended a life that it wants back.
    Evicted,
    /// A life has ended that an operator's stop or kill had failed on.
    Swept,
}

/// How the search for a life goes on when a look finds none.
#[derive(Debug)]
pub(super) enum ProbePlan {
    /// Looks again until its time is over.
    Retry,
    /// It was there and is gone: one look, and that is that.
    LastProbe,
    /// The command failed: this is the outcome, whatever the one look finds; a life that is there
    /// all the same is adopted, so that nobody starts a second one.
    ReportFailure(Failure),
}

/// What happens when a life is not over in time.
#[derive(Debug)]
pub(super) enum Fallback {
    /// The operation fails with this.
    Fail(Failure),
    /// SIGKILL to the whole tree, then a last wait.
    KillTree,
    /// SIGKILL was asked for and is not known to be sent. Where it has failed for a reason, it is asked for once more.
    Unsent { failed: Option<String>, is_first: bool },
}

impl Activity {
    pub(super) fn timeout(&self) -> Option<Time> {
        match self {
            Self::Backoff { at } => Some(*at),
            Self::WaitingForPid { next, .. } | Self::Launching { next, .. } => *next,
            Self::StartCheck { until, .. } | Self::WaitingForExit { until, .. } => Some(*until),
            // These end with an answer of the host, which bounds every look and command.
            Self::Idle
            | Self::Probing
            | Self::ClearingLeftovers { .. }
            | Self::LookingAgain { .. }
            | Self::Stopping { .. }
            | Self::Reloading { .. } => None,
        }
    }
}

/// Why supervision ends a life that it wants back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionReason {
    /// Resources: it comes back later each time.
    OverLimit,
    /// The restart policy decides, as after any abnormal end.
    Unhealthy,
}

/// An unhappy end in the making.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) message: Message,
}

impl Failure {
    pub(super) fn new(code: Code, message: Message) -> Self {
        Self { code, message }
    }
}
