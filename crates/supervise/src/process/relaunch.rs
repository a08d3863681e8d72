//! Supervision: what happens to a managed process between operations.
//!
//! The first at once, then at least `start_interval` apart, `start_retries` times; then management ends. A run of a
//! minute (or two intervals, if that is longer) resets the count.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use proctor_model::{Code, Incarnation, Message, messages};

use super::activity::{Activity, AfterLeftovers, ProbePlan};
use super::launch::FOREGROUND_PAUSE_MAX;
use super::{Action, CommandKind, Launch, Notice, Process, RunningCommand};
use crate::Time;

/// Waits are stretched by up to this part of the interval, so that a fleet does not move in step.
const JITTER_PART: u32 = 10;
/// The starts after a reboot are spread over this time: a whole rack may come back at the same moment.
const AFTER_REBOOT: Duration = Duration::from_secs(5);
pub(super) const POSTPONED: Duration = Duration::from_secs(1);
/// Wait before an unclear probe is repeated.
const UNCLEAR_PAUSE: Duration = Duration::from_secs(5);
/// The same if nobody wants it started.
const UNCLEAR_PAUSE_IDLE: Duration = Duration::from_secs(60);
const SEEK_PAUSE: Duration = Duration::from_millis(50);

impl Process {
    /// The agent has restarted.
    pub(super) fn resume(&mut self, now: Time, same_boot: bool) {
        if let Some(current) = &mut self.current {
            current.begun = true;
            if !same_boot {
                return self.fail(now, Code::CommandFailed, messages::host_restarted_during());
            }
        }
        if !same_boot && self.record.managed {
            self.record.not_before = Some(now + self.spread(AFTER_REBOOT));
        }
        self.interrupted = self.record.running.clone().map(Box::new);
        self.probe();
    }

    /// A command of the previous agent may still be running. It is waited for as if it were our own, so that
    /// nothing else begins beside it, and no longer than it takes. False: it no longer matters.
    pub(super) fn rejoin(&mut self, now: Time, running: RunningCommand, before: Option<Incarnation>) -> bool {
        let RunningCommand { command, kind, mut until, scheduled } = running;
        let work = match (kind, before, &self.current) {
            (CommandKind::Start | CommandKind::Restart, ..) => {
                let old = self.record.launch.as_ref().and_then(|launch| launch.old.clone());
                let since = self.record.life.as_ref().filter(|life| Some(*life) != old.as_ref()).map(|_| now);
                self.scheduled = scheduled;
                if since.is_some() || self.unclear {
                    // The command may be the process itself. Its time may have passed while nobody was there to see.
                    until = until.max(now + self.foreground_watch() + FOREGROUND_PAUSE_MAX * 2);
                }
                Activity::Launching { old, next: Some(now + SEEK_PAUSE), pause: SEEK_PAUSE, since }
            }
            (CommandKind::Stop | CommandKind::Kill, Some(life), Some(_)) => Activity::Stopping { life },
            (CommandKind::Reload, Some(life), Some(_)) => Activity::Reloading { life },
            // The life that it was meant for is over; or supervision wanted it to end, and a life that is still
            // there is judged again.
            (CommandKind::Stop | CommandKind::Kill | CommandKind::Reload, ..) => {
                self.record.running = None;
                self.dirty = true;
                return false;
            }
        };
        self.commands += 1;
        self.actions.push_back(Action::RejoinCommand { ticket: self.commands, command, kind, until });
        self.work = work;
        self.cut_resumed(now);
        if self.record.next.is_none() {
            self.request_again(now);
        } else if self.leave_run(now) {
            self.become_idle(now);
        }
        true
    }

    /// The result of a probe outside operations.
    pub(super) fn supervise(&mut self, now: Time) {
        if self.record.life.is_some() {
            self.record.launch = None;
        } else if let Some(Launch { until, old, begun: true, .. }) = self.record.launch.clone()
            && until > now
        {
            // A start from before the agent's restart may still produce a process: nothing else, not even an
            // operation, begins before that is known.
            let next = Some(now + SEEK_PAUSE);
            self.work = Activity::WaitingForPid { old, until, next, pause: SEEK_PAUSE, plan: ProbePlan::Retry };
            return;
        }
        self.leave_launch_behind();
        self.dirty |= self.record.launch.take().is_some();
        if !self.queue.is_empty() || self.record.next.is_some() || !self.needs_relaunch() {
            return self.next_operation_or_idle(now);
        }
        if self.unclear {
            return self.wait_until_clear(now);
        }
        if self.record.attempts >= self.record.spec.policy.start_retries {
            return self.exhaust_retries(now);
        }
        match self.next_launch() {
            Some(due) if due > now => self.work = Activity::Backoff { at: due },
            Some(_) | None => {
                self.record.attempts += 1;
                self.launch(now, CommandKind::Start, None);
            }
        }
    }

