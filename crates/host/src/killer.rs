//! Kills process trees, many at once.
//!
//! Promised: pending kills are batched, so that a thousand cost a few process lists instead of a thousand; on a
//! separate thread, so that no kill waits for a hanging file system. A target's whole tree is frozen before any of it
//! is killed, so that nothing can fork away; nothing stays [frozen]. A kill that nobody waits for any more is
//! dropped. Each signal goes through a pidfd that was verified against the listed start time. The agent is never
//! signalled, and no process is signalled merely for being its child; nor is another process known to the agent,
//! merely for descending from a target or being in its leaf.
//! Absent: waiting for the exits; and, by descent, a process whose parent has exited: a daemon that forks twice
//! leaves every tree on purpose.

mod frozen;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use proctor_model::Leftovers;
use rustix::process::Signal;
use rustix::time::Timespec;
use tokio::sync::oneshot;

use crate::cgroup::{Groups, Leaf};
use crate::foreign_memory::ForeignMemory;
use crate::kill_journal::Journal;
use crate::leftovers::{EnvMarks, LaunchSpan, MarkTable, ProcessMatcher, UnrelatedProcesses};
use crate::pidfd::{Process, Refused};
use crate::procfs::Stat;
use crate::tree::{ProcessRef, ProcessTable};
use frozen::Frozen;

/// A fork bomb may be faster than we are; then what was found is killed and the rest stays.
const ROUNDS_MAX: usize = 64;
/// How often, and at which interval, processes are checked for having stopped. One in uninterruptible sleep never
/// stops, but does not fork either.
const STOP_TRIES: usize = 200;
const STOP_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Until the next attempt to kill what is frozen, after a lack of descriptors or memory.
const RETRY_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// More wait for the next batch, so that early ones do not wait for all the others.
const BATCH_MAX: usize = 1024;

/// What is killed together.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A process with its descendants, and everything else in the leaf that began then or later. Nothing if
    /// that process has ended: what is in the leaf then may be a next life.
    Tree(ProcessRef, Option<(Leaf, LaunchSpan)>),
    /// A command with its descendants and everything in the session that it leads or has led, with the life of its
    /// own process, if that has one, but no other known process.
    Session(ProcessRef, Option<ProcessRef>),
    /// What is left of a life of this leaf.
    Remains(Leaf, Leftovers),
    /// One that a previous agent had begun to kill, with its stopped descendants. Running ones were not meant, or
    /// were forked since: they are left behind, and found as leftovers.
    Frozen(ProcessRef),
}

/// What is done to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillMode {
    Count,
    Terminate,
    Kill,
}

#[derive(Clone, Debug)]
pub(crate) struct Killer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    groups: Option<Arc<Groups>>,
    /// The scope of this agent's markers.
    scope: String,
    waiting: Mutex<Waiting>,
    lives: Mutex<HashMap<Leaf, KnownLives>>,
    frozen: Frozen,
    memory: ForeignMemory,
    marks: Mutex<Arc<MarkTable>>,
}

/// The lives of a process that the agent knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownLives {
    pub(crate) present: Option<ProcessRef>,
    /// Earlier lives of its name that were unregistered.
    pub(crate) elders: Vec<ProcessRef>,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<Job>,
    has_thread: bool,
}

#[derive(Debug)]
struct Job {
    target: Target,
    deed: KillMode,
    done: oneshot::Sender<io::Result<usize>>,
}

impl Killer {
    pub(crate) fn new(groups: Option<Arc<Groups>>, scope: String, journal: Journal, memory: ForeignMemory) -> Self {
        let (waiting, lives, marks) = (Mutex::default(), Mutex::default(), Mutex::default());
        let frozen = Frozen::new(journal);
        Self { shared: Arc::new(Shared { groups, scope, waiting, lives, frozen, memory, marks }) }
    }

    /// Makes sure that nothing stays frozen, whatever happens to the kill thread. Never returns.
    pub(crate) async fn watch_frozen(self) {
        self.shared.frozen.watch().await;
    }

    /// One whose thread never gets to run.
    #[cfg(test)]
    pub(crate) fn stuck() -> Self {
        let boot = crate::procfs::boot_id().unwrap();
        let journal = Journal::open(std::path::Path::new("/nonexistent"), boot);
        let killer = Self::new(None, "test".to_owned(), journal, ForeignMemory::default());
        killer.shared.waiting.lock().has_thread = true;
        killer
    }

