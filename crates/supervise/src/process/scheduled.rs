//! Scheduled runs. `crate::schedule` decides when a run is due; here it is carried out: the start command is the
//! run, and a pid file may name a process that outlives it.
//!
//! Promised: after a stop or kill of a run it has no leftovers; what a run leaves behind is ended before the next
//! one starts. A run that cannot begin (no free command slot, an operation comes first, a ledger that cannot be
//! written) is retried until the next one is due, and then reported as missed. A run whose process is registered
//! with another pid file or program continues as that of an elder; nobody waits for it, and its timeout is not
//! enforced.

use std::time::Duration;

use proctor_model::{CommandExit, CommandResult, Lifetime, Message, ProcessSession, messages};

use super::activity::Activity;
use super::relaunch::POSTPONED;
use super::{Action, CommandKind, Elder, Notice, Process};
use crate::Time;

/// A run in the foreground may take this long; runs that come due meanwhile are skipped.
const RUN_MAX: Duration = Duration::from_secs(24 * 3600);

/// A run that was due and whose command has not begun.
#[derive(Debug)]
pub(super) struct OwedRun {
    planned: i64,
    since_boot: Option<Time>,
    /// When it is retried; None: it is being tried.
    again: Option<Time>,
}

impl Process {
    pub(super) fn due(&mut self, now: Time, planned: i64, since_boot: Option<Time>) {
        let is_tried = self.owed_run.as_ref().is_some_and(|run| run.again.is_none());
        self.miss_run(messages::run_could_not_begin());
        self.owed_run = Some(OwedRun { planned, since_boot, again: None });
        if !is_tried {
            self.run_owed(now);
        }
    }

    /// When a run that could not begin is retried.
    pub(super) fn run_again_at(&self) -> Option<Time> {
        let is_at_rest = matches!(self.work, Activity::Idle | Activity::Backoff { .. });
        self.owed_run.as_ref().and_then(|run| run.again).filter(|_| is_at_rest)
    }

    pub(super) fn run_owed(&mut self, now: Time) {
        let is_periodic = self.record.spec.policy.lifetime == Lifetime::Periodic;
        if !is_periodic || !self.record.managed {
            return self.note_run();
        }
        if self.is_busy() {
            return self.miss_run(messages::earlier_run_not_over());
        }
        if self.unclear {
            // Leftovers of the previous run may exist: they are looked for first.
            if let Some(run) = &mut self.owed_run {
                run.again = Some(now + POSTPONED);
            }
            return self.probe();
        }
        if let Some(run) = &mut self.owed_run {
            run.again = None;
        }
        self.scheduled = true;
        self.launch_for(now, CommandKind::Start, None, RUN_MAX);
    }

    /// The run could not begin, and is retried after `pause`.
    pub(super) fn postpone_run(&mut self, now: Time, pause: Duration) {
        self.scheduled = false;
        self.dirty |= self.record.launch.take().is_some();
        if let Some(run) = &mut self.owed_run {
            run.again = Some(now + pause);
        }
        self.work = Activity::Idle;
        self.become_idle(now);
    }

    /// The planned time of the run was handled: kept for the agent's next start.
    pub(super) fn note_run(&mut self) {
        if let Some(run) = self.owed_run.take() {
            (self.record.planned_at, self.record.planned) = (Some(run.planned), run.since_boot);
            self.dirty = true;
        }
    }

    fn miss_run(&mut self, reason: Message) {
        if let Some(planned) = self.owed_run.as_ref().map(|run| run.planned) {
            self.actions.push_back(Action::Notify(Notice::RunMissed { planned, reason }));
            self.note_run();
        }
    }

    /// The process was registered with another pid file or program, and does not wait a day for this run: the run
    /// continues as that of an elder. Operations that wait for its end are answered. One that is being ended by an
    /// operator is waited for. False: there is no run to leave.
    pub(super) fn leave_run(&mut self, now: Time) -> bool {
        let is_run = self.scheduled && self.current.is_none() && matches!(self.work, Activity::Launching { .. });
        if !is_run || self.run_ended_by_hand {
            return false;
        }
        match self.record.running.clone() {
            Some(running) => {
                let begun = self.record.launch.as_ref().and_then(|launch| launch.since);
                let since = begun.unwrap_or(running.command.start_ticks);
                let is_life = self.record.life.as_ref() == Some(&running.command);
                // A life that the run has produced keeps its own: both are elders now, and one may outlive the
                // other.
                let led = |session: &ProcessSession| {
                    (session.leader, session.start_ticks) == (running.command.pid, running.command.start_ticks)
                };
                let is_of_run = |session: &mut ProcessSession| !is_life && (self.record.life.is_none() || led(session));
                let sessions = self.record.sessions.extract_if(.., is_of_run).collect();
                let (life, until) = (Some(running.command), Some(now));
                let run = Elder { life, since, launched: true, sessions, until, before: vec![] };
                let before = self.record.elder.take();
                let before = before.iter().flat_map(|elder| elder.all().cloned());
                self.record.elder = Elder::of(Some(run).filter(|_| !is_life).into_iter().chain(before)).map(Box::new);
                self.detach_command();
            }
            // It has not begun, and never does.
            None => {
                self.actions.push_back(Action::KillCommand { ticket: self.commands });
                self.commands += 1;
                (self.announced, self.scheduled, self.record.launch) = (None, false, None);
            }
        }
        for request in std::mem::take(&mut self.queue) {
            self.answer_unbegun(&request, messages::registered_elsewhere_before());
        }
        self.work = Activity::Idle;
        self.dirty = true;
        true
    }

    /// The command of a run has exited; a process that outlives it is adopted by the following probe.
    pub(super) fn run_ended(&mut self, now: Time, end: &CommandExit) {
        if end.result == CommandResult::NoSlot {
            // A command that could not be recorded had begun, and its run was handled.
            let (planned, since_boot) = (self.record.planned_at, self.record.planned);
            let noted = planned.map(|planned| OwedRun { planned, since_boot, again: None });
            self.owed_run = self.owed_run.take().or(noted);
            return self.postpone_run(now, POSTPONED);
        }
        self.note_run();
        self.scheduled = false;
        if let CommandResult::NotStarted(reason) = &end.result {
            self.reason = messages::because(reason);
        }
        self.leave_launch_behind();
        self.record.launch = None;
        self.dirty = true;
        self.actions.push_back(Action::Notify(Notice::RunEnded { result: end.result.clone() }));
        self.probe();
        debug_assert!(matches!(self.work, Activity::Probing));
    }
}
