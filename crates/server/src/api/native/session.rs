//! Signing in and out with a browser; passwords.
//!
//! Promised: a session may do what its user may, and ends with the credential it was opened with; every successful
//! sign-in is audited, a failed one is logged and costs the store nothing; attempts are rate-limited per address, and
//! successes per user. Failed attempts use up nothing of the user's. Another way to authenticate (single sign-on)
//! belongs in [`prove`].
//! Absent: what a session is and what it takes to use one; see `auth::session`.

use std::time::Instant;

use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse};
use axum::{Extension, Json};
use proctor_api::{NewPassword, OwnPassword, Session, SignIn, SignInLink};
use proctor_model::{FieldError, Message, Subject, messages};
use proctor_runtime::clock;
use proctor_store::{Refusal, StoreError, TokenKind, UserCredential, UserToken};

use super::body::{Body, BodyLimit, malformed};
use super::caller::{Authenticated, BodyOf};
use super::error::{Kind, NativeError};
use super::users::NAME_CHARS_MAX;
use super::{ApiState, Result, whoami};
use crate::admin;
use crate::api::auth::{SessionProof, session};
use crate::api::bodies::BodySender;
use crate::api::connections::share_of;
use crate::api::error::ApiError;
use crate::api::proxies::Reached;
use crate::api::request::origin_of;
use crate::control::{AuditAction, Caller, Control, Origin, PresentedCredentials};
use crate::user_token::TokenText;

/// A user, a password or a token, with room to spare.
const ATTEMPT_BYTES_MAX: usize = 8 * 1024;
/// Answers that contain a session are for the caller only, and must not be cached.
const NOT_KEPT: (header::HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// Somebody who has authenticated.
struct Proved {
    user: String,
    /// In the words of the audit.
    by: &'static str,
    /// The token that the session ends with.
    parent: Option<UserToken>,
    /// As it was proved; None with a parent.
    credential: Option<UserCredential>,
}

/// Opens a session, which the browser keeps in a cookie.
#[utoipa::path(post, path = "/session", operation_id = "sign_in", request_body = SignIn, tag = "session",
               responses((status = 200, body = Session)), security(()))]
pub(super) async fn sign_in(State(state): State<ApiState>, request: Request) -> Result<impl IntoResponse> {
    let headers = request.headers().clone();
    let origin = origin_of(&headers, request.extensions());
    let reached = request.extensions().get::<Reached>().copied().unwrap_or_default();
    let peer = origin.remote.map(|remote| share_of(remote).to_string()).unwrap_or_default();
    let attempt = read_attempt(&state, &peer, request).await?;
    let proved = prove(&state, attempt, &peer).await.inspect_err(|error| {
        if let Some(unlogged) = state.border.failed_sign_ins.turn(Instant::now()) {
            tracing::warn!(remote = ?origin.remote, error = error.message(), unlogged, "sign-in failed");
        }
    })?;
    limit_sessions(&state, &proved.user)?;
    let (text, token, caller) = open(&state, proved, origin).await?;
    let keys = state.border.verifier.keys(&state).await?;
    let session = view(&caller, session::csrf_token(keys, &text.to_string()), &token);
    let cookie = session::set_cookie(Some(&text.to_string()), reached, &headers);
    Ok((AppendHeaders([(header::SET_COOKIE, cookie), NOT_KEPT]), Json(session)))
}

/// The session of the cookie.
#[utoipa::path(get, path = "/session", operation_id = "session", tag = "session",
               responses((status = 200, body = Session)))]
pub(super) async fn show(
    caller: Authenticated,
    State(state): State<ApiState>,
    headers: HeaderMap,
) -> Result<impl IntoResponse> {
    let (proof, token) = own(&state, &caller.who, &headers).await?;
    let keys = state.border.verifier.keys(&state).await?;
    let session = view(&caller.who, session::csrf_token(keys, proof.token()), &token);
    Ok((AppendHeaders([NOT_KEPT]), Json(session)))
}

