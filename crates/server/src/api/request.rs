//! Reading a request: its parameters from body or query, and who sends it.
//!
//! Promised: the body is read as JSON whatever its Content-Type says, at most [`BODY_BYTES_MAX`]
//! of it and for at most [`BODY_TIME_MAX`]; before the sender is known, no more memory is used than
//! the body itself needs; the parameters that handlers see hold no credentials. A handler reads them
//! first of all, so that it does nothing on a body that is none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, OriginalUri, Query, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Method, Uri};
use futures::StreamExt;
use proctor_model::FieldError;

use super::ApiState;
use super::answer::RequestId;
use super::auth::{self, Credentials, Plain, Signed};
use super::error::{ApiError, Problem};
use super::family::Family;
use super::json::{Object, Value};
use super::settings::Border;
use crate::control::{Caller, Control, Origin};

const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A body that is too large is read on this far, so that its sender gets to read the answer.
const DRAINED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;
/// About a millisecond of parsing.
const INLINE_BYTES_MAX: usize = 256 * 1024;
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// One authenticated request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) control: Control,
    pub(super) caller: Caller,
    uri: Uri,
    body: Bytes,
    pub(super) border: Arc<Border>,
}

impl Call {
    pub(super) async fn read(state: ApiState, family: Family, request: Request) -> Result<Self, ApiError> {
        let origin = origin_of(request.headers(), request.extensions());
        let (head, body) = request.into_parts();
        let body = read_body(body).await?;
        let credentials = credentials_of(&state, family, &head, &body, &origin).await?;
        let caller = auth::authenticate(&state, &credentials, origin).await?;
        Ok(Self { control: state.control, caller, uri: head.uri, body, border: state.border })
    }

    /// What `decode` makes of the parameters, which are always an object.
    pub(super) async fn params<T, F>(&self, decode: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Value<'_>) -> Result<T, FieldError> + Send + 'static,
    {
        let uri = self.uri.clone();
        off_worker(&self.body, move |body| Ok(decode(&Value::Object(params_of(&uri, body)?))?)).await
    }
}

/// Where a request came from. The address is that of the peer, not what a header says.
pub(super) fn origin_of(headers: &HeaderMap, extensions: &Extensions) -> Origin {
    let remote = extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    Origin { remote, request_id: RequestId::of(headers).to_string() }
}

/// The header for them alone where it is present; behind an ESB, what that says; else the body or
/// the query.
async fn credentials_of(
    state: &ApiState,
    family: Family,
    head: &Parts,
    body: &Bytes,
    origin: &Origin,
) -> Result<Credentials, ApiError> {
    if let Some(credentials) = Credentials::from_headers(&head.headers)? {
        return Ok(credentials);
    }
    let behind_esb = Credentials::behind_esb(state, family, &head.headers, origin);
    if let Ok(Some(credentials)) = behind_esb {
        return Ok(credentials);
    }
    let (method, uri) = (head.method.clone(), head.uri.clone());
    let plain = off_worker(body, move |body| plain_of(&method, &uri, body)).await?;
    if let Some(signed) = signed_of(head, body)? {
        return Ok(Credentials::Signed(Box::new(signed), plain));
    }
    match behind_esb {
        Err(refusal) if !plain.has_proof() => Err(refusal),
        Ok(_) | Err(_) => Ok(Credentials::Plain(plain)),
    }
}

/// What is signed is the path as it was sent, with its slash.
fn signed_of(head: &Parts, body: &Bytes) -> Result<Option<Signed>, ApiError> {
    let uri = head.extensions.get::<OriginalUri>().map_or(&head.uri, |uri| &uri.0);
    let malformed = |reason| ApiError::new(Problem::MalformedAuthorization, reason);
    Signed::of(&head.method, uri, body).map_err(malformed)
}

/// Reads a body where that holds up nobody: a large one on a thread for such work.
async fn off_worker<T, F>(body: &Bytes, read: F) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
{
    if body.len() <= INLINE_BYTES_MAX {
        return read(body);
    }
    let body = body.clone();
    let failed = |_| ApiError::new(Problem::Internal, "the body could not be read");
    tokio::task::spawn_blocking(move || read(&body)).await.map_err(failed)?
}

/// Unknown fields are skipped without being built: nobody has proved anything yet.
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
        return Err(ApiError::new(Problem::MalformedBody, "the body is not a JSON object but a list"));
    }
    serde_json::from_slice(body).map_err(|error| malformed_body(&error))
}

/// Where, and what kind of mistake; the parser's own words could repeat a secret.
fn malformed_body(error: &serde_json::Error) -> ApiError {
    let problem = match error.classify() {
        serde_json::error::Category::Syntax => "is not JSON",
        serde_json::error::Category::Eof => "ends in the middle of its JSON",
        serde_json::error::Category::Data => "is not a JSON object with text as credentials",
        serde_json::error::Category::Io => "cannot be read",
    };
    let message = format!("the body {problem}: line {} column {}", error.line(), error.column());
    ApiError::new(Problem::MalformedBody, message)
}

fn malformed_query() -> ApiError {
    ApiError::new(Problem::MalformedAuthorization, "the query string is malformed")
}

async fn read_body(body: Body) -> Result<Bytes, ApiError> {
    let incomplete = |why: &str| ApiError::new(Problem::MalformedBody, format!("the body did not arrive whole: {why}"));
    match tokio::time::timeout(BODY_TIME_MAX, collect(body)).await {
        Ok(Ok(bytes)) if bytes.len() <= BODY_BYTES_MAX => Ok(bytes),
        Ok(Ok(_)) => Err(ApiError::new(
            Problem::BodyTooLarge,
            format!("the body is larger than {} MiB", BODY_BYTES_MAX / (1024 * 1024)),
        )),
        Ok(Err(error)) => Err(incomplete(&error.to_string())),
        Err(_) => Err(incomplete(&format!("it took longer than {} s", BODY_TIME_MAX.as_secs()))),
    }
}

/// The body; of one that is too large, only enough to see that it is.
async fn collect(body: Body) -> Result<Bytes, axum::Error> {
    let mut chunks = body.into_data_stream();
    let Some(first) = chunks.next().await.transpose()? else { return Ok(Bytes::new()) };
    let Some(second) = chunks.next().await.transpose()? else { return Ok(first) };
    let mut whole = [first.as_ref(), second.as_ref()].concat();
    while let Some(chunk) = chunks.next().await.transpose()? {
        if whole.len() <= BODY_BYTES_MAX {
            whole.extend_from_slice(&chunk);
        } else {
            drain(chunks, whole.len()).await?;
            break;
        }
    }
    Ok(whole.into())
}

async fn drain(mut chunks: axum::body::BodyDataStream, read: usize) -> Result<(), axum::Error> {
    let mut read = read;
    while let Some(chunk) = chunks.next().await.transpose()? {
        read += chunk.len();
        if read > DRAINED_BYTES_MAX {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_body_is_told_by_place_and_never_repeated() {
        let cases = [
            ("{\n \"bk_app_secret\": hush}", "is not JSON: line 2 column 19"),
            ("{\"a\": 1", "ends in the middle of its JSON: line 1 column 7"),
            ("\"hush\"", "is not a JSON object with text as credentials: line 1 column 6"),
            ("[]", "is not a JSON object but a list"),
            (" \n", "ends in the middle of its JSON: line 2 column 0"),
        ];
        for (body, expected) in cases {
            let error = params_of(&Uri::from_static("/"), body.as_bytes()).unwrap_err();

            assert_eq!(error.message, format!("the body {expected}"), "{body}");
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
