//! Connections that have not finished their handshake and greeting: how many there may be, and which give way. Each
//! listener has its own.
//!
//! Promised: peers that say nothing, or stop in the middle, keep nobody out. A peer that has not sent its first
//! record holds no greeting (see `silent`). When all greetings are taken, a stalled one gives way to a new one,
//! preferably one from an unknown address. Addresses are known by their sessions, hosts or authenticated calls;
//! each has a few greetings that nobody else can take. An unknown address (IPv6: one /64) gets most of the rest at
//! most; beyond that, its own give way. If nothing stalls, a peer that waits for its turn at the handshake gives
//! way: of the address with most of them, the one that has waited longest. If nobody waits for a turn, the oldest
//! of the address with the most gives way to one with fewer. If all have the same number, a new peer waits for a
//! moment and is then closed. Agents retry. A peer whose session is being opened never gives way: then the store is
//! slow.
//! Absent: who a peer is; that is proved by its certificate, or by a call.

mod silent;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use silent::Silent;
pub use silent::SilentSlot;

/// Concurrent greetings of unknown addresses, and of known ones.
const OF_UNKNOWN_MAX: usize = 512;
const OF_KNOWN_MAX: usize = 512;
/// Those of one unknown address, behind which there may be many hosts.
const OF_UNKNOWN_ADDRESS_MAX: usize = OF_UNKNOWN_MAX / 4 * 3;
/// Greetings reserved for one known address: a host has one agent, which may come back before its old connection is
/// gone; agents behind a shared address use the greetings of the unknown beyond this.
const OF_KNOWN_ADDRESS_MAX: usize = 8;
/// One that has sent something but not greeted yet may have to give way after this; an agent needs some
/// milliseconds.
const STALLED_AFTER: Duration = Duration::from_secs(3);
/// Known addresses that are remembered; the first ones are kept.
pub const KNOWN_ADDRESSES_MAX: usize = 200_000;
/// How long a new peer waits for a greeting, and how often it looks meanwhile for one that has stalled.
pub const SLOT_WAIT_MAX: Duration = Duration::from_millis(500);
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Peers that wait for a greeting; beyond this, a new one is closed at once.
const WAITING_MAX: usize = 256;

#[derive(Debug)]
pub struct Handshakes {
    state: Mutex<State>,
    changed: Notify,
    waiting: Semaphore,
    silent_unknown: Arc<Silent>,
    silent_known: Arc<Silent>,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            waiting: Semaphore::new(WAITING_MAX),
            silent_unknown: Arc::default(),
            silent_known: Arc::default(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<u64, Arc<Greeting>>,
    known: HashSet<IpAddr>,
    next: u64,
}

/// Addresses that count as one peer: whoever has an IPv6 address usually has the whole /64.
pub fn share_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// One peer that has not greeted yet.
#[derive(Debug)]
pub struct Greeting {
    peer: IpAddr,
    is_known: bool,
    since: Instant,
    /// Milliseconds after `since` at which it was last heard.
    heard: AtomicU64,
    /// It has sent its part, and we have not begun.
    waits: AtomicBool,
    /// It has sent everything, and the store has not answered.
    is_in_store: AtomicBool,
    pub gives_way: CancellationToken,
}

impl Greeting {
    /// It makes progress: the next step is timed from now.
    fn hears(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(now, Ordering::Relaxed);
    }

    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Its address is known, and it has a reserved greeting.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// It waits for its turn: until then it may give way to newer ones.
    pub fn waits(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    /// Its handshake begins.
    pub fn begins(&self) {
        self.hears();
        self.waits.store(false, Ordering::Relaxed);
    }

    /// Its session is being opened: until that is done it does not give way. Only for peers with a verified
    /// certificate, and only a few at a time.
    pub fn enters_store(&self) {
        self.is_in_store.store(true, Ordering::Relaxed);
    }

    /// The store has answered.
    pub fn leaves_store(&self) {
        self.hears();
        self.is_in_store.store(false, Ordering::Relaxed);
    }

    /// How long nothing has arrived, if that is longer than it should be.
    fn stalled(&self, now: Instant) -> Option<Duration> {
        let heard = self.heard.load(Ordering::Relaxed);
        let quiet = now.duration_since(self.since).saturating_sub(Duration::from_millis(heard));
        (quiet >= STALLED_AFTER).then_some(quiet)
    }
}

impl Handshakes {
    /// Addresses that agents connect, or connected, from.
    pub fn know(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let mut state = self.state.lock();
        for address in addresses {
            if state.known.len() < KNOWN_ADDRESSES_MAX {
                state.known.insert(address.to_canonical());
            }
        }
    }

