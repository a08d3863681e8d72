//! Watches the exits of many processes at once.
//!
//! Promised: a watched process costs a descriptor and a few hundred bytes, no task of its own, and its exit is
//! reported once; a name has one watch, however often it is requested. With an exit comes when the process was last
//! proven to hold its pid, however late the exit is heard of.
//! Absent: processes that cannot be watched, because they have exited or there is no descriptor left; use
//! [`Host::ended`] for those.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::{Exit, Incarnation};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::pidfd::{self, Process};
use crate::reaper::{CHILDREN, Watch};
use crate::{Error, Host, wall_clock};

/// Exits taken in one batch.
const CROWD: usize = 64;
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// How often exits are polled if they cannot be waited for.
const POLL_PERIOD: Duration = Duration::from_millis(100);

/// Watched processes, under names chosen by the caller.
#[derive(Debug)]
pub struct ExitWatcher<K> {
    host: Host,
    epoll: OwnedFd,
    watched: Mutex<WatchTable<K>>,
}

#[derive(Debug)]
struct WatchTable<K> {
    /// In boxes: a half of the table is empty.
    by_number: HashMap<u64, Box<WatchEntry<K>>>,
    number_of: HashMap<K, u64>,
    numbers: u64,
    /// When all that were watched had not exited.
    quiet_at: Duration,
}

#[derive(Debug)]
struct WatchEntry<K> {
    name: K,
    life: Incarnation,
    fd: OwnedFd,
    /// Keeps the reaper away.
    watch: Watch,
    /// When it was there, before it was watched; and when it was watched.
    seen_at: Duration,
    watched_at: Duration,
}

/// An exited life.
#[derive(Debug)]
pub struct Exited<K> {
    pub name: K,
    pub life: Incarnation,
    /// When it was last proven to hold its pid, in time since boot.
    pub alive_at: Duration,
    fd: OwnedFd,
    _watch: Watch,
}

impl<K: Clone + Eq + Hash> ExitWatcher<K> {
    pub(crate) fn new(host: Host) -> Result<Self, Error> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| Error::Listen { source: errno.into() })?;
        let watched = Mutex::new(WatchTable {
            by_number: HashMap::new(),
            number_of: HashMap::new(),
            numbers: 0,
            quiet_at: Duration::ZERO,
        });
        Ok(Self { host, epoll, watched })
    }

    /// From now on the exit of that life is reported, and of no earlier one with that name. What cannot be watched is
    /// returned.
    pub fn watch(&self, name: K, life: Incarnation) -> Result<(), (K, Incarnation)> {
        if self.watched.lock().is_watched(&name, &life) {
            return Ok(());
        }
        // Before the process is checked, so that the reaper does not take it meanwhile.
        let watch = CHILDREN.watch(life.pid);
        let seen_at = wall_clock::since_boot();
        let process = Process::of(&life, self.host.boot_id());
        let Ok(Some(process)) = process else { return Err((name, life)) };
        let fd = process.into_fd();
        let mut watched = self.watched.lock();
        watched.forget(&name);
        watched.numbers += 1;
        let number = watched.numbers;
        // One-shot: a listener that has heard of an exit may keep the descriptor for a while.
        let flags = EventFlags::IN | EventFlags::ONESHOT;
        if epoll::add(&self.epoll, &fd, EventData::new_u64(number), flags).is_err() {
            return Err((name, life));
        }
        watched.number_of.insert(name.clone(), number);
        let watched_at = wall_clock::since_boot();
        let entry = WatchEntry { name, life, fd, watch, seen_at, watched_at };
        watched.by_number.insert(number, Box::new(entry));
        Ok(())
    }

    /// Proves that all that are watched hold their pids, if none has exited. Costs a system call, however many there
    /// are.
    pub fn confirm(&self) {
        let mut watched = self.watched.lock();
        let at = wall_clock::since_boot();
        if !pidfd::has_ended(self.epoll.as_fd()) {
            watched.quiet_at = at;
        }
    }

    /// The life that is watched under that name, and when it was last proven to hold its pid, in time since boot.
    pub fn alive_at(&self, name: &K) -> Option<(Incarnation, Duration)> {
        let watched = self.watched.lock();
        let entry = watched.by_number.get(watched.number_of.get(name)?)?;
        Some((entry.life.clone(), entry.alive_at(watched.quiet_at)))
    }

    /// Nobody is interested in that name any more.
    pub fn forget(&self, name: &K) {
        self.watched.lock().forget(name);
    }

    /// Reports every exit, forever. In a tokio runtime.
    pub async fn tell(&self, mut tell: impl FnMut(Exited<K>)) {
        #[allow(unsafe_code, reason = "tokio leaves it to us that the descriptor stays open")]
        // SAFETY: `self` is borrowed for longer than the registration lives, and never closes `epoll`
        // before its own end.
        let registered = unsafe { AsyncFd::register_with_interest(self.epoll.as_fd(), Interest::READABLE) };
        loop {
            let ready = match &registered {
                Ok(registered) => registered.readable().await.ok(),
                Err(_) => None,
            };
            let over = self.take();
            match ready {
                Some(mut ready) if over.len() < CROWD => ready.clear_ready(),
                Some(_) => {}
                None => tokio::time::sleep(POLL_PERIOD).await,
            }
            over.into_iter().for_each(&mut tell);
        }
    }

    /// Some of those that have exited.
    fn take(&self) -> Vec<Exited<K>> {
        let mut buffer = [MaybeUninit::uninit(); CROWD];
        let mut watched = self.watched.lock();
        let now = wall_clock::since_boot();
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&NO_WAIT)) else { return Vec::new() };
        let over: Vec<Box<WatchEntry<K>>> =
            events.iter().filter_map(|event| watched.by_number.remove(&event.data.u64())).collect();
        for one in &over {
            watched.number_of.remove(&one.name);
        }
        let quiet_at = watched.quiet_at;
        if events.len() < CROWD {
            watched.quiet_at = now;
        }
        let exited = |entry: Box<WatchEntry<K>>| {
            let alive_at = entry.alive_at(quiet_at);
            let WatchEntry { name, life, fd, watch, .. } = *entry;
            Exited { name, life, alive_at, fd, _watch: watch }
        };
        over.into_iter().map(exited).collect()
    }
}

impl<K> WatchEntry<K> {
    fn alive_at(&self, quiet_at: Duration) -> Duration {
        // Before it was watched, that nothing had exited says nothing about it.
        if quiet_at >= self.watched_at { quiet_at } else { self.seen_at }
    }
}

impl<K: Eq + Hash> WatchTable<K> {
    fn is_watched(&self, name: &K, life: &Incarnation) -> bool {
        let number = self.number_of.get(name);
        number.and_then(|number| self.by_number.get(number)).is_some_and(|one| one.life == *life)
    }

    fn forget(&mut self, name: &K) {
        if let Some(number) = self.number_of.remove(name) {
            self.by_number.remove(&number);
        }
    }
}

impl<K> Exited<K> {
    /// How it ended, if that is known at once.
    pub fn exit_now(&mut self) -> Option<Exit> {
        let now = wall_clock::since_boot();
        let exit = crate::exit_of(&self.life, self.fd.as_fd());
        if exit.is_some_and(|(_, is_reaped)| is_reaped) {
            // Until then it was a zombie of ours, whose pid nobody else gets.
            self.alive_at = now;
        }
        exit.map(|(exit, _)| exit)
    }

    /// How it ended, if the kernel tells.
    pub async fn exit(&self) -> Option<Exit> {
        crate::exit_in_time(&self.life, self.fd.as_fd()).await
    }
}
