//! Upgrades of agents.

use async_trait::async_trait;
use uuid::Uuid;

use crate::sqlite::{SqliteStore, upgrades};
use crate::{
    Millis, Result, Upgrade, UpgradeCount, UpgradeHost, UpgradeHostChange, UpgradeHostQuery, UpgradeStore,
    UpgradeTransition,
};

#[async_trait]
impl UpgradeStore for SqliteStore {
    async fn begin_upgrade(&self, upgrade: Upgrade, hosts: Vec<UpgradeHost>) -> Result<std::result::Result<(), Uuid>> {
        self.writer.run("begin an upgrade", move |c| upgrades::begin(c, &upgrade, &hosts)).await
    }

    async fn upgrades(&self, limit: u32) -> Result<Vec<Upgrade>> {
        self.readers.run("read the upgrades", move |c| upgrades::newest(c, limit)).await
    }

    async fn upgrade(&self, id: Uuid) -> Result<Option<Upgrade>> {
        self.readers.run("read an upgrade", move |c| upgrades::find(c, id)).await
    }

    async fn upgrade_hosts(&self, id: Uuid) -> Result<Vec<UpgradeHost>> {
        let all = UpgradeHostQuery::default();
        let hosts = self.readers.run("read the hosts of an upgrade", move |c| upgrades::hosts(c, id, all)).await?;
        Ok(hosts.into_iter().map(|(_, host)| host).collect())
    }

    async fn upgrade_host_page(&self, id: Uuid, query: UpgradeHostQuery) -> Result<Vec<(u32, UpgradeHost)>> {
        self.readers.run("read hosts of an upgrade", move |c| upgrades::hosts(c, id, query)).await
    }

    async fn upgrade_counts(&self, id: Uuid) -> Result<Vec<UpgradeCount>> {
        self.readers.run("count the hosts of an upgrade", move |c| upgrades::counts(c, id)).await
    }

    async fn set_upgrade_state(&self, id: Uuid, transition: UpgradeTransition, now: Millis) -> Result<bool> {
        self.writer.run("change an upgrade", move |c| upgrades::set_state(c, id, &transition, now)).await
    }

    async fn change_upgrade_hosts(&self, id: Uuid, changes: Vec<UpgradeHostChange>, now: Millis) -> Result<()> {
        self.writer.run("change hosts of an upgrade", move |c| upgrades::change_hosts(c, id, &changes, now)).await
    }
}
