//! Reads a request: its parameters from body or query, and its sender.
//!
//! Promised: the body is read as JSON whatever its Content-Type says, within the bounds of `bodies`; a sender with
//! credentials in the headers is authenticated before the body is read; before a sender is authenticated, no more
//! memory is used than the body itself needs; the parameters that handlers see contain no credentials. A handler
//! reads them first, so that it does nothing on an invalid body.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{OriginalUri, Query, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Method, Uri};
use parking_lot::Mutex;
use proctor_model::{Class, FieldError, messages};
use serde_json::error::Category;

use super::ApiState;
use super::auth::{self, Credentials, Plain, Signed};
use super::bodies::{BodySender, ReadBody, Reservation};
use super::connections::{Connection, share_of};
use super::error::{ApiError, Problem};
use super::family::Family;
use super::json::{Object, Value};
use super::limits::CallTurn;
use super::parsing::{Parsed, is_large};
use super::proxies::Reached;
use super::response::RequestId;
use super::settings::ApiShared;
use crate::control::{AuditAction, Caller, Control, Origin};

/// One authenticated request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) control: Control,
    pub(super) caller: Caller,
    class: Class,
    uri: Uri,
    body: ReadBody,
    sender: BodySender,
    /// Of what was built of the body.
    room: Mutex<Option<Reservation>>,
    pub(super) border: Arc<ApiShared>,
    /// Paused while a large body is parsed.
    turn: CallTurn,
}

impl Call {
    /// `class` is what a caller needs at least for it.
    pub(super) async fn read(
        state: ApiState,
        family: Family,
        class: Class,
        request: Request,
    ) -> Result<Self, ApiError> {
        let origin = origin_of(request.headers(), request.extensions());
        let (head, body) = request.into_parts();
        let peer = origin.remote.map(|remote| share_of(remote).to_string()).unwrap_or_default();
        let connection = head.extensions.get::<Arc<Connection>>().cloned();
        let reading = connection.as_ref().map(Connection::mark_idle);
        let (behind_esb, in_headers) = match in_headers(&state, family, &head, &origin) {
            Ok(found) => found,
            Err(error) => return Err(early(&state, body, &peer, error).await),
        };
        let (caller, turn, body) = match in_headers {
            Some(credentials) => {
                let caller = match known(&state, &credentials, &head.extensions, origin).await {
                    Ok(caller) => caller,
                    Err(error) => return Err(early(&state, body, &peer, error).await),
                };
                let body = state.border.bodies.read(body, &BodySender::caller(&caller)).await?;
                // Not before the body has arrived: a slow one takes no call from others.
                let turn = state.border.calls.take_turn(&caller)?;
                (caller, turn, body)
            }
            None => {
                let body = state.border.bodies.read(body, &BodySender::Stranger(peer)).await?;
                let credentials = in_body(&state, behind_esb, &head, &body.bytes).await?;
                let take_turn = |caller: &Caller| Ok(state.border.calls.take_turn(caller)?);
                let (caller, turn) = admitted(&state, &credentials, &head.extensions, origin, take_turn).await?;
                (caller, turn, body)
            }
        };
        let sender = BodySender::caller(&caller);
        drop(reading);
        let (control, border, room) = (state.control, state.border, Mutex::default());
        Ok(Self { control, caller, class, uri: head.uri, body, sender, room, border, turn })
    }

