//! Connections that have not finished their handshake and greeting: how many, and which give way. Each listener has its
//! own.
//!
//! Promised: peers that say nothing, or stop in the middle, keep nobody off. When all greetings are
//! taken, one that has stalled gives way to a new one, and of two the one from an address that is not known.
//! Addresses are known by the sessions, hosts or authenticated calls that they have; each has a few greetings that nobody else
//! can take. Where nothing stalls, one that waits for its turn at the handshake gives way: of the address that has most
//! of them, the one that has waited longest. Where nobody waits for a turn, a new peer waits for a moment and is closed
//! then. Agents try again. Nobody gives way whose session is being opened: it is the store that is slow.
//! Absent: who a peer is; that is proved by its certificate, or by a call.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

/// Greetings at the same time of addresses that are not known, and of those that are.
const OF_UNKNOWN_MAX: usize = 512;
const OF_KNOWN_MAX: usize = 512;
/// Greetings of one known address that count as such: a host has one agent, which may come back before its old
/// connection is gone; agents behind one address share the greetings of the unknown beyond this.
const OF_KNOWN_ADDRESS_MAX: usize = 8;
/// A peer that has said nothing at all may be made to give way after this; an agent speaks first, at once.
const SILENT_AFTER: Duration = Duration::from_millis(250);
/// One that has spoken and not greeted yet, after this; an agent needs some milliseconds.
const STALLED_AFTER: Duration = Duration::from_secs(3);
/// Addresses that are remembered; those of the first are kept.
pub const KNOWN_ADDRESSES_MAX: usize = 200_000;
/// How long a new peer waits, and how often it looks meanwhile for one that has stalled.
const WAIT_MAX: Duration = Duration::from_millis(500);
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Peers that wait for a greeting; beyond it a new one is closed at once.
const WAITING_MAX: usize = 512;

#[derive(Debug)]
pub struct Handshakes {
    state: Mutex<State>,
    changed: Notify,
    waiting: Semaphore,
}

impl Default for Handshakes {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), waiting: Semaphore::new(WAITING_MAX) }
    }
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<u64, Arc<Greeting>>,
    known: HashSet<IpAddr>,
    next: u64,
}

/// Addresses that count as one peer: whoever has an IPv6 address mostly has the whole /64 around it.
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
    /// Milliseconds after `since` at which something was heard first; 0 is never.
    heard: AtomicU64,
    /// It has spoken, and it is we who have not begun.
    waits: AtomicBool,
    /// It has said all that it has to, and it is the store that has not answered.
    is_in_store: AtomicBool,
    pub gives_way: CancellationToken,
}

impl Greeting {
    /// The peer has said something.
    pub fn hears(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.heard.store(now, Ordering::Relaxed);
    }

    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Its address is one of those that are known, and it has a greeting of its own.
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

    /// Its session is being opened: until then it does not give way. For peers whose certificate was verified alone,
    /// and for few of them at the same time.
    pub fn enters_store(&self) {
        self.is_in_store.store(true, Ordering::Relaxed);
    }

    /// The store has answered.
    pub fn leaves_store(&self) {
        self.hears();
        self.is_in_store.store(false, Ordering::Relaxed);
    }

    /// For how long nothing has come, where that is longer than it should be.
    fn stalled(&self, now: Instant) -> Option<Duration> {
        let heard = self.heard.load(Ordering::Relaxed);
        let quiet = now.duration_since(self.since).saturating_sub(Duration::from_millis(heard));
        let limit = if heard == 0 { SILENT_AFTER } else { STALLED_AFTER };
        (quiet >= limit).then_some(quiet)
    }
}

impl Handshakes {
    /// Addresses from which agents come, or came.
    pub fn know(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let mut state = self.state.lock();
        for address in addresses {
            if state.known.len() < KNOWN_ADDRESSES_MAX {
                state.known.insert(address.to_canonical());
            }
        }
    }

    /// None where everything is taken by peers that do not stall.
    pub async fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Admitted> {
        let (peer, begun) = (peer.to_canonical(), Instant::now());
        loop {
            let changed = self.changed.notified();
            let admitted = self.try_admit(peer, Instant::now());
            if admitted.is_some() || begun.elapsed() >= WAIT_MAX {
                return admitted;
            }
            let _ = tokio::time::timeout(LOOK_PERIOD, changed).await;
        }
    }

    /// At once, or not at all.
    pub fn admit_now(self: &Arc<Self>, peer: IpAddr) -> Option<Admitted> {
        self.try_admit(peer.to_canonical(), Instant::now())
    }