    /// A peer that was just accepted and has sent nothing yet.
    pub fn enter(&self, peer: IpAddr) -> SilentSlot {
        let peer = peer.to_canonical();
        let is_known =
            self.state.lock().known.contains(&peer) && self.silent_known.count_of(peer) < OF_KNOWN_ADDRESS_MAX;
        if is_known { self.silent_known.enter(peer) } else { self.silent_unknown.enter(share_of(peer)) }
    }

    /// A greeting for a peer that has sent something. None if all are taken by peers that do not stall.
    pub async fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Admitted> {
        let (peer, begun) = (peer.to_canonical(), Instant::now());
        let at_once = self.try_admit(peer, begun);
        if at_once.is_some() {
            return at_once;
        }
        let _waiting = self.waiting.try_acquire().ok()?;
        loop {
            let changed = self.changed.notified();
            let admitted = self.try_admit(peer, Instant::now());
            if admitted.is_some() || begun.elapsed() >= SLOT_WAIT_MAX {
                return admitted;
            }
            let _ = tokio::time::timeout(LOOK_PERIOD, changed).await;
        }
    }

    fn try_admit(self: &Arc<Self>, peer: IpAddr, now: Instant) -> Option<Admitted> {
        let mut state = self.state.lock();
        let is_own = |open: &Greeting| open.is_known && open.peer == peer;
        let has_own = state.count(is_own) < OF_KNOWN_ADDRESS_MAX && state.count(|open| open.is_known) < OF_KNOWN_MAX;
        let is_known = state.known.contains(&peer) && (has_own || state.evict_stalled(now, is_own).is_some());
        if !is_known {
            let share = share_of(peer);
            if state.of_unknown(share) >= OF_UNKNOWN_ADDRESS_MAX {
                let is_own = |open: &Greeting| !open.is_known && share_of(open.peer) == share;
                state.evict_stalled(now, is_own).or_else(|| state.evict_waiting(is_own))?;
            } else if state.count(|open| !open.is_known) >= OF_UNKNOWN_MAX {
                let stalled = state.evict_stalled(now, |open| !open.is_known);
                stalled.or_else(|| state.evict_waiting(|_| true)).or_else(|| state.evict_of_most(share))?;
            }
        }
        let greeting = Arc::new(Greeting {
            peer,
            is_known,
            since: now,
            heard: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            is_in_store: AtomicBool::new(false),
            gives_way: CancellationToken::new(),
        });
        let id = state.next;
        state.next += 1;
        state.open.insert(id, greeting.clone());
        Some(Admitted { greetings: self.clone(), id, greeting })
    }
}

impl State {
    fn count(&self, counts: impl Fn(&Greeting) -> bool) -> usize {
        self.open.values().filter(|open| counts(open)).count()
    }

    /// Of one unknown address.
    fn of_unknown(&self, share: IpAddr) -> usize {
        self.count(|open| !open.is_known && share_of(open.peer) == share)
    }

    /// Of the address with most waiting peers, the one that has waited longest: the likeliest to have given up.
    fn evict_waiting(&mut self, may_go: impl Fn(&Greeting) -> bool) -> Option<()> {
        let (_, oldest) = self.most(|open| open.waits.load(Ordering::Relaxed) && may_go(open))?;
        self.evict(oldest)
    }

    /// The oldest of the address with the most, if that is more than this one will have.
    fn evict_of_most(&mut self, share: IpAddr) -> Option<()> {
        let (count, oldest) = self.most(|open| !open.is_in_store.load(Ordering::Relaxed))?;
        if count <= self.of_unknown(share) + 1 {
            return None;
        }
        self.evict(oldest)
    }

    /// How many the unknown address with the most has, of those that count, and its oldest.
    fn most(&self, counts: impl Fn(&Greeting) -> bool) -> Option<(usize, u64)> {
        let mut by_address: HashMap<IpAddr, (usize, Reverse<u64>)> = HashMap::new();
        for (id, open) in self.open.iter().filter(|(_, open)| !open.is_known && counts(open)) {
            // The oldest comes first.
            by_address.entry(share_of(open.peer)).or_insert((0, Reverse(*id))).0 += 1;
        }
        by_address.into_values().max().map(|(count, Reverse(oldest))| (count, oldest))
    }

