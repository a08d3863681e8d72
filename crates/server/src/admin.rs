//! What an administrator creates: join tokens for new agents, apps for callers.
//!
//! Works on any store, so it can also be used alongside a running server. Secrets are returned once, and only their
//! hashes are kept.

mod local;

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{Bounds, FieldError, HostKey, Scope, Subject, messages};
use proctor_pki::{JoinToken, hash_secret, random_secret};
use proctor_runtime::clock;
use proctor_store::{App, Binding, Millis, Refusal, RelayToken, Store, TokenKind, UserToken};
use uuid::Uuid;

use crate::keys::Keys;
use crate::user_token::TokenText;
use crate::{ServerError, gateway};

pub use local::{LOCAL_APP, LocalAdmin};

const USES_MAX: u32 = 100_000;
const TTL_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
const CODE_BYTES_MAX: usize = 64;
/// A working day with its breaks.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// A join token to be made.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    uses: u32,
    ttl: Duration,
    cloud: Option<u32>,
    business: Option<u64>,
    host: Option<HostKey>,
    relay: bool,
}

impl TokenRequest {
    /// `cloud` is the only cloud area that the token is good for; None is any.
    pub fn new(uses: u32, ttl: Duration, cloud: Option<u32>) -> Result<Self, FieldError> {
        if uses == 0 || uses > USES_MAX {
            return Err(FieldError::new("uses", messages::not_between(uses, 1, USES_MAX)));
        }
        if ttl.is_zero() || ttl > TTL_MAX {
            let days = TTL_MAX.as_secs() / (24 * 3600);
            return Err(FieldError::new("ttl_secs", messages::must_last_days_at_most(days)));
        }
        Ok(Self { uses, ttl, cloud, business: None, host: None, relay: false })
    }

    /// It lets relays enrol, of one cloud area, and no agents.
    pub fn for_relays(mut self, relay: bool) -> Result<Self, FieldError> {
        if relay && self.cloud.is_none() {
            return Err(FieldError::new("cloud_id", messages::relay_token_needs_area()));
        }
        if relay && (self.host.is_some() || self.business.is_some()) {
            let field = if self.host.is_some() { "host" } else { "business" };
            return Err(FieldError::new(field, messages::relay_token_takes_none()));
        }
        self.relay = relay;
        Ok(self)
    }

    /// Valid for this host only, and takes it over if it is already known.
    pub fn naming(mut self, host: Option<HostKey>) -> Result<Self, FieldError> {
        if host.is_some() && self.uses != 1 {
            return Err(FieldError::new("uses", messages::host_token_is_used_once()));
        }
        if let (Some(host), Some(cloud)) = (host, self.cloud)
            && host.cloud != cloud
        {
            return Err(FieldError::new("cloud_id", messages::token_host_in_another_area(cloud, host)));
        }
        self.host = host;
        Ok(self)
    }

    /// New hosts that enrol with it belong to this business.
    #[must_use]
    pub fn placing(mut self, business: Option<u64>) -> Self {
        self.business = business;
        self
    }
}

/// In the words of the audit.
impl std::fmt::Display for TokenRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { uses, ttl, cloud, business, host, relay } = self;
        let or = |number: Option<u64>, none: &str| number.map_or_else(|| none.to_owned(), |number| number.to_string());
        let (cloud, business) = (or(cloud.map(u64::from), "any"), or(*business, "none"));
        if *relay {
            return write!(f, "join token for {uses} relays within {} s, cloud {cloud}", ttl.as_secs());
        }
        write!(f, "join token for {uses} agents within {} s, cloud {cloud}, business {business}", ttl.as_secs())?;
        host.map_or(Ok(()), |host| write!(f, ", host {host}"))
    }
}

