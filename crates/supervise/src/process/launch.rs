//! Start and restart: the command runs, and a new life must appear and survive its check.
//!
//! Promised: a launch is in the record before its command runs; what a failed start left behind is ended.
//! Absent: deciding when supervision starts something, see [`super::relaunch`].

use std::time::Duration;

use proctor_model::{
    Code, CommandExit, CommandResult, Exit, Incarnation, Lifetime, Message, OperationKind, Probe, Spec, messages,
};

use super::activity::{Activity, AfterLeftovers, Failure, ProbePlan};
use super::{CommandKind, Launch, Process};
use crate::Time;

/// How long a process may take to appear if its policy asks for no check after the start.
const SEEK_WITHOUT_CHECK: Duration = Duration::from_secs(5);
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// A pid file that names a dead process may be rewritten within this time.
const AFTER_DEATH: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// A start command that takes longer than this may be the process itself.
const FOREGROUND_PAUSE: Duration = Duration::from_millis(500);
pub(super) const FOREGROUND_PAUSE_MAX: Duration = Duration::from_secs(5);

impl Process {
    pub(super) fn restart(&mut self, now: Time, life: Option<Incarnation>) {
        match (self.policy_of_current().control.restart.is_some(), life) {
            (true, life) => self.launch(now, CommandKind::Restart, life),
            (false, Some(life)) => {
                let timeout = self.policy_of_current().policy.op_timeout.duration();
                self.record_launch(now, Some(life.clone()), timeout);
                self.stop(now, life);
            }
            (false, None) => self.launch(now, CommandKind::Start, None),
        }
    }

    /// Runs the start or restart command; the resulting life must not be `old`.
    pub(super) fn launch(&mut self, now: Time, command: CommandKind, old: Option<Incarnation>) {
        let timeout = self.policy_of_current().policy.op_timeout.duration();
        self.launch_for(now, command, old, timeout);
    }

    pub(super) fn launch_for(&mut self, now: Time, command: CommandKind, old: Option<Incarnation>, timeout: Duration) {
        self.record_launch(now, old.clone(), timeout);
        self.clear(now, AfterLeftovers::Launch { command, old, timeout });
    }

    /// No leftovers of an earlier life.
    pub(super) fn launch_now(&mut self, now: Time, command: CommandKind, old: Option<Incarnation>, timeout: Duration) {
        let control = &self.policy_of_current().control;
        let line = if command == CommandKind::Restart { control.restart.clone() } else { control.start.clone() };
        (self.last_exit, self.told_waiting, self.run_ended_by_hand) = (None, Message::default(), false);
        let Some(line) = line else {
            self.record.last_launch = Some(now);
            return self.launch_failed(now, Failure::new(Code::CommandFailed, messages::no_start_command()));
        };
        self.record_launch(now, old.clone(), timeout);
        self.mark_begun();
        self.run(command, line, timeout);
        self.work =
            Activity::Launching { old, next: Some(now + FOREGROUND_PAUSE), pause: FOREGROUND_PAUSE, since: None };
    }

    /// Written before the command runs, so that a crash of the agent cannot lead to a second copy.
    fn record_launch(&mut self, now: Time, old: Option<Incarnation>, timeout: Duration) {
        let until = now + timeout + seek_window(self.policy_of_current());
        self.record.launch = Some(Launch { until, old, begun: false, since: None });
        self.record.last_launch = Some(now);
        self.dirty = true;
    }

    /// A command that does not exit may be the process itself: its pid file tells.
    pub(super) fn probe_while_launching(&mut self, old: Option<Incarnation>, pause: Duration, since: Option<Time>) {
        self.probe();
        self.work = Activity::Launching { old, next: None, pause, since };
    }

    pub(super) fn on_probe_while_launching(
        &mut self,
        now: Time,
        look: Probe,
        old: Option<Incarnation>,
        pause: Duration,
        since: Option<Time>,
    ) {
        let mut since = since;
        match look {
            Probe::Running(life) if Some(&life) != old.as_ref() => {
                since = since.filter(|_| self.record.life.as_ref() == Some(&life)).or(Some(now));
                self.adopt(now, life);
            }
            Probe::Running(_) | Probe::Absent(_) | Probe::Dead { .. } | Probe::Unclear { .. } => since = None,
        }
        let is_settled = since.is_some_and(|since| now.since(since) >= self.foreground_watch());
        if is_settled {
            return self.adopt_foreground(now);
        }
        let next = Some(now + pause);
        self.work = Activity::Launching { old, next, pause: (pause * 3 / 2).min(FOREGROUND_PAUSE_MAX), since };
    }