    /// The one that has stalled longest.
    fn evict_stalled(&mut self, now: Instant, may_go: impl Fn(&Greeting) -> bool) -> Option<()> {
        let may_go = |open: &Greeting| !open.is_in_store.load(Ordering::Relaxed) && may_go(open);
        let open = self.open.iter().filter(|(_, open)| may_go(open));
        let stalled = open.filter_map(|(id, open)| Some((open.stalled(now)?, *id)));
        let (_, victim) = stalled.max()?;
        self.evict(victim)
    }

    fn evict(&mut self, victim: u64) -> Option<()> {
        self.open.remove(&victim)?.gives_way.cancel();
        Some(())
    }
}

/// A greeting in progress; dropped at its end.
#[derive(Debug)]
pub struct Admitted {
    greetings: Arc<Handshakes>,
    id: u64,
    pub greeting: Arc<Greeting>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.greetings.state.lock().open.remove(&self.id);
        self.greetings.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn address(number: usize) -> IpAddr {
        let [.., high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    /// All greetings of the unknown, one for each address.
    fn filled(greetings: &Arc<Handshakes>, at: Instant) -> Vec<Admitted> {
        (0..OF_UNKNOWN_MAX).filter_map(|number| greetings.try_admit(address(number), at)).collect()
    }

    /// As many as these addresses get in turn, all of which have said something.
    fn flood(greetings: &Arc<Handshakes>, peers: &[IpAddr], at: Instant) -> Vec<Admitted> {
        let tried = peers.iter().cycle().take(2 * OF_UNKNOWN_MAX);
        let admitted: Vec<_> = tried.filter_map(|peer| greetings.try_admit(*peer, at)).collect();
        admitted.iter().for_each(|admitted| admitted.greeting.hears());
        admitted
    }

    fn gone(admitted: &[Admitted]) -> Vec<usize> {
        let gone = (0..).zip(admitted).filter(|(_, admitted)| admitted.greeting.gives_way.is_cancelled());
        gone.map(|(index, _)| index).collect()
    }

    #[test]
    fn handshakes_of_one_address_leave_some_to_others_however_quick_they_are() {
        for peers in [vec![peer(1)], vec!["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()]] {
            let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
            let flood = flood(&greetings, &peers, now);

            let others: Vec<_> =
                (0..OF_UNKNOWN_MAX / 4).map(|number| greetings.try_admit(address(number), now)).collect();

            assert_eq!(flood.len(), OF_UNKNOWN_ADDRESS_MAX);
            assert!(others.iter().all(Option::is_some) && gone(&flood).is_empty());
            let newest = greetings.try_admit(peers[0], now + 2 * STALLED_AFTER);
            assert_eq!((newest.is_some(), gone(&flood).len()), (true, 1), "its own give way to its own");
            assert!(others.iter().flatten().all(|other| !other.greeting.gives_way.is_cancelled()));
        }
    }

    #[test]
    fn where_all_are_taken_the_address_with_most_gives_way_to_those_with_fewer() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        let flood = flood(&greetings, &[peer(1), peer(2)], now);
        assert_eq!(flood.len(), OF_UNKNOWN_MAX);
        flood[0].greeting.enters_store();

        let newest: Vec<_> = (0..4).map(|number| greetings.try_admit(address(number), now)).collect();

        assert!(newest.iter().all(Option::is_some));
        assert_eq!(gone(&flood), [1, 2, 3, 4], "the oldest but the one whose session is being opened");
        assert!(greetings.try_admit(peer(1), now).is_none(), "the other one has no more than it");
    }

    #[tokio::test]
    async fn a_peer_that_speaks_is_heard_among_any_number_of_silent_ones_of_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (greetings, address) = (Handshakes::default(), listener.local_addr().unwrap());
        let silent: Vec<_> = (0..10_000).map(|_| greetings.enter(address.ip())).collect();
        let mut peer = TcpStream::connect(address).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();

        let slot = greetings.enter(address.ip());
        peer.write_all(b"x").await.unwrap();
        let later: Vec<_> = (0..10_000).map(|_| greetings.enter(address.ip())).collect();

        assert!(slot.speaks(&accepted).await);
        drop((silent, later));
    }

    #[test]
    fn silent_peers_of_known_addresses_are_apart_and_few() {
        let greetings = Handshakes::default();
        greetings.know([peer(2)]);
        let known: Vec<_> = (0..2 * OF_KNOWN_ADDRESS_MAX).map(|_| greetings.enter(peer(2))).collect();

        let flood: Vec<_> = (0..10_000).map(|number| greetings.enter(address(number))).collect();

        let left = known.iter().filter(|slot| !slot.gives_way.is_cancelled()).count();
        assert_eq!(left, OF_KNOWN_ADDRESS_MAX);
        drop(flood);
    }

    #[test]
    fn a_peer_in_the_middle_of_its_handshake_gives_way_only_when_it_stalls() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        let speaking = filled(&greetings, now);
        for admitted in &speaking {
            admitted.greeting.hears();
        }

        assert!(greetings.try_admit(peer(2), now + STALLED_AFTER / 2).is_none());
        assert!(greetings.try_admit(peer(2), now + 2 * STALLED_AFTER).is_some());
    }

