//! Bodies and queries into values, with errors that name the field.
//!
//! Promised: what does not fit is told with its path (`hosts[1].ip`); a field that is not known is
//! named together with those that are; nothing is guessed. Absent: what a value means.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use proctor_api::{LIMIT, LIMIT_MAX};
use proctor_model::FieldError;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::caller::BodyOf;
use super::error::{Kind, NativeError};
use crate::api::ApiState;
use crate::api::bodies::{BODY_BYTES_MAX, BodySender, ReadBody};
use crate::api::connections::Connection;

/// A JSON object as a body, whatever its Content-Type says; no body at all is an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<ApiState> for Body<T> {
    type Rejection = NativeError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Self::Rejection> {
        let body = read_body(request, state).await?;
        state.border.parsing.of_callers.run(&body.bytes, from_object).await.map(Self)
    }
}

fn from_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, NativeError> {
    let bytes = if is_blank(body) { b"{}".as_slice() } else { body };
    // serde would also read an object from a list of its values.
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Err(malformed("the body is not a JSON object but a list")),
        Some(_) | None => from_json(bytes),
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// Put into a request whose body is smaller than others.
#[derive(Clone, Copy)]
pub(super) struct BodyLimit(pub(super) usize);

/// After the caller is known.
pub(super) async fn read_body(request: Request, state: &ApiState) -> Result<ReadBody, NativeError> {
    let sender = request.extensions().get::<BodyOf>().map(|of| of.0.clone());
    let sender = sender.unwrap_or_else(|| BodySender::Stranger(String::new()));
    let _reading = request.extensions().get::<Arc<Connection>>().map(Connection::does_no_work);
    let bytes_max = request.extensions().get::<BodyLimit>().map_or(BODY_BYTES_MAX, |limit| limit.0);
    Ok(state.border.bodies.read_at_most(bytes_max, request.into_body(), &sender).await?)
}

pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, NativeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value =
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| match error.inner().classify() {
            Category::Data => {
                let message = without_place(&error.inner().to_string());
                field_error(&error.path().to_string(), &message).into()
            }
            Category::Syntax | Category::Eof | Category::Io => {
                malformed(format!("the body is not JSON: {}", error.inner()))
            }
        })?;
    deserializer.end().map_err(|error| malformed(format!("the body is not JSON: {error}")))?;
    Ok(value)
}

pub(super) fn malformed(message: impl Into<String>) -> NativeError {
    NativeError::new(Kind::InvalidArgument, message)
}

/// The query string.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Params<T> {
    type Rejection = NativeError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(from_query(parts.uri.query().unwrap_or_default()).map(Self)?)
    }
}

fn from_query<T: DeserializeOwned>(query: &str) -> Result<T, FieldError> {
    let pairs = || form_urlencoded::parse(query.as_bytes());
    serde_path_to_error::deserialize(serde_urlencoded::Deserializer::new(pairs())).map_err(|error| {
        let field = error.path().to_string();
        let message = error.inner().to_string();
        match pairs().find(|(name, _)| *name == field) {
            Some((_, value)) if !message.starts_with("unknown field") => {
                FieldError::new(field, format!("'{value}' does not fit: {message}"))
            }
            Some(_) | None => field_error(&field, &message),
        }
    })
}

/// What serde says, in the words of this API. serde tells a field that is missing or not known only
/// by its message; those have had this form for as long as serde exists, and a test watches them.
fn field_error(path: &str, message: &str) -> FieldError {
    let path = if path == "." { "" } else { path };
    let quoted = |rest: &str| rest.split('`').next().unwrap_or_default().to_owned();
    if let Some(rest) = message.strip_prefix("missing field `") {
        let missing = FieldError::new(quoted(rest), "is missing");
        return if path.is_empty() { missing } else { missing.inside(path) };
    }
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let known: Vec<&str> = rest.split('`').skip(2).step_by(2).collect();
        let problem = match known[..] {
            [] => "is not a field of this call, which has none".to_owned(),
            _ => format!("is not a field of this call; there are: {}", known.join(", ")),
        };
        let stranger = quoted(rest);
        let is_named = path == stranger || path.ends_with(&format!(".{stranger}"));
        let unknown = FieldError::new(stranger, problem);
        return match (is_named, path) {
            (true, _) => FieldError { field: path.to_owned(), ..unknown },
            (false, "") => unknown,
            (false, _) => unknown.inside(path),
        };
    }
    FieldError::new(path, message)
}

