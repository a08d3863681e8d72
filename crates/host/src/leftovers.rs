//! What a finished life, or a failed start, has left behind.
//!
//! Promised: leftovers are recognised by their leaf, by a marker in the environment of everything that our commands
//! start, and, without cgroups, by their own sessions. Never touched: anything that began earlier, and its
//! descendants; the agent and its ancestors; any other process known to the agent, with its descendants, even if a
//! command of this one started them; and, while an unregistered earlier life of the same name is alive, whatever that
//! one's commands started.
//! Absent: a process that has left its cgroup (without cgroups: its session), has overwritten its environment and
//! whose parent has exited, because nothing shows whose it was; the same goes for one whose environment cannot be
//! read and never could ([`crate::foreign_memory`]).
//! Also absent, without cgroups: such a process in its own session, if it began after the leader was last known to
//! live and no member of that session that began earlier is left, because the number may be that of a later session.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{Leftovers, ProcessSession};
use rustix::time::Timespec;

use crate::cgroup::{Groups, Leaf};
use crate::foreign_memory::{ForeignMemory, Patience};
use crate::killer::{Killer, Target};
use crate::tree::{ProcessRef, ProcessTable};
use crate::usage::Units;
use crate::{procfs, wall_clock};

/// In the environment of every command of a process, and so of everything it forks.
pub(crate) const MARK: &str = "PROCTOR_LEAF";
/// Next to it: when the command began, in ticks since boot.
pub(crate) const LAUNCH: &str = "PROCTOR_LAUNCH";
/// Larger environments are not searched to their end.
const ENVIRONMENT_BYTES_MAX: u64 = 256 * 1024;
/// How often, and at which interval, an environment that is not in place yet is read again.
const EXEC_TRIES: usize = 5;
const EXEC_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// How often exits are checked; the interval grows.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_millis(160);
/// What the kernel gets after SIGKILL.
const AFTER_SIGKILL: Duration = Duration::from_secs(5);

/// The result of clearing leftovers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftoversResult {
    /// How many were found and signalled.
    pub ended: usize,
    /// How many survive SIGKILL: in uninterruptible sleep.
    pub left: usize,
}

/// The value of [`MARK`] for a leaf of the agent with this scope.
pub(crate) fn mark(scope: &str, leaf: &Leaf) -> String {
    format!("{scope}.{}", leaf.as_str())
}

/// The value of [`LAUNCH`] for a command that begins now.
pub(crate) fn launch_now() -> String {
    ticks(wall_clock::since_boot()).to_string()
}

/// A time since boot, as encoded in [`LAUNCH`].
pub(crate) fn ticks(since_boot: Duration) -> u64 {
    let per_second = Units::read().ticks_per_second;
    let part = u64::from(since_boot.subsec_nanos()) * per_second / 1_000_000_000;
    since_boot.as_secs().saturating_mul(per_second).saturating_add(part)
}

/// The earliest start of what belongs to a life, in ticks since boot.
#[derive(Clone, Debug)]
pub(crate) struct LaunchSpan {
    pub(crate) since: u64,
    /// As in [`Leftovers`].
    pub(crate) spared: Vec<(u64, u64)>,
}

impl LaunchSpan {
    /// Whether it began too early, or a command of an elder started it.
    fn excludes(&self, member: ProcessRef, launch: Option<u64>) -> bool {
        let is_spared = |launch| self.spared.iter().any(|(from, to)| (*from..=*to).contains(&launch));
        member.start_ticks < self.since || launch.is_some_and(is_spared)
    }
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

/// What the environments of all processes say about our commands; read on first use.
pub(crate) struct EnvMarks<'a> {
    pub(crate) memory: &'a ForeignMemory,
    /// What was read the last time: a process that is silent now may have been readable then.
    pub(crate) before: &'a Mutex<Arc<MarkTable>>,
    pub(crate) read: Option<Arc<MarkTable>>,
}

/// Whose command has started whom.
#[derive(Debug, Default)]
pub(crate) struct MarkTable {
    by_mark: HashMap<String, Vec<ProcessRef>>,
    launches: HashMap<ProcessRef, u64>,
    /// Who could not be read.
    silent: Vec<ProcessRef>,
    /// Why some, or all, were not even tried.
    failed: Option<io::Error>,
}

