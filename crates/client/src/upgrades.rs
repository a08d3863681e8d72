//! Builds, and upgrades of agents.

use proctor_api::{BuildList, BuildView, NewUpgrade, UpgradeDetail, UpgradeList, UpgradePlanView, UpgradeView};
use reqwest::Method;

use crate::{Client, NOTHING, Result};

impl Client {
    /// The agent programs that the server holds.
    pub async fn builds(&self) -> Result<Vec<BuildView>> {
        let list: BuildList = self.get(&["builds"], NOTHING).await?;
        Ok(list.builds)
    }

    /// What an upgrade would do; nothing changes.
    pub async fn plan_upgrade(&self, upgrade: &NewUpgrade) -> Result<UpgradePlanView> {
        self.send(Method::POST, &["upgrades", "plan"], NOTHING, upgrade).await
    }

    pub async fn start_upgrade(&self, upgrade: &NewUpgrade) -> Result<UpgradeView> {
        self.send(Method::POST, &["upgrades"], NOTHING, upgrade).await
    }

    /// The newest first.
    pub async fn upgrades(&self) -> Result<Vec<UpgradeView>> {
        let list: UpgradeList = self.get(&["upgrades"], NOTHING).await?;
        Ok(list.upgrades)
    }

    pub async fn upgrade(&self, id: &str) -> Result<UpgradeDetail> {
        self.get(&["upgrades", id], NOTHING).await
    }

    pub async fn pause_upgrade(&self, id: &str) -> Result<UpgradeView> {
        self.steer_upgrade(id, "pause").await
    }

    pub async fn resume_upgrade(&self, id: &str) -> Result<UpgradeView> {
        self.steer_upgrade(id, "resume").await
    }

    pub async fn cancel_upgrade(&self, id: &str) -> Result<UpgradeView> {
        self.steer_upgrade(id, "cancel").await
    }

    async fn steer_upgrade(&self, id: &str, how: &str) -> Result<UpgradeView> {
        self.send_request(self.request(Method::POST, self.url(&["upgrades", id, how], NOTHING))).await
    }
}
