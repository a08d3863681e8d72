//! What a life leaves behind: workers of a killed master, a grandchild that the stop command forgot.
//!
//! Promised: a stop or kill that succeeds, and an eviction, end only when nothing of that life is left;
//! so does the end of a life that an operator's stop or kill had failed on; what is left of a life or scheduled
//! run that ended by itself, also of one that was unregistered since, is ended before the next start command
//! runs; nothing that began before the launch of that life is touched, nor what belongs to an unregistered
//! process that lives. What outlives SIGKILL stays on record, and nothing is started beside it: a start fails,
//! supervision waits without using up its retries. The sessions of a life are on record as long as something may be
//! left of it, also over a restart of the agent and after it was unregistered.
//! Absent: finding it. The host knows what belongs together; [`Leftovers`] says from when on, and until when its
//! sessions were its own: until their leaders were last proven to be there, not until somebody heard of their end,
//! because an agent that was stopped meanwhile hears of it late. If the agent was down, or the process unregistered,
//! when the life ended, that is when the life was last recorded. What began later is not known by its session.

use std::time::Duration;

use proctor_model::{Code, Incarnation, Leftovers, Message, OperationKind, Probe, ProcessSession, messages};

use super::activity::{Activity, AfterLeftovers, Failure};
use super::relaunch::POSTPONED;
use super::{Action, CommandKind, Elder, Process};
use crate::Time;

/// What is left behind gets this long after SIGTERM. A kill gives it nothing.
const GRACE: Duration = Duration::from_secs(1);
/// Sessions that are known of one life: its own, that of its start command, and those of lives that it goes on from.
const SESSIONS_MAX: usize = 8;
/// What could not be ended is tried again by supervision after this: a search reads all processes of the host.
const SURVIVORS_PAUSE: Duration = Duration::from_secs(10);

impl Process {
    /// A life begins: from when on what belongs to it began. One that nobody here started goes on from
    /// the life before, whose child it may be.
    pub(super) fn belong(&mut self, life: &Incarnation) {
        let (remains, elder) = (self.record.remains.take(), self.take_elder(life));
        let sessions = remains.iter().flat_map(|remains| &remains.sessions);
        let sessions: Vec<_> = sessions.chain(elder.iter().flat_map(|elder| &elder.sessions)).copied().collect();
        let remains = remains.filter(|remains| remains.launched).map(|remains| remains.since);
        let elder = elder.filter(|elder| elder.launched).map(|elder| elder.since);
        let before = self.record.since.or(remains).or(elder);
        let launch = self.record.launch.as_ref();
        // What a restart command lets go on of the life before is of this one now.
        let goes_on = launch.is_none_or(|launch| launch.old.is_some());
        let launched = launch.and_then(|launch| launch.since);
        self.record.since = match (launched, before.filter(|_| goes_on)) {
            (Some(launched), Some(before)) => Some(launched.min(before)),
            (launched, before) => launched.or(before),
        };
        if goes_on {
            self.record.sessions = merged(sessions.into_iter().chain(std::mem::take(&mut self.record.sessions)));
        }
        self.shared_session = None;
        self.add_session(life);
    }

    /// Sessions of the present life and of the start command that brought it.
    pub fn sessions(&self) -> &[ProcessSession] {
        &self.record.sessions
    }

    /// One that this process leads, if it leads any.
    pub(super) fn add_session(&mut self, process: &Incarnation) {
        let (leader, start_ticks) = leader(process);
        let own = ProcessSession { leader, start_ticks, until_ms: 0 };
        self.record.sessions = merged(std::mem::take(&mut self.record.sessions).into_iter().chain([own]));
    }

    /// The life holds the number of that session as long as it lives.
    pub(super) fn share_session(&mut self, life: &Incarnation, session: &ProcessSession) {
        if self.record.life.as_ref() == Some(life) && self.running_since.is_some() {
            self.shared_session = Some((session.leader, session.start_ticks));
            let own = self.record.sessions.iter().find(|own| (own.leader, own.start_ticks) == leader(life));
            if let Some(until_ms) = own.map(|own| own.until_ms) {
                self.hold_sessions(life, until_ms);
            }
        }
    }

    /// That process was there at this time: so long it has held the number of its session. Not worth a write of its
    /// own. The time must have been read before the process was seen: whoever saw it may have slept since.
    pub fn see_alive(&mut self, process: &Incarnation, at: Time) {
        self.hold_sessions(process, millis(at));
    }

