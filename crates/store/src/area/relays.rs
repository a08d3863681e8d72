//! Relays: their join tokens, their keys, and when they were seen.
//!
//! Absent: which of them are connected, which lives in memory.

use std::net::IpAddr;

use async_trait::async_trait;
use proctor_model::RelayId;

use crate::{EnrolRefusal, Millis, RelayEnrolment, RelayRecord, RelayToken, RelayTokenRecord, Result};

#[async_trait]
pub trait RelayStore: Send + Sync + std::fmt::Debug {
    async fn put_relay_token(&self, token: RelayToken) -> Result<()>;
    /// The one that expires last comes first.
    async fn relay_tokens(&self) -> Result<Vec<RelayTokenRecord>>;
    /// Returns whether it existed. Relays that enrolled with it stay.
    async fn delete_relay_token(&self, id: &str) -> Result<bool>;
    /// Whether a token with this id and secret exists, expired or not. Changes nothing.
    async fn knows_relay_token(&self, id: &str, secret_hash: &str) -> Result<bool>;
    /// Checks the token, consumes one use and stores the relay, all or nothing, together with the audit entry.
    /// Repeating it with the same token and key succeeds again without consuming another use. A revoked key is
    /// refused; a known key keeps its relay's name, which is returned.
    async fn enrol_relay(
        &self,
        enrolment: RelayEnrolment,
        now: Millis,
    ) -> Result<std::result::Result<RelayId, EnrolRefusal>>;
    /// All of them, by cloud area and name.
    async fn relays(&self) -> Result<Vec<RelayRecord>>;
    /// Records that the relay was seen, if the key belongs to it and was not revoked; None otherwise.
    async fn meet_relay(
        &self,
        relay: &RelayId,
        key_fingerprint: &str,
        remote: Option<IpAddr>,
        now: Millis,
    ) -> Result<Option<RelayRecord>>;
    /// Its key can no longer connect. Returns whether it could before; None if the relay is unknown.
    async fn revoke_relay(&self, relay: &RelayId, now: Millis) -> Result<Option<bool>>;
}
