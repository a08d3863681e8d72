//! What a life leaves behind: workers of a killed master, a grandchild that the stop command forgot.
//!
//! Promised: a stop or kill that succeeds, and an eviction, end only when nothing of that life is left;
//! what is left of a life that ended by itself is ended before the next start command runs; nothing that
//! began before the launch of that life is touched. Absent: finding it. The host knows what belongs
//! together; [`Remains`] says from when on.

use std::time::Duration;

use proctor_model::{Code, Incarnation, OperationKind, Remains};

use super::work::{AfterClear, Failure, Work};
use super::{Action, Process};
use crate::Time;

/// What is left behind gets this long after SIGTERM. A kill gives it nothing.
const GRACE: Duration = Duration::from_secs(1);
/// For so long after the end of a life its sessions still are its own: their numbers have not come round.
const SESSIONS_HOLD: Duration = Duration::from_secs(10);

impl Process {
    /// A life begins: from when on what belongs to it began. One that nobody here started goes on from
    /// the life before, whose child it may be.
    pub(super) fn belong(&mut self) {
        let remains = self.record.remains.take().filter(|remains| remains.launched).map(|remains| remains.since);
        let before = self.record.since.or(remains);
        let launch = self.record.launch.as_ref();
        // What a restart command lets go on of the life before is of this one now.
        let goes_on = launch.is_none_or(|launch| launch.old.is_some());
        let launched = launch.and_then(|launch| launch.since);
        self.record.since = match (launched, before.filter(|_| goes_on)) {
            (Some(launched), Some(before)) => Some(launched.min(before)),
            (launched, before) => launched.or(before),
        };
    }

    pub(super) fn leave_behind(&mut self, now: Time, life: &Incarnation) {
        let since = self.record.since.take();
        let mut sessions: Vec<(i32, u64)> = self.session.take().into_iter().collect();
        // One whose end nobody has heard may be over for long, and its pid another's.
        sessions.extend(self.running_since.map(|_| (life.pid, life.start_ticks)));
        let (launched, since) = (since.is_some(), since.unwrap_or(u64::MAX).min(life.start_ticks));
        self.record.remains = Some(Box::new(Remains { since, launched, sessions }));
        self.lost_at = Some(now);
    }

    /// Goes on with `next` when nothing of an earlier life is left.
    pub(super) fn clear(&mut self, now: Time, next: AfterClear) {
        let remains = match &self.record.remains {
            Some(remains) => (**remains).clone(),
            None => return self.go_on(now, next),
        };
        self.clear_of(now, remains, next);
    }

    pub(super) fn clear_of(&mut self, now: Time, mut remains: Remains, next: AfterClear) {
        if self.lost_at.is_none_or(|lost| now.since(lost) > SESSIONS_HOLD) {
            remains.sessions.clear();
        }
        let is_kill = self.current.as_ref().is_some_and(|current| current.request.kind == OperationKind::Kill);
        let grace = if is_kill { Duration::ZERO } else { GRACE };
        self.mark_begun();
        self.commands += 1;
        self.actions.push_back(Action::Clear { ticket: self.commands, remains, grace });
        self.work = Work::Clear { next };
    }

    pub(super) fn cleared(&mut self, now: Time, ended: usize, left: usize) {
        if !matches!(self.work, Work::Clear { .. }) {
            return;
        }
        let Work::Clear { next } = std::mem::replace(&mut self.work, Work::Rest) else { return };
        self.dirty |= self.record.remains.take().is_some();
        let next = match next {
            AfterClear::LaunchFailed(mut failure) if ended > 0 => {
                failure.message.push_str(&format!(" ({ended} processes that the start left behind were ended)"));
                AfterClear::LaunchFailed(failure)
            }
            AfterClear::Faded if left > 0 => {
                let kind = self.current.as_ref().map_or(OperationKind::Stop, |current| current.request.kind);
                let message =
                    format!("{kind}: the process ended, but {left} that it left behind are there after SIGKILL");
                self.release();
                return self.fail(now, Code::CheckFailed, message);
            }
            next @ (AfterClear::Launch { .. }
            | AfterClear::LaunchFailed(_)
            | AfterClear::Faded
            | AfterClear::NotRunning(_)
            | AfterClear::Evicted) => next,
        };
        self.go_on(now, next);
    }

    fn go_on(&mut self, now: Time, next: AfterClear) {
        match next {
            AfterClear::Launch { .. } if self.is_cancelled() => {
                let failure = self.cancellation("start");
                self.fail(now, failure.code, failure.message);
            }
            // An operator's word comes first, also one that was answered meanwhile: a release.
            AfterClear::Launch { .. } if self.current.is_none() && (!self.queue.is_empty() || !self.record.managed) => {
                self.scheduled = false;
                self.record.attempts = self.record.attempts.saturating_sub(1);
                self.work = Work::Rest;
                self.rest(now);
            }
            AfterClear::Launch { command, old, timeout } => self.launch_now(now, command, old, timeout),
            AfterClear::LaunchFailed(failure) => self.end_failed_launch(now, failure),
            AfterClear::Faded => self.gone(now),
            AfterClear::NotRunning(Failure { code, message }) => self.fail(now, code, message),
            AfterClear::Evicted => self.evicted(now),
        }
    }
}
