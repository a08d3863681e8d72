//! Plans for setting and deleting pools and unregistering processes.
//!
//! Whether hosts are connected and what members use comes from the fleet in memory, so it may be a few seconds old,
//! and is shown only if the caller may read it.

use std::collections::{HashMap, HashSet};

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{
    PlannedPool, PlannedUnregistration, PlannedUsage, PoolPlan, Refusal, SetPools, Unregistration, UnregistrationPlan,
};
use proctor_model::{
    AgentId, Class, FieldError, Namespace, Outcome, POOL_LABEL, Pool, PoolId, PoolLimits, ProcessKey, messages,
};
use proctor_store::{Fleet, FleetFilter, ProcessQuery};
use serde_json::Value;

use super::body::Body;
use super::caller::Authenticated;
use super::diff::changes;
use super::hosts::Chosen;
use super::localized::localized;
use super::pools::pools;
use super::{ApiState, Result};
use crate::control::{Caller, HostRef, PlannedHost, SeenFleet};

/// A plan is one answer: more hosts times pools are split by who asks.
const ROWS_MAX: usize = 100_000;

/// What setting pools would do.
#[utoipa::path(post, path = "/pools/plan", operation_id = "plan_pools", request_body = SetPools, tag = "pools",
               responses((status = 200, body = PoolPlan)))]
pub(super) async fn set_pools(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<SetPools>,
) -> Result<Json<PoolPlan>> {
    let pools = pools(body.pools)?;
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let hosts = chosen.where_enrolled(&state.control, &caller.who).await?;
    let rows = hosts.len().saturating_mul(pools.len());
    if rows > ROWS_MAX {
        return Err(FieldError::new("pools", messages::too_many_planned_rows(rows, ROWS_MAX)).into());
    }
    let planned = state.control.plan_pools(&caller.who, &hosts, &pools).await?;
    let wishes = pools.into_iter().map(|Pool { namespace, id, limits }| Wish { namespace, id, limits: Some(limits) });
    pool_plan(&state, &caller.who, wishes.collect(), hosts, planned).await
}

/// What deleting a pool would do.
#[utoipa::path(post, path = "/pools/{namespace}/{id}/delete/plan", operation_id = "plan_pool_deletion",
               params(("namespace" = String, Path), ("id" = String, Path)), request_body = Unregistration,
               tag = "pools", responses((status = 200, body = PoolPlan)))]
pub(super) async fn delete_pool(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, id)): Path<(String, String)>,
    Body(body): Body<Unregistration>,
) -> Result<Json<PoolPlan>> {
    let (namespace, id): (Namespace, PoolId) = (namespace.parse()?, id.parse()?);
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let hosts = chosen.where_pooled(&state.control, &caller.who, &namespace, &id).await?;
    let planned = state.control.plan_pool_deletion(&caller.who, &namespace, &id, &hosts).await?;
    pool_plan(&state, &caller.who, vec![Wish { namespace, id, limits: None }], hosts, planned).await
}

/// What unregistering a process would do.
#[utoipa::path(post, path = "/processes/{namespace}/{name}/unregister/plan", operation_id = "plan_unregistration",
               params(("namespace" = String, Path), ("name" = String, Path)), request_body = Unregistration,
               tag = "processes", responses((status = 200, body = UnregistrationPlan)))]
pub(super) async fn unregister(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Body(body): Body<Unregistration>,
) -> Result<Json<UnregistrationPlan>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let hosts = chosen.where_registered(&state.control, &caller.who, &key).await?;
    let planned = state.control.plan_unregistration(&caller.who, &key, &hosts).await?;
    let hosts = hosts.iter().zip(planned).map(|(host, planned)| {
        let (phase, online) = planned.seen.unzip();
        PlannedUnregistration { host: host.to_string(), phase, online, refused: planned.refused.map(refusal) }
    });
    Ok(Json(UnregistrationPlan { process: key.to_string(), hosts: hosts.collect() }))
}

/// A pool as it is to be; without limits it is to go.
struct Wish {
    namespace: Namespace,
    id: PoolId,
    limits: Option<PoolLimits>,
}