    /// The lives of a process, which die with no other.
    pub(crate) fn set_lives(&self, leaf: Leaf, of: KnownLives) {
        let mut lives = self.shared.lives.lock();
        if of.present.is_none() && of.elders.is_empty() {
            lives.remove(&leaf);
        } else {
            lives.insert(leaf, of);
        }
    }

    /// A command of the process of this leaf, or of none, with what belongs to it.
    pub(crate) fn session_of(&self, shell: ProcessRef, leaf: Option<&Leaf>) -> Target {
        Target::Session(shell, leaf.and_then(|leaf| self.shared.lives.lock().get(leaf)?.present))
    }

    /// Kills what a previous agent had begun to kill: it may be frozen.
    pub(crate) fn finish_interrupted(&self) {
        let left: Vec<Target> = self.shared.frozen.interrupted().into_iter().map(Target::Frozen).collect();
        if left.is_empty() {
            return;
        }
        let killed: usize = self.shared.kill(&left).into_iter().flatten().sum();
        tracing::warn!(killed, "completed kills left by the previous agent");
    }

    /// How many were signalled. Returns when they are.
    pub(crate) async fn kill(&self, target: Target) -> io::Result<usize> {
        self.ask(target, KillMode::Kill).await
    }

    /// Asks the whole target to exit: SIGTERM. Returns how many that is.
    pub(crate) async fn terminate(&self, target: Target) -> io::Result<usize> {
        self.ask(target, KillMode::Terminate).await
    }

    /// How many of the target are alive; at least this many, if not all can be found. An error: none was found, and
    /// it is unclear whether that is all.
    pub(crate) async fn count(&self, target: Target) -> io::Result<usize> {
        self.ask(target, KillMode::Count).await
    }

    async fn ask(&self, target: Target, deed: KillMode) -> io::Result<usize> {
        let (done, is_done) = oneshot::channel();
        let needs_thread = {
            let mut waiting = self.shared.waiting.lock();
            waiting.jobs.push(Job { target, deed, done });
            !waiting.take_thread()
        };
        if needs_thread {
            self.start_thread();
        }
        is_done.await.unwrap_or_else(|_| Err(io::Error::other("the kill was interrupted")))
    }

    /// Kills at once, outside the thread that carries out the others, and freezes nothing: a process that is forked
    /// meanwhile and leaves the session may get away.
    pub(crate) async fn kill_at_once(&self, target: Target) {
        let shared = Arc::clone(&self.shared);
        let _ = tokio::task::spawn_blocking(move || shared.kill_unfrozen(&target)).await;
    }

    fn start_thread(&self) {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name("killer".to_owned()).spawn(move || shared.work());
        let Err(error) = started else { return };
        // This does not fail kills: the caller takes all that wait.
        tracing::warn!(%error, "cannot start kill thread, killing synchronously");
        self.shared.work_here();
    }
}

impl Waiting {
    /// Whether there was a thread already.
    fn take_thread(&mut self) -> bool {
        std::mem::replace(&mut self.has_thread, true)
    }

    /// The thread ends.
    fn leave(&mut self) {
        self.has_thread = false;
        self.jobs.shrink_to_fit();
    }
}

impl Shared {
    /// Carries out pending kills until there are none and nothing is frozen.
    fn work(&self) {
        let _reset = ResetOnPanic(self);
        loop {
            let mut waiting = self.carry_out_all();
            if self.frozen.is_empty() {
                return waiting.leave();
            }
            drop(waiting);
            let _ = rustix::thread::nanosleep(&RETRY_PERIOD);
        }
    }

    /// As [`Self::work`], on a thread that has other things to do: what cannot be killed now for lack of resources is
    /// left to the watch.
    fn work_here(&self) {
        let _reset = ResetOnPanic(self);
        self.carry_out_all().leave();
    }

