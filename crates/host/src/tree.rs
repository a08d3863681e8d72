//! The descendants of a process, and killing them all.
//!
//! Promised: every process that descends from the root by an unbroken chain of living parents, or
//! is in the session of a command, is frozen before any is killed, so that none forks away; each
//! signal goes through a pidfd that was checked against the start time that was listed.
//! Absent: a process whose parent has ended. It is the agent's child then and descends from
//! nothing any more; a daemon that forks twice leaves every tree on purpose.

use std::collections::{HashMap, HashSet};
use std::io;

use rustix::process::Signal;
use rustix::time::Timespec;

use crate::pidfd::Process;
use crate::procfs::{self, Stat};

/// A fork bomb may be faster than we are; then what was found is killed and the rest stays.
const ROUNDS_MAX: usize = 64;
/// How often, how long after another, a process is asked whether it has stopped. In
/// uninterruptible sleep it never does, and forks as little.
const STOP_TRIES: usize = 200;
const STOP_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A process as a list of processes names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    pub(crate) start_ticks: u64,
}

/// Who is whose child at one moment.
#[derive(Debug, Default)]
pub(crate) struct Table {
    children: HashMap<i32, Vec<Member>>,
    sessions: HashMap<i32, Vec<Member>>,
    living: HashMap<Member, Stat>,
}

impl Table {
    pub(crate) fn read() -> io::Result<Self> {
        let mut table = Self::default();
        for (pid, stat) in procfs::all()? {
            if stat.is_dead() || stat.is_kernel_thread() {
                continue;
            }
            let member = Member { pid, start_ticks: stat.start_ticks };
            table.children.entry(stat.parent).or_default().push(member);
            table.sessions.entry(stat.session).or_default().push(member);
            table.living.insert(member, stat);
        }
        Ok(table)
    }

    /// The root and its descendants, parents first. Empty if the root does not live.
    pub(crate) fn tree(&self, root: Member) -> Vec<Member> {
        self.descend(self.living.contains_key(&root).then_some(root))
    }

    /// What was read of a process that lived.
    pub(crate) fn stat(&self, member: &Member) -> Option<&Stat> {
        self.living.get(member)
    }

    fn descend(&self, roots: impl IntoIterator<Item = Member>) -> Vec<Member> {
        let mut seen = HashSet::new();
        let mut found: Vec<Member> = roots.into_iter().filter(|root| seen.insert(*root)).collect();
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            next += 1;
            let children = self.children.get(&parent.pid).into_iter().flatten();
            found.extend(children.filter(|child| seen.insert(**child)));
        }
        found
    }
}

/// What is killed together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope {
    Tree,
    /// Also everything in the session that the root leads.
    TreeAndSession,
}

/// Kills the root and what belongs to it, and what `others` lists; how many were signalled.
pub(crate) fn kill(root: Member, scope: Scope, mut others: impl FnMut() -> Vec<Member>) -> io::Result<usize> {
    kill_listed(root.pid, || {
        let table = Table::read()?;
        let session = match scope {
            Scope::Tree => None,
            Scope::TreeAndSession => table.sessions.get(&root.pid),
        };
        let root = table.living.contains_key(&root).then_some(root);
        let roots = root.into_iter().chain(session.into_iter().flatten().copied()).chain(others());
        Ok(table.descend(roots))
    })
}

/// Kills what `list` lists, until it lists nothing new; how many were signalled. `named` is for
/// people.
pub(crate) fn kill_listed(named: i32, mut list: impl FnMut() -> io::Result<Vec<Member>>) -> io::Result<usize> {
    let us = i32::try_from(std::process::id()).unwrap_or_default();
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for _ in 0..ROUNDS_MAX {
        // Stopped, we could not go on to kill; and a command may have started our own parent.
        let others = list()?.into_iter().filter(|member| member.pid > 1 && member.pid != us);
        let new: Vec<Member> = others.filter(|member| seen.insert(*member)).collect();
        if new.is_empty() {
            break;
        }
        for member in &new {
            // Who cannot be stopped (it has just ended, or is not ours) is tried again below.
            let _ = signal(*member, Signal::STOP);
        }
        wait_until_stopped(&new);
        found.extend(new);
    }

    let mut count = 0;
    let mut failed = None;
    for member in found {
        match signal(member, Signal::KILL) {
            Ok(sent) => count += usize::from(sent),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if count == 0 => Err(error),
        Some(error) => {
            tracing::warn!(%error, pid = named, "a part of a process tree cannot be killed");
            Ok(count)
        }
        None => Ok(count),
    }
}

/// A signal is sent before it takes effect: who was in the middle of a fork finishes it, and that
/// child is in no list until its parent has stopped.
fn wait_until_stopped(members: &[Member]) {
    let mut running = members.to_vec();
    for _ in 0..STOP_TRIES {
        running.retain(|member| {
            let stat = Stat::of(member.pid).ok().filter(|stat| stat.start_ticks == member.start_ticks);
            stat.is_some_and(|stat| !stat.is_dead() && !stat.is_stopped())
        });
        if running.is_empty() {
            return;
        }
        let _ = rustix::thread::nanosleep(&STOP_PERIOD);
    }
}

fn signal(member: Member, signal: Signal) -> io::Result<bool> {
    match Process::open(member.pid) {
        Ok(process) if process.stat.start_ticks == member.start_ticks => process.signal(signal),
        Ok(_) | Err(crate::pidfd::Refused::Gone | crate::pidfd::Refused::Thread) => Ok(false),
        Err(crate::pidfd::Refused::Failed(error)) => Err(error),
    }
}
