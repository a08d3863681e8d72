//! Operations on registered processes: accepted here, carried out in the background.
//!
//! A selector is resolved when the call is made: what is registered later is not a target.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use proctor_api::{Accepted, CountOrPercent, ExactTarget, OperationRequest, Rolling};
use proctor_model::{Class, FieldError, OperationKind, ProcessKey, messages};
use proctor_store::ProcessQuery;
use serde::Serialize;

use super::body::Body;
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::hosts::{Chosen, parse_host};
use super::{ApiState, Result, plan, selector};
use crate::control::{
    self, Caller, Control, HostRef, IdempotencyKey, SpecSource, Submission, SubmitOptions, SubmittedItem,
    SubmittedTarget,
};

const FAMILY: &str = "native";
/// In one task.
const TARGETS_MAX: usize = 100_000;
const KEY_CHARS_MAX: usize = 128;
/// For a host that is offline.
const WAIT_SECS_MAX: u64 = 3600;

/// Submits an operation with the spec that is registered on each host, or plans it.
///
/// With the same `Idempotency-Key` and the same body, the answer is the task that was created before.
#[utoipa::path(post, path = "/operations", operation_id = "operate", request_body = OperationRequest,
               params(("Idempotency-Key" = Option<String>, Header, max_length = 128)), tag = "operations",
               responses((status = 202, body = Accepted, description = "A new task."),
                         (status = 200, body = Accepted, description = "A plan, or the task of an earlier call.")))]
pub(super) async fn submit(
    caller: Authenticated,
    State(state): State<ApiState>,
    headers: HeaderMap,
    Body(body): Body<OperationRequest>,
) -> Result<(StatusCode, Json<Accepted>)> {
    if body.rolling.is_some() && body.operation == OperationKind::Status {
        // A status query changes nothing, so part of it proves nothing about the rest; and callers that may only
        // read must not leave waiting tasks.
        return Err(FieldError::new("rolling", messages::status_does_not_roll()).into());
    }
    let wait = wait(&body)?;
    let options = SubmitOptions {
        rolling: body.rolling.as_ref().map(rolling),
        idempotency: idempotency(&headers, &body)?,
        retry_of: None,
        scope: None,
        wait,
    };
    // Before anything is resolved: what was requested may have changed what is found.
    if let Some(key) = options.idempotency.as_ref().filter(|_| !body.plan)
        && let Some(task) = state.control.submitted_before(&caller.who, key).await?
    {
        return Ok((StatusCode::OK, Json(Accepted { task_id: Some(task), plan: None })));
    }
    let items = items(&state.control, &caller.who, &body).await?;
    if body.plan {
        let who = caller.who.clone();
        let planned = state.control.plan(Submission { caller: caller.who, family: FAMILY, items, options }).await?;
        let plan = plan::view(&state, &who, planned).await?;
        return Ok((StatusCode::OK, Json(Accepted { task_id: None, plan: Some(plan) })));
    }
    let submission = Submission { caller: caller.who, family: FAMILY, items, options };
    let submitted = state.control.submit(submission).await?;
    let status = if submitted.is_new { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(Accepted { task_id: Some(submitted.task), plan: None })))
}

/// How long targets wait for offline hosts. Their permissions are those at the time of the call, so it is bounded.
fn wait(body: &OperationRequest) -> std::result::Result<Duration, FieldError> {
    match body.wait_secs {
        None => Ok(Duration::ZERO),
        // As for rolling tasks: whoever may only read must not leave tasks that wait.
        Some(_) if body.operation == OperationKind::Status => {
            Err(FieldError::new("wait_secs", messages::status_does_not_wait()))
        }
        Some(secs) if (1..=WAIT_SECS_MAX).contains(&secs) => Ok(Duration::from_secs(secs)),
        Some(_) => Err(FieldError::new("wait_secs", messages::wait_out_of_range(WAIT_SECS_MAX))),
    }
}

/// The key under which the caller may send the same request again.
pub(super) fn idempotency(
    headers: &HeaderMap,
    body: &impl Serialize,
) -> std::result::Result<Option<IdempotencyKey>, FieldError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let is_sane =
        |key: &&str| (1..=KEY_CHARS_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let Some(key) = value.to_str().ok().filter(is_sane) else {
        let problem = messages::must_have_ascii_chars(KEY_CHARS_MAX);
        return Err(FieldError::new("Idempotency-Key", problem));
    };
    // Of what was understood, so that neither spaces nor the order of fields matter.
    let body = serde_json::to_vec(body).expect("a request has only string keys");
    Ok(Some(IdempotencyKey { key: key.to_owned(), body_hash: *blake3::hash(&body).as_bytes() }))
}

fn rolling(rolling: &Rolling) -> control::Rolling {
    control::Rolling {
        max_parallel: match rolling.max_parallel {
            CountOrPercent::Count(count) => control::Share::Number(count),
            CountOrPercent::Percent(percent) => control::Share::Percent(percent),
        },
        max_failures: rolling.max_failures,
        canary: rolling.canary,
        wait_healthy: rolling.wait_healthy,
    }
}

