//! Tracks processes that are frozen to be killed, and makes sure that none stays frozen.
//!
//! Promised: a process is listed here and in the [`Journal`] before it gets SIGSTOP, until it has been sent SIGKILL
//! or is gone. One that is still listed after [`PERIODS_MAX`] periods is killed by [`Frozen::watch`], whatever
//! happened to the thread that froze it: it may hang, have exited, or never have started. A restarted agent finds the
//! journal.
//! Absent: wake-ups while nothing is frozen; and journal writes by the watch, which must not hang.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::sync::Notify;

use super::{is_lack, signal};
use crate::kill_journal::Journal;
use crate::procfs::Stat;
use crate::tree::ProcessRef;

/// How often the watch checks while something is frozen.
const PERIOD: Duration = Duration::from_secs(1);
/// After this many checks nothing is left to the thread that froze it. A kill of a thousand takes less than one.
const PERIODS_MAX: u32 = 5;
/// Killed in one go on a thread that has other things to do.
const KILLS_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Frozen {
    /// With how often the watch has seen each.
    members: Mutex<HashMap<ProcessRef, u32>>,
    journal: Journal,
    added: Notify,
}

impl Frozen {
    pub(super) fn new(journal: Journal) -> Self {
        Self { members: Mutex::default(), journal, added: Notify::new() }
    }

    /// What a previous agent had frozen when it died.
    pub(super) fn interrupted(&self) -> Vec<ProcessRef> {
        self.journal.read()
    }

    /// Must be called before they are stopped.
    pub(super) fn add(&self, new: &[ProcessRef]) {
        self.members.lock().extend(new.iter().map(|member| (*member, 0)));
        self.added.notify_one();
        self.write();
    }

    /// All that were added have been sent SIGKILL or were never stopped, except those left.
    pub(super) fn remove(&self, added: &HashSet<ProcessRef>, left: &HashSet<ProcessRef>) {
        self.members.lock().retain(|member, _| !added.contains(member) || left.contains(member));
        self.write();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.lock().is_empty()
    }

    /// Kills everything listed; what cannot be killed now, for lack of descriptors or memory, stays listed.
    pub(super) fn kill_all(&self) {
        if self.is_empty() {
            return;
        }
        self.kill(&self.list(0));
        self.write();
    }

    /// As [`Self::kill_all`], without the journal: for callers that must not wait for a disk.
    pub(super) fn kill_all_unwritten(&self) {
        self.kill(&self.list(0));
    }

    /// Kills whatever nobody else has killed in time. Never returns.
    pub(super) async fn watch(&self) {
        loop {
            self.added.notified().await;
            while !self.is_empty() {
                tokio::time::sleep(PERIOD).await;
                self.members.lock().values_mut().for_each(|seen| *seen = seen.saturating_add(1));
                self.kill_overdue().await;
            }
        }
    }

    async fn kill_overdue(&self) {
        let mut killed = 0;
        for members in self.list(PERIODS_MAX).chunks(KILLS_AT_ONCE) {
            // One that is not stopped yet may be abandoned by the requester of its kill.
            let frozen: Vec<ProcessRef> = members.iter().copied().filter(|member| !is_running(*member)).collect();
            killed += self.kill(&frozen);
            tokio::task::yield_now().await;
        }
        if killed > 0 {
            tracing::warn!(killed, "the kill thread is stuck or gone, killed what it had frozen");
        }
    }

    fn list(&self, seen_min: u32) -> Vec<ProcessRef> {
        let members = self.members.lock();
        members.iter().filter(|(_, seen)| **seen >= seen_min).map(|(member, _)| *member).collect()
    }

    /// How many were killed, or are gone.
    fn kill(&self, members: &[ProcessRef]) -> usize {
        let mut killed = 0;
        for member in members {
            if !signal(*member, Signal::KILL).is_err_and(|error| is_lack(&error)) {
                self.members.lock().remove(member);
                killed += 1;
            }
        }
        killed
    }

    /// What is left for another agent, should this one exit now.
    fn write(&self) {
        let members = self.list(0);
        if members.is_empty() { self.journal.clear() } else { self.journal.write(members) }
    }
}

/// Whether it is there and has not stopped.
fn is_running(member: ProcessRef) -> bool {
    let is_running = |stat: &Stat| stat.start_ticks == member.start_ticks && !stat.is_dead() && !stat.is_stopped();
    Stat::of(member.pid).is_ok_and(|stat| is_running(&stat))
}
