//! How many commands start at the same time, by purpose: a storm of restarts must delay neither an operator's stop
//! nor health checks, and vice versa.
//!
//! Promised: waiters are served in order of arrival, within their patience; a slow command, or one that is the
//! process itself, delays nobody for longer than [`SLOT_HOLD_MAX`].
//! Absent: a bound on running commands. There is at most one per process.

use std::sync::Arc;
use std::time::Duration;

use proctor_host::{Command, Host};
use proctor_model::{CommandExit, CommandResult};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::execute::ended_by;

const OPERATIONS_MAX: usize = 64;
const SUPERVISION_MAX: usize = 64;
const QUESTIONS_MAX: usize = 16;
/// How long a command keeps its slot at most: long enough to pace starts, short enough for 64 slots not to limit a
/// burst of commands that are the process itself.
const SLOT_HOLD_MAX: Duration = Duration::from_millis(25);
/// How long supervision and questions wait; they come again.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct CommandSlots {
    operations: Arc<Semaphore>,
    supervision: Arc<Semaphore>,
    questions: Arc<Semaphore>,
}

/// Where one command waits.
#[derive(Clone, Debug)]
pub(super) struct SlotQueue {
    permits: Arc<Semaphore>,
    patience: Duration,
}

/// Held by a command that has just begun.
#[derive(Debug)]
pub(super) struct Slot(OwnedSemaphorePermit);

impl Default for CommandSlots {
    fn default() -> Self {
        let permits = |max| Arc::new(Semaphore::new(max));
        Self {
            operations: permits(OPERATIONS_MAX),
            supervision: permits(SUPERVISION_MAX),
            questions: permits(QUESTIONS_MAX),
        }
    }
}

impl CommandSlots {
    /// Slots that are taken by operations and by supervision.
    pub(super) fn used(&self) -> (usize, usize) {
        let used = |permits: &Semaphore, max: usize| max.saturating_sub(permits.available_permits());
        (used(&self.operations, OPERATIONS_MAX), used(&self.supervision, SUPERVISION_MAX))
    }

    /// For an operation with the time it has left; without one, for supervision.
    pub(super) fn of(&self, operation: Option<Duration>) -> SlotQueue {
        let permits = if operation.is_some() { &self.operations } else { &self.supervision };
        SlotQueue { permits: Arc::clone(permits), patience: operation.unwrap_or(PATIENCE) }
    }

    /// For version and health.
    pub(super) fn checks(&self) -> SlotQueue {
        SlotQueue { permits: Arc::clone(&self.questions), patience: PATIENCE }
    }
}

impl SlotQueue {
    /// None: no slot became free in time.
    pub(super) async fn wait(self) -> Option<Slot> {
        tokio::time::timeout(self.patience, self.permits.acquire_owned()).await.ok()?.ok().map(Slot)
    }

    pub(super) async fn run(self, host: &Host, command: Command) -> CommandExit {
        match self.wait().await {
            Some(slot) => slot.hold_during(host.run(command)).await,
            None => ended_by(CommandResult::NoSlot),
        }
    }
}

impl Slot {
    /// Waits for the work, and gives the slot to the next one meanwhile if it takes long.
    pub(super) async fn hold_during<T>(self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        if let Ok(done) = tokio::time::timeout(SLOT_HOLD_MAX, &mut work).await {
            return done;
        }
        drop(self.0);
        work.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn commands_that_never_end_hold_up_nobody_for_ever() {
        let queues = CommandSlots::default();
        let mut begun = tokio::task::JoinSet::new();
        for _ in 0..10 * OPERATIONS_MAX {
            let queue = queues.of(Some(Duration::from_secs(60)));
            begun.spawn(async move {
                let slot = queue.wait().await;
                let has_begun = slot.is_some();
                if let Some(slot) = slot {
                    slot.hold_during(tokio::time::sleep(Duration::from_secs(3600))).await;
                }
                has_begun
            });
        }

        assert!(begun.join_all().await.into_iter().all(|has_begun| has_begun));
    }

    /// As in the documentation, and not by a name that says whatever it is.
    const DOCUMENTED: usize = 64;

    #[tokio::test(start_paused = true)]
    async fn e6_of_ten_thousand_runs_at_once_sixty_four_begin_at_a_time_and_all_run() {
        let queues = CommandSlots::default();
        let (holding, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let begun = tokio::time::Instant::now();
        let mut runs = tokio::task::JoinSet::new();
        for number in 0..10_000_u64 {
            let (queue, holding, most) = (queues.of(None), holding.clone(), most.clone());
            runs.spawn(async move {
                let slot = loop {
                    // A run that finds no slot is retried, as its machine does.
                    if let Some(slot) = queue.clone().wait().await {
                        break slot;
                    }
                };
                most.fetch_max(holding.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                // Every tenth one takes a minute, of which it holds its slot for a moment.
                let takes = Duration::from_millis(if number % 10 == 0 { 60_000 } else { 50 });
                let released = tokio::time::sleep(takes.min(SLOT_HOLD_MAX));
                let counted = async {
                    released.await;
                    holding.fetch_sub(1, Ordering::Relaxed);
                };
                tokio::join!(slot.hold_during(tokio::time::sleep(takes)), counted);
            });
        }

        assert_eq!(runs.join_all().await.len(), 10_000);

        assert_eq!(most.load(Ordering::Relaxed), DOCUMENTED);
        // 9,000 runs of 50 ms and 1,000 that hold a slot for 25 ms, 64 at a time, and a minute for the last.
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(60 + 10), "long runs held up the others: {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_waits_as_long_as_it_has_time_and_supervision_comes_again() {
        let queues = CommandSlots::default();
        let (operation, supervision) = (queues.of(Some(Duration::from_secs(30))), queues.of(None));
        let held = operation.permits.acquire_many(64).await.unwrap();
        let also_held = supervision.permits.acquire_many(64).await.unwrap();
        let begun = tokio::time::Instant::now();

        assert!(supervision.clone().wait().await.is_none());
        assert_eq!(begun.elapsed(), PATIENCE);
        assert!(operation.clone().wait().await.is_none());
        assert_eq!(begun.elapsed(), PATIENCE + Duration::from_secs(30));
        drop((held, also_held));
        assert!(operation.wait().await.is_some());
    }
}
