//! Who goes next, and when: the queue alone, without sockets or tasks.
//!
//! Promised: no more than [`CPU_SHARE`] of the CPUs is handed out, by the measured cost of hellos, with those of
//! peers and of agents behind relays measured separately. The newest peer goes first: the one that has waited longest
//! has most likely given up. Peers of known addresses and agents behind relays alternate, relay after relay, so that
//! however many agents one of them brings, it takes nobody else's turns; within one relay it is first come, first
//! served, because few of its agents wait here and the others at the relay. Both go before other peers, which still
//! get one turn in [`OTHERS_EVERY`]. Per address only a few in a while count as either; the rest go after everybody
//! else, with one turn in [`OTHERS_EVERY`] of the others', so that no address takes the turns of another.
//! Absent: how long a peer waits (see `admission`).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZero;
use std::ops::Bound;
use std::time::{Duration, Instant};

use proctor_model::RelayId;
use proctor_runtime::{KNOWN_ADDRESSES_MAX, share_of};

/// Of all processors.
const CPU_SHARE: f64 = 0.5;
/// What may be spent at once after a quiet time.
const BURST: Duration = Duration::from_millis(50);
/// The assumed cost of a hello before the first one was measured, and the bounds of plausible costs: time on a CPU
/// that others use looks like cost.
pub(super) const COST_FIRST: Duration = Duration::from_millis(1);
const COST_MIN: Duration = Duration::from_micros(50);
const COST_MAX: Duration = Duration::from_millis(20);
/// The newest measurement counts for one part in so many.
const COST_MEMORY: u32 = 16;
/// Greetings that began together may turn out to cost more than they were charged; whoever comes later does not wait for
/// more of it than this.
const DEBT_MAX: Duration = Duration::from_secs(1);
/// Where peers of more than one rank wait, so many turns bring one for those of the lower ranks.
const OTHERS_EVERY: u64 = 4;
/// Peers of one address that go before the crowd in a while. A host has one agent, which tries a few times at most.
const SHARE_MAX: usize = 8;
const SHARE_PERIOD: Duration = Duration::from_secs(10);
/// Addresses that are not known and counted in a while; the peers of further ones go with the crowd.
const OTHERS_MAX: usize = 16_384;

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// Of a known address that came seldom lately.
    Known,
    /// Behind a relay.
    Relayed,
    /// Of another one.
    Other,
    /// Of one that came often: a flood, or many agents behind one address.
    Crowd,
}

impl Rank {
    /// Who goes, in the turn with this number: the first of these that somebody waits in.
    fn order(turn: u64) -> [Self; 4] {
        let round = turn / OTHERS_EVERY;
        let (is_others, is_crowds) =
            ((turn + 1).is_multiple_of(OTHERS_EVERY), (round + 1).is_multiple_of(OTHERS_EVERY));
        // Of the turns that are not for others there is an odd number in a round.
        let is_relays = !(round + turn).is_multiple_of(2);
        let [first, second] = if is_relays { [Self::Relayed, Self::Known] } else { [Self::Known, Self::Relayed] };
        match (is_others, is_crowds) {
            (false, _) => [first, second, Self::Other, Self::Crowd],
            (true, false) => [Self::Other, Self::Crowd, first, second],
            (true, true) => [Self::Crowd, Self::Other, first, second],
        }
    }
}

/// Where a peer comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Direct { address: IpAddr, is_known: bool },
    Relayed(RelayId),
}

/// What an opening consists of, and so what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A TLS handshake first.
    Direct,
    /// A certificate and a signed hello to be verified; TLS ends at the relay.
    Relayed,
}

/// What a turn was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) kind: Kind,
    pub(super) cost: Duration,
}

/// Agents behind relays that wait.
#[derive(Debug)]
struct OfRelays<W> {
    /// Those with somebody that waits.
    waiting: BTreeMap<RelayId, BTreeMap<u64, W>>,
    /// Whose turn was last.
    last: Option<RelayId>,
}

impl<W> OfRelays<W> {
    fn arrive(&mut self, relay: RelayId, id: u64, waiter: W) {
        self.waiting.entry(relay).or_default().insert(id, waiter);
    }

    fn leave(&mut self, id: u64) {
        self.waiting.retain(|_, waiting| {
            waiting.remove(&id);
            !waiting.is_empty()
        });
    }

