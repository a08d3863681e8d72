//! The certificate authority of the control plane, and its rotation.

use proctor_model::RelayId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The phase of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthorityPhase {
    /// There is one authority.
    Idle,
    /// A successor is announced to agents and relays, and issues nothing yet.
    Prepared,
    /// The successor issues certificates; the old authority is still trusted.
    Switched,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityView {
    pub phase: AuthorityPhase,
    /// SHA-256 of the certificate of the authority that join tokens pin.
    pub fingerprint: String,
    /// Of the successor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor_fingerprint: Option<String>,
    /// When the successor was made, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared_at: Option<i64>,
    pub agents: AuthorityFollowers,
    pub relays: AuthorityFollowers,
    /// How many agents and relays the next step would cut off.
    pub behind_total: u32,
    /// The first of them, at most 1,000.
    pub behind: Vec<AuthorityBehind>,
    /// Join tokens that can still be used. They pin `fingerprint`, and become invalid with the rotation.
    pub open_tokens: u32,
}

/// Of all that have enrolled and were not revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityFollowers {
    pub total: u32,
    /// They trust the successor, and have it on disk.
    pub trust_successor: u32,
    /// They have a certificate of the successor.
    pub new_certificate: u32,
}

/// An agent or relay that the next step would cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityBehind {
    /// The host of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<RelayId>,
    pub why: AuthorityBehindWhy,
    /// Version of its program, if known.
    pub version: String,
    pub trusts_successor: bool,
    pub has_new_certificate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthorityBehindWhy {
    NotConnected,
    /// It is connected, but its version does not understand the announcement.
    CannotFollow,
    /// It is connected, but not done yet.
    NotYet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthorityStep {
    /// Continue without the agents and relays that this cuts off.
    #[serde(default)]
    pub force: bool,
}
