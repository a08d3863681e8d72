//! Filters, orders and totals of process lists.

use std::collections::BTreeMap;

use proctor_model::Lifetime;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Longest text to search for, in characters.
pub const SEARCH_CHARS_MAX: usize = 128;

/// A query with the filters of a process list, and some fields of its own. A field that is absent does not narrow.
macro_rules! process_query {
    ($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
        #[serde(deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub struct $name {
            pub namespace: Option<String>,
            pub name: Option<String>,
            /// An IP address, `CLOUD:IP` or an agent id.
            pub host: Option<String>,
            #[serde(default, deserialize_with = "crate::id::optional")]
            pub business: Option<u64>,
            pub cloud: Option<u32>,
            /// By labels: `env=prod,tier!=db,!x,y`.
            pub selector: Option<String>,
            /// Comma-separated phases.
            pub phase: Option<String>,
            pub lifetime: Option<Lifetime>,
            /// Whether the host's agent is connected.
            pub online: Option<bool>,
            /// Whether the host is in maintenance.
            pub cordoned: Option<bool>,
            pub managed: Option<bool>,
            pub health: Option<HealthState>,
            /// What is wrong beyond the phase.
            pub trouble: Option<Trouble>,
            /// Substring of `NAMESPACE/NAME`, `CLOUD:IP` or the version; case-insensitive.
            #[param(max_length = 128)]
            pub q: Option<String>,
            $($(#[$field_about])* pub $field: $type,)*
        }

        impl $name {
            /// Only the filters.
            pub fn filter(&self) -> ProcessFilter {
                ProcessFilter {
                    namespace: self.namespace.clone(),
                    name: self.name.clone(),
                    host: self.host.clone(),
                    business: self.business,
                    cloud: self.cloud,
                    selector: self.selector.clone(),
                    phase: self.phase.clone(),
                    lifetime: self.lifetime,
                    online: self.online,
                    cordoned: self.cordoned,
                    managed: self.managed,
                    health: self.health,
                    trouble: self.trouble,
                    q: self.q.clone(),
                }
            }
        }
    };
}

process_query! {
    /// Which processes, in which order.
    ProcessQuery {
        sort: Option<ProcessSort>,
        /// Default: by name, host and phase ascending, otherwise largest first.
        order: Option<SortOrder>,
        /// Include spec and snapshot.
        full: Option<bool>,
        /// Include the total number of matches.
        count: Option<bool>,
        /// `next` of the previous page; only with the same `sort` and `order`.
        after: Option<String>,
        /// Default: 100.
        #[param(maximum = 1000)]
        limit: Option<u32>,
    }
}

process_query! {
    /// Which processes to group, and the order of the groups.
    GroupQuery {
        sort: Option<GroupSort>,
        /// `next` of the previous page; only with the same `sort`.
        after: Option<String>,
        /// Default: 100.
        #[param(maximum = 1000)]
        limit: Option<u32>,
    }
}

process_query! {
    /// Which processes to count.
    FacetQuery {
        /// True: each kind is counted without its own filter (`namespace`, `phase`, `business`, `lifetime`,
        /// `selector`), to show what the filter could be set to; `total` is with all filters.
        each_without: Option<bool>,
    }
}

process_query! {
    /// Which processes; a field that is absent does not narrow.
    ProcessFilter {}
}

/// What is wrong with a process beyond its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// Restarted three times or more since the last operation or stable run.
    CrashLooping,
    /// Evicted because it, or its pool, exceeded a limit.
    Evicted,
}

/// The last result of the health command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    Healthy,
    Unhealthy,
    /// The command could not be run.
    CannotRun,
}

impl HealthState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::CannotRun => "cannot_run",
        }
    }
}

/// The order of a list. Ties are broken by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessSort {
    /// By namespace, name and host.
    #[default]
    Name,
    Host,
    Phase,
    Cpu,
    Memory,
    Restarts,
    /// By the time of the last start.
    Started,
    /// By the time of the last observation.
    Reported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SortOrder {
    Asc,
    Desc,
}

/// The order of groups: largest first, except by name. Ties are broken by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupSort {
    #[default]
    Name,
    /// By the number of hosts.
    Total,
    Failed,
    Restarts,
    Cpu,
    Memory,
}

/// How many processes are in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PhaseCounts {
    pub unknown: u64,
    pub stopped: u64,
    pub starting: u64,
    pub running: u64,
    pub stopping: u64,
    pub waiting: u64,
    pub failed: u64,
}

/// One process on all hosts that match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessGroup {
    /// `NAMESPACE/NAME`.
    pub process: String,
    /// Absent if it differs between hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// Number of hosts.
    pub total: u64,
    pub phases: PhaseCounts,
    /// Number on hosts whose agents are connected.
    pub online: u64,
    /// Running, but unhealthy according to the health command.
    pub unhealthy: u64,
    /// Starts by supervision since the last operation or stable run, on all hosts together.
    pub restarts: u64,
    /// Number of distinct specs.
    pub specs: u64,
    pub cpu_percent_max: f64,
    pub memory_percent_max: f64,
    /// The last change of phase, by the hosts' clocks; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_since_max: Option<i64>,
    /// The labels that all of them have.
    pub labels: BTreeMap<String, String>,
}

/// Made from a snapshot of the whole fleet that may be some seconds old.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupPage {
    pub at_ms: i64,
    pub groups: Vec<ProcessGroup>,
    /// Total number of groups.
    pub total: u64,
    /// `after` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How many of the matching processes have which value: most frequent first, at most fifty of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Facets {
    pub at_ms: i64,
    pub total: u64,
    pub namespaces: Vec<FacetCount>,
    pub phases: Vec<FacetCount>,
    /// By id.
    pub businesses: Vec<FacetCount>,
    pub lifetimes: Vec<FacetCount>,
    /// At most fifty names with twenty values each.
    pub labels: Vec<LabelFacet>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FacetCount {
    pub value: String,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LabelFacet {
    pub key: String,
    pub values: Vec<FacetCount>,
}
