//! Processes: registrations with their generation and history, the last observation of each, and pools.
//!
//! Absent: usage, which lives in memory and on the hosts.

use std::sync::Arc;

use async_trait::async_trait;
use proctor_model::{AgentId, Namespace, Pool, PoolId, ProcessKey};

use crate::{
    AgentReport, Assignments, Fleet, HostState, Managed, Millis, Observation, PoolRecord, ProcessQuery, ProcessRecord,
    RegisterMode, Registered, Registration, Result, SpecRevision,
};

/// Registrations, observations and pools.
#[async_trait]
pub trait ProcessStore: Send + Sync + std::fmt::Debug {
    // Processes.

    /// One answer per registration, in order: [`Registered::NoHost`] if the agent is bound to no host. An upsert
    /// with an equal spec changes nothing.
    async fn register(
        &self,
        registrations: &[Registration],
        mode: RegisterMode,
        now: Millis,
    ) -> Result<Vec<Registered>>;
    /// For each, whether it was registered. Leaves a tombstone with a new generation.
    async fn unregister(&self, processes: &[(AgentId, ProcessKey)], now: Millis) -> Result<Vec<bool>>;
    /// The matching registered processes in the requested order, with their number before paging.
    async fn processes(&self, query: &ProcessQuery) -> Result<(u64, Vec<ProcessRecord>)>;
    /// Each of these, in order, from one snapshot of the store; None if it is not registered.
    async fn processes_at(&self, wanted: Vec<(AgentId, ProcessKey)>) -> Result<Vec<Option<ProcessRecord>>>;
    /// All hosts and processes at once. `before` is an earlier answer, which makes this one cheaper.
    async fn fleet(&self, before: Option<Arc<Fleet>>) -> Result<Fleet>;
    /// Newest revisions first, including the current one; the last 20 of each process are kept.
    async fn spec_history(&self, agent: &AgentId, key: &ProcessKey, limit: u32) -> Result<Vec<SpecRevision>>;
    /// What changed for each agent after its generation `since`, in the given order and from one snapshot of the
    /// store; includes tombstones unless `since` is 0. Processes and pools share one counter, so they are read
    /// together. Equal specs are shared, across agents too. An agent whose generation is older than a deleted
    /// tombstone gets everything ([`Assignments::all_through`]), as does one at 0.
    async fn assignments_of(&self, agents: Vec<(AgentId, u64)>) -> Result<Vec<Assignments>>;
    /// [`Self::assignments_of`] for one agent.
    async fn assignments(&self, agent: &AgentId, since: u64) -> Result<Assignments> {
        Ok(self.assignments_of(vec![(agent.clone(), since)]).await?.pop().unwrap_or_default())
    }
    /// A summary of what the store has for an agent's host; None if the agent is bound to no host. A process that
    /// was never observed, or not since digests were introduced, yields a hash that no agent has.
    async fn host_state(&self, agent: &AgentId) -> Result<Option<HostState>>;
    /// Stores the newest observations; drops those of an older epoch than the agent's and of processes that are not
    /// registered. For each observation of each report, whether it was stored.
    async fn observe_all(&self, reports: Vec<AgentReport>) -> Result<Vec<Vec<bool>>>;
    /// [`Self::observe_all`] for one agent.
    async fn observe(&self, agent: &AgentId, epoch: u64, observations: &[Observation]) -> Result<Vec<bool>> {
        let report = AgentReport { agent: agent.clone(), epoch, observations: observations.to_vec() };
        Ok(self.observe_all(vec![report]).await?.pop().unwrap_or_default())
    }
    /// The last observations of the agent's registered processes.
    async fn observations(&self, agent: &AgentId) -> Result<Vec<Observation>>;
    /// Records whether processes are managed, as their newest observations would; dropped if of an older epoch than
    /// the agent's.
    async fn keep_managed(&self, managed: &[Managed]) -> Result<()>;

    // Pools.

    /// One answer per agent: false if it is bound to no host.
    async fn set_pools(&self, agents: &[AgentId], pools: &[Pool], now: Millis) -> Result<Vec<bool>>;
    /// For each agent, whether it had the pool. The agent sees the deletion as a pool without limits.
    async fn delete_pool(
        &self,
        agents: &[AgentId],
        namespace: &Namespace,
        id: &PoolId,
        now: Millis,
    ) -> Result<Vec<bool>>;
    async fn pools(&self, namespace: Option<&Namespace>, agents: Option<&[AgentId]>) -> Result<Vec<PoolRecord>>;
}
