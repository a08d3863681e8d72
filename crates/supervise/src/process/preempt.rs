//! Operators come first: supervision gives way to their operations.
//!
//! Promised: manage and release take effect at once, whatever supervision is doing, unless something that changes
//! the same is queued. A release ends the start command of a relaunch; a life that is being evicted or ended as
//! unhealthy is spared if nothing has been done to it yet, and if not the answer says so. A scheduled run
//! continues. A stop, kill or restart ends the start command of a relaunch or a scheduled run or, if the process
//! itself is already known, no longer waits for it, whatever is queued before it.
//!
//! Operations are carried out in order. But a start, restart or reload that takes longer than
//! [`GIVES_WAY_AFTER`] (and its checks, at most [`CHECKS_MAX`]) gives way to a stop or kill, and a stop to a kill:
//! it ends as interrupted. Absent: giving way to anything else.

use std::time::Duration;

use proctor_model::{Code, Message, OperationKind, Outcome, messages};

use super::activity::{Activity, EvictionReason};
use super::{Action, Process, Request};
use crate::Time;

/// An operation that has been in progress for this long gives way to a stop or kill. Most commands have exited by
/// then, and a start followed by a stop gets both.
const GIVES_WAY_AFTER: Duration = Duration::from_secs(5);
/// Additional time for the checks after a start.
const CHECKS_MAX: Duration = Duration::from_secs(10);

/// Why an operation ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutShort {
    Cancelled,
    /// An operation that came later cannot wait.
    Overridden {
        by: OperationKind,
    },
}

impl Process {
    /// Answers an operation that need not wait for what supervision is doing. None: it was answered.
    pub(super) fn apply_immediately(&mut self, now: Time, request: Request) -> Option<Request> {
        if request.expires <= now {
            return Some(request);
        }
        // A waiting registration is what the operation is meant for.
        if let Some(next) = &mut self.record.next {
            if request.kind != OperationKind::Release || !self.queue_of_next.is_empty() {
                return Some(request);
            }
            self.dirty |= std::mem::take(&mut next.managed);
            let outcome = Box::new(Outcome::success(false));
            self.actions.push_back(Action::Finish { operation: request.operation, outcome });
            return None;
        }
        let goes_first = match request.kind {
            OperationKind::Release => !self.queue.iter().any(|waiting| manages(waiting.kind)),
            OperationKind::Manage
            | OperationKind::Start
            | OperationKind::Stop
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Kill
            | OperationKind::Status => self.queue.is_empty(),
        };
        if self.current.is_some() || !goes_first || matches!(self.work, Activity::Idle | Activity::Backoff { .. }) {
            return Some(request);
        }
        let is_run = self.scheduled && matches!(self.work, Activity::Launching { .. });
        let outcome = match request.kind {
            OperationKind::Manage => {
                self.manage();
                Outcome::success(true)
            }
            OperationKind::Release => {
                let mut outcome = Outcome::success(false);
                if let Some(told) = self.let_go() {
                    outcome.message = told;
                }
                outcome
            }
            OperationKind::Start if is_run && self.record.life.is_none() => {
                Outcome::new(Code::AlreadyRunning, messages::scheduled_run_under_way(), self.record.managed)
            }
            // A run may take a day, and it is unclear which process to reload.
            OperationKind::Reload if is_run && self.record.life.is_none() => {
                let message = messages::nothing_was_done(request.kind, messages::scheduled_run_under_way());
                Outcome::new(Code::CommandFailed, message, self.record.managed)
            }
            OperationKind::Start
            | OperationKind::Stop
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Kill
            | OperationKind::Status => return Some(request),
        };
        self.actions.push_back(Action::Finish { operation: request.operation, outcome: Box::new(outcome) });
        None
    }

    /// Releases the process in the middle of what supervision is doing; returns what people must know about that.
    pub(super) fn let_go(&mut self) -> Option<Message> {
        self.release();
        if self.current.is_some() {
            return None;
        }
        match &self.work {
            Activity::Launching { .. } if !self.scheduled && self.record.life.is_none() => {
                self.actions.push_back(Action::KillCommand { ticket: self.commands });
                None
            }
            // Its stop command has not begun.
            Activity::Stopping { .. } if self.evicting.is_some() && self.announced.take().is_some() => {
                self.actions.push_back(Action::KillCommand { ticket: self.commands });
                self.commands += 1;
                self.evicting = None;
                self.work = Activity::Idle;
                None
            }
            Activity::Idle
            | Activity::Backoff { .. }
            | Activity::Probing
            | Activity::Launching { .. }
            | Activity::WaitingForPid { .. }
            | Activity::ClearingLeftovers { .. }
            | Activity::LookingAgain { .. }
            | Activity::StartCheck { .. }
            | Activity::Stopping { .. }
            | Activity::WaitingForExit { .. }
            | Activity::Reloading { .. } => {
                let note = match self.evicting? {
                    EvictionReason::OverLimit => messages::released_while_evicted(),
                    EvictionReason::Unhealthy => messages::released_while_unhealthy(),
                };
                Some(messages::success_but(note))
            }
        }
    }

