//! Admission to the TLS handshake, or to the hello that comes through a relay.
//!
//! Promised: handshakes with the hellos that follow, and hellos of agents behind relays, take no more than a share of
//! the CPUs, by their measured cost, so that API calls are answered while a whole fleet reconnects (see `turns` for
//! who goes first). A peer that waits for [`WAIT_MAX`] is closed, not served; behind a relay, it is told when to
//! retry.
//! Absent: how many peers may be in a handshake (see `handshakes`), who they are, and what the store's own threads do
//! for them (see `busy`).

use std::future::poll_fn;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_runtime::SLOT_WAIT_MAX;
use proctor_wire::BEFORE_TLS_MAX;
use tokio::sync::{Notify, oneshot};

use super::turns::{Charge, Kind, Origin, Queue};
use crate::metrics::LinkGauges;

/// An agent gives up after ten seconds, or six if it has others to try, and needs some of them for what follows.
const WAIT_MAX: Duration = BEFORE_TLS_MAX.saturating_sub(SLOT_WAIT_MAX);
/// Behind a relay, where it may have waited for four seconds already, of nine until its welcome.
const RELAYED_WAIT_MAX: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Admission {
    queue: Mutex<Queue<oneshot::Sender<Charge>>>,
    arrived: Notify,
    gauges: Arc<LinkGauges>,
}

impl Admission {
    pub(super) fn new(gauges: Arc<LinkGauges>) -> Self {
        let processors = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Self { queue: Mutex::new(Queue::new(processors, Instant::now())), arrived: Notify::new(), gauges }
    }

    /// None if it did not come in time.
    pub(super) async fn turn(self: &Arc<Self>, origin: Origin) -> Option<Turn> {
        let (waiter, granted) = oneshot::channel();
        let wait_max = match origin {
            Origin::Direct { .. } => WAIT_MAX,
            Origin::Relayed(_) => RELAYED_WAIT_MAX,
        };
        let id = self.queue.lock().arrive(origin, Instant::now(), waiter);
        let _queued = QueuedPeer { admission: self, id };
        self.grant(Instant::now());
        self.arrived.notify_one();
        let charged = tokio::time::timeout(wait_max, granted).await.ok()?.ok()?;
        Some(Turn { admission: self.clone(), charged, took: Duration::ZERO, came_through: false })
    }

    /// How long each greeting of a kind takes if they follow one another without a pause.
    pub(super) fn interval(&self, kind: Kind) -> Duration {
        self.queue.lock().interval(kind)
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

    fn tell(&self, queue: &Queue<oneshot::Sender<Charge>>) {
        self.gauges.set(queue.len(), queue.cost(Kind::Direct));
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
struct QueuedPeer<'a> {
    admission: &'a Admission,
    id: u64,
}

impl Drop for QueuedPeer<'_> {
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
    charged: Charge,
    took: Duration,
    came_through: bool,
}

impl Turn {
    /// The peer completed its handshake, or its hello was signed by its key: its cost is the cost of a hello.
    /// Otherwise it counts only if it took longer than expected; unknown peers could make hellos seem cheap.
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
        if self.came_through || self.took > self.charged.cost {
            queue.learn(self.charged.kind, self.took);
        }
        self.admission.tell(&queue);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::turns::COST_FIRST;
    use super::*;

    fn stranger() -> Origin {
        Origin::Direct { address: IpAddr::from([192, 0, 2, 1]), is_known: false }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_dropped_and_leaves_the_queue() {
        let admission = Arc::new(Admission::new(Arc::default()));
        admission.queue.lock().balance = -1e6;

        let turn = admission.turn(stranger()).await;

        assert!(turn.is_none());
        assert_eq!(admission.queue.lock().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_behind_a_relay_knows_before_its_relay_gives_it_up() {
        let admission = Arc::new(Admission::new(Arc::default()));
        admission.queue.lock().balance = -1e6;
        let begun = tokio::time::Instant::now();

        let turn = admission.turn(Origin::Relayed("r-1".parse().unwrap())).await;

        assert!(turn.is_none());
        assert!(begun.elapsed() < WAIT_MAX, "{:?}", begun.elapsed());
        assert_eq!(admission.queue.lock().len(), 0);
    }

    #[tokio::test]
    async fn a_turn_is_charged_with_what_it_took() {
        let admission = Arc::new(Admission::new(Arc::default()));
        let cost = admission.queue.lock().cost(Kind::Direct);
        let mut turn = admission.turn(stranger()).await.unwrap();

        let answer = turn.run(async { 7 }).await;
        turn.came_through();
        drop(turn);

        assert_eq!(answer, 7);
        assert_ne!(admission.queue.lock().cost(Kind::Direct), cost);
    }

    #[tokio::test]
    async fn peers_that_leave_do_not_make_greetings_seem_cheap() {
        let admission = Arc::new(Admission::new(Arc::default()));
        let cost = admission.queue.lock().cost(Kind::Direct);

        for _ in 0..20 {
            drop(admission.turn(stranger()).await.unwrap());
        }

        assert_eq!(admission.queue.lock().cost(Kind::Direct), cost);
    }

    #[test]
    fn failed_handshakes_that_cost_more_than_expected_are_expected_to() {
        let admission = Arc::new(Admission::new(Arc::default()));
        let charged = Charge { kind: Kind::Relayed, cost: COST_FIRST };
        let turn = |took| Turn { admission: admission.clone(), charged, took, came_through: false };

        drop(turn(5 * COST_FIRST));
        let cost = || admission.queue.lock().cost(Kind::Relayed);
        let risen = cost();
        drop(turn(COST_FIRST / 5));

        assert!(risen > COST_FIRST);
        assert_eq!((cost(), admission.queue.lock().cost(Kind::Direct)), (risen, COST_FIRST));
    }
}
