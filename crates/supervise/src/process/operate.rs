//! The seven operations that change something.
//!
//! Each begins with a look, because what people ask for is relative to what is there. Hosting
//! changes only when an operation succeeds; a stop that finds nothing running is the one
//! exception, since whoever asks for it wants the process to stay down.

use std::time::Duration;

use proctor_model::{
    Code, CommandEnd, CommandResult, Exit, Incarnation, Lifetime, Look, OperationId, OperationKind, Outcome, Remains,
    Signal, Spec,
};

use super::work::{AfterClear, Failure, Fallback, Mood, Work};
use super::{Action, CommandKind, Launch, Process, Request};
use crate::Time;

/// How long a process may take to show up where its policy asks for no check after the start.
const SEEK_WITHOUT_CHECK: Duration = Duration::from_secs(5);
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// A pid file that names a dead process may be rewritten within this.
const AFTER_DEATH: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// A start command that takes longer than this may be the process itself.
const FOREGROUND_PAUSE: Duration = Duration::from_millis(500);
const FOREGROUND_PAUSE_MAX: Duration = Duration::from_secs(5);
/// A process whose stop command failed may be gone all the same: the kernel may be a little late.
const AFTER_FAILED_STOP: Duration = Duration::from_millis(500);
/// What a kill command gets before the whole tree is killed.
const AFTER_KILL_COMMAND: Duration = Duration::from_secs(1);
const TOO_MANY: &str = "too many commands run on this host; try again";
/// How long a kill may wait for its turn among others before it counts as failed.
const SIGKILL_SENT_MAX: Duration = Duration::from_secs(60);
/// What the kernel gets after SIGKILL was sent.
const AFTER_SIGKILL: Duration = Duration::from_secs(5);

impl Process {
    pub(super) fn begin(&mut self, now: Time, request: Request) {
        let expired = request.expires <= now;
        let kind = request.kind;
        self.current = Some(self.current_of(request));
        if expired {
            return self.fail(now, Code::CommandFailed, "the time for this operation was over before it could begin");
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
            OperationKind::Start | OperationKind::Restart => {
                self.record.attempts = 0;
                self.record.failed = false;
                self.record.unwanted = None;
                self.look();
            }
            OperationKind::Stop | OperationKind::Kill | OperationKind::Reload => self.look(),
            OperationKind::Status => self.fail(now, Code::CommandFailed, "a status query changes nothing"),
        }
    }

