//! What a life that is over, or a failed start, has left behind.
//!
//! Promised: it is known by its leaf, or, without cgroups, by a mark in the environment of everything that
//! a command of ours has started and by the sessions of its own; nothing that began before it, nor what
//! descends from that, is touched. Absent, without cgroups: a process that has left its session, has
//! overwritten its environment and whose parent has ended. Nothing tells whose it was.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use proctor_model::Leftovers;

use crate::cgroup::{Groups, Leaf};
use crate::killer::{Killer, Target};
use crate::procfs;
use crate::tree::{ProcessRef, ProcessTable};

/// In the environment of every command of a process, and so of all that it forks.
pub(crate) const MARK: &str = "PROCTOR_LEAF";
/// Larger environments are not searched to their end.
const ENVIRONMENT_BYTES_MAX: u64 = 256 * 1024;
/// How often it is looked whether something has ended; grows from look to look.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(160);
/// What the kernel gets after SIGKILL.
const AFTER_SIGKILL: Duration = Duration::from_secs(5);

/// What became of what was left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftoversResult {
    /// How many were found and signalled.
    pub ended: usize,
    /// How many are there after SIGKILL: in uninterruptible sleep.
    pub left: usize,
}

/// The value of [`MARK`] for a leaf of the agent with this scope.
pub(crate) fn mark(scope: &str, leaf: &Leaf) -> String {
    format!("{scope}.{}", leaf.as_str())
}

pub(crate) async fn end(
    killer: &Killer,
    leaf: &Leaf,
    remains: &Leftovers,
    grace: Duration,
) -> io::Result<LeftoversResult> {
    let target = Target::Remains(leaf.clone(), remains.clone());
    let mut ended = 0;
    if !grace.is_zero() {
        ended = killer.terminate(target.clone()).await?;
        if ended == 0 || until_none(killer, &target, grace).await? == 0 {
            return Ok(LeftoversResult { ended, left: 0 });
        }
    }
    let killed = killer.kill(target.clone()).await?;
    let left = if killed == 0 { 0 } else { until_none(killer, &target, AFTER_SIGKILL).await? };
    Ok(LeftoversResult { ended: ended.max(killed), left })
}

/// How many are left after at most `time`.
async fn until_none(killer: &Killer, target: &Target, time: Duration) -> io::Result<usize> {
    let deadline = tokio::time::Instant::now() + time;
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let left = killer.count(target.clone()).await?;
        if left == 0 || tokio::time::Instant::now() >= deadline {
            return Ok(left);
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Who has which mark at one moment; read when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct EnvMarks(Option<HashMap<String, Vec<ProcessRef>>>);

impl EnvMarks {
    fn of(&mut self, mark: &str, table: &ProcessTable) -> Vec<ProcessRef> {
        let marks = self.0.get_or_insert_with(|| {
            let mut marks: HashMap<String, Vec<ProcessRef>> = HashMap::new();
            for member in table.all() {
                if let Some(mark) = mark_of(member.pid) {
                    marks.entry(mark).or_default().push(member);
                }
            }
            marks
        });
        marks.get(mark).cloned().unwrap_or_default()
    }
}

fn mark_of(pid: i32) -> Option<String> {
    let text = procfs::read(Path::new(&format!("/proc/{pid}/environ")), ENVIRONMENT_BYTES_MAX).ok()?;
    let value = text
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(MARK.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")))?;
    String::from_utf8(value.to_vec()).ok()
}

/// What knows the processes of a leaf, with cgroups or without.
pub(crate) struct ProcessMatcher<'a> {
    pub(crate) groups: Option<&'a Groups>,
    pub(crate) scope: &'a str,
    pub(crate) table: &'a ProcessTable,
    pub(crate) marks: EnvMarks,
}

impl ProcessMatcher<'_> {
    /// Who is in the leaf and began at `since` or later, and what descends from it; but nobody who is older,
    /// or descends from one in the leaf who is.
    pub(crate) fn younger(&mut self, leaf: &Leaf, since: u64) -> io::Result<Vec<ProcessRef>> {
        let in_leaf = self.in_leaf(leaf)?;
        let (young, old): (Vec<ProcessRef>, Vec<ProcessRef>) =
            in_leaf.into_iter().partition(|member| member.start_ticks >= since);
        Ok(self.without(young, old, since))
    }

    pub(crate) fn left_behind(&mut self, leaf: &Leaf, remains: &Leftovers) -> io::Result<Vec<ProcessRef>> {
        let in_leaf = self.in_leaf(leaf)?;
        let (mut young, old): (Vec<ProcessRef>, Vec<ProcessRef>) =
            in_leaf.into_iter().partition(|member| member.start_ticks >= remains.since);
        if self.groups.is_none() || !remains.launched {
            let is_own =
                |(pid, start_ticks): &&(i32, u64)| self.table.start_of(*pid).is_none_or(|at| at == *start_ticks);
            let own = remains.sessions.iter().filter(is_own);
            young.extend(own.flat_map(|(pid, _)| self.table.session(*pid)).copied());
        }
        Ok(self.without(young, old, remains.since))
    }

    fn in_leaf(&mut self, leaf: &Leaf) -> io::Result<Vec<ProcessRef>> {
        match self.groups {
            Some(groups) => groups.members(leaf),
            None => Ok(self.marks.of(&mark(self.scope, leaf), self.table)),
        }
    }

    fn without(&self, young: Vec<ProcessRef>, old: Vec<ProcessRef>, since: u64) -> Vec<ProcessRef> {
        let spared: HashSet<ProcessRef> = self.table.descend(old).into_iter().collect();
        let found = self.table.descend(young).into_iter();
        found.filter(|member| member.start_ticks >= since && !spared.contains(member)).collect()
    }
}
