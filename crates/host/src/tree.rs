//! Who descends from whom, at one moment.
//!
//! Promised: every process that descends from a root by an unbroken chain of living parents.
//! Absent: a process whose parent has exited. It is then the agent's child and no longer descends from anything.

use std::collections::{HashMap, HashSet};
use std::io;

use proctor_model::Incarnation;

use crate::procfs::{self, Stat};

/// A process as identified in a process list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProcessRef {
    pub(crate) pid: i32,
    pub(crate) start_ticks: u64,
}

impl ProcessRef {
    /// The process of a life of this boot.
    pub(crate) fn of(life: &Incarnation) -> Self {
        Self { pid: life.pid, start_ticks: life.start_ticks }
    }
}

/// The parent of every process at one moment.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    children: HashMap<i32, Vec<ProcessRef>>,
    sessions: HashMap<i32, Vec<ProcessRef>>,
    living: HashMap<ProcessRef, Stat>,
    starts: HashMap<i32, u64>,
}

impl ProcessTable {
    pub(crate) fn read() -> io::Result<Self> {
        let mut table = Self::default();
        for (pid, stat) in procfs::all()? {
            if stat.is_dead() || stat.is_kernel_thread() {
                continue;
            }
            let member = ProcessRef { pid, start_ticks: stat.start_ticks };
            table.children.entry(stat.parent).or_default().push(member);
            table.sessions.entry(stat.session).or_default().push(member);
            table.starts.insert(pid, stat.start_ticks);
            table.living.insert(member, stat);
        }
        Ok(table)
    }

    /// The process, if it lives.
    pub(crate) fn living(&self, member: ProcessRef) -> Option<ProcessRef> {
        self.living.contains_key(&member).then_some(member)
    }

    /// Who is in the session of that leader, which may have ended.
    pub(crate) fn session(&self, leader: i32) -> &[ProcessRef] {
        self.sessions.get(&leader).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = ProcessRef> {
        self.living.keys().copied()
    }

    /// When the process that has this pid now began.
    pub(crate) fn start_of(&self, pid: i32) -> Option<u64> {
        self.starts.get(&pid).copied()
    }

    /// What was read of a process that lived.
    pub(crate) fn stat(&self, member: &ProcessRef) -> Option<&Stat> {
        self.living.get(member)
    }

    /// The process that has this pid now, its parent, the parent of that, and so on.
    pub(crate) fn line_of(&self, pid: i32) -> impl Iterator<Item = ProcessRef> {
        let of = |pid: i32| self.start_of(pid).map(|start_ticks| ProcessRef { pid, start_ticks });
        let parent = move |child: &ProcessRef| {
            // Pids may come round while the list is read: nobody is its own ancestor.
            self.stat(child).and_then(|stat| of(stat.parent)).filter(|parent| parent.start_ticks <= child.start_ticks)
        };
        std::iter::successors(of(pid), parent).take(self.living.len())
    }

    /// The roots and all that descends from them, but nobody whom `is_spared` names, nor what descends through those.
    pub(crate) fn descend(
        &self,
        roots: impl IntoIterator<Item = ProcessRef>,
        is_spared: impl Fn(&ProcessRef) -> bool,
    ) -> Vec<ProcessRef> {
        let mut seen = HashSet::new();
        let roots = roots.into_iter().filter(|root| !is_spared(root));
        let mut found: Vec<ProcessRef> = roots.filter(|root| seen.insert(*root)).collect();
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            next += 1;
            let children = self.children.get(&parent.pid).into_iter().flatten();
            found.extend(children.filter(|child| !is_spared(child) && seen.insert(**child)));
        }
        found
    }
}
