//! Envelopes: how each family writes a success and a failure.
//!
//! Promised: exactly `{"result","code","message","data","request_id"}`; JOB adds `job_request_id`; the gateway's own
//! failures have its body, its HTTP status and its headers. Behind an ESB the same fields are returned, of which it
//! needs code, message and data.

use proctor_model::messages;
use std::any::Any;
use std::convert::Infallible;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response as HttpResponse, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use tower_http::catch_panic::ResponseForPanic;
use uuid::Uuid;

use super::connections::SharedAnswer;
use super::error::{ApiError, GatewayAnswer, Problem, ProblemEntry};
use super::family::Family;
use super::language;
use super::metrics::CountedAs;
use super::permission::Permission;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-bkapi-request-id");
const ERROR_CODE: HeaderName = HeaderName::from_static("x-bkapi-error-code");
const ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-bkapi-error-message");
const REQUEST_ID_CHARS_MAX: usize = 64;
const HEADER_CHARS_MAX: usize = 512;
const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
/// What the original answers for an unknown path, word for word; it has no code.
const NOT_FOUND: &str = "The content does not exist";

/// The id of one request: the caller's if it is a sane one, otherwise our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(String);

impl RequestId {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let is_sane = |text: &&str| {
            (1..=REQUEST_ID_CHARS_MAX).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(is_sane);
        given.map_or_else(Self::new, |text| Self(text.to_owned()))
    }

    /// It is sane, so it is legal in a header.
    pub(crate) fn header(&self) -> HeaderValue {
        header_text(&self.0)
    }

    fn new() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    result: bool,
    code: u32,
    message: &'a str,
    data: T,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_request_id: Option<&'a str>,
    /// What the caller lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    permission: Option<&'a Permission>,
}

/// A failure in the words of the answer.
struct FailureText<'a> {
    message: String,
    permission: Option<&'a Permission>,
}

impl<'a, T: Serialize> Envelope<'a, T> {
    fn new(family: Family, id: &'a RequestId, code: u32, message: &'a str, data: T) -> Self {
        let job_request_id = (family == Family::Job).then_some(id.0.as_str());
        Self { result: code == 0, code, message, data, request_id: &id.0, job_request_id, permission: None }
    }
}

impl<'a> Envelope<'a, ()> {
    fn failed(family: Family, id: &'a RequestId, code: u32, failure: &'a FailureText<'a>) -> Self {
        Self { permission: failure.permission, ..Self::new(family, id, code, &failure.message, ()) }
    }
}

/// The data of an answer as JSON text, in pieces that others may hold, too.
#[derive(Debug)]
pub(crate) struct Written {
    pub(super) pieces: Vec<Bytes>,
    pub(super) shared: SharedAnswer,
}

/// How the answer to one request is written.
#[derive(Clone, Debug)]
pub(crate) struct ResponseWriter {
    family: Family,
    id: RequestId,
}

impl ResponseWriter {
    pub(crate) fn new(family: Family, headers: &HeaderMap) -> Self {
        Self { family, id: RequestId::of(headers) }
    }

    pub(crate) fn answer<T: Serialize>(&self, result: Result<T, ApiError>) -> Response {
        match result {
            Ok(data) => self.success(data),
            Err(error) => self.failure(&error),
        }
    }

    /// As [`Self::answer`], of data that is JSON text already.
    pub(crate) fn written(&self, result: Result<Written, ApiError>) -> Response {
        let Written { pieces: data, shared } = match result {
            Ok(data) => data,
            Err(error) => return self.failure(&error),
        };
        let envelope = serde_json::to_string(&self.envelope(())).expect("an envelope has only string keys");
        let (head, tail) =
            envelope.split_once("null").expect("the data of this envelope are null, and nothing is before");
        let around = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let pieces: Vec<Bytes> = [around(head)].into_iter().chain(data).chain([around(tail)]).collect();
        let length = pieces.iter().map(Bytes::len).sum::<usize>();
        let body = Body::from_stream(futures::stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
        let headers = [(REQUEST_ID, header_text(&self.id.0)), (header::CONTENT_LENGTH, HeaderValue::from(length))];
        (headers, JSON, Extension(shared), body).into_response()
    }

    fn success<T: Serialize>(&self, data: T) -> Response {
        json_answer(StatusCode::OK, &self.id, &self.envelope(data))
    }

    fn envelope<T: Serialize>(&self, data: T) -> Envelope<'_, T> {
        let message = if self.family == Family::Job { "" } else { "success" };
        Envelope::new(self.family, &self.id, 0, message, data)
    }

    pub(crate) fn failure(&self, error: &ApiError) -> Response {
        let mut response = self.failed(error);
        response.extensions_mut().insert(CountedAs(error.problem.entry().name));
        response
    }

