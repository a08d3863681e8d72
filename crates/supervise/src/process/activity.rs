//! What is in progress for a process, and until when.

use std::time::Duration;

use proctor_model::{Code, Incarnation, Message};

use super::CommandKind;
use crate::Time;

/// Exactly one of these at any time. `Process::current` tells whether an operation or supervision is behind it.
#[derive(Debug)]
pub(super) enum Activity {
    /// Nothing; the record's life tells whether it runs.
    Idle,
    /// Dead and managed: the next start is due at `at`.
    Backoff { at: Time },
    /// A probe decides how to continue.
    Probing,
    /// The start or restart command runs; the resulting life must not be `old`.
    Launching {
        old: Option<Incarnation>,
        /// The next probe, if none is in progress: the command may be the process itself.
        next: Option<Time>,
        /// Grows from probe to probe.
        pause: Duration,
        /// Since when the new life is there.
        since: Option<Time>,
    },
    /// The command has exited; a life other than `old` must appear until `until`.
    WaitingForPid {
        old: Option<Incarnation>,
        until: Time,
        /// The next probe, if none is in progress.
        next: Option<Time>,
        /// Grows from probe to probe.
        pause: Duration,
        plan: ProbePlan,
    },
    /// Leftovers of an earlier life or a failed start are being ended; `next` comes after that.
    ClearingLeftovers { next: AfterLeftovers },
    /// Something was ended before a start, which took time: the process is probed once more.
    LookingAgain { command: CommandKind, timeout: Duration },
    /// An operation's start: alive, and must stay so until `until`. `first` is the first check; without a second
    /// one it is `until`.
    StartCheck { first: Time, until: Time },
    /// The stop or kill command runs.
    Stopping { life: Incarnation },
    /// The life must have ended by `until`.
    WaitingForExit { life: Incarnation, until: Time, fallback: Fallback },
    /// The reload command runs.
    Reloading { life: Incarnation },
}

/// What comes next once there are no leftovers.
#[derive(Debug)]
pub(super) enum AfterLeftovers {
    /// The start or restart command runs, for at most this long.
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

/// What to do if a probe finds no life.
#[derive(Debug)]
pub(super) enum ProbePlan {
    /// Probe again until its time is over.
    Retry,
    /// It was there and is gone: probe once more, and stop.
    LastProbe,
    /// The command failed: this is the outcome, whatever the probe finds; a life that is there all the same is
    /// adopted, so that nobody starts a second one.
    ReportFailure(Failure),
}

/// What to do if a life has not ended in time.
#[derive(Debug)]
pub(super) enum Fallback {
    /// The operation fails with this.
    Fail(Failure),
    /// SIGKILL to the whole tree, then a last wait.
    KillTree,
    /// SIGKILL was requested but is not known to be sent. If it failed, it is requested once more.
    Unsent { failed: Option<String>, is_first: bool },
}

impl Activity {
    pub(super) fn timeout(&self) -> Option<Time> {
        match self {
            Self::Backoff { at } => Some(*at),
            Self::WaitingForPid { next, .. } | Self::Launching { next, .. } => *next,
            Self::StartCheck { until, .. } | Self::WaitingForExit { until, .. } => Some(*until),
            // These end with an answer of the host, which bounds every probe and command.
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
    /// The restart policy decides, as after any abnormal exit.
    Unhealthy,
}

/// A failure in the making.
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
