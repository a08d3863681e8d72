//! Request bodies: how much of them is in memory at once, and which are evicted.
//!
//! Promised: a body is read completely, at most [`BODY_BYTES_MAX`] of it, within [`BODY_TIME_MAX`]. At most
//! [`STRANGERS_MAX`] bodies of unauthenticated senders and [`CALLERS_MAX`] of authenticated callers are read at once;
//! beyond that, one is evicted (`under_way`). A body larger than [`SMALL_BYTES`] must reserve room for its whole
//! length before more of it is read: from one pool for unauthenticated senders, of which one address gets a share, or
//! from another for authenticated callers, of which one app gets a share, whichever users it calls for, and one user
//! a share of that. A sender who waits too long for room is told to retry; a large body that arrives slowly is
//! evicted in favour of those waiting. The parsed form of a body has its own pool ([`Bodies::room_for_values`]), and
//! is held as long as the call. Administrators have a reserve beyond the callers' pools, so that their bodies are
//! read while all others hold everything.
//! Absent: the contents of the bodies.

mod room;
mod under_way;

use proctor_model::{Message, messages};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use futures::StreamExt;

use super::error::{ApiError, Problem};
use crate::control::Caller;
use crate::shares::Shares;
pub(super) use room::Reservation;
use room::{Parts, Pool};
use under_way::{Reading, UnderWay};

/// Room for tens of thousands of targets.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
pub(super) const BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// A body that is too large is read on this far, so that its sender gets to read the answer.
const DRAINED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;
/// Almost every call is smaller.
const SMALL_BYTES: usize = 64 * 1024;
/// For unauthenticated senders, and for one address among them, which may be a proxy. With [`SMALL_BYTES`] each, 64
/// MiB.
const STRANGERS_MAX: usize = 1024;
const STRANGERS_PER_PEER_MAX: usize = STRANGERS_MAX / 4 * 3;
/// For authenticated callers, for one app among them, and for one user it calls for. As much again.
const CALLERS_MAX: usize = 1024;
const CALLERS_OF_PAYER_MAX: usize = CALLERS_MAX / 2;
const CALLERS_EACH_MAX: usize = CALLERS_MAX / 4;
/// Large bodies of unauthenticated senders, and of one address among them: two of the largest.
const STRANGERS_BYTES: u64 = 192 * 1024 * 1024;
const STRANGERS_BYTES_PER_PEER: u64 = 128 * 1024 * 1024;
/// Large bodies of authenticated callers, of one app among them, and of one user it calls for: one of the largest and
/// half of another.
const CALLERS_BYTES: u64 = 256 * 1024 * 1024;
const CALLERS_BYTES_OF_PAYER: u64 = CALLERS_BYTES / 2;
const CALLERS_BYTES_EACH: u64 = CALLERS_BYTES_OF_PAYER / 4 * 3;
/// Large bodies that wait for room, of one address and of one app.
const STRANGERS_WAITING_MAX: u64 = room::WAITING_MAX / 4 * 3;
const CALLERS_WAITING_MAX: u64 = room::WAITING_MAX / 4;
/// The parsed form of bodies being parsed or processed, of one app, and of one user it calls for: the largest takes
/// as much, and leaves some of the app's share to others.
const VALUES_BYTES: u64 = 512 * 1024 * 1024;
const VALUES_BYTES_OF_PAYER: u64 = VALUES_BYTES / 16 * 11;
const VALUES_BYTES_EACH: u64 = VALUES_BYTES / 2;
/// For administrators, beyond those pools: the largest body, its parsed form, and so many that wait.
const RESERVE_BYTES: u64 = BODY_BYTES_MAX as u64;
const RESERVE_VALUES_BYTES: u64 = VALUES_BYTES_EACH;
const RESERVE_WAITING_MAX: u64 = CALLERS_WAITING_MAX;
/// A JSON value with its name, in its containing list; what a call builds from it afterwards is about as large.
const VALUE_BYTES: u64 = 64;

