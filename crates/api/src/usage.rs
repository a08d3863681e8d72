//! A process's resource use over time, as its host records it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: String,
    /// How far back; default: the last hour.
    pub range: Option<UsageSpan>,
    /// Which instance of a process that has several; default: the first.
    pub instance: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum UsageSpan {
    #[default]
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "7d")]
    Week,
}

/// Whether the host could be asked, and has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageState {
    /// `points` is what was recorded; empty if nothing was yet.
    Kept,
    /// The host has more processes than its agent records.
    NotKept,
    /// The host's agent is not connected. What it has recorded is still there.
    Offline,
    /// The version of the host's agent records no usage.
    AgentTooOld,
    /// The host's agent did not answer in time.
    NoAnswer,
}

/// CPU and memory of one process on one host, in percent of the whole host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// `NAMESPACE/NAME`, with `#NUMBER` for an instance.
    pub process: String,
    pub host: String,
    pub range: UsageSpan,
    pub state: UsageState,
    /// Seconds between points. In the last hour 10 for a process whose limits are watched and 60 for others, in the
    /// last seven days 300.
    pub step: u32,
    /// In order of time. If the next point is more than two steps away, nothing was measured in between: the
    /// process or its agent did not run.
    pub points: Vec<UsagePointView>,
    /// Limits of the process, in percent of the host; null if there are none.
    pub cpu_limit: Option<f64>,
    pub memory_limit: Option<f64>,
}

/// One step of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsagePointView {
    /// When it began, by the host's clock.
    pub at: i64,
    /// The average.
    pub cpu: f64,
    pub cpu_max: f64,
    /// This and `memory_min`: only in the last seven days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_min: Option<f64>,
    /// The average.
    pub memory: f64,
    pub memory_max: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_min: Option<f64>,
    /// The process was restarted in this step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
}
