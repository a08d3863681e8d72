//! Connections whose first record has not arrived yet: for TLS a whole ClientHello, for others a byte.
//!
//! Promised: however many there are, they keep nobody out who speaks: they hold no greetings, and if all their own
//! slots are taken, a new one is let in and the oldest of the address with the most is closed. So whoever speaks at
//! once is heard. There are many slots, because one costs little more than its descriptor, and a peer that is
//! closed may come back at once, which costs more. Known addresses have separate slots. Absent: who is known, and
//! what follows the first record (see the parent module).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Resource, getrlimit};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Slots of unknown addresses, and as many for known ones: a share of the descriptors.
const SLOTS_MAX: usize = 4096;
const SLOTS_MIN: usize = 64;
const OF_DESCRIPTORS: u64 = 8;

/// How long a peer has for its first record; an agent sends it at once.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// Enough for a ClientHello; of a longer record this much must have arrived.
const FIRST_WORD_MAX: usize = 4096;
const TLS_HANDSHAKE: u8 = 22;
const TLS_HEADER: usize = 5;

/// Those of the unknown, or of the known.
#[derive(Debug)]
pub(super) struct Silent {
    slots: Mutex<Slots>,
    max: usize,
}

#[derive(Debug, Default)]
struct Slots {
    open: BTreeMap<u64, (IpAddr, CancellationToken)>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
    next: u64,
}

impl Default for Silent {
    fn default() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let share = usize::try_from(descriptors / OF_DESCRIPTORS).unwrap_or(usize::MAX);
        Self::new(share.clamp(SLOTS_MIN, SLOTS_MAX))
    }
}

impl Silent {
    fn new(max: usize) -> Self {
        Self { slots: Mutex::default(), max }
    }

    pub(super) fn count_of(&self, address: IpAddr) -> usize {
        self.slots.lock().by_address.get(&address).map_or(0, BTreeSet::len)
    }

    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> SilentSlot {
        let mut slots = self.slots.lock();
        while slots.open.len() >= self.max {
            let Some(oldest) = slots.oldest_of_most() else { break };
            if let Some(gives_way) = slots.remove(oldest) {
                gives_way.cancel();
            }
        }
        let (id, gives_way) = (slots.next, CancellationToken::new());
        slots.next += 1;
        slots.open.insert(id, (address, gives_way.clone()));
        slots.by_address.entry(address).or_default().insert(id);
        SilentSlot { silent: self.clone(), id, gives_way }
    }
}

impl Slots {
    fn oldest_of_most(&self) -> Option<u64> {
        let most = self.by_address.values().max_by_key(|ids| (ids.len(), ids.first().map(Reverse)))?;
        most.first().copied()
    }

    fn remove(&mut self, id: u64) -> Option<CancellationToken> {
        let (address, gives_way) = self.open.remove(&id)?;
        if let Some(ids) = self.by_address.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_address.remove(&address);
            }
        }
        Some(gives_way)
    }
}

/// A connection that has sent nothing yet; dropped when it has, or is gone.
#[derive(Debug)]
pub struct SilentSlot {
    silent: Arc<Silent>,
    id: u64,
    pub(super) gives_way: CancellationToken,
}

impl SilentSlot {
    /// Whether the peer sends its first record before it has to give way or its time is up. The record is peeked
    /// at, not consumed: tokio considers a new connection readable before anything has arrived.
    pub async fn speaks(self, stream: &TcpStream) -> bool {
        tokio::select! {
            biased;
            spoke = tokio::time::timeout(SILENCE_LIMIT, first_word(stream)) => matches!(spoke, Ok(Ok(true))),
            () = self.gives_way.cancelled() => false,
        }
    }
}

/// False if the peer closes before its first record is complete: such a connection stays readable, and there is
/// nothing to wait for.
async fn first_word(stream: &TcpStream) -> io::Result<bool> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        match stream.try_io(Interest::READABLE, || peek_word(stream)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !ready.is_read_closed() => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            heard => return heard,
        }
    }
}

