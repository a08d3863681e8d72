//! The store itself: its health and size; and rows that others render.

use std::collections::HashMap;

use proctor_model::{AgentId, Outcome, ProcessKey, TaskId};
use proctor_store::{DiskSpace, Result, SpecRevision, StoreStats, TableSize, TaskSummary, TaskView};

use crate::control::Control;

impl Control {
    pub(crate) async fn check_readable(&self) -> Result<()> {
        self.inner.store.check_readable().await
    }

    pub(crate) async fn check_writable(&self) -> Result<()> {
        self.inner.store.check_writable().await
    }

    pub(crate) fn store_stats(&self) -> StoreStats {
        self.inner.store.stats()
    }

    pub(crate) async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        self.inner.store.disk_space().await
    }

    /// What each table takes. Reads the whole file.
    pub(crate) async fn table_sizes(&self) -> Result<Vec<TableSize>> {
        self.inner.store.sizes().await
    }

    /// What was registered for a process, the newest first.
    pub(crate) async fn spec_history(
        &self,
        agent: &AgentId,
        key: &ProcessKey,
        limit: u32,
    ) -> Result<Vec<SpecRevision>> {
        self.inner.store.spec_history(agent, key, limit).await
    }

    /// How far a task is that the caller has just steered, and so knows.
    pub(crate) async fn steered_task(&self, id: TaskId) -> Result<Option<TaskSummary>> {
        self.inner.store.task_summary(id).await
    }

    /// A task whose summary the caller was allowed to read.
    pub(crate) async fn whole_task(&self, id: TaskId) -> Result<Option<TaskView>> {
        self.inner.store.task(id).await
    }

    /// The outcomes of such a task that are not among the known ones.
    pub(crate) async fn new_outcomes(&self, id: TaskId, known: &[bool]) -> Result<Vec<(u32, Outcome)>> {
        self.inner.store.new_outcomes(id, known).await
    }

    /// The ids that agents were bound to, by their own.
    pub(crate) async fn bound_ids(&self, agents: &[AgentId]) -> Result<HashMap<AgentId, AgentId>> {
        let sites = self.inner.store.sites_by_agent(agents).await?;
        Ok(sites.into_iter().flatten().filter_map(|site| Some((site.agent, site.alias?))).collect())
    }
}
