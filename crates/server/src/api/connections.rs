//! HTTP connections: how many, from whom, and which are evicted.
//!
//! Promised: no more than [`ConnectionLimits`] are open; beyond that, a new one evicts, in this order: an idle
//! connection without an authenticated call, one that is slow to send its request or to read a response, one that is
//! idle after authenticated calls, then a stalled one whose peer should send a body or read a response; the longest
//! idle first. Progress is measured in kilobytes of bodies: single bytes, and HTTP/2 frames other than calls, do not
//! count. A connection is never evicted while a handler works for an authenticated caller. Incomplete headers (even
//! of a pipelined request), idle connections and peers that do not read time out whether there is room or not.
//! Responses that their peers have not read are bounded (`untaken`).
//! Absent: limits on bodies (`bodies`) and on calls (`limits`).

mod carried;
mod framing;
mod untaken;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

pub(super) use proctor_runtime::share_of;

pub(super) use carried::{Answering, Asking, Watched};
use framing::Framing;
pub(super) use untaken::SharedAnswer;
use untaken::UNTAKEN_BYTES_MIN;

/// A connection that made progress this recently is not slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// Less than this of a body is not counted as movement.
const MOVED_BYTES_MIN: u64 = 1024;
/// Less than this in a second, on average since its calls began, is next to nothing. It counts after a while.
const RATE_MIN: u64 = 32 * 1024;
const RATE_AFTER: Duration = Duration::from_secs(2);
/// Evicted connections that may still finish a response; their descriptors are no longer counted.
const GOODBYES_MAX: usize = 64;

/// How long a peer is waited for.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// From the first byte of a request until its headers are complete; from the accept, for the first one.
    head: Duration,
    /// Between two requests of one connection. Longer than the clients' own limits, so that usually they close.
    idle: Duration,
    /// A peer that takes nothing of its answer for this long is gone.
    stall: Duration,
}

const PATIENCE: Patience =
    Patience { head: Duration::from_secs(10), idle: Duration::from_secs(100), stall: Duration::from_secs(30) };

/// How many connections may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub total: u32,
    /// Per address. Many clients may be behind one proxy, so by default this is most of the total.
    pub per_peer: u32,
}

impl ConnectionLimits {
    /// Descriptors that are left to the store, the log, webhooks and connections that are being closed.
    const RESERVED_DESCRIPTORS: u64 = 128;
    const TOTAL_MAX: u64 = 8192;
    const TOTAL_MIN: u64 = 32;

    /// Half of what may be open, so that agents have the other half.
    pub fn of_descriptors(limit: Option<u64>) -> Self {
        let half = limit.map_or(Self::TOTAL_MAX, |limit| limit.saturating_sub(Self::RESERVED_DESCRIPTORS) / 2);
        let total = half.clamp(Self::TOTAL_MIN, Self::TOTAL_MAX);
        Self::of_total(u32::try_from(total).expect("it is at most 8192"))
    }

    pub fn of_total(total: u32) -> Self {
        Self { total, per_peer: (total / 4 * 3).max(1) }
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::of_descriptors(Some(4096))
    }
}

/// The connections that are open.
#[derive(Debug)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    patience: Patience,
    started: Instant,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    goodbyes: Semaphore,
}