    pub(super) fn see_alive_until(&mut self, process: &Incarnation, at: Option<Time>) {
        at.into_iter().for_each(|at| self.see_alive(process, at));
    }

    fn hold_sessions(&mut self, process: &Incarnation, until_ms: u64) {
        let shared = self.shared_session.filter(|_| self.record.life.as_ref() == Some(process));
        let held = [Some(leader(process)), shared];
        let remains = self.record.remains.iter_mut().flat_map(|remains| &mut remains.sessions);
        for session in self.record.sessions.iter_mut().chain(remains) {
            if held.contains(&Some((session.leader, session.start_ticks))) {
                session.until_ms = session.until_ms.max(until_ms);
            }
        }
    }

    /// An unregistered process that has come back to its name.
    fn take_elder(&mut self, life: &Incarnation) -> Option<Elder> {
        let elder = self.record.elder.take_if(|elder| elder.had(life))?;
        let is_it = |elder: &&Elder| elder.life.as_ref() == Some(life);
        self.record.elder = Elder::of(elder.all().filter(|elder| !is_it(elder)).cloned()).map(Box::new);
        elder.all().find(is_it).cloned()
    }

    pub(super) fn remember_leftovers(&mut self, life: &Incarnation) {
        let (since, sessions) = (self.record.since.take(), std::mem::take(&mut self.record.sessions));
        self.shared_session = None;
        let (launched, since) = (since.is_some(), since.unwrap_or(u64::MAX).min(life.start_ticks));
        self.record.remains = Some(Box::new(Leftovers { since, launched, sessions, spared: Vec::new() }));
    }

    /// A launch is over and no life of it is known: what its command forked is left behind, with what a life
    /// before it has left.
    pub(super) fn leave_launch_behind(&mut self) {
        let since = self.record.launch.as_ref().and_then(|launch| launch.since);
        let Some(since) = since.filter(|_| self.record.life.is_none()) else { return };
        let sessions = std::mem::take(&mut self.record.sessions);
        let mut remains = Leftovers { since, launched: true, sessions, spared: Vec::new() };
        // A restart command may have ended the life before and left some of that behind.
        if let Some(before) = &self.record.remains {
            remains.since = since.min(before.since);
            remains.launched = before.launched;
            remains.sessions = merged(before.sessions.iter().copied().chain(remains.sessions));
        }
        self.record.remains = Some(Box::new(remains));
        self.dirty = true;
    }

    /// Takes over what is known of the process of this name that was forgotten.
    pub fn inherit(&mut self, elder: Elder) {
        self.record.elder = match elder {
            Elder { life: None, since, launched, sessions, before, .. } => {
                let remains = Leftovers { since, launched, sessions, spared: Vec::new() };
                self.record.remains = Some(Box::new(remains));
                Elder::of(before)
            }
            Elder { life: Some(_), .. } => Some(elder),
        }
        .map(Box::new);
        self.dirty = true;
    }

    /// What to keep of a process that is forgotten: it may live on, or have left something behind, and so may those
    /// before it.
    pub fn estate(&self, now: Time) -> Option<Elder> {
        let until = Some(now);
        let own = match (&self.record.life, &self.record.remains) {
            (Some(life), _) => {
                let since = self.record.since.unwrap_or(u64::MAX).min(life.start_ticks);
                let launched = self.record.since.is_some();
                let sessions = self.record.sessions.clone();
                Some(Elder { life: Some(life.clone()), since, launched, sessions, until, before: Vec::new() })
            }
            (None, Some(remains)) => {
                let Leftovers { since, launched, sessions, .. } = (**remains).clone();
                Some(Elder { life: None, since, launched, sessions, until, before: Vec::new() })
            }
            (None, None) => None,
        };
        let before = self.record.elder.iter().flat_map(|elder| elder.all().cloned());
        Elder::of(own.into_iter().chain(before))
    }

    /// Whether a life that an operator wanted to end has left something behind.
    pub(super) fn has_unwanted_remains(&self) -> bool {
        self.record.life.is_none() && self.record.unwanted.is_some() && self.record.remains.is_some()
    }

