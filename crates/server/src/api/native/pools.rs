//! Pools: limits that processes of one namespace on one host share.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{PoolList, PoolMember, PoolQuery, PoolSetting, PoolUsage, PoolView, Rows, SetPools, Unregistration};
use proctor_model::{AgentId, FieldError, Namespace, Pool, PoolId, PoolLimits, messages};
use proctor_store::{PoolRecord, ProcessQuery, ProcessRecord};
use serde::{Deserialize, Serialize};

use super::body::{Body, Params, page_limit};
use super::caller::Authenticated;
use super::hosts::{Chosen, parse_host_param};
use super::registration::rows;
use super::{ApiState, Result, cursor};
use crate::control::{Caller, POOLS_MAX};

/// A page with usage asks the store once for each namespace: it ends before one more.
const USAGE_NAMESPACES_MAX: usize = 50;

/// The pools of hosts, page by page, on request with the usage of their members.
#[utoipa::path(get, path = "/pools", operation_id = "pools", params(PoolQuery), tag = "pools",
               responses((status = 200, body = PoolList)))]
pub(super) async fn list(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<PoolQuery>,
) -> Result<Json<PoolList>> {
    let limit = page_limit(query.limit)? as usize;
    if limit == 0 {
        return Err(FieldError::new("limit", messages::must_be_at_least_1()).into());
    }
    let with_usage = query.usage == Some(true);
    let after: Option<PoolCursor> = cursor::decode(query.after.as_deref())?;
    let namespace: Option<Namespace> = query.namespace.as_deref().map(str::parse).transpose()?;
    let hosts = parse_host_param(query.host.as_deref())?.map(|host| [host]);
    let hosts = hosts.as_ref().map(<[_; 1]>::as_slice);
    let records = state.control.pools(&caller.who, namespace.as_ref(), hosts).await?;
    let mut records: Vec<PoolRecord> = records
        .into_iter()
        .skip_while(|record| after.as_ref().is_some_and(|after| PoolCursor::of(record) <= *after))
        .collect();
    let fitting = if with_usage { limit.min(fitting_with_usage(&records)) } else { limit };
    let has_more = records.len() > fitting;
    records.truncate(fitting);
    let next = records.last().filter(|_| has_more).map(|last| cursor::encode(&PoolCursor::of(last)));
    let mut pools: Vec<PoolView> = records.into_iter().map(view).collect();
    if with_usage {
        let members = neighbours(&state, &caller.who, &pools).await?;
        add_usage(&mut pools, &members);
    }
    Ok(Json(PoolList { pools, next }))
}

/// How many of the records, which are sorted by their namespaces, a page with usage can hold.
fn fitting_with_usage(records: &[PoolRecord]) -> usize {
    let by_namespace = records.chunk_by(|one, next| one.pool.namespace == next.pool.namespace);
    by_namespace.take(USAGE_NAMESPACES_MAX).map(<[PoolRecord]>::len).sum()
}

/// Of a pool in the list.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct PoolCursor {
    namespace: String,
    id: String,
    cloud: u32,
    ip: String,
}

impl PoolCursor {
    fn of(PoolRecord { host, pool, .. }: &PoolRecord) -> Self {
        let (namespace, id) = (pool.namespace.to_string(), pool.id.to_string());
        Self { namespace, id, cloud: host.cloud, ip: host.ip.to_string() }
    }
}

/// The processes that can be members: those of a pool's namespace on hosts that have one of it.
async fn neighbours(state: &ApiState, caller: &Caller, pools: &[PoolView]) -> Result<Vec<ProcessRecord>> {
    let mut agents_by_namespace: BTreeMap<&Namespace, BTreeSet<&AgentId>> = BTreeMap::new();
    for pool in pools {
        agents_by_namespace.entry(&pool.namespace).or_default().insert(&pool.agent);
    }
    let mut found = Vec::new();
    for (namespace, agents) in agents_by_namespace {
        let agents = agents.into_iter().cloned().collect();
        let query =
            ProcessQuery { namespace: Some(namespace.clone()), agents: Some(agents), ..ProcessQuery::default() };
        found.append(&mut state.control.processes(caller, query, None).await?.1);
    }
    Ok(found)
}

