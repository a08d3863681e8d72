//! Asks the driver what the agent has, before a session is opened.
//!
//! Promised: no session is opened for a driver that neither answers nor turns, because the host would look online. A
//! driver that is only busy, and so answers late but turns, gets its session.
//! Absent: ending the agent when its driver hangs (see `watchdog`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::AgentState;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use crate::driver::{Inbox, Input};

/// How long the driver has to say what the agent has: without it, everything is sent.
const STATE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("the driver of this agent does not answer: no session until it does")]
pub(super) struct DriverSilent;

pub(super) struct DriverState {
    inbox: Inbox,
    /// Changes with every turn of the driver.
    turns: Arc<AtomicU64>,
    /// The turns when the driver was last found silent; None once it has answered or turned.
    silent_at: Mutex<Option<u64>>,
}

impl DriverState {
    pub(super) fn new(inbox: Inbox, turns: Arc<AtomicU64>) -> Self {
        Self { inbox, turns, silent_at: Mutex::default() }
    }

    /// Hashes of what the agent has, for a server that may have the same. None if the driver is too busy to tell.
    pub(super) async fn ask(&self) -> Result<Option<AgentState>, DriverSilent> {
        let before = self.turns.load(Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let state = match self.inbox.try_send(Input::Greeting(answer)) {
            Ok(()) => tokio::time::timeout(STATE_LIMIT, answered).await.ok().and_then(Result::ok),
            // It may be busy with what fills its inbox: then it turns meanwhile.
            Err(TrySendError::Full(_)) => {
                tokio::time::sleep(STATE_LIMIT).await;
                None
            }
            Err(TrySendError::Closed(_)) => return Err(DriverSilent),
        };
        let now = self.turns.load(Ordering::Relaxed);
        let mut silent_at = self.silent_at.lock();
        // One turn may take longer than an attempt: one since the last attempt counts too.
        let has_turned = now != silent_at.unwrap_or(before);
        if state.is_some() || has_turned {
            *silent_at = None;
            return Ok(state);
        }
        *silent_at = Some(now);
        Err(DriverSilent)
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::StateHash;

    use super::*;
    use crate::driver;

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_hangs_gets_no_session_however_often_it_is_asked() {
        let (inbox, _inputs) = driver::inbox();
        let driver = DriverState::new(inbox, Arc::new(AtomicU64::new(7)));

        for _ in 0..10 {
            assert!(driver.ask().await.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_hangs_with_a_full_inbox_gets_no_session() {
        let (inbox, _inputs) = driver::inbox();
        while inbox.try_send(Input::Beat).is_ok() {}
        let driver = DriverState::new(inbox, Arc::default());

        assert!(driver.ask().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_has_ended_gets_no_session() {
        let (inbox, inputs) = driver::inbox();
        drop(inputs);
        let driver = DriverState::new(inbox, Arc::default());

        assert!(driver.ask().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_answers_late_but_turns_gets_a_session_without_a_state() {
        let (inbox, _inputs) = driver::inbox();
        let turns = Arc::new(AtomicU64::new(0));
        let driver = DriverState::new(inbox, turns.clone());
        let busy = async {
            tokio::time::sleep(STATE_LIMIT / 2).await;
            turns.fetch_add(1, Ordering::Relaxed);
        };

        let (asked, ()) = tokio::join!(driver.ask(), busy);

        assert!(asked.is_ok_and(|state| state.is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_whose_turns_take_longer_than_an_attempt_gets_a_session_at_the_next_one() {
        let (inbox, _inputs) = driver::inbox();
        let turns = Arc::new(AtomicU64::new(0));
        let driver = DriverState::new(inbox, turns.clone());

        assert!(driver.ask().await.is_err());
        turns.fetch_add(1, Ordering::Relaxed);
        assert!(driver.ask().await.is_ok_and(|state| state.is_none()), "it has turned since");
        assert!(driver.ask().await.is_err(), "and hangs now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_answers_in_time_says_what_the_agent_has() {
        let (inbox, mut inputs) = driver::inbox();
        let driver = DriverState::new(inbox, Arc::default());
        let nothing = || StateHash::of_assigned(std::iter::empty(), std::iter::empty());
        let answers = async {
            let Some(Input::Greeting(answer)) = inputs.recv().await else { panic!("it is asked") };
            answer.send(AgentState { assigned: nothing(), observed: nothing() }).unwrap();
        };

        let (asked, ()) = tokio::join!(driver.ask(), answers);

        assert!(asked.is_ok_and(|state| state.is_some_and(|state| state.assigned == nothing())));
    }
}
