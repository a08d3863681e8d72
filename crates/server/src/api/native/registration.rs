//! Registers, plans and unregisters processes.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{
    Refusal, RegisterQuery, Registration, RegistrationChange, RegistrationPlan, Row, Rows, Unregistration,
};
use proctor_model::{AgentId, FieldError, Outcome, ProcessKey, Spec};
use proctor_store::{HostLocation, ProcessQuery, ProcessRecord, RegisterMode};

use super::body::{Body, Params};
use super::caller::Authenticated;
use super::diff::diff;
use super::hosts::Chosen;
use super::localized::localized;
use super::{ApiState, Result};
use crate::api::gse::decode::{Process, registration};
use crate::control::{HostRef, never_enrolled};

/// Registers a process on hosts, or replaces its spec. The body is that of register_proc_info.
#[utoipa::path(post, path = "/processes", operation_id = "register", params(RegisterQuery),
               request_body = Registration, tag = "processes", responses((status = 200, body = Rows)))]
pub(super) async fn register(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<RegisterQuery>,
    Body(body): Body<Registration>,
) -> Result<Json<Rows>> {
    let mode = if query.update == Some(true) { RegisterMode::Upsert } else { RegisterMode::Create };
    let (process, spec) = read(&body)?;
    let outcomes = state.control.register(&caller.who, &process.key, &spec.into(), &process.hosts, mode).await?;
    Ok(rows(&process.hosts, outcomes))
}

/// What a registration with `update=true` would change.
#[utoipa::path(post, path = "/processes/plan", operation_id = "plan_registration", request_body = Registration,
               tag = "processes", responses((status = 200, body = RegistrationPlan)))]
pub(super) async fn plan(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<Registration>,
) -> Result<Json<RegistrationPlan>> {
    let (process, spec) = read(&body)?;
    let hosts = state.control.readable_sites(&caller.who, &process.hosts, Some(&process.key.namespace)).await?;
    let query = ProcessQuery {
        namespace: Some(process.key.namespace.clone()),
        name: Some(process.key.name.clone()),
        ..Default::default()
    };
    let (_, records) = state.control.processes(&caller.who, query, Some(&process.hosts)).await?;
    let registered: HashMap<&AgentId, &ProcessRecord> = records.iter().map(|record| (&record.agent, record)).collect();
    let forbidden = state.control.registration_refusals(&caller.who, &process.key, &spec, &process.hosts).await?;
    let change = |((named, host), forbidden): ((&HostRef, Option<HostLocation>), Option<Outcome>)| {
        let known = host.as_ref().and_then(|host| registered.get(&host.agent));
        let (changes, refused) = match &host {
            None => (Vec::new(), Some(never_enrolled(named))),
            Some(_) => {
                let changes = diff(known.map(|record| &*record.spec), Some(&spec));
                let is_needed = known.is_none() || !changes.is_empty();
                (changes, forbidden.filter(|_| is_needed))
            }
        };
        let note = spec.instances_note().filter(|_| refused.is_none()).as_ref().map(localized).unwrap_or_default();
        let refused = refused.map(|Outcome { code, message, .. }| Refusal {
            code: code.number(),
            name: code.name().to_owned(),
            localized: localized(&message),
        });
        RegistrationChange { host: named.to_string(), registered: known.is_some(), changes, refused, note }
    };
    let hosts = process.hosts.iter().zip(hosts).zip(forbidden).map(change).collect();
    Ok(Json(RegistrationPlan { process: process.key.to_string(), hosts }))
}

/// Unregisters a process on hosts. A managed one is released and keeps running.
#[utoipa::path(delete, path = "/processes/{namespace}/{name}", operation_id = "unregister",
               params(("namespace" = String, Path), ("name" = String, Path)), request_body = Unregistration,
               tag = "processes", responses((status = 200, body = Rows)))]
pub(super) async fn unregister(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Body(body): Body<Unregistration>,
) -> Result<Json<Rows>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    let hosts = chosen.where_registered(&state.control, &caller.who, &key).await?;
    let outcomes = state.control.unregister(&caller.who, &key, &hosts).await?;
    Ok(rows(&hosts, outcomes))
}

/// What register_proc_info would read, from a body without unknown fields. It is complete: what it omits is not
/// kept from an earlier registration.
fn read(body: &Registration) -> std::result::Result<(Process, Arc<Spec>), FieldError> {
    body.check()?;
    let (process, given) = registration(&(&body.0).into(), RegisterMode::Create)?;
    Ok((process, given.spec))
}

/// One row for each host, in the caller's order.
pub(super) fn rows(hosts: &[HostRef], outcomes: Vec<Outcome>) -> Json<Rows> {
    let row = |(host, outcome): (&HostRef, Outcome)| Row {
        host: host.to_string(),
        code: outcome.code.number(),
        name: outcome.code.name().to_owned(),
        localized: localized(&outcome.message),
    };
    Json(Rows { rows: hosts.iter().zip(outcomes).map(row).collect() })
}