    /// What `decode` makes of the parameters, which are always an object.
    pub(super) async fn params<T, F>(&self, decode: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Value<'_>) -> Result<T, FieldError> + Send + 'static,
    {
        if is_large(&self.body.bytes) {
            self.require_something().await?;
        }
        let uri = self.uri.clone();
        let parse = move |body: &[u8]| -> Result<T, ApiError> { Ok(decode(&Value::Object(params_of(&uri, body)?))?) };
        let ApiShared { parsing, bodies, .. } = &*self.border;
        let (sender, turn, body) = (&self.sender, Some(&self.turn), &self.body.bytes);
        let Parsed { value, room } = parsing.of_callers.run(bodies, sender, turn, body, parse).await?;
        *self.room.lock() = room;
        Ok(value)
    }

    /// Nothing large is parsed for a caller without any role. What would have changed something leaves a trace.
    async fn require_something(&self) -> Result<(), ApiError> {
        if self.caller.has_any_permission() {
            return Ok(());
        }
        let check = self.caller.require_anywhere(self.class);
        if self.class == Class::Read {
            return Ok(check?);
        }
        let name = self.uri.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let deed = AuditAction::new(name.to_owned(), [self.class]);
        Ok(self.control.audit_refusal(&self.caller, &deed, check).await?)
    }
}

/// The W3C header that names the caller's span.
const TRACE_PARENT: &str = "traceparent";

/// Where a request came from: the peer, or whom a trusted proxy forwards.
pub(super) fn origin_of(headers: &HeaderMap, extensions: &Extensions) -> Origin {
    let remote = extensions.get::<Reached>().and_then(|reached| reached.from);
    let trace_parent = headers.get(TRACE_PARENT).and_then(|value| value.to_str().ok()?.parse().ok());
    Origin { remote, request_id: RequestId::of(headers).to_string(), trace_parent }
}

/// Authenticates the sender, and marks the connection as serving an authenticated caller.
pub(super) async fn known(
    state: &ApiState,
    credentials: &Credentials,
    extensions: &Extensions,
    origin: Origin,
) -> Result<Caller, ApiError> {
    let (caller, ()) = admitted(state, credentials, extensions, origin, |_| Ok(())).await?;
    Ok(caller)
}

/// As [`known`], of a call that `admit` lets go on, see [`auth::authenticate`].
pub(super) async fn admitted<T>(
    state: &ApiState,
    credentials: &Credentials,
    extensions: &Extensions,
    origin: Origin,
    admit: impl FnOnce(&Caller) -> Result<T, ApiError>,
) -> Result<(Caller, T), ApiError> {
    let connection = extensions.get::<Arc<Connection>>();
    let is_known = || connection.into_iter().for_each(|connection| connection.is_of_somebody_known());
    // A signature may be a copy until it has counted; others are known even if their call is rejected for now.
    let is_signed = matches!(credentials, Credentials::Signed(..));
    let admit = |caller: &Caller| {
        if !is_signed {
            is_known();
        }
        admit(caller)
    };
    let known = auth::authenticate(state, credentials, origin, admit).await?;
    is_known();
    Ok(known)
}

/// For an answer before the body was read.
async fn early(state: &ApiState, body: Body, peer: &str, error: ApiError) -> ApiError {
    state.border.bodies.discard(body, peer).await;
    error
}

/// Why what an ESB says is not trusted, which matters only if the body proves nothing.
type EsbRejection = Option<ApiError>;

/// Only the header if it is present; behind an ESB, what that says.
fn in_headers(
    state: &ApiState,
    family: Family,
    head: &Parts,
    origin: &Origin,
) -> Result<(EsbRejection, Option<Credentials>), ApiError> {
    if let Some(credentials) = Credentials::from_headers(&head.headers)? {
        return Ok((None, Some(credentials)));
    }
    match Credentials::behind_esb(state, family, &head.headers, origin) {
        Ok(credentials) => Ok((None, credentials)),
        Err(disbelief) => Ok((Some(disbelief), None)),
    }
}

/// Those of the body or the query.
async fn in_body(
    state: &ApiState,
    disbelief: EsbRejection,
    head: &Parts,
    body: &Bytes,
) -> Result<Credentials, ApiError> {
    let (method, uri) = (head.method.clone(), head.uri.clone());
    let parse = move |body: &[u8]| plain_of(&method, &uri, body);
    let plain = state.border.parsing.of_strangers.look(body, parse).await?;
    if let Some(signed) = signed_of(head, body)? {
        return Ok(Credentials::Signed(Box::new(signed), plain));
    }
    match disbelief {
        Some(disbelief) if !plain.has_proof() => Err(disbelief),
        Some(_) | None => Ok(Credentials::Plain(plain)),
    }
}

/// The signature covers the path as it was sent, with its slash.
fn signed_of(head: &Parts, body: &Bytes) -> Result<Option<Signed>, ApiError> {
    let uri = head.extensions.get::<OriginalUri>().map_or(&head.uri, |uri| &uri.0);
    let malformed = |reason| ApiError::new(Problem::MalformedAuthorization, reason);
    Signed::of(&head.method, uri, body).map_err(malformed)
}

/// Unknown fields are skipped without being built: nothing is proved yet.
fn plain_of(method: &Method, uri: &Uri, body: &[u8]) -> Result<Plain, ApiError> {
    let in_body = if body.is_empty() { Plain::default() } else { parse_object(body)? };
    if in_body.is_empty() && method == Method::GET {
        return Ok(Query::try_from_uri(uri).map_err(|_| malformed_query())?.0);
    }
    Ok(in_body)
}

fn params_of<'a>(uri: &Uri, body: &'a [u8]) -> Result<Object<'a>, ApiError> {
    let params: Object<'_> = if body.is_empty() {
        let query: Query<BTreeMap<String, String>> = Query::try_from_uri(uri).map_err(|_| malformed_query())?;
        query.0.into_iter().map(|(name, text)| (name.into(), Value::Text(text.into()))).collect()
    } else {
        parse_object(body)?
    };
    Ok(params.without(&auth::FIELDS))
}

