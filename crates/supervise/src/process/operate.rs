//! The seven operations that change something.
//!
//! Each begins with a probe, because what is asked for is relative to what is there. Management changes only when
//! an operation succeeds; a stop that finds nothing running is the one exception, since its caller wants the
//! process to stay down. How a start and a stop continue is in [`super::launch`] and [`super::halt`].

use proctor_model::{
    Code, CommandExit, CommandResult, Exit, Incarnation, Message, OperationId, OperationKind, Outcome, Probe, Spec,
    messages,
};

use super::activity::{Activity, AfterLeftovers, Failure, Fallback, ProbePlan};
use super::halt::AFTER_KILL_COMMAND;
use super::launch::FIRST_PAUSE;
use super::{Action, CommandKind, Launch, Process, Request};
use crate::Time;

impl Process {
    pub(super) fn begin(&mut self, now: Time, request: Request) {
        let expired = request.expires <= now;
        let kind = request.kind;
        self.current = Some(self.current_of(now, request));
        if expired {
            self.forget_ended_run();
            return self.fail(now, Code::CommandFailed, messages::expired());
        }
        match kind {
            OperationKind::Manage => {
                self.manage();
                self.succeed(now);
            }
            OperationKind::Release => {
                self.release();
                self.succeed(now);
            }
            OperationKind::Start
            | OperationKind::Restart
            | OperationKind::Stop
            | OperationKind::Kill
            | OperationKind::Reload => self.probe(),
            OperationKind::Status => self.fail(now, Code::CommandFailed, messages::status_changes_nothing()),
        }
    }

    /// The result of a probe: the operation continues, or supervision.
    pub(super) fn handle_probe(&mut self, now: Time, look: Probe) {
        let before = self.record.life.clone();
        self.unclear = matches!(look, Probe::Unclear { .. });
        match look {
            Probe::Running(life) => {
                self.named = Some(life.pid);
                self.adopt(now, life);
            }
            Probe::Absent(reason) => {
                self.named = None;
                self.on_exit(now, None);
                self.reason = reason;
            }
            // A known life is over, or the probe would have found it.
            Probe::Unclear { reason, .. } => {
                self.on_exit(now, None);
                self.reason = reason;
            }
            Probe::Dead { pid, reason } => {
                self.named = Some(pid);
                self.on_exit(now, None);
                self.reason = reason;
            }
        }
        if let Some(running) = self.interrupted.take()
            && self.rejoin(now, *running, before.clone())
        {
            return;
        }
        let Some(current) = &self.current else { return self.supervise(now) };
        if current.begun {
            let is_ending = matches!(current.request.kind, OperationKind::Stop | OperationKind::Kill);
            // What it was meant for is over, perhaps since the agent exited: another life is innocent.
            if is_ending && self.record.life != before {
                return self.on_exit_reached(now);
            }
            self.resume_operation(now);
            return self.cut_resumed(now);
        }
        let (kind, life) = (current.request.kind, self.record.life.clone());
        if self.unclear && !self.run_ended_by_hand {
            return self.fail_unclear(now, kind);
        }
        match (kind, life) {
            (OperationKind::Start, Some(life)) => {
                // Its caller wants the process to run, after a failed stop as well.
                if !self.is_cut_short() {
                    self.note_wish();
                }
                self.fail(now, Code::AlreadyRunning, messages::process_runs_already(life.pid));
            }
            (OperationKind::Start, None) => self.launch(now, CommandKind::Start, None),
            (OperationKind::Restart, life) => self.restart(now, life),
            (OperationKind::Stop | OperationKind::Kill, Some(life)) => self.stop(now, life),
            (OperationKind::Stop | OperationKind::Kill, None) if self.run_ended_by_hand => {
                self.run_ended_by_hand = false;
                self.release();
                self.on_exit_reached(now);
            }
            (OperationKind::Stop | OperationKind::Kill, None) => {
                self.release();
                let failure = Failure::new(Code::NotRunning, messages::process_not_running(self.reason.clone()));
                self.clear(now, AfterLeftovers::NotRunning(failure));
            }
            (OperationKind::Reload, Some(life)) => self.reload(now, life),
            (OperationKind::Reload, None) => {
                self.fail(now, Code::NotRunning, messages::process_not_running(self.reason.clone()));
            }
            (OperationKind::Manage | OperationKind::Release | OperationKind::Status, _) => self.succeed(now),
        }
    }