/// One item for each process.
async fn items(control: &Control, caller: &Caller, body: &OperationRequest) -> Result<Vec<SubmittedItem>> {
    let found = match &body.targets {
        Some(pairs) => exact(control, caller, body, pairs).await?,
        None => found(control, caller, body).await?,
    };
    let targets: usize = found.values().map(Vec::len).sum();
    if targets > TARGETS_MAX {
        let message = messages::task_is_too_large(targets, TARGETS_MAX);
        return Err(NativeError::new(Kind::InvalidArgument, message));
    }
    let item = |(key, hosts): (ProcessKey, Vec<HostRef>)| SubmittedItem {
        targets: hosts.into_iter().map(|host| SubmittedTarget { row_key: format!("{host} {key}"), host }).collect(),
        key,
        kind: Some(body.operation),
        spec: SpecSource::Registered,
    };
    Ok(found.into_iter().map(item).collect())
}

type Found = BTreeMap<ProcessKey, Vec<HostRef>>;

/// Pairs of a process and a host, as they are named.
async fn exact(control: &Control, caller: &Caller, body: &OperationRequest, pairs: &[ExactTarget]) -> Result<Found> {
    let says_more = [
        ("process", body.process.is_some()),
        ("selector", body.selector.is_some()),
        ("namespace", body.namespace.is_some()),
        ("hosts", body.hosts.is_some()),
        ("all", body.all),
        ("business", body.business.is_some()),
    ];
    if let Some((field, _)) = says_more.into_iter().find(|(_, is_there)| *is_there) {
        return Err(FieldError::new(field, messages::not_together_with("targets")).into());
    }
    if pairs.is_empty() {
        return Err(FieldError::new("targets", messages::must_not_be_empty()).into());
    }
    let host = |(index, pair): (usize, &ExactTarget)| {
        parse_host(&pair.host).map_err(|error| error.inside(&format!("targets[{index}].host")))
    };
    let hosts = pairs.iter().enumerate().map(host).collect::<std::result::Result<Vec<_>, _>>()?;
    let sites = control.sites(&hosts).await?;
    let mut seen = HashSet::new();
    let mut found = Found::new();
    for (index, ((pair, host), site)) in pairs.iter().zip(hosts).zip(sites).enumerate() {
        let key = &pair.process.0;
        // Who may not read the host must not learn that two names are one.
        let site = site.filter(|site| caller.is_allowed(Class::Read, site, Some(&key.namespace)));
        let identity = site.map_or_else(|| host.clone(), |site| HostRef::Agent(site.agent));
        if !seen.insert((key, identity)) {
            return Err(FieldError::new(format!("targets[{index}]"), messages::target_is_there_twice(key, host)).into());
        }
        found.entry(key.clone()).or_default().push(host);
    }
    Ok(found)
}

/// One process, or what a selector finds, on the chosen hosts.
async fn found(control: &Control, caller: &Caller, body: &OperationRequest) -> Result<Found> {
    let chosen = Chosen::of(body.hosts.as_deref(), body.all, body.business)?;
    match (&body.process, &body.selector) {
        (Some(process), None) if body.namespace.is_none() => {
            let hosts = chosen.where_registered(control, caller, &process.0).await?;
            Ok(Found::from([(process.0.clone(), hosts)]))
        }
        (Some(_), None) => Err(FieldError::new("namespace", messages::only_with("selector")).into()),
        (None, Some(selector)) => selected(control, caller, body, selector, chosen).await,
        (None, None) => Err(FieldError::new("process", messages::process_is_missing()).into()),
        (Some(_), Some(_)) => Err(FieldError::new("selector", messages::not_together_with("process")).into()),
    }
}

/// What the selector finds now, of what the caller may see.
async fn selected(
    control: &Control,
    caller: &Caller,
    body: &OperationRequest,
    selector: &str,
    chosen: Chosen,
) -> Result<Found> {
    let mut query = ProcessQuery {
        namespace: body.namespace.as_ref().map(|namespace| namespace.0.clone()),
        labels: selector::parse(selector)?,
        limit: Some(TARGETS_MAX as u64 + 1),
        ..ProcessQuery::default()
    };
    let hosts = match chosen {
        Chosen::All => None,
        Chosen::Business(business) => {
            query.businesses = Some(vec![business]);
            None
        }
        Chosen::These(hosts) => Some(hosts),
    };
    let (_, records) = control.processes(caller, query, hosts.as_deref()).await?;
    let mut found = Found::new();
    for record in records {
        found.entry(record.key).or_default().push(HostRef::Key(record.host));
    }
    if found.is_empty() {
        return Err(NativeError::new(Kind::NotFound, messages::selector_matches_nothing(selector)));
    }
    Ok(found)
}
