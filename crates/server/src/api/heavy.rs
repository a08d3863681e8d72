//! Work that would block a worker, and every other call on it, for milliseconds.
//!
//! Promised: it runs on the blocking pool, with a limit per kind; a caller that waits too long for a turn is told to
//! retry.
//! Absent: permissions.

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{Class, Message, messages};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{ApiError, Problem};
use super::language::Language;
use super::limits::Quota;
use crate::control::{Caller, Control, SeenFleet};

/// A caller that waits longer is told to retry.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Answers that go through the whole fleet.
const FLEET_AT_ONCE: usize = 2;

/// One kind of work.
#[derive(Clone, Debug)]
pub(super) struct Heavy {
    turns: Arc<Semaphore>,
    /// The response to a caller that has waited too long.
    too_many: Message,
}

impl Heavy {
    pub(super) fn new(at_once: usize, too_many: Message) -> Self {
        Self { turns: Arc::new(Semaphore::new(at_once)), too_many }
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turn().await?;
        in_turn(turn, work).await
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let turn = tokio::time::timeout(WAIT_MAX, self.turns.clone().acquire_owned()).await;
        Ok(turn.map_err(|_| ApiError::busy(self.too_many.clone()))?.expect("the semaphore is never closed"))
    }

    #[cfg(test)]
    pub(super) fn turns(&self) -> &Arc<Semaphore> {
        &self.turns
    }
}

/// The turn goes with the work: a caller that disconnects does not end it.
async fn in_turn<T: Send + 'static>(
    turn: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let language = Language::current();
    let done = tokio::task::spawn_blocking(move || {
        let done = language.within(work);
        drop(turn);
        done
    });
    done.await.map_err(|_| ApiError::new(Problem::Internal, messages::server_failed()))
}

/// Queries that scan the whole fleet: no caller holds more than a share of the queue, and waiting ones hold no copy
/// of the fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetWork {
    heavy: Heavy,
    questions: Quota,
}

impl Default for FleetWork {
    fn default() -> Self {
        let heavy = Heavy::new(FLEET_AT_ONCE, messages::too_many_fleet_questions());
        Self { heavy, questions: Quota::fleet_questions() }
    }
}

impl FleetWork {
    pub(super) async fn run<T: Send + 'static>(
        &self,
        control: &Control,
        caller: &Caller,
        work: impl FnOnce(&SeenFleet) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        caller.require_anywhere(Class::Read)?;
        let _permit = self.questions.take(caller)?;
        let turn = self.heavy.turn().await?;
        let seen = control.fleet(caller).await?;
        in_turn(turn, move || work(&seen)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_leaves_the_worker_and_waits_for_its_turn() {
        let (heavy, worker) = (FleetWork::default().heavy, std::thread::current().id());

        let elsewhere = heavy.run(|| std::thread::current().id()).await.unwrap();
        let taken = heavy.turns.acquire_many(u32::try_from(FLEET_AT_ONCE).unwrap()).await.unwrap();
        let refused = heavy.run(|| ()).await.unwrap_err();
        drop(taken);

        assert_ne!(elsewhere, worker);
        assert!(refused.message.starts_with("too many concurrent queries"), "{}", refused.message);
        assert!(heavy.run(|| ()).await.is_ok());
    }
}
