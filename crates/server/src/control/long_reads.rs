//! Reads that may scan a whole table: of events, which takes seconds, and text searches in processes.
//!
//! Promised: only a few run at once, so that they leave store connections to every other call; one per payer
//! (`shares`), whose further ones queue; a read keeps its turn until it ends, even if nobody waits for it any more.
//! Absent: a bound on waiters, which are calls, long polls and streams (`api::limits`); webhooks, which continue from
//! their cursor; what scans the fleet in memory (`api::heavy`).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shares::payer_of;

/// Half of the connections that read the store.
const AT_ONCE: usize = 2;

#[derive(Debug)]
pub(super) struct LongReads {
    turns: Arc<Semaphore>,
    /// Those that are reading or wait.
    by_payer: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Default for LongReads {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), by_payer: Mutex::default() }
    }
}

/// Leave to read, given back when it is dropped.
#[derive(Debug)]
pub(super) struct ReadTurn {
    _of_payer: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl LongReads {
    /// Of all payers, at most one of each waits in line with the others.
    pub(super) async fn turn(&self, account: &str) -> ReadTurn {
        let of_payer = acquired(self.of_payer(payer_of(account))).await;
        ReadTurn { _of_payer: of_payer, _of_all: acquired(self.turns.clone()).await }
    }

    fn of_payer(&self, payer: &str) -> Arc<Semaphore> {
        let mut by_payer = self.by_payer.lock();
        if let Some(own) = by_payer.get(payer).and_then(Weak::upgrade) {
            return own;
        }
        by_payer.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        by_payer.insert(payer.to_owned(), Arc::downgrade(&own));
        own
    }
}

async fn acquired(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use proctor_runtime::Tasks;
    use proctor_store::sqlite::SqliteStore;
    use proctor_store::{EventCountQuery, EventQuery, ProcessQuery};

    use super::*;
    use crate::control::{Caller, Control};

    #[tokio::test]
    async fn one_payer_waits_behind_its_own_and_all_together_take_a_part() {
        let reads = LongReads::default();
        let first = reads.turn("app\0ana").await;
        let mut own = Box::pin(reads.turn("app\0bob"));
        assert!(futures::poll!(&mut own).is_pending(), "another user of the same app");
        let second = reads.turn("\0ana").await;
        let mut third = Box::pin(reads.turn("other\0"));
        assert!(futures::poll!(&mut third).is_pending(), "some connections are left to other calls");

        drop(second);

        let third = futures::poll!(&mut third);
        assert!(third.is_ready() && futures::poll!(&mut own).is_pending());
        drop((first, third));
        drop(own.await);
        drop(reads.turn("next\0").await);
        assert_eq!(reads.by_payer.lock().len(), 1, "nothing is kept of who is gone");
    }

    #[tokio::test]
    async fn lists_and_counts_of_events_and_searches_take_turns() {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::default());
        let store = Arc::new(SqliteStore::open(&dir.path().join("test.db")).await.unwrap());
        let control = Control::start(store, &tasks).await.unwrap();
        let count = EventCountQuery { which: EventQuery::default(), from: 0, step_ms: NonZeroU32::MIN, steps: 1 };
        let [ana, bob] = ["ana", "bob"].map(Caller::local);
        let list = async |caller: &Caller| {
            let query = EventQuery { after: Some(0), ..EventQuery::default() };
            control.follow_events(&mut control.live_caller(caller.clone()), query, Duration::ZERO).await
        };
        let held = control.inner.long_reads.turn(&ana.account()).await;
        let mut waiting = [Box::pin(list(&ana)), Box::pin(list(&ana))];
        let mut counting = Box::pin(control.count_events(&ana, &count));
        let search = || ProcessQuery { text: Some("x".to_owned()), ..ProcessQuery::default() };
        let mut searching = Box::pin(control.processes(&ana, search(), None));
        for waiting in &mut waiting {
            assert!(futures::poll!(waiting).is_pending());
        }
        assert!(futures::poll!(&mut counting).is_pending() && futures::poll!(&mut searching).is_pending());

        let of_bob = list(&bob).await;

        assert!(of_bob.is_ok() && control.count_events(&bob, &count).await.is_ok());
        assert!(control.processes(&bob, search(), None).await.is_ok());
        assert!(
            futures::poll!(&mut counting).is_pending() && futures::poll!(&mut searching).is_pending(),
            "ana still reads"
        );
        drop(held);
        let [one, other] = waiting;
        // Together: a turn goes to who waited first.
        let (counted, found, one, other) = futures::join!(counting, searching, one, other);
        assert!(counted.is_ok() && found.is_ok() && one.is_ok() && other.is_ok());
        tasks.shutdown().cancel();
    }
}
