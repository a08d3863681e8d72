//! What a change of registrations or pools would do, host by host, before anything is changed.
//!
//! Promised: a host is refused here exactly as the change would refuse it, so a plan reveals no more than the change
//! itself. What only readers may know (phases, whether a host is connected) is omitted for others. A plan counts
//! against what a caller may plan per hour.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use proctor_model::{AgentId, Class, Namespace, Outcome, Phase, Pool, PoolId, ProcessKey};
use proctor_store::{HostLocation, PoolRecord};

use super::access::Spot;
use super::processes::{no_pool, not_registered};
use super::{Caller, Control, HostRef, Result, never_enrolled};

/// What forgetting a process on one host would do.
#[derive(Clone, Debug)]
pub struct PlannedUnregistration {
    /// Where the process stands and whether its host is connected; None where the caller may not read that.
    pub seen: Option<(Phase, bool)>,
    pub refused: Option<Outcome>,
}

/// What is set on one host before a change of its pools.
#[derive(Clone, Debug)]
pub struct PlannedHost {
    /// None where it is refused.
    pub site: Option<HostLocation>,
    /// The pools that the change is about, as they are.
    pub before: Vec<Pool>,
    /// Whether the caller may know how they are.
    pub is_readable: bool,
    pub refused: Option<Outcome>,
}

impl Control {
    /// One for each host, in the caller's order.
    pub async fn plan_unregistration(
        &self,
        caller: &Caller,
        key: &ProcessKey,
        hosts: &[HostRef],
    ) -> Result<Vec<PlannedUnregistration>> {
        caller.require_anywhere(Class::Read)?;
        self.inner.budgets.take_planned(caller, hosts.len(), Instant::now())?;
        let namespace = key.namespace.clone();
        let refusal =
            |spot: &Spot<'_>, _: bool| caller.refused(Class::Register, spot, std::slice::from_ref(&namespace));
        let (sites, refusals) = self.judged(hosts, refusal).await?;
        let agents: BTreeSet<&AgentId> = sites.iter().flatten().map(|site| &site.agent).collect();
        let keys = agents.into_iter().map(|agent| (agent.clone(), key.clone())).collect();
        let registered = self.processes_at(keys).await?.into_iter().flatten();
        let registered: HashMap<AgentId, (Phase, bool)> = registered
            .map(|record| {
                let phase = record.snapshot.as_ref().map_or(Phase::Unknown, |snapshot| snapshot.phase);
                (record.agent, (phase, record.online))
            })
            .collect();
        let plan = |((named, site), refused): ((&HostRef, Option<HostLocation>), Option<Outcome>)| {
            let Some(site) = site else {
                return PlannedUnregistration { seen: None, refused: refused.or_else(|| Some(never_enrolled(named))) };
            };
            let now = registered.get(&site.agent).copied();
            let refused = refused.or_else(|| now.is_none().then(|| not_registered(key)));
            PlannedUnregistration {
                seen: now.filter(|_| caller.is_allowed(Class::Read, &site, Some(&namespace))),
                refused,
            }
        };
        Ok(hosts.iter().zip(sites).zip(refusals).map(plan).collect())
    }

    /// One for each host, in the caller's order.
    pub async fn plan_pools(&self, caller: &Caller, hosts: &[HostRef], pools: &[Pool]) -> Result<Vec<PlannedHost>> {
        let rows = hosts.len().saturating_mul(pools.len());
        let namespaces: BTreeSet<Namespace> = pools.iter().map(|pool| pool.namespace.clone()).collect();
        let namespaces: Vec<Namespace> = namespaces.into_iter().collect();
        let is_meant =
            |pool: &Pool| pools.iter().any(|each| (&each.namespace, &each.id) == (&pool.namespace, &pool.id));
        self.planned_hosts(caller, hosts, &namespaces, rows, is_meant).await
    }

    /// As [`Self::plan_pools`], for a pool that is to be deleted.
    pub async fn plan_pool_deletion(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        id: &PoolId,
        hosts: &[HostRef],
    ) -> Result<Vec<PlannedHost>> {
        let is_meant = |pool: &Pool| pool.id == *id;
        let namespaces = std::slice::from_ref(namespace);
        let mut planned = self.planned_hosts(caller, hosts, namespaces, hosts.len(), is_meant).await?;
        for host in planned.iter_mut().filter(|host| host.refused.is_none() && host.before.is_empty()) {
            host.refused = Some(no_pool(namespace, id));
        }
        Ok(planned)
    }

    async fn planned_hosts(
        &self,
        caller: &Caller,
        hosts: &[HostRef],
        namespaces: &[Namespace],
        rows: usize,
        is_meant: impl Fn(&Pool) -> bool,
    ) -> Result<Vec<PlannedHost>> {
        caller.require_anywhere(Class::Read)?;
        self.inner.budgets.take_planned(caller, rows, Instant::now())?;
        let refusal = |spot: &Spot<'_>, _: bool| caller.refused(Class::Limits, spot, namespaces);
        let (sites, refusals) = self.judged(hosts, refusal).await?;
        let agents: BTreeSet<AgentId> = sites.iter().flatten().map(|site| site.agent.clone()).collect();
        let agents: Vec<AgentId> = agents.into_iter().collect();
        let only = if let [only] = namespaces { Some(only) } else { None };
        let mut before: HashMap<AgentId, Vec<Pool>> = HashMap::new();
        for PoolRecord { agent, pool, .. } in self.inner.store.pools(only, Some(&agents)).await? {
            if is_meant(&pool) {
                before.entry(agent).or_default().push(pool);
            }
        }
        let plan = |((named, site), refused): ((&HostRef, Option<HostLocation>), Option<Outcome>)| {
            let refused = refused.or_else(|| site.is_none().then(|| never_enrolled(named)));
            let site = site.filter(|_| refused.is_none());
            let is_read = |site: &HostLocation, of: &Namespace| caller.is_allowed(Class::Read, site, Some(of));
            let is_readable = site.as_ref().is_some_and(|site| namespaces.iter().all(|of| is_read(site, of)));
            let before = site.as_ref().and_then(|site| before.get(&site.agent)).cloned().unwrap_or_default();
            PlannedHost { site, before, is_readable, refused }
        };
        Ok(hosts.iter().zip(sites).zip(refusals).map(plan).collect())
    }
}
