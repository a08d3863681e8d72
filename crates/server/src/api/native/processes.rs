//! Registered processes: listed, shown with everything that is kept, registered, unregistered.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{
    ProcessPage, ProcessQuery, ProcessView, Refusal, RegisterQuery, Registration, RegistrationChange, RegistrationPlan,
    Row, Rows, ShowQuery, Unregistration,
};
use proctor_model::{AgentId, Code, Outcome, ProcessKey};
use proctor_store::{HostRecord, ProcessRecord, RegisterMode};

use super::body::{Body, Params, page_limit};
use super::caller::Authenticated;
use super::diff::diff;
use super::hosts::{Chosen, not_registered, parse_host_param};
use super::{ApiState, Result, cursor};
use crate::api::gse::decode::registration;
use crate::control::HostRef;

/// Registered processes, with what was last seen of them.
#[utoipa::path(get, path = "/processes", operation_id = "processes", params(ProcessQuery), tag = "processes",
               responses((status = 200, body = ProcessPage)))]
pub(super) async fn list(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<ProcessQuery>,
) -> Result<Json<ProcessPage>> {
    let limit = page_limit(query.limit)?;
    let offset: u64 = cursor::decode(query.after.as_deref())?.unwrap_or(0);
    let hosts = parse_host_param(query.host.as_deref())?.map(|host| [host]);
    let hosts = hosts.as_ref().map(<[_; 1]>::as_slice);
    let wanted = proctor_store::ProcessQuery {
        namespace: query.namespace.as_deref().map(str::parse).transpose()?,
        name: query.name.as_deref().map(str::parse).transpose()?,
        offset,
        limit: Some(u64::from(limit)),
        ..Default::default()
    };
    let (count, records) = state.control.processes(wanted, hosts).await?;
    let view = if query.full == Some(true) { full } else { brief };
    Ok(Json(page(records, count, offset, view)))
}

/// A process on every host where it is registered, with everything that is kept.
#[utoipa::path(get, path = "/processes/{namespace}/{name}", operation_id = "process", params(ShowQuery),
               params(("namespace" = String, Path), ("name" = String, Path)), tag = "processes",
               responses((status = 200, body = ProcessPage)))]
pub(super) async fn show(
    _: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Params(query): Params<ShowQuery>,
) -> Result<Json<ProcessPage>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let limit = page_limit(query.limit)?;
    let offset: u64 = cursor::decode(query.after.as_deref())?.unwrap_or(0);
    let hosts = parse_host_param(query.host.as_deref())?.map(|host| [host]);
    let wanted = proctor_store::ProcessQuery {
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        offset,
        limit: Some(u64::from(limit)),
        ..Default::default()
    };
    let (count, records) = state.control.processes(wanted, hosts.as_ref().map(<[_; 1]>::as_slice)).await?;
    if count == 0 {
        return Err(not_registered(&key));
    }
    Ok(Json(page(records, count, offset, full)))
}

fn page(records: Vec<ProcessRecord>, count: u64, offset: u64, view: fn(ProcessRecord) -> ProcessView) -> ProcessPage {
    let end = offset + records.len() as u64;
    let next = (end < count && !records.is_empty()).then(|| cursor::encode(&end));
    ProcessPage { processes: records.into_iter().map(view).collect(), next }
}

fn full(record: ProcessRecord) -> ProcessView {
    let (registered_at, spec, snapshot) = (record.registered_at, record.spec.clone(), record.snapshot.clone());
    ProcessView { registered_at: Some(registered_at / 1000), spec: Some((*spec).clone()), snapshot, ..brief(record) }
}

fn brief(record: ProcessRecord) -> ProcessView {
    let snapshot = record.snapshot.unwrap_or_default();
    ProcessView {
        process: record.key.to_string(),
        host: record.host.to_string(),
        agent: record.agent,
        online: record.online,
        business: None,
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
        registered_at: None,
        spec: None,
        snapshot: None,
    }
}

/// Registers a process on hosts, or replaces its spec. The body is that of register_proc_info.
#[utoipa::path(post, path = "/processes", operation_id = "register", params(RegisterQuery),
               request_body = Registration, tag = "processes", responses((status = 200, body = Rows)))]
pub(super) async fn register(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<RegisterQuery>,
    Body(body): Body<Registration>,
) -> Result<Json<Rows>> {
    let mode = if query.update == Some(true) { RegisterMode::Upsert } else { RegisterMode::Create };
    let (process, spec) = registration(&body.0)?;
    let outcomes = state.control.register(&process.key, &spec, &process.hosts, mode).await?;
    Ok(rows(&process.hosts, outcomes))
}

/// What a registration with `update=true` would change.
#[utoipa::path(post, path = "/processes/plan", operation_id = "plan_registration", request_body = Registration,
               tag = "processes", responses((status = 200, body = RegistrationPlan)))]
pub(super) async fn plan(
    _: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<Registration>,
) -> Result<Json<RegistrationPlan>> {
    let (process, spec) = registration(&body.0)?;
    let hosts = state.control.resolve(&process.hosts).await?;
    let query = proctor_store::ProcessQuery {
        namespace: Some(process.key.namespace.clone()),
        name: Some(process.key.name.clone()),
        ..Default::default()
    };
    let (_, records) = state.control.processes(query, Some(&process.hosts)).await?;
    let registered: HashMap<&AgentId, &ProcessRecord> = records.iter().map(|record| (&record.agent, record)).collect();
    let change = |(named, host): (&HostRef, Option<HostRecord>)| {
        let known = host.as_ref().and_then(|host| registered.get(&host.agent));
        let refused = host.is_none().then(|| Refusal {
            code: Code::AgentAbsent.number(),
            name: Code::AgentAbsent.name().to_owned(),
            message: format!("host {named} has never enrolled an agent"),
        });
        let changes = if refused.is_some() { Vec::new() } else { diff(known.map(|record| &*record.spec), Some(&spec)) };
        RegistrationChange { host: named.to_string(), registered: known.is_some(), changes, refused }
    };
    let hosts = process.hosts.iter().zip(hosts).map(change).collect();
    Ok(Json(RegistrationPlan { process: process.key.to_string(), hosts }))
}

/// Forgets a process on hosts. A managed one is released and lives on.
#[utoipa::path(delete, path = "/processes/{namespace}/{name}", operation_id = "unregister",
               params(("namespace" = String, Path), ("name" = String, Path)), request_body = Unregistration,
               tag = "processes", responses((status = 200, body = Rows)))]
pub(super) async fn unregister(
    _: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Body(body): Body<Unregistration>,
) -> Result<Json<Rows>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let hosts = chosen.where_registered(&state.control, &key).await?;
    let outcomes = state.control.unregister(&key, &hosts).await?;
    Ok(rows(&hosts, outcomes))
}

/// One row for each host, in the caller's order.
pub(super) fn rows(hosts: &[HostRef], outcomes: Vec<Outcome>) -> Json<Rows> {
    let row = |(host, outcome): (&HostRef, Outcome)| Row {
        host: host.to_string(),
        code: outcome.code.number(),
        name: outcome.code.name().to_owned(),
        message: outcome.message,
    };
    Json(Rows { rows: hosts.iter().zip(outcomes).map(row).collect() })
}
