//! Registered processes: their specs, their state, and how their specs changed.

use proctor_model::{AgentId, Labels, Lifetime, Phase, Snapshot, Spec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::{LocalizedMessage, OptionalNote};

/// One process on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessView {
    /// `NAMESPACE/NAME`.
    pub process: String,
    pub host: String,
    pub agent: AgentId,
    /// Whether its agent is connected; if not, the rest is as last observed.
    pub online: bool,
    /// The business of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    pub phase: Phase,
    pub managed: bool,
    pub pid: Option<i32>,
    /// Of the whole host, as last observed.
    pub cpu_percent: f64,
    pub memory_percent: f64,
    pub started_at: i64,
    pub restarts: u32,
    pub version: String,
    /// Why it is not running, if known, in the language of the call.
    pub reason: String,
    /// The entry of docs/messages.json that the reason is; absent if it is plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_id: Option<String>,
    /// The arguments of the entry by name: text, or an object with its own `id` and `args`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub reason_args: Option<serde_json::Map<String, Value>>,
    pub lifetime: Lifetime,
    /// The last result of the health command; empty if unknown.
    #[serde(default)]
    pub health: String,
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its own limits, in percent of the host; null if there are none.
    #[serde(default)]
    pub cpu_limit: Option<f64>,
    #[serde(default)]
    pub memory_limit: Option<f64>,
    #[serde(default)]
    pub labels: Labels,
    /// When it was last observed, by the host's clock; 0 if never.
    #[serde(default)]
    pub reported_at: i64,
    /// When its current phase was first observed, by the host's clock; null if unknown.
    #[serde(default)]
    pub phase_since: Option<i64>,
    /// When `online` last changed.
    #[serde(default)]
    pub presence_changed_at: i64,
    /// Rises with every change of the host's registrations.
    pub generation: u64,
    /// This and the following: only if everything was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Spec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessPage {
    pub processes: Vec<ProcessView>,
    /// Total number of matches; only if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// `after` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShowQuery {
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: Option<String>,
    /// Comma-separated phases.
    pub phase: Option<String>,
    /// Whether the host's agent is connected.
    pub online: Option<bool>,
    /// Substring of `CLOUD:IP` or of the version.
    #[param(max_length = 128)]
    pub q: Option<String>,
    /// Include spec and snapshot; default: true.
    pub full: Option<bool>,
    /// Include the total number of matches.
    pub count: Option<bool>,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// Default: 100.
    #[param(maximum = 1000)]
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RegisterQuery {
    /// Replaces the spec if the process is already registered.
    pub update: Option<bool>,
}

/// What a registration would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RegistrationPlan {
    pub process: String,
    /// In the caller's order.
    pub hosts: Vec<RegistrationChange>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RegistrationChange {
    pub host: String,
    /// Whether it is registered there now.
    pub registered: bool,
    /// What an update would change; empty if nothing would.
    pub changes: Vec<Change>,
    /// Why nothing can be registered there, or why the caller may not register this spec there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<crate::Refusal>,
    /// What the spec asks for and does not get, such as more instances than can be distinguished.
    #[serde(flatten)]
    pub note: OptionalNote,
}

/// Where to unregister a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Unregistration {
    /// Each an IP address, `CLOUD:IP` or an agent id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Instead of hosts: wherever it is registered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Instead of hosts: those of this business where it is registered.
    #[serde(default, deserialize_with = "crate::id::optional", skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
}

/// What an unregistration would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnregistrationPlan {
    pub process: String,
    /// In the caller's order.
    pub hosts: Vec<PlannedUnregistration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedUnregistration {
    pub host: String,
    /// The phase of the process as last observed: it is left alone. Absent if the caller may not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether the host's agent is connected; absent like `phase`. If not, the agent is told when it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// Why nothing would be done here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<crate::Refusal>,
}

/// One row for each host, in the caller's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rows {
    pub rows: Vec<Row>,
}

/// The result of a call on one host, if no agent was needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Row {
    pub host: String,
    pub code: u32,
    pub name: String,
    #[serde(flatten)]
    pub localized: LocalizedMessage,
}

impl Row {
    pub fn is_success(&self) -> bool {
        self.code == 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: String,
}

/// The last revisions on a host, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpecHistory {
    pub revisions: Vec<Revision>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Revision {
    pub generation: u64,
    pub at: i64,
    /// Absent: it was unregistered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Spec>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: String,
    /// A generation of the history; absent: the one before `to`.
    pub from: Option<u64>,
    /// A generation of the history; absent: the newest.
    pub to: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpecDiff {
    /// Absent: before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    pub to: u64,
    pub changes: Vec<Change>,
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Its path in the spec: `control.start`, `configmap[0].md5`.
    pub path: String,
    /// Null: it did not exist.
    #[schema(value_type = Value)]
    pub from: Value,
    /// Null: it no longer exists.
    #[schema(value_type = Value)]
    pub to: Value,
}
