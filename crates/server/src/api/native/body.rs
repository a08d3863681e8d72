//! Parses bodies and queries into values, with errors that name the field.
//!
//! Promised: an invalid value is reported with its path (`hosts[1].ip`); an unknown field is named together with the
//! known ones; nothing is guessed.
//! Absent: what a value means.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use proctor_api::{LIMIT, LIMIT_MAX};
use proctor_model::{FieldError, Message, messages};
use serde::de::DeserializeOwned;

use super::caller::{BodyOf, HeldRooms, WithoutPermissions};
use super::decode::{self, DecodeError, Json};
use super::error::{Kind, NativeError};
use crate::api::ApiState;
use crate::api::bodies::{BODY_BYTES_MAX, BodySender, ReadBody};
use crate::api::connections::Connection;
use crate::api::error::ApiError;
use crate::api::limits::CallTurn;
use crate::api::parsing::{Parsed, is_large};
use crate::api::settings::ApiShared;

/// A JSON object as a body, whatever its Content-Type says; no body at all is an empty object.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<ApiState> for Body<T> {
    type Rejection = NativeError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Self::Rejection> {
        read_parsed(request, state, from_object).await.map(Self)
    }
}

/// Reads the body after the caller is known, and parses it. What both take in memory is held as long as the call.
pub(super) async fn read_parsed<T, F>(request: Request, state: &ApiState, parse: F) -> Result<T, NativeError>
where
    T: Send + 'static,
    F: FnOnce(&[u8]) -> Result<T, NativeError> + Send + 'static,
{
    let rooms = request.extensions().get::<HeldRooms>().cloned().unwrap_or_default();
    let sender = sender_of(&request);
    let turn = request.extensions().get::<CallTurn>().cloned();
    let rightless = request.extensions().get::<WithoutPermissions>().cloned();
    // A body that comes slowly takes no call from others; how many may come at once is bounded with the bodies.
    if let Some(turn) = turn.as_ref().filter(|_| !request.body().is_end_stream()) {
        turn.pause();
    }
    let body = read_body(request, state, &sender).await?;
    turn.as_ref().map(CallTurn::resume).transpose().map_err(ApiError::from)?;
    if let Some(rightless) = rightless.filter(|_| is_large(&body.bytes)) {
        rightless.refuse(&state.control).await?;
    }
    let ApiShared { parsing, bodies, .. } = &*state.border;
    let Parsed { value, room } = parsing.of_callers.run(bodies, &sender, turn.as_ref(), &body.bytes, parse).await?;
    rooms.hold(room.into_iter().chain(body.into_room()));
    Ok(value)
}

fn sender_of(request: &Request) -> BodySender {
    let sender = request.extensions().get::<BodyOf>().map(|of| of.0.clone());
    sender.unwrap_or_else(|| BodySender::Stranger(String::new()))
}

fn from_object<T: DeserializeOwned>(body: &[u8]) -> Result<T, NativeError> {
    let bytes = if is_blank(body) { b"{}".as_slice() } else { body };
    // serde would also read an object from a list of its values.
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Err(malformed(messages::body_is_a_list())),
        Some(_) | None => from_json(bytes),
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

/// Put into a request whose body is smaller than others.
#[derive(Clone, Copy)]
pub(super) struct BodyLimit(pub(super) usize);

async fn read_body(request: Request, state: &ApiState, sender: &BodySender) -> Result<ReadBody, NativeError> {
    let _reading = request.extensions().get::<Arc<Connection>>().map(Connection::mark_idle);
    let bytes_max = request.extensions().get::<BodyLimit>().map_or(BODY_BYTES_MAX, |limit| limit.0);
    Ok(state.border.bodies.read_at_most(bytes_max, request.into_body(), sender).await?)
}

pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, NativeError> {
    let value = serde_json::from_slice(bytes)
        .map_err(|error| malformed(messages::body_is_not_json(error.line(), error.column())))?;
    let read = serde_path_to_error::deserialize(Json(value));
    Ok(read.map_err(|error| field_error(&error.path().to_string(), error.into_inner()))?)
}

pub(super) fn malformed(message: Message) -> NativeError {
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
    serde_path_to_error::deserialize(decode::query(query)).map_err(|error| {
        let field = error.path().to_string();
        let given = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| *name == field);
        match (error.into_inner(), given) {
            // What we say names the value; what a type says does not.
            (DecodeError::Refused(problem), Some((_, value))) => {
                FieldError::new(field, messages::value_does_not_fit(value, problem))
            }
            (other, _) => field_error(&field, other),
        }
    })
}

