//! Processes and pools.

use futures::Stream;
use proctor_api::{
    DiffQuery, GroupPage, GroupQuery, HistoryQuery, LIMIT_MAX, LogQuery, LogView, PoolList, PoolPlan, PoolQuery,
    PoolSetting, PoolView, ProcessPage, ProcessQuery, ProcessView, RegisterQuery, RegistrationPlan, Revision, Row,
    Rows, SetPools, ShowQuery, SpecDiff, SpecHistory, Unregistration, UnregistrationPlan, UsageQuery, UsageView,
};
use proctor_model::{Namespace, PoolId, ProcessKey};
use reqwest::Method;
use serde_json::Value;

use crate::paging::pages;
use crate::{Client, NOTHING, Result};

/// Which hosts a call is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Where the process is registered; for pools, every enrolled host.
    All,
    /// As All, but only those of this business.
    Business(u64),
    /// Each an IP address, CLOUD:IP or an agent id.
    These(Vec<String>),
}

impl Hosts {
    /// The fields of a body that say so: hosts, all and business.
    pub fn into_fields(self) -> (Option<Vec<String>>, bool, Option<u64>) {
        match self {
            Self::All => (None, true, None),
            Self::Business(business) => (None, false, Some(business)),
            Self::These(hosts) => (Some(hosts), false, None),
        }
    }
}

impl Client {
    /// One page of the registered processes.
    pub async fn processes(&self, query: &ProcessQuery) -> Result<ProcessPage> {
        self.get(&["processes"], query).await
    }

    /// All registered processes that match.
    pub fn all_processes<'a>(&'a self, query: &'a ProcessQuery) -> impl Stream<Item = Result<ProcessView>> + 'a {
        pages(move |after: Option<String>| async move {
            let after = after.or_else(|| query.after.clone());
            let page = self.processes(&ProcessQuery { after, ..query.clone() }).await?;
            Ok((page.processes, page.next))
        })
    }

    /// One page of the registered processes, each once with totals over its hosts.
    pub async fn process_groups(&self, query: &GroupQuery) -> Result<GroupPage> {
        self.get(&["processes", "groups"], query).await
    }

    /// A page of the hosts where a process is registered, with its spec and last snapshot.
    pub async fn process(&self, key: &ProcessKey, query: &ShowQuery) -> Result<ProcessPage> {
        self.get(&["processes", key.namespace.as_str(), key.name.as_str()], query).await
    }

    /// `body` has the shape of register_proc_info: meta, hosts, spec.
    pub async fn register(&self, body: &Value) -> Result<Vec<Row>> {
        let rows: Rows = self.send(Method::POST, &["processes"], NOTHING, body).await?;
        Ok(rows.rows)
    }

    /// As [`Self::register`], and replaces the spec where the process is registered already.
    pub async fn register_or_update(&self, body: &Value) -> Result<Vec<Row>> {
        let update = RegisterQuery { update: Some(true) };
        let rows: Rows = self.send(Method::POST, &["processes"], &update, body).await?;
        Ok(rows.rows)
    }

    /// What [`Self::register_or_update`] would change.
    pub async fn plan_registration(&self, body: &Value) -> Result<RegistrationPlan> {
        self.send(Method::POST, &["processes", "plan"], NOTHING, body).await
    }

    pub async fn unregister(&self, key: &ProcessKey, hosts: &Hosts) -> Result<Vec<Row>> {
        let (hosts, all, business) = hosts.clone().into_fields();
        let body = Unregistration { hosts, all, business };
        let path = ["processes", key.namespace.as_str(), key.name.as_str()];
        let rows: Rows = self.send(Method::DELETE, &path, NOTHING, &body).await?;
        Ok(rows.rows)
    }

    /// What [`Self::unregister`] would do.
    pub async fn plan_unregistration(&self, key: &ProcessKey, hosts: &Hosts) -> Result<UnregistrationPlan> {
        let (hosts, all, business) = hosts.clone().into_fields();
        let body = Unregistration { hosts, all, business };
        let path = ["processes", key.namespace.as_str(), key.name.as_str(), "unregister", "plan"];
        self.send(Method::POST, &path, NOTHING, &body).await
    }

    /// The last specs of a process on a host, newest first.
    pub async fn spec_history(&self, key: &ProcessKey, host: &str) -> Result<Vec<Revision>> {
        let query = HistoryQuery { host: host.to_owned() };
        let path = ["processes", key.namespace.as_str(), key.name.as_str(), "history"];
        let history: SpecHistory = self.get(&path, &query).await?;
        Ok(history.revisions)
    }

    /// The resource use of a process on a host.
    pub async fn usage(&self, key: &ProcessKey, query: &UsageQuery) -> Result<UsageView> {
        self.get(&["processes", key.namespace.as_str(), key.name.as_str(), "usage"], query).await
    }

    /// The end of a process's log on a host.
    pub async fn log(&self, key: &ProcessKey, query: &LogQuery) -> Result<LogView> {
        self.get(&["processes", key.namespace.as_str(), key.name.as_str(), "log"], query).await
    }

    pub async fn spec_diff(&self, key: &ProcessKey, query: &DiffQuery) -> Result<SpecDiff> {
        self.get(&["processes", key.namespace.as_str(), key.name.as_str(), "diff"], query).await
    }

    /// All pools that match.
    pub async fn pools(&self, query: &PoolQuery) -> Result<Vec<PoolView>> {
        let mut query = PoolQuery { limit: Some(LIMIT_MAX), ..query.clone() };
        let mut pools = Vec::new();
        loop {
            let mut page: PoolList = self.get(&["pools"], &query).await?;
            pools.append(&mut page.pools);
            query.after = page.next;
            if query.after.is_none() {
                return Ok(pools);
            }
        }
    }

    pub async fn set_pools(&self, hosts: &Hosts, pools: &[PoolSetting]) -> Result<Vec<Row>> {
        let (hosts, all, business) = hosts.clone().into_fields();
        let body = SetPools { hosts, all, business, pools: pools.to_vec() };
        let rows: Rows = self.send(Method::PUT, &["pools"], NOTHING, &body).await?;
        Ok(rows.rows)
    }

    pub async fn delete_pool(&self, namespace: &Namespace, id: &PoolId, hosts: &Hosts) -> Result<Vec<Row>> {
        let (hosts, all, business) = hosts.clone().into_fields();
        let body = Unregistration { hosts, all, business };
        let path = ["pools", namespace.as_str(), id.as_str()];
        let rows: Rows = self.send(Method::DELETE, &path, NOTHING, &body).await?;
        Ok(rows.rows)
    }

    /// What [`Self::set_pools`] would do.
    pub async fn plan_pools(&self, hosts: &Hosts, pools: &[PoolSetting]) -> Result<PoolPlan> {
        let (hosts, all, business) = hosts.clone().into_fields();
        let body = SetPools { hosts, all, business, pools: pools.to_vec() };
        self.send(Method::POST, &["pools", "plan"], NOTHING, &body).await
    }

    /// What [`Self::delete_pool`] would do.
    pub async fn plan_pool_deletion(&self, namespace: &Namespace, id: &PoolId, hosts: &Hosts) -> Result<PoolPlan> {
        let (hosts, all, business) = hosts.clone().into_fields();
        let body = Unregistration { hosts, all, business };
        let path = ["pools", namespace.as_str(), id.as_str(), "delete", "plan"];
        self.send(Method::POST, &path, NOTHING, &body).await
    }
}
