//! Ending a life that supervision wants back: too much of a resource, or unhealthy.
//!
//! The stop command gets a bounded time, then the whole tree is killed, and its leftovers are ended with it. The
//! process stays managed. After an end for resources it comes back later each time; after one for its health the
//! restart policy decides, as after any abnormal exit.

use std::time::Duration;

use proctor_model::{Incarnation, Message, Signal, messages};

use super::activity::{Activity, EvictionReason, Fallback};
use super::{Action, CommandKind, LimitBreach, Notice, Process};
use crate::Time;
use crate::threshold::Resource;

/// Grace period of the stop command, and then of the process, before the tree is killed.
const GRACE: Duration = Duration::from_secs(10);
/// Memory at this many times the limit gets no grace period.
const URGENT: f64 = 2.0;
const WAIT_FIRST: Duration = Duration::from_secs(10);
const WAIT_MAX: Duration = Duration::from_secs(600);

impl Process {
    /// A limit or a pool has condemned this life. A process that is busy is judged again later.
    pub(super) fn on_limit_breach(&mut self, now: Time, excess: LimitBreach) {
        if self.record.life.as_ref() != Some(&excess.life) {
            return;
        }
        let is_urgent =
            excess.breach.resource == Resource::Memory && excess.breach.usage >= excess.breach.limit * URGENT;
        if self.evicting.is_some() && is_urgent {
            let is_being_killed = |fallback: &Fallback| matches!(fallback, Fallback::Fail(_) | Fallback::Unsent { .. });
            if matches!(&self.work, Activity::WaitingForExit { fallback, .. } if is_being_killed(fallback)) {
                return; // it is being killed: what waits for the end of that must not wait for ever
            }
            // It grows during its grace period: the host cannot wait.
            return self.kill_tree(now, excess.life);
        }
        if !self.may_be_evicted() {
            return;
        }
        self.reason = reason(&excess);
        self.evicted_for = self.reason.clone();
        let life = excess.life.clone();
        self.actions.push_back(Action::Notify(Notice::Exceeded(excess)));
        if is_urgent {
            self.evicting = Some(EvictionReason::OverLimit);
            self.trial = None;
            return self.kill_tree(now, life);
        }
        self.evict(now, life, EvictionReason::OverLimit);
    }

    pub(super) fn evict(&mut self, now: Time, life: Incarnation, why: EvictionReason) {
        self.evicting = Some(why);
        self.trial = None;
        match self.record.spec.control.stop.clone() {
            Some(line) => {
                self.run(CommandKind::Stop, line, GRACE);
                self.work = Activity::Stopping { life };
            }
            None => {
                self.actions.push_back(Action::Signal(life.clone(), Signal::Terminate));
                self.work = Activity::WaitingForExit { life, until: now + GRACE, fallback: Fallback::KillTree };
            }
        }
    }

    /// The stop command of an eviction has ended, however it did.
    pub(super) fn on_evict_stop_exit(&mut self, now: Time, life: Incarnation) {
        if self.record.life.as_ref() != Some(&life) {
            return self.on_exit_reached(now);
        }
        self.work = Activity::WaitingForExit { life, until: now + GRACE, fallback: Fallback::KillTree };
    }

    /// The condemned life is over, without leftovers.
    pub(super) fn evicted(&mut self, now: Time) {
        if self.evicting.take() == Some(EvictionReason::OverLimit) {
            let wait = WAIT_FIRST * 2u32.saturating_pow(self.record.evictions.min(16));
            self.record.evictions += 1;
            self.record.attempts = 0;
            self.record.not_before = Some(now + wait.min(WAIT_MAX));
            self.dirty = true;
        }
        self.work = Activity::Idle;
        self.become_idle(now);
    }
}

/// With the pool, if it is the pool's limit, and who would be evicted next.
fn reason(LimitBreach { breach, pool, .. }: &LimitBreach) -> Message {
    let (usage, limit) = (format!("{:.1}", breach.usage), format!("{:.1}", breach.limit));
    let Some(pool) = pool else { return messages::ended_over_limit(breach.resource, usage, limit) };
    let next = pool.next.as_ref().map_or_else(messages::nobody_next, messages::named);
    messages::ended_over_pool_limit(breach.resource, usage, limit, &pool.id, next)
}