    /// When the current operation gives way to a queued one. None: it need not.
    pub(super) fn gives_way_at(&self) -> Option<Time> {
        let current = self.current.as_ref().filter(|current| current.cut_short.is_none())?;
        let checks = match &self.work {
            Activity::WaitingForPid { .. } | Activity::StartCheck { .. } => {
                current.spec.policy.last_start_check().duration()
            }
            Activity::Idle
            | Activity::Backoff { .. }
            | Activity::Probing
            | Activity::Launching { .. }
            | Activity::ClearingLeftovers { .. }
            | Activity::LookingAgain { .. }
            | Activity::Stopping { .. }
            | Activity::WaitingForExit { .. }
            | Activity::Reloading { .. } => Duration::ZERO,
        };
        let at = current.since + GIVES_WAY_AFTER + checks.min(CHECKS_MAX);
        self.queue.iter().any(|later| overrides(later.kind, current.request.kind) && later.expires > at).then_some(at)
    }

    pub(super) fn give_way(&mut self, now: Time) {
        let Some(current) = &mut self.current else { return };
        let kind = current.request.kind;
        let Some(by) = self.queue.iter().map(|later| later.kind).find(|later| overrides(*later, kind)) else { return };
        current.cut_short = Some(CutShort::Overridden { by });
        if !current.begun {
            self.looks += 1; // what the look sees is of no more use
            let message = messages::interrupted_before(by.message());
            return self.fail(now, Code::CommandFailed, message);
        }
        match &self.work {
            // The process is known, so that the later operation can be about it.
            Activity::Launching { since: Some(_), .. } if self.record.life.is_some() => {
                let failure = self.cut_failure(messages::start_command());
                self.detach_command();
                self.fail(now, failure.code, failure.message);
            }
            Activity::Idle
            | Activity::Backoff { .. }
            | Activity::Probing
            | Activity::Launching { .. }
            | Activity::WaitingForPid { .. }
            | Activity::ClearingLeftovers { .. }
            | Activity::LookingAgain { .. }
            | Activity::StartCheck { .. }
            | Activity::Stopping { .. }
            | Activity::WaitingForExit { .. }
            | Activity::Reloading { .. } => self.cut_begun(now),
        }
    }

    /// Supervision goes on with a command of the agent before this one: what was asked for meanwhile does not wait
    /// for its end.
    pub(super) fn request_again(&mut self, now: Time) {
        for request in std::mem::take(&mut self.queue) {
            self.request(now, request);
        }
    }

    /// Makes supervision give way to an operation that has just been queued, wherever in the queue.
    pub(super) fn preempt(&mut self, now: Time, kind: OperationKind) {
        let ends = match kind {
            OperationKind::Stop | OperationKind::Kill | OperationKind::Restart => true,
            OperationKind::Release => !self.scheduled && self.record.life.is_none(),
            OperationKind::Manage | OperationKind::Start | OperationKind::Reload | OperationKind::Status => false,
        };
        if self.current.is_some() || !ends {
            return;
        }
        match &self.work {
            Activity::WaitingForPid { .. } => self.shorten_wait(now),
            Activity::Launching { .. } if self.record.life.is_some() => self.leave_command(now),
            Activity::Launching { .. } => {
                self.run_ended_by_hand = self.scheduled;
                self.actions.push_back(Action::KillCommand { ticket: self.commands });
            }
            Activity::Stopping { life } | Activity::WaitingForExit { life, .. } if kind == OperationKind::Kill => {
                let life = life.clone();
                self.commands += 1; // the stop command's end is no longer waited for
                self.dirty |= self.record.running.take().is_some();
                self.kill_tree(now, life);
            }
            Activity::Idle
            | Activity::Backoff { .. }
            | Activity::Probing
            | Activity::ClearingLeftovers { .. }
            | Activity::LookingAgain { .. }
            | Activity::StartCheck { .. }
            | Activity::Stopping { .. }
            | Activity::WaitingForExit { .. }
            | Activity::Reloading { .. } => {}
        }
    }

    /// A queued operation is not carried out: if no other wants the end of the scheduled run, it reaches nobody's
    /// goal.
    pub(super) fn forget_ended_run(&mut self) {
        let is_for_end =
            |later: &Request| matches!(later.kind, OperationKind::Stop | OperationKind::Kill | OperationKind::Restart);
        self.run_ended_by_hand &= self.queue.iter().any(is_for_end);
    }

    /// The process is known, so that the operation can be about it; the command ends with it.
    fn leave_command(&mut self, now: Time) {
        self.detach_command();
        self.work = Activity::Idle;
        self.become_idle(now);
    }

    pub(super) fn detach_command(&mut self) {
        self.actions.push_back(Action::DetachCommand { ticket: self.commands });
        self.commands += 1;
        self.record.running = None;
        self.record.launch = None;
        self.dirty = true;
        self.scheduled = false;
        self.announced = None;
    }
}

/// Whether a process is managed after such an operation.
fn manages(kind: OperationKind) -> bool {
    match kind {
        OperationKind::Start | OperationKind::Restart | OperationKind::Manage => true,
        OperationKind::Stop
        | OperationKind::Reload
        | OperationKind::Kill
        | OperationKind::Release
        | OperationKind::Status => false,
    }
}

/// Whether an operation that comes later need not wait for the end of one that takes long.
fn overrides(later: OperationKind, current: OperationKind) -> bool {
    match (later, current) {
        (
            OperationKind::Stop | OperationKind::Kill,
            OperationKind::Start | OperationKind::Restart | OperationKind::Reload,
        )
        | (OperationKind::Kill, OperationKind::Stop) => true,
        (
            OperationKind::Start
            | OperationKind::Stop
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Kill
            | OperationKind::Manage
            | OperationKind::Release
            | OperationKind::Status,
            _,
        ) => false,
    }
}
