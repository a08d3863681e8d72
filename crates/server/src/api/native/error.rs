//! The one shape of an error: `{"error":{"code","message","field"}}` with a real HTTP status.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use proctor_model::FieldError;
use proctor_store::StoreError;
use serde_json::json;

use crate::ServerError;
use crate::api::error::{ApiError, Problem};
use crate::control::ControlError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    InvalidArgument,
    BodyTooLarge,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    MethodNotAllowed,
    Unavailable,
    Internal,
}

impl Kind {
    fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::InvalidArgument => (StatusCode::BAD_REQUEST, "invalid_argument"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::Unauthenticated => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            Self::PermissionDenied => (StatusCode::FORBIDDEN, "permission_denied"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

impl From<Problem> for Kind {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::MalformedBody | Problem::InvalidField => Self::InvalidArgument,
            Problem::MalformedAuthorization
            | Problem::AppUnverified
            | Problem::UserUnverified
            | Problem::OperatorMissing
            | Problem::NetworkUnknown => Self::Unauthenticated,
            Problem::NotFound | Problem::UnknownTask | Problem::NoAgentFound => Self::NotFound,
            Problem::BodyTooLarge => Self::BodyTooLarge,
            Problem::Unavailable | Problem::StoreFull => Self::Unavailable,
            Problem::Internal => Self::Internal,
        }
    }
}

/// The message is for the caller; the cause is for the log and stays inside the server.
#[derive(Debug)]
pub(crate) struct NativeError {
    kind: Kind,
    message: String,
    field: Option<String>,
    cause: Option<ServerError>,
}

impl NativeError {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), field: None, cause: None }
    }
}

impl From<FieldError> for NativeError {
    fn from(error: FieldError) -> Self {
        let message = error.to_string();
        Self { field: Some(error.field), ..Self::new(Kind::InvalidArgument, message) }
    }
}

impl From<ApiError> for NativeError {
    fn from(error: ApiError) -> Self {
        let cause = error.source.map(ServerError::from);
        Self { cause, ..Self::new(error.problem.into(), error.message) }
    }
}

impl From<ControlError> for NativeError {
    fn from(error: ControlError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<StoreError> for NativeError {
    fn from(error: StoreError) -> Self {
        ControlError::from(error).into()
    }
}

impl From<ServerError> for NativeError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Store(error) => error.into(),
            ServerError::Control(error) => error.into(),
            ServerError::Pki(_) | ServerError::Listen { .. } => {
                Self { cause: Some(error), ..Self::new(Kind::Internal, "the server could not carry out the call") }
            }
        }
    }
}

impl IntoResponse for NativeError {
    fn into_response(self) -> Response {
        if let Some(cause) = &self.cause {
            tracing::error!(error = cause as &dyn std::error::Error, "a call of the native API failed");
        }
        let (status, code) = self.kind.answer();
        let mut error = json!({ "code": code, "message": self.message });
        if let Some(field) = self.field {
            error["field"] = json!(field);
        }
        (status, Json(json!({ "error": error }))).into_response()
    }
}
