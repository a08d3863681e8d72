//! Cancelling an operation.
//!
//! Promised: what has not begun never runs; if it has begun, the running command is ended with its tree, nothing
//! further is done, and the message says what had been done; management stays as it was. A life that a stop or kill
//! has touched is not restarted after its end. Absent: undoing.

use proctor_model::{Code, Exit, Message, OperationId, Outcome, messages};

use super::activity::{Activity, AfterLeftovers, Failure, ProbePlan};
use super::launch::FIRST_PAUSE;
use super::preempt::CutShort;
use super::{Action, Process};
use crate::Time;

impl Process {
    /// An operation that is not here has finished, or never existed.
    pub(super) fn cancel(&mut self, now: Time, operation: OperationId) {
        let waiting = self.queue.len() + self.queue_of_next.len();
        for queue in [&mut self.queue, &mut self.queue_of_next] {
            queue.retain(|request| request.operation != operation);
        }
        if self.queue.len() + self.queue_of_next.len() < waiting {
            let outcome = Box::new(Outcome::new(Code::Cancelled, messages::cancelled_before(), self.record.managed));
            self.actions.push_back(Action::Finish { operation, outcome });
            return self.forget_ended_run();
        }
        let Some(current) = self.current.as_mut().filter(|current| current.request.operation == operation) else {
            return;
        };
        if !current.begun {
            self.looks += 1; // what the look sees is of no more use
            self.forget_ended_run();
            return self.fail(now, Code::Cancelled, messages::cancelled_before());
        }
        current.cut_short = Some(CutShort::Cancelled);
        self.cut_begun(now);
    }

    /// Cuts short what is in progress for an operation.
    pub(super) fn cut_begun(&mut self, now: Time) {
        match std::mem::replace(&mut self.work, Activity::Idle) {
            running @ (Activity::Launching { .. } | Activity::Stopping { .. } | Activity::Reloading { .. }) => {
                self.work = running;
                self.actions.push_back(Action::KillCommand { ticket: self.commands });
            }
            // One probe, so that an existing process is known.
            Activity::WaitingForPid { old, .. } => {
                self.probe_again(old, now, FIRST_PAUSE, ProbePlan::ReportFailure(self.cut_failure(messages::start())))
            }
            Activity::StartCheck { .. } => {
                let failure = self.cut_failure(messages::start());
                self.fail(now, failure.code, failure.message);
            }
            Activity::WaitingForExit { .. } => {
                let failure = self.cut_failure(messages::stop());
                self.dirty |= self.record.launch.take().is_some();
                self.fail(now, failure.code, failure.message);
            }
            // It fails in a moment by itself; what is to start after the clearing does not start.
            Activity::ClearingLeftovers { next: AfterLeftovers::LaunchFailed(failure) } => {
                let cut = self.cut_failure(messages::start());
                let message = messages::after_a_failure(cut.message, failure.message);
                let next = AfterLeftovers::LaunchFailed(Failure::new(cut.code, message));
                self.work = Activity::ClearingLeftovers { next };
            }
            clearing @ (Activity::ClearingLeftovers { .. } | Activity::LookingAgain { .. }) => self.work = clearing,
            // After a restart of the agent: the probe decides what there is to end.
            other @ (Activity::Idle | Activity::Backoff { .. } | Activity::Probing) => self.work = other,
        }
    }

    /// After a restart of the agent an operation continues where it was; one that was cut short ends.
    pub(super) fn cut_resumed(&mut self, now: Time) {
        if self.is_cut_short() {
            self.cut_begun(now);
        }
    }

    pub(super) fn is_cut_short(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.cut_short.is_some())
    }

    /// For people: how far it had come.
    pub(super) fn cut_failure(&self, step: Message) -> Failure {
        let kind = self.current.as_ref().map_or_else(|| step.clone(), |current| current.request.kind.message());
        let state = match (&self.record.life, self.last_exit) {
            (Some(life), _) => messages::process_runs(life.pid),
            (None, Some(Exit::Code(0))) | (None, None) => messages::no_process_runs(),
            (None, Some(exit)) => messages::no_process_runs_after(exit.message()),
        };
        match self.current.as_ref().and_then(|current| current.cut_short) {
            Some(CutShort::Overridden { by }) => {
                Failure::new(Code::CommandFailed, messages::interrupted_during(kind, by.message(), step, state))
            }
            Some(CutShort::Cancelled) | None => {
                Failure::new(Code::Cancelled, messages::cancelled_during(kind, step, state))
            }
        }
    }
}
