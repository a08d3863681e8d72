//! Request bodies: how much of them is in memory at once, and who gives way.
//!
//! Promised: a body is read whole, at most [`BODY_BYTES_MAX`] of it, and for at most [`BODY_TIME_MAX`].
//! Of senders who are not known yet, at most [`STRANGERS_MAX`] bodies are read at once; beyond that the one
//! that has been quiet for longest gives way. What is larger than [`SMALL_BYTES`] needs room for its whole
//! length before more of it is read: out of one pool for strangers, of which one address gets a
//! part, and out of another for callers who have proved who they are, of which one caller gets a part. Who
//! waits for room in vain is told to come again; a large body that arrives slowly gives way to who waits.
//! Absent: what the bodies hold.

use proctor_model::messages;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::{ApiError, Problem};

/// Room for tens of thousands of targets.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
pub(super) const BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// A body that is too large is read on this far, so that its sender gets to read the answer.
const DRAINED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;
/// Almost every call is smaller.
const SMALL_BYTES: usize = 64 * 1024;
/// With [`SMALL_BYTES`] each, 64 MiB.
const STRANGERS_MAX: usize = 1024;
/// Large bodies of senders who are not known yet, and of one address among them: two of the largest.
const STRANGERS_BYTES: u64 = 192 * 1024 * 1024;
const STRANGERS_BYTES_PER_PEER: u64 = 128 * 1024 * 1024;
/// Large bodies of callers who are known, and of one among them.
const CALLERS_BYTES: u64 = 256 * 1024 * 1024;
const CALLERS_BYTES_EACH: u64 = 128 * 1024 * 1024;
/// Large bodies that wait for room; each holds no more than [`SMALL_BYTES`] meanwhile.
const WAITING_MAX: usize = 64;
/// While others wait, a large body must come at this rate.
const RATE_MIN: u64 = 1024 * 1024;
/// How often those who wait look for one that is too slow.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Whose body it is.
#[derive(Clone, Debug)]
pub(super) enum BodySender {
    /// By the address.
    Stranger(String),
    /// By app and user.
    Caller(String),
}

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
struct BodyTimeouts {
    /// A sender that is silent for this long in the middle of a body is gone.
    stall: Duration,
    /// For room for a large body.
    room: Duration,
    /// A large body gets this long to get going.
    start: Duration,
}

const PATIENCE: BodyTimeouts =
    BodyTimeouts { stall: Duration::from_secs(10), room: Duration::from_secs(20), start: Duration::from_secs(3) };

/// All bodies that are being read or held.
#[derive(Debug)]
pub(super) struct Bodies {
    patience: BodyTimeouts,
    strangers: UnauthenticatedBodies,
    of_strangers: Arc<Pool>,
    of_callers: Arc<Pool>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self::with(PATIENCE)
    }
}

/// A whole body. Its room is given back when it is dropped.
#[derive(Debug)]
pub(super) struct ReadBody {
    pub(super) bytes: Bytes,
    _room: Option<Reservation>,
}

impl Bodies {
    fn with(patience: BodyTimeouts) -> Self {
        Self {
            patience,
            strangers: UnauthenticatedBodies::default(),
            of_strangers: Pool::new(STRANGERS_BYTES, STRANGERS_BYTES_PER_PEER, patience),
            of_callers: Pool::new(CALLERS_BYTES, CALLERS_BYTES_EACH, patience),
        }
    }

    pub(super) async fn read(&self, body: Body, sender: &BodySender) -> Result<ReadBody, ApiError> {
        self.read_at_most(BODY_BYTES_MAX, body, sender).await
    }

    /// As [`Self::read`], for a call whose bodies are smaller.
    pub(super) async fn read_at_most(
        &self,
        bytes_max: usize,
        body: Body,
        sender: &BodySender,
    ) -> Result<ReadBody, ApiError> {
        let reading = match sender {
            BodySender::Caller(_) => None,
            BodySender::Stranger(_) => Some(self.strangers.enter()),
        };
        let gives_way = reading.as_ref().map(|reading| reading.gives_way.clone()).unwrap_or_default();
        tokio::select! {
            read = tokio::time::timeout(BODY_TIME_MAX, self.collect(bytes_max, body, sender, reading)) => {
                read.unwrap_or_else(|_| Err(took_longer()))
            }
            () = gives_way.cancelled() => Err(gave_way()),
        }
    }

