//! Who asks: an app with its secret, and the user it names.
//!
//! Promised: one way in for every dialect, [`authenticate`]; the header `X-Bkapi-Authorization` is used alone where it is present; an unknown app
//! and a wrong secret are told apart neither by text nor by time; no secret is in a Debug text, an
//! error or a log line. Absent: verification of bk_token, bk_ticket and access_token, which need a
//! login service: they count only for trusted apps, as a word that there is a user.

use std::fmt;

use axum::http::{HeaderMap, HeaderValue};
use proctor_model::Subject;
use proctor_pki::{hash_secret, secrets_match};
use serde::Deserialize;

use super::ApiState;
use super::error::{ApiError, Problem};
use super::family::Family;
use crate::control::{Caller, Origin};

const AUTHORIZATION: &str = "x-bkapi-authorization";
/// How an ESB tells what stands behind it who calls; it has checked that, and sends no proof.
const BACKEND_APP: &str = "bk-app-code";
const BACKEND_USER: &str = "bk-username";
const NAME_CHARS_MAX: usize = 128;
const USER_UNVERIFIED: &str =
    "User authentication failed, please provide a valid user identity, such as bk_token, bk_username";

/// As long as a hash, and the hash of nothing that anybody knows.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The fields of a request that are credentials; they never get further than this module.
pub(super) const FIELDS: [&str; 10] = [
    "bk_app_code",
    "app_code",
    "bk_app_secret",
    "app_secret",
    "bk_username",
    "username",
    "bk_token",
    "bk_ticket",
    "access_token",
    "bk_access_token",
];

/// What a request says about its sender, not believed yet.
#[derive(Clone, Debug)]
pub(crate) enum Credentials {
    /// With a secret or a token.
    Plain(Plain),
    /// In the headers of an ESB, from an address that is believed.
    Backend { app: String, user: String },
}

impl Default for Credentials {
    fn default() -> Self {
        Self::Plain(Plain::default())
    }
}

/// Names, secrets and tokens, wherever they were. Empty text counts as absent.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Plain {
    bk_app_code: Option<String>,
    app_code: Option<String>,
    bk_app_secret: Option<String>,
    app_secret: Option<String>,
    bk_username: Option<String>,
    username: Option<String>,
    bk_token: Option<String>,
    bk_ticket: Option<String>,
    access_token: Option<String>,
    bk_access_token: Option<String>,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain")
            .field("app", &self.app())
            .field("user", &self.user())
            .field("has_secret", &self.secret().is_some())
            .field("has_token", &self.has_token())
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Those of the header `X-Bkapi-Authorization`; None where there is no such header.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, ApiError> {
        let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
        // The parser's own words could repeat a part of the value, which holds a secret.
        let plain = serde_json::from_slice(value.as_bytes()).map_err(|error| {
            let place = format!("line {} column {}", error.line(), error.column());
            let message = format!("the header X-Bkapi-Authorization is not a JSON object with text values ({place})");
            ApiError::new(Problem::MalformedAuthorization, message)
        })?;
        Ok(Some(Self::Plain(plain)))
    }

    /// Those that an ESB gives to its backend; None where there are none.
    pub(crate) fn behind_esb(
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

fn not_believed(origin: &Origin) -> ApiError {
    let from = origin.remote.map_or_else(|| "an unknown address".to_owned(), |remote| remote.to_string());
    let message = format!(
        "the header Bk-App-Code is not believed from {from}: \
         name its network in --procapi-from (PROCTOR_PROCAPI_FROM) of the server, or send an app's secret"
    );
    ApiError::new(Problem::NetworkUnknown, message)
}

fn name(header: &str, value: &HeaderValue) -> Result<String, ApiError> {
    let text = std::str::from_utf8(value.as_bytes()).ok().map(str::trim);
    let is_sane = |text: &&str| text.chars().count() <= NAME_CHARS_MAX && !text.chars().any(char::is_control);
    text.filter(is_sane).map(str::to_owned).ok_or_else(|| {
        let message = format!("the header {header} is not a name of at most {NAME_CHARS_MAX} characters");
        ApiError::new(Problem::MalformedAuthorization, message)
    })
}

impl Plain {
    pub(crate) fn is_empty(&self) -> bool {
        self.app().is_none() && self.secret().is_none() && self.user().is_none() && !self.has_token()
    }

    /// More than names.
    pub(crate) fn has_proof(&self) -> bool {
        self.secret().is_some() || self.has_token()
    }

    fn app(&self) -> Option<&str> {
        first(&[&self.bk_app_code, &self.app_code])
    }

    fn secret(&self) -> Option<&str> {
        first(&[&self.bk_app_secret, &self.app_secret])
    }

    fn user(&self) -> Option<&str> {
        first(&[&self.bk_username, &self.username])
    }

    fn has_token(&self) -> bool {
        first(&[&self.bk_token, &self.bk_ticket, &self.access_token, &self.bk_access_token]).is_some()
    }
}

fn first<'a>(texts: &[&'a Option<String>]) -> Option<&'a str> {
    texts.iter().find_map(|text| text.as_deref().filter(|text| !text.is_empty()))
}