impl EnvMarks<'_> {
    /// If no environment can be read at all, what was read before holds: see [`Self::failure`].
    fn of(&mut self, mark: &str, table: &ProcessTable) -> Vec<ProcessRef> {
        let marks = match &self.read {
            Some(marks) => marks,
            None => {
                let marks = MarkTable::read(table.all().collect(), |left| environments(self.memory, left), pause);
                let mut before = self.before.lock();
                if let (Some(error), None) = (&marks.failed, &before.failed) {
                    tracing::warn!(%error, "cannot read process environments: leftovers outside their cgroup may be missed");
                }
                let marks = Arc::new(marks.with_silent(&before));
                before.clone_from(&marks);
                self.read.insert(marks)
            }
        };
        marks.by_mark.get(mark).cloned().unwrap_or_default()
    }

    /// Why it is unclear whether all were found.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        let failed = self.read.as_ref()?.failed.as_ref()?;
        Some(io::Error::new(failed.kind(), failed.to_string()))
    }

    /// When the command that started it began.
    fn launch_of(&self, member: ProcessRef) -> Option<u64> {
        self.read.as_ref()?.launches.get(&member).copied()
    }
}

/// Until an environment is looked at again that is not in place yet.
fn pause() {
    let _ = rustix::thread::nanosleep(&EXEC_PERIOD);
}

/// Of those that are not silent.
fn environments(memory: &ForeignMemory, left: Vec<ProcessRef>) -> io::Result<Vec<(ProcessRef, Environment)>> {
    memory.read_each(left, Patience::THREAD, |member| Environment::of(member.pid))
}

/// Which command of ours started it. None also if that cannot be read.
pub(crate) fn mark_of(memory: &ForeignMemory, member: ProcessRef) -> Option<String> {
    let marks = MarkTable::read(vec![member], |left| environments(memory, left), pause);
    marks.by_mark.into_keys().next()
}

impl MarkTable {
    /// However many are in the middle of an exec, they are waited for together.
    fn read(
        mut left: Vec<ProcessRef>,
        read: impl Fn(Vec<ProcessRef>) -> io::Result<Vec<(ProcessRef, Environment)>>,
        mut pause: impl FnMut(),
    ) -> Self {
        let mut marks = Self::default();
        for pauses in 0..=EXEC_TRIES {
            let asked = left.clone();
            let answers = read(std::mem::take(&mut left)).unwrap_or_else(|error| {
                marks.failed = Some(error);
                Vec::new()
            });
            if answers.len() < asked.len() {
                let answered: HashSet<ProcessRef> = answers.iter().map(|(member, _)| *member).collect();
                marks.silent.extend(asked.into_iter().filter(|member| !answered.contains(member)));
            }
            for (member, environment) in answers {
                match environment {
                    Environment::Known(mark) => marks.keep(member, mark),
                    Environment::Executing => left.push(member),
                    Environment::Gone => {}
                }
            }
            if left.is_empty() || pauses == EXEC_TRIES {
                break;
            }
            pause();
        }
        marks
    }

    /// With what was read of the silent ones before.
    fn with_silent(mut self, before: &Self) -> Self {
        let silent: HashSet<ProcessRef> = std::mem::take(&mut self.silent).into_iter().collect();
        for (mark, marked) in before.by_mark.iter().filter(|_| !silent.is_empty()) {
            for member in marked.iter().filter(|member| silent.contains(*member)) {
                let launch = before.launches.get(member).copied();
                self.keep(*member, Some(EnvMark { mark: mark.clone(), launch }));
            }
        }
        self
    }

    fn keep(&mut self, member: ProcessRef, mark: Option<EnvMark>) {
        let Some(EnvMark { mark, launch }) = mark else { return };
        self.by_mark.entry(mark).or_default().push(member);
        self.launches.extend(launch.map(|launch| (member, launch)));
    }
}

/// What a command of ours has left in an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EnvMark {
    mark: String,
    launch: Option<u64>,
}

impl EnvMark {
    fn of(environment: &[u8]) -> Option<Self> {
        let mark = variable(environment, MARK)?;
        Some(Self { mark, launch: variable(environment, LAUNCH).and_then(|launch| launch.parse().ok()) })
    }
}

/// What there is of the environment of a process.
#[derive(Debug, PartialEq, Eq)]
enum Environment {
    Known(Option<EnvMark>),
    /// It is in the middle of an exec: until the new program is in place its environment is empty.
    Executing,
    Gone,
}

impl Environment {
    /// May hang with that process.
    fn of(pid: i32) -> Self {
        let path = format!("/proc/{pid}/environ");
        let read = || procfs::read(Path::new(&path), ENVIRONMENT_BYTES_MAX);
        match read() {
            Ok(text) if !text.is_empty() => Self::Known(EnvMark::of(&text)),
            Ok(_) if procfs::is_executing(pid) => Self::Executing,
            // It has none, or has got one meanwhile.
            Ok(_) => read().map_or(Self::Gone, |text| Self::Known(EnvMark::of(&text))),
            Err(_) => Self::Gone,
        }
    }
}

fn variable(environment: &[u8], name: &str) -> Option<String> {
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Knows the processes of a leaf, with cgroups or without.
pub(crate) struct ProcessMatcher<'a> {
    pub(crate) groups: Option<&'a Groups>,
    pub(crate) scope: &'a str,
    pub(crate) table: &'a ProcessTable,
    pub(crate) marks: EnvMarks<'a>,
    pub(crate) bystanders: UnrelatedProcesses,
}