    /// Reads and forgets what is left, so that the sender gets to read an answer that came early.
    pub(super) async fn discard(&self, body: Body) {
        let reading = self.strangers.enter();
        let drained = drain(body.into_data_stream(), 0, self.patience.stall);
        tokio::select! {
            _ = tokio::time::timeout(self.patience.stall, drained) => {}
            () = reading.gives_way.cancelled() => {}
        }
    }

    async fn collect(
        &self,
        bytes_max: usize,
        body: Body,
        sender: &BodySender,
        reading: Option<Reading<'_>>,
    ) -> Result<ReadBody, ApiError> {
        let announced = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let mut chunks = body.into_data_stream();
        if announced.is_some_and(|length| length > bytes_max) {
            drain(chunks, 0, self.patience.stall).await?;
            return Err(too_large(bytes_max));
        }
        let mut room = None;
        let mut whole: Option<Whole> = None;
        loop {
            let read = whole.as_ref().map_or(0, Whole::len);
            if room.is_none() && read.max(announced.unwrap_or(0)) > SMALL_BYTES {
                let pool = match sender {
                    BodySender::Stranger(_) => &self.of_strangers,
                    BodySender::Caller(_) => &self.of_callers,
                };
                room = Some(pool.take(sender, announced.unwrap_or(bytes_max) as u64).await?);
            }
            let chunk = next_chunk(&mut chunks, room.as_ref(), self.patience.stall).await?;
            let Some(chunk) = chunk else { break };
            if let Some(reading) = &reading {
                reading.progress();
            }
            if let Some(room) = &room {
                room.holder.received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
            let read = read + chunk.len();
            if read > bytes_max {
                drop((whole, room));
                drain(chunks, read, self.patience.stall).await?;
                return Err(too_large(bytes_max));
            }
            whole = Some(Whole::joined(whole, chunk, announced));
        }
        if let Some(room) = &room {
            room.holder.is_whole.store(1, Ordering::Relaxed);
        }
        Ok(ReadBody { bytes: whole.map(Whole::into_bytes).unwrap_or_default(), _room: room })
    }
}

/// What has come so far; a body in one piece is not copied.
enum Whole {
    One(Bytes),
    Many(Vec<u8>),
}

impl Whole {
    fn len(&self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn joined(before: Option<Self>, chunk: Bytes, announced: Option<usize>) -> Self {
        match before {
            None => Self::One(chunk),
            Some(Self::One(first)) => {
                // Room for what is announced was taken before.
                let mut bytes = Vec::with_capacity(announced.unwrap_or(0).max(first.len() + chunk.len()));
                bytes.extend_from_slice(&first);
                bytes.extend_from_slice(&chunk);
                Self::Many(bytes)
            }
            Some(Self::Many(mut bytes)) => {
                bytes.extend_from_slice(&chunk);
                Self::Many(bytes)
            }
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.into(),
        }
    }
}

async fn next_chunk(
    chunks: &mut BodyDataStream,
    room: Option<&Reservation>,
    stall: Duration,
) -> Result<Option<Bytes>, ApiError> {
    let gives_way = room.map(|room| room.holder.gives_way.clone()).unwrap_or_default();
    tokio::select! {
        next = tokio::time::timeout(stall, chunks.next()) => match next {
            Ok(next) => next.transpose().map_err(|error| incomplete(&error.to_string())),
            Err(_) => Err(incomplete(&format!("nothing came for {} ms", stall.as_millis()))),
        },
        () = gives_way.cancelled() => Err(gave_way()),
    }
}

async fn drain(mut chunks: BodyDataStream, read: usize, stall: Duration) -> Result<(), ApiError> {
    let mut read = read;
    while let Some(chunk) = next_chunk(&mut chunks, None, stall).await? {
        read += chunk.len();
        if read > DRAINED_BYTES_MAX {
            break;
        }
    }
    Ok(())
}

fn took_longer() -> ApiError {
    ApiError::new(Problem::MalformedBody, messages::body_took_longer(BODY_TIME_MAX.as_secs()))
}

fn incomplete(why: &str) -> ApiError {
    ApiError::new(Problem::MalformedBody, format!("the body did not arrive whole: {why}"))
}

fn too_large(bytes_max: usize) -> ApiError {
    let limit = match bytes_max / (1024 * 1024) {
        0 => format!("{} KiB", bytes_max / 1024),
        mebibytes => format!("{mebibytes} MiB"),
    };
    ApiError::new(Problem::BodyTooLarge, messages::body_is_larger_than(limit))
}

fn gave_way() -> ApiError {
    ApiError::busy(messages::body_too_slow())
}

/// Bodies that are being read of senders who are not known yet.
#[derive(Debug, Default)]
struct UnauthenticatedBodies {
    reading: Mutex<BTreeMap<u64, Stranger>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Stranger {
    last_progress: Instant,
    gives_way: CancellationToken,
}

impl UnauthenticatedBodies {
    fn enter(&self) -> Reading<'_> {
        let (id, gives_way) = (self.next.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        let mut reading = self.reading.lock();
        if reading.len() >= STRANGERS_MAX {
            let quietest = reading.iter().min_by_key(|(_, stranger)| stranger.last_progress).map(|(id, _)| *id);
            if let Some(gone) = quietest.and_then(|id| reading.remove(&id)) {
                gone.gives_way.cancel();
            }
        }
        reading.insert(id, Stranger { last_progress: Instant::now(), gives_way: gives_way.clone() });
        Reading { strangers: self, id, gives_way }
    }
}

#[derive(Debug)]
struct Reading<'a> {
    strangers: &'a UnauthenticatedBodies,
    id: u64,
    gives_way: CancellationToken,
}

impl Reading<'_> {
    fn progress(&self) {
        if let Some(stranger) = self.strangers.reading.lock().get_mut(&self.id) {
            stranger.last_progress = Instant::now();
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.strangers.reading.lock().remove(&self.id);
    }
}

/// Room for large bodies.
#[derive(Debug)]
struct Pool {
    total: u64,
    each: u64,
    patience: BodyTimeouts,
    state: Mutex<PoolState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct PoolState {
    used: u64,
    by_sender: HashMap<String, u64>,
    holders: BTreeMap<u64, Arc<Holder>>,
    next: u64,
    waiting: usize,
}

#[derive(Debug)]
struct Holder {
    sender: String,
    bytes: u64,
    since: Instant,
    received: AtomicU64,
    /// 1 once nothing more is expected: then it is work, not a slow sender, that holds the room.
    is_whole: AtomicU64,
    gives_way: CancellationToken,
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
    fn new(total: u64, each: u64, patience: BodyTimeouts) -> Arc<Self> {
        Arc::new(Self { total, each, patience, state: Mutex::default(), changed: Notify::new() })
    }

