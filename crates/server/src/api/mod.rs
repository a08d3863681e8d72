//! The HTTP border: dialects decode into one model and encode from it.
//!
//! Promised: every family of endpoints shares one handler for each capability and differs only in
//! how a request is decoded, how rows are keyed and how errors are dressed; a request that fails
//! validation changes nothing; a trailing slash is optional and never redirected; every answer
//! is JSON; a secret is in no answer, log line or Debug text.
//! Absent: TLS (a proxy in front ends it).

mod answer;
mod auth;
mod content;
pub mod error;
mod family;
mod fields;
mod gse;
mod job;
mod json;
mod language;
mod limits;
pub mod native;
mod permission;
mod renditions;
mod request;
mod routes;
mod rows;
mod settings;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use proctor_model::Class;
use proctor_runtime::Tasks;
use tower_http::normalize_path::NormalizePath;

use crate::ServerError;
use answer::Dressing;
pub use auth::GatewayKey;
use error::{ApiError, Problem};
use family::Family;
use language::Language;
pub use limits::RateLimit;
pub use settings::{ApiState, Networks, Settings};

/// After shutdown is asked for, requests that are under way get this long to end.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// One path with one method, and what it takes to call it.
#[derive(Clone, Debug)]
pub struct RouteInfo {
    pub method: Method,
    pub path: String,
    /// None: whoever reaches the server may call it.
    pub class: Option<Class>,
    pub mutates: bool,
}

/// Every route of every family; the routers are built from the same tables.
pub fn routes() -> Vec<RouteInfo> {
    let compatible = routes::table();
    compatible.iter().map(routes::Route::info).chain(native::routes()).collect()
}

/// Binds `address` (port 0: any free one) and serves until `tasks` end. Returns the real address.
pub async fn serve(address: SocketAddr, state: ApiState, tasks: &Tasks) -> Result<SocketAddr, ServerError> {
    let listen = |source| ServerError::Listen { address, source };
    let listener = tokio::net::TcpListener::bind(address).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    // Answers are small and whole: waiting to fill a segment only delays them.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let shutdown = tasks.shutdown();
    let server = axum::serve(listener, router(state).into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(shutdown.clone().cancelled_owned());
    tasks.spawn_to_end("http", async move {
        tokio::select! {
            ended = server => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the HTTP server ended");
                }
            }
            () = async { shutdown.cancelled().await; tokio::time::sleep(DRAIN_MAX).await } => {
                tracing::warn!("HTTP requests were cut off by the shutdown");
            }
        }
    });
    tracing::info!(%bound, "HTTP is served");
    Ok(bound)
}

/// Everything that is served over HTTP.
pub fn router(state: ApiState) -> Router {
    let families = Router::new()
        .merge(routes::router())
        .route("/healthz", get(health))
        .route("/readyz", get(health))
        .with_state(state.clone());
    let routes = families.nest("/api/v1", native::router(state.clone())).fallback(unknown_path);
    let routes = routes.layer(from_fn_with_state(state, in_place)).layer(from_fn(in_language));
    // Around the router, not inside it: a path must be trimmed before it is matched.
    Router::new().fallback_service(NormalizePath::trim_trailing_slash(routes))
}

/// A path or a method that nothing serves. Mounted by the families too, for their methods.
async fn unknown_path(request: Request) -> Response {
    let path =
        request.extensions().get::<axum::extract::OriginalUri>().map_or_else(|| request.uri(), |uri| &uri.0).path();
    let error = ApiError::new(Problem::NotFound, format!("nothing is served at {} {path}", request.method()));
    Dressing::new(Family::of_path(path), request.headers()).failure(&error)
}

/// Answers in the language that the caller wants.
async fn in_language(request: Request, next: Next) -> Response {
    Language::of(request.headers()).during(next.run(request)).await
}

/// Takes a place for the call until its answer begins; a stream of events holds none.
async fn in_place(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if matches!(path, "/healthz" | "/readyz") {
        return next.run(request).await;
    }
    match state.border.places.take() {
        Some(_place) => next.run(request).await,
        None => {
            let error = ApiError::too_many_at_once(state.border.places.max);
            if native::serves(path) {
                return native::failure(error);
            }
            Dressing::new(Family::of_path(path), request.headers()).failure(&error)
        }
    }
}

/// Well once the server answers and the agent that is waited for, if any, is connected.
async fn health(State(state): State<ApiState>) -> Response {
    let missing = state.wait_for.as_ref().filter(|agent| !state.control.is_connected(agent));
    match missing {
        None => (StatusCode::OK, axum::Json(serde_json::json!({"status": "ok"}))).into_response(),
        Some(agent) => {
            let reason = format!("agent {agent} is not connected yet");
            let body = serde_json::json!({"status": "waiting", "reason": reason});
            (StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
        }
    }
}
