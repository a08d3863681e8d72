//! Hosts, and the businesses they belong to.

use std::net::IpAddr;

use proctor_model::{AgentId, HostFacts};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    /// `CLOUD:IP`.
    pub host: String,
    pub cloud: u32,
    pub supplier: u32,
    #[schema(value_type = String)]
    pub ip: IpAddr,
    pub agent: AgentId,
    /// For some seconds after a server start, the last known state.
    pub online: bool,
    /// Not connected since the server started, or since its connection broke; `online` turns false if it does not
    /// come back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returning: bool,
    /// Its heartbeat is overdue, or its connection just broke: it may be gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspect: bool,
    /// Not connected because no relay of its cloud area is; whether the host is healthy is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// The business that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    pub enrolled_at: i64,
    /// When `online` last changed.
    pub presence_changed_at: i64,
    /// How far the host's clock was ahead of the server's when its agent connected; absent while it is not
    /// connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// When the agent's certificate expires; absent while it is not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires_at: Option<i64>,
    /// Round trip to its agent; absent while unknown. Measured when the host is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkView>,
    /// When its agent's certificate was revoked; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// Until when another key may take over the host, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_until: Option<i64>,
    /// Its maintenance, while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<CordonView>,
    /// It is new and gets no work until an administrator approves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_approval: bool,
    /// SHA-256 of the public key that the agent enrolled with; `proctor-agent doctor` shows it on the host.
    #[serde(default)]
    pub key_fingerprint: String,
    #[serde(default)]
    pub facts: HostFacts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnservedHostList {
    pub hosts: Vec<UnservedHostView>,
}

/// A host whose agent has moved to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnservedHostView {
    /// `CLOUD:IP`.
    pub host: String,
    /// The business that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    /// Registered on it; an agent that enrols for the host gets them.
    pub processes: u64,
    /// When its agent left.
    pub since: i64,
    /// When the key that served it was revoked; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// Until when another key may take over the host, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_until: Option<i64>,
    /// SHA-256 of the public key that served it.
    pub key_fingerprint: String,
}

/// The link of a connected agent, including any relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// From the server's ping to the agent's answer, in microseconds.
    pub rtt_us: u64,
    pub measured_at: i64,
}

/// Why a host accepts no starts, and until when: `until` or `ttl_secs`; with neither, until somebody ends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CordonRequest {
    /// One line.
    #[schema(min_length = 1, max_length = 200)]
    pub reason: String,
    /// Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31622400)]
    pub ttl_secs: Option<u64>,
}

/// Maintenance of a host: it accepts no starts from the fleet and raises no alarms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CordonView {
    pub reason: String,
    pub by: String,
    pub since: i64,
    /// Absent: until somebody ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// Which new host to approve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// Its `key_fingerprint`; if the host enrolled with another key, the call changes nothing and answers 409. Case
    /// and colons do not matter. Absent: whatever key it enrolled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub key: Option<String>,
}

/// How long another key may take over a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RejoinRequest {
    #[schema(minimum = 1, maximum = 604800)]
    pub ttl_secs: u64,
}

impl Default for RejoinRequest {
    fn default() -> Self {
        Self { ttl_secs: 3600 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RejoinView {
    /// `CLOUD:IP`.
    pub host: String,
    pub rejoin_until: i64,
}

/// What new hosts can fetch from the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DownloadList {
    /// The port of the server's link, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_port: Option<u16>,
    pub files: Vec<DownloadView>,
}

/// `/download/NAME`; append `.sha256` or `.sig` for its digest or the authority's signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DownloadView {
    pub name: String,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// In the order of cloud area and address (as text).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostPage {
    pub hosts: Vec<HostView>,
    /// `after` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The server itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerView {
    pub version: String,
    /// Its clock, in Unix milliseconds.
    pub time_ms: i64,
    /// When the certificate that it presents to agents expires; it makes a new one at every start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_certificate_expires_at: Option<i64>,
}

/// The size of the server's store, largest table first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageView {
    /// Of all tables. The file may be larger: deleted rows leave space that is reused.
    pub bytes: u64,
    /// Free space of the data directory's file system; absent if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// The size of that file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    pub tables: Vec<TableView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableView {
    pub table: String,
    pub rows: u64,
    /// With its indexes.
    pub bytes: u64,
}

/// The state of a host. If several apply, the last one of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostStatus {
    /// Not connected.
    Away,
    /// Not connected because no relay of its cloud area is.
    Unreachable,
    Online,
    /// In maintenance, connected or not.
    Cordoned,
    /// Not connected, and its certificate is revoked.
    Revoked,
    /// It is new and gets no work until an administrator approves it.
    AwaitsApproval,
}

/// What is wrong with a host beyond its state. Cordoned hosts and those that await approval have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostTrouble {
    /// The agent's certificate expires within seven days.
    CertificateEnds,
    /// Its clock differs from the server's by more than 30 s.
    ClockOff,
    /// The agent's version is not the server's.
    AgentOutdated,
}

/// Which hosts; a field that is absent does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HostQuery {
    #[serde(default, deserialize_with = "crate::id::optional")]
    pub business: Option<u64>,
    pub cloud: Option<u32>,
    /// Whether its agent is connected, whatever the `state`.
    pub online: Option<bool>,
    /// As counted by `GET /overview`, and as recent as that; not with `token`.
    pub state: Option<HostStatus>,
    /// As counted by `GET /overview`, and as recent as that; not with `token`.
    pub trouble: Option<HostTrouble>,
    /// The agent's version; empty: agents that never connected.
    pub version: Option<String>,
    /// The id of the join token that its agent enrolled with, as long as the token is kept. For administrators.
    pub token: Option<String>,
    /// Substring of `CLOUD:IP`, the agent's id or the host name; case-insensitive.
    #[param(max_length = 128)]
    pub q: Option<String>,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// Default: 100.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
}

/// One host to assign by an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRow {
    #[serde(default)]
    pub cloud: u32,
    #[schema(value_type = String)]
    pub ip: IpAddr,
    /// Null: no business any more.
    #[serde(deserialize_with = "crate::id::optional")]
    #[schema(required = true)]
    pub business: Option<u64>,
    /// Creates or renames the business.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Imported {
    /// Hosts that were placed.
    pub hosts: usize,
    /// Businesses that were made or named.
    pub businesses: usize,
}

/// Which hosts to assign to which business.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Each an IP address, `CLOUD:IP` or an agent id; addresses need not be enrolled yet.
    #[schema(min_items = 1)]
    pub hosts: Vec<String>,
    /// Null: no business any more.
    #[serde(deserialize_with = "crate::id::optional")]
    #[schema(required = true)]
    pub business: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Placed {
    pub hosts: usize,
}