/// Whether there is anything; `WouldBlock` if the first record is incomplete.
fn peek_word(stream: &TcpStream) -> io::Result<bool> {
    let mut begin = [0; FIRST_WORD_MAX];
    let (count, _) = recv(stream, &mut begin, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
    match wanted_bytes(&begin[..count]) {
        wanted if count >= wanted => Ok(count > 0),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// The length of the first record, as far as its beginning tells.
fn wanted_bytes(begin: &[u8]) -> usize {
    match begin {
        [TLS_HANDSHAKE, _, _, high, low, ..] => {
            (TLS_HEADER + usize::from(u16::from_be_bytes([*high, *low]))).min(FIRST_WORD_MAX)
        }
        [TLS_HANDSHAKE, ..] => TLS_HEADER,
        _ => 0,
    }
}

impl Drop for SilentSlot {
    fn drop(&mut self) {
        self.silent.slots.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    const MAX: usize = 512;

    fn address(number: usize) -> IpAddr {
        let [.., high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    fn gone(slots: &[SilentSlot]) -> Vec<usize> {
        (0..).zip(slots).filter(|(_, slot)| slot.gives_way.is_cancelled()).map(|(index, _)| index).collect()
    }

    #[test]
    fn the_oldest_of_one_address_give_way_to_its_newest() {
        let silent = Arc::new(Silent::new(MAX));
        let flood: Vec<_> = (0..MAX + 10).map(|_| silent.enter(address(1))).collect();

        assert_eq!(gone(&flood), (0..10).collect::<Vec<_>>());
        assert_eq!(silent.count_of(address(1)), MAX);
    }

    #[test]
    fn the_address_that_has_most_gives_way_to_one_that_has_fewer() {
        let silent = Arc::new(Silent::new(MAX));
        let few: Vec<_> = (0..10).map(|_| silent.enter(address(2))).collect();
        let flood: Vec<_> = (0..MAX).map(|_| silent.enter(address(1))).collect();

        let newest: Vec<_> = (3..23).map(|number| silent.enter(address(number))).collect();

        assert!(gone(&few).is_empty() && gone(&newest).is_empty());
        assert_eq!(gone(&flood), (0..30).collect::<Vec<_>>());
    }

    #[test]
    fn where_all_have_one_the_oldest_gives_way() {
        let silent = Arc::new(Silent::new(MAX));
        let flood: Vec<_> = (0..MAX).map(|number| silent.enter(address(number))).collect();

        let _newest = silent.enter(address(MAX));

        assert_eq!(gone(&flood), [0]);
    }

    /// Two ends of a connection.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (peer, listener.accept().await.unwrap().0)
    }

    fn slot() -> SilentSlot {
        Arc::new(Silent::new(MAX)).enter(address(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_says_nothing_or_half_a_word_is_not_waited_for() {
        for word in [&[][..], &[TLS_HANDSHAKE], &[TLS_HANDSHAKE, 3, 1, 0, 3, 1, 0]] {
            let (mut peer, accepted) = connection().await;
            peer.write_all(word).await.unwrap();

            assert!(!slot().speaks(&accepted).await, "{word:?}");
        }
    }

    #[tokio::test]
    async fn a_word_that_comes_in_parts_is_heard_when_it_is_whole() {
        let (mut peer, accepted) = connection().await;
        let mut speaks = Box::pin(slot().speaks(&accepted));
        for byte in [TLS_HANDSHAKE, 3, 1, 0, 2, 1] {
            peer.write_all(&[byte]).await.unwrap();
            let polled = std::future::poll_fn(|context| Poll::Ready(speaks.as_mut().poll(context))).await;
            assert!(polled.is_pending());
        }

        peer.write_all(&[0]).await.unwrap();

        assert!(speaks.await);
    }

    #[tokio::test]
    async fn what_is_not_tls_and_what_is_longer_than_a_hello_is_heard_at_once() {
        let mut long = vec![0; FIRST_WORD_MAX];
        long[..TLS_HEADER].copy_from_slice(&[TLS_HANDSHAKE, 3, 1, 0x40, 0]);
        for word in [b"GET".to_vec(), long] {
            let (mut peer, accepted) = connection().await;
            peer.write_all(&word).await.unwrap();

            assert!(slot().speaks(&accepted).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_closes_before_its_word_is_whole_has_said_nothing() {
        for word in [&[][..], &[TLS_HANDSHAKE], &[TLS_HANDSHAKE, 3, 1, 0, 3, 1, 0]] {
            let (mut peer, accepted) = connection().await;
            peer.write_all(word).await.unwrap();
            drop(peer);
            let begun = tokio::time::Instant::now();

            assert!(!slot().speaks(&accepted).await, "{word:?}");
            assert!(begun.elapsed() < SILENCE_LIMIT, "{word:?}");
        }
    }

    #[test]
    fn nothing_is_kept_of_who_is_gone() {
        let silent = Arc::new(Silent::new(MAX));
        drop((0..2 * MAX).map(|number| silent.enter(address(number % 7))).collect::<Vec<_>>());

        let slots = silent.slots.lock();
        assert!(slots.open.is_empty() && slots.by_address.is_empty());
    }
}