/// Processes that do not belong to a life, wherever they are found.
#[derive(Debug, Default)]
pub(crate) struct UnrelatedProcesses {
    /// Our own pid.
    us: i32,
    /// The agent and its ancestors. Orphans are children of the agent, whosever they were: nobody belongs to a life
    /// because it descends from one of these.
    ours: HashSet<ProcessRef>,
    /// The current lives of all processes known to the agent.
    lives: HashSet<ProcessRef>,
}

impl UnrelatedProcesses {
    pub(crate) fn new(table: &ProcessTable, mut lives: HashSet<ProcessRef>) -> Self {
        let us = i32::try_from(std::process::id()).unwrap_or_default();
        let ours: HashSet<ProcessRef> = table.line_of(us).collect();
        lives.retain(|life| life.pid != us);
        Self { us, ours, lives }
    }

    /// Whether it is the agent or its ancestor, and not one that is meant.
    fn is_ours(&self, meant: &[ProcessRef], member: &ProcessRef) -> bool {
        member.pid == self.us || (self.ours.contains(member) && !meant.contains(member))
    }

    pub(crate) fn is_spared(&self, meant: &[ProcessRef], member: &ProcessRef) -> bool {
        self.is_ours(meant, member) || (self.lives.contains(member) && !meant.contains(member))
    }

    /// Whether the nearest life that it descends from is not the one meant.
    pub(crate) fn is_of_other_life(&self, meant: &[ProcessRef], member: &ProcessRef, table: &ProcessTable) -> bool {
        let is_known = |member: &ProcessRef| meant.contains(member) || self.is_spared(meant, member);
        let nearest = table.line_of(member.pid).find(is_known);
        nearest.is_some_and(|nearest| !meant.contains(&nearest) && self.lives.contains(&nearest))
    }
}

impl ProcessMatcher<'_> {
    /// Who is in the leaf and began in the span, and what descends from it; but nobody who is older, or is the
    /// elder's, or descends from one in the leaf who is.
    pub(crate) fn younger(&mut self, root: ProcessRef, leaf: &Leaf, span: &LaunchSpan) -> io::Result<Vec<ProcessRef>> {
        let in_leaf = self.in_leaf(leaf)?;
        let (old, young): (Vec<ProcessRef>, Vec<ProcessRef>) =
            in_leaf.into_iter().partition(|member| span.excludes(*member, self.marks.launch_of(*member)));
        Ok(self.without(Some(root), young, old, span.since))
    }

    pub(crate) fn left_behind(&mut self, leaf: &Leaf, remains: &Leftovers) -> io::Result<Vec<ProcessRef>> {
        let in_leaf = self.in_leaf(leaf)?;
        let span = LaunchSpan {
            since: remains.since,
            spared: remains.spared.iter().filter(|_| remains.launched).copied().collect(),
        };
        let (old, mut young): (Vec<ProcessRef>, Vec<ProcessRef>) =
            in_leaf.into_iter().partition(|member| span.excludes(*member, self.marks.launch_of(*member)));
        if self.groups.is_none() || !remains.launched {
            young.extend(remains.sessions.iter().flat_map(|session| self.in_session(session)));
        }
        Ok(self.without(None, young, old, remains.since))
    }

    /// Who is in that session, and not in a later one of the same number. One who is holds the number for all others.
    fn in_session(&self, session: &ProcessSession) -> &[ProcessRef] {
        let leader = self.table.start_of(session.leader);
        let members = self.table.session(session.leader);
        let is_own = match leader {
            Some(start_ticks) => start_ticks == session.start_ticks,
            None => members.iter().any(|member| is_born_in(*member, session)),
        };
        if is_own { members } else { &[] }
    }

    fn in_leaf(&mut self, leaf: &Leaf) -> io::Result<Vec<ProcessRef>> {
        // A command may move itself to another cgroup, or run without one for lack of memory.
        let mut members = self.marks.of(&mark(self.scope, leaf), self.table);
        if let Some(groups) = self.groups {
            members.extend(groups.members_among(leaf, |pid| self.table.start_of(pid))?);
        }
        // Of one that was forked since the table was read, nothing tells whose child it is; the next look will.
        members.retain(|member| self.table.living(*member).is_some());
        Ok(members)
    }

    /// The young ones with what descends from them.
    fn without(
        &self,
        root: Option<ProcessRef>,
        mut young: Vec<ProcessRef>,
        old: Vec<ProcessRef>,
        since: u64,
    ) -> Vec<ProcessRef> {
        let (others, meant) = (&self.bystanders, root.as_slice());
        let spared = self.table.descend(old, |member| others.is_ours(meant, member));
        let spared: HashSet<ProcessRef> = spared.into_iter().collect();
        young.retain(|member| !others.is_of_other_life(meant, member, self.table));
        let found = self.table.descend(young, |member| others.is_spared(meant, member)).into_iter();
        found.filter(|member| member.start_ticks >= since && !spared.contains(member)).collect()
    }
}

