//! How the spec of a process changed on a host.

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{DiffQuery, HistoryQuery, Revision, SpecDiff, SpecHistory};
use proctor_model::{FieldError, ProcessKey, messages};
use proctor_store::SpecRevision;

use super::body::Params;
use super::caller::Authenticated;
use super::diff::diff;
use super::error::{Kind, NativeError};
use super::hosts::{parse_host_param, unknown_host};
use super::{ApiState, Result};

/// As many as the store keeps.
const REVISIONS_MAX: u32 = 20;

/// The last specs of a process on a host, newest first.
#[utoipa::path(get, path = "/processes/{namespace}/{name}/history", operation_id = "spec_history",
               params(("namespace" = String, Path), ("name" = String, Path)), params(HistoryQuery), tag = "processes",
               responses((status = 200, body = SpecHistory)))]
pub(super) async fn history(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<SpecHistory>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let revisions = revisions(&caller, &state, &key, &query.host).await?;
    let view = |revision: SpecRevision| Revision {
        generation: revision.generation,
        at: revision.at / 1000,
        spec: revision.spec.map(|spec| (*spec).clone()),
    };
    Ok(Json(SpecHistory { revisions: revisions.into_iter().map(view).collect() }))
}

/// What changed between two specs of a process on a host.
#[utoipa::path(get, path = "/processes/{namespace}/{name}/diff", operation_id = "spec_diff",
               params(("namespace" = String, Path), ("name" = String, Path)), params(DiffQuery), tag = "processes",
               responses((status = 200, body = SpecDiff)))]
pub(super) async fn changes(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<SpecDiff>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let revisions = revisions(&caller, &state, &key, &query.host).await?;
    let index_of = |field: &str, generation: u64| {
        let found = revisions.iter().position(|revision| revision.generation == generation);
        found.ok_or_else(|| FieldError::new(field, messages::not_a_generation(generation)))
    };
    let to = query.to.map_or(Ok(0), |generation| index_of("to", generation))?;
    let from = match query.from {
        Some(generation) => Some(index_of("from", generation)?),
        None => Some(to + 1).filter(|index| *index < revisions.len()),
    };
    let spec = |index: usize| revisions[index].spec.as_deref();
    let changes = diff(from.and_then(spec), spec(to));
    Ok(Json(SpecDiff { from: from.map(|index| revisions[index].generation), to: revisions[to].generation, changes }))
}

/// Newest first; at least one.
async fn revisions(
    caller: &Authenticated,
    state: &ApiState,
    key: &ProcessKey,
    host: &str,
) -> Result<Vec<SpecRevision>> {
    let host = parse_host_param(Some(host))?.expect("a host was given");
    let hosts = std::slice::from_ref(&host);
    let Some(record) = state.control.readable_sites(&caller.who, hosts, Some(&key.namespace)).await?.remove(0) else {
        return Err(unknown_host(&host));
    };
    let revisions = state.control.spec_history(&record.agent, key, REVISIONS_MAX).await?;
    if revisions.is_empty() {
        return Err(NativeError::new(Kind::NotFound, messages::never_registered_on_host(key, host)));
    }
    Ok(revisions)
}
