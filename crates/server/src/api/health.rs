//! `/healthz` and `/readyz`: whether the server is alive, and whether it can do all of its work.
//!
//! Promised: `/healthz` is 503 if a restart could help (a critical task has died, the store cannot be read), and says
//! `degraded` with the reason if only writing fails; `/readyz` is 503 in both cases and during shutdown. Health
//! checks cannot load the store: a result is cached for [`FRESH`].
//! Absent: credentials. The reasons name no file and no host.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use proctor_runtime::chain;
use proctor_store::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::ApiState;
use crate::control::Control;

/// Each check of the store commits a page, which waits for the disk.
const FRESH: Duration = Duration::from_secs(2);
/// A store that does not answer for this long is reported as not answering.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The result of the last check of the store.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    last: Mutex<Option<(Instant, Found)>>,
}

#[derive(Clone, Debug, Default)]
struct Found {
    unreadable: Option<String>,
    unwritable: Option<String>,
}

impl StoreHealth {
    async fn check(&self, control: &Control) -> Found {
        let mut last = self.last.lock().await; // one look at a time; those who wait share it
        match &*last {
            Some((at, found)) if at.elapsed() < FRESH => found.clone(),
            Some(_) | None => {
                let found = Found::of(control).await;
                *last = Some((Instant::now(), found.clone()));
                found
            }
        }
    }
}

impl Found {
    async fn of(control: &Control) -> Self {
        let (readable, writable) = tokio::join!(
            tokio::time::timeout(ANSWER_MAX, control.check_readable()),
            tokio::time::timeout(ANSWER_MAX, control.check_writable()),
        );
        Self { unreadable: problem(readable), unwritable: problem(writable) }
    }
}

fn problem(checked: Result<Result<(), StoreError>, tokio::time::error::Elapsed>) -> Option<String> {
    match checked {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            tracing::warn!(error = chain(&error), "health check failed");
            Some(error.to_string())
        }
        Err(_) => Some(format!("the store does not answer within {} s", ANSWER_MAX.as_secs())),
    }
}

/// 503: restart it, or in `dev`, wait for its agent.
pub(super) async fn live(State(state): State<ApiState>) -> Response {
    if let Some(reason) = dead(&state) {
        return unhealthy("failed", &reason);
    }
    if let Some(agent) = state.wait_for.as_ref().filter(|agent| !state.control.is_connected(agent)) {
        return unhealthy("waiting", &format!("agent {agent} is not connected yet"));
    }
    match state.border.store_health.check(&state.control).await {
        Found { unreadable: Some(reason), .. } => unhealthy("failed", &reason),
        Found { unreadable: None, unwritable: Some(reason) } => answer(StatusCode::OK, "degraded", Some(&reason)),
        Found { unreadable: None, unwritable: None } => answer(StatusCode::OK, "ok", None),
    }
}

/// 503: send it no calls that change anything.
pub(super) async fn ready(State(state): State<ApiState>) -> Response {
    if state.control.is_leaving() || state.control.shutdown().is_cancelled() {
        return unhealthy("stopping", "the server is shutting down");
    }
    if let Some(reason) = dead(&state) {
        return unhealthy("failed", &reason);
    }
    if let Some(agent) = state.wait_for.as_ref().filter(|agent| !state.control.is_connected(agent)) {
        return unhealthy("waiting", &format!("agent {agent} is not connected yet"));
    }
    let Found { unreadable, unwritable } = state.border.store_health.check(&state.control).await;
    match unreadable.or(unwritable) {
        Some(reason) => unhealthy("not_ready", &reason),
        None => answer(StatusCode::OK, "ok", None),
    }
}

fn dead(state: &ApiState) -> Option<String> {
    state.control.failure().map(ToString::to_string)
}

fn unhealthy(status: &str, reason: &str) -> Response {
    answer(StatusCode::SERVICE_UNAVAILABLE, status, Some(reason))
}

fn answer(code: StatusCode, status: &str, reason: Option<&str>) -> Response {
    let body = match reason {
        None => serde_json::json!({"status": status}),
        Some(reason) => serde_json::json!({"status": status, "reason": reason}),
    };
    (code, axum::Json(body)).into_response()
}
