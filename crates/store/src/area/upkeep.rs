//! The store itself: whether it can be read and written, how large it is, and the deletion of what is old.

use std::time::Duration;

use async_trait::async_trait;
use proctor_model::AgentId;

use crate::{DiskSpace, Prune, Result, StoreStats, TableSize, Uptime};

/// Health, retention and sizes.
#[async_trait]
pub trait UpkeepStore: Send + Sync + std::fmt::Debug {
    // Health.

    /// Returns when the store can never be written again: every later change answers
    /// [`StoreError::Closed`](crate::StoreError::Closed).
    async fn closed(&self);
    /// Whether the store can be read.
    async fn check_readable(&self) -> Result<()>;
    /// Whether the store can be written: commits a small change that changes nothing, and asks for free
    /// space.
    async fn check_writable(&self) -> Result<()>;

    // Retention.

    /// Adds to the time that servers have run on this store and returns it. Called about once a minute.
    async fn advance_uptime(&self, by: Duration) -> Result<Uptime>;
    /// The generations that agents have on disk: tombstones up to there are no longer needed.
    async fn note_generations(&self, seen: &[(AgentId, u64)]) -> Result<()>;
    /// Deletes a slice of what is old and returns how many rows that were; 0: nothing is left to delete.
    async fn prune(&self, what: Prune) -> Result<u64>;
    /// What was done since the store was opened, and what it holds; without a look into it.
    fn stats(&self) -> StoreStats;
    /// What the file system of the store has; None where it does not say.
    async fn disk_space(&self) -> Result<Option<DiskSpace>>;
    /// What each table takes, the largest first.
    async fn sizes(&self) -> Result<Vec<TableSize>>;
}
