//! Watches the exits of many processes at once.
//!
//! Promised: a watched process costs a descriptor and a few hundred bytes, no task of its own, and its exit is
//! reported once; a name has one watch, however often it is requested.
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

use crate::pidfd::Process;
use crate::reaper::{CHILDREN, Watch};
use crate::{Error, Host};

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
    by_number: HashMap<u64, WatchEntry<K>>,
    number_of: HashMap<K, u64>,
    numbers: u64,
}

#[derive(Debug)]
struct WatchEntry<K> {
    name: K,
    life: Incarnation,
    fd: OwnedFd,
    /// Keeps the reaper away.
    watch: Watch,
}

/// An exited life.
#[derive(Debug)]
pub struct Exited<K> {
    pub name: K,
    pub life: Incarnation,
    fd: OwnedFd,
    _watch: Watch,
}

impl<K: Clone + Eq + Hash> ExitWatcher<K> {
    pub(crate) fn new(host: Host) -> Result<Self, Error> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| Error::Listen { source: errno.into() })?;
        let watched = Mutex::new(WatchTable { by_number: HashMap::new(), number_of: HashMap::new(), numbers: 0 });
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
        watched.by_number.insert(number, WatchEntry { name, life, fd, watch });
        Ok(())
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
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&NO_WAIT)) else { return Vec::new() };
        let mut watched = self.watched.lock();
        let over: Vec<WatchEntry<K>> =
            events.iter().filter_map(|event| watched.by_number.remove(&event.data.u64())).collect();
        for one in &over {
            watched.number_of.remove(&one.name);
        }
        over.into_iter().map(|WatchEntry { name, life, fd, watch }| Exited { name, life, fd, _watch: watch }).collect()
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
    pub fn exit_now(&self) -> Option<Exit> {
        crate::exit_of(&self.life, self.fd.as_fd())
    }

    /// How it ended, if the kernel tells.
    pub async fn exit(&self) -> Option<Exit> {
        crate::exit_in_time(&self.life, self.fd.as_fd()).await
    }
}
