//! The one shape of an error: `{"error":{"code","message","field"}}` with a real HTTP status.

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use proctor_model::FieldError;
use proctor_store::StoreError;
use serde_json::json;

use crate::ServerError;
use crate::control::ControlError;

#[derive(Debug)]
pub(crate) enum NativeError {
    /// A value that does not fit.
    Field(FieldError),
    /// A body or query that cannot be read at all.
    Malformed(String),
    BodyTooLarge,
    Unauthenticated(String),
    Forbidden(String),
    NotFound(String),
    Method(Method),
    Failed(ServerError),
}

impl From<FieldError> for NativeError {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

impl From<ServerError> for NativeError {
    fn from(error: ServerError) -> Self {
        Self::Failed(error)
    }
}

impl From<ControlError> for NativeError {
    fn from(error: ControlError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<StoreError> for NativeError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl IntoResponse for NativeError {
    fn into_response(self) -> Response {
        let (status, code) = self.kind();
        let field = match &self {
            Self::Field(error) => Some(error.field.clone()),
            Self::Malformed(_)
            | Self::BodyTooLarge
            | Self::Unauthenticated(_)
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::Method(_)
            | Self::Failed(_) => None,
        };
        let mut error = json!({ "code": code, "message": self.into_message() });
        if let Some(field) = field {
            error["field"] = json!(field);
        }
        (status, Json(json!({ "error": error }))).into_response()
    }
}

impl NativeError {
    fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Field(_) | Self::Malformed(_) => (StatusCode::BAD_REQUEST, "invalid_argument"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::Unauthenticated(_) => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "permission_denied"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Failed(error) if is_passing(error) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Self::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }

    /// Causes inside the server are for its log, not for the caller.
    fn into_message(self) -> String {
        match self {
            Self::Field(error) => error.to_string(),
            Self::Malformed(message)
            | Self::Unauthenticated(message)
            | Self::Forbidden(message)
            | Self::NotFound(message) => message,
            Self::BodyTooLarge => "the body is larger than this server takes".into(),
            Self::Method(method) => format!("the path does not take {method}"),
            Self::Failed(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a call of the native API failed");
                match store_error(&error) {
                    Some(error) => error.to_string(),
                    None => error.to_string(),
                }
            }
        }
    }
}

fn store_error(error: &ServerError) -> Option<&StoreError> {
    match error {
        ServerError::Store(error) | ServerError::Control(ControlError::Store(error)) => Some(error),
        ServerError::Control(ControlError::ShuttingDown) | ServerError::Listen { .. } | ServerError::Pki(_) => None,
    }
}

/// Whether the same call can succeed later without a change of program or data.
fn is_passing(error: &ServerError) -> bool {
    match store_error(error) {
        Some(StoreError::Full { .. } | StoreError::Closed) => true,
        Some(StoreError::Failed { .. } | StoreError::Damaged { .. } | StoreError::Newer { .. }) => false,
        None => matches!(error, ServerError::Control(ControlError::ShuttingDown)),
    }
}
