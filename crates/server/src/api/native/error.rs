//! The one shape of an error: `{"error":{"code","message","field"}}` with a real HTTP status.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use proctor_api::{ErrorBody, ErrorDetail};
use proctor_model::{FieldError, Message, messages};
use proctor_store::{Refusal, StoreError};

use crate::ServerError;
use crate::api::error::{ApiError, Problem};
use crate::api::language;
use crate::api::metrics::CountedAs;
use crate::control::ControlError;
use crate::passwords::PasswordError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    InvalidArgument,
    BodyTooLarge,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    MethodNotAllowed,
    Conflict,
    TooManyRequests,
    Unavailable,
    Internal,
}

impl Kind {
    pub(super) const ALL: [Self; 10] = [
        Self::InvalidArgument,
        Self::BodyTooLarge,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Conflict,
        Self::TooManyRequests,
        Self::Unavailable,
        Self::Internal,
    ];

    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(super) fn code(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::BodyTooLarge => "body_too_large",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Conflict => "conflict",
            Self::TooManyRequests => "too_many_requests",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::InvalidArgument => "Something in the request does not fit; `field` says what. Nothing was changed.",
            Self::BodyTooLarge => {
                "The body is larger than this server takes, or the call has more targets than its caller ever gets at once."
            }
            Self::Unauthenticated => "Who calls is not known, or not proved.",
            Self::PermissionDenied => "The caller may not do this; the message says what is missing.",
            Self::NotFound => "What the request names is not there.",
            Self::MethodNotAllowed => "The path does not take this method.",
            Self::Conflict => "What is there does not go together with the request. Nothing was changed.",
            Self::TooManyRequests => "Too many at once; try again later.",
            Self::Unavailable => "The store cannot be read or written, or the server is shutting down.",
            Self::Internal => "Internal error in the server.",
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
            | Problem::NetworkUnknown
            | Problem::GatewayUnverified => Self::Unauthenticated,
            Problem::RateLimited | Problem::ConcurrencyLimited => Self::TooManyRequests,
            Problem::NotFound | Problem::UnknownTask | Problem::NoAgentFound => Self::NotFound,
            Problem::BodyTooLarge => Self::BodyTooLarge,
            Problem::Forbidden => Self::PermissionDenied,
            Problem::Conflict => Self::Conflict,
            Problem::Unavailable | Problem::StoreFull => Self::Unavailable,
            Problem::Internal => Self::Internal,
        }
    }
}

/// The message is for the caller; the cause is for the log and stays inside the server.
#[derive(Debug)]
pub(crate) struct NativeError {
    kind: Kind,
    message: Message,
    field: Option<String>,
    cause: Option<Box<ServerError>>,
}

impl NativeError {
    #[cfg(test)]
    pub(super) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn new(kind: Kind, message: Message) -> Self {
        Self { kind, message, field: None, cause: None }
    }
}

impl From<FieldError> for NativeError {
    fn from(error: FieldError) -> Self {
        let message = error.message();
        Self { field: Some(error.field), ..Self::new(Kind::InvalidArgument, message) }
    }
}

impl From<ApiError> for NativeError {
    fn from(error: ApiError) -> Self {
        let cause = error.source.map(|source| Box::new(ServerError::from(*source)));
        Self { cause, ..Self::new(error.problem.into(), error.message) }
    }
}

impl From<ControlError> for NativeError {
    fn from(error: ControlError) -> Self {
        ApiError::from(error).into()
    }
}

impl From<PasswordError> for NativeError {
    fn from(error: PasswordError) -> Self {
        match error {
            PasswordError::Length => FieldError::new("password", error.message()).into(),
            PasswordError::Busy => ApiError::busy(error.message()).into(),
        }
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
            ServerError::Control(error) | ServerError::Start(error) => error.into(),
            ServerError::Refused(reason) => Self::new(Kind::InvalidArgument, reason),
            ServerError::Pki(_) | ServerError::Tls(_) | ServerError::Listen { .. } => {
                Self { cause: Some(Box::new(error)), ..Self::new(Kind::Internal, messages::server_failed()) }
            }
        }
    }
}

/// What the store refuses because of what is there, or is not.
impl From<Refusal> for NativeError {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::BuiltInRole(_)
            | Refusal::AppExists(_)
            | Refusal::UserExists(_)
            | Refusal::UserDisabled(_)
            | Refusal::OtherKey { .. }
            | Refusal::CredentialChanged(_) => Kind::Conflict,
            Refusal::UnknownBusiness(_)
            | Refusal::UnknownBusinessSet(_)
            | Refusal::UnknownRole(_)
            | Refusal::UnknownApp(_)
            | Refusal::UnknownUser(_)
            | Refusal::UnknownToken(_) => Kind::NotFound,
        };
        Self::new(kind, refusal.message())
    }
}

impl IntoResponse for NativeError {
    fn into_response(self) -> Response {
        if let Some(cause) = self.cause.as_deref() {
            tracing::error!(error = cause as &dyn std::error::Error, "native API request failed");
        }
        let Self { kind, message, field, .. } = self;
        let message = language::of_message(&message);
        let error = ErrorDetail { code: kind.code().to_owned(), message, field };
        (kind.status(), Extension(CountedAs(kind.code())), Json(ErrorBody { error })).into_response()
    }
}
