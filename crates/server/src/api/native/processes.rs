//! Registered processes: listed, and shown with everything that is kept.

use std::cmp::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{ProcessPage, ProcessQuery, ProcessSort, ProcessView, ShowQuery};
use proctor_model::{FieldError, Phase, ProcessKey};
use proctor_store::{ProcessCursor, ProcessRecord};
use serde::{Deserialize, Serialize};

use super::body::{Params, page_limit};
use super::caller::Authenticated;
use super::hosts::{not_registered, parse_host_param};
use super::{ApiState, Result, cursor, selector};
use crate::control::HostRef;

/// A list in another order than that of names is made in memory.
const SORTED_MAX: u64 = 100_000;

/// Registered processes, with what was last seen of them.
#[utoipa::path(get, path = "/processes", operation_id = "processes", params(ProcessQuery), tag = "processes",
               responses((status = 200, body = ProcessPage)))]
pub(super) async fn list(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<ProcessQuery>,
) -> Result<Json<ProcessPage>> {
    let limit = page_limit(query.limit)?;
    let hosts = parse_host_param(query.host.as_deref())?.map(|host| [host]);
    let hosts = hosts.as_ref().map(<[_; 1]>::as_slice);
    let wanted = wanted(&query)?;
    let view = if query.full == Some(true) { full } else { brief };
    let sort = query.sort.unwrap_or_default();
    if sort == ProcessSort::Name {
        let wanted = proctor_store::ProcessQuery { after: cursor::decode(query.after.as_deref())?, ..wanted };
        return by_name(&caller, &state, wanted, hosts, limit, view).await.map(Json);
    }
    let after: Option<Ranked> = cursor::decode(query.after.as_deref())?;
    let wanted = proctor_store::ProcessQuery { limit: Some(SORTED_MAX), ..wanted };
    let (count, records) = state.control.processes(&caller.who, wanted, hosts).await?;
    if count > SORTED_MAX {
        let problem =
            format!("{count} processes match, more than {SORTED_MAX}: ask for fewer, or for the order of names");
        return Err(FieldError::new("sort", problem).into());
    }
    Ok(Json(ranked(records, sort, after.as_ref(), limit as usize, view)))
}

/// A process on every host where it is registered, with everything that is kept.
#[utoipa::path(get, path = "/processes/{namespace}/{name}", operation_id = "process", params(ShowQuery),
               params(("namespace" = String, Path), ("name" = String, Path)), tag = "processes",
               responses((status = 200, body = ProcessPage)))]
pub(super) async fn show(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Params(query): Params<ShowQuery>,
) -> Result<Json<ProcessPage>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let hosts = parse_host_param(query.host.as_deref())?.map(|host| [host]);
    let wanted = proctor_store::ProcessQuery {
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        after: cursor::decode(query.after.as_deref())?,
        ..Default::default()
    };
    let hosts = hosts.as_ref().map(<[_; 1]>::as_slice);
    let page = by_name(&caller, &state, wanted, hosts, page_limit(query.limit)?, full).await?;
    if page.processes.is_empty() && query.after.is_none() && query.limit != Some(0) {
        return Err(not_registered(&key));
    }
    Ok(Json(page))
}

/// What the query narrows to, without its place and its length.
fn wanted(query: &ProcessQuery) -> std::result::Result<proctor_store::ProcessQuery, FieldError> {
    Ok(proctor_store::ProcessQuery {
        namespace: query.namespace.as_deref().map(str::parse).transpose()?,
        name: query.name.as_deref().map(str::parse).transpose()?,
        businesses: query.business.map(|business| vec![business]),
        labels: query.selector.as_deref().map_or(Ok(Vec::new()), selector::parse)?,
        phases: query.phase.as_deref().map_or(Ok(Vec::new()), phases)?,
        ..Default::default()
    })
}

/// Names with commas between them.
fn phases(text: &str) -> std::result::Result<Vec<Phase>, FieldError> {
    let one = |name: &str| serde_json::from_value(serde_json::Value::String(name.trim().to_owned()));
    let bad = |name: &str| FieldError::new("phase", format!("'{name}' is not a phase of a process"));
    text.split(',').map(|name| one(name).map_err(|_| bad(name))).collect()
}

async fn by_name(
    caller: &Authenticated,
    state: &ApiState,
    wanted: proctor_store::ProcessQuery,
    hosts: Option<&[HostRef]>,
    limit: u32,
    view: fn(ProcessRecord) -> ProcessView,
) -> Result<ProcessPage> {
    let wanted = proctor_store::ProcessQuery { limit: Some(u64::from(limit) + 1), ..wanted };
    let (_, mut records) = state.control.processes(&caller.who, wanted, hosts).await?;
    let has_more = records.len() > limit as usize;
    records.truncate(limit as usize);
    let next = records.last().filter(|_| has_more).map(|last| cursor::encode(&last.cursor()));
    Ok(ProcessPage { processes: records.into_iter().map(view).collect(), next })
}

/// A place in a list that is not in the order of names.
#[derive(Debug, Serialize, Deserialize)]
struct Ranked {
    rank: f64,
    at: ProcessCursor,
}

impl Ranked {
    fn of(record: &ProcessRecord, sort: ProcessSort) -> Self {
        let snapshot = record.snapshot.as_ref();
        let rank = snapshot.map_or(0.0, |snapshot| match sort {
            ProcessSort::Name => 0.0,
            ProcessSort::Cpu => snapshot.usage.cpu_percent,
            ProcessSort::Memory => snapshot.usage.memory_percent,
            ProcessSort::Restarts => f64::from(snapshot.restarts),
            #[allow(clippy::cast_precision_loss, reason = "seconds of a clock are far below 2^53")]
            ProcessSort::Started => snapshot.started_at as f64,
        });
        Self { rank, at: record.cursor() }
    }

    /// The largest first, then by names.
    fn compare(&self, other: &Self) -> Ordering {
        let name = |at: &ProcessCursor| (at.namespace.clone(), at.name.clone(), at.cloud, at.ip.to_string());
        other.rank.total_cmp(&self.rank).then_with(|| name(&self.at).cmp(&name(&other.at)))
    }
}

fn ranked(
    records: Vec<ProcessRecord>,
    sort: ProcessSort,
    after: Option<&Ranked>,
    limit: usize,
    view: fn(ProcessRecord) -> ProcessView,
) -> ProcessPage {
    let mut rows: Vec<(Ranked, ProcessRecord)> =
        records.into_iter().map(|record| (Ranked::of(&record, sort), record)).collect();
    rows.retain(|(place, _)| after.is_none_or(|after| place.compare(after) == Ordering::Greater));
    rows.sort_by(|(one, _), (other, _)| one.compare(other));
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|(place, _)| cursor::encode(place));
    ProcessPage { processes: rows.into_iter().map(|(_, record)| view(record)).collect(), next }
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
        business: record.business,
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
