//! The native API, `/api/v1`: plain JSON, real HTTP status codes, errors that name the field.
//!
//! Promised: a body that does not validate changes nothing; a field that the call does not know is
//! refused, so that a misspelt one is noticed (the body of a registration is the exception: it has
//! the liberal shape of register_proc_info); every time is in Unix seconds, unless its name ends in `_ms`; a host is written
//! `CLOUD:IP`. Absent so far: paging of a task's targets, selectors, scopes, and an OpenAPI
//! document.

mod admin;
mod body;
mod caller;
mod error;
mod events;
mod hosts;
mod operations;
mod pools;
mod processes;
mod tasks;
mod webhooks;

use std::any::Any;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use tower_http::catch_panic::CatchPanicLayer;

use super::ApiState;
use error::{Kind, NativeError};

/// As in the other dialects: room for tens of thousands of targets.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

type Result<T> = std::result::Result<T, NativeError>;

/// To be nested under `/api/v1`.
pub(crate) fn router(state: ApiState) -> Router {
    Router::new()
        .route("/hosts", get(hosts::list))
        .route("/processes", get(processes::list).post(processes::register))
        .route("/processes/{namespace}/{name}", get(processes::show).delete(processes::unregister))
        .route("/operations", post(operations::submit))
        .route("/tasks/{task_id}", get(tasks::show))
        .route("/pools", get(pools::list).put(pools::set))
        .route("/events", get(events::list))
        .route("/webhooks", get(webhooks::list).post(webhooks::add))
        .route("/webhooks/{id}", delete(webhooks::remove))
        .route("/tokens", post(admin::create_token))
        .route("/apps", post(admin::create_app))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(CatchPanicLayer::custom(after_panic))
        .with_state(state)
}

async fn unknown_path() -> NativeError {
    NativeError::new(Kind::NotFound, "there is no such path under /api/v1")
}

async fn wrong_method(method: Method) -> NativeError {
    NativeError::new(Kind::MethodNotAllowed, format!("the path does not take {method}"))
}

fn after_panic(_: Box<dyn Any + Send>) -> Response {
    tracing::error!("a handler of the native API panicked");
    NativeError::new(Kind::Internal, "the server has a defect that this request ran into").into_response()
}
