//! Whose turn it is at the TLS handshake.
//!
//! Promised: handshakes, with the greetings that follow them, take no more than [`CPU_SHARE`] of the processors, by
//! what they were measured to cost, so that calls are answered while a whole fleet comes back. The newest peer goes
//! first: the one that has waited longest is the likeliest to have given up. Whoever waits for [`WAIT_MAX`] is closed,
//! not served. Peers of known addresses go before others, which still get one turn in [`UNKNOWN_EVERY`]; of one such
//! address only a few do in a while, so that it cannot take the turns of the rest.
//! Absent: how many peers may be at it (see `handshakes`), who they are, and what the store's own threads do for them
//! (see `busy`).

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::net::IpAddr;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::metrics::LinkGauges;

/// Of all processors.
const CPU_SHARE: f64 = 0.5;
/// What may be spent at once after a quiet time.
const BURST: Duration = Duration::from_millis(50);
/// What a greeting is taken to cost before the first one was measured, and the bounds of what is believed: time on a
/// processor that others use looks like cost.
const COST_FIRST: Duration = Duration::from_millis(1);
const COST_MIN: Duration = Duration::from_micros(50);
const COST_MAX: Duration = Duration::from_millis(20);
/// The newest measurement counts for one part in so many.
const COST_MEMORY: u32 = 16;
/// Greetings that began together may turn out to cost more than they were charged; whoever comes later does not wait for
/// more of it than this.
const DEBT_MAX: Duration = Duration::from_secs(1);
/// An agent gives up after ten seconds, and needs some of them for what follows.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// Where peers of known and of other addresses wait, so many turns bring one for the others.
const UNKNOWN_EVERY: u32 = 4;
/// Peers of one known address that go before others in a while. A host has one agent, which tries a few times at most;
/// what comes beyond it waits among the others.
const SHARE_MAX: usize = 8;
const SHARE_PERIOD: Duration = Duration::from_secs(10);

/// Which known addresses had peers that went before others lately.
#[derive(Debug)]
struct Shares {
    /// At most [`SHARE_MAX`] times each; no more addresses than are known.
    recent: HashMap<IpAddr, Vec<Instant>>,
    swept_at: Instant,
}

impl Shares {
    fn new(now: Instant) -> Self {
        Self { recent: HashMap::new(), swept_at: now }
    }

