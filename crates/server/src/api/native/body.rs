//! Bodies and queries into values, with errors that name the field.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use proctor_model::FieldError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::NativeError;

/// A JSON body, whatever its Content-Type says; no body at all is an empty object.
pub(super) struct Body(pub(super) Value);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = NativeError;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
            let message = rejection.body_text();
            match rejection.into_response().status() {
                StatusCode::PAYLOAD_TOO_LARGE => NativeError::BodyTooLarge,
                _ => NativeError::Malformed(message),
            }
        })?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(Value::Object(Map::new())));
        }
        let value = serde_json::from_slice(&bytes)
            .map_err(|error| NativeError::Malformed(format!("the body is not JSON: {error}")))?;
        Ok(Self(value))
    }
}

/// The query string, its values as they are.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Params<T> {
    type Rejection = NativeError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let Query(params) = Query::try_from_uri(&parts.uri)
            .map_err(|rejection| NativeError::Malformed(format!("query: {}", rejection.body_text())))?;
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

/// One object of a body. A field that is null counts as absent.
#[derive(Debug)]
pub(super) struct Object<'a> {
    fields: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// Refuses what is no object, and fields that are not in `known`.
    pub(super) fn new(value: &'a Value, known: &[&str]) -> Result<Self, FieldError> {
        let fields = value.as_object().ok_or_else(|| FieldError::new("", "must be an object"))?;
        if let Some(stranger) = fields.keys().find(|field| !known.contains(&field.as_str())) {
            let known = known.join(", ");
            return Err(FieldError::new(stranger, format!("is not a field of this call; there are: {known}")));
        }
        Ok(Self { fields })
    }

    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, field: &str) -> Result<&'a str, FieldError> {
        let value = self.get(field).ok_or_else(|| missing(field))?;
        value.as_str().ok_or_else(|| FieldError::new(field, "must be a string"))
    }

    pub(super) fn number(&self, field: &str) -> Result<f64, FieldError> {
        let value = self.get(field).ok_or_else(|| missing(field))?;
        value.as_f64().ok_or_else(|| FieldError::new(field, "must be a number"))
    }

    pub(super) fn count<T: TryFrom<u64>>(&self, field: &str) -> Result<Option<T>, FieldError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| T::try_from(count).ok());
        count.map(Some).ok_or_else(|| FieldError::new(field, "must be a whole number that is not negative or too large"))
    }

    pub(super) fn flag(&self, field: &str) -> Result<bool, FieldError> {
        let Some(value) = self.get(field) else { return Ok(false) };
        value.as_bool().ok_or_else(|| FieldError::new(field, "must be true or false"))
    }

    pub(super) fn list(&self, field: &str) -> Result<Option<&'a [Value]>, FieldError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_array().map(|list| Some(list.as_slice())).ok_or_else(|| FieldError::new(field, "must be a list"))
    }
}

pub(super) fn missing(field: &str) -> FieldError {
    FieldError::new(field, "is missing")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_misspelt_field_is_named_with_what_there_is() {
        let error = Object::new(&json!({ "opperation": 1 }), &["operation", "process"]).unwrap_err();

        assert_eq!(error.to_string(), "opperation: is not a field of this call; there are: operation, process");
    }

    #[test]
    fn a_field_of_a_wrong_type_or_none_is_named() {
        let body = json!({ "text": 5, "count": -1, "flag": "yes", "list": {}, "null": null });
        let object = Object::new(&body, &["text", "count", "flag", "list", "null"]).unwrap();

        assert_eq!(object.text("text").unwrap_err().to_string(), "text: must be a string");
        assert_eq!(object.text("null").unwrap_err().to_string(), "null: is missing");
        assert!(object.count::<u32>("count").is_err());
        assert!(object.flag("flag").is_err());
        assert!(object.list("list").is_err());
        assert_eq!(object.count::<u32>("null"), Ok(None));
    }
}