fn parse_object<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    // serde also reads structs from arrays, which nobody means here.
    let begins = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if begins.is_some_and(|byte| *byte == b'[') {
        return Err(ApiError::new(Problem::MalformedBody, messages::body_is_a_list()));
    }
    serde_json::from_slice(body).map_err(|error| malformed_body(&error))
}

/// Where, and what kind of mistake; the parser's own words could repeat a secret.
fn malformed_body(error: &serde_json::Error) -> ApiError {
    let problem = match error.classify() {
        // A body in memory has no errors of reading.
        Category::Syntax | Category::Io => messages::body_is_not_json,
        Category::Eof => messages::body_ends_early,
        Category::Data => messages::body_has_no_text_credentials,
    };
    ApiError::new(Problem::MalformedBody, problem(error.line(), error.column()))
}

fn malformed_query() -> ApiError {
    ApiError::new(Problem::MalformedAuthorization, messages::malformed_query())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_body_is_reported_by_position_and_never_repeated() {
        let cases = [
            ("{\n \"bk_app_secret\": hush}", "is not JSON: line 2 column 19"),
            ("{\"a\": 1", "ends in the middle of its JSON: line 1 column 7"),
            ("\"hush\"", "is not a JSON object with text as credentials: line 1 column 6"),
            ("[]", "is not a JSON object but a list"),
            (" \n", "ends in the middle of its JSON: line 2 column 0"),
        ];
        for (body, expected) in cases {
            let error = params_of(&Uri::from_static("/"), body.as_bytes()).unwrap_err();

            assert_eq!(error.message.as_str(), format!("the body {expected}"), "{body}");
            assert_eq!(error.problem, Problem::MalformedBody);
        }
    }

    #[test]
    fn handlers_see_no_credentials() {
        let body = br#"{"bk_app_code":"a","bk_app_secret":"s","bk_username":"u","bk_token":"t","task_id":"x"}"#;

        let params = params_of(&Uri::from_static("/"), body).unwrap();

        assert_eq!(params.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["task_id"]);
    }

    #[test]
    fn without_a_body_the_query_speaks_and_only_for_get_about_who_asks() {
        let uri = Uri::from_static("/?bk_app_code=a&bk_app_secret=s&bk_username=%E5%BC%A0&bk_biz_id=2");

        let params = params_of(&uri, b"").unwrap();

        assert_eq!(params.get("bk_biz_id"), Some(&Value::Text("2".into())));
        assert!(!plain_of(&Method::GET, &uri, b"").unwrap().is_empty());
        assert!(plain_of(&Method::POST, &uri, b"").unwrap().is_empty());
    }
}