/// Closes the session of the cookie.
#[utoipa::path(delete, path = "/session", operation_id = "sign_out", tag = "session", responses((status = 204)))]
pub(super) async fn sign_out(
    caller: Authenticated,
    State(state): State<ApiState>,
    Extension(reached): Extension<Reached>,
    headers: HeaderMap,
) -> Result<impl IntoResponse> {
    let (_, UserToken { id, .. }) = own(&state, &caller.who, &headers).await?;
    let deed = AuditAction::new("sign_out", None).on([format!("session {id} of user {}", caller.who.user)]);
    let work = |control: Control| async move { Ok(control.delete_user_token(&id).await?) };
    state.control.audited(&caller.who, deed, work, |_| "done".to_owned()).await?;
    state.forget_verified();
    let cookie = session::set_cookie(None, reached, &headers);
    Ok((StatusCode::NO_CONTENT, AppendHeaders([(header::SET_COOKIE, cookie)])))
}

/// Changes the caller's own password, and closes all their sessions.
#[utoipa::path(put, path = "/session/password", operation_id = "change_own_password", request_body = OwnPassword,
               tag = "session", responses((status = 204)))]
pub(super) async fn change_own_password(
    caller: Authenticated,
    State(state): State<ApiState>,
    Body(body): Body<OwnPassword>,
) -> Result<StatusCode> {
    // An app that calls for a user has not shown that the user agrees.
    let user = caller.who.user.clone();
    if !caller.who.app.is_empty() {
        return Err(NativeError::new(Kind::PermissionDenied, messages::own_password_without_app()));
    }
    let sender = format!("user {user}");
    limit_attempts(&state, &sender)?;
    let proved = state.control.user_credential(&user).await?;
    let stored = proved.as_ref().and_then(|credential| credential.password_hash.clone());
    if !state.border.passwords.is_right(&sender, body.current, stored).await? {
        return Err(FieldError::new("current", messages::wrong_current_password()).into());
    }
    let hash = state.border.passwords.hash(&sender, body.password).await?;
    limit_sessions(&state, &user)?;
    let deed = AuditAction::new("change_own_password", None).on([format!("user {user}")]);
    let work = move |control: Control| async move {
        Ok(control.set_user_password(&user, Some(hash), proved, clock::unix_millis()).await?)
    };
    let changed = state.control.audited(&caller.who, deed, work, audit_result).await?;
    state.forget_verified();
    changed?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sets or removes a user's password, and closes all their sessions.
#[utoipa::path(put, path = "/users/{name}/password", operation_id = "set_user_password",
               params(("name" = String, Path)), request_body = NewPassword, tag = "access",
               responses((status = 204)))]
pub(super) async fn set_password(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(name): Path<String>,
    Body(body): Body<NewPassword>,
) -> Result<StatusCode> {
    let hash = match body.password {
        Some(password) => Some(state.border.passwords.hash(&caller.who.name(), password).await?),
        None => None,
    };
    let what = format!("user {name}{}", if hash.is_some() { "" } else { ", no password" });
    let work = async move |control: Control| control.set_user_password(&name, hash, None, clock::unix_millis()).await;
    caller.administer(&state, "set_user_password", [what], work).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Creates a link that signs a user in once.
#[utoipa::path(post, path = "/users/{name}/sign-in-link", operation_id = "create_sign_in_link",
               params(("name" = String, Path)), tag = "access", responses((status = 201, body = SignInLink)))]
pub(super) async fn create_link(
    caller: Authenticated,
    State(state): State<ApiState>,
    Path(name): Path<String>,
) -> Result<(StatusCode, Json<SignInLink>)> {
    let what = format!("sign-in link of user {name}");
    let work = async move |control: Control| {
        let credential = control.user_credential(&name).await?;
        let made = credential.map(|credential| (name.clone(), credential));
        Ok::<_, StoreError>(made.ok_or(Refusal::UnknownUser(name)))
    };
    let (user, credential) = caller.administer(&state, "create_sign_in_link", [what], work).await?;
    Ok((StatusCode::CREATED, Json(state.sign_in_link(&user, credential))))
}

/// Nothing is known of the sender yet. A page of another origin cannot send JSON without being asked
/// first, so nobody is signed in as somebody else behind their back.
async fn read_attempt(state: &ApiState, peer: &str, mut request: Request) -> Result<SignIn> {
    limit_attempts(state, peer)?;
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.trim_start().starts_with("application/json")) {
        return Err(malformed(messages::content_type_must_be_json()));
    }
    request.extensions_mut().insert(BodyOf(BodySender::Stranger(peer.to_owned())));
    request.extensions_mut().insert(BodyLimit(ATTEMPT_BYTES_MAX));
    let Body(attempt) = Body::<SignIn>::from_request(request, state).await?;
    if attempt.user.as_ref().is_some_and(|user| user.chars().count() > NAME_CHARS_MAX) {
        return Err(FieldError::new("user", messages::longer_than_chars(NAME_CHARS_MAX)).into());
    }
    Ok(attempt)
}

