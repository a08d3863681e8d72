//! Assigns new processes to lives, by descent and by leaf.
//!
//! Promised: one scan serves all lives, and the cost of listing everything is bounded in CPU time.
//! Absent: removal. An exit is noticed when the process is measured.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::handle::Handle;
use super::{
    FULL_COST_PARTS, FULL_COST_PARTS_NEW, FULL_PERIOD, FULL_PERIOD_NEW, LOOK_PERIOD, MEMBERS_MAX, Sampler, thread_time,
};
use crate::procfs::Stat;
use crate::tree::ProcessRef;

/// A process not assigned to any life yet.
#[derive(Clone, Copy, Debug)]
struct Found {
    member: ProcessRef,
    parent: i32,
    session: i32,
}

impl Sampler {
    /// Finds new members of all lives, at most once per period.
    pub(super) fn look(&mut self, now: Duration) {
        if self.looked_at.is_some_and(|at| now.saturating_sub(at) < LOOK_PERIOD) || self.lives.is_empty() {
            return;
        }
        self.looked_at = Some(now);
        self.machine.refresh(now);
        self.settle_leaves();
        let (before, newest) = (self.newest, self.scan.newest());
        self.newest = newest;
        let is_quiet = newest.is_some() && newest == before;

        if self.is_full_due(now) {
            let begun = thread_time();
            if let Ok(pids) = self.scan.all() {
                self.assign(&pids);
            }
            self.full_at = Some(now);
            self.full_cost = thread_time().saturating_sub(begun);
            self.has_unsearched = false;
        } else if !is_quiet
            && let (Some(before), Some(newest)) = (before, newest)
            && let Ok(pids) = self.scan.since(before, newest)
        {
            self.assign(&pids);
        }
    }

    /// Has the kernel add up what the leaves have used, all at once. Asked for one leaf only, it
    /// searches that among all that have used something, which with thousands takes 0.2 ms each.
    fn settle_leaves(&mut self) {
        if self.by_leaf.is_empty() {
            return;
        }
        if self.all_leaves.is_none() {
            self.all_leaves = self.groups.as_ref().and_then(|groups| File::open(groups.scope_cpu_file()?).ok());
        }
        // The directory goes with the last leaf and comes again with the next.
        if self.all_leaves.as_ref().is_some_and(|file| file.read_at(&mut [0; 512], 0).is_err()) {
            self.all_leaves = None;
        }
    }

    fn is_full_due(&self, now: Duration) -> bool {
        let Some(at) = self.full_at else { return true };
        let (period, parts) = match self.has_unsearched {
            true => (FULL_PERIOD_NEW, FULL_COST_PARTS_NEW),
            false => (FULL_PERIOD, FULL_COST_PARTS),
        };
        now.saturating_sub(at) >= period.max(self.full_cost.saturating_mul(parts))
    }

    fn assign(&mut self, pids: &[i32]) {
        let mut found = HashMap::new();
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for pid in pids.iter().copied() {
            if self.is_current(pid) {
                continue;
            }
            let Ok(stat) = Stat::of(pid) else { continue };
            if stat.is_dead() || stat.is_kernel_thread() {
                continue;
            }
            let member = ProcessRef { pid, start_ticks: stat.start_ticks };
            found.insert(pid, Found { member, parent: stat.parent, session: stat.session });
            children.entry(stat.parent).or_default().push(pid);
        }

        let mut next: Vec<Found> =
            found.values().filter(|found| self.owners.contains_key(&found.parent)).copied().collect();
        while let Some(Found { member, parent, .. }) = next.pop() {
            if let Some(owner) = self.owners.get(&parent).copied()
                && self.is_current(parent)
                && self.adopt(owner, member)
            {
                found.remove(&member.pid);
                let below = children.get(&member.pid).into_iter().flatten();
                next.extend(below.filter_map(|pid| found.get(pid)).copied());
            }
        }
        self.assign_by_session(&mut found);
        if self.by_leaf.is_empty() {
            return;
        }
        let Some(groups) = self.groups.clone() else { return };
        for Found { member, .. } in found.into_values() {
            let owner = groups.leaf_of(member.pid).and_then(|leaf| self.by_leaf.get(&leaf).copied());
            if let Some(owner) = owner {
                self.adopt(owner, member);
            }
        }
    }

    /// Orphans descend from nobody any more, but stay in the session of a life that leads one. With a leaf they are
    /// known by that.
    fn assign_by_session(&mut self, found: &mut HashMap<i32, Found>) {
        let is_led = |life: &i32| self.lives.get(life).is_some_and(|tracked| tracked.counted.is_none());
        let orphans: Vec<Found> = found.values().filter(|found| is_led(&found.session)).copied().collect();
        for Found { member, session, .. } in orphans {
            if self.is_current(session) && self.adopt(session, member) {
                found.remove(&member.pid);
            }
        }
    }

    /// Whether a pid still refers to the process opened under it. If not, it is forgotten.
    fn is_current(&mut self, pid: i32) -> bool {
        let Some(tracked) = self.owners.get(&pid).and_then(|owner| self.lives.get(owner)) else { return false };
        let mut all = std::iter::once(&tracked.root).chain(&tracked.members);
        // Lacking a descriptor to look with, it is what it was.
        if all.find(|handle| handle.member.pid == pid).is_some_and(|handle| !matches!(handle.pages(), Ok(None))) {
            return true;
        }
        self.disown(pid);
        false
    }

    fn adopt(&mut self, owner: i32, member: ProcessRef) -> bool {
        let Some(tracked) = self.lives.get_mut(&owner) else { return false };
        if tracked.members.len() >= MEMBERS_MAX {
            return false;
        }
        let Ok(Some(handle)) = Handle::open(member, &self.slots) else { return false };
        tracked.members.push(handle);
        self.owners.insert(member.pid, owner);
        true
    }
}
