//! All access of the agent to its Linux host: finding processes, running commands, waiting for exits, sending
//! signals, measuring.
//!
//! Promised: a process is one life ([`Incarnation`]), never a bare pid, and no signal reaches another one; nothing
//! blocks the runtime for long, hangs without a timeout or grows without a bound; no child stays a zombie; what a
//! command leaves running outlives the agent.
//! Absent: policy. What to run and when, and what a result means, is decided elsewhere. Children of this program that
//! were not started here are not reaped either.
//!
//! This is the only crate with unsafe code. Start at [`Host`]; then `probe` (finding a process), `command` (running
//! one), `exits`, `killer` (killing trees) and `sampler` (measuring).

mod blocking;
mod cgroup;
mod command;
pub mod descriptors;
mod error;
mod exits;
mod foreign_memory;
mod fork;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod kill_journal;
mod killer;
mod leftovers;
mod local_fs;
pub mod memory;
mod mount_table;
mod output;
mod pidfd;
mod pidfile;
mod probe;
mod procfs;
mod reaper;
mod release;
mod rights;
mod sampler;
mod spawn;
pub mod stop_signals;
mod syscall;
mod tree;
pub mod untrusted_path;
mod usage;
mod user;
mod wall_clock;

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use proctor_model::{
    BootId, CommandExit, Exit, HostFacts, Identity, Incarnation, Leftovers, Probe, ProcessSession, Signal, Usage,
};
use proctor_runtime::Tasks;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use tokio::sync::oneshot;

pub use cgroup::{Leaf, Method, Tracking, TrackingPreference};
pub use command::{Command, CommandHold};
pub use error::Error;
pub use exits::{ExitWatcher, Exited};
pub use fork::SpawnMethod;
pub use leftovers::LeftoversResult;
pub use reaper::reap_orphans;
pub use release::{CommandRelease, HeldCommand, command_release};
pub use rights::UserRights;
pub use sampler::{Sample, Sampler};
pub use usage::MeasuredLife;

use blocking::Blocking;
use command::CommandContext;
use foreign_memory::ForeignMemory;
use kill_journal::Journal;
use killer::{Killer, KnownLives, Target};
use output::OutputDirectory;
use pidfd::Process;
use probe::Origin;
use reaper::CHILDREN;
use spawn::Spawner;
use tree::ProcessRef;
use usage::Meter;
use user::{Account, AccountCache};
use wall_clock::{DRIFT_MILLIS_MAX, WallClock};

/// Exits this program and all its threads, whatever they wait for: no handler runs, and nothing is flushed.
pub fn exit_at_once(code: u8) -> ! {
    syscall::exit(code.into())
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Output of commands goes to `output` in it.
    pub state_dir: PathBuf,
    /// The best way to determine what belongs to a process.
    pub tracking: TrackingPreference,
    pub spawn: SpawnMethod,
}

impl Options {
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into(), tracking: TrackingPreference::Best, spawn: SpawnMethod::default() }
    }
}

/// The host that this program runs on. Clones are cheap and share their state.
#[derive(Clone, Debug)]
pub struct Host {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    boot: BootId,
    context: CommandContext,
    /// Work that takes longer than a probe.
    long_blocking: Blocking,
    memory: ForeignMemory,
    tracking: Tracking,
    meter: Arc<Meter>,
    wall_clock: Arc<WallClock>,
    /// Unix milliseconds of the boot, as last taken over.
    boot_millis: AtomicI64,
}

