//! Registrations, observations and pools.

use std::sync::Arc;

use async_trait::async_trait;
use proctor_model::{AgentId, Namespace, Pool, PoolId, ProcessKey};
use rusqlite::Connection;

use crate::sqlite::column::SpecReader;
use crate::sqlite::registrations::Since;
use crate::sqlite::{SqliteStore, fleet, host_state, pools, processes, registrations};
use crate::{
    AgentReport, Assignments, Fleet, HostState, Managed, Millis, Observation, PoolRecord, ProcessQuery, ProcessRecord,
    ProcessStore, RegisterMode, Registered, Registration, Result, SpecRevision,
};

#[async_trait]
impl ProcessStore for SqliteStore {
    async fn register(
        &self,
        registrations: &[Registration],
        mode: RegisterMode,
        now: Millis,
    ) -> Result<Vec<Registered>> {
        let registrations = registrations.to_vec();
        self.writer.run("register processes", move |c| registrations::register(c, &registrations, mode, now)).await
    }

    async fn unregister(&self, processes: &[(AgentId, ProcessKey)], now: Millis) -> Result<Vec<bool>> {
        let processes = processes.to_vec();
        self.writer.run("unregister processes", move |c| registrations::unregister(c, &processes, now)).await
    }

    async fn processes(&self, query: &ProcessQuery) -> Result<(u64, Vec<ProcessRecord>)> {
        let query = query.clone();
        self.readers.run("read the processes", move |c| processes::list(c, &query)).await
    }

    async fn processes_at(&self, keys: Vec<(AgentId, ProcessKey)>) -> Result<Vec<Option<ProcessRecord>>> {
        self.readers.run("read some processes", move |c| processes::at(c, &keys)).await
    }

    async fn fleet(&self, before: Option<Arc<Fleet>>) -> Result<Fleet> {
        self.readers.run("read the fleet", move |c| fleet::read(c, before.as_deref())).await
    }

    async fn spec_history(&self, agent: &AgentId, key: &ProcessKey, limit: u32) -> Result<Vec<SpecRevision>> {
        let (agent, key) = (agent.clone(), key.clone());
        self.readers.run("read the history of a process", move |c| registrations::history(c, &agent, &key, limit)).await
    }

    async fn assignments_of(&self, agents: Vec<(AgentId, u64)>) -> Result<Vec<Assignments>> {
        let read = move |c: &Connection| {
            let mut specs = SpecReader::default();
            let of_agent = |(agent, since): (AgentId, u64)| {
                let all_through = registrations::forgotten_since(c, &agent, since)?;
                let registered = if all_through.is_some() { 0 } else { since };
                let since = Since { registered, tombstones: since };
                let processes = processes::assignments(c, &mut specs, &agent, since)?;
                Ok(Assignments { processes, pools: pools::assignments(c, &agent, since)?, all_through })
            };
            agents.into_iter().map(of_agent).collect()
        };
        self.readers.run("read what changed for agents", read).await
    }

    async fn host_state(&self, agent: &AgentId) -> Result<Option<HostState>> {
        let agent = agent.clone();
        self.readers.run("read the state of a host", move |c| host_state::read(c, &agent)).await
    }

    async fn observe_all(&self, reports: Vec<AgentReport>) -> Result<Vec<Vec<bool>>> {
        self.writer.run("keep observations", move |c| processes::observe(c, &reports)).await
    }

    async fn observations(&self, agent: &AgentId) -> Result<Vec<Observation>> {
        let agent = agent.clone();
        self.readers.run("read the observations of an agent", move |c| processes::observations(c, &agent)).await
    }

    async fn keep_managed(&self, managed: &[Managed]) -> Result<()> {
        let managed = managed.to_vec();
        self.writer.run("keep who is managed", move |c| processes::keep_managed(c, &managed)).await
    }

    async fn set_pools(&self, agents: &[AgentId], pools: &[Pool], now: Millis) -> Result<Vec<bool>> {
        let (agents, pools) = (agents.to_vec(), pools.to_vec());
        self.writer.run("set pools", move |c| pools::set(c, &agents, &pools, now)).await
    }

    async fn delete_pool(
        &self,
        agents: &[AgentId],
        namespace: &Namespace,
        id: &PoolId,
        now: Millis,
    ) -> Result<Vec<bool>> {
        let (agents, namespace, id) = (agents.to_vec(), namespace.clone(), id.clone());
        self.writer.run("remove a pool", move |c| pools::delete(c, &agents, &namespace, &id, now)).await
    }

    async fn pools(&self, namespace: Option<&Namespace>, agents: Option<&[AgentId]>) -> Result<Vec<PoolRecord>> {
        let (namespace, agents) = (namespace.cloned(), agents.map(<[_]>::to_vec));
        self.readers.run("read the pools", move |c| pools::list(c, namespace.as_ref(), agents.as_deref())).await
    }
}