    /// Whether one more of this address goes before others; it is counted then.
    fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < SHARE_PERIOD;
        if !is_recent(&self.swept_at) {
            self.recent.retain(|_, times| times.last().is_some_and(is_recent));
            self.swept_at = now;
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
struct Queue<W> {
    known: BTreeMap<u64, W>,
    unknown: BTreeMap<u64, W>,
    shares: Shares,
    next: u64,
    known_in_a_row: u32,
    /// Seconds of processor time that are gained in a second.
    gain: f64,
    /// Seconds of processor time that are there; negative where more was spent.
    balance: f64,
    filled_at: Instant,
    cost: Duration,
}

impl<W> Queue<W> {
    fn new(processors: NonZero<usize>, now: Instant) -> Self {
        Self {
            known: BTreeMap::new(),
            unknown: BTreeMap::new(),
            shares: Shares::new(now),
            next: 0,
            known_in_a_row: 0,
            gain: CPU_SHARE * f64::from(u32::try_from(processors.get()).unwrap_or(u32::MAX)),
            balance: BURST.as_secs_f64(),
            filled_at: now,
            cost: COST_FIRST,
        }
    }

    fn len(&self) -> usize {
        self.known.len() + self.unknown.len()
    }

    /// `known` is its address, where that is known.
    fn arrive(&mut self, known: Option<IpAddr>, now: Instant, waiter: W) -> u64 {
        self.next += 1;
        let goes_first = known.is_some_and(|address| self.shares.take(address, now));
        let queue = if goes_first { &mut self.known } else { &mut self.unknown };
        queue.insert(self.next, waiter);
        self.next
    }

    fn leave(&mut self, id: u64) {
        if self.known.remove(&id).is_none() {
            self.unknown.remove(&id);
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.balance = (self.balance + passed * self.gain).min(BURST.as_secs_f64());
        self.filled_at = self.filled_at.max(now);
    }

    /// The newest that may go now, with what it is charged.
    fn take(&mut self, now: Instant) -> Option<(W, Duration)> {
        self.fill(now);
        if self.balance < 0.0 {
            return None;
        }
        let is_others_turn = self.known.is_empty() || self.known_in_a_row + 1 >= UNKNOWN_EVERY;
        let waiter = match (is_others_turn, self.unknown.is_empty()) {
            (true, false) => {
                self.known_in_a_row = 0;
                self.unknown.pop_last()
            }
            (_, is_alone) => {
                self.known_in_a_row = if is_alone { 0 } else { self.known_in_a_row + 1 };
                self.known.pop_last()
            }
        };
        let (_, waiter) = waiter?;
        self.balance -= self.cost.as_secs_f64();
        Some((waiter, self.cost))
    }

    /// When the next one may go; None where nobody waits.
    fn next_at(&self) -> Option<Instant> {
        let missing = (-self.balance / self.gain).max(0.0);
        (self.len() > 0).then(|| self.filled_at + Duration::from_secs_f64(missing))
    }

    /// One that was charged is over; it took this much.
    fn spent(&mut self, charged: Duration, took: Duration) {
        let took = took.clamp(COST_MIN, COST_MAX);
        let balance = self.balance + charged.as_secs_f64() - took.as_secs_f64();
        self.balance = balance.max(-DEBT_MAX.as_secs_f64());
    }

    /// A greeting takes this much: the next ones are charged accordingly.
    fn learn(&mut self, took: Duration) {
        self.cost = (self.cost * (COST_MEMORY - 1) + took.clamp(COST_MIN, COST_MAX)) / COST_MEMORY;
    }

    /// It never began.
    fn give_back(&mut self, charged: Duration) {
        self.balance += charged.as_secs_f64();
    }

    /// How long each takes if they follow one another without a pause.
    fn interval(&self) -> Duration {
        self.cost.div_f64(self.gain)
    }
}

#[derive(Debug)]
pub(super) struct Admission {
    queue: Mutex<Queue<oneshot::Sender<Duration>>>,
    arrived: Notify,
    gauges: Arc<LinkGauges>,
}

impl Admission {
    pub(super) fn new(gauges: Arc<LinkGauges>) -> Self {
        let processors = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Self { queue: Mutex::new(Queue::new(processors, Instant::now())), arrived: Notify::new(), gauges }
    }

    /// Of a peer, with its address where that is known. None where it did not come in time.
    pub(super) async fn turn(self: &Arc<Self>, known: Option<IpAddr>) -> Option<Turn> {
        let (waiter, granted) = oneshot::channel();
        let id = self.queue.lock().arrive(known, Instant::now(), waiter);
        let _place = Place { admission: self, id };
        self.grant(Instant::now());
        self.arrived.notify_one();
        let charged = tokio::time::timeout(WAIT_MAX, granted).await.ok()?.ok()?;
        Some(Turn { admission: self.clone(), charged, took: Duration::ZERO, came_through: false })
    }

    /// How long each greeting takes if they follow one another without a pause.
    pub(super) fn interval(&self) -> Duration {
        self.queue.lock().interval()
    }

    fn grant(&self, now: Instant) {
        let mut queue = self.queue.lock();
        while let Some((waiter, charged)) = queue.take(now) {
            if waiter.send(charged).is_err() {
                queue.give_back(charged);
            }
        }
        self.tell(&queue);
    }

    fn tell(&self, queue: &Queue<oneshot::Sender<Duration>>) {
        self.gauges.set(queue.len(), queue.cost);
    }

    /// Gives turns as they come free, until the server ends.
    pub(super) async fn give_turns(self: Arc<Self>) {
        loop {
            self.grant(Instant::now());
            let next_at = self.queue.lock().next_at();
            match next_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => self.arrived.notified().await,
            }
        }
    }
}

/// In the queue, until it is dropped.
struct Place<'a> {
    admission: &'a Admission,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.admission.queue.lock();
        queue.leave(self.id);
        self.admission.tell(&queue);
    }
}

/// A peer whose turn it is; what its greeting takes is charged when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    admission: Arc<Admission>,
    charged: Duration,
    took: Duration,
    came_through: bool,
}

impl Turn {
    /// The peer came through its handshake: what its greeting takes is what greetings cost. Of one that did not, it is
    /// only where it took longer than expected; strangers could make greetings seem cheap.
    pub(super) fn came_through(&mut self) {
        self.came_through = true;
    }

