//! The children of this program: which belong to whom, and reaping those that belong to nobody.
//!
//! As a child subreaper the agent becomes the parent of every daemon that its commands leave behind.
//!
//! Promised: none of them stays a zombie, and the exit of one that is watched, or was reaped just before anybody
//! watched, is reported to whoever asks.
//! Absent: children started by other code of this program. They are left alone, recognised by the session they share
//! with us; our commands, and so everything they leave behind, are always in another one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::Exit;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::sync::Notify;

use crate::pidfd::exit_of;
use crate::procfs::{self, Stat};

/// Exits come in bursts; one check takes them all.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// How often the kernel is asked whether there are any. Not by its signal: that would wake us for every end
/// of a child, and most are waited for by somebody.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);
/// After a check that found only zombies of others.
const SWEEP_PAUSE: Duration = Duration::from_secs(30);
const ENDS_KEPT_MAX: usize = 1024;

/// Children belong to the whole program, however many hosts it makes, so their register does too.
pub(crate) static CHILDREN: Children = Children::new();

#[derive(Debug)]
pub(crate) struct Children {
    state: Mutex<Option<State>>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Spawns in progress whose pid is not known yet.
    spawning: usize,
    /// Shells that run a command; whoever runs the command reaps them.
    commands: HashSet<i32>,
    /// Pids that somebody waits for, and how many wait; they reap.
    watched: HashMap<i32, usize>,
    /// The last ends that were reaped: pid, start ticks, end.
    ends: VecDeque<(i32, u64, Exit)>,
}

impl Children {
    const fn new() -> Self {
        Self { state: Mutex::new(None), wake: Notify::const_new() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(self.state.lock().get_or_insert_default())
    }

    /// Announces a spawn, so that its child is not taken for an orphan before its pid is known.
    pub(crate) fn spawning(&'static self) -> SpawnGuard {
        self.with(|state| state.spawning += 1);
        SpawnGuard { children: self }
    }

    pub(crate) fn watch(&'static self, pid: i32) -> Watch {
        self.with(|state| *state.watched.entry(pid).or_default() += 1);
        Watch { children: self, pid }
    }

    /// Whether whoever waits for that pid may reap it.
    pub(crate) fn is_command(&self, pid: i32) -> bool {
        self.with(|state| state.commands.contains(&pid))
    }

    pub(crate) fn remember(&self, pid: i32, start_ticks: u64, exit: Exit) {
        self.with(|state| state.remember(pid, start_ticks, exit));
    }

    /// How a life ended that was recently reaped here.
    pub(crate) fn remembered(&self, pid: i32, start_ticks: u64) -> Option<Exit> {
        self.with(|state| {
            let end = state.ends.iter().rev().find(|(other, ticks, _)| (*other, *ticks) == (pid, start_ticks));
            end.map(|(_, _, exit)| *exit)
        })
    }

    /// Reaps every zombie that belongs to nobody. Returns how many.
    pub(crate) fn reap_orphans(&self) -> usize {
        let us = i32::try_from(std::process::id()).unwrap_or_default();
        // Not getsid: in a container whose session leader is outside, the session is 0, no pid.
        let Ok(our_session) = Stat::of(us).map(|stat| stat.session) else { return 0 };
        let Ok(all) = procfs::all() else { return 0 };
        let zombies = all.into_iter().filter(|(_, stat)| stat.parent == us && stat.is_dead());
        zombies.filter(|(pid, _)| self.with(|state| state.reap(*pid, us, our_session))).count()
    }
}

impl State {
    /// Under the lock, which a spawn, a watch and this have to take: so a zombie that is nobody's
    /// now is nobody's until it is reaped, and its pid cannot be given out again meanwhile.
    fn reap(&mut self, pid: i32, us: i32, our_session: i32) -> bool {
        let Ok(stat) = Stat::of(pid) else { return false };
        let may_be_new_command = self.spawning > 0 && stat.session == pid;
        if stat.parent != us
            || !stat.is_dead()
            || stat.session == our_session
            || may_be_new_command
            || self.commands.contains(&pid)
            || self.watched.contains_key(&pid)
        {
            return false;
        }
        let Some(child) = Pid::from_raw(pid) else { return false };
        let status = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        if let Ok(Some(exit)) = status.map(|status| status.as_ref().and_then(exit_of)) {
            self.remember(pid, stat.start_ticks, exit);
        }
        true
    }

    fn remember(&mut self, pid: i32, start_ticks: u64, exit: Exit) {
        if self.ends.len() >= ENDS_KEPT_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back((pid, start_ticks, exit));
    }
}

/// A spawn whose pid is not known yet.
pub(crate) struct SpawnGuard {
    children: &'static Children,
}

impl SpawnGuard {
    /// The spawn has given a child; it is not reaped here until the answer is dropped.
    pub(crate) fn started(self, pid: i32) -> Shell {
        // Before `self` is dropped, so that the child is never without an owner.
        self.children.with(|state| state.commands.insert(pid));
        Shell { children: self.children, pid }
    }
}

impl Drop for SpawnGuard {
    fn drop(&mut self) {
        self.children.with(|state| state.spawning -= 1);
    }
}

/// The shell of a command. Dropped while it still runs, it becomes an orphan like any other.
pub(crate) struct Shell {
    children: &'static Children,
    pid: i32,
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.children.with(|state| state.commands.remove(&self.pid));
        self.children.wake.notify_one();
    }
}

/// Somebody waits for the exit of a pid.
#[derive(Debug)]
pub(crate) struct Watch {
    children: &'static Children,
    pid: i32,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.children.with(|state| {
            if let Some(count) = state.watched.get_mut(&self.pid) {
                *count -= 1;
                if *count == 0 {
                    state.watched.remove(&self.pid);
                }
            }
        });
        self.children.wake.notify_one();
    }
}

/// Our parent may ignore SIGCHLD, and then nobody can collect exit statuses.
pub(crate) fn keep_exit_statuses() {
    #[allow(unsafe_code, reason = "neither rustix nor our features of nix have dispositions")]
    // SAFETY: the zeroed action is storage for the present one and outlives the call; the default
    // disposition needs nothing of ours.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut present);
        if present.sa_sigaction == libc::SIG_IGN {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        }
    }
}

/// Whether a child has exited and was not collected yet.
fn has_zombies() -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, peek), Ok(Some(_)))
}

/// Reaps every zombie that belongs to nobody, once: for a program that no longer has a [`crate::Host`]. Blocks.
pub fn reap_orphans() -> usize {
    CHILDREN.reap_orphans()
}

/// Reaps orphans forever.
pub(crate) async fn run() {
    let mut pause = SWEEP_PERIOD;
    loop {
        tokio::select! {
            () = CHILDREN.wake.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
        pause = SWEEP_PERIOD;
        if !has_zombies() {
            continue;
        }
        tokio::time::sleep(DEBOUNCE).await;
        match tokio::task::spawn_blocking(|| CHILDREN.reap_orphans()).await {
            Ok(0) => pause = SWEEP_PAUSE,
            Ok(count) => tracing::debug!(count, "reaped orphans"),
            Err(failure) => tracing::error!(%failure, "cannot search for orphans"),
        }
    }
}