    /// Goes on with `next` when nothing of an earlier life is left.
    pub(super) fn clear(&mut self, now: Time, next: AfterLeftovers) {
        // What began later than the elder may be of a life that is there.
        let elder = self.record.elder.clone().filter(|_| self.record.life.is_none());
        let remains = self.record.remains.as_deref().cloned();
        if remains.is_none() && elder.is_none() {
            return self.go_on(now, next);
        }
        let is_kill = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Kill);
        let grace = if is_kill { Duration::ZERO } else { GRACE };
        self.mark_begun();
        self.commands += 1;
        self.actions.push_back(Action::ClearLeftovers { ticket: self.commands, remains, elder, grace });
        self.work = Activity::ClearingLeftovers { next };
    }

    pub(super) fn cleared(&mut self, now: Time, ended: usize, left: usize, elder: Option<Box<Elder>>) {
        if !matches!(self.work, Activity::ClearingLeftovers { .. }) {
            return;
        }
        let Activity::ClearingLeftovers { next } = std::mem::replace(&mut self.work, Activity::Idle) else { return };
        if left > 0 {
            return self.leave_survivors(now, next, left);
        }
        self.dirty |= self.record.remains.take().is_some();
        if self.record.life.is_none() {
            self.dirty |= self.record.elder != elder || self.record.unwanted.is_some();
            (self.record.elder, self.record.unwanted) = (elder, None);
        }
        let next = match next {
            AfterLeftovers::LaunchFailed(Failure { code, message }) if ended > 0 => {
                AfterLeftovers::LaunchFailed(Failure::new(code, messages::leftovers_ended(message, ended)))
            }
            AfterLeftovers::Launch { command, old: None, timeout } if ended > 0 => {
                self.probe();
                self.work = Activity::LookingAgain { command, timeout };
                return;
            }
            next @ (AfterLeftovers::Launch { .. }
            | AfterLeftovers::LaunchFailed(_)
            | AfterLeftovers::Stopped
            | AfterLeftovers::NotRunning(_)
            | AfterLeftovers::Evicted
            | AfterLeftovers::Swept) => next,
        };
        self.go_on(now, next);
    }

    pub(super) fn not_cleared(&mut self, now: Time, reason: &str) {
        if !matches!(self.work, Activity::ClearingLeftovers { .. }) {
            return;
        }
        let Activity::ClearingLeftovers { next } = std::mem::replace(&mut self.work, Activity::Idle) else { return };
        let said = messages::leftovers_not_ended(reason);
        let kind = self.current.as_ref().map_or(OperationKind::Stop, |current| current.request.kind);
        let stopped = messages::not_running_but(kind, said.clone());
        self.leave_on_record(now, next, said, stopped);
    }

    /// Not even SIGKILL has ended so many.
    fn leave_survivors(&mut self, now: Time, next: AfterLeftovers, left: usize) {
        let said = messages::leftovers_survive(left);
        let kind = self.current.as_ref().map_or(OperationKind::Stop, |current| current.request.kind);
        let stopped = match &next {
            AfterLeftovers::NotRunning(_) => messages::not_running_but(kind, said.clone()),
            AfterLeftovers::Launch { .. }
            | AfterLeftovers::LaunchFailed(_)
            | AfterLeftovers::Stopped
            | AfterLeftovers::Evicted
            | AfterLeftovers::Swept => messages::ended_but_left_behind(kind, left),
        };
        self.leave_on_record(now, next, said, stopped);
    }

    /// What was left behind may be there and stays on record: the next stop or launch tries again. `stopped` is what
    /// a stop says of it.
    fn leave_on_record(&mut self, now: Time, next: AfterLeftovers, said: Message, stopped: Message) {
        // It is not tried again and again by itself.
        self.dirty |= self.record.life.is_none() && self.record.unwanted.take().is_some();
        match next {
            launch @ AfterLeftovers::Launch { .. } if self.is_cut_short() || self.is_overtaken() => {
                self.go_on(now, launch)
            }
            AfterLeftovers::Launch { .. } if self.current.is_none() => {
                self.hold_launch(now, messages::not_started(said))
            }
            AfterLeftovers::Launch { .. } => {
                self.end_failed_launch(now, Failure::new(Code::CheckFailed, messages::not_started(said)));
            }
            AfterLeftovers::LaunchFailed(Failure { code, message }) => {
                self.end_failed_launch(now, Failure::new(code, messages::with_note(message, said)));
            }
            AfterLeftovers::Stopped | AfterLeftovers::NotRunning(_) => {
                match self.current.as_ref().map(|current| current.request.kind) {
                    // Whoever restarts it wants it to run: supervision goes on where it is managed.
                    Some(OperationKind::Restart) => self.record.launch = None,
                    Some(_) | None => self.release(),
                }
                self.dirty = true;
                self.fail(now, Code::CheckFailed, stopped);
            }
            next @ (AfterLeftovers::Evicted | AfterLeftovers::Swept) => self.go_on(now, next),
        }
    }

    /// Supervision starts nothing beside what an earlier life has left behind. That is no attempt.
    fn hold_launch(&mut self, now: Time, reason: Message) {
        if self.scheduled {
            self.tell_once(reason);
            return self.postpone_run(now, SURVIVORS_PAUSE);
        }
        self.record.launch = None;
        self.record.attempts = self.record.attempts.saturating_sub(1);
        let pause = self.record.spec.policy.start_interval.duration().max(SURVIVORS_PAUSE);
        self.record.not_before = Some(now + pause);
        self.dirty = true;
        self.tell_once(reason);
        self.work = Activity::Backoff { at: now + pause };
    }

    /// An operator's word comes before what supervision is about to start, also one that was answered meanwhile: a
    /// release.
    fn is_overtaken(&self) -> bool {
        self.current.is_none() && (!self.queue.is_empty() || !self.record.managed)
    }

    /// Whether somebody has started the process while something was ended before its start.
    pub(super) fn looked_again(&mut self, now: Time, look: Probe, command: CommandKind, timeout: Duration) {
        self.unclear = matches!(look, Probe::Unclear { .. });
        match look {
            Probe::Running(life) => {
                self.record.launch = None;
                self.adopt(now, life);
            }
            Probe::Absent(reason) | Probe::Dead { reason, .. } | Probe::Unclear { reason, .. } => self.reason = reason,
        }
        let is_held = self.unclear || self.record.life.is_some();
        if !is_held || self.is_cut_short() || self.is_overtaken() {
            return self.go_on(now, AfterLeftovers::Launch { command, old: None, timeout });
        }
        self.record.launch = None;
        self.dirty = true;
        match (self.current.as_ref().map(|current| current.request.kind), self.record.life.as_ref()) {
            (Some(_), Some(life)) => {
                let message = messages::process_runs_already(life.pid);
                self.note_wish();
                self.fail(now, Code::AlreadyRunning, message);
            }
            (Some(kind), None) => self.fail_unclear(now, kind),
            (None, _) if self.scheduled => self.postpone_run(now, POSTPONED),
            (None, _) => {
                self.record.attempts = self.record.attempts.saturating_sub(1);
                self.supervise(now);
            }
        }
    }

    fn go_on(&mut self, now: Time, next: AfterLeftovers) {
        match next {
            AfterLeftovers::Launch { .. } if self.is_cut_short() => {
                let failure = self.cut_failure(messages::start());
                self.record.launch = None;
                self.dirty = true;
                self.fail(now, failure.code, failure.message);
            }
            AfterLeftovers::Launch { .. } if self.is_overtaken() => {
                if self.scheduled {
                    return self.postpone_run(now, POSTPONED);
                }
                self.record.launch = None;
                self.record.attempts = self.record.attempts.saturating_sub(1);
                self.work = Activity::Idle;
                self.become_idle(now);
            }
            AfterLeftovers::Launch { command, old, timeout } => self.launch_now(now, command, old, timeout),
            AfterLeftovers::LaunchFailed(failure) => self.end_failed_launch(now, failure),
            AfterLeftovers::Stopped => self.gone(now),
            AfterLeftovers::NotRunning(Failure { code, message }) => self.fail(now, code, message),
            AfterLeftovers::Evicted => self.evicted(now),
            AfterLeftovers::Swept => {
                self.work = Activity::Idle;
                self.become_idle(now);
            }
        }
    }
}

fn millis(time: Time) -> u64 {
    u64::try_from(time.since(Time::default()).as_millis()).unwrap_or(u64::MAX)
}

/// Of the session that this process leads, if it leads any.
fn leader(process: &Incarnation) -> (i32, u64) {
    (process.pid, process.start_ticks)
}

/// Each once, the oldest first; of too many the newest.
fn merged(sessions: impl IntoIterator<Item = ProcessSession>) -> Vec<ProcessSession> {
    let mut all: Vec<ProcessSession> = Vec::new();
    for session in sessions {
        let is_it =
            |known: &&mut ProcessSession| (known.leader, known.start_ticks) == (session.leader, session.start_ticks);
        match all.iter_mut().find(is_it) {
            Some(known) => known.until_ms = known.until_ms.max(session.until_ms),
            None => all.push(session),
        }
    }
    all.split_off(all.len().saturating_sub(SESSIONS_MAX))
}
