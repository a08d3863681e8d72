//! Connections of HTTP clients: how many, from whom, and which give way.
//!
//! Promised: no more than [`ConnectionLimits`] are open; when a new one comes beyond that, the one that
//! gives way is, in this order, a connection on which nobody was authenticated and that is idle, then one
//! that is slow to send its request, then one that is idle after authenticated calls, then one on which nothing
//! moves while its peer should send a body or take an answer; the longest quiet first. A connection never gives way while a
//! handler is at work for somebody known. A head that does not come whole,
//! an idle connection and a peer that does not read are closed after a while whether there is room or not.
//! Absent: limits on bodies (`bodies`) and on calls (`limits`).

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// From the first byte of a request until its head is there; from the accept, for the first one.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Between two requests of one connection. Longer than the clients' own limits, so that mostly they close.
const IDLE_MAX: Duration = Duration::from_secs(100);
/// A peer that takes nothing of its answer for this long is gone.
const WRITE_STALL_MAX: Duration = Duration::from_secs(30);
/// Whoever sent something this short a while ago is not slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// How many connections may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub total: u32,
    /// Of one address. Many clients may stand behind one proxy, so by default this is most of the total.
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
    started: Instant,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    next: AtomicU64,
}

/// One connection, seen by the loop that accepts, the socket and the calls on it. Times are in milliseconds
/// since the server's start; 0 is never.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    peer: IpAddr,
    /// The clock of [`Connections`].
    started: Instant,
    /// Cancelled when it has to go.
    pub(super) gives_way: CancellationToken,
    in_flight: AtomicU32,
    /// Those of them that a handler is at work on: their body is there, their answer is not.
    in_handler: AtomicU32,
    is_known: AtomicBool,
    is_http2: AtomicBool,
    /// Since when a head is expected or coming; none while a call is under way or nothing has come.
    head_since: AtomicU64,
    last_progress: AtomicU64,
    /// The end of the last call.
    idle_since: AtomicU64,
    write_blocked_since: AtomicU64,
}

/// Which connection gives way first: the smallest.
type Rank = (u8, u64);

impl Connection {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// A call on it has proved who sends it.
    pub(super) fn is_of_somebody_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    fn rank(&self, now: u64) -> Option<Rank> {
        let is_busy = self.in_flight.load(Ordering::Relaxed) > 0;
        let last_progress = self.last_progress.load(Ordering::Relaxed);
        let is_slow = now.saturating_sub(last_progress) >= millis(SLOW_AFTER);
        match (self.is_known.load(Ordering::Relaxed), is_busy) {
            (false, false) => Some((0, last_progress)),
            (false, true) => is_slow.then_some((1, last_progress)),
            (true, false) => Some((2, last_progress)),
            (true, true) if self.in_handler.load(Ordering::Relaxed) > 0 => None,
            (true, true) => is_slow.then_some((3, last_progress)),
        }
    }

