//! The native API, `/api/v1`: plain JSON, real HTTP status codes, errors that name the field.
//!
//! Promised: an invalid body changes nothing; an unknown field is rejected, so that a typo is noticed; every time is
//! in Unix seconds, unless its name ends in `_ms`; a host is written `CLOUD:IP`. Requests and responses are the types
//! of `proctor-api`.
//! Absent: the store, and permissions beyond the class in the route table: `control` checks those per target.
//! Start at `routes_table`.

mod apps;
mod attention;
mod audit;
mod authority;
mod body;
mod businesses;
mod caller;
mod change_plans;
mod cursor;
mod decode;
mod described;
mod diff;
mod error;
mod events;
mod facets;
mod grants;
mod grid;
mod groups;
mod history;
mod host_identity;
mod hosts;
mod hosts_in_state;
mod import;
mod localized;
mod logs;
mod maintenance;
mod openapi;
mod operations;
mod overview;
mod plan;
mod pools;
mod processes;
mod registration;
mod relays;
mod roles;
mod routes_table;
mod search;
mod selector;
mod server;
mod session;
mod tasks;
mod tokens;
pub(super) mod trend;
mod upgrades;
mod usage;
mod users;
mod visible;
mod webhooks;
mod whoami;

use proctor_model::messages;
use std::any::Any;

use axum::Router;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;

use super::ApiState;
use error::Kind;
pub(super) use error::NativeError;

pub use openapi::openapi_json;
pub use routes_table::routes;

type Result<T> = std::result::Result<T, NativeError>;

/// To be nested under `/api/v1`.
pub(crate) fn router(state: ApiState) -> Router {
    routes_table::router()
        .route("/openapi.json", get(openapi::serve))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(after_panic))
        .with_state(state)
}

async fn unknown_path() -> NativeError {
    NativeError::new(Kind::NotFound, messages::no_such_path())
}

async fn wrong_method(method: Method) -> NativeError {
    NativeError::new(Kind::MethodNotAllowed, messages::path_without_method(method))
}

fn after_panic(_: Box<dyn Any + Send>) -> Response {
    tracing::error!("native API handler panicked");
    NativeError::new(Kind::Internal, messages::server_failed()).into_response()
}