    /// Until nothing waits.
    fn carry_out_all(&self) -> MutexGuard<'_, Waiting> {
        loop {
            while let Some(jobs) = self.next_jobs() {
                self.carry_out(jobs);
            }
            let waiting = self.waiting.lock();
            if waiting.jobs.is_empty() {
                return waiting;
            }
        }
    }

    /// The next batch, after another attempt to kill what is frozen.
    fn next_jobs(&self) -> Option<Vec<Job>> {
        self.frozen.kill_all();
        let mut waiting = self.waiting.lock();
        let count = waiting.jobs.len().min(BATCH_MAX);
        (count > 0).then(|| waiting.jobs.drain(..count).collect())
    }

    fn carry_out(&self, mut jobs: Vec<Job>) {
        // A requester that no longer waits has moved on: what is there by now may be wanted, or belong to another
        // command or life.
        jobs.retain(|job| !job.done.is_closed());
        for deed in [KillMode::Count, KillMode::Terminate, KillMode::Kill] {
            let of_deed = jobs.extract_if(.., |job| job.deed == deed).map(|job| (job.target, job.done));
            let (targets, done): (Vec<Target>, Vec<_>) = of_deed.unzip();
            let results = if deed == KillMode::Kill { self.kill(&targets) } else { self.find_once(&targets, deed) };
            for (done, result) in done.into_iter().zip(results) {
                let _ = done.send(result);
            }
        }
    }

    /// Counts what belongs to each target now, and asks it to exit if requested.
    fn find_once(&self, targets: &[Target], deed: KillMode) -> Vec<io::Result<usize>> {
        let mut hunts: Vec<TreeSearch<'_>> = targets.iter().map(TreeSearch::new).collect();
        if !hunts.is_empty() {
            self.find(&mut hunts, &mut HashSet::new(), true);
        }
        let tell = |hunt: TreeSearch<'_>| {
            let count = match deed {
                KillMode::Count => hunt.found.len(),
                KillMode::Terminate | KillMode::Kill => {
                    let sent = hunt.found.iter().filter(|member| matches!(signal(**member, Signal::TERM), Ok(true)));
                    sent.count()
                }
            };
            // What was found is there; that nothing is there can only be told by a search that did not fail.
            match hunt.failed {
                Some(error) if count == 0 => Err(error),
                Some(_) | None => Ok(count),
            }
        };
        hunts.into_iter().map(tell).collect()
    }

    fn kill(&self, targets: &[Target]) -> Vec<io::Result<usize>> {
        let mut hunts: Vec<TreeSearch<'_>> = targets.iter().map(TreeSearch::new).collect();
        let (mut seen, mut stopped) = (HashSet::new(), HashSet::<ProcessRef>::new());
        for round in 0..ROUNDS_MAX {
            let new = self.find(&mut hunts, &mut seen, round == 0);
            if new.is_empty() {
                break;
            }
            self.frozen.add(&new);
            // What cannot be stopped (it has just exited, or is not ours) is retried below.
            stopped.extend(new.iter().filter(|member| matches!(signal(**member, Signal::STOP), Ok(true))));
            wait_until_stopped(new);
        }
        let mut lacking = Vec::new();
        let results = hunts.into_iter().map(|hunt| hunt.kill(&mut lacking)).collect();
        if !seen.is_empty() {
            stopped.retain(|member| lacking.contains(member));
            self.frozen.remove(&seen, &stopped);
        }
        results
    }

    fn kill_unfrozen(&self, target: &Target) {
        let mut hunts = [TreeSearch::new(target)];
        let mut seen = HashSet::new();
        for round in 0..ROUNDS_MAX {
            let new = self.find(&mut hunts, &mut seen, round == 0);
            if new.is_empty() {
                return;
            }
            for member in new {
                let _ = signal(member, Signal::KILL);
            }
        }
    }

    /// Lists the members of every incomplete target; returns the new ones.
    fn find(&self, hunts: &mut [TreeSearch<'_>], seen: &mut HashSet<ProcessRef>, is_first: bool) -> Vec<ProcessRef> {
        let table = ProcessTable::read();
        let nobody = ProcessTable::default();
        let mut kin = ProcessMatcher {
            groups: self.groups.as_deref(),
            scope: &self.scope,
            table: table.as_ref().unwrap_or(&nobody),
            marks: EnvMarks { memory: &self.memory, before: &self.marks, read: None },
            bystanders: UnrelatedProcesses::new(
                table.as_ref().unwrap_or(&nobody),
                self.lives.lock().values().flat_map(|of| of.present.iter().chain(&of.elders)).copied().collect(),
            ),
        };
        // If stopped, we could not continue to kill; and a command may have started our own parent.
        let us = i32::try_from(std::process::id()).unwrap_or_default();
        let mut all_new = Vec::new();
        for hunt in hunts.iter_mut().filter(|hunt| !hunt.is_complete) {
            let listed = match &table {
                Ok(_) => list(hunt.target, &mut kin, is_first),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            let listed = listed.unwrap_or_else(|error| {
                hunt.failed = Some(error);
                Vec::new()
            });
            if hunt.failed.is_none() && matches!(hunt.target, Target::Remains(..)) {
                hunt.failed = kin.marks.failure();
            }
            let before = hunt.found.len();
            let others = listed.into_iter().filter(|member| member.pid > 1 && member.pid != us);
            hunt.found.extend(others.filter(|member| seen.insert(*member)));
            let new = hunt.found.get(before..).unwrap_or_default();
            hunt.is_complete = new.is_empty();
            all_new.extend_from_slice(new);
        }
        all_new
    }
}

fn list(target: &Target, kin: &mut ProcessMatcher<'_>, is_first: bool) -> io::Result<Vec<ProcessRef>> {
    let table = kin.table;
    match target {
        Target::Tree(root, _) if is_first && table.stat(root).is_none() => Ok(Vec::new()),
        Target::Tree(root, leaf) => {
            let others = leaf.as_ref().and_then(|(leaf, since)| kin.younger(*root, leaf, since).ok());
            let roots = table.living(*root).into_iter().chain(others.unwrap_or_default());
            Ok(table.descend(roots, |member| kin.bystanders.is_spared(&[*root], member)))
        }
        Target::Session(shell, life) => {
            let meant: Vec<ProcessRef> = life.iter().chain([shell]).copied().collect();
            // Who has its pid, if only as a zombie, has the number of its session. Once it was reaped both may be
            // another's, whose leader has ended as well.
            let is_own = Stat::of(shell.pid).is_ok_and(|stat| stat.start_ticks == shell.start_ticks);
            let session = table.session(shell.pid).iter().copied().filter(|_| is_own);
            let roots = table.living(*shell).into_iter().chain(session);
            let own = roots.filter(|member| !kin.bystanders.is_of_other_life(&meant, member, table));
            Ok(table.descend(own, |member| kin.bystanders.is_spared(&meant, member)))
        }
        Target::Remains(leaf, remains) => kin.left_behind(leaf, remains),
        Target::Frozen(root) => {
            let is_stopped = |member: &ProcessRef| table.stat(member).is_some_and(Stat::is_stopped);
            Ok(table.descend(table.living(*root), |member| member != root && !is_stopped(member)))
        }
    }
}

/// After a panic the next kill starts another thread; those who waited for this one get the failure, and nothing
/// stays frozen.
struct ResetOnPanic<'a>(&'a Shared);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.frozen.kill_all_unwritten();
            *self.0.waiting.lock() = Waiting::default();
        }
    }
}