fn view(PoolRecord { host, agent, pool }: PoolRecord) -> PoolView {
    PoolView {
        host: host.to_string(),
        agent,
        namespace: pool.namespace,
        id: pool.id,
        cpu: pool.limits.cpu,
        memory: pool.limits.memory,
        cpu_weight: pool.limits.cpu_weight,
        memory_weight: pool.limits.memory_weight,
        dry_run: pool.limits.dry_run,
        usage: None,
    }
}

fn add_usage(pools: &mut [PoolView], processes: &[ProcessRecord]) {
    let mut by_namespace: HashMap<(&AgentId, &Namespace), Vec<&ProcessRecord>> = HashMap::new();
    for process in processes {
        by_namespace.entry((&process.agent, &process.key.namespace)).or_default().push(process);
    }
    for pool in pools {
        let neighbours = by_namespace.get(&(&pool.agent, &pool.namespace)).into_iter().flatten();
        let members = neighbours
            .filter(|process| pool.id.has_member(&pool.namespace, &process.spec.labels))
            .filter_map(|process| member(process));
        let mut usage = PoolUsage { members: members.collect(), ..PoolUsage::default() };
        for member in &usage.members {
            usage.cpu_percent += member.cpu_percent;
            usage.memory_percent += member.memory_percent;
        }
        pool.usage = Some(usage);
    }
}

/// None before it was seen.
fn member(process: &ProcessRecord) -> Option<PoolMember> {
    let snapshot = process.snapshot.as_ref()?;
    Some(PoolMember {
        process: process.key.to_string(),
        pid: snapshot.pid,
        cpu_percent: snapshot.usage.cpu_percent,
        memory_percent: snapshot.usage.memory_percent,
        memory_bytes: snapshot.usage.memory_bytes,
        reported_at: snapshot.reported_at,
    })
}

/// Sets pools on hosts; those of the same namespace and id are replaced.
#[utoipa::path(put, path = "/pools", operation_id = "set_pools", request_body = SetPools, tag = "pools",
               responses((status = 200, body = Rows)))]
pub(super) async fn set(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<SetPools>,
) -> Result<Json<Rows>> {
    let pools = pools(body.pools)?;
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let hosts = chosen.where_enrolled(&state.control, &caller.who).await?;
    let outcomes = state.control.set_pools(&caller.who, &hosts, &pools).await?;
    Ok(rows(&hosts, outcomes))
}

/// Deletes a pool from hosts. Its members keep their own limits.
#[utoipa::path(delete, path = "/pools/{namespace}/{id}", operation_id = "delete_pool",
               params(("namespace" = String, Path), ("id" = String, Path)), request_body = Unregistration,
               tag = "pools", responses((status = 200, body = Rows)))]
pub(super) async fn delete(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, id)): Path<(String, String)>,
    Body(body): Body<Unregistration>,
) -> Result<Json<Rows>> {
    let (namespace, id): (Namespace, PoolId) = (namespace.parse()?, id.parse()?);
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let hosts = chosen.where_pooled(&state.control, &caller.who, &namespace, &id).await?;
    let outcomes = state.control.delete_pool(&caller.who, &namespace, &id, &hosts).await?;
    Ok(rows(&hosts, outcomes))
}

pub(super) fn pools(settings: Vec<PoolSetting>) -> std::result::Result<Vec<Pool>, FieldError> {
    if settings.is_empty() {
        return Err(FieldError::new("pools", messages::must_not_be_empty()));
    }
    if settings.len() > POOLS_MAX {
        return Err(FieldError::new("pools", messages::too_many_pools(POOLS_MAX)));
    }
    let mut seen = HashSet::new();
    for (index, pool) in settings.iter().enumerate() {
        if !seen.insert((&pool.namespace, &pool.id)) {
            let problem = messages::pool_is_there_twice(&pool.id, &pool.namespace);
            return Err(FieldError::new(format!("pools[{index}]"), problem));
        }
    }
    Ok(settings.into_iter().map(pool).collect())
}

fn pool(setting: PoolSetting) -> Pool {
    let PoolSetting { namespace, id, cpu, memory, cpu_weight, memory_weight, dry_run } = setting;
    Pool { namespace, id, limits: PoolLimits { cpu, memory, cpu_weight, memory_weight, dry_run } }
}
