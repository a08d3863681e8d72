//! `GET /metrics`, `GET /metrics/processes`, and the measure of every request.
//!
//! Promised: metrics are for callers who may read everything, and for the addresses of `--metrics-from`; nobody else
//! learns more than that they may not. Every request has one id, in its answer, in the audit and in the log. A route is
//! counted as the table writes it, so that no caller makes up a label.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use proctor_model::Class;

use super::ApiState;
use super::auth::Credentials;
use super::error::{ApiError, Problem};
use super::native::NativeError;
use super::proxies::Reached;
use super::request::{known, origin_of};
use super::response::{REQUEST_ID, RequestId};
use crate::metrics::Border;

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How an answer is counted beside its HTTP status: the compatible APIs answer most failures with 200.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedAs(pub(super) &'static str);

pub(super) async fn show(State(state): State<ApiState>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    match permitted(&state, &head).await {
        Ok(()) => ([(header::CONTENT_TYPE, FORMAT)], text(&state)).into_response(),
        Err(refused) => refused.into_response(),
    }
}

/// Usage of processes, where an operator has switched that on.
pub(super) async fn show_processes(State(state): State<ApiState>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    match processes(&state, &head).await {
        Ok(text) => ([(header::CONTENT_TYPE, FORMAT)], text).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn processes(state: &ApiState, head: &Parts) -> Result<String, NativeError> {
    permitted(state, head).await?;
    if !state.border.settings.metrics_processes {
        let message = "usage of processes is not exposed: start the server with --metrics-processes";
        return Err(ApiError::new(Problem::NotFound, message).into());
    }
    Ok(state.border.process_metrics.text(&state.control).await?)
}

async fn permitted(state: &ApiState, head: &Parts) -> Result<(), NativeError> {
    let reached = head.extensions.get::<Reached>().copied().unwrap_or_default();
    if reached.from.is_some_and(|from| state.border.metrics_from.read().contain(from)) {
        return Ok(());
    }
    let credentials = Credentials::from_headers(&head.headers)?.unwrap_or_default();
    let origin = origin_of(&head.headers, &head.extensions);
    let caller = known(state, &credentials, &head.extensions, origin).await?;
    Ok(caller.require(Class::Read)?)
}

fn text(state: &ApiState) -> String {
    let border = Border {
        connections: state.border.connections.count(),
        calls: state.border.calls.taken(),
        https_expires_at: state.border.https_expires_at(),
    };
    state.control.metrics().exposition(&state.control, &border)
}

/// Gives the request its id, and counts and logs it.
pub(super) async fn measure(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    request.headers_mut().insert(REQUEST_ID, id.header());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let from = request.extensions().get::<Reached>().and_then(|reached| reached.from);
    let (method, begun) = (request.method().clone(), Instant::now());
    let mut response = next.run(request).await;
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    let route = route.as_deref().unwrap_or("none");
    let counted = response.extensions().get::<CountedAs>().map_or("ok", |counted| counted.0);
    state.control.metrics().request(known_method(&method), route, status, counted, took);
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let from = from.map(tracing::field::display);
    tracing::debug!(target: "proctor::requests", %id, %method, route, status, result = counted, millis, from, "request");
    response.headers_mut().entry(REQUEST_ID).or_insert(id.header());
    response
}

/// Methods are labels, and anybody can make one up.
fn known_method(method: &Method) -> &str {
    match *method {
        Method::GET | Method::POST | Method::PUT | Method::DELETE | Method::HEAD | Method::OPTIONS => method.as_str(),
        _ => "other",
    }
}
