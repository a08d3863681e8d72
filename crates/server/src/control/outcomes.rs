//! The loops that bring targets to their end: recorder and sweeper.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, OperationId, Outcome, ProcessKey};
use proctor_runtime::{chain, clock};
use proctor_store::Managed;
use tokio::sync::mpsc;

use super::{Control, SWEEP_PERIOD, is_full, maintenance};

/// Outcomes written in one transaction.
pub(super) const BATCH_MAX: usize = 500;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An outcome that an agent has sent.
#[derive(Debug)]
pub(super) struct ReceivedOutcome {
    pub(super) operation: OperationId,
    pub(super) outcome: Outcome,
    pub(super) agent: AgentId,
    pub(super) epoch: u64,
    pub(super) key: ProcessKey,
}

impl ReceivedOutcome {
    fn managed(&self) -> Managed {
        let Self { agent, epoch, key, outcome, .. } = self;
        Managed { agent: agent.clone(), epoch: *epoch, key: key.clone(), managed: outcome.managed }
    }
}

impl Control {
    /// Writes outcomes in batches; an agent gets its acknowledgement only after the write.
    pub(super) async fn record_outcomes(self, mut receiver: mpsc::Receiver<ReceivedOutcome>) {
        let mut arrived = Vec::with_capacity(BATCH_MAX);
        while receiver.recv_many(&mut arrived, BATCH_MAX).await > 0 {
            let managed = arrived.iter().map(ReceivedOutcome::managed).collect();
            let batch: Vec<_> = arrived.drain(..).map(|arrived| (arrived.operation, arrived.outcome)).collect();
            // Begun together and in this order, they share a commit.
            futures::join!(self.keep_managed(managed), self.record(&batch));
        }
    }

    /// Management is recorded before anybody learns that a start has succeeded: an agent that loses its ledger right
    /// afterwards gets it again. If this fails, the next observation says the same.
    async fn keep_managed(&self, managed: Vec<Managed>) {
        if let Err(error) = self.inner.store.keep_managed(&managed).await {
            tracing::warn!(%error, "cannot store managed flags");
        }
        for Managed { agent, key, .. } in &managed {
            if let Some(session) = self.inner.sessions.get(agent) {
                session.usage().forget(key);
            }
        }
    }

    /// Tries until it is written: agents wait, and nothing is acknowledged before.
    pub(super) async fn record(&self, batch: &[(OperationId, Outcome)]) {
        let recorded = loop {
            match self.inner.store.record_outcomes(batch, clock::unix_millis()).await {
                Ok(recorded) => break recorded,
                Err(error) if is_full(&error) => tracing::error!("store full: outcomes wait for space"),
                Err(error) => tracing::error!(error = %chain(&error), "cannot record outcomes"),
            }
            tokio::time::sleep(RETRY_AFTER).await;
        };
        self.inner.metrics.outcomes(batch.iter().map(|(_, outcome)| outcome.code));
        self.trace_outcomes(batch);
        let closed = self.inner.dispatch.lock().close(batch.iter().map(|(operation, _)| operation));
        self.inner.rollouts.ended(batch, &recorded);
        let now = Instant::now();
        for (agent, operations) in closed {
            if let Some(session) = self.inner.sessions.get(&agent) {
                self.inner.acknowledgements.owe(session, operations, now);
            }
        }
        self.tell_due(self.is_rush());
    }

    /// What waits for the end of a rush.
    fn tell_due(&self, is_rush: bool) {
        let now = Instant::now();
        self.inner.wakes.wake(self.inner.acknowledgements.take_due(is_rush, now));
        self.inner.reports.tell_due(is_rush, now);
    }

    pub(super) async fn record_all(&self, outcomes: &[(OperationId, Outcome)]) {
        for batch in outcomes.chunks(BATCH_MAX) {
            self.record(batch).await;
        }
    }

    /// Ends what waits on hosts that were cordoned since, as if it had been requested now.
    async fn end_cordoned(&self) {
        let cordoned = self.inner.cordons.agents(clock::unix_millis());
        let waiting = if cordoned.is_empty() { Vec::new() } else { self.inner.dispatch.lock().waiting_for(&cordoned) };
        if waiting.is_empty() {
            return;
        }
        let agents: BTreeSet<_> = waiting.iter().filter_map(|target| target.agent.clone()).collect();
        match self.sites_of(agents.into_iter().collect()).await {
            Ok(sites) => {
                let mut refused = maintenance::parted(waiting, &sites).1;
                // What was delivered meanwhile runs, and its agent reports the result.
                {
                    let mut dispatch = self.inner.dispatch.lock();
                    refused.retain(|(operation, _)| dispatch.end_waiting(operation));
                }
                self.record_all(&refused).await;
            }
            Err(error) => tracing::warn!(%error, "cordons not read; trying again"),
        }
    }

    /// Ends the targets whose agent is absent or whose time is over.
    pub(super) async fn sweep(self) {
        let mut period = tokio::time::interval(SWEEP_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            self.tell_lost().await;
            let open = self.inner.dispatch.lock().rush_count();
            self.tell_due(self.inner.rush.is_on_after_sweep(open));
            for budget in [&self.inner.budgets.refusals, &self.inner.budgets.unchanged] {
                self.write_refusals(budget.ended(Instant::now())).await;
            }
            self.tell_dropped_events().await;
            self.inner.fleet.forget_unused();
            self.end_cordoned().await;
            let overdue = self.inner.dispatch.lock().overdue(Instant::now(), |agent| self.absence(agent));
            for batch in overdue.chunks(BATCH_MAX) {
                self.record(batch).await;
            }
        }
    }
}
