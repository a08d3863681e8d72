//! Apps, their secrets, and the keys that seal them.

use proctor_store::{App, Binding, Refusal, Result};

use crate::ServerError;
use crate::admin::{self, AppCode, AppOptions};
use crate::control::Control;
use crate::keys::Keys;

impl Control {
    pub(crate) async fn keys(&self) -> Result<Keys> {
        Keys::load(self.inner.store.as_ref()).await
    }

    pub(crate) async fn apps(&self) -> Result<Vec<App>> {
        self.inner.store.apps().await
    }

    /// Makes an app with its bindings, and returns its secret.
    pub(crate) async fn create_app(
        &self,
        code: &AppCode,
        options: AppOptions,
        bindings: Vec<Binding>,
    ) -> std::result::Result<std::result::Result<String, Refusal>, ServerError> {
        admin::create_app(&self.inner.store, code, options, bindings).await
    }

    /// Gives an app a new secret, which is returned with the app.
    pub(crate) async fn rotate_app(
        &self,
        code: &AppCode,
        signing: Option<bool>,
    ) -> std::result::Result<std::result::Result<(App, String), Refusal>, ServerError> {
        admin::rotate_app(&self.inner.store, code, signing).await
    }

    pub(crate) async fn delete_app(&self, code: &str) -> Result<bool> {
        self.inner.store.delete_app(code).await
    }

    /// Replaces the hash of an app's secret if it is `old`.
    pub(crate) async fn renew_app_hash(&self, code: &str, old: &str, new: &str) -> Result<bool> {
        self.inner.store.renew_app_hash(code, old, new).await
    }

    /// False for a nonce that was used before.
    pub(crate) async fn take_nonce(&self, fingerprint: [u8; 32], until: i64, now: i64) -> Result<bool> {
        self.inner.store.take_nonce(fingerprint, until, now).await
    }
}
