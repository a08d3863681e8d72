//! Memory for large bodies and their parsed form: who gets it, and who is evicted.
//!
//! Promised: a pool never hands out more than its total, nor more than a share to one payer (an app, whichever users
//! it calls for, or an address), nor more than a share of that to one sender; the same goes for the waiting queue
//! (`shares`). A sender who waits too long is told to retry; a body that arrives slowly is evicted in favour of those
//! waiting, but only if that helps: from the sender or payer whose own share is used up. Administrators who find no
//! room get some from a reserve beyond the total, one of the largest at a time.
//! Absent: reading anything.

use proctor_model::messages;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{BodySender, BodyTimeouts};
use crate::api::error::ApiError;
use crate::shares::{Full, Held, Shares, payer_of};

/// Large bodies that wait for room; each holds no more than a small one meanwhile.
pub(super) const WAITING_MAX: u64 = 64;
/// While others wait, a large body must come at this rate.
const RATE_MIN: u64 = 1024 * 1024;
/// How often waiters look for one that is too slow.
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
    /// In bytes.
    pub(super) room: Shares,
    /// For administrators, beyond that.
    pub(super) reserve: u64,
    /// Bodies that wait.
    pub(super) waiting: Shares,
    /// Of administrators, beyond those.
    pub(super) waiting_reserve: u64,
}

#[derive(Debug, Default)]
pub(in crate::api) struct PoolState {
    pub(super) used: Held,
    /// Of the reserve, which counts nowhere else.
    pub(super) reserved: Held,
    holders: BTreeMap<u64, Arc<Holder>>,
    next: u64,
    pub(super) waiting: Held,
}

#[derive(Debug)]
pub(in crate::api) struct Holder {
    sender: String,
    bytes: u64,
    is_reserved: bool,
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
        let deadline = Instant::now() + self.patience.room;
        let mut waiting = None;
        loop {
            let changed = self.changed.notified();
            let reserved = || sender.is_administrator().then(|| self.try_take_reserved(sender.name(), bytes)).flatten();
            if let Some(room) = self.try_take(sender.name(), bytes).or_else(reserved) {
                return Ok(room);
            }
            if waiting.is_none() {
                waiting = Some(Waiting::enter(self, sender)?);
            }
            self.make_room(sender, bytes);
            if Instant::now() >= deadline {
                return Err(no_room());
            }
            let _ = tokio::time::timeout(LOOK_PERIOD, changed).await;
        }
    }

    pub(super) fn try_take(self: &Arc<Self>, sender: &str, bytes: u64) -> Option<Reservation> {
        let mut state = self.state.lock();
        if state.used.full(sender, bytes, self.parts.room).is_some() {
            return None;
        }
        state.used.add(sender, bytes);
        Some(self.reservation(&mut state, sender, bytes, false))
    }

    fn try_take_reserved(self: &Arc<Self>, sender: &str, bytes: u64) -> Option<Reservation> {
        let mut state = self.state.lock();
        if state.reserved.total() + bytes > self.parts.reserve {
            return None;
        }
        state.reserved.add(sender, bytes);
        Some(self.reservation(&mut state, sender, bytes, true))
    }

    fn reservation(
        self: &Arc<Self>,
        state: &mut PoolState,
        sender: &str,
        bytes: u64,
        is_reserved: bool,
    ) -> Reservation {
        let id = state.next;
        state.next += 1;
        let holder = Arc::new(Holder {
            sender: sender.to_owned(),
            bytes,
            is_reserved,
            since: Instant::now(),
            received: AtomicU64::new(0),
            is_whole: AtomicU64::new(0),
            gives_way: CancellationToken::new(),
        });
        state.holders.insert(id, holder.clone());
        Reservation { pool: self.clone(), id, holder }
    }

    /// Evicts the slowest of those that are in the way.
    fn make_room(&self, sender: &BodySender, bytes: u64) {
        let now = Instant::now();
        let state = self.state.lock();
        let name = sender.name();
        let Some(full) = state.used.full(name, bytes, self.parts.room) else { return };
        let is_in_the_way = |holder: &&Arc<Holder>| match full {
            _ if holder.is_reserved => sender.is_administrator(),
            Full::Account(_) => holder.sender == name,
            Full::Payer(_) => payer_of(&holder.sender) == payer_of(name),
            Full::All(_) => true,
        };
        let slow = state.holders.values().filter(is_in_the_way);
        let slow = slow.filter_map(|holder| Some((holder.slow_rate(now, self.patience.start)?, holder)));
        if let Some((_, holder)) = slow.min_by_key(|(rate, _)| *rate) {
            holder.gives_way.cancel();
        }
    }
}

fn no_room() -> ApiError {
    ApiError::busy(messages::too_many_bodies_at_once())
}

/// Room for one large body, or for its parsed form, released on drop.
#[derive(Debug)]
pub(in crate::api) struct Reservation {
    pool: Arc<Pool>,
    id: u64,
    pub(super) holder: Arc<Holder>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Holder { sender, bytes, is_reserved, .. } = &*self.holder;
        let state = &mut *self.pool.state.lock();
        state.holders.remove(&self.id);
        let held = if *is_reserved { &mut state.reserved } else { &mut state.used };
        held.remove(sender, *bytes);
        self.pool.changed.notify_waiters();
    }
}

struct Waiting<'a> {
    pool: &'a Pool,
    sender: &'a str,
}

impl<'a> Waiting<'a> {
    fn enter(pool: &'a Pool, sender: &'a BodySender) -> Result<Self, ApiError> {
        let Parts { waiting: mut shares, waiting_reserve, .. } = pool.parts;
        if sender.is_administrator() {
            shares = Shares::new(shares.total + waiting_reserve, shares.of_payer + waiting_reserve);
        }
        let mut state = pool.state.lock();
        if state.waiting.full(sender.name(), 1, shares).is_some() {
            return Err(no_room());
        }
        state.waiting.add(sender.name(), 1);
        Ok(Self { pool, sender: sender.name() })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.pool.state.lock().waiting.remove(self.sender, 1);
    }
}
