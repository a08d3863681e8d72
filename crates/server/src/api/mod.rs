//! The HTTP API layer: dialects decode into one model and encode from it.
//!
//! Promised: every family of endpoints shares one handler per capability and differs only in how a request is
//! decoded, how rows are keyed and how errors are rendered; a request that fails validation changes nothing; a
//! trailing slash is optional and never redirected; every response is JSON; no secret appears in a response, log line
//! or Debug text.
//! Absent: the store, and decisions: handlers go through `control`.
//! Start at `routes`; `serve` has the sockets, `https` TLS, `proxies` what stands in front.

mod auth;
mod bodies;
mod connections;
mod console;
mod content;
mod downloads;
pub mod error;
mod family;
mod fields;
mod gse;
mod health;
mod heavy;
mod https;
mod job;
mod json;
mod language;
mod limits;
mod metrics;
pub mod native;
mod parsing;
mod permission;
mod proxies;
mod request;
mod response;
mod routes;
mod rows;
mod serve;
mod settings;
mod task_cache;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use proctor_model::{Class, messages};
use proctor_runtime::Tasks;
use tower_http::normalize_path::NormalizePath;

use crate::ServerError;
pub use auth::GatewayKey;
pub use connections::ConnectionLimits;
use error::{ApiError, Problem};
use family::Family;
pub use https::{Https, TlsProblem, TlsSource};
use language::Language;
pub use limits::RateLimit;
pub use proxies::{ProxyHeader, TrustedProxies};
use response::ResponseWriter;
pub use settings::{ApiState, Networks, Settings};

/// One path with one method, and what it takes to call it.
#[derive(Clone, Debug)]
pub struct RouteInfo {
    pub method: Method,
    pub path: String,
    /// None: anyone who can reach the server may call it.
    pub class: Option<Class>,
    pub mutates: bool,
}

/// Every route of every family; the routers are built from the same tables.
pub fn routes() -> Vec<RouteInfo> {
    let compatible = routes::table();
    compatible.iter().map(routes::Route::info).chain(native::routes()).collect()
}

/// Binds `address` (port 0: any free one) and serves until `tasks` end. Returns the real address.
pub async fn serve(
    address: SocketAddr,
    state: ApiState,
    https: Option<Https>,
    tasks: &Tasks,
) -> Result<SocketAddr, ServerError> {
    let listen = |source| ServerError::Listen { address, source };
    let listener = tokio::net::TcpListener::bind(address).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    let (connections, border) = (state.border.connections.clone(), state.border.clone());
    let proxies = state.border.settings.proxies.networks.clone();
    tasks.spawn("overview trend", native::trend::watch(state.clone()));
    let service = serve::Service::new(router(state), https.clone(), proxies, tasks.shutdown());
    tasks.spawn_critical("http listener", serve::accept(listener, service, connections.clone(), tasks.clone()));
    tasks.spawn_critical("http connections", connections.close_overdue());
    tasks.spawn_critical("task cache", forget_unread(border));
    match https {
        None => tracing::info!(%bound, "listening for HTTP"),
        Some(https) => {
            let (fingerprint, expires_at) = (https.fingerprint(), https.expires_at());
            tracing::info!(%bound, fingerprint, %expires_at, "listening for HTTPS");
            tasks.spawn_critical("https certificate", https.keep_current());
        }
    }
    Ok(bound)
}

/// Frees the memory of tasks that nobody polls any more.
async fn forget_unread(border: Arc<settings::ApiShared>) {
    let mut period = tokio::time::interval(Duration::from_secs(60));
    loop {
        period.tick().await;
        border.renditions.forget_unread(Instant::now());
    }
}

/// Everything that is served over HTTP.
pub fn router(state: ApiState) -> Router {
    let proxies = state.border.settings.proxies.clone();
    let families = Router::new()
        .merge(routes::router())
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::show))
        .route("/metrics/processes", get(metrics::show_processes))
        .route("/download/{name}", get(downloads::download))
        .with_state(state.clone());
    let measured = from_fn_with_state(state.clone(), metrics::measure);
    let routes = families.nest("/api/v1", native::router(state)).fallback(unknown_path);
    let routes = routes.layer(from_fn(in_language)).layer(measured);
    let routes = routes.layer(from_fn_with_state(proxies, proxies::resolve));
    // Around the router, not inside it: a path must be trimmed before it is matched.
    Router::new().fallback_service(NormalizePath::trim_trailing_slash(routes))
}

/// A path or a method that no API serves: the console's page for a browser, an error for a program. Mounted
/// by the families too, for their methods.
async fn unknown_path(request: Request) -> Response {
    if let Some(page) = console::answer(&request) {
        return page;
    }
    let path =
        request.extensions().get::<axum::extract::OriginalUri>().map_or_else(|| request.uri(), |uri| &uri.0).path();
    let error = ApiError::new(Problem::NotFound, messages::nothing_served(request.method(), path));
    ResponseWriter::new(Family::of_path(path), request.headers()).failure(&error)
}

/// Answers in the language that the caller wants.
async fn in_language(request: Request, next: Next) -> Response {
    Language::of(request.headers()).during(next.run(request)).await
}
