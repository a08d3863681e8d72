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
    /// Whether it was there. Relays that enrolled with it stay.
    async fn delete_relay_token(&self, id: &str) -> Result<bool>;
    /// Whether there is a token of this id with this secret, expired or not. Changes nothing.
    async fn knows_relay_token(&self, id: &str, secret_hash: &str) -> Result<bool>;
    /// Checks the token, uses it up once and keeps the relay, all or nothing, together with its audit entry. A
    /// repetition with the same token and key succeeds again without a further use. A key that was revoked is refused;
    /// one that is known keeps its relay's name, which is returned.
    async fn enrol_relay(
        &self,
        enrolment: RelayEnrolment,
        now: Millis,
    ) -> Result<std::result::Result<RelayId, EnrolRefusal>>;
    /// All of them, by cloud area and name.
    async fn relays(&self) -> Result<Vec<RelayRecord>>;
    /// Notes that the relay is there, if the key is its own and was not revoked. None where it is not.
    async fn meet_relay(
        &self,
        relay: &RelayId,
        key_fingerprint: &str,
        remote: Option<IpAddr>,
        now: Millis,
    ) -> Result<Option<RelayRecord>>;
    /// Its key connects no more. Whether it did before; None for an unknown relay.
    async fn revoke_relay(&self, relay: &RelayId, now: Millis) -> Result<Option<bool>>;
}
