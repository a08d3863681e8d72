//! Upgrades of agents, and how far each host has come.
//!
//! Absent: who decides what comes next.

use async_trait::async_trait;
use uuid::Uuid;

use crate::{
    Millis, Result, Upgrade, UpgradeCount, UpgradeHost, UpgradeHostChange, UpgradeHostQuery, UpgradeTransition,
};

/// Upgrades of agents.
#[async_trait]
pub trait UpgradeStore: Send + Sync + std::fmt::Debug {
    /// Keeps a new upgrade with its hosts, in their order; refused with the id of one that is under way, or of which
    /// hosts are being upgraded.
    async fn begin_upgrade(&self, upgrade: Upgrade, hosts: Vec<UpgradeHost>) -> Result<std::result::Result<(), Uuid>>;
    /// The newest first.
    async fn upgrades(&self, limit: u32) -> Result<Vec<Upgrade>>;
    async fn upgrade(&self, id: Uuid) -> Result<Option<Upgrade>>;
    /// In their order.
    async fn upgrade_hosts(&self, id: Uuid) -> Result<Vec<UpgradeHost>>;
    /// In their order, each with its place in it, from 0.
    async fn upgrade_host_page(&self, id: Uuid, query: UpgradeHostQuery) -> Result<Vec<(u32, UpgradeHost)>>;
    /// By ring and state; what no host is in is left out.
    async fn upgrade_counts(&self, id: Uuid) -> Result<Vec<UpgradeCount>>;
    /// Changes the state where it is one that the transition is from; whether it was. With an end, hosts that wait are skipped.
    async fn set_upgrade_state(&self, id: Uuid, transition: UpgradeTransition, now: Millis) -> Result<bool>;
    /// All of them or none; hosts that are final stay as they are.
    async fn change_upgrade_hosts(&self, id: Uuid, changes: Vec<UpgradeHostChange>, now: Millis) -> Result<()>;
}
