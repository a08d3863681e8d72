//! What is known about a process: its registration, whether it is managed, and its current life.

use proctor_model::{Exit, Incarnation, Message, Probe, messages};

use super::activity::Activity;
use super::{Action, Notice, Process, Record, Registration};
use crate::Time;

impl Process {
    /// Who is to be shown as the process: its life, or the command of a scheduled run under way.
    pub fn shown(&self) -> Option<&Incarnation> {
        let run = self.record.running.as_ref().filter(|running| running.scheduled).map(|running| &running.command);
        self.record.life.as_ref().or(run)
    }

    /// When the command began that brought what is shown, in ticks since boot, where we started it.
    pub fn shown_since(&self) -> Option<u64> {
        match (&self.record.life, self.shown()) {
            (Some(_), _) => self.record.since,
            (None, run) => run.map(|run| run.start_ticks),
        }
    }

    /// When the current start command began, in ticks since boot. What it produces may exist before it is known.
    pub fn launch_since(&self) -> Option<u64> {
        self.record.launch.as_ref().and_then(|launch| launch.since)
    }

    pub(super) fn assign(&mut self, now: Time, next: Registration) {
        if let Some(waiting) = self.record.next.take() {
            return self.replace_next(&waiting, next);
        }
        let is_anew = !self.record.registered || self.record.registered_at != next.registered_at;
        if is_anew && next.is_other_process(&self.record.spec) {
            if self.record.registered {
                self.forget(now);
            }
            self.leave_run(now);
            if self.is_under_way() {
                self.record.next = Some(Box::new(next));
                self.dirty = true;
                return;
            }
            self.make_way(now);
        }
        self.register(now, next);
        // It may already be running, started by somebody else.
        if self.record.life.is_none() && matches!(self.work, Activity::Idle) {
            self.probe();
        }
    }

    /// The waiting registration is changed, or replaced by another one.
    fn replace_next(&mut self, waiting: &Registration, next: Registration) {
        let is_anew = waiting.registered_at != next.registered_at;
        let managed = next.managed || (waiting.managed && !is_anew);
        if is_anew && next.is_other_process(&waiting.spec) {
            self.answer_waiting(|_| messages::registered_elsewhere_before());
        }
        self.record.next = Some(Box::new(Registration { managed, ..next }));
        self.dirty = true;
    }

    /// Answers what waits for the waiting registration: that will not come.
    fn answer_waiting(&mut self, message: impl Fn(&Self) -> Message) {
        for request in std::mem::take(&mut self.queue_of_next) {
            let message = message(self);
            self.answer_unbegun(&request, message);
        }
    }

    /// The waiting registration takes effect. False: there is none.
    pub(super) fn register_next(&mut self, now: Time) -> bool {
        let Some(next) = self.record.next.take() else { return false };
        // If the ledger could not be written, it may still have it although it has taken effect.
        if !self.record.registered || self.record.registered_at != next.registered_at {
            self.make_way(now);
        }
        self.register(now, *next);
        self.queue = std::mem::take(&mut self.queue_of_next);
        true
    }

    pub(super) fn register(&mut self, now: Time, next: Registration) {
        let Registration { spec, managed, registered_at } = next;
        // Registered again since we last heard: it was released in between.
        if self.record.registered && self.record.registered_at != registered_at {
            self.release();
        }
        let before = std::mem::replace(&mut self.record.spec, spec);
        self.follow_health(now, &before);
        self.record.registered = true;
        self.record.registered_at = registered_at;
        self.dirty = true;
        if managed && !self.record.managed {
            self.manage();
        }
    }

    fn is_under_way(&self) -> bool {
        let is_at_rest = matches!(self.work, Activity::Idle | Activity::Backoff { .. });
        !is_at_rest || self.current.is_some() || !self.queue.is_empty()
    }

