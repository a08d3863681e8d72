//! Whose turn it is at the TLS handshake.
//!
//! Promised: handshakes, with the greetings that follow them, take no more than a share of the processors, by what they
//! were measured to cost, so that calls are answered while a whole fleet comes back (see `turns` for who goes first).
//! Whoever waits for [`WAIT_MAX`] is closed, not served. Absent: how many peers may be at it (see `handshakes`), who they
//! are, and what the store's own threads do for them (see `busy`).

use std::future::poll_fn;
use std::num::NonZero;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::turns::{Origin, Queue};
use crate::metrics::LinkGauges;

/// An agent gives up after ten seconds, and needs some of them for what follows.
const WAIT_MAX: Duration = Duration::from_secs(4);

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

    /// None where it did not come in time.
    pub(super) async fn turn(self: &Arc<Self>, origin: Origin) -> Option<Turn> {
        let (waiter, granted) = oneshot::channel();
        let id = self.queue.lock().arrive(origin, Instant::now(), waiter);
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
    use std::net::IpAddr;

    use super::super::turns::COST_FIRST;
    use super::*;

    fn stranger() -> Origin {
        Origin { address: IpAddr::from([192, 0, 2, 1]), is_known: false }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_dropped_and_leaves_the_queue() {
        let admission = Arc::new(Admission::new(Arc::default()));
        admission.queue.lock().balance = -1e6;

        let turn = admission.turn(stranger()).await;

        assert!(turn.is_none());
        assert_eq!(admission.queue.lock().len(), 0);
    }

    #[tokio::test]
    async fn a_turn_is_charged_with_what_it_took() {
        let admission = Arc::new(Admission::new(Arc::default()));
        let cost = admission.queue.lock().cost;
        let mut turn = admission.turn(stranger()).await.unwrap();

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
            drop(admission.turn(stranger()).await.unwrap());
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
