//! Room in memory for large bodies, and for what is built of them: who gets it, and who gives way.
//!
//! Promised: a pool never gives out more than its total, nor more than a part to one sender; nor does one app, or one
//! address, have more than a part of those that wait. Who waits in vain is told to come again; a body that arrives slowly gives way to who waits. Absent: reading anything.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{BodySender, BodyTimeouts};
use crate::api::error::ApiError;
use crate::api::limits::payer_of;

/// Large bodies that wait for room; each holds no more than a small one meanwhile.
pub(super) const WAITING_MAX: usize = 64;
/// While others wait, a large body must come at this rate.
const RATE_MIN: u64 = 1024 * 1024;
/// How often those who wait look for one that is too slow.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Room for large bodies.
#[derive(Debug)]
pub(in crate::api) struct Pool {
    total: u64,
    each: u64,
    /// Of one app or address.
    waiting_each: usize,
    patience: BodyTimeouts,
    pub(super) state: Mutex<PoolState>,
    changed: Notify,
}

#[derive(Debug, Default)]
pub(in crate::api) struct PoolState {
    pub(super) used: u64,
    by_sender: HashMap<String, u64>,
    holders: BTreeMap<u64, Arc<Holder>>,
    next: u64,
    pub(super) waiting: usize,
    pub(super) waiting_of: HashMap<String, usize>,
}

#[derive(Debug)]
pub(in crate::api) struct Holder {
    sender: String,
    bytes: u64,
    since: Instant,
    pub(super) received: AtomicU64,
    /// 1 once nothing more is expected: then it is work, not a slow sender, that holds the room.
    pub(super) is_whole: AtomicU64,
    pub(super) gives_way: CancellationToken,
}

impl Holder {
    /// Bytes a second so far; None for one that has just begun or is whole.
    fn slow_rate(&self, now: Instant, start: Duration) -> Option<u64> {
        let age = now.duration_since(self.since);
        if age < start || self.is_whole.load(Ordering::Relaxed) == 1 {
            return None;
        }
        let rate =
            self.received.load(Ordering::Relaxed) * 1000 / u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1);
        (rate < RATE_MIN).then_some(rate)
    }
}

impl Pool {
    pub(super) fn new(total: u64, each: u64, waiting_each: usize, patience: BodyTimeouts) -> Arc<Self> {
        Arc::new(Self { total, each, waiting_each, patience, state: Mutex::default(), changed: Notify::new() })
    }

    pub(super) async fn take(self: &Arc<Self>, sender: &BodySender, bytes: u64) -> Result<Reservation, ApiError> {
        let (BodySender::Stranger(name) | BodySender::Caller(name)) = sender;
        let deadline = Instant::now() + self.patience.room;
        let mut waiting = None;
        loop {
            let changed = self.changed.notified();
            if let Some(room) = self.try_take(name, bytes) {
                return Ok(room);
            }
            if waiting.is_none() {
                waiting = Some(Waiting::enter(self, payer_of(name))?);
            }
            self.make_room(name);
            if Instant::now() >= deadline {
                return Err(no_room());
            }
            let _ = tokio::time::timeout(LOOK_PERIOD, changed).await;
        }
    }

    pub(super) fn try_take(self: &Arc<Self>, sender: &str, bytes: u64) -> Option<Reservation> {
        let mut state = self.state.lock();
        let own = state.by_sender.get(sender).copied().unwrap_or(0);
        if state.used + bytes > self.total || own + bytes > self.each {
            return None;
        }
        state.used += bytes;
        *state.by_sender.entry(sender.to_owned()).or_default() += bytes;
        let id = state.next;
        state.next += 1;
        let holder = Arc::new(Holder {
            sender: sender.to_owned(),
            bytes,
            since: Instant::now(),
            received: AtomicU64::new(0),
            is_whole: AtomicU64::new(0),
            gives_way: CancellationToken::new(),
        });
        state.holders.insert(id, holder.clone());
        Some(Reservation { pool: self.clone(), id, holder })
    }

    /// The slowest gives way: of the sender's own where its part is the problem, else of all.
    fn make_room(&self, sender: &str) {
        let now = Instant::now();
        let state = self.state.lock();
        let is_own = |holder: &&Arc<Holder>| holder.sender == sender;
        let slowest = |holders: &mut dyn Iterator<Item = &Arc<Holder>>| {
            let slow = holders.filter_map(|holder| Some((holder.slow_rate(now, self.patience.start)?, holder.clone())));
            slow.min_by_key(|(rate, _)| *rate).map(|(_, holder)| holder)
        };
        let own = slowest(&mut state.holders.values().filter(is_own));
        if let Some(holder) = own.or_else(|| slowest(&mut state.holders.values())) {
            holder.gives_way.cancel();
        }
    }
}

fn no_room() -> ApiError {
    ApiError::busy(
        "too many large bodies at once: try again in a moment, and send credentials in the header \
         X-Bkapi-Authorization, so that they are known before the body",
    )
}

/// Room for one large body, or for what is built of it, given back when it is dropped.
#[derive(Debug)]
pub(in crate::api) struct Reservation {
    pool: Arc<Pool>,
    id: u64,
    pub(super) holder: Arc<Holder>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.holders.remove(&self.id);
        state.used -= self.holder.bytes;
        if let Some(own) = state.by_sender.get_mut(&self.holder.sender) {
            *own -= self.holder.bytes;
            if *own == 0 {
                state.by_sender.remove(&self.holder.sender);
            }
        }
        drop(state);
        self.pool.changed.notify_waiters();
    }
}

struct Waiting<'a> {
    pool: &'a Pool,
    payer: &'a str,
}

impl<'a> Waiting<'a> {
    fn enter(pool: &'a Pool, payer: &'a str) -> Result<Self, ApiError> {
        let mut state = pool.state.lock();
        let own = state.waiting_of.get(payer).copied().unwrap_or(0);
        if own >= pool.waiting_each || state.waiting >= WAITING_MAX {
            return Err(no_room());
        }
        state.waiting += 1;
        state.waiting_of.insert(payer.to_owned(), own + 1);
        Ok(Self { pool, payer })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.waiting -= 1;
        if let Some(own) = state.waiting_of.get_mut(self.payer) {
            *own -= 1;
            if *own == 0 {
                state.waiting_of.remove(self.payer);
            }
        }
    }
}
