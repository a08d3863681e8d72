//! Shared by the tests of this crate: a host in a temporary directory and real processes.

#![allow(dead_code, reason = "every test binary uses its own part")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]
#![allow(clippy::unwrap_used, reason = "test code, outside of test functions")]

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use proctor_host::{Command, Host, Leaf, Options, SpawnMethod, TrackingPreference};
use proctor_model::{CommandExit, Exit, Identity, Incarnation, Leftovers, Probe};
use proctor_runtime::Tasks;

/// Generous: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    pub host: Host,
    pub root: tempfile::TempDir,
    tasks: Tasks,
}

/// The suite also runs with plain forks: `make test-fork`.
fn options(state_dir: PathBuf, tracking: TrackingPreference) -> Options {
    let forks = std::env::var("PROCTOR_SPAWN").is_ok_and(|method| method == "fork");
    let spawn = if forks { SpawnMethod::Fork } else { SpawnMethod::SharedMemory };
    Options { tracking, spawn, ..Options::new(state_dir) }
}

impl World {
    pub fn new() -> Self {
        Self::with_tracking(TrackingPreference::Best)
    }

    pub fn with_tracking(prefer: TrackingPreference) -> Self {
        let root = tempfile::tempdir().unwrap();
        let tasks = Tasks::default();
        let host = Host::new(options(root.path().join("state"), prefer), &tasks).unwrap();
        Self { host, root, tasks }
    }

    /// The host as a next agent with the same state finds it.
    pub fn again(&self, prefer: TrackingPreference) -> Host {
        Host::new(options(self.path("state"), prefer), &self.tasks).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn command(&self, line: &str) -> Command {
        Command {
            line: line.to_owned(),
            user: us(),
            directory: self.root.path().to_owned(),
            timeout: PATIENCE,
            environment: Vec::new(),
            output_name: "test".to_owned(),
            leaf: None,
        }
    }

    pub async fn run(&self, line: &str) -> CommandExit {
        self.host.run(self.command(line)).await
    }

    pub async fn look(&self, proc_name: &str, pid_path: &Path) -> Probe {
        self.host.look(&leaf(), &identity(proc_name, pid_path), None).await
    }

    /// The life that a pid file names, once it does.
    pub async fn life(&self, proc_name: &str, pid_path: &Path) -> Incarnation {
        let start = Instant::now();
        loop {
            match self.look(proc_name, pid_path).await {
                Probe::Running(life) => return life,
                other @ (Probe::Absent(_) | Probe::Dead { .. } | Probe::Unclear { .. }) => {
                    assert!(start.elapsed() < PATIENCE, "{other:?}")
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn absent(&self, proc_name: &str, pid_path: &Path) -> String {
        match self.look(proc_name, pid_path).await {
            Probe::Running(life) => panic!("{life:?} runs"),
            Probe::Absent(reason) | Probe::Dead { reason, .. } | Probe::Unclear { reason, .. } => reason.into_text(),
        }
    }
}

/// What a failed test left in its cgroups.
impl Drop for World {
    fn drop(&mut self) {
        let scope = self.host.tracking().detail.split([',', ';']).next().unwrap_or_default().to_owned();
        let leaves = std::fs::read_dir(scope).into_iter().flatten().flatten().map(|entry| entry.path());
        for leaf in leaves.filter(|path| std::thread::panicking() && path.is_dir()) {
            for pid in numbers(&leaf.join("cgroup.procs")) {
                let _ = rustix::process::kill_process(
                    rustix::process::Pid::from_raw(pid).unwrap(),
                    rustix::process::Signal::KILL,
                );
            }
        }
    }
}

pub fn identity(proc_name: &str, pid_path: &Path) -> Identity {
    Identity {
        proc_name: proc_name.parse().unwrap(),
        setup_path: "/".parse().unwrap(),
        pid_path: pid_path.to_str().unwrap().parse().unwrap(),
        config_path: None,
        log_path: None,
        user: us().parse().unwrap(),
        index_key: String::new(),
    }
}

/// Of the process that is looked for.
pub fn leaf() -> Leaf {
    Leaf::of("ns/looked-for")
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn us() -> String {
    let uid = rustix::process::geteuid().as_raw();
    nix::unistd::User::from_uid(uid.into()).unwrap().unwrap().name
}

/// A process of the test itself, which ends with the test.
pub struct Started(pub Child);

impl Started {
    pub fn new(program: impl AsRef<Path>, arguments: &[&str]) -> Self {
        let child = std::process::Command::new(program.as_ref()).args(arguments).stdin(Stdio::null()).spawn();
        Self(child.unwrap())
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// State letter, parent and start ticks of a process, if it is there.
pub fn stat(pid: i32) -> Option<(char, i32, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some((fields[0].chars().next()?, fields[1].parse().ok()?, fields[19].parse().ok()?))
}

/// Not running: gone, or a zombie.
pub fn is_dead(pid: i32) -> bool {
    stat(pid).is_none_or(|(state, _, _)| matches!(state, 'Z' | 'X'))
}

/// Zombies among our children, except those of the tests themselves, which are in our session.
pub fn our_zombies() -> Vec<i32> {
    let us = i32::try_from(std::process::id()).unwrap();
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let zombies = pids.filter(|pid| matches!(stat(*pid), Some(('Z', parent, _)) if parent == us));
    zombies.filter(|pid| session(*pid) != session(us)).collect()
}

/// 0 if the leader of the session is outside our pid namespace.
fn session(pid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// The numbers in a file, one a line; none until it is there.
pub fn numbers(path: &Path) -> Vec<i32> {
    std::fs::read_to_string(path).unwrap_or_default().lines().filter_map(|line| line.trim().parse().ok()).collect()
}

pub fn exited(end: &CommandExit) -> Exit {
    match &end.result {
        proctor_model::CommandResult::Exited(exit) => *exit,
        other @ (proctor_model::CommandResult::TimedOut
        | proctor_model::CommandResult::Cancelled
        | proctor_model::CommandResult::ExitUnknown
        | proctor_model::CommandResult::NotStarted(_)
        | proctor_model::CommandResult::NoSlot) => {
            panic!("{other:?}: {}", end.output)
        }
    }
}

pub fn not_run(end: &CommandExit) -> &str {
    match &end.result {
        proctor_model::CommandResult::NotStarted(reason) => reason,
        other @ (proctor_model::CommandResult::TimedOut
        | proctor_model::CommandResult::Cancelled
        | proctor_model::CommandResult::ExitUnknown
        | proctor_model::CommandResult::Exited(_)
        | proctor_model::CommandResult::NoSlot) => {
            panic!("{other:?}: {}", end.output)
        }
    }
}

/// Kills whatever is in the leaf, of any life; how many there were.
pub async fn kill_leaf(host: &Host, leaf: &Leaf) -> usize {
    let all = Leftovers { since: 0, launched: true, sessions: Vec::new(), spared: Vec::new() };
    host.clear_leftovers(leaf, &all, Duration::ZERO).await.unwrap().ended
}
