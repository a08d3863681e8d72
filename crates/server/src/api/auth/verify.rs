//! Verifies what a request claims about its sender.

use proctor_model::{Message, messages};
use std::time::Instant;

use proctor_runtime::clock;
use proctor_store::{App, TokenKind, UserToken};
use tokio::sync::OnceCell;

use super::cache::Cache;
use super::nonces::{Fingerprint, Nonces, Noted};
use super::signature::{AGE_MAX, Signed};
use super::{ApiState, Credentials, Identity, Plain, SessionProof};
use crate::api::error::{ApiError, Problem};
use crate::control::{ControlError, PresentedCredentials};
use crate::keys::{HashMatch, Keys};
use crate::user_token::TokenText;

/// The hash of an unknown value: what an unknown app's secret is compared with.
const NO_HASH: &str = "hmac-sha256:0000000000000000000000000000000000000000000000000000000000000000";

type Result<T> = std::result::Result<T, ApiError>;

/// What is remembered from one request to the next.
#[derive(Debug, Default)]
pub(in crate::api) struct Verifier {
    keys: OnceCell<Keys>,
    apps: Cache<Proved>,
    users: Cache<Shown>,
    nonces: Nonces,
}

/// An app that has proved itself.
#[derive(Clone)]
struct Proved {
    code: String,
    is_trusted: bool,
    secret_hash: String,
}

impl std::fmt::Debug for Proved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proved").field("code", &self.code).finish_non_exhaustive()
    }
}

/// A user whose token was shown.
#[derive(Clone, Debug)]
struct Shown {
    user: String,
    token: String,
}

/// How a user token came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// In a header or a body.
    Call,
    /// In a cookie.
    Session,
}

impl Use {
    fn name(self) -> &'static str {
        match self {
            Self::Call => "token",
            Self::Session => "session",
        }
    }

    fn fits(self, kind: &TokenKind) -> bool {
        match kind {
            TokenKind::Call => self == Self::Call,
            TokenKind::Session { .. } => self == Self::Session,
        }
    }
}

impl Verifier {
    pub(super) async fn identify(&self, state: &ApiState, credentials: &Credentials) -> Result<Identity> {
        match credentials {
            Credentials::Plain(plain) => self.by_secret(state, plain).await,
            Credentials::Signed(signed, plain) => {
                let app = self.by_signature(state, signed, plain).await?;
                self.with_user(state, app, plain).await
            }
            Credentials::Gateway(token) => by_gateway(state, token),
            Credentials::Session(proof) => self.by_session(state, proof).await,
            Credentials::Backend { app, user } => behind_esb(app, user),
        }
    }

    /// To be called after every change of apps, users or tokens.
    pub(in crate::api) fn forget(&self) {
        self.apps.forget();
        self.users.forget();
    }

    pub(in crate::api) async fn keys(&self, state: &ApiState) -> Result<&Keys> {
        let load = || state.control.keys();
        Ok(self.keys.get_or_try_init(load).await.map_err(ControlError::from)?)
    }

    /// Checks the app, then the user. A user's own token needs no app.
    async fn by_secret(&self, state: &ApiState, plain: &Plain) -> Result<Identity> {
        let own_token = plain.token().filter(|token| TokenText::is_meant(token));
        if let (None, None, Some(token)) = (plain.app(), plain.secret(), own_token) {
            let Shown { user, token } = self.user_of_token(state, token, Use::Call).await?;
            let proof = PresentedCredentials { user_token: Some(token), ..PresentedCredentials::default() };
            return Ok(Identity::user(user).with(proof));
        }
        if plain.is_bearer() {
            return Err(ApiError::new(Problem::UserUnverified, messages::bearer_is_no_user_token()));
        }
        let code = plain.app().ok_or_else(|| unverified(messages::app_code_is_empty()))?;
        let secret = plain.secret().ok_or_else(|| unverified(messages::app_secret_is_empty()))?;
        let app = self.app(state, code, secret).await?;
        self.with_user(state, app, plain).await
    }