impl Host {
    /// Becomes the parent of orphaned processes, and begins to reap them. In a tokio runtime.
    pub fn new(options: Options, tasks: &Tasks) -> Result<Self, Error> {
        let boot =
            procfs::boot_id().map_err(|source| Error::Read { path: PathBuf::from(procfs::BOOT_ID_PATH), source })?;
        pidfd_open(getpid(), PidfdFlags::empty()).map_err(|errno| Error::Pidfd { source: errno.into() })?;
        descriptors::raise();
        let outputs = OutputDirectory::make(&options.state_dir)?;
        // Any pid enables it; the kernel only checks whether there is one.
        set_child_subreaper(Some(Pid::INIT)).map_err(|errno| Error::Subreaper { source: errno.into() })?;
        reaper::keep_exit_statuses();

        let (groups, tracking) = cgroup::find(&options.state_dir, options.tracking);
        groups.iter().for_each(cgroup::Groups::leave);
        tasks.spawn_critical("reaper", reaper::run());
        tasks.spawn_critical("output-trimmer", outputs.clone().trim_for_ever());
        let groups = groups.map(Arc::new);
        let mark = cgroup::scope_of(&options.state_dir);
        let (journal, memory) = (Journal::open(&options.state_dir, boot.clone()), ForeignMemory::default());
        let killer = Killer::new(groups.clone(), mark.clone(), journal, memory.clone());
        killer.finish_interrupted();
        tasks.spawn_critical("frozen", killer.clone().watch_frozen());
        let context = CommandContext {
            boot: boot.clone(),
            killer,
            mark,
            blocking: Blocking::default(),
            accounts: AccountCache::default(),
            outputs,
            groups,
            spawner: Spawner::new(options.spawn),
        };
        let meter = Arc::new(Meter::new(Sampler::new(boot.clone(), context.groups.clone()), memory.clone()));
        let wall_clock = Arc::new(WallClock::open(&options.state_dir, boot.clone()));
        let (boot_millis, long_blocking) = (AtomicI64::new(0), Blocking::for_long_work());
        let shared = Shared { boot, context, long_blocking, memory, tracking, meter, wall_clock, boot_millis };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// How it is determined here what belongs to a process.
    pub fn tracking(&self) -> &Tracking {
        &self.shared.tracking
    }

    /// A new measurer of lives, which belongs to one caller.
    pub fn sampler(&self) -> Sampler {
        Sampler::new(self.shared.boot.clone(), self.shared.context.groups.clone())
    }

    pub fn boot_id(&self) -> &BootId {
        &self.shared.boot
    }

    /// Time since boot, suspended time included.
    pub fn now(&self) -> Duration {
        wall_clock::since_boot()
    }

    /// What this machine is. `agent_version` and `policy` are left empty.
    pub fn facts(&self) -> HostFacts {
        let names = rustix::system::uname();
        let kernel = names.release().to_string_lossy();
        HostFacts {
            hostname: names.nodename().to_string_lossy().into_owned(),
            os: distribution().map_or_else(|| format!("Linux {kernel}"), |name| format!("{name}, Linux {kernel}")),
            arch: names.machine().to_string_lossy().into_owned(),
            cpus: usage::cpus(),
            memory_bytes: self.shared.meter.memory_bytes(),
            agent_version: String::new(),
            policy: None,
        }
    }

    /// Whether the process runs, by its pid file. `known` is the life that was seen last; found
    /// again it counts whatever it is called now. `leaf` is that of its commands: what they started is known by it.
    pub async fn look(&self, leaf: &Leaf, identity: &Identity, known: Option<&Incarnation>) -> Probe {
        let CommandContext { blocking, accounts, groups, mark, .. } = &self.shared.context;
        let origin = Origin {
            groups: groups.clone(),
            scope: mark.clone(),
            leaf: leaf.clone(),
            wall_clock: self.shared.wall_clock.clone(),
            memory: self.shared.memory.clone(),
        };
        probe::look(blocking, accounts, &self.shared.boot, origin, identity, known).await
    }

    /// As [`Self::look`], if the answer is cached. None: it takes a probe.
    pub fn probe_now(&self, identity: &Identity, known: Option<&Incarnation>) -> Option<Probe> {
        probe::probe_now(&self.shared.context.accounts, &self.shared.boot, identity, known)
    }

    /// The permissions of a user. An error is a human-readable reason. May hang with the name service.
    pub fn user(&self, name: &str) -> Result<UserRights, String> {
        let account = match name {
            user::ROOT => Arc::new(Account::root()),
            name => self.shared.context.accounts.find(name)?,
        };
        Ok(UserRights::of(account))
    }

    /// Runs a command until it exits. Dropping this earlier leaves the command running.
    pub async fn run(&self, command: Command) -> CommandExit {
        command::run(&self.shared.context, command, None).await.0
    }

    /// As [`Self::run`], for a command that its caller must know before it does anything. The second value is the
    /// time since boot at which the command was last known to hold its pid.
    pub async fn run_held(&self, command: Command, hold: CommandHold) -> (CommandExit, Option<Duration>) {
        command::run(&self.shared.context, command, Some(hold)).await
    }

    /// Waits for the exit of a command that a previous agent started; when `time` is over, or `end` requests it, the
    /// command is killed with its tree and session. `leaf` is that of its process.
    pub async fn rejoin(
        &self,
        command: &Incarnation,
        leaf: &Leaf,
        time: Duration,
        end: oneshot::Receiver<()>,
    ) -> CommandExit {
        command::rejoin(&self.shared.context.killer, self.ended(command.clone()), command, leaf, time, end).await
    }

    /// File work of the caller, on a thread that may hang. None: no answer within `limit`, or earlier work with this
    /// name still hangs.
    pub async fn blocking<T, F>(&self, name: &str, limit: Duration, work: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.shared.context.blocking.run(name, limit, work).await.ok()
    }

    /// As [`Self::blocking`], for slow work on one path, such as hashing files: it has its own threads, so that
    /// probes of pid files never wait for it. The limit counts from its turn.
    pub async fn long_blocking<T, F>(&self, path: &Path, name: &str, limit: Duration, work: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.shared.long_blocking.run_in_turn(path, name, limit, work).await.ok()
    }

    /// Sorts what lies on different mounts, without asking a file system that may hang. `name` says whose paths they are.
    /// None if local ones have not answered within the limit.
    pub async fn by_mount<T: Send + 'static>(
        &self,
        name: &str,
        limit: Duration,
        items: Vec<T>,
        path: fn(&T) -> &Path,
    ) -> Option<Vec<Vec<T>>> {
        let mounts = self.shared.long_blocking.mounts();
        let sort = move || {
            let mut sorted: HashMap<&str, Vec<T>> = HashMap::new();
            for item in items {
                sorted.entry(mounts.holding(path(&item))).or_default().push(item);
            }
            sorted.into_values().collect()
        };
        self.long_blocking(Path::new("/"), name, limit, sort).await
    }