    /// Another process gets this name: what is known about the current one becomes an elder.
    pub(super) fn make_way(&mut self, now: Time) {
        let elder = self.estate(now);
        let next = Record::new(self.record.spec.clone());
        let before = std::mem::replace(&mut self.record, next);
        self.record.instance = before.instance;
        self.health.reset();
        self.work = Activity::Idle;
        (self.running_since, self.trial) = (None, None);
        self.shared_session = None;
        (self.named, self.last_exit, self.evicting) = (None, None, None);
        (self.owed_run, self.interrupted) = (None, None);
        (self.scheduled, self.run_ended_by_hand, self.unclear) = (false, false, false);
        for text in [&mut self.reason, &mut self.evicted_for, &mut self.told_waiting] {
            *text = Message::default();
        }
        elder.into_iter().for_each(|elder| self.inherit(elder));
        self.dirty = true;
    }

    pub(super) fn forget(&mut self, now: Time) {
        self.record.registered = false;
        self.record.next = None;
        self.answer_waiting(|process| messages::process_not_registered(&process.key));
        let was_idle = matches!(self.work, Activity::Idle);
        self.let_go();
        if matches!(self.work, Activity::Backoff { .. }) {
            self.work = Activity::Idle;
        }
        // Operations may have waited for it.
        if !was_idle && matches!(self.work, Activity::Idle) {
            self.become_idle(now);
        }
    }

    /// Ends management; the process lives on.
    pub(super) fn release(&mut self) {
        self.record.managed = false;
        self.record.attempts = 0;
        self.record.failed = false;
        self.trial = None;
        self.owed_run = None;
        self.dirty = true;
    }

    pub(super) fn manage(&mut self) {
        self.record.managed = true;
        self.record.unwanted = None;
        self.record.attempts = 0;
        self.record.failed = false;
        self.trial = None;
        self.dirty = true;
    }

    /// What another probe saw, if nothing in progress probes by itself.
    pub(super) fn on_observed(&mut self, now: Time, look: Probe) {
        let Probe::Running(life) = look else { return };
        if matches!(self.work, Activity::Idle | Activity::Backoff { .. }) {
            self.work = Activity::Idle;
            self.adopt(now, life);
        }
    }

    /// Adopts a running process as the current life and watches it.
    pub(super) fn adopt(&mut self, now: Time, life: Incarnation) {
        self.unclear = false;
        self.told_waiting = Message::default();
        if self.record.life.as_ref() == Some(&life) && self.running_since.is_some() {
            return;
        }
        let notice = match self.record.life.take().filter(|old| *old != life) {
            Some(old) => Notice::PidChanged { old, new: life.clone() },
            None if self.record.launch.is_some() => Notice::Started { life: life.clone() },
            None => Notice::Adopted { life: life.clone() },
        };
        self.actions.push_back(Action::Watch(life.clone()));
        self.actions.push_back(Action::Notify(notice));
        self.belong(&life);
        self.record.life = Some(life);
        self.record.failed = false;
        self.running_since = Some(now);
        self.expect_health(now);
        self.dirty = true;
    }

    pub(super) fn on_exit(&mut self, now: Time, exit: Option<Exit>) {
        let Some(life) = self.record.life.take() else { return };
        self.dirty = true;
        self.remember_leftovers(&life);
        self.last_exit = exit;
        self.reason = match exit {
            Some(exit) => messages::process_ended_with(life.pid, exit.message()),
            None => messages::process_ended(life.pid),
        };
        if self.evicting.is_none() {
            self.evicted_for = Message::default();
        }
        if self.running_since.take().is_some_and(|since| self.was_stable(since, now)) {
            self.record.attempts = 0;
            self.record.evictions = 0;
        }
        self.health.reset();
        match &self.record.unwanted {
            Some(unwanted) if *unwanted == life => self.release(), // kept until what it left behind is ended
            Some(_) | None => self.record.unwanted = None,
        }
        self.actions.push_back(Action::Notify(Notice::Exited { life, exit }));
        if self.trial.take().is_some() {
            let (attempt, reason) = (self.record.attempts, self.reason.clone());
            self.actions.push_back(Action::Notify(Notice::RestartFailed { attempt, reason }));
        }
    }

    /// Whether a life proved that the process can live. The time until it turned out unhealthy is no proof, however
    /// long: it was healthy only up to the last good result of the health command.
    fn was_stable(&self, since: Time, now: Time) -> bool {
        let well_until = if self.health.is_unhealthy() { self.health.last_well() } else { Some(now) };
        well_until.is_some_and(|until| until.since(since) >= self.record.stable_run())
    }
}
