//! Bodies and queries into values, with errors that name the field.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use proctor_model::FieldError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::{Kind, NativeError};
use crate::api::fields::Fields;

/// A slow sender holds a connection and what it has sent so far; this long.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// A JSON body, whatever its Content-Type says; no body at all is an empty object.
pub(super) struct Body(pub(super) Value);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = NativeError;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let bytes = match tokio::time::timeout(BODY_TIME_MAX, Bytes::from_request(request, state)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                return Err(NativeError::new(Kind::BodyTooLarge, "the body is larger than this server takes"));
            }
            Ok(Err(rejection)) => return Err(malformed(format!("the body cannot be read: {rejection}"))),
            Err(_) => return Err(malformed("the body did not arrive whole in time")),
        };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(Value::Object(Map::new())));
        }
        serde_json::from_slice(&bytes).map(Self).map_err(|error| malformed(format!("the body is not JSON: {error}")))
    }
}

fn malformed(message: impl Into<String>) -> NativeError {
    NativeError::new(Kind::InvalidArgument, message)
}

/// The query string, its values as they are.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Params<T> {
    type Rejection = NativeError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let Query(params) = Query::try_from_uri(&parts.uri)
            .map_err(|rejection| malformed(format!("query: {}", rejection.body_text())))?;
        Ok(Self(params))
    }
}

/// A value of a query that must be a number, `default` where it is absent.
pub(super) fn number_param(field: &str, text: Option<&str>, default: u64) -> Result<u64, FieldError> {
    let Some(text) = text else { return Ok(default) };
    text.parse().map_err(|_| FieldError::new(field, format!("'{text}' is not a whole number")))
}

pub(super) fn flag_param(field: &str, text: Option<&str>) -> Result<bool, FieldError> {
    match text {
        None | Some("false" | "0") => Ok(false),
        Some("" | "true" | "1") => Ok(true),
        Some(text) => Err(FieldError::new(field, format!("'{text}' is neither true nor false"))),
    }
}

/// The fields of an object, none of which is outside `known`.
pub(super) fn only<'a>(value: &'a Value, known: &[&str]) -> Result<Fields<'a>, FieldError> {
    let fields = Fields::of(value)?;
    let names = value.as_object().into_iter().flat_map(Map::keys);
    if let Some(stranger) = names.into_iter().find(|name| !known.contains(&name.as_str())) {
        let known = known.join(", ");
        return Err(FieldError::new(stranger, format!("is not a field of this call; there are: {known}")));
    }
    Ok(fields)
}

pub(super) fn flag(value: &Value) -> Result<bool, FieldError> {
    value.as_bool().ok_or_else(|| FieldError::new("", "must be true or false"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_misspelt_field_is_named_with_what_there_is() {
        let error = only(&json!({ "opperation": 1 }), &["operation", "process"]).unwrap_err();

        assert_eq!(error.to_string(), "opperation: is not a field of this call; there are: operation, process");
    }

    #[test]
    fn flags_and_numbers_of_a_query_are_checked() {
        assert_eq!(flag_param("full", Some("")), Ok(true));
        assert_eq!(flag_param("full", None), Ok(false));
        assert_eq!(flag_param("full", Some("yes")).unwrap_err().field, "full");
        assert_eq!(number_param("limit", None, 7), Ok(7));
        assert_eq!(number_param("limit", Some("-1"), 7).unwrap_err().field, "limit");
    }
}