    /// Removes the captures of a command; one that is still being written to stays bounded until then.
    pub async fn remove_outputs(&self, names: Vec<String>) {
        let outputs = self.shared.context.outputs.clone();
        self.shared.context.blocking.work(move || outputs.remove(&names)).await;
    }

    /// Removes the captures of all commands but these.
    pub async fn retain_outputs(&self, names: HashSet<String>) {
        let outputs = self.shared.context.outputs.clone();
        self.shared.context.blocking.work(move || outputs.retain(&names)).await;
    }

    /// Resolves when that life is over: at once if it already is, or never existed during this boot. Returns how it
    /// ended, if the kernel tells. Cancel-safe.
    pub async fn ended(&self, life: Incarnation) -> Option<Exit> {
        if life.boot != self.shared.boot {
            return None;
        }
        // Before the process is checked, so that the reaper does not take it meanwhile.
        let _watch = CHILDREN.watch(life.pid);
        let process = loop {
            match Process::of(&life, &self.shared.boot) {
                Ok(Some(process)) => break process,
                Ok(None) => return CHILDREN.remembered(life.pid, life.start_ticks),
                // No descriptor is free. Reporting an exit would be a lie.
                Err(error) => {
                    tracing::warn!(%error, pid = life.pid, "cannot watch process, retrying");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        };
        let fd = process.into_fd();
        pidfd::ended(fd.as_fd()).await;
        exit_in_time(&life, fd.as_fd()).await
    }

    /// A watch over many lives, named by one caller.
    pub fn ends<K: Clone + Eq + std::hash::Hash>(&self) -> Result<ExitWatcher<K>, Error> {
        ExitWatcher::new(self.clone())
    }

    pub fn is_alive(&self, life: &Incarnation) -> bool {
        probe::is_alive(life, &self.shared.boot)
    }

    /// False: that life is over, and nothing was signalled.
    pub fn signal(&self, life: &Incarnation, signal: Signal) -> Result<bool, Error> {
        let failed = |source| Error::Signal { pid: life.pid, source };
        let Some(process) = Process::of(life, &self.shared.boot).map_err(failed)? else {
            return Ok(false);
        };
        let signal = match signal {
            Signal::Terminate => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        process.signal(signal).map_err(failed)
    }

    /// Kills the process and all its descendants; how many were signalled, 0 if that life is over.
    /// A daemon that has left the tree by a double fork is a child of the agent and stays.
    pub async fn kill_tree(&self, life: &Incarnation) -> Result<usize, Error> {
        self.kill_incarnation(life, None).await
    }

    /// As [`Self::kill_tree`], and everything else in the leaf that began at `since` (in ticks) or later and
    /// does not descend from what is older. What enters the leaf after that life has ended, as a next life
    /// does, is not touched; nor is what was started by commands that began in one of the times `spared`.
    pub async fn kill_tree_in(
        &self,
        life: &Incarnation,
        leaf: &Leaf,
        since: u64,
        spared: Vec<(u64, u64)>,
    ) -> Result<usize, Error> {
        self.kill_incarnation(life, Some((leaf.clone(), leftovers::LaunchSpan { since, spared }))).await
    }

    /// A time since boot in ticks, as the environment of a command tells it.
    pub fn ticks(&self, since_boot: Duration) -> u64 {
        leftovers::ticks(since_boot)
    }

    async fn kill_incarnation(
        &self,
        life: &Incarnation,
        leaf: Option<(Leaf, leftovers::LaunchSpan)>,
    ) -> Result<usize, Error> {
        let pid = life.pid;
        let failed = move |source| Error::Signal { pid, source };
        let process = Process::of(life, &self.shared.boot).map_err(failed)?;
        if !process.is_some_and(|process| process.is_alive()) {
            return Ok(0);
        }
        let root = ProcessRef::of(life);
        self.shared.context.killer.kill(Target::Tree(root, leaf)).await.map_err(failed)
    }

    /// Says which life the process of this leaf has now, and which those of its name had that were unregistered. They,
    /// and what descends from them, are spared when another process is killed or cleared of its leftovers, also if
    /// that one has started them.
    pub fn set_lives<'a>(
        &self,
        leaf: &Leaf,
        present: Option<&Incarnation>,
        elders: impl IntoIterator<Item = &'a Incarnation>,
    ) {
        let known = |life: &Incarnation| {
            let is_of_boot = life.boot == self.shared.boot;
            is_of_boot.then(|| ProcessRef::of(life))
        };
        let (present, elders) = (present.and_then(known), elders.into_iter().filter_map(known).collect());
        self.shared.context.killer.set_lives(leaf.clone(), KnownLives { present, elders });
    }

    /// Whether there are cgroups and nothing lives in the leaf. Does not block.
    pub fn is_leaf_empty(&self, leaf: &Leaf) -> bool {
        self.shared.context.groups.as_ref().is_some_and(|groups| groups.is_empty(leaf))
    }

    /// Whether there are cgroups and that process is in the leaf. Does not block.
    pub fn is_in_leaf(&self, life: &Incarnation, leaf: &Leaf) -> bool {
        self.shared.context.groups.as_ref().is_some_and(|groups| groups.holds(leaf, life.pid))
    }

    /// Whether that process is in that session, and not in a later one of the same number.
    pub fn is_in_session(&self, life: &Incarnation, session: &ProcessSession) -> bool {
        let is_in = |stat: procfs::Stat| stat.start_ticks == life.start_ticks && stat.session == session.leader;
        let is_ours = life.boot == self.shared.boot && procfs::Stat::of(life.pid).is_ok_and(is_in);
        // A leader that is there, even as a zombie, holds the number.
        let is_leader = |stat: procfs::Stat| stat.start_ticks == session.start_ticks;
        let is_led = || procfs::Stat::of(session.leader).is_ok_and(is_leader);
        is_ours && (is_led() || leftovers::is_born_in(ProcessRef::of(life), session))
    }

    /// Ends what a finished life, or a failed start, has left behind: SIGTERM, and SIGKILL after `grace`.
    pub async fn clear_leftovers(
        &self,
        leaf: &Leaf,
        remains: &Leftovers,
        grace: Duration,
    ) -> Result<LeftoversResult, Error> {
        let failed = |source| Error::Leaf { leaf: leaf.as_str().to_owned(), source };
        leftovers::end(&self.shared.context.killer, leaf, remains, grace).await.map_err(failed)
    }

    /// How many there are of what [`Self::clear_leftovers`] would end.
    pub async fn count_remains(&self, leaf: &Leaf, remains: &Leftovers) -> Result<usize, Error> {
        let failed = |source| Error::Leaf { leaf: leaf.as_str().to_owned(), source };
        self.shared.context.killer.count(Target::Remains(leaf.clone(), remains.clone())).await.map_err(failed)
    }

    /// Removes the leaf of an exited process. False: something is still in it, and it stays.
    pub async fn release_leaf(&self, leaf: &Leaf) -> Result<bool, Error> {
        self.with_leaf(leaf, true, cgroup::Groups::release).await
    }

    async fn with_leaf<T: Send + 'static>(
        &self,
        leaf: &Leaf,
        otherwise: T,
        work: fn(&cgroup::Groups, &Leaf) -> std::io::Result<T>,
    ) -> Result<T, Error> {
        let Some(groups) = self.shared.context.groups.clone() else { return Ok(otherwise) };
        let name = leaf.clone();
        let result = self.shared.context.blocking.work(move || work(&groups, &name)).await;
        let result = result.unwrap_or_else(|| Err(std::io::Error::other("the agent is ending")));
        result.map_err(|source| Error::Leaf { leaf: leaf.as_str().to_owned(), source })
    }

    /// What the process and its descendants use, measured as for limits. None: that life is over.
    pub async fn usage(&self, of: MeasuredLife) -> Option<Usage> {
        if of.life.boot != self.shared.boot {
            return None;
        }
        let (answered, measuring) = self.shared.meter.request(of);
        if let Some(measuring) = measuring {
            let host = self.clone();
            // Not awaited: it is for all who ask meanwhile, also if this one is dropped.
            drop(tokio::task::spawn_blocking(move || measuring.run(|| host.now())));
        }
        answered.await.ok().flatten()
    }

    /// Reads the command lines of lives that are new, which [`Self::usage_alone`] tells. Soon over, also if the memory of one
    /// cannot be read; then its command line is left out.
    pub fn note_command_lines<'a>(&self, lives: impl IntoIterator<Item = &'a Incarnation>) {
        let is_of_boot = |life: &&Incarnation| life.boot == self.shared.boot;
        self.shared.meter.note_command_lines(lives.into_iter().filter(is_of_boot));
    }

