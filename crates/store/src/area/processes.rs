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

    /// One answer for each registration, in order. Registrations of agents that are bound to no
    /// host answer [`Registered::NoHost`]. An upsert with an equal spec changes nothing.
    async fn register(
        &self,
        registrations: &[Registration],
        mode: RegisterMode,
        now: Millis,
    ) -> Result<Vec<Registered>>;
    /// For each, whether it was registered. Leaves a tombstone with a new generation.
    async fn unregister(&self, processes: &[(AgentId, ProcessKey)], now: Millis) -> Result<Vec<bool>>;
    /// The matching registered processes in the order that is asked for, with their number before paging.
    async fn processes(&self, query: &ProcessQuery) -> Result<(u64, Vec<ProcessRecord>)>;
    /// Each of these, in order and from one moment of the store; None where it is not registered.
    async fn processes_at(&self, wanted: Vec<(AgentId, ProcessKey)>) -> Result<Vec<Option<ProcessRecord>>>;
    /// All hosts and processes at once. `before` is an earlier answer, which makes this one quicker.
    async fn fleet(&self, before: Option<Arc<Fleet>>) -> Result<Fleet>;
    /// The newest revisions first, the present one included; of one process the last 20 are kept.
    async fn spec_history(&self, agent: &AgentId, key: &ProcessKey, limit: u32) -> Result<Vec<SpecRevision>>;
    /// What changed for each agent after its generation `since`, tombstones included unless `since` is
    /// 0, in the order of the question and from one moment of the store. Processes and pools share one counter, so they
    /// are read together. Equal specs are one, also of different agents. To an agent whose generation is older than a
    /// tombstone that was deleted, everything is told ([`Assignments::all_through`]), as to one at 0.
    async fn assignments_of(&self, agents: Vec<(AgentId, u64)>) -> Result<Vec<Assignments>>;
    /// As [`Self::assignments_of`], of one agent.
    async fn assignments(&self, agent: &AgentId, since: u64) -> Result<Assignments> {
        Ok(self.assignments_of(vec![(agent.clone(), since)]).await?.pop().unwrap_or_default())
    }
    /// What the store has of an agent's host, in short; None for an agent that is bound to no host. A process of which
    /// nothing was observed, or nothing since before digests were kept, makes a hash that no agent has.
    async fn host_state(&self, agent: &AgentId) -> Result<Option<HostState>>;
    /// Keeps the newest observations; those of an older epoch than the agent's, and of processes
    /// that are not registered, are dropped. For each of each report, whether it was kept.
    async fn observe_all(&self, reports: Vec<AgentReport>) -> Result<Vec<Vec<bool>>>;
    /// As [`Self::observe_all`], of one agent.
    async fn observe(&self, agent: &AgentId, epoch: u64, observations: &[Observation]) -> Result<Vec<bool>> {
        let report = AgentReport { agent: agent.clone(), epoch, observations: observations.to_vec() };
        Ok(self.observe_all(vec![report]).await?.pop().unwrap_or_default())
    }
    /// The last observations of the agent's registered processes.
    async fn observations(&self, agent: &AgentId) -> Result<Vec<Observation>>;
    /// As the newest observations of these processes would say it; of an older epoch than the agent's:
    /// dropped.
    async fn keep_managed(&self, managed: &[Managed]) -> Result<()>;

    // Pools.

    /// One answer for each agent: false for one that is bound to no host.
    async fn set_pools(&self, agents: &[AgentId], pools: &[Pool], now: Millis) -> Result<Vec<bool>>;
    /// For each agent, whether it had the pool. The agent learns of it as of a pool without limits.
    async fn delete_pool(
        &self,
        agents: &[AgentId],
        namespace: &Namespace,
        id: &PoolId,
        now: Millis,
    ) -> Result<Vec<bool>>;
    async fn pools(&self, namespace: Option<&Namespace>, agents: Option<&[AgentId]>) -> Result<Vec<PoolRecord>>;
}
