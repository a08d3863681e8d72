//! Registered processes: listed, and shown with everything stored about them.

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{
    ProcessFilter, ProcessPage, ProcessQuery, ProcessSort, ProcessView, Reason, SEARCH_CHARS_MAX, ShowQuery, SortOrder,
    Trouble,
};
use proctor_model::{FieldError, Percent, Phase, ProcessKey, messages};
use proctor_runtime::clock;
use proctor_store::{ProcessCursor, ProcessOrder, ProcessRecord, ProcessSort as Sort, Rank};

use super::body::{Params, page_limit};
use super::caller::Authenticated;
use super::hosts::{not_registered, parse_host_param};
use super::localized::localized;
use super::{ApiState, Result, cursor, selector};
use crate::control::HostRef;

/// Registered processes, as last observed.
#[utoipa::path(get, path = "/processes", operation_id = "processes", params(ProcessQuery), tag = "processes",
               responses((status = 200, body = ProcessPage)))]
pub(super) async fn list(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<ProcessQuery>,
) -> Result<Json<ProcessPage>> {
    let (wanted, host) = wanted(&query.filter())?;
    let order = order(query.sort.unwrap_or_default(), query.order);
    let wanted = proctor_store::ProcessQuery {
        after: after(query.after.as_deref(), order.by)?,
        order,
        is_uncounted: query.count != Some(true),
        ..wanted
    };
    let view = if query.full == Some(true) { full } else { brief };
    page(&caller, &state, wanted, host, page_limit(query.limit)?, view).await.map(Json)
}

/// A process on every host where it is registered, with everything that is stored.
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
    let is_narrowed = query.phase.is_some() || query.q.is_some() || query.online.is_some();
    let ShowQuery { host, phase, online, q, full: is_full, count, after: cursor, limit } = query;
    let filter = ProcessFilter { host, phase, online, q, ..ProcessFilter::default() };
    let (wanted, host) = wanted(&filter)?;
    let wanted = proctor_store::ProcessQuery {
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        after: after(cursor.as_deref(), Sort::Name)?,
        is_uncounted: count != Some(true),
        ..wanted
    };
    let view = if is_full == Some(false) { brief } else { full };
    let page = page(&caller, &state, wanted, host, page_limit(limit)?, view).await?;
    if page.processes.is_empty() && cursor.is_none() && limit != Some(0) && !is_narrowed {
        return Err(not_registered(&key));
    }
    Ok(Json(page))
}

/// What the filter narrows to, and the host that it names.
pub(super) fn wanted(
    filter: &ProcessFilter,
) -> std::result::Result<(proctor_store::ProcessQuery, Option<HostRef>), FieldError> {
    let query = proctor_store::ProcessQuery {
        namespace: filter.namespace.as_deref().map(str::parse).transpose()?,
        name: filter.name.as_deref().map(str::parse).transpose()?,
        businesses: filter.business.map(|business| vec![business]),
        cloud: filter.cloud,
        labels: filter.selector.as_deref().map_or(Ok(Vec::new()), selector::parse)?,
        phases: filter.phase.as_deref().map_or(Ok(Vec::new()), phases)?,
        lifetime: filter.lifetime,
        online: filter.online,
        cordoned: filter.cordoned.map(|cordoned| (cordoned, clock::unix_millis())),
        managed: filter.managed,
        health: filter.health.map(|health| health.as_str().to_owned()),
        trouble: filter.trouble.map(|trouble| match trouble {
            Trouble::CrashLooping => proctor_store::Trouble::CrashLooping,
            Trouble::Evicted => proctor_store::Trouble::Evicted,
        }),
        text: filter.q.as_deref().map(search_text).transpose()?,
        ..proctor_store::ProcessQuery::default()
    };
    Ok((query, parse_host_param(filter.host.as_deref())?))
}

/// A text to search for.
pub(super) fn search_text(text: &str) -> std::result::Result<String, FieldError> {
    if text.trim().is_empty() || text.chars().count() > SEARCH_CHARS_MAX {
        return Err(FieldError::new("q", messages::must_have_chars(SEARCH_CHARS_MAX)));
    }
    Ok(text.trim().to_owned())
}