    /// As [`Self::usage`], at once, without its descendants where nobody has asked for it before, and with the command line
    /// that was read last. None: that life is over.
    pub fn usage_alone(&self, of: &MeasuredLife) -> Option<Usage> {
        if of.life.boot != self.shared.boot {
            return None;
        }
        self.shared.meter.usage_alone(of, self.now())
    }

    /// What all processes that run use, with their descendants. In the same order; None: that life is over.
    pub async fn usages(&self, lives: Vec<MeasuredLife>) -> Vec<Option<Usage>> {
        let (host, count) = (self.clone(), lives.len());
        let measuring = move || host.shared.meter.usages(&lives, host.now());
        self.shared.context.blocking.work(measuring).await.unwrap_or_else(|| vec![None; count])
    }

    /// When that life began, in Unix seconds; 0 for a life of another boot.
    pub fn started_at(&self, life: &Incarnation) -> i64 {
        if life.boot != self.shared.boot {
            return 0;
        }
        let since_boot = i64::try_from(self.shared.meter.start(life).as_millis()).unwrap_or(i64::MAX);
        self.boot_millis().saturating_add(since_boot).div_euclid(1000)
    }

    /// Two clocks read one after the other give another answer every time, and the start of a
    /// process must not seem to move: the first answer stays until the wall clock is set.
    fn boot_millis(&self) -> i64 {
        let fresh = wall_clock::boot_millis();
        let kept = self.shared.boot_millis.load(Ordering::Relaxed);
        if fresh.abs_diff(kept) <= DRIFT_MILLIS_MAX {
            return kept;
        }
        self.shared.wall_clock.note(fresh);
        self.shared.boot_millis.store(fresh, Ordering::Relaxed);
        fresh
    }
}

/// How a watched life ended, if that is known at once.
fn exit_of(life: &Incarnation, fd: BorrowedFd<'_>) -> Option<(Exit, bool)> {
    let reaped = if CHILDREN.is_command(life.pid) { None } else { pidfd::reap(fd) };
    if let Some(exit) = reaped {
        CHILDREN.remember(life.pid, life.start_ticks, exit);
        return Some((exit, true));
    }
    CHILDREN.remembered(life.pid, life.start_ticks).map(|exit| (exit, false))
}

/// As [`exit_of`]; a parent other than us gets some time to collect it first.
async fn exit_in_time(life: &Incarnation, fd: BorrowedFd<'_>) -> Option<Exit> {
    match exit_of(life, fd) {
        Some((exit, _)) => Some(exit),
        None => pidfd::foreign_exit(fd).await,
    }
}

fn distribution() -> Option<String> {
    let text = ["/etc/os-release", "/usr/lib/os-release"]
        .iter()
        .find_map(|path| procfs::read(Path::new(path), 16 * 1024).ok())?;
    let text = String::from_utf8_lossy(&text);
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim().trim_matches(['"', '\'']).to_owned())
}