    async fn app(&self, state: &ApiState, code: &str, secret: &str) -> Result<Proved> {
        let keys = self.keys(state).await?;
        let (fingerprint, now) = (keys.fingerprint(&["app", code, secret]), Instant::now());
        if let Some(proved) = self.apps.get(&fingerprint, now) {
            return Ok(proved);
        }
        let age = self.apps.age();
        let app = state.control.app(code).await?;
        // An unknown app is compared too, so that it takes as long as a wrong secret.
        let stored = app.as_ref().map_or(NO_HASH, |app| app.secret_hash.as_str());
        let compared = keys.compare(secret, stored);
        let Some(app) = app.filter(|_| compared != HashMatch::Wrong) else {
            return Err(unverified(messages::app_unverified()));
        };
        let mut secret_hash = app.secret_hash.clone();
        if compared == HashMatch::RightOfOld {
            secret_hash = keys.hash(secret);
            renew_hash(state, &app, secret_hash.clone()).await;
        }
        let proved = Proved { code: app.code, is_trusted: app.trusted, secret_hash };
        self.apps.put(fingerprint, proved.clone(), now, age);
        Ok(proved)
    }

    async fn by_signature(&self, state: &ApiState, signed: &Signed, plain: &Plain) -> Result<Proved> {
        let code = plain.app().ok_or_else(|| unverified(messages::app_code_is_empty()))?;
        let now_secs = clock::unix_millis() / 1000;
        if !signed.is_timely(now_secs) {
            let secs = AGE_MAX.as_secs();
            return Err(unverified(messages::timestamp_is_off(secs)));
        }
        let keys = self.keys(state).await?;
        let app = state.control.app(code).await?;
        let sealed = app.as_ref().and_then(|app| app.sealed_secret.as_deref());
        let secret = sealed.and_then(|sealed| keys.open(code, sealed));
        let Some(app) = app.filter(|_| secret.is_some_and(|secret| signed.is_by(&secret))) else {
            return Err(unverified(messages::wrong_signature()));
        };
        // One that is sent again costs the app nothing of its rate.
        if self.nonces.is_seen(code, &fingerprint_of(keys, code, signed), now_secs) {
            return Err(unverified(messages::nonce_was_used()));
        }
        Ok(Proved { code: app.code, is_trusted: app.trusted, secret_hash: app.secret_hash })
    }

    /// Makes a signature count once. Of a request whose sender is known, within the rate and among the calls at the same
    /// time: one that is put off before leaves nothing behind, and may be sent again. So may one that the store could not
    /// take. What is refused later has been read, and needs a new signature.
    pub(super) async fn spend(&self, state: &ApiState, credentials: &Credentials, app: &str) -> Result<()> {
        let Credentials::Signed(signed, _) = credentials else { return Ok(()) };
        let fingerprint = fingerprint_of(self.keys(state).await?, app, signed);
        let (now_secs, until) = (clock::unix_millis() / 1000, signed.counts_until());
        // What is kept of nonces ends with their time: later, one that was used before a restart would seem new.
        if until < now_secs {
            return Err(unverified(messages::timestamp_is_off(AGE_MAX.as_secs())));
        }
        let is_new = match self.nonces.note(app, fingerprint, until, now_secs) {
            Noted::New => {
                let taken = state.control.take_nonce(fingerprint, until.saturating_mul(1000), now_secs * 1000).await;
                if taken.is_err() {
                    self.nonces.forget(app, &fingerprint);
                }
                taken.map_err(ControlError::from)?
            }
            Noted::Seen => false,
            Noted::NoRoom { is_own, wait } => {
                let message = if is_own { messages::too_many_signed_of_app(app) } else { messages::too_many_signed() };
                return Err(ApiError::rate_limited(message, wait));
            }
        };
        if is_new { Ok(()) } else { Err(unverified(messages::nonce_was_used())) }
    }

    /// A token of ours proves its user; without one, trusted apps name any user and every app may
    /// call for itself, under its own code.
    async fn with_user(&self, state: &ApiState, app: Proved, plain: &Plain) -> Result<Identity> {
        let app_secret = Some(app.secret_hash);
        if let Some(token) = plain.token().filter(|token| TokenText::is_meant(token)) {
            let Shown { user, token } = self.user_of_token(state, token, Use::Call).await?;
            return Ok(
                Identity::both(app.code, user).with(PresentedCredentials { app_secret, user_token: Some(token) })
            );
        }
        let proof = PresentedCredentials { app_secret, user_token: None };
        match (plain.user(), plain.token()) {
            (None, None) => Err(ApiError::new(Problem::OperatorMissing, messages::no_user_named())),
            (Some(user), _) if user == app.code => Ok(Identity::app(app.code).with(proof)),
            _ if !app.is_trusted => Err(ApiError::new(Problem::UserUnverified, messages::user_unverified())),
            (Some(user), _) => Ok(Identity::both(app.code, user).with(proof)),
            // The documents' examples send only a token; a trusted app then acts for itself.
            (None, Some(_)) => Ok(Identity::app(app.code).with(proof)),
        }
    }

