//! Businesses, business sets, and the hosts placed in them.

use proctor_model::HostKey;
use proctor_store::{Business, BusinessSet, Result};

use super::Changed;
use crate::control::Control;

impl Control {
    pub(crate) async fn businesses(&self) -> Result<Vec<Business>> {
        self.inner.store.businesses().await
    }

    pub(crate) async fn put_business(&self, business: Business) -> Result<()> {
        self.inner.store.put_business(business).await
    }

    pub(crate) async fn delete_business(&self, id: u64) -> Result<bool> {
        self.inner.store.delete_business(id).await
    }

    pub(crate) async fn business_sets(&self) -> Result<Vec<BusinessSet>> {
        self.inner.store.business_sets().await
    }

    pub(crate) async fn put_business_set(&self, set: BusinessSet) -> Changed {
        self.inner.store.put_business_set(set).await
    }

    pub(crate) async fn delete_business_set(&self, id: u64) -> Result<bool> {
        self.inner.store.delete_business_set(id).await
    }

    /// Where hosts are placed, known or not, in the order of the question.
    pub(crate) async fn placements(&self, hosts: &[HostKey]) -> Result<Vec<Option<u64>>> {
        self.inner.store.placements(hosts).await
    }

    pub(crate) async fn place_hosts(&self, placements: &[(HostKey, Option<u64>)]) -> Changed {
        self.inner.store.place_hosts(placements).await
    }

    pub(crate) async fn import_hosts(&self, businesses: &[Business], placements: &[(HostKey, Option<u64>)]) -> Changed {
        self.inner.store.import_hosts(businesses, placements).await
    }
}