/// Whose body it is.
#[derive(Clone, Debug)]
pub(super) enum BodySender {
    /// By the address.
    Stranger(String),
    /// By app and user.
    Caller(String),
    /// As a caller, with a reserve.
    Administrator(String),
}

impl BodySender {
    pub(super) fn caller(caller: &Caller) -> Self {
        let account = caller.account();
        if caller.is_admin() { Self::Administrator(account) } else { Self::Caller(account) }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Stranger(name) | Self::Caller(name) | Self::Administrator(name) => name,
        }
    }

    fn is_administrator(&self) -> bool {
        matches!(self, Self::Administrator(_))
    }
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
    strangers: Arc<UnderWay>,
    callers: Arc<UnderWay>,
    of_strangers: Arc<Pool>,
    of_callers: Arc<Pool>,
    of_values: Arc<Pool>,
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
    room: Option<Reservation>,
}

impl ReadBody {
    /// To be held as long as something of the body is.
    pub(super) fn into_room(self) -> Option<Reservation> {
        self.room
    }
}

impl Bodies {
    fn with(patience: BodyTimeouts) -> Self {
        let of_strangers = Parts {
            room: Shares::new(STRANGERS_BYTES, STRANGERS_BYTES_PER_PEER),
            reserve: 0,
            waiting: Shares::new(room::WAITING_MAX, STRANGERS_WAITING_MAX),
            waiting_reserve: 0,
        };
        let waiting = Shares::new(room::WAITING_MAX, CALLERS_WAITING_MAX);
        let of_callers = Parts {
            room: Shares { each: CALLERS_BYTES_EACH, ..Shares::new(CALLERS_BYTES, CALLERS_BYTES_OF_PAYER) },
            reserve: RESERVE_BYTES,
            waiting,
            waiting_reserve: RESERVE_WAITING_MAX,
        };
        let of_values = Parts {
            room: Shares { each: VALUES_BYTES_EACH, ..Shares::new(VALUES_BYTES, VALUES_BYTES_OF_PAYER) },
            reserve: RESERVE_VALUES_BYTES,
            waiting,
            waiting_reserve: RESERVE_WAITING_MAX,
        };
        Self {
            patience,
            strangers: UnderWay::new(STRANGERS_MAX, STRANGERS_PER_PEER_MAX, STRANGERS_PER_PEER_MAX),
            callers: UnderWay::new(CALLERS_MAX, CALLERS_OF_PAYER_MAX, CALLERS_EACH_MAX),
            of_strangers: Pool::new(of_strangers, patience),
            of_callers: Pool::new(of_callers, patience),
            of_values: Pool::new(of_values, patience),
        }
    }

    /// Room for the parsed form of so many JSON values: a body of 8 MiB may become 100 MiB.
    pub(super) async fn room_for_values(&self, values: usize, sender: &BodySender) -> Result<Reservation, ApiError> {
        let room = self.of_values.take(sender, values as u64 * VALUE_BYTES).await?;
        room.holder.is_whole.store(1, Ordering::Relaxed);
        Ok(room)
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
            BodySender::Caller(name) | BodySender::Administrator(name) => self.callers.enter(name),
            BodySender::Stranger(address) => self.strangers.enter(address),
        };
        let gives_way = reading.gives_way.clone();
        tokio::select! {
            read = tokio::time::timeout(BODY_TIME_MAX, self.collect(bytes_max, body, sender, reading)) => {
                read.unwrap_or_else(|_| Err(took_longer()))
            }
            () = gives_way.cancelled() => Err(gave_way()),
        }
    }

    /// Reads and discards the rest, so that the sender gets to read an early response.
    pub(super) async fn discard(&self, body: Body, peer: &str) {
        let reading = self.strangers.enter(peer);
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
        reading: Reading,
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
                    BodySender::Caller(_) | BodySender::Administrator(_) => &self.of_callers,
                };
                room = Some(pool.take(sender, announced.unwrap_or(bytes_max) as u64).await?);
            }
            let chunk = next_chunk(&mut chunks, room.as_ref(), self.patience.stall).await?;
            let Some(chunk) = chunk else { break };
            reading.progress();
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
        Ok(ReadBody { bytes: whole.map(Whole::into_bytes).unwrap_or_default(), room })
    }
}