/// Whether it began while the number of that session was taken.
pub(crate) fn is_born_in(member: ProcessRef, session: &ProcessSession) -> bool {
    let until = ticks(Duration::from_millis(session.until_ms));
    (session.start_ticks..=until).contains(&member.start_ticks)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn members(count: i32) -> Vec<ProcessRef> {
        (1..=count).map(|pid| ProcessRef { pid, start_ticks: 1 }).collect()
    }

    fn known(text: &str) -> Environment {
        Environment::Known(EnvMark::of(text.as_bytes()))
    }

    type Answers = io::Result<Vec<(ProcessRef, Environment)>>;

    fn each(read: impl Fn(i32) -> Environment) -> impl Fn(Vec<ProcessRef>) -> Answers {
        move |left| Ok(left.into_iter().map(|member| (member, read(member.pid))).collect())
    }

    #[test]
    fn an_environment_that_is_not_in_place_yet_is_read_again() {
        let (reads, pauses) = (Cell::new(0), Cell::new(0));
        let read = each(|_| {
            reads.set(reads.get() + 1);
            if reads.get() < 3 { Environment::Executing } else { known("PROCTOR_LEAF=a\0PROCTOR_LAUNCH=7\0") }
        });

        let marks = MarkTable::read(members(1), read, || pauses.set(pauses.get() + 1));

        assert_eq!((marks.by_mark["a"].as_slice(), pauses.get()), (members(1).as_slice(), 2));
        assert_eq!(marks.launches[&members(1)[0]], 7);
    }

    #[test]
    fn a_thousand_that_execute_a_program_are_waited_for_together_and_who_has_no_environment_is_not() {
        let pauses = |read: fn(i32) -> Environment| {
            let pauses = Cell::new(0);
            MarkTable::read(members(1000), each(read), || pauses.set(pauses.get() + 1));
            pauses.get()
        };

        assert_eq!(pauses(|_| Environment::Executing), EXEC_TRIES);
        assert_eq!(pauses(|_| known("")), 0);
        assert_eq!(pauses(|_| Environment::Gone), 0);
    }

    #[test]
    fn a_process_that_is_silent_now_is_known_by_what_was_read_before() {
        let all = each(|_| known("PROCTOR_LEAF=a\0PROCTOR_LAUNCH=7\0"));
        let but_the_first = |left: Vec<ProcessRef>| all(left.into_iter().filter(|member| member.pid > 1).collect());
        let before = MarkTable::read(members(1), &all, || {});

        let marks = MarkTable::read(members(2), but_the_first, || {}).with_silent(&before);
        let never_read = MarkTable::read(members(2), but_the_first, || {}).with_silent(&MarkTable::default());

        assert!(marks.by_mark["a"].len() == 2 && members(2).iter().all(|member| marks.by_mark["a"].contains(member)));
        assert_eq!(marks.launches[&members(1)[0]], 7);
        assert_eq!(never_read.by_mark["a"], members(2)[1..]);
    }

    #[test]
    fn where_no_environment_can_be_read_the_marks_that_are_known_hold() {
        let (memory, table) = (ForeignMemory::exhausted(), ProcessTable::read().unwrap());
        let ours = i32::try_from(std::process::id()).unwrap();
        let us = ProcessRef { pid: ours, start_ticks: table.start_of(ours).unwrap() };
        let mut known = MarkTable::default();
        known.keep(us, Some(EnvMark { mark: "a".to_owned(), launch: Some(7) }));
        let before = Mutex::new(Arc::new(known));

        for _ in 0..2 {
            let mut marks = EnvMarks { memory: &memory, before: &before, read: None };

            assert_eq!(marks.of("a", &table), [us]);
            assert_eq!(marks.launch_of(us), Some(7));
            assert!(marks.failure().is_some(), "there may be others");
        }
    }

    #[test]
    fn a_process_that_was_given_no_environment_does_not_execute_a_program() {
        let mut bare = std::process::Command::new("/bin/sleep");
        let mut bare = bare.arg("1000").env_clear().spawn().unwrap();
        let pid = i32::try_from(bare.id()).unwrap();

        let begun = std::time::Instant::now();
        while Environment::of(pid) == Environment::Executing && begun.elapsed() < Duration::from_secs(60) {
            let _ = rustix::thread::nanosleep(&EXEC_PERIOD);
        }
        let read = Environment::of(pid);

        bare.kill().unwrap();
        bare.wait().unwrap();
        assert_eq!(read, known(""));
        assert_eq!(Environment::of(pid), Environment::Gone);
    }
}
