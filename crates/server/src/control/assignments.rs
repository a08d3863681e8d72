//! What agents do not know yet, read for many of them at once.
//!
//! Promised: a call that registers something on the whole fleet, or a reconnecting fleet, costs one store read per
//! [`BATCH_MAX`] agents; what was committed before a session asked is in its answer.
//! Absent: sending it (see `gateway::session`).

use proctor_model::AgentId;
use proctor_store::Assignments;
use tokio::sync::{mpsc, oneshot};

use super::{Control, ControlError, Result, Session};

/// Agents of one read: what all of them must learn is in memory at once.
const BATCH_MAX: usize = 64;
/// Sessions that wait for the reader; beyond it they wait for a slot here.
pub(super) const QUEUED_MAX: usize = 1024;

/// A session that wants to know.
#[derive(Debug)]
pub(super) struct Wanted {
    agent: AgentId,
    since: u64,
    answer: oneshot::Sender<Assignments>,
}

impl Control {
    /// What the agent does not know yet, from this generation on.
    pub async fn assignments(&self, session: &Session, since: u64) -> Result<Assignments> {
        let (answer, answered) = oneshot::channel();
        let wanted = Wanted { agent: session.agent().clone(), since, answer };
        self.inner.assignments.send(wanted).await.map_err(|_| ControlError::ShuttingDown)?;
        match answered.await {
            Ok(assignments) => Ok(assignments),
            // The read failed for all of them; this one's error from the store is returned.
            Err(_) => Ok(self.inner.store.assignments(session.agent(), since).await?),
        }
    }

    pub(super) async fn read_assignments(self, mut wanted: mpsc::Receiver<Wanted>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while wanted.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let agents = batch.iter().map(|wanted| (wanted.agent.clone(), wanted.since)).collect();
            let Ok(read) = self.inner.store.assignments_of(agents).await else {
                batch.clear();
                continue;
            };
            for (wanted, assignments) in batch.drain(..).zip(read) {
                // A session that has ended meanwhile needs none.
                let _ = wanted.answer.send(assignments);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proctor_model::BootId;
    use proctor_runtime::Tasks;
    use proctor_store::sqlite::SqliteStore;
    use proctor_store::{SessionOpening, Store};

    use super::*;
    use crate::control::Greeting;

    #[tokio::test]
    async fn sessions_that_ask_at_the_same_time_share_reads_of_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("store.db")).await.unwrap());
        let tasks = Tasks::default();
        let control = Control::start(store.clone(), &tasks).await.unwrap();
        let session = |number: usize| {
            let agent = format!("a-{number}").parse().unwrap();
            Session::new(Greeting::new(SessionOpening::new(agent, String::new()), BootId::from("boot")), 1)
        };
        let sessions: Vec<_> = (0..300).map(session).collect();

        let read = futures::future::join_all(sessions.iter().map(|session| control.assignments(session, 0))).await;

        assert!(read.iter().all(|read| read.as_ref().is_ok_and(|read| *read == Assignments::default())));
        let stats = store.stats();
        let reads = stats.operations.iter().find(|operation| operation.what == "read what changed for agents").unwrap();
        assert!(reads.count <= 300_u64.div_ceil(BATCH_MAX as u64) + 1, "{} reads for 300 sessions", reads.count);
        assert!(tasks.end(std::time::Duration::from_secs(60)).await);
    }
}
