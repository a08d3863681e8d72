//! Wakes many sessions without keeping everybody else waiting.
//!
//! Every session that is woken is a task in the queue of the runtime, and whatever comes next, such as an API call or
//! an outcome, waits behind all of them. So thousands are woken a few at a time, as fast as they are served.
//! Promised: many are woken in the order in which they were left here; few are woken at once, before all who wait.
//! Absent: why they are woken.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Control, Session};

/// Sessions in the queue of the runtime at a time: enough to share a signature and to keep every thread busy.
const TOGETHER: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Wakes {
    /// In the order in which they were left.
    waiting: Mutex<VecDeque<Arc<Session>>>,
    left: Notify,
}

impl Wakes {
    /// Wakes them now if they are few, and in turn otherwise.
    pub(super) fn wake(&self, sessions: Vec<Arc<Session>>) {
        if sessions.len() <= TOGETHER {
            return sessions.iter().for_each(|session| session.wake());
        }
        self.waiting.lock().extend(sessions);
        self.left.notify_one();
    }

    /// Wakes the next ones; whether there were any.
    fn wake_next(&self) -> bool {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(TOGETHER);
        let next: Vec<_> = waiting.drain(..count).collect();
        if waiting.is_empty() {
            *waiting = VecDeque::new();
        }
        drop(waiting);
        next.iter().for_each(|session| session.wake());
        count > 0
    }
}

impl Control {
    pub(super) async fn wake_sessions(self) {
        loop {
            while self.inner.wakes.wake_next() {
                // They run, and whatever else is ready.
                tokio::task::yield_now().await;
            }
            self.inner.wakes.left.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use proctor_model::BootId;
    use proctor_store::SessionOpening;

    use super::*;
    use crate::control::Greeting;

    fn sessions(count: usize) -> Vec<Arc<Session>> {
        let session = |number| {
            let opening = SessionOpening::new(format!("agent-{number}").parse().unwrap(), "key");
            Arc::new(Session::new(Greeting::new(opening, BootId::from("boot")), 1))
        };
        (0..count).map(session).collect()
    }

    fn woken(sessions: &[Arc<Session>]) -> usize {
        let is_woken = |session: &&Arc<Session>| {
            let woken = std::pin::pin!(session.woken());
            woken.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        sessions.iter().filter(is_woken).count()
    }

    #[test]
    fn a_few_are_woken_at_once_also_while_many_wait() {
        let (wakes, many, few) = (Wakes::default(), sessions(TOGETHER + 1), sessions(TOGETHER));

        wakes.wake(many.clone());
        wakes.wake(few.clone());

        assert_eq!((woken(&many), woken(&few)), (0, TOGETHER));
    }

    #[test]
    fn many_are_woken_in_turn_and_later_ones_behind_them() {
        let (wakes, many, later) = (Wakes::default(), sessions(TOGETHER + 1), sessions(TOGETHER + 1));

        wakes.wake(many.clone());
        wakes.wake(later.clone());
        assert_eq!(woken(&many), 0);

        assert!(wakes.wake_next());
        assert_eq!((woken(&many), woken(&later)), (TOGETHER, 0));
        assert!(wakes.wake_next());
        assert_eq!((woken(&many), woken(&later)), (1, TOGETHER - 1));
        assert!(wakes.wake_next());
        assert_eq!((woken(&many), woken(&later)), (0, 2));
        assert!(!wakes.wake_next());
    }
}
