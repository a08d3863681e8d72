//! Users, their passwords, tokens and sessions.

use std::time::Duration;

use proctor_store::{Millis, Refusal, Result, User, UserCredential, UserToken};

use super::Changed;
use crate::ServerError;
use crate::admin;
use crate::control::Control;
use crate::user_token::TokenText;

impl Control {
    pub(crate) async fn users(&self) -> Result<Vec<User>> {
        self.inner.store.users().await
    }

    pub(crate) async fn disabled_names(&self) -> Result<Vec<String>> {
        self.inner.store.disabled_names().await
    }

    pub(crate) async fn user(&self, name: &str) -> Result<Option<User>> {
        self.inner.store.user(name).await
    }

    pub(crate) async fn create_user(&self, user: User) -> Changed {
        self.inner.store.create_user(user).await
    }

    pub(crate) async fn disable_user(&self, name: &str, disabled: bool) -> Result<Option<User>> {
        self.inner.store.disable_user(name, disabled).await
    }

    pub(crate) async fn delete_user(&self, name: &str) -> Result<bool> {
        self.inner.store.delete_user(name).await
    }

    /// What a password or a session of the user rests on.
    pub(crate) async fn user_credential(&self, name: &str) -> Result<Option<UserCredential>> {
        self.inner.store.user_credential(name).await
    }

    pub(crate) async fn set_user_password(
        &self,
        name: &str,
        hash: Option<String>,
        expected: Option<UserCredential>,
        now: Millis,
    ) -> Changed {
        self.inner.store.set_user_password(name, hash, expected, now).await
    }

    pub(crate) async fn user_tokens(&self, user: Option<&str>) -> Result<Vec<UserToken>> {
        self.inner.store.user_tokens(user).await
    }

    pub(crate) async fn user_token(&self, id: &str) -> Result<Option<UserToken>> {
        self.inner.store.user_token(id).await
    }

    /// Makes a token for calls, and returns it with its text.
    pub(crate) async fn create_user_token(
        &self,
        user: &str,
        note: &str,
        ttl: Option<Duration>,
    ) -> std::result::Result<std::result::Result<(TokenText, UserToken), Refusal>, ServerError> {
        admin::create_user_token(&self.inner.store, user, note, ttl).await
    }

    pub(crate) async fn delete_user_token(&self, id: &str) -> Result<bool> {
        self.inner.store.delete_user_token(id).await
    }

    pub(crate) async fn put_session(&self, token: UserToken, credential: Option<UserCredential>) -> Changed {
        self.inner.store.put_session(token, credential).await
    }
}