    /// How long a process must live before its start command, which has not exited, is taken for the process
    /// itself.
    pub(super) fn foreground_watch(&self) -> Duration {
        let spec = self.policy_of_current();
        seek_window(spec).max(spec.policy.last_start_check().duration())
    }

    /// The process has survived its check and the command still runs: it is the process.
    fn adopt_foreground(&mut self, now: Time) {
        self.detach_command();
        match &self.current {
            Some(_) => self.pass_start_check(now),
            None => self.relaunched(now),
        }
    }

    pub(super) fn launched(&mut self, now: Time, old: Option<Incarnation>, end: CommandExit) {
        if self.scheduled {
            return self.run_ended(now, &end);
        }
        self.keep_output(&end);
        let plan = match &end.result {
            _ if self.is_cut_short() => ProbePlan::ReportFailure(self.cut_failure(messages::start_command())),
            CommandResult::Cancelled if self.current.is_none() && !self.record.managed => {
                ProbePlan::ReportFailure(Failure::new(Code::CommandFailed, messages::released_during_restart()))
            }
            CommandResult::Exited(Exit::Code(0)) | CommandResult::ExitUnknown => ProbePlan::Retry,
            CommandResult::NoSlot if self.current.is_none() => return self.on_no_slot(now),
            CommandResult::NotStarted(_)
            | CommandResult::NoSlot
            | CommandResult::Exited(_)
            | CommandResult::Cancelled
            | CommandResult::TimedOut => ProbePlan::ReportFailure(self.command_failure(messages::start(), &end)),
        };
        let until = now + seek_window(self.policy_of_current());
        if let Some(launch) = &mut self.record.launch {
            launch.until = until;
            self.dirty = true;
        }
        self.probe_again(old, until, FIRST_PAUSE, plan);
    }

    /// Looks for the life that a start must have produced.
    pub(super) fn probe_again(&mut self, old: Option<Incarnation>, until: Time, pause: Duration, plan: ProbePlan) {
        self.probe();
        self.work = Activity::WaitingForPid { old, until, next: None, pause, plan };
    }

    fn probe_again_at(&mut self, next: Time, old: Option<Incarnation>, until: Time, pause: Duration) {
        self.work = Activity::WaitingForPid { old, until, next: Some(next), pause, plan: ProbePlan::Retry };
    }

    pub(super) fn on_probe_while_waiting(
        &mut self,
        now: Time,
        look: Probe,
        old: Option<Incarnation>,
        until: Time,
        pause: Duration,
        plan: ProbePlan,
    ) {
        self.unclear = matches!(look, Probe::Unclear { .. });
        match look {
            Probe::Running(life) if Some(&life) != old.as_ref() => return self.on_pid_found(now, life, until, plan),
            Probe::Running(life) => self.reason = messages::process_of_before_runs(life.pid),
            Probe::Absent(reason) | Probe::Unclear { reason, .. } => {
                self.on_exit(now, None);
                self.reason = reason;
            }
            Probe::Dead { pid, reason } => {
                self.on_exit(now, None);
                self.reason = reason;
                let counts = !self.policy_of_current().policy.has_second_check();
                if Some(pid) != self.named && matches!(plan, ProbePlan::Retry) && counts {
                    // It appeared and died. The file may still be about to name its successor.
                    self.named = Some(pid);
                    return self.probe_again_at(now + AFTER_DEATH, old, now + AFTER_DEATH, pause);
                }
            }
        }
        match plan {
            ProbePlan::Retry if now < until => {
                let next = Some((now + pause).min(until));
                let pause = (pause * 3 / 2).min(LAST_PAUSE);
                self.work = Activity::WaitingForPid { old, until, next, pause, plan };
            }
            ProbePlan::Retry | ProbePlan::LastProbe => self.on_pid_missing(now),
            ProbePlan::ReportFailure(failure) => self.launch_failed(now, failure),
        }
    }

