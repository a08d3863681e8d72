//! Room in memory for large bodies, and for what is built of them: who gets it, and who gives way.
//!
//! Promised: a pool never gives out more than its total, nor more than a part to one payer (an app, whichever users it
//! calls for, or an address), nor more than a part of that to one sender; nor has a payer more than a part of those that
//! wait. Who waits in vain is told to come again; a body that arrives slowly gives way to who waits, and only where that
//! helps: of the sender or the payer whose own part is used up. Absent: reading anything.

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
    parts: Parts,
    patience: BodyTimeouts,
    pub(super) state: Mutex<PoolState>,
    changed: Notify,
}

/// How much of a pool is whose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Of all together, in bytes.
    pub(super) total: u64,
    /// Of one app or address.
    pub(super) of_payer: u64,
    /// Of one app and user.
    pub(super) each: u64,
    /// Bodies of one app or address that wait.
    pub(super) waiting: usize,
}

/// Whose part is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Sender,
    Payer,
    Pool,
}

#[derive(Debug, Default)]
pub(in crate::api) struct PoolState {
    pub(super) used: u64,
    by_payer: HashMap<String, u64>,
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
    pub(super) fn new(parts: Parts, patience: BodyTimeouts) -> Arc<Self> {
        Arc::new(Self { parts, patience, state: Mutex::default(), changed: Notify::new() })
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
            self.make_room(name, bytes);
            if Instant::now() >= deadline {
                return Err(no_room());
            }
            let _ = tokio::time::timeout(LOOK_PERIOD, changed).await;
        }
    }

    pub(super) fn try_take(self: &Arc<Self>, sender: &str, bytes: u64) -> Option<Reservation> {
        let mut state = self.state.lock();
        if self.full(&state, sender, bytes).is_some() {
            return None;
        }
        state.used += bytes;
        *state.by_payer.entry(payer_of(sender).to_owned()).or_default() += bytes;
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

    /// Whose part has no room for so much more of this sender.
    fn full(&self, state: &PoolState, sender: &str, bytes: u64) -> Option<Full> {
        let used = |by_key: &HashMap<String, u64>, key: &str| by_key.get(key).copied().unwrap_or(0);
        let Parts { total, of_payer, each, .. } = self.parts;
        if used(&state.by_sender, sender) + bytes > each {
            Some(Full::Sender)
        } else if used(&state.by_payer, payer_of(sender)) + bytes > of_payer {
            Some(Full::Payer)
        } else if state.used + bytes > total {
            Some(Full::Pool)
        } else {
            None
        }
    }

    /// The slowest gives way, of those that are in the way.
    fn make_room(&self, sender: &str, bytes: u64) {
        let now = Instant::now();
        let state = self.state.lock();
        let Some(full) = self.full(&state, sender, bytes) else { return };
        let is_in_the_way = |holder: &&Arc<Holder>| match full {
            Full::Sender => holder.sender == sender,
            Full::Payer => payer_of(&holder.sender) == payer_of(sender),
            Full::Pool => true,
        };
        let slow = state.holders.values().filter(is_in_the_way);
        let slow = slow.filter_map(|holder| Some((holder.slow_rate(now, self.patience.start)?, holder)));
        if let Some((_, holder)) = slow.min_by_key(|(rate, _)| *rate) {
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
        let Holder { sender, bytes, .. } = &*self.holder;
        let state = &mut *self.pool.state.lock();
        state.holders.remove(&self.id);
        state.used -= bytes;
        give_back(&mut state.by_sender, sender, *bytes);
        give_back(&mut state.by_payer, payer_of(sender), *bytes);
        self.pool.changed.notify_waiters();
    }
}

fn give_back(by_key: &mut HashMap<String, u64>, key: &str, bytes: u64) {
    if let Some(own) = by_key.get_mut(key) {
        *own -= bytes;
        if *own == 0 {
            by_key.remove(key);
        }
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
        if own >= pool.parts.waiting || state.waiting >= WAITING_MAX {
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
