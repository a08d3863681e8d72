//! `GET /metrics`, `GET /metrics/processes`, and the measurement of every request.
//!
//! Promised: metrics are for callers who may read everything, and for the addresses of `--metrics-from`; others only
//! learn that they may not. However many ask, metrics are rendered once at a time, for all who are waiting, and with
//! pauses; those of processes once per [`PROCESSES_FRESH`]. Every request has one id, in its response, in the audit
//! log and in the request log. A route is counted as written in the table, so that no caller can create a label.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use proctor_model::{Class, messages};
use tokio::sync::Mutex;

use super::ApiState;
use super::auth::Credentials;
use super::connections::SharedAnswer;
use super::error::{ApiError, Problem};
use super::native::NativeError;
use super::proxies::Reached;
use super::request::{known, origin_of};
use super::response::{REQUEST_ID, RequestId};
use crate::control::{Control, ControlError};
use crate::metrics::{Border, process_exposition};

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How a response is counted besides its HTTP status: the compatible APIs answer most failures with 200.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedAs(pub(super) &'static str);

/// How long the metrics of processes are the same.
const PROCESSES_FRESH: Duration = Duration::from_secs(30);

/// A text that several answers hold.
#[derive(Clone, Debug)]
struct SharedText {
    text: Bytes,
    shared: SharedAnswer,
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self { shared: SharedAnswer::new(text.len()), text: text.into() }
    }
}

impl IntoResponse for SharedText {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, FORMAT)], Extension(self.shared), self.text).into_response()
    }
}

/// The last text of the server's metrics.
#[derive(Debug, Default)]
pub(super) struct ServerMetrics(Arc<Mutex<Option<Rendered>>>);

#[derive(Debug)]
struct Rendered {
    begun: Instant,
    /// Until when nothing is rendered: at most half of one core's time is spent on it.
    rests_until: Instant,
    text: SharedText,
}

impl ServerMetrics {
    /// A text that is not older than the request. Those who wait for the one in progress share the next.
    async fn text(&self, render: impl FnOnce() -> String + Send + 'static) -> SharedText {
        let asked = Instant::now();
        let mut last = Arc::clone(&self.0).lock_owned().await;
        if let Some(rendered) = last.as_ref() {
            if rendered.begun >= asked {
                return rendered.text.clone();
            }
            tokio::time::sleep_until(rendered.rests_until.into()).await;
        }
        // On its own thread, and to its end: a client that disconnects makes no room for another.
        let rendering = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let text = SharedText::from(render());
            let rests_until = Instant::now() + begun.elapsed();
            *last = Some(Rendered { begun, rests_until, text: text.clone() });
            text
        });
        rendering.await.expect("rendering does not panic")
    }
}

/// The last text of the metrics of processes.
#[derive(Debug, Default)]
pub(super) struct ProcessMetrics(Mutex<Option<(Instant, SharedText)>>);

impl ProcessMetrics {
    async fn text(&self, control: &Control) -> Result<SharedText, ControlError> {
        let mut last = self.0.lock().await; // those who come meanwhile share it
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < PROCESSES_FRESH) {
            return Ok(text.clone());
        }
        let text = SharedText::from(process_exposition(control).await?);
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

pub(super) async fn show(State(state): State<ApiState>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    match permitted(&state, &head).await {
        Ok(()) => {
            let of = state.clone();
            state.border.metrics.text(move || text(&of)).await.into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

/// Usage of processes, where an operator has switched that on.
pub(super) async fn show_processes(State(state): State<ApiState>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    match processes(&state, &head).await {
        Ok(text) => text.into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn processes(state: &ApiState, head: &Parts) -> Result<SharedText, NativeError> {
    permitted(state, head).await?;
    if !state.border.settings.metrics_processes {
        return Err(ApiError::new(Problem::NotFound, messages::process_metrics_are_off()).into());
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn all_who_ask_while_metrics_are_rendered_share_one_text_that_is_newer() {
        let (metrics, rendered) = (ServerMetrics::default(), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let rendered = Arc::clone(&rendered);
            metrics.text(move || rendered.fetch_add(1, Ordering::SeqCst).to_string())
        };
        let busy = Arc::clone(&metrics.0).lock_owned().await;
        let mut waiting: Vec<_> = (0..50).map(|_| Box::pin(ask())).collect();
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }

        drop(busy);
        let texts = futures::future::join_all(waiting).await;
        let later = ask().await;

        assert!(texts.iter().all(|text| text.text == "0" && text.shared.bytes() == 1), "{texts:?}");
        assert_eq!(later.text, "1", "what happened since is in it");
    }
}