    /// Nothing is started or ended if it is unclear whether the process runs. Whoever stops it wants it to stay
    /// down.
    pub(super) fn fail_unclear(&mut self, now: Time, kind: OperationKind) {
        let message = match kind {
            OperationKind::Stop | OperationKind::Kill => {
                self.release();
                messages::nothing_was_done_released(kind, self.unclear_reason())
            }
            OperationKind::Start
            | OperationKind::Restart
            | OperationKind::Reload
            | OperationKind::Manage
            | OperationKind::Release
            | OperationKind::Status => messages::nothing_was_done(kind, self.unclear_reason()),
        };
        self.fail(now, Code::CheckFailed, message);
    }

    pub(super) fn unclear_reason(&self) -> Message {
        messages::unclear_whether_it_runs(self.reason.clone())
    }

    /// After a crash of the agent: the operation had begun, so nothing is run again.
    fn resume_operation(&mut self, now: Time) {
        let Some(current) = &self.current else { return };
        let kind = current.request.kind;
        match (kind, self.record.life.clone(), self.record.launch.clone()) {
            (OperationKind::Start | OperationKind::Restart, Some(life), launch)
                if launch.as_ref().is_none_or(|launch| launch.old.as_ref() != Some(&life)) =>
            {
                self.record.launch = None;
                self.begin_start_check(now, now + self.policy_of_current().policy.start_check.duration());
            }
            (OperationKind::Start | OperationKind::Restart, life, Some(Launch { begun: false, until, .. })) => {
                self.resume_launch(now, kind, life, until);
            }
            (OperationKind::Start | OperationKind::Restart, _, launch) => {
                let (until, old) = launch.map_or((now, None), |launch| (launch.until, launch.old));
                self.work =
                    Activity::WaitingForPid { old, until, next: Some(now), pause: FIRST_PAUSE, plan: ProbePlan::Retry };
            }
            (OperationKind::Stop | OperationKind::Kill, None, _) => self.on_exit_reached(now),
            (OperationKind::Stop, Some(life), _) => {
                // If its command had not begun, this was not done yet; a cancelled stop has touched nothing.
                if !self.is_cut_short() {
                    self.note_wish();
                }
                self.wait_for_exit(now, life);
            }
            (OperationKind::Kill, Some(life), _) => {
                self.work =
                    Activity::WaitingForExit { life, until: now + AFTER_KILL_COMMAND, fallback: Fallback::KillTree };
            }
            (OperationKind::Reload | OperationKind::Manage | OperationKind::Release | OperationKind::Status, ..) => {
                self.fail(now, Code::CommandFailed, messages::agent_restarted_during(kind.message()));
            }
        }
    }
    /// The start or restart command is known never to have run: the operation continues with it, unless its time is
    /// over.
    fn resume_launch(&mut self, now: Time, kind: OperationKind, life: Option<Incarnation>, until: Time) {
        if until <= now {
            self.record.launch = None;
            self.dirty = true;
            let message = match self.needs_relaunch() {
                true => messages::agent_restarted_before_managed(kind.message()),
                false => messages::agent_restarted_before(kind.message()),
            };
            return self.fail(now, Code::CommandFailed, message);
        }
        if self.unclear {
            self.record.launch = None;
            self.dirty = true;
            return self.fail_unclear(now, kind);
        }
        match life {
            // The stop command of the restart may have run, and is not run again.
            Some(life) if self.policy_of_current().control.restart.is_none() => self.wait_for_exit(now, life),
            life @ Some(_) => self.launch(now, CommandKind::Restart, life),
            None if kind == OperationKind::Restart => self.restart(now, None),
            None => self.launch(now, CommandKind::Start, None),
        }
    }

