//! Past usage of a process on a host, as reported by the host.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{UsagePointView, UsageQuery, UsageSpan, UsageState, UsageView};
use proctor_model::{FieldError, Percent, ProcessKey, UsageHistory, UsageKept, UsagePoint, UsageRange, messages};
use proctor_store::{ProcessQuery, ProcessRecord};

use super::body::Params;
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::hosts::parse_host_param;
use super::{ApiState, Result};
use crate::api::error::ApiError;
use crate::control::HostAnswer;

/// CPU and memory of a process on a host over the last hour or week.
///
/// The host is queried on demand; if it cannot be, `state` says why and there are no points.
#[utoipa::path(get, path = "/processes/{namespace}/{name}/usage", operation_id = "process_usage",
               params(("namespace" = String, Path), ("name" = String, Path)), params(UsageQuery), tag = "processes",
               responses((status = 200, body = UsageView)))]
pub(super) async fn usage(
    mut caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Params(query): Params<UsageQuery>,
) -> Result<Json<UsageView>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let host = parse_host_param(Some(&query.host))?.expect("a host was given");
    let wanted = ProcessQuery {
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        is_uncounted: true,
        limit: Some(1),
        ..ProcessQuery::default()
    };
    let (_, mut records) = state.control.processes(&caller.who, wanted, Some(std::slice::from_ref(&host))).await?;
    let Some(record) = records.pop() else {
        return Err(NativeError::new(Kind::NotFound, messages::not_registered_on_host(key, host)));
    };
    let key = instance(&record, query.instance)?;
    let span = query.range.unwrap_or_default();
    let _ticket = state.border.waits.take(&caller.who).map_err(ApiError::from)?;
    caller.waits();
    let answer = state.control.usage_history(&caller.who, &record.agent, &key, range(span)).await;
    let answer = answer.map_err(|_| ApiError::busy(messages::too_many_host_questions()))?;
    Ok(Json(view(&record, &key, span, &answer)))
}

/// As its host calls it.
pub(super) fn instance(record: &ProcessRecord, number: Option<u32>) -> std::result::Result<ProcessKey, FieldError> {
    let instances = record.spec.instances();
    let number = number.unwrap_or(1);
    if !(1..=instances).contains(&number) {
        return Err(FieldError::new("instance", messages::must_be_between(1, instances)));
    }
    Ok(if instances > 1 { record.key.instance(number) } else { record.key.clone() })
}

fn range(span: UsageSpan) -> UsageRange {
    match span {
        UsageSpan::Hour => UsageRange::Hour,
        UsageSpan::Week => UsageRange::Week,
    }
}

fn view(
    record: &ProcessRecord,
    key: &ProcessKey,
    span: UsageSpan,
    answer: &HostAnswer<Arc<UsageHistory>>,
) -> UsageView {
    let none = UsageHistory::empty(UsageKept::Kept, range(span).step_min());
    let (state, history) = match answer {
        HostAnswer::Told(history) => (state_of(history.kept), &**history),
        HostAnswer::Offline => (UsageState::Offline, &none),
        HostAnswer::AgentTooOld => (UsageState::AgentTooOld, &none),
        HostAnswer::NoAnswer => (UsageState::NoAnswer, &none),
    };
    // An answer that cannot be of this range is of an agent with a defect, or worse.
    let steps = range(span).step_min()..=range(span).seconds();
    let step = if steps.contains(&history.step_secs) { history.step_secs } else { *steps.start() };
    UsageView {
        process: key.to_string(),
        host: record.host.to_string(),
        range: span,
        state,
        step,
        points: history.points.iter().take(range(span).points_max()).map(point).collect(),
        cpu_limit: record.spec.limits.cpu.map(Percent::get),
        memory_limit: record.spec.limits.memory.map(Percent::get),
    }
}

/// A process that the host does not know yet has used nothing there.
fn state_of(kept: UsageKept) -> UsageState {
    match kept {
        UsageKept::Kept | UsageKept::NotRegistered => UsageState::Kept,
        UsageKept::NotKept => UsageState::NotKept,
    }
}

fn point(point: &UsagePoint) -> UsagePointView {
    UsagePointView {
        at: point.at,
        cpu: rounded(point.cpu.avg),
        cpu_max: rounded(point.cpu.max),
        cpu_min: point.cpu.min.map(rounded),
        memory: rounded(point.memory.avg),
        memory_max: rounded(point.memory.max),
        memory_min: point.memory.min.map(rounded),
        restarted: point.restarted,
    }
}

/// Agents keep three digits, and every further one costs two thousand bytes.
fn rounded(percent: f32) -> f64 {
    let scale = if percent < 1.0 { 10_000.0 } else { 100.0 };
    (f64::from(percent) * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_what_is_known_of_them() {
        let numbers = [0.0, 0.004_213_7, 0.5, 12.343_75, 100.0];

        assert_eq!(numbers.map(rounded), [0.0, 0.0042, 0.5, 12.34, 100.0]);
    }
}