/// Comma-separated names.
fn phases(text: &str) -> std::result::Result<Vec<Phase>, FieldError> {
    text.split(',').map(|name| name.trim().parse()).collect()
}

fn order(sort: ProcessSort, order: Option<SortOrder>) -> ProcessOrder {
    let by = match sort {
        ProcessSort::Name => Sort::Name,
        ProcessSort::Host => Sort::Host,
        ProcessSort::Phase => Sort::Phase,
        ProcessSort::Cpu => Sort::Cpu,
        ProcessSort::Memory => Sort::Memory,
        ProcessSort::Restarts => Sort::Restarts,
        ProcessSort::Started => Sort::Started,
        ProcessSort::Reported => Sort::Reported,
    };
    let is_descending = match (order, by) {
        (Some(order), _) => order == SortOrder::Desc,
        (None, Sort::Name | Sort::Host | Sort::Phase) => false,
        (None, Sort::Cpu | Sort::Memory | Sort::Restarts | Sort::Started | Sort::Reported) => true,
    };
    ProcessOrder { by, is_descending }
}

/// `next` of a page in this order.
fn after(text: Option<&str>, by: Sort) -> std::result::Result<Option<ProcessCursor>, FieldError> {
    let Some(cursor) = cursor::decode::<ProcessCursor>(text)? else { return Ok(None) };
    let fits = match (by, &cursor.rank) {
        (Sort::Name | Sort::Host, None) | (Sort::Phase, Some(Rank::Text(_))) => true,
        (Sort::Cpu | Sort::Memory | Sort::Restarts | Sort::Started | Sort::Reported, Some(Rank::Number(_))) => true,
        (_, None | Some(Rank::Number(_) | Rank::Text(_))) => false,
    };
    if fits { Ok(Some(cursor)) } else { Err(FieldError::new("after", messages::cursor_of_another_order())) }
}

async fn page(
    caller: &Authenticated,
    state: &ApiState,
    wanted: proctor_store::ProcessQuery,
    host: Option<HostRef>,
    limit: u32,
    view: fn(ProcessRecord) -> ProcessView,
) -> Result<ProcessPage> {
    let is_counted = !wanted.is_uncounted;
    let wanted = proctor_store::ProcessQuery { limit: Some(u64::from(limit) + 1), ..wanted };
    let hosts = host.map(|host| [host]);
    let hosts = hosts.as_ref().map(<[_; 1]>::as_slice);
    let (total, mut records) = state.control.processes(&caller.who, wanted, hosts).await?;
    let has_more = records.len() > limit as usize;
    records.truncate(limit as usize);
    let next = records.last().filter(|_| has_more).map(|last| cursor::encode(&last.cursor()));
    Ok(ProcessPage { processes: records.into_iter().map(view).collect(), total: is_counted.then_some(total), next })
}

fn full(record: ProcessRecord) -> ProcessView {
    let (registered_at, spec, snapshot) = (record.registered_at, record.spec.clone(), record.snapshot.clone());
    ProcessView { registered_at: Some(registered_at / 1000), spec: Some((*spec).clone()), snapshot, ..brief(record) }
}

fn brief(record: ProcessRecord) -> ProcessView {
    let snapshot = record.snapshot.unwrap_or_default();
    let why: Reason = localized(&snapshot.reason());
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
        reason: why.reason,
        reason_id: why.reason_id,
        reason_args: why.reason_args,
        lifetime: record.spec.policy.lifetime,
        health: snapshot.health,
        memory_bytes: snapshot.usage.memory_bytes,
        cpu_limit: record.spec.limits.cpu.map(Percent::get),
        memory_limit: record.spec.limits.memory.map(Percent::get),
        labels: record.spec.labels.clone(),
        reported_at: snapshot.reported_at,
        phase_since: record.phase_since,
        presence_changed_at: record.presence_changed_at / 1000,
        generation: record.generation,
        registered_at: None,
        spec: None,
        snapshot: None,
    }
}