async fn pool_plan(
    state: &ApiState,
    caller: &Caller,
    wishes: Vec<Wish>,
    hosts: Vec<HostRef>,
    planned: Vec<PlannedHost>,
) -> Result<Json<PoolPlan>> {
    let who = caller.clone();
    let answer = move |seen: &SeenFleet| {
        let observed = Observed::of(&seen.fleet, &who, &wishes, &planned);
        let mut rows = Vec::with_capacity(hosts.len() * wishes.len());
        for (named, host) in hosts.iter().zip(&planned) {
            rows.extend(wishes.iter().map(|wish| row(named, host, wish, &observed)));
        }
        PoolPlan { pools: rows }
    };
    Ok(Json(state.border.fleet_work.run(&state.control, caller, answer).await?))
}

fn row(named: &HostRef, host: &PlannedHost, wish: &Wish, observed: &Observed<'_>) -> PlannedPool {
    let mut row = PlannedPool {
        host: named.to_string(),
        namespace: wish.namespace.clone(),
        id: wish.id.clone(),
        set: None,
        changes: Vec::new(),
        online: None,
        usage: None,
        refused: host.refused.clone().map(refusal),
    };
    if let Some(site) = host.site.as_ref().filter(|_| host.is_readable) {
        let before = host.before.iter().find(|pool| (&pool.namespace, &pool.id) == (&wish.namespace, &wish.id));
        row.set = Some(before.is_some());
        row.changes = changes(&json(before.map(|pool| &pool.limits)), &json(wish.limits.as_ref()));
        row.online = observed.online.get(&site.agent).copied();
        let of = (&site.agent, &wish.namespace, wish.id.as_str());
        row.usage = Some(observed.usage.get(&of).copied().unwrap_or_default());
    }
    row
}

fn json(limits: Option<&PoolLimits>) -> Value {
    let Some(PoolLimits { cpu, memory, cpu_weight, memory_weight, dry_run }) = limits else { return Value::Null };
    serde_json::json!({
        "cpu": cpu, "memory": memory, "cpu_weight": cpu_weight, "memory_weight": memory_weight, "dry_run": dry_run,
    })
}

fn refusal(Outcome { code, message, .. }: Outcome) -> Refusal {
    Refusal { code: code.number(), name: code.name().to_owned(), localized: localized(&message) }
}

/// What the caller may read of the hosts and of the members of their pools.
struct Observed<'a> {
    online: HashMap<&'a AgentId, bool>,
    usage: HashMap<(&'a AgentId, &'a Namespace, &'a str), PlannedUsage>,
}

impl<'a> Observed<'a> {
    fn of(fleet: &'a Fleet, caller: &Caller, wishes: &'a [Wish], planned: &'a [PlannedHost]) -> Self {
        let meant = planned.iter().filter(|host| host.is_readable).filter_map(|host| host.site.as_ref());
        let meant: HashSet<&AgentId> = meant.map(|site| &site.agent).collect();
        let online = fleet.hosts.iter().filter(|host| meant.contains(&host.site.agent));
        let online = online.map(|host| (&host.site.agent, host.online)).collect();
        let wanted: HashSet<(&Namespace, &str)> =
            wishes.iter().map(|wish| (&wish.namespace, wish.id.as_str())).collect();
        let of_namespaces: HashSet<&Namespace> = wishes.iter().map(|wish| &wish.namespace).collect();
        let is_near: Vec<bool> = fleet.keys.iter().map(|key| of_namespaces.contains(&key.namespace)).collect();
        let scopes = Some(caller.permissions.scopes(Class::Read).clone());
        let query = ProcessQuery { scopes, ..ProcessQuery::default() };
        let filter = FleetFilter::new(fleet, &query);
        let mut usage: HashMap<(&AgentId, &Namespace, &str), PlannedUsage> = HashMap::new();
        for process in fleet.processes.iter().filter(|process| is_near[process.key as usize]) {
            let agent = &fleet.host(process).site.agent;
            if !meant.contains(agent) || !filter.holds(process) {
                continue;
            }
            let namespace = &fleet.key(process).namespace;
            let labelled = fleet.spec(process).labels.get(POOL_LABEL);
            // A label that names the namespace puts nobody in twice.
            let labelled = labelled.filter(|id| *id != namespace.as_str());
            for id in [Some(namespace.as_str()), labelled].into_iter().flatten() {
                if wanted.contains(&(namespace, id)) {
                    let sum = usage.entry((agent, namespace, id)).or_default();
                    sum.members += 1;
                    sum.cpu_percent += f64::from(process.cpu);
                    sum.memory_percent += f64::from(process.memory);
                }
            }
        }
        Self { online, usage }
    }
}
