//! Who is calling: an app, and the user it calls for.
//!
//! Promised: one entry point for every dialect, [`authenticate`]. The header `X-Bkapi-Authorization` is used alone if
//! it is present. An unknown app and a wrong secret cannot be distinguished by text or timing. A change of an app, a
//! user or a token takes effect at once if it was made through this server, otherwise within [`cache::FRESH`]. No
//! secret appears in a Debug text, an error or a log line.
//! Absent: verification of other services' tokens; from trusted apps they count as evidence that there is a user,
//! from others not at all.

mod cache;
mod gateway;
mod nonces;
mod plain;
pub(super) mod session;
mod signature;
mod verify;

use axum::http::{HeaderMap, HeaderValue, header};
use proctor_model::{Message, Subject, check_person_name, messages};

use super::ApiState;
use super::error::{ApiError, Problem};
use super::family::Family;
use crate::control::{Caller, Origin, PresentedCredentials};
use crate::shares::account_of;

pub use gateway::GatewayKey;
pub(super) use plain::{FIELDS, Plain};
pub(super) use session::SessionProof;
pub(super) use signature::Signed;
pub(super) use verify::Verifier;

const AUTHORIZATION: &str = "x-bkapi-authorization";
/// How a gateway tells its backend who is calling.
const GATEWAY_TOKEN: &str = "x-bkapi-jwt";
/// How an ESB tells its backend who is calling; it has checked that, and sends no proof.
const BACKEND_APP: &str = "bk-app-code";
const BACKEND_USER: &str = "bk-username";
const NAME_CHARS_MAX: usize = 128;

/// What a request says about its sender, not verified yet.
#[derive(Clone)]
pub(crate) enum Credentials {
    /// With a secret or a token.
    Plain(Plain),
    /// With a signature; the names are with it.
    Signed(Box<Signed>, Plain),
    /// In the token of a gateway.
    Gateway(String),
    /// In the cookie of a browser.
    Session(SessionProof),
    /// In the headers of an ESB, from an address that is believed.
    Backend { app: String, user: String },
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(plain) | Self::Signed(_, plain) => plain.fmt(f),
            Self::Gateway(_) => f.write_str("Gateway"),
            Self::Session(_) => f.write_str("Session"),
            Self::Backend { app, user } => f.debug_struct("Backend").field("app", app).field("user", user).finish(),
        }
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self::Plain(Plain::default())
    }
}

impl Credentials {
    /// Those of `X-Bkapi-Authorization`, of a gateway's token, or of `Authorization: Bearer`; None
    /// where there is no such header.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        if let Some(value) = headers.get(AUTHORIZATION) {
            return plain_header(value).map(Self::Plain).map(Some);
        }
        if let Some(token) = headers.get(GATEWAY_TOKEN) {
            let token = token.to_str().map_err(|_| malformed(messages::header_is_no_jwt()))?;
            return Ok(Some(Self::Gateway(token.to_owned())));
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token =
            bearer.and_then(|value| value.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        Ok(token.map(|(_, token)| Self::Plain(Plain::of_token(token.trim().to_owned()))))
    }

    /// Those that an ESB passes to its backend; None if there are none.
    pub(super) fn behind_esb(
        state: &ApiState,
        family: Family,
        headers: &HeaderMap,
        origin: &Origin,
    ) -> Result<Option<Self>, ApiError> {
        let Some(app) = headers.get(BACKEND_APP).filter(|_| family == Family::GseBackend) else { return Ok(None) };
        let is_believed = origin.remote.is_some_and(|remote| state.border.settings.procapi_from.contain(remote));
        if !is_believed {
            return Err(not_believed(origin));
        }
        let app = name(BACKEND_APP, app)?;
        let user = headers.get(BACKEND_USER).map(|user| name(BACKEND_USER, user)).transpose()?.unwrap_or_default();
        Ok(Some(Self::Backend { app, user }))
    }
}

/// The parser's own words could repeat a part of the value, which holds a secret.
fn plain_header(value: &HeaderValue) -> Result<Plain, ApiError> {
    serde_json::from_slice(value.as_bytes())
        .map_err(|error| malformed(messages::header_has_no_text_credentials(error.line(), error.column())))
}

fn malformed(message: Message) -> ApiError {
    ApiError::new(Problem::MalformedAuthorization, message)
}

fn not_believed(origin: &Origin) -> ApiError {
    let message = origin.remote.map_or_else(messages::app_header_from_nowhere, messages::app_header_not_trusted);
    ApiError::new(Problem::NetworkUnknown, message)
}