fn limit_attempts(state: &ApiState, who: &str) -> Result<()> {
    let taken = state.border.sign_ins.take(who, Instant::now());
    Ok(taken.map_err(ApiError::too_many_sign_ins)?)
}

/// Only for who has proved to be the user: others must not use up what is the user's.
fn limit_sessions(state: &ApiState, user: &str) -> Result<()> {
    let taken = state.border.sessions.take(user, Instant::now());
    Ok(taken.map_err(ApiError::too_many_sign_ins)?)
}

/// `peer` is where the attempt comes from.
async fn prove(state: &ApiState, attempt: SignIn, peer: &str) -> Result<Proved> {
    let wrong = |message: Message| NativeError::new(Kind::Unauthenticated, message);
    match attempt {
        SignIn { token: Some(token), user: None, password: None, link: None } => {
            let token = state.border.verifier.call_token(state, token.trim()).await?;
            Ok(Proved { user: token.user.clone(), by: "token", parent: Some(token), credential: None })
        }
        SignIn { token: None, user: Some(user), password: Some(password), link: None } => {
            let credential = state.control.user_credential(&user).await?;
            let stored = credential.as_ref().and_then(|credential| credential.password_hash.clone());
            if !state.border.passwords.is_right(peer, password, stored).await? {
                return Err(wrong(messages::wrong_user_or_password()));
            }
            Ok(Proved { user, by: "password", parent: None, credential })
        }
        SignIn { token: None, user: None, password: None, link: Some(link) } => {
            let taken = state.border.links.take(&link, Instant::now());
            let (user, credential) = taken.ok_or_else(|| wrong(messages::wrong_sign_in_link()))?;
            Ok(Proved { user, by: "link", parent: None, credential: Some(credential) })
        }
        SignIn { .. } => Err(malformed(messages::sign_in_with_one())),
    }
}

/// The result, in the words of the audit log.
fn audit_result(ended: &std::result::Result<(), Refusal>) -> String {
    match ended {
        Ok(()) => "done".to_owned(),
        Err(refusal) => format!("refused: {refusal}"),
    }
}

/// The session, and its user as a caller.
async fn open(state: &ApiState, proved: Proved, origin: Origin) -> Result<(TokenText, UserToken, Caller)> {
    let Proved { user, by, parent, credential } = proved;
    let known = state.control.user(&user).await?;
    if known.is_none_or(|known| known.disabled) {
        return Err(NativeError::new(Kind::Unauthenticated, messages::user_disabled_or_gone(user)));
    }
    let subjects = vec![Subject::User(user.clone())];
    let permissions = state.control.permissions(&subjects).await?;
    let mut caller =
        Caller { app: String::new(), user, subjects, proof: PresentedCredentials::default(), permissions, origin };
    let made = admin::new_session(state.border.verifier.keys(state).await?, &caller.user, by, parent.as_ref());
    let (text, token) = made;
    let deed = AuditAction::new("sign_in", None).on([format!("session {} of user {}, by {by}", token.id, caller.user)]);
    let kept = token.clone();
    let work = |control: Control| async move { Ok(control.put_session(kept, credential).await?) };
    let kept = state.control.audited(&caller, deed, work, audit_result).await?;
    kept.map_err(|refusal| NativeError::new(Kind::Unauthenticated, refusal.message()))?;
    caller.proof.user_token = Some(token.id.clone());
    Ok((text, token, caller))
}

/// The session that the caller came with.
async fn own(state: &ApiState, who: &Caller, headers: &HeaderMap) -> Result<(SessionProof, UserToken)> {
    let none = || NativeError::new(Kind::Unauthenticated, messages::no_session());
    let proof = SessionProof::from_headers(&Method::GET, headers).ok_or_else(none)?;
    let id = who.proof.user_token.as_deref().ok_or_else(none)?;
    let token = state.control.user_token(id).await?;
    let token = token.filter(|token| matches!(token.kind, TokenKind::Session { .. })).ok_or_else(none)?;
    Ok((proof, token))
}

fn view(caller: &Caller, csrf: String, token: &UserToken) -> Session {
    let expires_at = token.expires_at.unwrap_or_default() / 1000;
    Session { who: whoami::who(caller), csrf, expires_at }
}