    fn len(&self) -> usize {
        self.waiting.values().map(BTreeMap::len).sum()
    }

    /// The first of the relay whose turn it is.
    fn take(&mut self) -> Option<W> {
        let after = self.last.as_ref().and_then(|last| {
            let later = (Bound::Excluded(last), Bound::Unbounded);
            self.waiting.range::<RelayId, _>(later).next()
        });
        let relay = after.or_else(|| self.waiting.first_key_value())?.0.clone();
        let waiting = self.waiting.get_mut(&relay)?;
        let (_, waiter) = waiting.pop_first()?;
        if waiting.is_empty() {
            self.waiting.remove(&relay);
        }
        self.last = Some(relay);
        Some(waiter)
    }
}

/// Which addresses had peers that went before the crowd lately.
#[derive(Debug)]
struct Shares {
    /// At most [`SHARE_MAX`] times each.
    recent: HashMap<IpAddr, Vec<Instant>>,
    addresses_max: usize,
    swept_at: Instant,
}

impl Shares {
    fn new(addresses_max: usize, now: Instant) -> Self {
        Self { recent: HashMap::new(), addresses_max, swept_at: now }
    }

    /// Whether one more of this address goes before the crowd; it is counted then.
    fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < SHARE_PERIOD;
        if !is_recent(&self.swept_at) {
            self.recent.retain(|_, times| times.last().is_some_and(is_recent));
            self.swept_at = now;
        }
        if self.recent.len() >= self.addresses_max && !self.recent.contains_key(&address) {
            return false;
        }
        let times = self.recent.entry(address).or_default();
        times.retain(is_recent);
        let has_share = times.len() < SHARE_MAX;
        if has_share {
            times.push(now);
        }
        has_share
    }
}

/// Who waits, and what may be spent; `W` is how a peer is told of its turn.
#[derive(Debug)]
pub(super) struct Queue<W> {
    /// By rank; the one for agents behind relays is empty.
    waiting: [BTreeMap<u64, W>; 4],
    of_relays: OfRelays<W>,
    of_known: Shares,
    of_others: Shares,
    next: u64,
    turns: u64,
    /// Seconds of processor time that are gained in a second.
    gain: f64,
    /// Available seconds of CPU time; negative if more was spent.
    pub(super) balance: f64,
    filled_at: Instant,
    /// By kind.
    costs: [Duration; 2],
}

impl<W> Queue<W> {
    pub(super) fn new(processors: NonZero<usize>, now: Instant) -> Self {
        Self {
            waiting: [const { BTreeMap::new() }; 4],
            of_relays: OfRelays { waiting: BTreeMap::new(), last: None },
            of_known: Shares::new(KNOWN_ADDRESSES_MAX, now),
            of_others: Shares::new(OTHERS_MAX, now),
            next: 0,
            turns: 0,
            gain: CPU_SHARE * f64::from(u32::try_from(processors.get()).unwrap_or(u32::MAX)),
            balance: BURST.as_secs_f64(),
            filled_at: now,
            costs: [COST_FIRST; 2],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.iter().map(BTreeMap::len).sum::<usize>() + self.of_relays.len()
    }

    pub(super) fn arrive(&mut self, origin: Origin, now: Instant, waiter: W) -> u64 {
        self.next += 1;
        let (address, is_known) = match origin {
            Origin::Direct { address, is_known } => (address, is_known),
            Origin::Relayed(relay) => {
                self.of_relays.arrive(relay, self.next, waiter);
                return self.next;
            }
        };
        let rank = if is_known && self.of_known.take(address, now) {
            Rank::Known
        } else if self.of_others.take(share_of(address), now) {
            Rank::Other
        } else {
            Rank::Crowd
        };
        self.waiting[rank as usize].insert(self.next, waiter);
        self.next
    }

    pub(super) fn leave(&mut self, id: u64) {
        for waiting in &mut self.waiting {
            if waiting.remove(&id).is_some() {
                return;
            }
        }
        self.of_relays.leave(id);
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.balance = (self.balance + passed * self.gain).min(BURST.as_secs_f64());
        self.filled_at = self.filled_at.max(now);
    }

    fn next_of(&mut self, rank: Rank) -> Option<(Kind, W)> {
        match rank {
            Rank::Relayed => self.of_relays.take().map(|waiter| (Kind::Relayed, waiter)),
            Rank::Known | Rank::Other | Rank::Crowd => {
                self.waiting[rank as usize].pop_last().map(|(_, waiter)| (Kind::Direct, waiter))
            }
        }
    }

    /// The one that may go now, with its charge.
    pub(super) fn take(&mut self, now: Instant) -> Option<(W, Charge)> {
        self.fill(now);
        if self.balance < 0.0 {
            return None;
        }
        let (kind, waiter) = Rank::order(self.turns).into_iter().find_map(|rank| self.next_of(rank))?;
        self.turns += 1;
        let cost = self.cost(kind);
        self.balance -= cost.as_secs_f64();
        Some((waiter, Charge { kind, cost }))
    }

    /// When the next one may go; None if nobody waits.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let missing = (-self.balance / self.gain).max(0.0);
        (self.len() > 0).then(|| self.filled_at + Duration::from_secs_f64(missing))
    }

