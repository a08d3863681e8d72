//! An operator's word comes first: what supervision is about gives way to it.
//!
//! Promised: manage and release take effect at once, whatever supervision is doing; a stop, kill or restart
//! ends the start command of a relaunch or a scheduled run, or, where the process itself is known already,
//! no longer waits for it. Absent: giving way to an operation that came earlier. Those are carried out in
//! order.

use proctor_model::{Code, OperationKind, Outcome};

use super::work::Work;
use super::{Action, Process, Request};
use crate::Time;

impl Process {
    /// Answers an operation that need not wait for what supervision is doing. None: it is answered.
    pub(super) fn answer_at_once(&mut self, now: Time, request: Request) -> Option<Request> {
        let is_supervision = self.current.is_none() && self.queue.is_empty();
        if !is_supervision || matches!(self.work, Work::Rest | Work::Wait { .. }) || request.expires <= now {
            return Some(request);
        }
        let is_run = self.scheduled && matches!(self.work, Work::Launch { .. });
        let outcome = match request.kind {
            OperationKind::Manage => {
                self.manage();
                Outcome::success(true)
            }
            OperationKind::Release => {
                self.release();
                Outcome::success(false)
            }
            OperationKind::Start if is_run && self.record.life.is_none() => {
                Outcome::new(Code::AlreadyRunning, "a scheduled run is under way", self.record.managed)
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

    /// Makes supervision give way to an operation that has just been queued.
    pub(super) fn preempt(&mut self, now: Time, kind: OperationKind) {
        let ends = match kind {
            OperationKind::Stop | OperationKind::Kill | OperationKind::Restart => true,
            OperationKind::Release
            | OperationKind::Manage
            | OperationKind::Start
            | OperationKind::Reload
            | OperationKind::Status => false,
        };
        if self.current.is_some() || !ends {
            return;
        }
        match &self.work {
            Work::Seek { .. } => self.hurry(now),
            Work::Launch { .. } if self.record.life.is_some() => self.leave_command(now),
            Work::Launch { .. } => {
                self.run_ended_by_hand = self.scheduled;
                self.actions.push_back(Action::EndCommand { ticket: self.commands });
            }
            Work::Halt { life } | Work::Fade { life, .. } if kind == OperationKind::Kill => {
                let life = life.clone();
                self.commands += 1; // the stop command's end is no longer waited for
                self.dirty |= self.record.running.take().is_some();
                self.kill_tree(now, life);
            }
            Work::Rest
            | Work::Wait { .. }
            | Work::Look
            | Work::Clear { .. }
            | Work::Settle { .. }
            | Work::Halt { .. }
            | Work::Fade { .. }
            | Work::Reload { .. } => {}
        }
    }

    /// The process is known, so that the operation can be about it; the command ends with it.
    fn leave_command(&mut self, now: Time) {
        self.actions.push_back(Action::Detach { ticket: self.commands });
        self.commands += 1;
        self.record.running = None;
        self.record.launch = None;
        self.dirty = true;
        self.scheduled = false;
        self.announced = None;
        self.work = Work::Rest;
        self.rest(now);
    }
}