fn name(header: &str, value: &HeaderValue) -> Result<String, ApiError> {
    let text = std::str::from_utf8(value.as_bytes()).ok().map(str::trim);
    let is_sane = |text: &&str| text.chars().count() <= NAME_CHARS_MAX && !text.chars().any(char::is_control);
    text.filter(is_sane)
        .map(str::to_owned)
        .ok_or_else(|| malformed(messages::header_is_no_name(header, NAME_CHARS_MAX)))
}

/// Who sent a request, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    /// Empty for a user who came with their own token.
    app: String,
    user: String,
    /// Those of the two that were proved.
    subjects: Vec<Subject>,
    proof: PresentedCredentials,
}

impl Identity {
    /// An app for a user.
    fn both(app: impl Into<String>, user: impl Into<String>) -> Self {
        let (app, user) = (app.into(), user.into());
        Self {
            subjects: vec![Subject::App(app.clone()), Subject::User(user.clone())],
            app,
            user,
            proof: PresentedCredentials::default(),
        }
    }

    /// An app that calls for itself.
    fn app(app: impl Into<String>) -> Self {
        let app = app.into();
        Self {
            subjects: vec![Subject::App(app.clone())],
            user: app.clone(),
            app,
            proof: PresentedCredentials::default(),
        }
    }

    fn with(self, proof: PresentedCredentials) -> Self {
        Self { proof, ..self }
    }

    fn user(user: impl Into<String>) -> Self {
        let user = user.into();
        Self {
            subjects: vec![Subject::User(user.clone())],
            app: String::new(),
            user,
            proof: PresentedCredentials::default(),
        }
    }
}

/// Authenticates the caller, or says why that failed, and charges the call to the caller's rate. Every dialect comes
/// through here. Nobody can act for a disabled user, whatever the app. `admit` says whether the call may proceed now;
/// a signature counts as used only after that, so that a call that is rejected for now can be resent unchanged.
pub(crate) async fn authenticate<T>(
    state: &ApiState,
    credentials: &Credentials,
    origin: Origin,
    admit: impl FnOnce(&Caller) -> Result<T, ApiError>,
) -> Result<(Caller, T), ApiError> {
    let identity = state.border.verifier.identify(state, credentials).await?;
    let Identity { app, user, subjects, proof } = identity;
    // A token's user was named by an administrator, anybody else by the call.
    if proof.user_token.is_none() {
        check_person_name("user", &user)
            .map_err(|error| ApiError::new(Problem::UserUnverified, messages::user_name_unfit(error.problem)))?;
    }
    let taken = state.border.rates.take(&account_of(&app, &user), std::time::Instant::now());
    taken.map_err(|wait| {
        let payer = if app.is_empty() { Subject::User(user.clone()) } else { Subject::App(app.clone()) };
        ApiError::too_often(&payer, wait)
    })?;
    let permissions = state.control.permissions(&subjects).await?;
    let caller = Caller { app, user, subjects, proof, permissions, origin };
    let admitted = admit(&caller)?;
    state.border.verifier.spend(state, credentials, &caller.app).await?;
    Ok((caller, admitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_header_is_refused_without_repeating_it() {
        let headers = HeaderMap::from_iter([(
            AUTHORIZATION.parse().unwrap(),
            HeaderValue::from_static(r#"{"bk_app_secret": hush}"#),
        )]);

        let error = Credentials::from_headers(&headers).unwrap_err();

        assert_eq!(error.problem, Problem::MalformedAuthorization);
        assert!(!error.message.contains("hush"));
    }

    #[test]
    fn one_header_is_looked_at_in_a_fixed_order() {
        let mut headers = HeaderMap::new();
        assert!(Credentials::from_headers(&headers).unwrap().is_none());

        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Basic eDp5"));
        assert!(Credentials::from_headers(&headers).unwrap().is_none());
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("bearer pt_1_hush"));
        let bearer = Credentials::from_headers(&headers).unwrap().unwrap();
        headers.insert(GATEWAY_TOKEN, HeaderValue::from_static("hush"));
        let gateway = Credentials::from_headers(&headers).unwrap().unwrap();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("{}"));
        let plain = Credentials::from_headers(&headers).unwrap().unwrap();

        assert!(matches!(&bearer, Credentials::Plain(plain) if plain.token() == Some("pt_1_hush")));
        assert!(matches!(gateway, Credentials::Gateway(_)));
        assert!(matches!(plain, Credentials::Plain(plain) if plain.is_empty()));
        assert!(!format!("{bearer:?} {gateway:?}").contains("hush"));
    }
}