    async fn by_session(&self, state: &ApiState, proof: &SessionProof) -> Result<Identity> {
        let Shown { user, token } = self.user_of_token(state, proof.token(), Use::Session).await?;
        proof.check_csrf(self.keys(state).await?)?;
        Ok(Identity::user(user)
            .with(PresentedCredentials { user_token: Some(token), ..PresentedCredentials::default() }))
    }

    async fn user_of_token(&self, state: &ApiState, text: &str, used_as: Use) -> Result<Shown> {
        let keys = self.keys(state).await?;
        let (fingerprint, now) = (keys.fingerprint(&[used_as.name(), text]), Instant::now());
        if let Some(shown) = self.users.get(&fingerprint, now) {
            return Ok(shown);
        }
        let age = self.users.age();
        let UserToken { id, user, .. } = self.stored_token(state, text, used_as).await?;
        let shown = Shown { user, token: id };
        self.users.put(fingerprint, shown.clone(), now, age);
        Ok(shown)
    }

    /// The token of this text that programs send; a browser's session is none.
    pub(in crate::api) async fn call_token(&self, state: &ApiState, text: &str) -> Result<UserToken> {
        self.stored_token(state, text, Use::Call).await
    }

    /// One that is good and whose user may act, from the store.
    async fn stored_token(&self, state: &ApiState, text: &str, used_as: Use) -> Result<UserToken> {
        let refused = || ApiError::new(Problem::UserUnverified, messages::user_unverified());
        let token: TokenText = text.parse().map_err(|_| refused())?;
        let keys = self.keys(state).await?;
        let control = &state.control;
        let stored = control.user_token(&token.id).await.map_err(ControlError::from)?;
        let hash = stored.as_ref().map_or(NO_HASH, |stored| stored.secret_hash.as_str());
        let is_right = keys.compare(&token.secret, hash) != HashMatch::Wrong;
        let stored = stored.filter(|stored| is_right && used_as.fits(&stored.kind)).ok_or_else(refused)?;
        if stored.expires_at.is_some_and(|end| end <= clock::unix_millis()) {
            return Err(refused());
        }
        let user = control.user(&stored.user).await.map_err(ControlError::from)?;
        if user.is_none_or(|user| user.disabled) {
            return Err(refused());
        }
        Ok(stored)
    }
}

fn fingerprint_of(keys: &Keys, app: &str, signed: &Signed) -> Fingerprint {
    keys.fingerprint(&["nonce", app, &signed.nonce.to_string()])
}

fn unverified(message: Message) -> ApiError {
    ApiError::new(Problem::AppUnverified, message)
}

/// A hash of an older version is replaced at the first use; if that fails, at the next.
async fn renew_hash(state: &ApiState, app: &App, hash: String) {
    match state.control.renew_app_hash(&app.code, &app.secret_hash, &hash).await {
        Ok(_) => tracing::info!(app = app.code, "app secret rehashed"),
        Err(error) => tracing::warn!(app = app.code, %error, "cannot rehash app secret"),
    }
}

fn by_gateway(state: &ApiState, token: &str) -> Result<Identity> {
    let refused =
        |reason: Message| ApiError::new(Problem::GatewayUnverified, messages::in_field("X-Bkapi-JWT", reason));
    let key = state.border.settings.gateway_key.as_ref();
    let key = key.ok_or_else(|| refused(messages::gateway_key_is_missing()))?;
    let vouched = key.verify(token, clock::unix_millis() / 1000).map_err(refused)?;
    Ok(Identity::both(vouched.app, vouched.user))
}

fn behind_esb(app: &str, user: &str) -> Result<Identity> {
    if app.is_empty() {
        return Err(unverified(messages::app_header_is_empty()));
    }
    if user.is_empty() {
        return Err(ApiError::new(Problem::OperatorMissing, messages::no_user_header()));
    }
    Ok(Identity::both(app, user))
}
