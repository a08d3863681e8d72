//! The store itself: whether it can be read and written, how large it is, and pruning.

use std::time::Duration;

use async_trait::async_trait;
use proctor_model::AgentId;

use crate::{DiskSpace, Prune, Result, StoreStats, TableSize, Uptime};

/// Health, retention and sizes.
#[async_trait]
pub trait UpkeepStore: Send + Sync + std::fmt::Debug {
    // Health.

    /// Returns once the store can no longer be written: every later change answers
    /// [`StoreError::Closed`](crate::StoreError::Closed).
    async fn closed(&self);
    /// Whether the store can be read.
    async fn check_readable(&self) -> Result<()>;
    /// Whether the store can be written: commits a small write that changes nothing, and checks for free space.
    async fn check_writable(&self) -> Result<()>;

    // Retention.

    /// Adds to the total uptime of servers on this store and returns it. Called about once a minute.
    async fn advance_uptime(&self, by: Duration) -> Result<Uptime>;
    /// The generations that agents have on disk: tombstones up to these are no longer needed.
    async fn note_generations(&self, seen: &[(AgentId, u64)]) -> Result<()>;
    /// Deletes a slice of old rows and returns how many; 0: nothing is left to delete.
    async fn prune(&self, what: Prune) -> Result<u64>;
    /// What was done since the store was opened, and what it holds; does not query the store.
    fn stats(&self) -> StoreStats;
    /// Free and total space of the store's file system; None if it does not say.
    async fn disk_space(&self) -> Result<Option<DiskSpace>>;
    /// The size of each table, largest first.
    async fn sizes(&self) -> Result<Vec<TableSize>>;
}