    #[test]
    fn the_one_that_has_waited_longest_for_its_turn_gives_way_to_the_newest() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        let open = filled(&greetings, now);
        for admitted in &open {
            admitted.greeting.hears();
        }
        assert!(greetings.try_admit(peer(2), now).is_none());
        open[1..].iter().for_each(|admitted| admitted.greeting.waits());
        open[1].greeting.begins();

        let newest = greetings.try_admit(peer(2), now);

        assert!(newest.is_some());
        let gone = open.iter().position(|admitted| admitted.greeting.gives_way.is_cancelled());
        assert_eq!(gone, Some(2), "the first two are at their handshake");
    }

    #[test]
    fn an_address_with_many_waiting_peers_gives_way_before_one_that_has_waited_longer() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        let oldest = greetings.try_admit(peer(2), now).unwrap();
        let flood = flood(&greetings, &[peer(1), peer(200)], now);
        flood.iter().chain([&oldest]).for_each(|admitted| {
            admitted.greeting.hears();
            admitted.greeting.waits();
        });

        let newest: Vec<_> = (3..13).map(|number| greetings.try_admit(peer(number), now).unwrap()).collect();

        assert!(newest.iter().chain([&oldest]).all(|admitted| !admitted.greeting.gives_way.is_cancelled()));
        let gone: Vec<_> = flood.iter().map(|admitted| admitted.greeting.gives_way.is_cancelled()).collect();
        assert_eq!(gone.iter().filter(|is_gone| **is_gone).count(), 10);
        assert!(gone[..10].iter().all(|is_gone| *is_gone), "those that have waited longest");
    }

    #[test]
    fn a_peer_whose_session_is_being_opened_does_not_give_way_however_slow_the_store_is() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        let open = filled(&greetings, now);
        open.iter().for_each(|admitted| admitted.greeting.hears());
        open[0].greeting.enters_store();

        let later = now + 2 * STALLED_AFTER;
        let newer: Vec<_> =
            (1..open.len()).map(|number| greetings.try_admit(address(1000 + number), later).unwrap()).collect();
        let too_many = greetings.try_admit(peer(2), later);

        assert_eq!((newer.len(), too_many.is_none()), (OF_UNKNOWN_MAX - 1, true));
        assert!(!open[0].greeting.gives_way.is_cancelled());
        newer.iter().for_each(|admitted| admitted.greeting.hears());
        open[0].greeting.leaves_store();
        assert!(greetings.try_admit(peer(2), later + 2 * STALLED_AFTER).is_some());
        assert!(open[0].greeting.gives_way.is_cancelled(), "now it is the peer that is slow");
    }

    #[test]
    fn a_known_address_has_greetings_of_its_own_and_only_a_few() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        greetings.know([peer(2)]);
        let silent = filled(&greetings, now);

        let own: Vec<_> =
            std::iter::repeat_with(|| greetings.try_admit(peer(2), now)).take(OF_KNOWN_ADDRESS_MAX + 1).collect();

        assert_eq!(own.iter().flatten().count(), OF_KNOWN_ADDRESS_MAX);
        assert!(silent.iter().all(|silent| !silent.greeting.gives_way.is_cancelled()));
        drop(own);
        assert!(greetings.try_admit(peer(2), now).is_some(), "what is over is given back");
    }

    #[test]
    fn stalled_greetings_of_a_known_address_give_way_to_its_newest() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        greetings.know([peer(2)]);
        let stalled: Vec<_> = (0..OF_KNOWN_ADDRESS_MAX).filter_map(|_| greetings.try_admit(peer(2), now)).collect();
        let _flood = filled(&greetings, now + STALLED_AFTER);

        let newest = greetings.try_admit(peer(2), now + STALLED_AFTER).expect("its own give way");

        assert!(newest.greeting.is_known());
        assert_eq!(gone(&stalled).len(), 1);
    }
}