    fn on_pid_found(&mut self, now: Time, life: Incarnation, until: Time, plan: ProbePlan) {
        self.adopt(now, life);
        self.record.launch = None;
        match (&self.current, plan) {
            (None, _) => self.relaunched(now),
            (Some(_), ProbePlan::ReportFailure(failure)) => self.fail(now, failure.code, failure.message),
            (Some(current), _) if current.request.kind == OperationKind::Reload => self.succeed(now),
            (Some(_), ProbePlan::Retry | ProbePlan::LastProbe) => self.begin_start_check(now, until),
        }
    }

    /// Alive: it must stay so until its last check.
    pub(super) fn begin_start_check(&mut self, now: Time, until: Time) {
        let policy = &self.policy_of_current().policy;
        let (check, last) = (policy.start_check.duration(), policy.last_start_check().duration());
        let first = until.min(now + check);
        let until = first + last.saturating_sub(check);
        if until <= now {
            return self.pass_start_check(now);
        }
        self.work = Activity::StartCheck { first, until };
    }

    pub(super) fn pass_start_check(&mut self, now: Time) {
        // A process that was unregistered meanwhile keeps running, but nobody keeps it alive.
        if self.record.registered {
            self.manage();
        }
        self.succeed(now);
    }

    /// Somebody wants it down while supervision still searches for what it started: the search is cut short, so
    /// that a long check cannot hold up a stop.
    pub(super) fn shorten_wait(&mut self, now: Time) {
        if let Activity::WaitingForPid { until, .. } = &mut self.work {
            *until = (*until).min(now + SEEK_WITHOUT_CHECK);
        }
    }

    /// Its pid file may name another life by now; if not, the start has failed. Between the first check and a
    /// second one it has failed in any case: it had to be the same life.
    pub(super) fn exited_during_start_check(&mut self, now: Time, first: Time, life: &Incarnation) {
        let policy = &self.policy_of_current().policy;
        let must_stay = policy.has_second_check() && policy.lifetime == Lifetime::Resident;
        let plan = match (must_stay, now < first) {
            (false, _) => ProbePlan::LastProbe,
            (true, true) => {
                self.named = Some(life.pid);
                ProbePlan::Retry
            }
            (true, false) => {
                let kind = self.current.as_ref().map_or(OperationKind::Start, |current| current.request.kind);
                let message = messages::ended_between_checks(kind.message(), life.pid);
                ProbePlan::ReportFailure(Failure::new(Code::CheckFailed, message))
            }
        };
        self.probe_again(None, first, FIRST_PAUSE, plan);
    }

    fn on_pid_missing(&mut self, now: Time) {
        let spec = self.policy_of_current();
        let may_have_ended = match spec.policy.lifetime {
            Lifetime::Resident => false,
            Lifetime::Periodic => spec.policy.has_schedule(),
            Lifetime::Once => true,
        };
        let kind = self.current.as_ref().map_or(OperationKind::Start, |current| current.request.kind);
        let is_start = matches!(kind, OperationKind::Start | OperationKind::Restart);
        if is_start && may_have_ended && !self.unclear && matches!(self.last_exit, None | Some(Exit::Code(0))) {
            self.leave_launch_behind();
            self.record.launch = None;
            return self.pass_start_check(now);
        }
        let message = match self.unclear {
            true => messages::operation_unclear(kind.message(), self.unclear_reason()),
            false => messages::process_not_alive(kind.message(), self.reason.clone()),
        };
        self.launch_failed(now, Failure::new(Code::CheckFailed, message));
    }

    /// Without a known life, the leftovers of the start must be ended: nobody would ever find them, and the next
    /// start would make a second copy.
    fn launch_failed(&mut self, now: Time, failure: Failure) {
        if self.record.life.is_some() {
            return self.end_failed_launch(now, failure);
        }
        self.leave_launch_behind();
        if self.unclear {
            // What the start produced may be fine: it is adopted, or ended, when that can be told.
            return self.end_failed_launch(now, failure);
        }
        self.clear(now, AfterLeftovers::LaunchFailed(failure));
    }

    pub(super) fn end_failed_launch(&mut self, now: Time, failure: Failure) {
        self.record.launch = None;
        self.dirty = true;
        match &self.current {
            Some(_) => self.fail(now, failure.code, failure.message),
            None => self.relaunch_failed(now, failure.message),
        }
    }
}

/// How long after the exit of its start command a process may take to appear.
pub(super) fn seek_window(spec: &Spec) -> Duration {
    match spec.policy.start_check.duration() {
        Duration::ZERO => SEEK_WITHOUT_CHECK,
        check => check,
    }
}