/// One connection, seen by the loop that accepts, the socket and the calls on it. Times are in milliseconds
/// since the server's start; 0 is never.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    /// As returned by [`share_of`].
    peer: IpAddr,
    patience: Patience,
    /// The clock of [`Connections`].
    started: Instant,
    /// Cancelled when it has to go.
    pub(super) gives_way: CancellationToken,
    in_flight: AtomicU32,
    /// Those that a handler is working on: their body has arrived, their response has not been sent, and they do not
    /// wait.
    in_handler: AtomicU32,
    /// Those whose response is waiting for their peer to read it, by number, since when.
    untaken: Mutex<BTreeMap<u64, u64>>,
    next_call: AtomicU64,
    is_known: AtomicBool,
    is_http2: AtomicBool,
    /// Since when headers are expected or arriving; none while a call is in progress or nothing has arrived.
    head_since: AtomicU64,
    last_progress: AtomicU64,
    /// Bytes of bodies since then.
    moved: AtomicU64,
    /// Since when calls have been in progress without a pause, and the bytes of bodies since.
    busy_since: AtomicU64,
    busy_moved: AtomicU64,
    /// Bytes of answers for its peer to take, without those that it shares.
    untaken_bytes: AtomicU64,
    /// Answers for its peer to take that others may hold, too, by the number of their call.
    shared: Mutex<BTreeMap<u64, SharedAnswer>>,
    /// The end of the last call, or of writing its response.
    idle_since: AtomicU64,
    write_blocked_since: AtomicU64,
    framing: Mutex<Framing>,
}

/// The eviction order: smallest first.
type Rank = (u8, u64);

impl Connection {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// A call on it was authenticated.
    pub(super) fn is_of_somebody_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    fn rank(&self, now: u64) -> Option<Rank> {
        let is_busy = self.in_flight.load(Ordering::Relaxed) > 0;
        let last_progress = self.last_progress.load(Ordering::Relaxed);
        let is_long = |since: u64| now.saturating_sub(since) >= millis(SLOW_AFTER);
        let is_slow = is_long(last_progress);
        match (self.is_known.load(Ordering::Relaxed), is_busy) {
            (false, false) => Some((0, last_progress)),
            // Answers to strangers are short: one of many calls that does not take its own is enough.
            (false, true) => {
                let is_untaken = self.untaken.lock().values().any(|since| is_long(*since));
                (is_slow || is_untaken || self.is_trickling(now)).then_some((1, last_progress))
            }
            (true, false) => Some((2, last_progress)),
            (true, true) if self.in_handler.load(Ordering::Relaxed) > 0 => None,
            (true, true) => (is_slow || self.is_trickling(now)).then_some((3, last_progress)),
        }
    }

    /// Something moves, but so little that the connection is only being held.
    fn is_trickling(&self, now: u64) -> bool {
        let age = now.saturating_sub(self.busy_since.load(Ordering::Relaxed));
        age >= millis(RATE_AFTER) && self.busy_moved.load(Ordering::Relaxed) * 1000 / age < RATE_MIN
    }

    fn is_overdue(&self, now: u64) -> bool {
        let since = |time: &AtomicU64, max: Duration| {
            let time = time.load(Ordering::Relaxed);
            time != 0 && now.saturating_sub(time) > millis(max)
        };
        let Patience { head, idle, stall } = self.patience;
        if since(&self.write_blocked_since, stall) {
            return true;
        }
        let in_flight = self.in_flight.load(Ordering::Relaxed) as usize;
        if in_flight > 0 {
            // A window of zero blocks an answer of HTTP/2 without a write that blocks.
            return self.untaken.lock().len() >= in_flight && since(&self.last_progress, stall);
        }
        // Of HTTP/2 there are frames besides heads.
        let has_slow_head = !self.is_http2() && since(&self.head_since, head);
        has_slow_head || since(&self.idle_since, idle)
    }

    fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    /// With a body of this length; None if unknown.
    pub(super) fn begin_call(self: &Arc<Self>, is_http2: bool, length: Option<u64>) -> InFlight {
        self.in_handler.fetch_add(1, Ordering::Relaxed);
        if self.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            self.busy_since.store(self.now(), Ordering::Relaxed);
            self.busy_moved.store(0, Ordering::Relaxed);
        }
        self.is_http2.store(is_http2, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        self.progresses();
        if !is_http2 {
            self.framing.lock().begin(length);
        }
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        InFlight { connection: self.clone(), number, is_answered: false, untaken_bytes: 0 }
    }

    /// Until the guard is dropped no handler works on the call: its body is being read, or it waits for something to
    /// happen.
    pub(super) fn mark_idle(self: &Arc<Self>) -> IdleGuard {
        self.in_handler.fetch_sub(1, Ordering::Relaxed);
        IdleGuard(self.clone())
    }