    /// Measures how long the future keeps a processor.
    pub(super) async fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let begun = Instant::now();
            let polled = future.as_mut().poll(context);
            self.took += begun.elapsed();
            polled
        })
        .await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.admission.queue.lock();
        queue.spent(self.charged, self.took);
        if self.came_through || self.took > self.charged {
            queue.learn(self.took);
        }
        self.admission.tell(&queue);
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

    /// Each known address is another one.
    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    fn known(number: u32) -> Option<IpAddr> {
        Some(address(number))
    }

    /// Takes turns, each of which costs so much, until it is `until`.
    fn run(queue: &mut Queue<u32>, from: Instant, until: Instant, cost: Duration) -> Vec<u32> {
        let (mut now, mut taken) = (from, Vec::new());
        while now <= until {
            while let Some((waiter, charged)) = queue.take(now) {
                taken.push(waiter);
                queue.spent(charged, cost);
                queue.learn(cost);
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
            queue.arrive(None, now, waiter);
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
            [(None, 0), (known(1), 1), (None, 2)].map(|(known, waiter)| queue.arrive(known, now, waiter));
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
                queue.arrive(None, now, waiter);
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
                queue.arrive(is_known.then(|| address(number)), now, number);
                while let Some((waiter, charged)) = queue.take(now) {
                    prop_assert!(waiter <= number);
                    let cost = Duration::from_micros(*cost_us);
                    queue.spent(charged, cost);
                    queue.learn(cost);
                    spent += cost;
                }
                let allowed = (now - begun).as_secs_f64() * queue.gain + (BURST + COST_MAX).as_secs_f64();
                prop_assert!(spent.as_secs_f64() <= allowed + 1e-6, "{spent:?} of {allowed} s");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_dropped_and_leaves_the_queue() {
        let admission = Arc::new(Admission::new(Arc::default()));
        admission.queue.lock().balance = -1e6;

        let turn = admission.turn(known(1)).await;

        assert!(turn.is_none());
        assert_eq!(admission.queue.lock().len(), 0);
    }

    #[test]
    fn one_known_address_does_not_take_the_turns_of_others() {
        let begun = Instant::now();
        let mut queue = queue(begun);
        let (flood, agent) = (0, u32::MAX);
        // A turn every 2 ms, and a flood that is always newer than whoever waits.
        let cost = Duration::from_millis(2);
        for step in 0_u32..1000 {
            queue.arrive(known(1), begun + step * cost, flood);
        }
        let mut waits_since = None;
        for step in 1000_u32..6000 {
            let now = begun + step * cost;
            queue.arrive(known(1), now, flood);
            if step == 3000 {
                queue.arrive(known(2), now, agent);
                waits_since = Some(now);
            }
            queue.arrive(known(1), now, flood);
            while let Some((waiter, charged)) = queue.take(now) {
                queue.spent(charged, cost);
                if waiter == agent {
                    let waited = now - waits_since.expect("it has arrived");
                    assert!(waited < Duration::from_millis(100), "{waited:?}");
                    return;
                }
            }
        }
        panic!("it never had its turn");
    }

    proptest! {
        /// However many peers of an address come, and whenever, only its share goes before others.
        #[test]
        fn an_address_has_its_share_and_no_more(pauses_ms in prop::collection::vec(0_u64..3_000, 1..300)) {
            let (mut now, mut granted) = (Instant::now(), Vec::new());
            let mut shares = Shares::new(now);
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
        let mut shares = Shares::new(now);
        (0..1000).for_each(|number| assert!(shares.take(address(number), now)));

        assert!(shares.take(address(1), now + SHARE_PERIOD));

        assert_eq!(shares.recent.len(), 1);
    }

    #[test]
    fn what_began_together_and_cost_more_than_expected_keeps_nobody_waiting_for_long() {
        let now = Instant::now();
        let mut queue = queue(now);
        queue.cost = COST_MIN;
        (0..2_000).for_each(|waiter| {
            queue.arrive(None, now, waiter);
        });
        let began: Vec<Duration> = std::iter::from_fn(|| queue.take(now)).map(|(_, charged)| charged).collect();
        assert!(began.len() > 500, "a burst of what seemed to be cheap");

        began.into_iter().for_each(|charged| queue.spent(charged, SECOND));

        let next_at = queue.next_at().expect("others wait");
        assert!(next_at <= now + DEBT_MAX.div_f64(queue.gain), "{:?}", next_at - now);
    }

    #[tokio::test]
    async fn a_turn_is_charged_with_what_it_took() {
        let admission = Arc::new(Admission::new(Arc::default()));
        let cost = admission.queue.lock().cost;
        let mut turn = admission.turn(None).await.unwrap();

        let answer = turn.run(async { 7 }).await;
        turn.came_through();
        drop(turn);

        assert_eq!(answer, 7);
        assert_ne!(admission.queue.lock().cost, cost);
    }

    #[tokio::test]
    async fn peers_that_leave_do_not_make_greetings_seem_cheap() {
        let admission = Arc::new(Admission::new(Arc::default()));
        let cost = admission.queue.lock().cost;

        for _ in 0..20 {
            drop(admission.turn(None).await.unwrap());
        }

        assert_eq!(admission.queue.lock().cost, cost);
    }

    #[test]
    fn failed_handshakes_that_cost_more_than_expected_are_expected_to() {
        let admission = Arc::new(Admission::new(Arc::default()));
        let turn = |took| Turn { admission: admission.clone(), charged: COST_FIRST, took, came_through: false };

        drop(turn(5 * COST_FIRST));
        let risen = admission.queue.lock().cost;
        drop(turn(COST_FIRST / 5));

        assert!(risen > COST_FIRST);
        assert_eq!(admission.queue.lock().cost, risen);
    }
}
