//! Stop and kill: by command or by signal, without leftovers.

use std::time::Duration;

use proctor_model::{Code, CommandExit, CommandResult, Exit, Incarnation, OperationKind, Signal, messages};

use super::activity::{Activity, AfterLeftovers, Failure, Fallback};
use super::{Action, CommandKind, Process};
use crate::Time;

/// A process whose stop command failed may be gone all the same: the kernel may be a little late.
const AFTER_FAILED_STOP: Duration = Duration::from_millis(500);
/// Grace period of a kill command before the whole tree is killed.
pub(super) const AFTER_KILL_COMMAND: Duration = Duration::from_secs(1);
/// How long a kill may wait for its turn before it counts as failed.
const SIGKILL_SENT_MAX: Duration = Duration::from_secs(60);
/// Wait before a kill that could not be sent is retried.
const SIGKILL_AGAIN: Duration = Duration::from_secs(1);
/// Time for the kernel after SIGKILL was sent.
const AFTER_SIGKILL: Duration = Duration::from_secs(5);

impl Process {
    /// Ends `life`, by command or by signal.
    pub(super) fn stop(&mut self, now: Time, life: Incarnation) {
        let is_kill = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Kill);
        let control = &self.policy_of_current().control;
        let (command, line) =
            if is_kill { (CommandKind::Kill, control.kill.clone()) } else { (CommandKind::Stop, control.stop.clone()) };
        self.mark_begun();
        match line {
            Some(line) => {
                let timeout = self.policy_of_current().policy.op_timeout.duration();
                self.run(command, line, timeout);
                self.work = Activity::Stopping { life };
            }
            None if is_kill => self.kill_tree(now, life),
            None => {
                self.note_wish();
                self.actions.push_back(Action::Signal(life.clone(), Signal::Terminate));
                self.wait_for_exit(now, life);
            }
        }
    }

    /// A command begins or a signal is sent. If an operator's stop or kill requested it, the end of this life is
    /// wanted from now on, even if the operation is cancelled: nobody can take back what was sent. A start or
    /// restart wants the process back, even if it finds it running, and supervision counts from zero. A cancel
    /// before this point changes none of that.
    pub(super) fn note_wish(&mut self) {
        match self.current.as_ref().map(|current| current.request.kind) {
            Some(OperationKind::Stop | OperationKind::Kill) => self.record.unwanted.clone_from(&self.record.life),
            Some(OperationKind::Start | OperationKind::Restart) => {
                (self.record.unwanted, self.record.attempts, self.record.failed) = (None, 0, false);
            }
            Some(OperationKind::Reload | OperationKind::Manage | OperationKind::Release | OperationKind::Status)
            | None => return,
        }
        self.dirty = true;
    }

    pub(super) fn on_stop_command_exit(&mut self, now: Time, life: Incarnation, end: CommandExit) {
        if self.evicting.is_some() {
            return self.on_evict_stop_exit(now, life);
        }
        self.keep_output(&end);
        if self.is_cut_short() {
            let failure = self.cut_failure(messages::stop_command());
            self.dirty |= self.record.launch.take().is_some();
            return self.fail(now, failure.code, failure.message);
        }
        if self.record.life.as_ref() != Some(&life) {
            return self.on_exit_reached(now);
        }
        let is_kill = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Kill);
        match &end.result {
            _ if is_kill => {
                self.work =
                    Activity::WaitingForExit { life, until: now + AFTER_KILL_COMMAND, fallback: Fallback::KillTree };
            }
            CommandResult::Exited(Exit::Code(0)) | CommandResult::ExitUnknown => self.wait_for_exit(now, life),
            CommandResult::TimedOut => {
                self.actions.push_back(Action::Signal(life.clone(), Signal::Terminate));
                self.wait_for_exit(now, life);
            }
            CommandResult::Exited(_)
            | CommandResult::Cancelled
            | CommandResult::NotStarted(_)
            | CommandResult::NoSlot => {
                let fallback = Fallback::Fail(self.command_failure(messages::stop(), &end));
                self.work = Activity::WaitingForExit { life, until: now + AFTER_FAILED_STOP, fallback };
            }
        }
    }

    /// Waits for the end of `life` as long as the policy allows.
    pub(super) fn wait_for_exit(&mut self, now: Time, life: Incarnation) {
        let check = self.policy_of_current().policy.stop_check;
        let message = messages::still_alive_after_stop(life.pid, check.get());
        let fallback = Fallback::Fail(Failure::new(Code::CheckFailed, message));
        self.work = Activity::WaitingForExit { life, until: now + check.duration(), fallback };
    }

    pub(super) fn kill_tree(&mut self, now: Time, life: Incarnation) {
        self.note_wish();
        self.ask_for_kill(now, life, true);
    }

    fn ask_for_kill(&mut self, now: Time, life: Incarnation, is_first: bool) {
        self.actions.push_back(Action::KillTree(life.clone()));
        let fallback = Fallback::Unsent { failed: None, is_first };
        self.work = Activity::WaitingForExit { life, until: now + SIGKILL_SENT_MAX, fallback };
    }

    /// The signals were sent: the time that the kernel needs to end the life counts from now on, not from when the
    /// kill was requested. Or they could not be sent.
    pub(super) fn tree_killed(&mut self, now: Time, killed: &Incarnation, reason: Option<String>) {
        if let Activity::WaitingForExit { life, until, fallback } = &mut self.work
            && let Fallback::Unsent { failed, .. } = fallback
            && life == killed
        {
            *until = now + if reason.is_some() { SIGKILL_AGAIN } else { AFTER_SIGKILL };
            if reason.is_some() {
                *failed = reason;
            } else {
                let message = messages::still_there_after_sigkill(life.pid);
                *fallback = Fallback::Fail(Failure::new(Code::CheckFailed, message));
            }
        }
    }

    pub(super) fn on_exit_timeout(&mut self, now: Time, life: Incarnation, fallback: Fallback) {
        let failure = match fallback {
            Fallback::KillTree => return self.kill_tree(now, life),
            Fallback::Unsent { failed: Some(_), is_first: true } => return self.ask_for_kill(now, life, false),
            Fallback::Unsent { failed, .. } => {
                let reason = failed.unwrap_or_else(|| "it did not get its turn".to_owned());
                Failure::new(Code::CheckFailed, messages::sigkill_not_sent(life.pid, reason))
            }
            Fallback::Fail(failure) => failure,
        };
        self.evicting = None;
        self.record.launch = None;
        self.dirty = true;
        self.fail(now, failure.code, failure.message);
    }

    /// The life is over; its leftovers are ended too.
    pub(super) fn on_exit_reached(&mut self, now: Time) {
        let next = if self.evicting.is_some() { AfterLeftovers::Evicted } else { AfterLeftovers::Stopped };
        self.clear(now, next);
    }

    /// No leftovers: a stop or kill has reached its goal, a restart continues.
    pub(super) fn gone(&mut self, now: Time) {
        let is_restart = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Restart);
        if is_restart {
            return self.launch(now, CommandKind::Start, None);
        }
        self.release();
        self.succeed(now);
    }
}