    /// There is no answer that could still be ended.
    pub(super) fn has_no_answer_under_way(&self) -> bool {
        let is_written = self.write_blocked_since.load(Ordering::Relaxed) == 0;
        is_written && self.in_handler.load(Ordering::Relaxed) == 0 && self.untaken.lock().is_empty()
    }

    fn progresses(&self) {
        self.moved.store(0, Ordering::Relaxed);
        self.last_progress.store(self.now(), Ordering::Relaxed);
    }

    /// So much of a body.
    fn moves(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.busy_moved.fetch_add(bytes, Ordering::Relaxed);
        if self.moved.fetch_add(bytes, Ordering::Relaxed) + bytes >= MOVED_BYTES_MIN {
            self.progresses();
        }
    }

    fn has_read(&self, bytes: &[u8]) {
        let is_in_call = self.in_flight.load(Ordering::Relaxed) > 0;
        if !self.is_http2() {
            self.framing.lock().read(bytes, is_in_call);
        }
        if is_in_call {
            return; // its body tells by itself
        }
        self.progresses();
        if !bytes.is_empty() {
            let _ = self.head_since.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Of the body of a request.
    fn has_sent(&self, bytes: usize) {
        self.moves(bytes);
    }

    /// What TLS has taken and not sent yet counts as not written.
    fn has_flushed(&self, is_flushed: bool) {
        if !is_flushed {
            return self.is_blocked();
        }
        self.write_blocked_since.store(0, Ordering::Relaxed);
    }

    fn is_blocked(&self) {
        let since = &self.write_blocked_since;
        let _ = since.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
    }

    fn has_written(&self, written: &Poll<io::Result<usize>>) {
        let Poll::Ready(written) = written else { return self.is_blocked() };
        self.write_blocked_since.store(0, Ordering::Relaxed);
        if self.is_http2() {
            return; // pings are answered, too: answers tell by themselves
        }
        self.moves(*written.as_ref().unwrap_or(&0));
        // The rest of a response is written after its call; until then the connection is not idle.
        let is_over = self.in_flight.load(Ordering::Relaxed) == 0 && self.idle_since.load(Ordering::Relaxed) != 0;
        if is_over {
            self.idle_since.store(self.now(), Ordering::Relaxed);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A call until its answer is written.
#[derive(Debug)]
pub(super) struct InFlight {
    connection: Arc<Connection>,
    number: u64,
    is_answered: bool,
    /// What is counted for its answer.
    untaken_bytes: u64,
}

/// A call that no handler works on.
#[derive(Debug)]
pub(super) struct IdleGuard(Arc<Connection>);

impl Drop for IdleGuard {
    fn drop(&mut self) {
        self.0.in_handler.fetch_add(1, Ordering::Relaxed);
    }
}

impl InFlight {
    /// The handler is done; from now on the peer is waited for.
    fn answers(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.hands_over(true);
            self.connection.in_handler.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// So much of the answer is in memory for the peer to take.
    fn holds(&mut self, bytes: u64) {
        let counted = if bytes < UNTAKEN_BYTES_MIN { 0 } else { bytes };
        let total = &self.connection.untaken_bytes;
        total.fetch_add(counted, Ordering::Relaxed);
        total.fetch_sub(self.untaken_bytes, Ordering::Relaxed);
        self.untaken_bytes = counted;
    }

    /// As [`Self::holds`], for a response whose text is shared, until all of it is read.
    fn shares(&self, answer: SharedAnswer) {
        if answer.bytes() >= UNTAKEN_BYTES_MIN {
            self.connection.shared.lock().insert(self.number, answer);
        }
    }

    /// This much of the response was sent. On HTTP/1 the socket reports it.
    fn hands_out(&self, bytes: usize) {
        if self.connection.is_http2() {
            self.connection.busy_moved.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// The peer has taken what there was; whether there is more for it to take, or it waits for us.
    fn hands_over(&self, is_more: bool) {
        let connection = &self.connection;
        connection.progresses();
        if is_more {
            connection.untaken.lock().insert(self.number, connection.now());
        } else {
            connection.untaken.lock().remove(&self.number);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.answers();
        self.holds(0);
        let connection = &self.connection;
        connection.untaken.lock().remove(&self.number);
        connection.shared.lock().remove(&self.number);
        connection.idle_since.store(connection.now(), Ordering::Relaxed);
        if !connection.is_http2() && connection.framing.lock().end() {
            connection.head_since.store(connection.now(), Ordering::Relaxed);
        }
        connection.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Self::with(limits, PATIENCE, Instant::now())
    }

    fn with(limits: ConnectionLimits, patience: Patience, started: Instant) -> Arc<Self> {
        let (open, next, goodbyes) = (Mutex::default(), AtomicU64::new(1), Semaphore::new(GOODBYES_MAX));
        Arc::new(Self { limits, patience, started, open, next, goodbyes })
    }

    pub(super) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// The right to end an answer after giving way; None where too many do.
    pub(super) fn say_goodbye(&self) -> Option<SemaphorePermit<'_>> {
        self.goodbyes.try_acquire().ok()
    }

    /// None where the new connection is the one that has to go.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Admitted> {
        self.admit_up_to(self.limits.per_peer, peer)
    }

    /// As [`Self::admit`], of a proxy whose connections are those of many.
    pub(super) fn admit_proxy(self: &Arc<Self>, peer: IpAddr) -> Option<Admitted> {
        self.admit_up_to(self.limits.total, peer)
    }

    fn admit_up_to(self: &Arc<Self>, per_peer: u32, peer: IpAddr) -> Option<Admitted> {
        let peer = share_of(peer);
        let mut open = self.open.lock();
        let of_peer = open.values().filter(|connection| connection.peer == peer).count();
        if of_peer >= per_peer as usize {
            evict(&mut open, |connection| connection.peer == peer)?;
        }
        if open.len() >= self.limits.total as usize {
            evict(&mut open, |_| true)?;
        }
        let connection = Arc::new(Connection {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            peer,
            patience: self.patience,
            started: self.started,
            gives_way: CancellationToken::new(),
            in_flight: AtomicU32::new(0),
            in_handler: AtomicU32::new(0),
            untaken: Mutex::default(),
            next_call: AtomicU64::new(0),
            is_known: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            head_since: AtomicU64::new(0),
            last_progress: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            busy_since: AtomicU64::new(0),
            busy_moved: AtomicU64::new(0),
            untaken_bytes: AtomicU64::new(0),
            shared: Mutex::default(),
            idle_since: AtomicU64::new(0),
            write_blocked_since: AtomicU64::new(0),
            framing: Mutex::default(),
        });
        connection.head_since.store(connection.now(), Ordering::Relaxed);
        connection.progresses();
        open.insert(connection.id, connection.clone());
        Some(Admitted { connections: self.clone(), connection })
    }

    /// Closes what takes too long, for as long as it is polled.
    pub(super) async fn close_overdue(self: Arc<Self>) {
        let mut period = tokio::time::interval(Duration::from_secs(1));
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            for connection in self.open.lock().values() {
                if connection.is_overdue(connection.now()) {
                    connection.gives_way.cancel();
                }
            }
        }
    }
}

fn evict(open: &mut BTreeMap<u64, Arc<Connection>>, may_go: impl Fn(&Connection) -> bool) -> Option<()> {
    let ranked = open.values().filter(|connection| may_go(connection));
    let ranked = ranked.filter_map(|connection| Some((connection.rank(connection.now())?, connection.id)));
    let (_, victim) = ranked.min()?;
    open.remove(&victim)?.gives_way.cancel();
    Some(())
}

/// An open connection; dropped when it is closed.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) connections: Arc<Connections>,
    pub(super) connection: Arc<Connection>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.connection.id);
    }
}

#[cfg(test)]
mod tests;