    fn is_overdue(&self, now: u64) -> bool {
        let since = |time: &AtomicU64, max: Duration| {
            let time = time.load(Ordering::Relaxed);
            time != 0 && now.saturating_sub(time) > millis(max)
        };
        if since(&self.write_blocked_since, WRITE_STALL_MAX) {
            return true;
        }
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            // A window of zero blocks an answer of HTTP/2 without a write that blocks.
            let is_answering = self.in_handler.load(Ordering::Relaxed) == 0;
            return is_answering && since(&self.last_progress, WRITE_STALL_MAX);
        }
        // Of HTTP/2 there are frames besides heads.
        let has_slow_head = !self.is_http2.load(Ordering::Relaxed) && since(&self.head_since, HEAD_TIME_MAX);
        has_slow_head || since(&self.idle_since, IDLE_MAX)
    }

    pub(super) fn begin_call(self: &Arc<Self>, is_http2: bool) -> InFlight {
        self.in_handler.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.is_http2.store(is_http2, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        InFlight { connection: self.clone(), is_answered: false }
    }

    /// Until the guard is dropped it is the peer who is waited for: the body of a call is being read.
    pub(super) fn reads_body(self: &Arc<Self>) -> ReadingBody {
        self.in_handler.fetch_sub(1, Ordering::Relaxed);
        ReadingBody(self.clone())
    }

    /// Nobody waits for anything on it.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0
    }

    fn has_read(&self, bytes: usize) {
        let now = self.now();
        self.last_progress.store(now, Ordering::Relaxed);
        if bytes > 0 && self.in_flight.load(Ordering::Relaxed) == 0 {
            let _ = self.head_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn has_written(&self, is_blocked: bool) {
        if !is_blocked {
            self.last_progress.store(self.now(), Ordering::Relaxed);
            self.write_blocked_since.store(0, Ordering::Relaxed);
        } else {
            let since = &self.write_blocked_since;
            let _ = since.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
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
    is_answered: bool,
}

/// The body of a call that is being read.
#[derive(Debug)]
pub(super) struct ReadingBody(Arc<Connection>);

impl Drop for ReadingBody {
    fn drop(&mut self) {
        self.0.in_handler.fetch_add(1, Ordering::Relaxed);
    }
}

impl InFlight {
    /// The handler is done; from now on it is the peer who is waited for.
    pub(super) fn answers(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.connection.last_progress.store(self.connection.now(), Ordering::Relaxed);
            self.connection.in_handler.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.answers();
        self.connection.idle_since.store(self.connection.now(), Ordering::Relaxed);
        self.connection.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Self::started_at(limits, Instant::now())
    }

    fn started_at(limits: ConnectionLimits, started: Instant) -> Arc<Self> {
        Arc::new(Self { limits, started, open: Mutex::default(), next: AtomicU64::new(1) })
    }

    /// None where the new connection is the one that has to go.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Admitted> {
        let mut open = self.open.lock();
        let of_peer = open.values().filter(|connection| connection.peer == peer).count();
        if of_peer >= self.limits.per_peer as usize {
            evict(&mut open, |connection| connection.peer == peer)?;
        }
        if open.len() >= self.limits.total as usize {
            evict(&mut open, |_| true)?;
        }
        let connection = Arc::new(Connection {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            peer,
            started: self.started,
            gives_way: CancellationToken::new(),
            in_flight: AtomicU32::new(0),
            in_handler: AtomicU32::new(0),
            is_known: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            head_since: AtomicU64::new(0),
            last_progress: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            write_blocked_since: AtomicU64::new(0),
        });
        let now = connection.now();
        connection.head_since.store(now, Ordering::Relaxed);
        connection.last_progress.store(now, Ordering::Relaxed);
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
    connections: Arc<Connections>,
    pub(super) connection: Arc<Connection>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.connection.id);
    }
}

/// A socket that tells its connection what happens on it.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) stream: TcpStream,
    pub(super) connection: Arc<Connection>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.connection.has_read(buffer.filled().len() - before);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.connection.has_written(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.connection.has_written(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The body of an answer, which keeps its call under way until it is written.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) body: Body,
    pub(super) _call: InFlight,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { total: 3, per_peer: 2 };

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn caps_leave_half_of_the_descriptors_to_agents() {
        assert_eq!(ConnectionLimits::of_descriptors(Some(1024)), ConnectionLimits { total: 448, per_peer: 336 });
        assert_eq!(ConnectionLimits::of_descriptors(Some(64)).total, 32);
        assert_eq!(ConnectionLimits::of_descriptors(None), ConnectionLimits { total: 8192, per_peer: 6144 });
    }

    #[test]
    fn idle_strangers_give_way_before_slow_ones_and_those_before_idle_callers() {
        let started = Instant::now().checked_sub(2 * SLOW_AFTER).unwrap();
        let connections = Connections::started_at(ConnectionLimits { total: 3, per_peer: 3 }, started);
        let [idle_caller, slow, idle] = [0; 3].map(|_| connections.admit(peer(1)).unwrap());
        idle_caller.connection.is_of_somebody_known();
        let _call = slow.connection.begin_call(false);
        slow.connection.last_progress.store(0, Ordering::Relaxed);
        let gone = || [&idle_caller, &slow, &idle].map(|admitted| admitted.connection.gives_way.is_cancelled());

        let first = connections.admit(peer(2)).unwrap();
        assert_eq!(gone(), [false, false, true]);
        let _busy = first.connection.begin_call(false);
        let second = connections.admit(peer(2)).unwrap();
        assert_eq!(gone(), [false, true, true]);
        let _busy_too = second.connection.begin_call(false);
        let third = connections.admit(peer(2)).unwrap();
        assert_eq!(gone(), [true, true, true]);
        drop(third);
    }

    #[test]
    fn work_for_somebody_known_never_gives_way() {
        let connections = Connections::new(LIMITS);
        let open: Vec<_> = [1, 1, 2].into_iter().map(|last| connections.admit(peer(last)).unwrap()).collect();
        let calls: Vec<_> = open.iter().map(|admitted| admitted.connection.begin_call(true)).collect();
        for admitted in &open {
            admitted.connection.is_of_somebody_known();
        }

        assert!(connections.admit(peer(3)).is_none());

        drop(calls);
        assert!(connections.admit(peer(3)).is_some());
    }

    #[test]
    fn an_answer_that_nobody_takes_gives_way_and_is_overdue() {
        let started = Instant::now().checked_sub(2 * SLOW_AFTER).unwrap();
        let connections = Connections::started_at(ConnectionLimits { total: 1, per_peer: 1 }, started);
        let admitted = connections.admit(peer(1)).unwrap();
        let connection = &admitted.connection;
        connection.is_of_somebody_known();
        let mut call = connection.begin_call(true);
        connection.last_progress.store(1, Ordering::Relaxed);
        assert!(connections.admit(peer(2)).is_none(), "its handler is at work");
        let body = connection.reads_body();
        assert!(connection.rank(connection.now()).is_some(), "its body comes slowly");
        drop(body);
        assert!(connection.rank(connection.now()).is_none());

        call.answers();

        assert!(!connection.is_overdue(connection.now()));
        assert!(connection.is_overdue(connection.now() + millis(WRITE_STALL_MAX) + 10));
        assert!(connections.admit(peer(2)).is_none(), "it has just begun to answer");
        connection.last_progress.store(1, Ordering::Relaxed);
        assert!(connections.admit(peer(2)).is_some());
        assert!(connection.gives_way.is_cancelled());
    }

    #[test]
    fn a_peer_beyond_its_share_loses_a_connection_of_its_own() {
        let connections = Connections::new(LIMITS);
        let other = connections.admit(peer(2)).unwrap();
        let own = [connections.admit(peer(1)).unwrap(), connections.admit(peer(1)).unwrap()];

        let _new = connections.admit(peer(1)).unwrap();

        assert!(!other.connection.gives_way.is_cancelled());
        assert!(own[0].connection.gives_way.is_cancelled());
    }

    #[test]
    fn half_heads_idle_connections_and_peers_that_do_not_read_are_overdue() {
        let connections = Connections::new(LIMITS);
        let admitted = connections.admit(peer(1)).unwrap();
        let connection = &admitted.connection;
        let after = |duration: Duration| connection.now() + millis(duration) + 10;

        assert!(!connection.is_overdue(connection.now()));
        assert!(connection.is_overdue(after(HEAD_TIME_MAX)), "no head");
        let call = connection.begin_call(false);
        assert!(!connection.is_overdue(after(IDLE_MAX)), "at work");
        drop(call);
        assert!(!connection.is_overdue(after(HEAD_TIME_MAX)), "between two requests");
        assert!(connection.is_overdue(after(IDLE_MAX)));
        connection.has_read(1);
        assert!(connection.is_overdue(after(HEAD_TIME_MAX)), "half a second head");
        let _call = connection.begin_call(false);
        connection.has_written(true);
        assert!(connection.is_overdue(after(WRITE_STALL_MAX)), "does not read");
        connection.has_written(false);
        assert!(!connection.is_overdue(after(WRITE_STALL_MAX)));
    }
}