    async fn take(self: &Arc<Self>, sender: &BodySender, bytes: u64) -> Result<Reservation, ApiError> {
        let (BodySender::Stranger(name) | BodySender::Caller(name)) = sender;
        let deadline = Instant::now() + self.patience.room;
        let mut waiting = None;
        loop {
            let changed = self.changed.notified();
            if let Some(room) = self.try_take(name, bytes) {
                return Ok(room);
            }
            if waiting.is_none() {
                waiting = Some(Waiting::enter(self)?);
            }
            self.make_room(name);
            if Instant::now() >= deadline {
                return Err(no_room());
            }
            let _ = tokio::time::timeout(LOOK_PERIOD, changed).await;
        }
    }

    fn try_take(self: &Arc<Self>, sender: &str, bytes: u64) -> Option<Reservation> {
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

/// Room for one large body, given back when it is dropped.
#[derive(Debug)]
struct Reservation {
    pool: Arc<Pool>,
    id: u64,
    holder: Arc<Holder>,
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

struct Waiting<'a>(&'a Pool);

impl<'a> Waiting<'a> {
    fn enter(pool: &'a Pool) -> Result<Self, ApiError> {
        let mut state = pool.state.lock();
        if state.waiting >= WAITING_MAX {
            return Err(no_room());
        }
        state.waiting += 1;
        Ok(Self(pool))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;
    const SHORT: BodyTimeouts =
        BodyTimeouts { stall: Duration::from_millis(20), room: Duration::from_millis(20), start: Duration::ZERO };

    fn stranger(name: &str) -> BodySender {
        BodySender::Stranger(name.to_owned())
    }

    /// Sends `first` and then nothing, for ever.
    fn half(first: usize) -> Body {
        let begin = futures::stream::once(async move { Ok::<_, std::io::Error>(Bytes::from(vec![b' '; first])) });
        Body::from_stream(begin.chain(futures::stream::pending()))
    }

    #[tokio::test]
    async fn a_sender_that_falls_silent_is_given_up_and_told_so() {
        let bodies = Bodies::with(SHORT);

        let error = bodies.read(half(10), &stranger("a")).await.unwrap_err();

        assert_eq!(error.message, "the body did not arrive whole: nothing came for 20 ms");
    }

    #[tokio::test]
    async fn beyond_the_cap_the_quietest_stranger_gives_way() {
        let bodies = Bodies::default();
        let quiet: Vec<_> = (0..STRANGERS_MAX).map(|_| bodies.strangers.enter()).collect();
        quiet[0].progress();

        let body = bodies.read(Body::from("{}"), &stranger("b")).await.unwrap();

        assert_eq!(body.bytes, "{}");
        assert!(quiet[1].gives_way.is_cancelled() && !quiet[0].gives_way.is_cancelled());
    }

    #[tokio::test]
    async fn one_address_leaves_room_for_the_large_bodies_of_others_and_of_callers() {
        let bodies = Bodies::default();
        let large = || Body::from(vec![b' '; 60 * MIB]);
        let held =
            [bodies.read(large(), &stranger("a")).await.unwrap(), bodies.read(large(), &stranger("a")).await.unwrap()];

        assert!(bodies.of_strangers.try_take("a", 60 * MIB as u64).is_none());
        assert!(bodies.read(large(), &stranger("b")).await.is_ok());
        assert!(bodies.read(large(), &BodySender::Caller("c".to_owned())).await.is_ok());
        drop(held);
        assert!(bodies.read(large(), &stranger("a")).await.is_ok());
    }

    #[tokio::test]
    async fn a_large_body_that_trickles_gives_way_to_one_that_waits() {
        let bodies = Bodies::with(BodyTimeouts { start: Duration::ZERO, ..PATIENCE });
        let trickle = |name: &str| {
            let pool = bodies.of_strangers.clone();
            let room = pool.try_take(name, 64 * MIB as u64).unwrap();
            room.holder.received.store(1000, Ordering::Relaxed);
            room
        };
        let rooms = [trickle("a"), trickle("a"), trickle("b")];
        let evicted = rooms.map(|room| async move {
            room.holder.gives_way.cancelled().await;
            drop(room);
        });

        let first_gone = futures::future::select_all(evicted.map(Box::pin));
        let sender = stranger("c");
        let (read, _) = tokio::join!(bodies.read(Body::from(vec![b' '; MIB]), &sender), first_gone);

        assert_eq!(read.unwrap().bytes.len(), MIB);
    }

    #[tokio::test]
    async fn a_large_body_that_finds_no_room_is_told_to_come_again() {
        let bodies = Bodies::with(SHORT);
        let held = bodies.of_callers.try_take("a", CALLERS_BYTES_EACH).unwrap();
        held.holder.is_whole.store(1, Ordering::Relaxed);

        let sender = BodySender::Caller("a".to_owned());
        let error = bodies.read(Body::from(vec![b' '; MIB]), &sender).await.unwrap_err();

        assert_eq!(error.problem, Problem::ConcurrencyLimited);
        assert!(error.message.starts_with("too many large bodies at once"), "{}", error.message);
    }

    #[tokio::test]
    async fn what_is_announced_as_too_large_takes_no_memory() {
        let bodies = Bodies::default();

        let error = bodies.read(Body::from(vec![b' '; BODY_BYTES_MAX + 1]), &stranger("a")).await.unwrap_err();

        assert_eq!(error.problem, Problem::BodyTooLarge);
        assert_eq!(bodies.of_strangers.state.lock().used, 0);
    }
}
