//! When agents learn that their outcomes are stored.
//!
//! Promised: at once, unless a call to many agents is in progress (see `rush`): then when it is over, and within
//! [`WAIT_MAX`] in any case, because a signed message per agent would compete with the outcomes of the others.
//! Whatever a session sends meanwhile takes them along.
//! Absent: what is stored (see `outcomes`). A late acknowledgement loses nothing: the agent keeps an outcome until
//! then, and sends it again over its next session.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::OperationId;

use super::Session;

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

    /// The sessions that owe some, if they need not wait.
    pub(super) fn take_due(&self, is_rush: bool, now: Instant) -> Vec<Arc<Session>> {
        let mut owed = self.owed.lock();
        let has_waited = owed.since.is_some_and(|since| now.saturating_duration_since(since) >= WAIT_MAX);
        if is_rush && !has_waited {
            return Vec::new();
        }
        std::mem::take(&mut *owed).sessions
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::{BootId, TaskId};
    use proctor_store::SessionOpening;
    use uuid::Uuid;

    use super::*;
    use crate::control::Greeting;

    fn session() -> Arc<Session> {
        let opening = SessionOpening::new("agent-1".parse().unwrap(), "key");
        Arc::new(Session::new(Greeting::new(opening, BootId::from("boot")), 1))
    }

    fn operation(index: u32) -> OperationId {
        OperationId::first(TaskId::from_uuid(Uuid::nil()), index)
    }

    #[test]
    fn an_agent_hears_at_once_unless_there_is_a_rush() {
        let (acknowledgements, session, now) = (Acknowledgements::default(), session(), Instant::now());

        acknowledgements.owe(session.clone(), vec![operation(0)], now);
        assert!(acknowledgements.take_due(true, now).is_empty(), "others come first");

        acknowledgements.owe(session.clone(), vec![operation(1)], now);
        assert!(!acknowledgements.take_due(false, now).is_empty(), "the rush is over");
        assert_eq!(session.take_acknowledged(), [operation(0), operation(1)]);
    }

    #[test]
    fn an_agent_does_not_wait_for_the_end_of_a_long_rush() {
        let (acknowledgements, session, now) = (Acknowledgements::default(), session(), Instant::now());

        acknowledgements.owe(session.clone(), vec![operation(0)], now);
        assert!(!acknowledgements.take_due(true, now + WAIT_MAX).is_empty());

        acknowledgements.owe(session, vec![operation(1)], now + WAIT_MAX);
        assert!(acknowledgements.take_due(true, now + WAIT_MAX).is_empty(), "the time of the next one begins anew");
    }
}
