//! Upgrades of agents, and the progress of each host.
//!
//! Absent: deciding what comes next.

use async_trait::async_trait;
use uuid::Uuid;

use crate::{
    Millis, Result, Upgrade, UpgradeCount, UpgradeHost, UpgradeHostChange, UpgradeHostQuery, UpgradeTransition,
};

/// Upgrades of agents.
#[async_trait]
pub trait UpgradeStore: Send + Sync + std::fmt::Debug {
    /// Stores a new upgrade with its hosts, in order; refused with the id of an upgrade that is in progress or
    /// still has hosts being upgraded.
    async fn begin_upgrade(&self, upgrade: Upgrade, hosts: Vec<UpgradeHost>) -> Result<std::result::Result<(), Uuid>>;
    /// The newest first.
    async fn upgrades(&self, limit: u32) -> Result<Vec<Upgrade>>;
    async fn upgrade(&self, id: Uuid) -> Result<Option<Upgrade>>;
    /// In their order.
    async fn upgrade_hosts(&self, id: Uuid) -> Result<Vec<UpgradeHost>>;
    /// In their order, each with its index, from 0.
    async fn upgrade_host_page(&self, id: Uuid, query: UpgradeHostQuery) -> Result<Vec<(u32, UpgradeHost)>>;
    /// By ring and state; what no host is in is left out.
    async fn upgrade_counts(&self, id: Uuid) -> Result<Vec<UpgradeCount>>;
    /// Changes the state if it is one that the transition starts from; returns whether it was. If this ends the
    /// upgrade, waiting hosts are skipped.
    async fn set_upgrade_state(&self, id: Uuid, transition: UpgradeTransition, now: Millis) -> Result<bool>;
    /// All or nothing; hosts in a final state stay as they are.
    async fn change_upgrade_hosts(&self, id: Uuid, changes: Vec<UpgradeHostChange>, now: Millis) -> Result<()>;
}