/// The search for what belongs to one target.
struct TreeSearch<'a> {
    target: &'a Target,
    found: Vec<ProcessRef>,
    /// Nothing new was found in the last round, in which all others were frozen.
    is_complete: bool,
    failed: Option<io::Error>,
}

impl<'a> TreeSearch<'a> {
    fn new(target: &'a Target) -> Self {
        Self { target, found: Vec::new(), is_complete: false, failed: None }
    }

    /// `lacking` gets those that could not be killed now.
    fn kill(self, lacking: &mut Vec<ProcessRef>) -> io::Result<usize> {
        let mut count = 0;
        let mut failed = self.failed;
        for member in self.found {
            match signal(member, Signal::KILL) {
                Ok(sent) => count += usize::from(sent),
                Err(error) => {
                    if is_lack(&error) {
                        lacking.push(member);
                    }
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if count == 0 => Err(error),
            Some(error) => {
                tracing::warn!(%error, target = ?self.target, "cannot kill part of a process tree");
                Ok(count)
            }
            None => Ok(count),
        }
    }
}

/// A signal is sent before it takes effect: a process in the middle of a fork finishes it, and that child is in no
/// list until its parent has stopped.
fn wait_until_stopped(mut running: Vec<ProcessRef>) {
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

/// Whether it passes when somebody frees resources.
fn is_lack(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

pub(crate) fn signal(member: ProcessRef, signal: Signal) -> io::Result<bool> {
    match Process::open(member.pid) {
        Ok(process) if process.stat.start_ticks == member.start_ticks => process.signal(signal),
        Ok(_) | Err(Refused::Gone | Refused::Thread) => Ok(false),
        Err(Refused::Failed(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests;