    /// One that was charged is done; it took this much.
    pub(super) fn spent(&mut self, charged: Charge, took: Duration) {
        let took = took.clamp(COST_MIN, COST_MAX);
        let balance = self.balance + charged.cost.as_secs_f64() - took.as_secs_f64();
        self.balance = balance.max(-DEBT_MAX.as_secs_f64());
    }

    pub(super) fn cost(&self, kind: Kind) -> Duration {
        self.costs[kind as usize]
    }

    /// A greeting takes this much: the next ones of its kind are charged accordingly.
    pub(super) fn learn(&mut self, kind: Kind, took: Duration) {
        let cost = &mut self.costs[kind as usize];
        *cost = (*cost * (COST_MEMORY - 1) + took.clamp(COST_MIN, COST_MAX)) / COST_MEMORY;
    }

    /// It never began.
    pub(super) fn give_back(&mut self, charged: Charge) {
        self.balance += charged.cost.as_secs_f64();
    }

    /// How long each of a kind takes if they follow one another without a pause.
    pub(super) fn interval(&self, kind: Kind) -> Duration {
        self.cost(kind).div_f64(self.gain)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TWO: NonZero<usize> = NonZero::new(2).unwrap();
    const SECOND: Duration = Duration::from_secs(1);

    fn queue(now: Instant) -> Queue<u32> {
        Queue::new(TWO, now)
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    fn known(number: u32) -> Origin {
        Origin::Direct { address: address(number), is_known: true }
    }

    fn other(number: u32) -> Origin {
        Origin::Direct { address: address(number), is_known: false }
    }

    fn relayed(relay: &str) -> Origin {
        Origin::Relayed(relay.parse().unwrap())
    }

    /// Takes turns, each of which costs so much, until it is `until`.
    fn run(queue: &mut Queue<u32>, from: Instant, until: Instant, cost: Duration) -> Vec<u32> {
        let (mut now, mut taken) = (from, Vec::new());
        while now <= until {
            while let Some((waiter, charged)) = queue.take(now) {
                taken.push(waiter);
                queue.spent(charged, cost);
                queue.learn(charged.kind, cost);
            }
            let Some(next_at) = queue.next_at() else { break };
            now = next_at.max(now + Duration::from_nanos(1));
        }
        taken
    }

    #[test]
    fn the_newest_goes_first_and_known_peers_before_others() {
        let now = Instant::now();
        let mut queue = queue(now);
        for waiter in 0..4 {
            queue.arrive(other(waiter), now, waiter);
            queue.arrive(known(waiter), now, 10 + waiter);
        }

        let taken = run(&mut queue, now, now + SECOND, COST_FIRST);

        assert_eq!(taken, [13, 12, 11, 3, 10, 2, 1, 0]);
    }

    #[test]
    fn who_has_left_is_not_called() {
        let now = Instant::now();
        let mut queue = queue(now);
        let [first, _, third] =
            [(other(1), 0), (known(1), 1), (other(1), 2)].map(|(origin, waiter)| queue.arrive(origin, now, waiter));
        queue.leave(first);
        queue.leave(third);

        assert_eq!(run(&mut queue, now, now + SECOND, COST_FIRST), [1]);
        assert_eq!(queue.next_at(), None);
    }

    #[test]
    fn the_rate_follows_the_measured_cost() {
        let rate = |cost| {
            let now = Instant::now();
            let mut queue = queue(now);
            (0..100_000).for_each(|waiter| {
                queue.arrive(other(waiter), now, waiter);
            });
            run(&mut queue, now, now + SECOND, cost);
            run(&mut queue, now + SECOND, now + 2 * SECOND, cost).len()
        };

        // Half of two processors is one.
        assert!((1990..=2010).contains(&rate(Duration::from_micros(500))));
        assert!((199..=201).contains(&rate(Duration::from_millis(5))));
        assert!((49..=51).contains(&rate(SECOND)), "no measurement stops the queue");
    }

    proptest! {
        /// However peers arrive and whatever they cost, what is spent stays within the share and one burst.
        #[test]
        fn no_more_than_the_share_is_spent(
            arrivals in prop::collection::vec((0_u64..50, any::<bool>(), 50_u64..20_000), 1..400),
        ) {
            let begun = Instant::now();
            let (mut queue, mut now, mut spent) = (queue(begun), begun, Duration::ZERO);
            for (number, (pause_ms, is_known, cost_us)) in (0..).zip(&arrivals) {
                now += Duration::from_millis(*pause_ms);
                let origin = match number % 3 {
                    0 => Origin::Relayed(format!("r-{}", number % 5).parse().unwrap()),
                    _ => Origin::Direct { address: address(number), is_known: *is_known },
                };
                queue.arrive(origin, now, number);
                while let Some((waiter, charged)) = queue.take(now) {
                    prop_assert!(waiter <= number);
                    let cost = Duration::from_micros(*cost_us);
                    queue.spent(charged, cost);
                    queue.learn(charged.kind, cost);
                    spent += cost;
                }
                let allowed = (now - begun).as_secs_f64() * queue.gain + (BURST + COST_MAX).as_secs_f64();
                prop_assert!(spent.as_secs_f64() <= allowed + 1e-6, "{spent:?} of {allowed} s");
            }
        }
    }

    /// How long an agent waits for its turn while the peers of another address are always newer.
    fn waits_in_a_flood(flood: &Origin, agent: &Origin) -> Duration {
        let begun = Instant::now();
        let mut queue = queue(begun);
        // A turn every 2 ms, and two peers of the flood.
        let cost = Duration::from_millis(2);
        let (of_flood, of_agent, arrives_in) = (0, 1, 3000);
        for step in 0_u32..6000 {
            let now = begun + step * cost;
            queue.arrive(flood.clone(), now, of_flood);
            if step == arrives_in {
                queue.arrive(agent.clone(), now, of_agent);
            }
            queue.arrive(flood.clone(), now, of_flood);
            while let Some((waiter, charged)) = queue.take(now) {
                queue.spent(charged, cost);
                if waiter == of_agent {
                    return now - (begun + arrives_in * cost);
                }
            }
        }
        panic!("it never had its turn");
    }

    #[test]
    fn no_address_and_no_relay_takes_the_turns_of_another() {
        for flood in [known(1), other(1), relayed("r-1")] {
            for agent in [known(2), other(2), relayed("r-2")] {
                let waited = waits_in_a_flood(&flood, &agent);
                assert!(waited < Duration::from_millis(100), "{agent:?} waits for {waited:?} in a flood of {flood:?}");
            }
        }
    }

    #[test]
    fn addresses_of_one_network_are_one_as_a_stranger_can_have_all_of_them() {
        let now = Instant::now();
        let mut queue = queue(now);
        let of_network = |number: u128| Origin::Direct {
            address: IpAddr::from(((0x2001_0db8_u128) << 96 | number).to_be_bytes()),
            is_known: false,
        };

        for number in 0..100 {
            queue.arrive(of_network(number), now, 0);
        }

        assert_eq!(queue.waiting.map(|waiting| waiting.len()), [0, 0, SHARE_MAX, 100 - SHARE_MAX]);
    }

    #[test]
    fn whoever_waits_has_turns_whatever_comes_before_it() {
        let now = Instant::now();
        let mut queue = queue(now);
        (0..SHARE_MAX).for_each(|_| assert!(queue.of_others.take(address(u32::MAX), now)));
        for number in 0..1000 {
            queue.arrive(known(number), now, 0);
            queue.arrive(other(number), now, 1);
            queue.arrive(other(u32::MAX), now, 2);
            queue.arrive(relayed("r-1"), now, 3);
        }

        let taken = run(&mut queue, now, now + SECOND, COST_FIRST);

        let turns = [0, 3, 1, 2].map(|rank| taken[..160].iter().filter(|waiter| **waiter == rank).count());
        assert_eq!(turns, [60, 60, 30, 10]);
    }

    #[test]
    fn relays_take_turns_however_many_agents_each_brings() {
        let now = Instant::now();
        let mut queue = queue(now);
        (0..1000).for_each(|waiter| {
            queue.arrive(relayed("large"), now, waiter);
        });
        let left = queue.arrive(relayed("small"), now, 3000);
        (0..3).for_each(|waiter| {
            queue.arrive(relayed("small"), now, 2000 + waiter);
        });
        queue.leave(left);

        let taken = run(&mut queue, now, now + SECOND, COST_FIRST);

        assert_eq!(taken[..8], [0, 2000, 1, 2001, 2, 2002, 3, 4], "and of one relay, who came first");
        assert_eq!((taken.len(), queue.len()), (1003, 0));
    }

    #[test]
    fn agents_behind_relays_are_charged_what_they_cost_themselves() {
        let now = Instant::now();
        let mut queue = queue(now);
        for waiter in 0..200 {
            queue.arrive(relayed("r-1"), now, waiter);
            queue.arrive(known(waiter), now, waiter);
        }
        let (cheap, dear) = (COST_FIRST / 4, 4 * COST_FIRST);
        let mut at = now;
        while queue.len() > 0 {
            while let Some((_, charged)) = queue.take(at) {
                let took = if charged.kind == Kind::Relayed { cheap } else { dear };
                queue.spent(charged, took);
                queue.learn(charged.kind, took);
            }
            at += Duration::from_millis(1);
        }

        assert!(queue.cost(Kind::Relayed) < cheap * 11 / 10, "{:?}", queue.cost(Kind::Relayed));
        assert!(queue.cost(Kind::Direct) > dear * 9 / 10, "{:?}", queue.cost(Kind::Direct));
    }

    #[test]
    fn no_more_addresses_are_counted_than_there_is_room_for() {
        let now = Instant::now();
        let mut shares = Shares::new(OTHERS_MAX, now);
        let room = u32::try_from(OTHERS_MAX).unwrap();
        (0..room).for_each(|number| assert!(shares.take(address(number), now)));

        assert!(!shares.take(address(room), now));
        assert!(shares.take(address(0), now), "who is counted has its share");
        assert!(shares.take(address(room), now + SHARE_PERIOD), "there is room again");
    }

    proptest! {
        /// However many peers of an address come, and whenever, only its share goes before others.
        #[test]
        fn an_address_has_its_share_and_no_more(pauses_ms in prop::collection::vec(0_u64..3_000, 1..300)) {
            let (mut now, mut granted) = (Instant::now(), Vec::new());
            let mut shares = Shares::new(OTHERS_MAX, now);
            for (number, pause_ms) in (2..).zip(pauses_ms) {
                now += Duration::from_millis(pause_ms);
                if shares.take(address(1), now) {
                    granted.push(now);
                }
                let lately = granted.iter().filter(|at| now - **at < SHARE_PERIOD).count();
                prop_assert!((1..=SHARE_MAX).contains(&lately));
                prop_assert!(shares.take(address(number), now), "others have theirs");
            }
        }
    }

    #[test]
    fn addresses_that_did_not_come_lately_are_forgotten() {
        let now = Instant::now();
        let mut shares = Shares::new(OTHERS_MAX, now);
        (0..1000).for_each(|number| assert!(shares.take(address(number), now)));

        assert!(shares.take(address(1), now + SHARE_PERIOD));

        assert_eq!(shares.recent.len(), 1);
    }

    #[test]
    fn what_began_together_and_cost_more_than_expected_keeps_nobody_waiting_for_long() {
        let now = Instant::now();
        let mut queue = queue(now);
        queue.costs = [COST_MIN; 2];
        (0..2_000).for_each(|waiter| {
            queue.arrive(other(waiter), now, waiter);
        });
        let began: Vec<Charge> = std::iter::from_fn(|| queue.take(now)).map(|(_, charged)| charged).collect();
        assert!(began.len() > 500, "a burst of what seemed to be cheap");

        began.into_iter().for_each(|charged| queue.spent(charged, SECOND));

        let next_at = queue.next_at().expect("others wait");
        assert!(next_at <= now + DEBT_MAX.div_f64(queue.gain), "{:?}", next_at - now);
    }
}