/// What has arrived so far; a body in one piece is not copied.
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
                // Room for the announced length was reserved before.
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
            Ok(next) => next.transpose().map_err(|error| incomplete(messages::because(error))),
            Err(_) => Err(incomplete(messages::nothing_came_for(stall.as_millis()))),
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

fn incomplete(problem: Message) -> ApiError {
    ApiError::new(Problem::MalformedBody, messages::body_is_incomplete(problem))
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
    async fn slow_bodies_of_one_sender_give_way_to_their_own_and_leave_others_alone() {
        for (all, each, sender) in [
            (&Bodies::default().strangers, STRANGERS_PER_PEER_MAX, "192.0.2.1"),
            (&Bodies::default().callers, CALLERS_EACH_MAX, "app"),
        ] {
            let slow: Vec<_> = (0..each).map(|_| all.enter(sender)).collect();
            let other = all.enter("other");

            let newest = all.enter(sender);

            assert_eq!(slow.iter().filter(|slow| slow.gives_way.is_cancelled()).count(), 1);
            assert!(!other.gives_way.is_cancelled() && !newest.gives_way.is_cancelled());
        }
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

    #[tokio::test(start_paused = true)]
    async fn an_app_takes_only_a_part_of_the_queue_for_room() {
        let bodies = Bodies::default();
        let parts = [("a", 96), ("b", 96), ("c", 64)];
        let _held = parts.map(|(name, mebibytes)| bodies.of_callers.try_take(name, mebibytes * MIB as u64).unwrap());
        let waits = |user: String| {
            let (pool, sender) = (&bodies.of_callers, BodySender::Caller(format!("app\0{user}")));
            Box::pin(async move { pool.take(&sender, 2 * MIB as u64).await.map(drop) })
        };
        let mut queue: Vec<_> = (0..CALLERS_WAITING_MAX).map(|user| waits(user.to_string())).collect();
        for waiting in &mut queue {
            assert!(futures::poll!(waiting).is_pending());
        }

        let one_more = futures::poll!(waits("one-more".to_owned()));
        let sender = BodySender::Caller("free\0ana".to_owned());
        let of_other = futures::poll!(Box::pin(bodies.of_callers.take(&sender, 2 * MIB as u64)));

        assert!(one_more.is_ready(), "it is told to come again at once");
        assert!(of_other.is_pending(), "others may wait, too");
        drop(queue);
        let state = bodies.of_callers.state.lock();
        assert!(state.waiting.is_empty());
    }

    #[tokio::test]
    async fn an_app_that_names_many_users_leaves_room_for_the_bodies_of_other_apps() {
        let bodies = Bodies::default();
        let largest = BODY_BYTES_MAX as u64;
        for (pool, bytes) in [(&bodies.of_callers, largest), (&bodies.of_values, 2 * largest)] {
            let take = |sender: &str| pool.try_take(sender, bytes);
            let held: Vec<_> = (0..8).filter_map(|user| take(&format!("app\0user{user}"))).collect();

            assert_eq!(held.len(), 2, "one part for the app, whichever users it names");
            let others = [take("other\0ana"), take("\0ana")];
            assert!(others.iter().all(Option::is_some));
            drop((held, others));
            assert!(pool.state.lock().used.is_empty());
        }
        let take = |sender: &str| bodies.of_callers.try_take(sender, largest);
        let own = take("app\0ana").unwrap();
        assert!(take("app\0ana").is_none() && take("app\0bob").is_some(), "one user leaves some to others of the app");
        drop(own);
        let values = |sender: &str, values: u64| bodies.of_values.try_take(sender, values * VALUE_BYTES);
        let _largest = values("app\0ana", 4_000_000).expect("the largest body of one user has room");
        assert!(values("app\0ana", 1_000_000).is_none() && values("app\0bob", 1_000_000).is_some());
        let of_app: Vec<_> = (0..CALLERS_MAX).map(|number| bodies.callers.enter(&format!("app\0{number}"))).collect();
        assert_eq!(of_app.iter().filter(|body| !body.gives_way.is_cancelled()).count(), CALLERS_OF_PAYER_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_body_of_an_administrator_is_read_while_others_hold_everything() {
        let bodies = Bodies::default();
        let (apps, largest) = (["a", "b", "c", "d", "e", "f"], BODY_BYTES_MAX as u64);
        let hold = |pool: &Arc<Pool>, piece: u64| -> Vec<Reservation> {
            let all =
                |app: &&str| std::iter::from_fn(|| pool.try_take(&format!("{app}\0{app}"), piece)).collect::<Vec<_>>();
            let held: Vec<_> = apps.iter().flat_map(all).collect();
            held.iter().for_each(|room| room.holder.is_whole.store(1, Ordering::Relaxed));
            held
        };
        let _held = [hold(&bodies.of_callers, MIB as u64), hold(&bodies.of_values, MIB as u64)];
        let waits = |number: u64| {
            let (pool, sender) = (&bodies.of_callers, BodySender::Caller(format!("app{}\0", number % 8)));
            Box::pin(async move { pool.take(&sender, largest).await.map(drop) })
        };
        let mut queue: Vec<_> = (0..room::WAITING_MAX).map(waits).collect();
        for waiting in &mut queue {
            assert!(futures::poll!(waiting).is_pending());
        }
        let largest_body = || Body::from(vec![b' '; BODY_BYTES_MAX]);
        let [boss, chief] = ["a\0boss", "a\0chief"].map(|name| BodySender::Administrator(name.to_owned()));

        let read = bodies.read(largest_body(), &boss).await;
        let values = bodies.room_for_values(4_000_000, &boss).await;

        let refused = bodies.read(largest_body(), &BodySender::Caller("a\0boss".to_owned())).await;
        assert!(read.is_ok() && values.is_ok() && refused.is_err());
        let mut next = Box::pin(bodies.read(largest_body(), &chief));
        assert!(futures::poll!(&mut next).is_pending(), "the reserve is bounded, and who waits for it keeps its turn");
        drop(read);
        assert!(next.await.is_ok());
        drop((queue, values));
        let state = bodies.of_callers.state.lock();
        assert!(state.reserved.is_empty() && state.waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_gives_way_only_where_that_makes_room() {
        let bodies = Bodies::with(BodyTimeouts { start: Duration::ZERO, ..PATIENCE });
        let mib = MIB as u64;
        let slow_of_other = bodies.of_callers.try_take("other\0ana", mib).unwrap();
        let whole = [bodies.of_callers.try_take("app\0a", 64 * mib), bodies.of_callers.try_take("app\0b", 64 * mib)];
        for room in whole.iter().flatten() {
            room.holder.is_whole.store(1, Ordering::Relaxed);
        }

        let refused = bodies.of_callers.take(&BodySender::Caller("app\0c".to_owned()), mib).await;

        assert!(refused.is_err(), "the part of the app is used up");
        assert!(!slow_of_other.holder.gives_way.is_cancelled());
    }

    #[tokio::test]
    async fn what_is_announced_as_too_large_takes_no_memory() {
        let bodies = Bodies::default();

        let error = bodies.read(Body::from(vec![b' '; BODY_BYTES_MAX + 1]), &stranger("a")).await.unwrap_err();

        assert_eq!(error.problem, Problem::BodyTooLarge);
        assert!(bodies.of_strangers.state.lock().used.is_empty());
    }
}