    fn next_operation_or_idle(&mut self, now: Time) {
        if self.record.next.is_some() {
            return self.become_idle(now);
        }
        if let Some(request) = super::pop(&mut self.queue) {
            self.begin(now, request);
        } else if self.has_unwanted_remains() {
            self.clear(now, AfterLeftovers::Swept);
        } else {
            self.watch_unclear(now);
        }
    }

    /// Nobody wants it started, but people want to know whether it runs: it is probed again.
    pub(super) fn watch_unclear(&mut self, now: Time) {
        if self.unclear && self.record.registered && self.record.life.is_none() {
            self.work = Activity::Backoff { at: now + UNCLEAR_PAUSE_IDLE };
        }
    }

    /// None: at once.
    fn next_launch(&self) -> Option<Time> {
        let last = self.record.last_launch.filter(|_| self.record.attempts > 0);
        let by_policy = last.map(|last| last + self.record.spec.policy.start_interval.duration() + self.jitter());
        by_policy.max(self.record.not_before)
    }

    fn jitter(&self) -> Duration {
        self.spread(self.record.spec.policy.start_interval.duration() / JITTER_PART)
    }

    /// A part of `whole` that differs between hosts, processes and attempts.
    fn spread(&self, whole: Duration) -> Duration {
        let mut hasher = DefaultHasher::new();
        (self.seed, &self.key, self.record.attempts).hash(&mut hasher);
        let part = u32::try_from(hasher.finish() % 1000).unwrap_or(0);
        whole * part / 1000
    }

    /// Supervision's start command exited and the process is there.
    pub(super) fn relaunched(&mut self, now: Time) {
        self.trial = Some(now + self.record.spec.policy.last_start_check().duration());
        self.work = Activity::Idle;
        self.become_idle(now);
    }

    pub(super) fn confirm_restart(&mut self) {
        self.trial = None;
        self.actions.push_back(Action::Notify(Notice::RestartSucceeded { attempt: self.record.attempts }));
    }

    /// Too many commands are running: this was no attempt, and the next is soon.
    pub(super) fn on_no_slot(&mut self, now: Time) {
        self.record.attempts = self.record.attempts.saturating_sub(1);
        self.record.launch = None;
        self.record.not_before = Some(now + POSTPONED);
        self.dirty = true;
        self.scheduled = false;
        self.work = Activity::Idle;
        self.become_idle(now);
    }

    fn wait_until_clear(&mut self, now: Time) {
        self.tell_once(self.unclear_reason());
        self.work = Activity::Backoff { at: now + UNCLEAR_PAUSE };
    }

    /// Why supervision starts nothing: reported once per reason, because it may last.
    pub(super) fn tell_once(&mut self, reason: Message) {
        if self.told_waiting != reason {
            self.told_waiting.clone_from(&reason);
            let attempt = self.record.attempts;
            self.actions.push_back(Action::Notify(Notice::RestartFailed { attempt, reason: reason.clone() }));
        }
        self.reason = reason;
    }

    pub(super) fn relaunch_failed(&mut self, now: Time, reason: Message) {
        self.reason = reason.clone();
        self.evicted_for = Message::default();
        let attempt = self.record.attempts;
        self.actions.push_back(Action::Notify(Notice::RestartFailed { attempt, reason }));
        self.work = Activity::Idle;
        self.become_idle(now);
    }

    fn exhaust_retries(&mut self, now: Time) {
        let attempts = self.record.attempts;
        let reason = self.reason.clone();
        self.release();
        self.record.failed = true;
        self.actions.push_back(Action::Notify(Notice::GaveUp { attempts, reason }));
        self.next_operation_or_idle(now);
    }
}
