//! A process's own log, as read on its host.
//!
//! A log may contain secrets, so reading it needs the permission to operate the process.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use proctor_api::{LogQuery, LogState, LogView};
use proctor_model::{FieldError, LOG_LINES, LOG_LINES_MAX, LogTail, ProcessKey, messages};
use proctor_store::ProcessRecord;

use super::body::Params;
use super::caller::Authenticated;
use super::error::{Kind, NativeError};
use super::hosts::parse_host_param;
use super::usage::instance;
use super::{ApiState, Result};
use crate::api::error::ApiError;
use crate::control::HostAnswer;

/// The last second of the year 9999: a file may carry any time, and programs know no later year.
const MODIFIED_AT_MAX: i64 = 253_402_300_799;

/// The end of the log of a process on a host, or what was written to it since an earlier answer.
///
/// The host reads it as the user of the process; if that is not possible, `state` says why and there is no text.
#[utoipa::path(get, path = "/processes/{namespace}/{name}/log", operation_id = "process_log",
               params(("namespace" = String, Path), ("name" = String, Path)), params(LogQuery), tag = "processes",
               responses((status = 200, body = LogView)))]
pub(super) async fn log(
    mut caller: Authenticated,
    State(state): State<ApiState>,
    Path((namespace, name)): Path<(String, String)>,
    Params(query): Params<LogQuery>,
) -> Result<Json<LogView>> {
    let key = ProcessKey::new(namespace.parse()?, name.parse()?);
    let host = parse_host_param(Some(&query.host))?.expect("a host was given");
    let wanted = wanted(&query)?;
    let Some(record) = state.control.operable_process(&caller.who, &host, &key).await? else {
        return Err(NativeError::new(Kind::NotFound, messages::not_registered_on_host(key, host)));
    };
    let key = instance(&record, query.instance)?;
    let _ticket = state.border.waits.take(&caller.who).map_err(ApiError::from)?;
    caller.waits();
    let answer = state.control.log_tail(&caller.who, &record.agent, &key, wanted).await;
    let answer = answer.map_err(|_| ApiError::busy(messages::too_many_host_questions()))?;
    Ok(Json(view(&record, &key, &answer)?))
}

fn wanted(query: &LogQuery) -> std::result::Result<proctor_model::LogQuery, FieldError> {
    let lines = query.lines.unwrap_or(LOG_LINES);
    if !(1..=LOG_LINES_MAX).contains(&lines) {
        return Err(FieldError::new("lines", messages::must_be_between(1, LOG_LINES_MAX)));
    }
    Ok(proctor_model::LogQuery { lines, since: query.since.as_deref().map(str::parse).transpose()? })
}

fn view(record: &ProcessRecord, key: &ProcessKey, answer: &HostAnswer<Arc<LogTail>>) -> Result<LogView> {
    let none = LogTail::default();
    let (state, tail) = match answer {
        HostAnswer::Told(tail) => (state_of(tail.state)?, &**tail),
        HostAnswer::Offline => (LogState::Offline, &none),
        HostAnswer::AgentTooOld => (LogState::AgentTooOld, &none),
        HostAnswer::NoAnswer => (LogState::NoAnswer, &none),
    };
    let is_read = state == LogState::Read;
    let text = if is_read { String::from_utf8_lossy(&tail.bytes).into_owned() } else { String::new() };
    Ok(LogView {
        process: key.to_string(),
        host: record.host.to_string(),
        state,
        path: tail.path.clone(),
        problem: tail.problem.clone(),
        text,
        position: is_read.then(|| tail.end.to_string()),
        size: tail.size,
        modified_at: is_read.then(|| tail.modified_at.clamp(0, MODIFIED_AT_MAX)),
        restarted: tail.restarted,
        skipped: tail.skipped,
    })
}

/// An error where it is worth asking again.
fn state_of(state: proctor_model::LogState) -> std::result::Result<LogState, ApiError> {
    use proctor_model::LogState as Told;
    Ok(match state {
        Told::Read => LogState::Read,
        Told::NoPath => LogState::NoPath,
        Told::Missing => LogState::Missing,
        Told::Denied => LogState::Denied,
        Told::NotALog => LogState::NotALog,
        Told::Forbidden => LogState::Forbidden,
        Told::Unreadable => LogState::Unreadable,
        Told::NotRegistered => LogState::NotRegistered,
        Told::Busy => {
            return Err(ApiError::busy(messages::too_many_log_reads()));
        }
    })
}
