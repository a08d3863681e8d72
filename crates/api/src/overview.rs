//! An overview of the whole fleet, and search.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{PhaseCounts, Reason, TaskView};

/// Counts only what the caller may read. Made from a snapshot of the whole fleet that may be some seconds old.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    pub at_ms: i64,
    pub hosts: HostCounts,
    /// The hosts of each cloud area; the fifty with the most, by number of the area.
    #[serde(default)]
    pub clouds: Vec<CloudHosts>,
    /// Number of cloud areas with hosts, beyond fifty too.
    #[serde(default)]
    pub clouds_total: usize,
    pub processes: ProcessCounts,
    /// What some of the numbers were an hour ago, or at the server's start; absent just after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierCounts>,
    pub tasks: TaskCounts,
    /// What needs attention, most severe first; at most fifty.
    pub attention: Vec<Attention>,
    /// How many there are, beyond fifty too.
    pub attention_total: usize,
    /// Most frequent first; at most fifty.
    pub agent_versions: Vec<AgentVersion>,
    /// Connected agents whose certificates expire within seven days; the next twenty.
    pub certificates_ending: Vec<EndingCertificate>,
    pub certificates_ending_total: usize,
}

/// Hosts by their [`crate::HostStatus`]: each counts once. `GET /hosts?state=` lists them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostCounts {
    pub total: u64,
    pub online: u64,
    /// Not connected, and in none of the other states.
    pub away: u64,
    pub revoked: u64,
    /// Not connected because no relay of their cloud area is; whether they are healthy is unknown.
    #[serde(default)]
    pub unreachable: u64,
    /// In maintenance, connected or not.
    #[serde(default)]
    pub cordoned: u64,
    /// New hosts that get no work until an administrator approves them.
    #[serde(default)]
    pub awaits_approval: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CloudHosts {
    pub cloud: u32,
    #[serde(flatten)]
    pub hosts: HostCounts,
}

/// Processes on cordoned hosts are counted separately: the fields after `cordoned` exclude them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessCounts {
    pub total: u64,
    /// On hosts in maintenance, whatever their phase.
    #[serde(default)]
    pub cordoned: u64,
    pub phases: PhaseCounts,
    /// Running, but unhealthy according to the health command.
    pub unhealthy: u64,
    /// Started three times or more by supervision since the last operation or stable run, and still managed.
    pub crash_looping: u64,
    /// Evicted for exceeding a limit of its own or of its pool; waits for its next start.
    pub evicted: u64,
}

/// Numbers of the overview at an earlier time, for what the caller may read now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EarlierCounts {
    pub at_ms: i64,
    pub away: u64,
    pub failed: u64,
    pub crash_looping: u64,
    pub evicted: u64,
}

/// Tasks that are not finished; at most a thousand are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCounts {
    pub running: u64,
    pub paused: u64,
}

/// Something that needs attention: one process on some hosts, or some hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attention {
    pub kind: AttentionKind,
    pub severity: Severity,
    /// Null where hosts are concerned.
    pub process: Option<String>,
    /// The host, if it is only one.
    pub host: Option<String>,
    /// Number of hosts.
    pub count: u64,
    /// The first five.
    pub hosts: Vec<String>,
    /// Since when the first of them is in that state; null if unknown.
    pub since: Option<i64>,
    /// On one of the hosts; empty if unknown.
    #[serde(flatten)]
    pub why: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Critical,
    Warning,
    Notice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// Given up after the last retry.
    Failed,
    CrashLooping,
    Evicted,
    Unhealthy,
    HostAway,
    /// No relay of its cloud area is connected.
    HostUnreachable,
    CertificateEnds,
    ClockOff,
    /// The agent's version is not the server's.
    AgentOutdated,
    /// A new host that an administrator has to approve.
    AwaitsApproval,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentVersion {
    /// Empty for agents that have never connected.
    pub version: String,
    pub hosts: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndingCertificate {
    pub host: String,
    pub expires_at: i64,
}

/// One cell per host that the caller may read, by cloud area and address (as text). The lists are parallel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetMap {
    pub at_ms: i64,
    pub hosts: Vec<String>,
    pub business: Vec<Option<u64>>,
    pub worst: Vec<HostState>,
}

/// The worst known state of the processes of a host, from good to bad. For a host that is not online (`GET /hosts`,
/// `state`), that state instead, whatever is known of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostState {
    /// No processes.
    Empty,
    Running,
    Stopped,
    /// Starting, stopping or waiting for the next start.
    Changing,
    Unknown,
    Failed,
    /// Not connected, also if its certificate was revoked.
    Away,
    /// No relay of its cloud area is connected.
    Unreachable,
    /// In maintenance, connected or not.
    Cordoned,
    AwaitsApproval,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SearchQuery {
    /// Substring of a name, address, host name or agent id, or the beginning of a task's id; case-insensitive.
    #[param(min_length = 1, max_length = 128)]
    pub q: String,
    /// Of each kind; default 8.
    #[param(maximum = 50)]
    pub limit: Option<u32>,
}

/// What the caller may read; matches at the beginning come first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SearchResult {
    /// `NAMESPACE/NAME`.
    pub processes: Vec<String>,
    pub hosts: Vec<FoundHost>,
    pub tasks: Vec<TaskView>,
    pub namespaces: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundHost {
    /// `CLOUD:IP`.
    pub host: String,
    pub hostname: String,
    pub online: bool,
}
