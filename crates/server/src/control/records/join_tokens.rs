//! Join tokens, and which keys enrolled hosts may have.

use proctor_model::{AgentId, HostKey};
use proctor_pki::JoinToken;
use proctor_store::{HostQuery, JoinTokenRecord, Millis, RelayTokenRecord, Result};

use super::Changed;
use crate::ServerError;
use crate::admin::{self, TokenRequest};
use crate::control::Control;

impl Control {
    pub(crate) async fn tokens(&self) -> Result<Vec<JoinTokenRecord>> {
        self.inner.store.tokens().await
    }

    /// Makes a join token; returns it with its end.
    pub(crate) async fn create_token(
        &self,
        request: TokenRequest,
    ) -> std::result::Result<(JoinToken, Millis), ServerError> {
        admin::create_token(&self.inner.store, request).await
    }

    pub(crate) async fn relay_tokens(&self) -> Result<Vec<RelayTokenRecord>> {
        self.inner.store.relay_tokens().await
    }

    pub(crate) async fn delete_token(&self, id: &str) -> Result<bool> {
        let store = &self.inner.store;
        Ok(store.delete_token(id).await? || store.delete_relay_token(id).await?)
    }

    pub(crate) async fn knows_token(&self, id: &str, secret_hash: &str) -> Result<bool> {
        self.inner.store.knows_token(id, secret_hash).await
    }

    /// The addresses of all hosts that an agent serves.
    pub(crate) async fn known_addresses(&self) -> Result<Vec<std::net::IpAddr>> {
        let hosts = self.inner.store.hosts(&HostQuery::default()).await?;
        let relays = self.inner.store.relays().await?;
        let relays = relays.into_iter().filter(|relay| relay.revoked_at.is_none()).filter_map(|relay| relay.remote);
        Ok(hosts.into_iter().map(|host| host.key.ip).chain(relays).collect())
    }

    pub(crate) async fn allow_rejoin(&self, host: &HostKey, until: Option<Millis>) -> Result<bool> {
        self.inner.store.allow_rejoin(host, until).await
    }

    pub(crate) async fn approve_host(&self, host: &HostKey, key: &str) -> Changed<Option<bool>> {
        self.inner.store.approve_host(host, key, proctor_runtime::clock::unix_millis()).await
    }

    /// Gives hosts the agent ids that callers know them by; whether each was taken.
    pub(crate) async fn bind_agent_ids(&self, bindings: &[(HostKey, AgentId)]) -> Result<Vec<bool>> {
        self.inner.store.bind_agent_ids(bindings).await
    }
}
