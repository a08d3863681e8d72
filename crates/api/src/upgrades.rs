//! Upgrades of agents over the link.

use proctor_model::AgentId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::CountOrPercent;

/// The agent programs that the server holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BuildList {
    pub builds: Vec<BuildView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BuildView {
    /// Of its file in the download directory.
    pub name: String,
    pub version: String,
    /// The kind of machine, such as `x86_64`.
    pub arch: String,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// Which agents to upgrade to which version. One of `hosts`, `business` and `all` says which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUpgrade {
    #[schema(min_length = 1, max_length = 64)]
    pub version: String,
    /// `CLOUD:IP`, IP addresses or agent ids, in the order of the upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    #[serde(default, deserialize_with = "crate::id::optional", skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Cumulative number of hosts upgraded by the end of each ring; the rest is the last ring.
    #[serde(default = "rings", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 20)]
    pub rings: Vec<CountOrPercent>,
    /// How long a new version has to prove itself on a host.
    #[serde(default = "health_deadline_secs")]
    #[schema(minimum = 10, maximum = 3600)]
    pub health_deadline_secs: u64,
    /// Beyond this many failures, no further host starts.
    #[serde(default)]
    pub max_failures: u32,
    /// Whether downgrades are allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_downgrade: bool,
}

fn rings() -> Vec<CountOrPercent> {
    vec![
        CountOrPercent::Count(1),
        CountOrPercent::Percent(5),
        CountOrPercent::Percent(25),
        CountOrPercent::Percent(100),
    ]
}

fn health_deadline_secs() -> u64 {
    60
}

/// What an upgrade would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradePlanView {
    pub version: String,
    pub builds: Vec<BuildView>,
    pub rings: Vec<UpgradeRing>,
    pub health_deadline_secs: u64,
    pub max_failures: u32,
    pub allow_downgrade: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeRing {
    /// `CLOUD:IP`.
    pub hosts: Vec<String>,
    /// How many of them are not connected now; they are skipped unless they come in time.
    #[serde(default)]
    pub away: u32,
    /// How many of the others run the version already.
    #[serde(default)]
    pub current: u32,
    /// How many of the others cannot be upgraded over the link: too old, or part of another program.
    #[serde(default)]
    pub too_old: u32,
    /// How many of the others are machines that there is no build for.
    #[serde(default)]
    pub without_build: u32,
    /// How many of the others run a newer version, and refuse to go back.
    #[serde(default)]
    pub newer: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeState {
    Running,
    Paused,
    Done,
    /// Too many hosts failed.
    Failed,
    Cancelled,
}

impl UpgradeState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeHostState {
    Waiting,
    Upgrading,
    Done,
    Failed,
    /// Nothing was done.
    Skipped,
}

impl UpgradeHostState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Upgrading => "upgrading",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeList {
    pub upgrades: Vec<UpgradeView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeView {
    pub id: String,
    pub version: String,
    pub state: UpgradeState,
    /// Why it is paused or has ended; empty if there is nothing to say.
    pub reason: String,
    /// The entry of docs/messages.json that it is; absent where it is text alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_id: Option<String>,
    /// By the names of the entry: text, or an object with `id` and `args` of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub reason_args: Option<serde_json::Map<String, serde_json::Value>>,
    pub created_by: String,
    pub created_at: i64,
    pub changed_at: i64,
    /// Number of hosts in each ring.
    pub rings: Vec<u32>,
    pub health_deadline_secs: u64,
    pub max_failures: u32,
    pub allow_downgrade: bool,
}

/// Which hosts of an upgrade to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UpgradeHostQuery {
    pub state: Option<UpgradeHostState>,
    /// `next` of the page before.
    pub after: Option<u32>,
    /// All of them where it is absent.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
}

/// How many hosts of a ring are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeRingProgress {
    pub waiting: u32,
    pub upgrading: u32,
    pub done: u32,
    pub failed: u32,
    pub skipped: u32,
}

/// With its hosts, in the order of the upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeDetail {
    #[serde(flatten)]
    pub upgrade: UpgradeView,
    /// Of all hosts, ring by ring.
    #[serde(default)]
    pub progress: Vec<UpgradeRingProgress>,
    pub hosts: Vec<UpgradeHostView>,
    /// For `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradeHostView {
    /// `CLOUD:IP`.
    pub host: String,
    pub agent: AgentId,
    /// From 1.
    pub ring: u32,
    pub state: UpgradeHostState,
    /// Why it was skipped or failed; empty if there is nothing to say.
    pub reason: String,
    /// The entry of docs/messages.json that it is; absent if it is plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_id: Option<String>,
    /// The arguments of the entry by name: text, or an object with its own `id` and `args`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub reason_args: Option<serde_json::Map<String, serde_json::Value>>,
    pub version_before: String,
    pub changed_at: i64,
}
