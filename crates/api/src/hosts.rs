//! Hosts, and where they belong.

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
    /// For some seconds after a start of the server, as it was before.
    pub online: bool,
    /// Not connected since the server's start, or since its connection broke; `online` turns false if it does not come back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returning: bool,
    /// Its heartbeat is overdue, or its connection broke a moment ago: it may be gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspect: bool,
    /// Not connected because no relay of its cloud area is; whether the host is well is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// The business that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    pub enrolled_at: i64,
    /// When `online` last changed.
    pub presence_changed_at: i64,
    /// By how much the host's clock went before the server's when its agent connected; absent while it is
    /// not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// When the agent's certificate ends; absent while it is not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires_at: Option<i64>,
    /// How long its agent takes to answer; absent while that is not known. Measured when the host is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkView>,
    /// Since when its agent's certificate opens no session; absent where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// Until when another key may take the host over, once.
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

/// A host whose agent has left it for another one.
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
    /// Since when the key that served it is revoked; absent where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// Until when another key may take the host over, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_until: Option<i64>,
    /// SHA-256 of the public key that served it.
    pub key_fingerprint: String,
}

/// The link of a connected agent, with any relay on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// From a question of the server to the agent's answer, in microseconds.
    pub rtt_us: u64,
    pub measured_at: i64,
}

/// Why a host takes no starts, and until when: `until` or `ttl_secs`, or neither: until somebody ends it.
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

/// Maintenance of a host: it takes no starts from the fleet and raises no alarms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CordonView {
    pub reason: String,
    pub by: String,
    pub since: i64,
    /// Absent: until somebody ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// Which new host is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// Its `key_fingerprint`; where the host enrolled with another key, the call changes nothing and ends with 409. The
    /// case of letters and colons do not matter. Absent: whatever key it enrolled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub key: Option<String>,
}

/// How long a host is open to another key.
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
    /// The port of the server's link, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_port: Option<u16>,
    pub files: Vec<DownloadView>,
}

/// `/download/NAME`; with `.sha256` and `.sig` behind it, its digest and the authority's signature.
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
    /// When the certificate ends that it shows to agents; it makes a new one whenever it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_certificate_expires_at: Option<i64>,
}

/// What the server's store takes, the largest table first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageView {
    /// Of all tables together. The file may be larger: deleted rows leave space that is used again.
    pub bytes: u64,
    /// What the file system of the data directory has left for the server; absent where it does not say.
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

/// In which state a host is. Where several would fit, the one that is listed last.
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
    /// Not connected, and its certificate opens no session.
    Revoked,
    /// It is new and gets no work until an administrator approves it.
    AwaitsApproval,
}

/// What is wrong with a host beyond its state. Hosts that are cordoned or await approval have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostTrouble {
    /// The agent's certificate ends within seven days.
    CertificateEnds,
    /// Its clock is more than 30 s apart from the server's.
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
    /// As `GET /overview` counts it, and as old as that; not with `token`.
    pub state: Option<HostStatus>,
    /// As `GET /overview` counts it, and as old as that; not with `token`.
    pub trouble: Option<HostTrouble>,
    /// The agent's version; empty: those that never connected.
    pub version: Option<String>,
    /// The id of the join token that its agent enrolled with, as long as the token is kept. For administrators.
    pub token: Option<String>,
    /// Part of `CLOUD:IP`, the agent's id or the host name; the case of letters does not matter.
    #[param(max_length = 128)]
    pub q: Option<String>,
    /// `next` of the page before.
    pub after: Option<String>,
    /// 100 where it is absent.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
}

/// One host to be placed by an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRow {
    #[serde(default)]
    pub cloud: u32,
    #[schema(value_type = String)]
    pub ip: IpAddr,
    /// Null: in no business any more.
    #[serde(deserialize_with = "crate::id::optional")]
    #[schema(required = true)]
    pub business: Option<u64>,
    /// Makes the business, or names it anew.
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

/// Which hosts are to belong where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Each an IP address, `CLOUD:IP` or an agent id; addresses need not have enrolled yet.
    #[schema(min_items = 1)]
    pub hosts: Vec<String>,
    /// Null: in no business any more.
    #[serde(deserialize_with = "crate::id::optional")]
    #[schema(required = true)]
    pub business: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Placed {
    pub hosts: usize,
}