    /// The right to wait in [`Self::admit`]; None where too many do.
    pub fn wait(&self) -> Option<SemaphorePermit<'_>> {
        self.waiting.try_acquire().ok()
    }

    fn try_admit(self: &Arc<Self>, peer: IpAddr, now: Instant) -> Option<Admitted> {
        let mut state = self.state.lock();
        let of_address = state.open.values().filter(|open| open.is_known && open.peer == peer).count();
        let count = |is_known: bool| state.open.values().filter(|open| open.is_known == is_known).count();
        let has_own = state.known.contains(&peer) && of_address < OF_KNOWN_ADDRESS_MAX;
        let is_known = has_own && count(true) < OF_KNOWN_MAX;
        if !is_known && count(false) >= OF_UNKNOWN_MAX {
            state.evict_stalled(now).or_else(|| state.evict_waiting())?;
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
    /// Of the address that has most of those that wait for their turn, the one that has waited longest: it is the
    /// likeliest to have given up.
    fn evict_waiting(&mut self) -> Option<()> {
        let waiting = self.open.iter().filter(|(_, open)| !open.is_known && open.waits.load(Ordering::Relaxed));
        let mut by_address: HashMap<IpAddr, (usize, Reverse<u64>)> = HashMap::new();
        for (id, open) in waiting {
            // The oldest comes first.
            by_address.entry(share_of(open.peer)).or_insert((0, Reverse(*id))).0 += 1;
        }
        let (_, Reverse(victim)) = by_address.into_values().max()?;
        self.open.remove(&victim)?.gives_way.cancel();
        Some(())
    }

    /// Those that are silent go first, then the longest stalled; only among the unknown, whose turn it is.
    fn evict_stalled(&mut self, now: Instant) -> Option<()> {
        let may_go = |open: &Greeting| !open.is_known && !open.is_in_store.load(Ordering::Relaxed);
        let unknown = self.open.iter().filter(|(_, open)| may_go(open));
        let stalled = unknown.filter_map(|(id, open)| {
            let quiet = open.stalled(now)?;
            Some(((open.heard.load(Ordering::Relaxed) == 0, quiet), *id))
        });
        let (_, victim) = stalled.max()?;
        self.open.remove(&victim)?.gives_way.cancel();
        Some(())
    }
}

/// A greeting that is under way; dropped at its end.
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
    use super::*;

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn filled(greetings: &Arc<Handshakes>, from: u8, at: Instant) -> Vec<Admitted> {
        std::iter::repeat_with(|| greetings.try_admit(peer(from), at)).take(OF_UNKNOWN_MAX).flatten().collect()
    }

    #[test]
    fn silent_peers_give_way_to_new_ones_after_a_moment() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        let silent = filled(&greetings, 1, now);

        assert!(greetings.try_admit(peer(2), now).is_none());
        let admitted = greetings.try_admit(peer(2), now + SILENT_AFTER);

        assert!(admitted.is_some());
        assert_eq!(silent.iter().filter(|silent| silent.greeting.gives_way.is_cancelled()).count(), 1);
    }

    #[test]
    fn a_peer_in_the_middle_of_its_handshake_gives_way_only_when_it_stalls() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        let speaking = filled(&greetings, 1, now);
        for admitted in &speaking {
            admitted.greeting.hears();
        }

        assert!(greetings.try_admit(peer(2), now + STALLED_AFTER / 2).is_none());
        assert!(greetings.try_admit(peer(2), now + 2 * STALLED_AFTER).is_some());
    }

    #[test]
    fn the_one_that_has_waited_longest_for_its_turn_gives_way_to_the_newest() {
        let (greetings, now) = (Arc::new(Handshakes::default()), Instant::now());
        let open = filled(&greetings, 1, now);
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
        let flood = filled(&greetings, 1, now);
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
        let open = filled(&greetings, 1, now);
        open.iter().for_each(|admitted| admitted.greeting.hears());
        open[0].greeting.enters_store();

        let later = now + 2 * STALLED_AFTER;
        let newer: Vec<_> = (1..open.len()).map(|_| greetings.try_admit(peer(2), later).unwrap()).collect();
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
        let silent = filled(&greetings, 1, now);

        let own: Vec<_> =
            std::iter::repeat_with(|| greetings.try_admit(peer(2), now)).take(OF_KNOWN_ADDRESS_MAX + 1).collect();

        assert_eq!(own.iter().flatten().count(), OF_KNOWN_ADDRESS_MAX);
        assert!(silent.iter().all(|silent| !silent.greeting.gives_way.is_cancelled()));
        drop(own);
        assert!(greetings.try_admit(peer(2), now).is_some(), "what is over is given back");
    }
}