    /// Nothing of the operation may happen: it could not be recorded.
    pub(super) fn refused(&mut self, now: Time, operation: OperationId, reason: Message) {
        if self.current.as_ref().is_some_and(|current| current.request.operation == operation) {
            self.record.launch = None;
            self.dirty = true;
            self.commands += 1; // the command that was wanted never ran
            self.fail(now, Code::CommandFailed, reason);
        }
    }

    // Reload.

    fn reload(&mut self, now: Time, life: Incarnation) {
        let Some(line) = self.policy_of_current().control.reload.clone() else {
            return self.fail(now, Code::CommandFailed, messages::no_reload_command());
        };
        self.mark_begun();
        let timeout = self.policy_of_current().policy.op_timeout.duration();
        self.run(CommandKind::Reload, line, timeout);
        self.work = Activity::Reloading { life };
    }

    pub(super) fn reloaded(&mut self, now: Time, life: &Incarnation, end: CommandExit) {
        self.keep_output(&end);
        if self.is_cut_short() || end.result != CommandResult::Exited(Exit::Code(0)) {
            let cut_short = self.is_cut_short().then(|| self.cut_failure(messages::reload_command()));
            let failure = cut_short.unwrap_or_else(|| self.command_failure(messages::reload(), &end));
            return self.fail(now, failure.code, failure.message);
        }
        if self.record.life.as_ref() == Some(life) {
            return self.succeed(now);
        }
        self.probe_again(None, now, FIRST_PAUSE, ProbePlan::LastProbe);
    }

    // Ends.

    /// The spec in force: the operation's, or the registered one.
    pub(super) fn policy_of_current(&self) -> &Spec {
        self.current.as_ref().map_or(&self.record.spec, |current| &current.spec)
    }

    pub(super) fn mark_begun(&mut self) {
        let Some(current) = &mut self.current else { return };
        if !std::mem::replace(&mut current.begun, true) {
            let (operation, kind) = (current.request.operation, current.request.kind);
            self.actions.push_back(Action::Begin { operation, kind });
        }
    }

    pub(super) fn keep_output(&mut self, end: &CommandExit) {
        if let Some(current) = &mut self.current {
            if !current.output.is_empty() && !end.output.is_empty() {
                current.output.push('\n');
            }
            current.output.push_str(&end.output);
        }
    }

    /// For people, if a command failed: its output, if any.
    pub(super) fn command_failure(&self, command: Message, end: &CommandExit) -> Failure {
        let said = end.output.trim_end();
        let message = match &end.result {
            CommandResult::NotStarted(reason) => messages::command_not_run(command, messages::because(reason)),
            CommandResult::NoSlot => messages::command_not_run(command, messages::too_many_commands()),
            CommandResult::Cancelled => messages::command_killed(command, said),
            CommandResult::ExitUnknown => messages::command_end_unknown(command),
            CommandResult::TimedOut => {
                let secs = self.policy_of_current().policy.op_timeout.get();
                messages::command_timed_out(command, secs, said)
            }
            CommandResult::Exited(exit) if said.is_empty() => messages::command_ended_with(command, exit.message()),
            // In its own words, which are the same in every language.
            CommandResult::Exited(_) => messages::because(said),
        };
        Failure::new(Code::CommandFailed, message)
    }

    pub(super) fn succeed(&mut self, now: Time) {
        self.finish(now, Outcome::success(self.record.managed));
    }

    pub(super) fn fail(&mut self, now: Time, code: Code, message: Message) {
        self.finish(now, Outcome::new(code, message, self.record.managed));
    }

    pub(super) fn finish(&mut self, now: Time, mut outcome: Outcome) {
        if let Some(current) = self.current.take() {
            let hosts =
                matches!(current.request.kind, OperationKind::Start | OperationKind::Restart | OperationKind::Manage);
            if let Some(note) = current.spec.instances_note().filter(|_| hosts && outcome.code.is_success()) {
                outcome.message = messages::success_but(note);
            }
            outcome.output = current.output;
            outcome.managed = self.record.managed;
            self.actions.push_back(Action::Finish {
                operation: current.request.operation,
                outcome: Box::new(outcome.fitted()),
            });
        }
        self.work = Activity::Idle;
        self.become_idle(now);
    }
}
