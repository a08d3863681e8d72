//! When agents learn that their outcomes are stored.
//!
//! Promised: at once, unless a call to many agents is in progress: then when the rush is over, and within
//! [`WAIT_MAX`] in any case, because a signed message per agent would compete with the outcomes of the others.
//! Whatever a session sends meanwhile takes them along.
//! Absent: what is stored (see `outcomes`). A late acknowledgement loses nothing: the agent keeps an outcome until
//! then, and sends it again over its next session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::OperationId;

use super::Session;
use super::reports::RUSH_MIN;

/// Well beyond the duration of a call to a large fleet, and well below the patience of anybody who waits for it.
const WAIT_MAX: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    owed: Mutex<Owed>,
}

#[derive(Debug, Default)]
struct Owed {
    sessions: Vec<Arc<Session>>,
    since: Option<Instant>,
}

impl Acknowledgements {
    pub(super) fn owe(&self, session: Arc<Session>, operations: Vec<OperationId>, now: Instant) {
        session.owe(operations);
        let mut owed = self.owed.lock();
        owed.sessions.push(session);
        owed.since.get_or_insert(now);
    }

    /// Wakes the sessions that owe some, if they need not wait.
    pub(super) fn tell_due(&self, open_targets: usize, now: Instant) {
        let mut owed = self.owed.lock();
        let has_waited = owed.since.is_some_and(|since| now.saturating_duration_since(since) >= WAIT_MAX);
        if open_targets > RUSH_MIN && !has_waited {
            return;
        }
        let Owed { sessions, .. } = std::mem::take(&mut *owed);
        drop(owed);
        sessions.iter().for_each(|session| session.wake());
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use proctor_model::{BootId, TaskId};
    use proctor_store::SessionOpening;
    use uuid::Uuid;

    use super::*;
    use crate::control::Greeting;

    fn session() -> Arc<Session> {
        let opening = SessionOpening::new("agent-1".parse().unwrap(), "key");
        Arc::new(Session::new(Greeting::new(opening, BootId::from("boot")), 1))
    }

    fn is_woken(session: &Session) -> bool {
        let woken = std::pin::pin!(session.woken());
        woken.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    fn operation(index: u32) -> OperationId {
        OperationId::first(TaskId::from_uuid(Uuid::nil()), index)
    }

    #[test]
    fn an_agent_hears_at_once_unless_many_targets_are_open() {
        let (acknowledgements, session, now) = (Acknowledgements::default(), session(), Instant::now());

        acknowledgements.owe(session.clone(), vec![operation(0)], now);
        acknowledgements.tell_due(RUSH_MIN + 1, now);
        assert!(!is_woken(&session), "others come first");

        acknowledgements.owe(session.clone(), vec![operation(1)], now);
        acknowledgements.tell_due(RUSH_MIN, now);
        assert!(is_woken(&session), "the rush is over");
        assert_eq!(session.take_acknowledged(), [operation(0), operation(1)]);
    }

    #[test]
    fn an_agent_does_not_wait_for_the_end_of_a_long_rush() {
        let (acknowledgements, session, now) = (Acknowledgements::default(), session(), Instant::now());

        acknowledgements.owe(session.clone(), vec![operation(0)], now);
        acknowledgements.tell_due(usize::MAX, now + WAIT_MAX);
        assert!(is_woken(&session));

        acknowledgements.owe(session.clone(), vec![operation(1)], now + WAIT_MAX);
        acknowledgements.tell_due(usize::MAX, now + WAIT_MAX);
        assert!(!is_woken(&session), "the time of the next one begins anew");
    }
}
