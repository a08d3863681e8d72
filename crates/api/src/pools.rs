//! Pools: limits that processes of one namespace on one host share.

use proctor_model::{AgentId, Namespace, Percent, PoolId, Weight};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Change, Refusal};

/// A pool to set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSetting {
    pub namespace: Namespace,
    /// Equal to the namespace: all of its processes; otherwise those with the label `process_group` equal to it.
    pub id: PoolId,
    /// In % of the whole host.
    pub cpu: Percent,
    /// In % of the whole host.
    pub memory: Percent,
    pub cpu_weight: Weight,
    pub memory_weight: Weight,
    /// Only report who would be evicted.
    #[serde(default)]
    pub dry_run: bool,
}

/// Which pools hosts should have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPools {
    /// Each an IP address, `CLOUD:IP` or an agent id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Instead of hosts: every enrolled one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Instead of hosts: those of this business.
    #[serde(default, deserialize_with = "crate::id::optional", skip_serializing_if = "Option::is_none")]
    pub business: Option<u64>,
    #[serde(deserialize_with = "crate::object::each")]
    #[schema(min_items = 1)]
    pub pools: Vec<PoolSetting>,
}

/// A pool on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    pub host: String,
    pub agent: AgentId,
    pub namespace: Namespace,
    pub id: PoolId,
    pub cpu: Percent,
    pub memory: Percent,
    pub cpu_weight: Weight,
    pub memory_weight: Weight,
    /// Only report who would be evicted.
    #[serde(default)]
    pub dry_run: bool,
    /// Only if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<PoolUsage>,
}

impl PoolView {
    pub fn setting(&self) -> PoolSetting {
        PoolSetting {
            namespace: self.namespace.clone(),
            id: self.id.clone(),
            cpu: self.cpu,
            memory: self.memory,
            cpu_weight: self.cpu_weight,
            memory_weight: self.memory_weight,
            dry_run: self.dry_run,
        }
    }
}

/// The last known usage of a pool's members, in total and each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolUsage {
    pub cpu_percent: f64,
    pub memory_percent: f64,
    pub members: Vec<PoolMember>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolMember {
    pub process: String,
    pub pid: Option<i32>,
    pub cpu_percent: f64,
    pub memory_percent: f64,
    pub memory_bytes: u64,
    /// When this was observed.
    pub reported_at: i64,
}

/// What setting or deleting pools would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolPlan {
    /// One row per pool for each host, in the caller's order.
    pub pools: Vec<PlannedPool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedPool {
    pub host: String,
    pub namespace: Namespace,
    pub id: PoolId,
    /// Whether it is currently set there; absent if the caller may not read it, or if it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<bool>,
    /// What would change; empty if nothing would, or if the caller may not read it.
    pub changes: Vec<Change>,
    /// Whether the host's agent is connected; absent like `set`. If not, the agent is told when it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// The members' current usage, to compare with the limits; absent like `set`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<PlannedUsage>,
    /// Why nothing would be done here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

/// The total usage of a pool's members, in % of the whole host, as last observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedUsage {
    pub members: usize,
    pub cpu_percent: f64,
    pub memory_percent: f64,
}

/// In the order of namespace, id, cloud area and address (as text).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    pub pools: Vec<PoolView>,
    /// `after` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PoolQuery {
    pub namespace: Option<String>,
    /// An IP address, `CLOUD:IP` or an agent id.
    pub host: Option<String>,
    /// Include the members' usage; a page then ends after 50 namespaces, even below its limit.
    pub usage: Option<bool>,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}