    /// A look has told what is there: the operation goes on, or supervision.
    pub(super) fn learn(&mut self, now: Time, look: Look) {
        let before = self.record.life.clone();
        match look {
            Look::Running(life) => {
                self.named = Some(life.pid);
                self.adopt(now, life);
            }
            Look::Absent(reason) => {
                self.named = None;
                self.lose_life(now, None);
                self.reason = reason;
            }
            Look::Dead { pid, reason } => {
                self.named = Some(pid);
                self.lose_life(now, None);
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
            if is_ending && before.is_some() && self.record.life != before {
                return self.faded(now); // the life that it was meant for is over; another is innocent
            }
            self.resume_operation(now);
            return self.cancel_resumed(now);
        }
        let (kind, life) = (current.request.kind, self.record.life.clone());
        match (kind, life) {
            (OperationKind::Start, Some(life)) => {
                self.fail(now, Code::AlreadyRunning, format!("process {} runs already", life.pid));
            }
            (OperationKind::Start, None) => self.launch(now, CommandKind::Start, None),
            (OperationKind::Restart, life) => self.restart(now, life),
            (OperationKind::Stop | OperationKind::Kill, Some(life)) => self.halt(now, life),
            (OperationKind::Stop | OperationKind::Kill, None) if self.run_ended_by_hand => {
                self.run_ended_by_hand = false;
                self.release();
                self.faded(now);
            }
            (OperationKind::Stop | OperationKind::Kill, None) => {
                self.release();
                let failure = Failure::new(Code::NotRunning, format!("the process is not running: {}", self.reason));
                self.clear(now, AfterClear::NotRunning(failure));
            }
            (OperationKind::Reload, Some(life)) => self.reload(now, life),
            (OperationKind::Reload, None) => {
                self.fail(now, Code::NotRunning, format!("the process is not running: {}", self.reason));
            }
            (OperationKind::Manage | OperationKind::Release | OperationKind::Status, _) => self.succeed(now),
        }
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
                self.settle(now, now + self.policy_of_current().policy.start_check.duration());
            }
            (OperationKind::Start | OperationKind::Restart, _, Some(Launch { begun: false, .. })) => {
                self.record.launch = None;
                self.fail(now, Code::CommandFailed, "the agent restarted before the start command was run");
            }
            (OperationKind::Start | OperationKind::Restart, _, launch) => {
                let (until, old) = launch.map_or((now, None), |launch| (launch.until, launch.old));
                self.work = Work::Seek { old, until, next: Some(now), pause: FIRST_PAUSE, mood: Mood::Patient };
            }
            (OperationKind::Stop | OperationKind::Kill, None, _) => self.faded(now),
            (OperationKind::Stop, Some(life), _) => self.fade(now, life),
            (OperationKind::Kill, Some(life), _) => {
                self.work = Work::Fade { life, until: now + AFTER_KILL_COMMAND, fallback: Fallback::KillTree };
            }
            (OperationKind::Reload | OperationKind::Manage | OperationKind::Release | OperationKind::Status, ..) => {
                self.fail(
                    now,
                    Code::CommandFailed,
                    format!("the agent restarted during the {kind}; its end is not known"),
                );
            }
        }
    }

    // Start and restart.

    fn restart(&mut self, now: Time, life: Option<Incarnation>) {
        match (self.policy_of_current().control.restart.is_some(), life) {
            (true, life) => self.launch(now, CommandKind::Restart, life),
            (false, Some(life)) => {
                let timeout = self.policy_of_current().policy.op_timeout.duration();
                self.expect_life(now, Some(life.clone()), timeout);
                self.halt(now, life);
            }
            (false, None) => self.launch(now, CommandKind::Start, None),
        }
    }

    /// Runs the start or restart command; the life that it brings must not be `old`.
    pub(super) fn launch(&mut self, now: Time, command: CommandKind, old: Option<Incarnation>) {
        let timeout = self.policy_of_current().policy.op_timeout.duration();
        self.launch_for(now, command, old, timeout);
    }

    pub(super) fn launch_for(&mut self, now: Time, command: CommandKind, old: Option<Incarnation>, timeout: Duration) {
        self.clear(now, AfterClear::Launch { command, old, timeout });
    }

    /// Nothing of an earlier life is left.
    pub(super) fn launch_now(&mut self, now: Time, command: CommandKind, old: Option<Incarnation>, timeout: Duration) {
        let control = &self.policy_of_current().control;
        let line = if command == CommandKind::Restart { control.restart.clone() } else { control.start.clone() };
        self.last_exit = None;
        let Some(line) = line else {
            self.record.last_launch = Some(now);
            return self.launch_failed(now, Failure::new(Code::CommandFailed, "there is no start_cmd"));
        };
        self.expect_life(now, old.clone(), timeout);
        self.mark_begun();
        self.run(command, line, timeout);
        self.work = Work::Launch { old, next: Some(now + FOREGROUND_PAUSE), pause: FOREGROUND_PAUSE, since: None };
    }

    /// Written before the command runs, so that a crash of the agent cannot lead to a second copy.
    fn expect_life(&mut self, now: Time, old: Option<Incarnation>, timeout: Duration) {
        let until = now + timeout + seek_window(self.policy_of_current());
        self.record.launch = Some(Launch { until, old, begun: false, since: None });
        self.record.last_launch = Some(now);
        self.dirty = true;
    }

    /// A command that does not end may be the process itself: its pid file tells.
    pub(super) fn look_while_launching(&mut self, old: Option<Incarnation>, pause: Duration, since: Option<Time>) {
        self.look();
        self.work = Work::Launch { old, next: None, pause, since };
    }

    pub(super) fn seen_while_launching(
        &mut self,
        now: Time,
        look: Look,
        old: Option<Incarnation>,
        pause: Duration,
        since: Option<Time>,
    ) {
        let mut since = since;
        match look {
            Look::Running(life) if Some(&life) != old.as_ref() => {
                since = since.filter(|_| self.record.life.as_ref() == Some(&life)).or(Some(now));
                self.adopt(now, life);
            }
            Look::Running(_) | Look::Absent(_) | Look::Dead { .. } => since = None,
        }
        let spec = self.policy_of_current();
        let watched = seek_window(spec).max(spec.policy.last_start_check().duration());
        let is_settled = since.is_some_and(|since| now.since(since) >= watched);
        if is_settled {
            return self.launched_in_foreground(now);
        }
        let next = Some(now + pause);
        self.work = Work::Launch { old, next, pause: (pause * 3 / 2).min(FOREGROUND_PAUSE_MAX), since };
    }

    /// The process has lived through its check and the command still runs: it is the process.
    fn launched_in_foreground(&mut self, now: Time) {
        self.actions.push_back(Action::Detach { ticket: self.commands });
        self.commands += 1; // its end is no longer waited for
        self.record.running = None;
        self.record.launch = None;
        self.dirty = true;
        self.scheduled = false;
        match &self.current {
            Some(_) => self.settled(now),
            None => self.relaunched(now),
        }
    }

    pub(super) fn launched(&mut self, now: Time, old: Option<Incarnation>, end: CommandEnd) {
        if self.scheduled {
            return self.run_ended(&end);
        }
        self.keep_output(&end);
        let mood = match &end.result {
            _ if self.is_cancelled() => Mood::Failed(self.cancellation("start command")),
            CommandResult::Exited(Exit::Code(0)) | CommandResult::Lost => Mood::Patient,
            CommandResult::Postponed if self.current.is_none() => return self.postponed(now),
            CommandResult::NotRun(_)
            | CommandResult::Postponed
            | CommandResult::Exited(_)
            | CommandResult::Cancelled
            | CommandResult::TimedOut => Mood::Failed(self.command_failure("start", &end)),
        };
        let until = now + seek_window(self.policy_of_current());
        if let Some(launch) = &mut self.record.launch {
            launch.until = until;
            self.dirty = true;
        }
        self.seek_again(old, until, FIRST_PAUSE, mood);
    }

    /// Looks for the life that a start must have brought.
    pub(super) fn seek_again(&mut self, old: Option<Incarnation>, until: Time, pause: Duration, mood: Mood) {
        self.look();
        self.work = Work::Seek { old, until, next: None, pause, mood };
    }

    fn seek_again_at(&mut self, next: Time, old: Option<Incarnation>, until: Time, pause: Duration) {
        self.work = Work::Seek { old, until, next: Some(next), pause, mood: Mood::Patient };
    }

    pub(super) fn sought(
        &mut self,
        now: Time,
        look: Look,
        old: Option<Incarnation>,
        until: Time,
        pause: Duration,
        mood: Mood,
    ) {
        match look {
            Look::Running(life) if Some(&life) != old.as_ref() => return self.found(now, life, until, mood),
            Look::Running(life) => self.reason = format!("process {} of before still runs", life.pid),
            Look::Absent(reason) => {
                self.lose_life(now, None);
                self.reason = reason;
            }
            Look::Dead { pid, reason } => {
                self.lose_life(now, None);
                self.reason = reason;
                let counts = !self.policy_of_current().policy.has_second_check();
                if Some(pid) != self.named && matches!(mood, Mood::Patient) && counts {
                    // It came and died. The file may still be about to name its successor.
                    self.named = Some(pid);
                    return self.seek_again_at(now + AFTER_DEATH, old, now + AFTER_DEATH, pause);
                }
            }
        }
        match mood {
            Mood::Patient if now < until => {
                let next = Some((now + pause).min(until));
                let pause = (pause * 3 / 2).min(LAST_PAUSE);
                self.work = Work::Seek { old, until, next, pause, mood };
            }
            Mood::Patient | Mood::LastLook => self.not_found(now),
            Mood::Failed(failure) => self.launch_failed(now, failure),
        }
    }

    fn found(&mut self, now: Time, life: Incarnation, until: Time, mood: Mood) {
        self.adopt(now, life);
        self.record.launch = None;
        match (&self.current, mood) {
            (None, _) => self.relaunched(now),
            (Some(_), Mood::Failed(failure)) => self.fail(now, failure.code, failure.message),
            (Some(current), _) if current.request.kind == OperationKind::Reload => self.succeed(now),
            (Some(_), Mood::Patient | Mood::LastLook) => self.settle(now, until),
        }
    }

    /// Alive: it must stay so until its last check.
    fn settle(&mut self, now: Time, until: Time) {
        let policy = &self.policy_of_current().policy;
        let (check, last) = (policy.start_check.duration(), policy.last_start_check().duration());
        let first = until.min(now + check);
        let until = first + last.saturating_sub(check);
        if until <= now {
            return self.settled(now);
        }
        self.work = Work::Settle { first, until };
    }

    pub(super) fn settled(&mut self, now: Time) {
        // Who was unregistered meanwhile runs on, but nobody keeps it alive.
        if self.record.registered {
            self.manage();
        }
        self.succeed(now);
    }

    /// Nothing of the operation may happen: it cannot be remembered.
    pub(super) fn refused(&mut self, now: Time, operation: OperationId, reason: &str) {
        if self.current.as_ref().is_some_and(|current| current.request.operation == operation) {
            self.record.launch = None;
            self.record.unwanted = None;
            self.dirty = true;
            self.commands += 1; // the command that was wanted never ran
            self.fail(now, Code::CommandFailed, reason);
        }
    }

    /// Somebody wants it down while supervision still searches for what it started: the search is
    /// cut short, so that a long check cannot hold up a stop.
    pub(super) fn hurry(&mut self, now: Time) {
        if let Work::Seek { until, .. } = &mut self.work {
            *until = (*until).min(now + SEEK_WITHOUT_CHECK);
        }
    }

    /// Its pid file may name another life by now; if not, the start has failed. Between the first check and a
    /// second one it has failed whoever is there: it had to be the same life.
    pub(super) fn died_while_settling(&mut self, now: Time, first: Time, life: &Incarnation) {
        let policy = &self.policy_of_current().policy;
        let must_stay = policy.has_second_check() && policy.lifetime == Lifetime::Resident;
        let mood = match (must_stay, now < first) {
            (false, _) => Mood::LastLook,
            (true, true) => {
                self.named = Some(life.pid);
                Mood::Patient
            }
            (true, false) => {
                let kind = self.current.as_ref().map_or(OperationKind::Start, |current| current.request.kind);
                let message = format!("{kind}: process {} ended between its two start checks", life.pid);
                Mood::Failed(Failure::new(Code::CheckFailed, message))
            }
        };
        self.seek_again(None, first, FIRST_PAUSE, mood);
    }

    fn not_found(&mut self, now: Time) {
        let spec = self.policy_of_current();
        let may_have_ended = match spec.policy.lifetime {
            Lifetime::Resident => false,
            Lifetime::Periodic => spec.policy.has_schedule(),
            Lifetime::Once => true,
        };
        let kind = self.current.as_ref().map_or(OperationKind::Start, |current| current.request.kind);
        let is_start = matches!(kind, OperationKind::Start | OperationKind::Restart);
        if is_start && may_have_ended && matches!(self.last_exit, None | Some(Exit::Code(0))) {
            self.record.launch = None;
            return self.settled(now);
        }
        let message = format!("{kind}: the process is not alive: {}", self.reason);
        self.launch_failed(now, Failure::new(Code::CheckFailed, message));
    }

    /// Without a life that is known, what the start left behind must go: nobody would ever find it,
    /// and the next start would make a second copy.
    fn launch_failed(&mut self, now: Time, failure: Failure) {
        let since = self.record.launch.as_ref().and_then(|launch| launch.since);
        match since.filter(|_| self.record.life.is_none()) {
            Some(since) => {
                let mut remains =
                    Remains { since, launched: true, sessions: self.session.take().into_iter().collect() };
                // A restart command may have ended the life before and left some of that behind.
                if let Some(before) = &self.record.remains {
                    remains.since = since.min(before.since);
                    remains.launched = before.launched;
                    remains.sessions.extend(&before.sessions);
                }
                self.lost_at = Some(now);
                self.clear_of(now, remains, AfterClear::LaunchFailed(failure));
            }
            None if self.record.life.is_none() => self.clear(now, AfterClear::LaunchFailed(failure)),
            None => self.end_failed_launch(now, failure),
        }
    }

    pub(super) fn end_failed_launch(&mut self, now: Time, failure: Failure) {
        self.record.launch = None;
        self.dirty = true;
        match &self.current {
            Some(_) => self.fail(now, failure.code, failure.message),
            None => self.relaunch_failed(now, &failure.message),
        }
    }

    // Stop and kill.

    /// Ends `life`, by command or by signal.
    fn halt(&mut self, now: Time, life: Incarnation) {
        let is_kill = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Kill);
        let control = &self.policy_of_current().control;
        let (command, line) =
            if is_kill { (CommandKind::Kill, control.kill.clone()) } else { (CommandKind::Stop, control.stop.clone()) };
        self.mark_begun();
        let is_restart = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Restart);
        self.record.unwanted = (!is_restart).then(|| life.clone());
        self.dirty = true;
        match line {
            Some(line) => {
                let timeout = self.policy_of_current().policy.op_timeout.duration();
                self.run(command, line, timeout);
                self.work = Work::Halt { life };
            }
            None if is_kill => self.kill_tree(now, life),
            None => {
                self.actions.push_back(Action::Signal(life.clone(), Signal::Terminate));
                self.fade(now, life);
            }
        }
    }

    pub(super) fn halted(&mut self, now: Time, life: Incarnation, end: CommandEnd) {
        if self.evicting.is_some() {
            return self.evict_halted(now, life);
        }
        self.keep_output(&end);
        if self.is_cancelled() {
            let failure = self.cancellation("stop command");
            self.dirty |= self.record.launch.take().is_some();
            return self.fail(now, failure.code, failure.message);
        }
        if self.record.life.as_ref() != Some(&life) {
            return self.faded(now);
        }
        let is_kill = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Kill);
        match &end.result {
            _ if is_kill => {
                self.work = Work::Fade { life, until: now + AFTER_KILL_COMMAND, fallback: Fallback::KillTree };
            }
            CommandResult::Exited(Exit::Code(0)) | CommandResult::Lost => self.fade(now, life),
            CommandResult::TimedOut => {
                self.actions.push_back(Action::Signal(life.clone(), Signal::Terminate));
                self.fade(now, life);
            }
            CommandResult::Exited(_)
            | CommandResult::Cancelled
            | CommandResult::NotRun(_)
            | CommandResult::Postponed => {
                let fallback = Fallback::Fail(self.command_failure("stop", &end));
                self.work = Work::Fade { life, until: now + AFTER_FAILED_STOP, fallback };
            }
        }
    }

    /// Waits for the end of `life` as long as the policy allows.
    fn fade(&mut self, now: Time, life: Incarnation) {
        let check = self.policy_of_current().policy.stop_check;
        let message = format!("stop: process {} is still alive after {} s", life.pid, check.get());
        let fallback = Fallback::Fail(Failure::new(Code::CheckFailed, message));
        self.work = Work::Fade { life, until: now + check.duration(), fallback };
    }

    pub(super) fn kill_tree(&mut self, now: Time, life: Incarnation) {
        self.actions.push_back(Action::KillTree(life.clone()));
        let message = format!("kill: process {} is still there after SIGKILL", life.pid);
        let fallback = Fallback::Fail(Failure::new(Code::CheckFailed, message));
        self.work = Work::Fade { life, until: now + SIGKILL_SENT_MAX, fallback };
    }

    /// The signals are sent: what the kernel needs to end the life counts from now on, not from when the
    /// kill was asked for.
    pub(super) fn tree_killed(&mut self, now: Time, life: &Incarnation) {
        if let Work::Fade { life: fading, until, fallback: Fallback::Fail(_) } = &mut self.work
            && fading == life
        {
            *until = now + AFTER_SIGKILL;
        }
    }

    pub(super) fn still_there(&mut self, now: Time, life: Incarnation, fallback: Fallback) {
        match fallback {
            Fallback::KillTree => self.kill_tree(now, life),
            Fallback::Fail(failure) => {
                self.evicting = None;
                self.record.launch = None;
                self.dirty = true;
                self.fail(now, failure.code, failure.message);
            }
        }
    }

    /// The life is over; what it has left behind goes too.
    pub(super) fn faded(&mut self, now: Time) {
        let next = if self.evicting.is_some() { AfterClear::Evicted } else { AfterClear::Faded };
        self.clear(now, next);
    }

    /// Nothing of the life is left: a stop or kill has reached its goal, a restart goes on.
    pub(super) fn gone(&mut self, now: Time) {
        let is_restart = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Restart);
        if is_restart {
            return self.launch(now, CommandKind::Start, None);
        }
        self.release();
        self.succeed(now);
    }

    // Reload.

    fn reload(&mut self, now: Time, life: Incarnation) {
        let Some(line) = self.policy_of_current().control.reload.clone() else {
            return self.fail(now, Code::CommandFailed, "there is no reload_cmd");
        };
        self.mark_begun();
        let timeout = self.policy_of_current().policy.op_timeout.duration();
        self.run(CommandKind::Reload, line, timeout);
        self.work = Work::Reload { life };
    }

    pub(super) fn reloaded(&mut self, now: Time, life: &Incarnation, end: CommandEnd) {
        self.keep_output(&end);
        if self.is_cancelled() || end.result != CommandResult::Exited(Exit::Code(0)) {
            let cancelled = self.is_cancelled().then(|| self.cancellation("reload command"));
            let failure = cancelled.unwrap_or_else(|| self.command_failure("reload", &end));
            return self.fail(now, failure.code, failure.message);
        }
        if self.record.life.as_ref() == Some(life) {
            return self.succeed(now);
        }
        self.seek_again(None, now, FIRST_PAUSE, Mood::LastLook);
    }

    // Ends.

    /// The spec that counts now: the operation's, or the registered one.
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

    fn keep_output(&mut self, end: &CommandEnd) {
        if let Some(current) = &mut self.current {
            if !current.output.is_empty() && !end.output.is_empty() {
                current.output.push('\n');
            }
            current.output.push_str(&end.output);
        }
    }

    /// What people read when a command did not end well: what it printed, if it said anything.
    fn command_failure(&self, command: &str, end: &CommandEnd) -> Failure {
        let said = end.output.trim_end();
        let message = match &end.result {
            CommandResult::NotRun(reason) => format!("the {command} command could not be run: {reason}"),
            CommandResult::Postponed => format!("the {command} command could not be run: {TOO_MANY}"),
            CommandResult::Cancelled => format!("the {command} command was killed: {said}"),
            CommandResult::Lost => format!("the agent restarted during the {command}; its end is not known"),
            CommandResult::TimedOut => {
                let secs = self.policy_of_current().policy.op_timeout.get();
                format!("the {command} command did not end within {secs} s and was killed: {said}")
            }
            CommandResult::Exited(exit) if said.is_empty() => format!("the {command} command ended with {exit}"),
            CommandResult::Exited(_) => said.to_owned(),
        };
        Failure::new(Code::CommandFailed, message)
    }

    fn succeed(&mut self, now: Time) {
        self.finish(now, Outcome::success(self.record.managed));
    }

    pub(super) fn fail(&mut self, now: Time, code: Code, message: impl Into<String>) {
        self.finish(now, Outcome::new(code, message, self.record.managed));
    }

    pub(super) fn finish(&mut self, now: Time, mut outcome: Outcome) {
        if let Some(current) = self.current.take() {
            if current.cancelled {
                self.record.unwanted = None;
                self.dirty = true;
            }
            let hosts =
                matches!(current.request.kind, OperationKind::Start | OperationKind::Restart | OperationKind::Manage);
            if let Some(note) = current.spec.instances_note().filter(|_| hosts && outcome.code.is_success()) {
                outcome.message = format!("success: {note}");
            }
            outcome.output = current.output;
            outcome.managed = self.record.managed;
            self.actions.push_back(Action::Finish {
                operation: current.request.operation,
                outcome: Box::new(outcome.fitted()),
            });
        }
        self.work = Work::Rest;
        self.rest(now);
    }
}

/// How long after the end of its start command a process may take to show up.
pub(super) fn seek_window(spec: &Spec) -> Duration {
    match spec.policy.start_check.duration() {
        Duration::ZERO => SEEK_WITHOUT_CHECK,
        check => check,
    }
}