/// Tells who asks, or why that is not known. Every dialect comes through here.
pub(crate) async fn authenticate(
    state: &ApiState,
    credentials: &Credentials,
    origin: Origin,
) -> Result<Caller, ApiError> {
    let (app, user) = match credentials {
        Credentials::Plain(plain) => by_secret(state, plain).await?,
        Credentials::Backend { app, user } => behind_esb(app, user)?,
    };
    let subjects = [Subject::App(app.clone()), Subject::User(user.clone())];
    Ok(Caller { permissions: state.control.permissions(&subjects).await?, app, user, origin })
}

fn behind_esb(app: &str, user: &str) -> Result<(String, String), ApiError> {
    if app.is_empty() {
        return Err(ApiError::new(Problem::AppUnverified, "the header Bk-App-Code is empty"));
    }
    if user.is_empty() {
        return Err(ApiError::new(Problem::OperatorMissing, "the request names no user: send the header Bk-Username"));
    }
    Ok((app.to_owned(), user.to_owned()))
}

/// Checks the app, then the user.
async fn by_secret(state: &ApiState, credentials: &Plain) -> Result<(String, String), ApiError> {
    let missing = |message: &str| ApiError::new(Problem::AppUnverified, message);
    let code = credentials.app().ok_or_else(|| missing("APP Code [bk_app_code] cannot be empty"))?;
    let secret = credentials.secret().ok_or_else(|| missing("APP Secret [bk_app_secret] cannot be empty"))?;
    let app = state.control.app(code).await?;
    // An unknown app is compared too, so that it takes as long as a wrong secret.
    let stored = app.as_ref().map_or(NO_HASH, |app| app.secret_hash.as_str());
    let is_right = secrets_match(&hash_secret(secret), stored);
    let Some(app) = app.filter(|_| is_right) else {
        return Err(missing("the app is not known or its secret is wrong"));
    };
    let user = user_of(credentials, &app.code, app.trusted)?;
    Ok((app.code, user))
}

fn user_of(credentials: &Plain, app: &str, is_trusted: bool) -> Result<String, ApiError> {
    match (credentials.user(), credentials.has_token()) {
        (None, false) => {
            Err(ApiError::new(Problem::OperatorMissing, "the request names no user: send bk_username or bk_token"))
        }
        _ if !is_trusted => Err(ApiError::new(Problem::UserUnverified, USER_UNVERIFIED)),
        (Some(user), _) => Ok(user.to_owned()),
        // The documents' examples send only a token; a trusted app then acts for itself.
        (None, true) => Ok(app.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(json: &str) -> Plain {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn debug_shows_neither_secret_nor_token() {
        let credentials =
            credentials(r#"{"bk_app_code":"a","bk_app_secret":"hush","bk_token":"quiet","bk_username":"u"}"#);

        let shown = format!("{credentials:?}");

        assert!(!shown.contains("hush") && !shown.contains("quiet"), "{shown}");
    }

    #[test]
    fn old_names_serve_where_the_new_ones_are_empty() {
        let credentials = credentials(r#"{"bk_app_code":"","app_code":"a","app_secret":"s","username":"u"}"#);

        assert_eq!((credentials.app(), credentials.secret(), credentials.user()), (Some("a"), Some("s"), Some("u")));
    }

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
    fn only_trusted_apps_name_users() {
        let named = credentials(r#"{"bk_username":"admin"}"#);
        let token = credentials(r#"{"bk_token":"t"}"#);
        let nobody = credentials("{}");

        assert_eq!(user_of(&named, "app", true).unwrap(), "admin");
        assert_eq!(user_of(&token, "app", true).unwrap(), "app");
        assert_eq!(user_of(&named, "app", false).unwrap_err().problem, Problem::UserUnverified);
        assert_eq!(user_of(&token, "app", false).unwrap_err().problem, Problem::UserUnverified);
        assert_eq!(user_of(&nobody, "app", true).unwrap_err().problem, Problem::OperatorMissing);
    }
}