    fn failed(&self, error: &ApiError) -> Response {
        let Self { family, id } = self;
        log(id, error);
        let entry = error.problem.entry();
        let failure =
            FailureText { message: language::of_message(&error.message), permission: error.permission.as_deref() };
        match (family, entry.gateway) {
            (Family::GseGateway, GatewayAnswer::Level { http, number, code_name, text }) => {
                let failure = FailureText { message: language::of_gateway_error(error, text), ..failure };
                let mut response = gateway_failure(id, http, number, code_name, &failure);
                let in_header = format!("{text} [reason=\"{}\"]", error.message);
                response.headers_mut().insert(ERROR_MESSAGE, header_text(&in_header));
                if let Some(wait) = error.retry_after {
                    // Whole seconds, and not before there is room again.
                    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
                }
                response
            }
            (Family::GseGateway, GatewayAnswer::Business(number)) => {
                json_answer(StatusCode::OK, id, &Envelope::failed(*family, id, number, &failure))
            }
            (Family::GseEsb | Family::GseBackend | Family::Job, _) => esb_failure(*family, id, entry, &failure),
        }
    }
}

fn esb_failure(family: Family, id: &RequestId, entry: &ProblemEntry, failure: &FailureText<'_>) -> Response {
    let code = if family == Family::Job { entry.job } else { entry.esb };
    let status = status_of(entry.esb_http);
    match code {
        Some(code) => json_answer(status, id, &Envelope::failed(family, id, code, failure)),
        None => json_answer(status, id, &json!({"result": false, "data": null, "message": NOT_FOUND})),
    }
}

fn gateway_failure(id: &RequestId, http: u16, number: u32, code_name: &str, failure: &FailureText<'_>) -> Response {
    let message = &failure.message;
    let mut body = json!({"code": number, "code_name": code_name, "message": message, "result": false, "data": null});
    if let Some(permission) = failure.permission {
        body["permission"] = json!(permission);
    }
    let mut response = json_answer(status_of(http), id, &body);
    response.headers_mut().insert(ERROR_CODE, HeaderValue::from(number));
    response
}

fn json_answer(status: StatusCode, id: &RequestId, body: &impl Serialize) -> Response {
    let headers = [(REQUEST_ID, header_text(&id.0))];
    let text = serde_json::to_vec(body).expect("answers have only string keys");
    (status, headers, JSON, text).into_response()
}

fn status_of(number: u16) -> StatusCode {
    StatusCode::from_u16(number).expect("the catalogue holds only HTTP statuses")
}

/// Printable ASCII, bounded: field names and paths of callers are in it.
fn header_text(text: &str) -> HeaderValue {
    let printable = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    let text: String = text.chars().take(HEADER_CHARS_MAX).map(printable).collect();
    HeaderValue::from_str(&text).expect("printable ASCII is legal in a header")
}

/// A caller's mistake is the caller's business; our own failures wake someone.
fn log(id: &RequestId, error: &ApiError) {
    match &error.source {
        Some(source) => tracing::error!(request = id.0, error = chain(source), "request failed"),
        None => tracing::debug!(request = id.0, problem = error.problem.entry().name, "request refused"),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Turns a panic of a handler into the envelope of its family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PanicAnswer(pub(crate) Family);

impl ResponseForPanic for PanicAnswer {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, panic: Box<dyn Any + Send + 'static>) -> HttpResponse<Body> {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        tracing::error!(panic = said, family = ?self.0, "handler panicked");
        let error = ApiError::new(Problem::Internal, messages::server_failed());
        ResponseWriter { family: self.0, id: RequestId::new() }.failure(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(header: &str) -> RequestId {
        RequestId::of(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(header).unwrap())]))
    }

    #[test]
    fn a_sane_request_id_is_kept_and_any_other_replaced_by_32_digits() {
        assert_eq!(id_of("d2033af2-fef2-4e6b").0, "d2033af2-fef2-4e6b");
        for odd in ["", "a b", "a\"b", &"x".repeat(65)] {
            let id = id_of(odd).0;

            assert_eq!(id.len(), 32, "{odd}");
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }

    #[test]
    fn a_header_holds_any_message() {
        assert_eq!(header_text("hosts[0].名\r\nX: y").to_str().unwrap(), "hosts[0].???X: y");
    }

    #[tokio::test]
    async fn a_panic_is_answered_in_the_shape_of_its_family() {
        let esb = PanicAnswer(Family::GseEsb).response_for_panic(Box::new("on purpose"));
        let gateway = PanicAnswer(Family::GseGateway).response_for_panic(Box::new("on purpose".to_owned()));

        assert_eq!((esb.status().as_u16(), gateway.status().as_u16()), (500, 500));
        let body = axum::body::to_bytes(esb.into_body(), 4096).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["result"], &body["code"]), (&json!(false), &json!(1_306_000)));
        assert!(!body.to_string().contains("on purpose"));
        assert_eq!(gateway.headers()["x-bkapi-error-code"], "1650001");
    }
}