/// Makes a join token that pins the authority of the store; returns it with its end.
pub async fn create_token(store: &Arc<dyn Store>, request: TokenRequest) -> Result<(JoinToken, Millis), ServerError> {
    let authority = gateway::authority(store).await?;
    let token = JoinToken::generate(&authority.fingerprint())?;
    let ttl_ms = i64::try_from(request.ttl.as_millis()).expect("bounded by TTL_MAX");
    let expires_at = clock::unix_millis() + ttl_ms;
    if let (true, Some(cloud)) = (request.relay, request.cloud) {
        let (id, secret_hash) = (token.id.clone(), hash_secret(&token.secret));
        store.put_relay_token(RelayToken { id, secret_hash, uses: request.uses, expires_at, cloud }).await?;
        return Ok((token, expires_at));
    }
    store
        .put_token(proctor_store::JoinToken {
            id: token.id.clone(),
            secret_hash: hash_secret(&token.secret),
            uses: request.uses,
            expires_at,
            cloud: request.cloud,
            business: request.business,
            host: request.host,
        })
        .await?;
    Ok((token, expires_at))
}

/// The code of an app, as callers send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppCode(String);

impl std::str::FromStr for AppCode {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if text.is_empty() || text.len() > CODE_BYTES_MAX {
            return Err(FieldError::new("code", messages::must_have_chars(CODE_BYTES_MAX)));
        }
        if !text.bytes().all(legal) {
            return Err(FieldError::new("code", messages::only_id_characters()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Display for AppCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an app may do, and how it may authenticate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppOptions {
    /// May name any user without proof.
    pub trusted: bool,
    /// May sign its calls; its secret is then kept sealed next to its hash.
    pub signing: bool,
}

impl AppOptions {
    /// In the words of the audit.
    pub(crate) fn describe(self, code: &AppCode, bindings: &[Binding]) -> String {
        let Self { trusted, signing } = self;
        let trust = if trusted { "trusted" } else { "not trusted" };
        let described = |binding: &Binding| {
            let Binding { role, scope, bounds, .. } = binding;
            let within = if bounds.is_unbounded() { String::new() } else { format!(" within {bounds}") };
            format!(", {role} on {scope}{within}")
        };
        let roles: Vec<String> = bindings.iter().map(described).collect();
        let roles = if trusted { ", admin on everything".to_owned() + &roles.concat() } else { roles.concat() };
        format!("app {code}: {trust}{}{roles}", if signing { ", may sign" } else { "" })
    }
}

/// In the words of the audit.
pub(crate) fn describe_rotation(code: &str, signing: Option<bool>) -> String {
    let signing = match signing {
        None => "may sign as before",
        Some(true) => "may sign",
        Some(false) => "may not sign",
    };
    format!("app {code}: new secret, {signing}")
}

/// Makes an app with a new secret, which is returned, and with these bindings. An app of the same code
/// refuses it.
pub async fn create_app(
    store: &Arc<dyn Store>,
    code: &AppCode,
    options: AppOptions,
    mut bindings: Vec<Binding>,
) -> Result<Result<String, Refusal>, ServerError> {
    let secret = random_secret();
    let app = app(&Keys::load(store.as_ref()).await?, code, &secret, options);
    bindings.extend(options.trusted.then(|| all_powers(Subject::App(code.0.clone()))));
    Ok(store.create_app(app, &bindings).await?.map(|()| secret))
}

/// Gives an app a new secret, which is returned with the app; the old one counts no longer. Whether it is
/// trusted, and its bindings, stay as they are. `signing` None: as before.
pub async fn rotate_app(
    store: &Arc<dyn Store>,
    code: &AppCode,
    signing: Option<bool>,
) -> Result<Result<(App, String), Refusal>, ServerError> {
    let unknown = || Refusal::UnknownApp(code.to_string());
    let Some(present) = store.app(&code.0).await? else { return Ok(Err(unknown())) };
    let signing = signing.unwrap_or_else(|| present.sealed_secret.is_some());
    let secret = random_secret();
    let keys = Keys::load(store.as_ref()).await?;
    let App { secret_hash, sealed_secret, .. } =
        app(&keys, code, &secret, AppOptions { trusted: present.trusted, signing });
    let rotated = store.set_app_secret(&code.0, secret_hash, sealed_secret).await?;
    Ok(rotated.map(|app| (app, secret)).ok_or_else(unknown))
}

/// Makes an app, or replaces the one of the same code, with a secret of the caller's choice.
pub async fn put_app(
    store: &Arc<dyn Store>,
    code: &AppCode,
    secret: &str,
    options: AppOptions,
) -> Result<(), ServerError> {
    store.put_app(app(&Keys::load(store.as_ref()).await?, code, secret, options)).await?;
    if options.trusted {
        let refused = store.put_binding(all_powers(Subject::App(code.0.clone()))).await?;
        refused.map_err(|refusal| ServerError::Refused(refusal.message()))?;
    }
    Ok(())
}

fn app(keys: &Keys, code: &AppCode, secret: &str, options: AppOptions) -> App {
    App {
        code: code.0.clone(),
        secret_hash: keys.hash(secret),
        sealed_secret: options.signing.then(|| keys.seal(&code.0, secret)),
        trusted: options.trusted,
        created_at: clock::unix_millis(),
    }
}

/// For trusted apps, since an app that may speak for everybody may do what everybody may, and for first users.
fn all_powers(subject: Subject) -> Binding {
    Binding {
        id: Uuid::now_v7(),
        role: "admin".parse().expect("a constant that is well formed"),
        subject,
        scope: Scope::Everything,
        bounds: Bounds::default(),
        created_at: clock::unix_millis(),
    }
}

/// A session of a user, to be kept; it ends no later than the token that opened it.
pub(crate) fn new_session(keys: &Keys, user: &str, by: &str, parent: Option<&UserToken>) -> (TokenText, UserToken) {
    let text = TokenText::generate();
    let created_at = clock::unix_millis();
    let end = created_at + i64::try_from(SESSION_LIFETIME.as_millis()).expect("it is a few hours");
    let token = UserToken {
        id: text.id.clone(),
        user: user.to_owned(),
        secret_hash: keys.hash(&text.secret),
        note: format!("console session, opened by {by}"),
        created_at,
        expires_at: Some(parent.and_then(|parent| parent.expires_at).map_or(end, |of_parent| of_parent.min(end))),
        kind: TokenKind::Session { parent: parent.map(|parent| parent.id.clone()) },
    };
    (text, token)
}

/// Makes a token for a user, whose text is returned once; without `ttl` it has no end.
pub async fn create_user_token(
    store: &Arc<dyn Store>,
    user: &str,
    note: &str,
    ttl: Option<Duration>,
) -> Result<Result<(TokenText, UserToken), Refusal>, ServerError> {
    let keys = Keys::load(store.as_ref()).await?;
    let text = TokenText::generate();
    let created_at = clock::unix_millis();
    let end = |ttl: Duration| created_at.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
    let token = UserToken {
        id: text.id.clone(),
        user: user.to_owned(),
        secret_hash: keys.hash(&text.secret),
        note: note.to_owned(),
        created_at,
        expires_at: ttl.map(end),
        kind: TokenKind::Call,
    };
    let kept = store.put_user_token(token.clone()).await?;
    Ok(kept.map(|()| (text, token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_uses_and_an_end() {
        assert!(TokenRequest::new(1, Duration::from_secs(1), None).is_ok());
        assert_eq!(TokenRequest::new(0, Duration::from_secs(1), None).unwrap_err().field, "uses");
        assert_eq!(TokenRequest::new(1, Duration::ZERO, None).unwrap_err().field, "ttl_secs");
        assert_eq!(TokenRequest::new(1, Duration::MAX, None).unwrap_err().field, "ttl_secs");
    }

    #[test]
    fn codes_of_apps_are_plain_words() {
        assert!("bk_nodeman".parse::<AppCode>().is_ok());
        for bad in ["", "a b", "进程", "a:b", &"x".repeat(65)] {
            assert!(bad.parse::<AppCode>().is_err(), "{bad}");
        }
    }
}
