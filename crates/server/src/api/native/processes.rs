//! Registered processes: listed, shown with everything that is kept, registered, unregistered.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use proctor_model::{AgentId, Lifetime, Outcome, Phase, ProcessKey, Snapshot, Spec};
use proctor_store::{ProcessQuery, ProcessRecord, RegisterMode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::{Body, Params, flag_param, number_param, only};
use super::caller::Authenticated;
use super::hosts::{Chosen, not_registered, parse_host};
use super::{ApiState, Result};
use crate::api::gse::decode::registration;
use crate::control::HostRef;

/// Rows in one answer at most, and where the caller does not say.
const PAGE_MAX: u64 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    namespace: Option<String>,
    name: Option<String>,
    host: Option<String>,
    offset: Option<String>,
    limit: Option<String>,
    full: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageParams {
    offset: Option<String>,
    limit: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegisterParams {
    update: Option<String>,
}

#[derive(Serialize)]
pub(super) struct ProcessPage {
    count: u64,
    processes: Vec<ProcessView>,
}

#[derive(Serialize)]
struct ProcessView {
    process: String,
    host: String,
    agent: AgentId,
    online: bool,
    phase: Phase,
    managed: bool,
    pid: Option<i32>,
    cpu_percent: f64,
    memory_percent: f64,
    started_at: i64,
    restarts: u32,
    version: String,
    reason: String,
    lifetime: Lifetime,
    generation: u64,
    #[serde(flatten)]
    whole: Option<Whole>,
}

/// What only the full form has.
#[derive(Serialize)]
struct Whole {
    registered_at: i64,
    spec: Arc<Spec>,
    snapshot: Option<Snapshot>,
}

impl ProcessView {
    fn brief(record: ProcessRecord) -> Self {
        Self::new(&record)
    }

    fn full(record: ProcessRecord) -> Self {
        let brief = Self::new(&record);
        let whole = Whole { registered_at: record.registered_at / 1000, spec: record.spec, snapshot: record.snapshot };
        Self { whole: Some(whole), ..brief }
    }

    fn new(record: &ProcessRecord) -> Self {
        let snapshot = record.snapshot.clone().unwrap_or_default();
        Self {
            process: record.key.to_string(),
            host: record.host.to_string(),
            agent: record.agent.clone(),
            online: record.online,
            phase: snapshot.phase,
            managed: snapshot.managed,
            pid: snapshot.pid,
            cpu_percent: snapshot.usage.cpu_percent,
            memory_percent: snapshot.usage.memory_percent,
            started_at: snapshot.started_at,
            restarts: snapshot.restarts,
            version: snapshot.version,
            reason: snapshot.reason,
            lifetime: record.spec.policy.lifetime,
            generation: record.generation,
            whole: None,
        }
    }
}

pub(super) async fn list(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(params): Params<ListParams>,
) -> Result<Json<ProcessPage>> {
    let query = ProcessQuery {
        namespace: params.namespace.as_deref().map(str::parse).transpose()?,
        name: params.name.as_deref().map(str::parse).transpose()?,
        offset: number_param("offset", params.offset.as_deref(), 0)?,
        limit: Some(number_param("limit", params.limit.as_deref(), PAGE_MAX)?.min(PAGE_MAX)),
        ..ProcessQuery::default()
    };
    let host = params.host.as_deref().map(parse_host).transpose().map_err(|error| error.inside("host"))?;
    let view = if flag_param("full", params.full.as_deref())? { ProcessView::full } else { ProcessView::brief };
    let hosts = host.map(|host| [host]);
    let (count, records) = state.control.processes(query, hosts.as_ref().map(<[_; 1]>::as_slice)).await?;
    Ok(Json(ProcessPage { count, processes: records.into_iter().map(view).collect() }))
}

pub(super) async fn show(
    _: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Params(params): Params<PageParams>,
) -> Result<Json<ProcessPage>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let query = ProcessQuery {
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        offset: number_param("offset", params.offset.as_deref(), 0)?,
        limit: Some(number_param("limit", params.limit.as_deref(), PAGE_MAX)?.min(PAGE_MAX)),
        ..ProcessQuery::default()
    };
    let (count, records) = state.control.processes(query, None).await?;
    if count == 0 {
        return Err(not_registered(&key));
    }
    Ok(Json(ProcessPage { count, processes: records.into_iter().map(ProcessView::full).collect() }))
}

/// The body is that of register_proc_info, also for an update.
pub(super) async fn register(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(params): Params<RegisterParams>,
    Body(body): Body,
) -> Result<Json<Value>> {
    let mode = match flag_param("update", params.update.as_deref())? {
        true => RegisterMode::Upsert,
        false => RegisterMode::Create,
    };
    let (process, spec) = registration(&body)?;
    let outcomes = state.control.register(&process.key, &spec, &process.hosts, mode).await?;
    Ok(rows(&process.hosts, outcomes))
}

pub(super) async fn unregister(
    _: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Body(body): Body,
) -> Result<Json<Value>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let chosen = Chosen::of(only(&body, &["hosts", "all"])?)?;
    let hosts = chosen.where_registered(&state.control, &key).await?;
    let outcomes = state.control.unregister(&key, &hosts).await?;
    Ok(rows(&hosts, outcomes))
}

/// One row for each host, in the caller's order.
pub(super) fn rows(hosts: &[HostRef], outcomes: Vec<Outcome>) -> Json<Value> {
    let rows: Vec<Value> = hosts
        .iter()
        .zip(outcomes)
        .map(|(host, outcome)| {
            json!({
                "host": host.to_string(),
                "code": outcome.code,
                "name": outcome.code.name(),
                "message": outcome.message,
            })
        })
        .collect();
    Json(json!({ "rows": rows }))
}