/// What a type says, in the words of this API.
fn field_error(path: &str, error: DecodeError) -> FieldError {
    let path = if path == "." { "" } else { path };
    let inside = |field: &str, problem| {
        // A path may end with the field already.
        if path == field || path.ends_with(&format!(".{field}")) {
            FieldError::new(path, problem)
        } else if path.is_empty() {
            FieldError::new(field, problem)
        } else {
            FieldError::new(field, problem).inside(path)
        }
    };
    match error {
        // Inside the object that lacks it, whose own name may be the same.
        DecodeError::Missing(field) if path.is_empty() => FieldError::new(field, messages::is_missing()),
        DecodeError::Missing(field) => FieldError::new(field, messages::is_missing()).inside(path),
        DecodeError::Unknown { field, known: [] } => inside(&field, messages::has_no_fields()),
        DecodeError::Unknown { field, known } => inside(&field, messages::is_not_a_field(known.join(", "))),
        DecodeError::Duplicate(field) => inside(field, messages::is_there_twice()),
        DecodeError::Unfit(problem) | DecodeError::Refused(problem) => FieldError::new(path, problem),
    }
}

/// Rows of one answer.
pub(super) fn page_limit(limit: Option<u32>) -> Result<u32, FieldError> {
    bounded("limit", u64::from(limit.unwrap_or(LIMIT)), u64::from(LIMIT_MAX))?;
    Ok(limit.unwrap_or(LIMIT))
}

pub(super) fn bounded(field: &str, number: u64, max: u64) -> Result<u64, FieldError> {
    if number > max {
        return Err(FieldError::new(field, messages::more_than(number, max)));
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
        ip: Option<std::net::IpAddr>,
        order: Option<proctor_api::SortOrder>,
    }

    fn problem(body: &str) -> (String, String) {
        let error = from_json::<Outer>(body.as_bytes()).unwrap_err();
        (error.field().unwrap_or_default().to_owned(), error.message().to_owned())
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_path() {
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
    fn what_is_not_json_is_reported_with_its_position() {
        for body in ["{", "{\"operation\": \"stop\"}}", "{\"limit\" 1}", "nonsense"] {
            assert!(problem(body).1.starts_with("the body is not JSON: "), "{body}: {}", problem(body).1);
        }
    }

    #[test]
    fn a_query_names_the_field_and_what_it_was_given() {
        let error = |query: &str| from_query::<Query>(query).unwrap_err().to_string();

        assert_eq!(error("limit=-1"), "limit: '-1' is not an integer from 0 to 4294967295");
        assert_eq!(error("full=yes"), "full: 'yes' is neither true nor false");
        assert_eq!(error("ip=ten"), "ip: 'ten' does not fit: invalid IP address syntax");
        assert_eq!(error("order=up"), "order: 'up' is not one of asc, desc");
        assert_eq!(error("limt=1"), "limt: is not a field of this call; there are: limit, full, ip, order");
        assert!(from_query::<Query>("limit=1&full=true").is_ok());
    }

    #[test]
    fn a_problem_of_a_query_is_told_in_one_language() {
        let chinese = |query: &str| from_query::<Query>(query).unwrap_err().message().chinese();

        assert_eq!(chinese("limit=-1").as_deref(), Some("limit: '-1' 不是 0 到 4294967295 之间的整数"));
        assert_eq!(chinese("full=yes").as_deref(), Some("full: 'yes' 既不是 true 也不是 false"));
        assert_eq!(chinese("order=up").as_deref(), Some("order: 'up' 不是 asc, desc 之一"));
        assert_eq!(chinese("ip=ten"), None, "a type speaks English, so all of it is");
    }

    #[test]
    fn what_a_type_of_ours_refuses_is_told_in_both_languages() {
        #[derive(Debug, Deserialize)]
        struct Named {
            #[allow(dead_code, reason = "only whether it can be read is of interest")]
            namespace: proctor_model::Namespace,
        }
        let value = serde_json::from_str(r#"{"namespace": "a:b"}"#).unwrap();
        let of_body = field_error("namespace", Named::deserialize(Json(value)).unwrap_err()).message();
        let of_query = from_query::<Named>("namespace=a:b").unwrap_err().message();

        assert!(of_body.ends_with("must not contain ':'"), "{of_body}");
        assert!(of_body.chinese().is_some_and(|text| text.ends_with("不能包含 ':'")), "{:?}", of_body.chinese());
        assert!(of_query.starts_with("namespace: 'a:b' does not fit: "), "{of_query}");
        assert!(of_query.chinese().is_some());
    }

    #[test]
    fn a_field_that_is_there_twice_is_named() {
        assert_eq!(problem(r#"{"operation": "stop", "operation": "start"}"#).1, "operation: is listed twice");
        assert_eq!(from_query::<Query>("limit=1&limit=2").unwrap_err().to_string(), "limit: is listed twice");
    }

    #[test]
    fn a_page_has_a_bound() {
        assert_eq!(page_limit(None), Ok(100));
        assert_eq!(page_limit(Some(1000)), Ok(1000));
        assert_eq!(page_limit(Some(1001)).unwrap_err().field, "limit");
    }
}
