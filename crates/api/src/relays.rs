//! Relays, which carry the agents of a cloud area.

use std::net::IpAddr;

use proctor_model::RelayId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RelayView {
    pub relay: RelayId,
    /// The cloud area whose agents it may carry.
    pub cloud: u32,
    pub connected: bool,
    /// To the server.
    pub connections: u32,
    /// Number of agents that it carries now.
    pub agents: u32,
    /// Of the program; absent while it is not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where it last connected from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    pub enrolled_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<i64>,
    /// When it was revoked; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// SHA-256 of the public key that it enrolled with.
    pub key_fingerprint: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RelayList {
    pub relays: Vec<RelayView>,
}
