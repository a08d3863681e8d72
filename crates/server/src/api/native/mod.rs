//! The native API, `/api/v1`: plain JSON, real HTTP status codes, errors that name the field.
//!
//! Promised: a body that does not validate changes nothing; a field that the call does not know is
//! refused, so that a misspelt one is noticed (the body of a registration is the exception: it has
//! the liberal shape of register_proc_info); every time is in Unix seconds, unless its name ends in `_ms`; a host is written
//! `CLOUD:IP`. What is asked and answered is said by the types of `proctor-api`.

mod admin;
mod body;
mod caller;
mod cursor;
mod diff;
mod error;
mod events;
mod hosts;
mod openapi;
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
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use error::{Kind, NativeError};

pub use openapi::openapi_json;

const PREFIX: &str = "/api/v1";
/// As in the other dialects: room for tens of thousands of targets.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

type Result<T> = std::result::Result<T, NativeError>;

/// Every call, once: the router and the OpenAPI document are made from it.
fn table() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(hosts::list))
        .routes(routes!(admin::create_token))
        .routes(routes!(processes::list))
        .routes(routes!(processes::register))
        .routes(routes!(processes::plan))
        .routes(routes!(processes::show))
        .routes(routes!(processes::unregister))
        .routes(routes!(operations::submit))
        .routes(routes!(tasks::show))
        .routes(routes!(tasks::targets))
        .routes(routes!(pools::list))
        .routes(routes!(pools::set))
        .routes(routes!(events::list))
        .routes(routes!(events::stream))
        .routes(routes!(webhooks::list))
        .routes(routes!(webhooks::add))
        .routes(routes!(webhooks::remove))
        .routes(routes!(admin::create_app))
}

/// With the paths as callers write them.
fn document() -> OpenApi {
    let (_, mut document) =
        OpenApiRouter::<ApiState>::with_openapi(openapi::frame()).nest(PREFIX, table()).split_for_parts();
    openapi::add_errors(&mut document);
    document
}

/// To be nested under `/api/v1`.
pub(crate) fn router(state: ApiState) -> Router {
    let (routes, _) = table().split_for_parts();
    routes
        .route("/openapi.json", get(openapi::serve))
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