/// serde_json adds line and column to what a type says; the field is the better place.
fn without_place(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(text, _)| text).to_owned()
}

/// Rows of one answer.
pub(super) fn page_limit(limit: Option<u32>) -> Result<u32, FieldError> {
    bounded("limit", u64::from(limit.unwrap_or(LIMIT)), u64::from(LIMIT_MAX))?;
    Ok(limit.unwrap_or(LIMIT))
}

pub(super) fn bounded(field: &str, number: u64, max: u64) -> Result<u64, FieldError> {
    if number > max {
        return Err(FieldError::new(field, format!("{number} is more than {max}")));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only whether it can be read is of interest")]
    struct Outer {
        operation: proctor_model::OperationKind,
        #[serde(default)]
        hosts: Vec<Inner>,
        limit: Option<u32>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only whether it can be read is of interest")]
    struct Inner {
        ip: std::net::IpAddr,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only whether it can be read is of interest")]
    struct Query {
        limit: Option<u32>,
        full: Option<bool>,
    }

    fn problem(body: &str) -> (String, String) {
        let error = from_json::<Outer>(body.as_bytes()).unwrap_err();
        (error.field().unwrap_or_default().to_owned(), error.message().to_owned())
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_place() {
        let cases = [
            (r#"{"opperation": 1}"#, "opperation"),
            (r#"{"operation": "explode"}"#, "operation"),
            (r#"{"hosts": []}"#, "operation"),
            (r#"{"operation": "stop", "hosts": [{"ip": "10.0.0.1"}, {"ip": "ten"}]}"#, "hosts[1].ip"),
            (r#"{"operation": "stop", "hosts": [{}]}"#, "hosts[0].ip"),
            (r#"{"operation": "stop", "hosts": [{"ip": "10.0.0.1", "port": 1}]}"#, "hosts[0].port"),
            (r#"{"operation": "stop", "limit": -1}"#, "limit"),
        ];
        for (body, field) in cases {
            assert_eq!(problem(body).0, field, "{body}: {}", problem(body).1);
        }
    }

    #[test]
    fn a_misspelt_field_is_named_with_what_there_is() {
        let (_, message) = problem(r#"{"opperation": 1}"#);

        assert_eq!(message, "opperation: is not a field of this call; there are: operation, hosts, limit");
        assert_eq!(problem("{}").1, "operation: is missing");
    }

    #[test]
    fn what_is_not_json_is_told_by_its_place() {
        for body in ["{", "{\"operation\": \"stop\"}}", "{\"limit\" 1}", "nonsense"] {
            assert!(problem(body).1.starts_with("the body is not JSON: "), "{body}: {}", problem(body).1);
        }
    }

    #[test]
    fn a_query_names_the_field_and_what_it_was_given() {
        let error = |query: &str| from_query::<Query>(query).unwrap_err().to_string();

        assert_eq!(error("limit=-1"), "limit: '-1' does not fit: invalid digit found in string");
        assert!(error("full=yes").starts_with("full: 'yes' does not fit: "), "{}", error("full=yes"));
        assert_eq!(error("limt=1"), "limt: is not a field of this call; there are: limit, full");
        assert!(from_query::<Query>("limit=1&full=true").is_ok());
    }

    #[test]
    fn a_page_has_a_bound() {
        assert_eq!(page_limit(None), Ok(100));
        assert_eq!(page_limit(Some(1000)), Ok(1000));
        assert_eq!(page_limit(Some(1001)).unwrap_err().field, "limit");
    }
}
