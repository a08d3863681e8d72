//! Records of apps, hosts, processes and observations.

use std::net::IpAddr;
use std::sync::Arc;

use proctor_model::{
    AgentId, AgentState, HostFacts, HostKey, Labels, Lifetime, Namespace, Phase, Pool, ProcessKey, ProcessName,
    RelayId, ScopeSet, Snapshot, Spec,
};
use serde::{Deserialize, Serialize};

use crate::fleet::Trouble;

/// Unix milliseconds.
pub type Millis = i64;

/// An application that may call the API.
#[derive(Clone, PartialEq, Eq)]
pub struct App {
    pub code: String,
    pub secret_hash: String,
    /// The secret itself, sealed by the caller, for apps that sign their calls.
    pub sealed_secret: Option<Vec<u8>>,
    /// May name any user without proof.
    pub trusted: bool,
    pub created_at: Millis,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("code", &self.code).field("trusted", &self.trusted).finish_non_exhaustive()
    }
}

/// Where a host is and who serves it: all that queries about thousands of hosts need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLocation {
    pub key: HostKey,
    pub agent: AgentId,
    /// Its alias; callers see it instead of the agent's own id.
    pub alias: Option<AgentId>,
    /// The business that it belongs to.
    pub business: Option<u64>,
    /// The last cordon, which may have expired.
    pub cordon: Option<Box<Cordon>>,
    /// A new host that no operator has approved yet.
    pub awaits_approval: bool,
}

impl HostLocation {
    /// The id by which callers know the agent.
    pub fn known_as(&self) -> &AgentId {
        self.alias.as_ref().unwrap_or(&self.agent)
    }

    /// The cordon that is in force at this time.
    pub fn cordon_at(&self, now: Millis) -> Option<&Cordon> {
        self.cordon.as_deref().filter(|cordon| cordon.holds_at(now))
    }
}

/// Maintenance: the host accepts no starts from the fleet, and its events raise no alarms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    pub reason: String,
    /// Who set it, as text.
    pub by: String,
    pub since: Millis,
    /// When it expires; None: when somebody ends it.
    pub until: Option<Millis>,
    /// Since when the host has been cordoned without a gap, if this one replaced another. Set by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Millis>,
}

impl Cordon {
    /// Since when the host has been cordoned without a gap.
    pub fn began(&self) -> Millis {
        self.held_since.map_or(self.since, |held| held.min(self.since))
    }

    /// Replacing `before`.
    pub(crate) fn replacing(self, before: Option<&Self>) -> Self {
        let before = before.filter(|before| before.holds_at(self.since));
        Self { held_since: before.map(Self::began), ..self }
    }

    pub fn holds_at(&self, now: Millis) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct HostRecord {
    pub site: HostLocation,
    pub facts: HostFacts,
    pub enrolled_at: Millis,
    pub online: bool,
    pub epoch: u64,
    /// When `online` last changed.
    pub presence_changed_at: Millis,
    /// When its key was revoked.
    pub revoked_at: Option<Millis>,
    /// Until when another key may take it over.
    pub rejoin_until: Option<Millis>,
    /// Of the key that serves it.
    pub key_fingerprint: String,
    /// Its last session came through a relay of its cloud area.
    pub relayed: bool,
    /// It is not online, and no event says so: it is unreachable along with the relays of its area.
    pub untold: bool,
}

impl std::ops::Deref for HostRecord {
    type Target = HostLocation;

    fn deref(&self) -> &HostLocation {
        &self.site
    }
}

/// A removal that has begun: no agent serves the host, and no key opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRemoval {
    /// The agent that served it, if any.
    pub agent: Option<AgentId>,
    pub(crate) row: i64,
}

/// A host whose agent has moved to another one. Its registrations wait for an agent that enrols for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedHost {
    pub key: HostKey,
    pub business: Option<u64>,
    /// Fingerprint of the key that served it; empty if its removal was interrupted.
    pub key_fingerprint: String,
    /// When its agent left.
    pub since: Millis,
    pub revoked_at: Option<Millis>,
    pub rejoin_until: Option<Millis>,
    /// Registered on it.
    pub processes: u64,
}

/// A filter for hosts; a field that is None does not narrow.
#[derive(Clone, Debug, Default)]
pub struct HostQuery {
    pub business: Option<u64>,
    pub cloud: Option<u32>,
    pub online: Option<bool>,
    /// The agent's version.
    pub version: Option<String>,
    /// The id of the join token that its agent enrolled with.
    pub token: Option<String>,
    /// Substring of `CLOUD:IP`, the agent's id or the host name; case-insensitive.
    pub text: Option<String>,
    /// Only what lies entirely in one of these: what the caller may see.
    pub scopes: Option<ScopeSet>,
    /// Only what sorts after it.
    pub after: Option<HostKey>,
    pub limit: Option<u32>,
}

#[derive(Clone, Debug)]
pub struct Registration {
    pub agent: AgentId,
    pub key: ProcessKey,
    pub spec: Arc<Spec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterMode {
    /// An existing registration is left unchanged.
    Create,
    Upsert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    Stored { generation: u64 },
    Exists,
    NoHost,
}

/// A filter for registered processes; a field that is None, or an empty list, does not narrow.
#[derive(Clone, Debug, Default)]
pub struct ProcessQuery {
    pub namespace: Option<Namespace>,
    pub name: Option<ProcessName>,
    /// One of these.
    pub keys: Option<Vec<ProcessKey>>,
    pub agents: Option<Vec<AgentId>>,
    pub businesses: Option<Vec<u64>>,
    pub cloud: Option<u32>,
    /// Only what lies in one of these: what the caller may see.
    pub scopes: Option<ScopeSet>,
    /// All of them must match.
    pub labels: Vec<LabelTerm>,
    /// As last observed; one that was never observed is [`Phase::Unknown`].
    pub phases: Vec<Phase>,
    pub lifetime: Option<Lifetime>,
    /// Whether the host's agent is connected.
    pub online: Option<bool>,
    /// Whether the host is cordoned at this time.
    pub cordoned: Option<(bool, Millis)>,
    pub managed: Option<bool>,
    /// The last result of the health command: `healthy`, `unhealthy` or `cannot_run`.
    pub health: Option<String>,
    pub trouble: Option<Trouble>,
    /// Substring of `namespace/name`, `cloud:ip` or the version; ASCII case-insensitive.
    pub text: Option<String>,
    pub order: ProcessOrder,
    /// Only what sorts after it, in a list of the same order.
    pub after: Option<ProcessCursor>,
    pub offset: u64,
    pub limit: Option<u64>,
    /// Skips the pass that counts all matches; the total is then 0.
    pub is_uncounted: bool,
}

/// The order of a list. Ties are broken by namespace, name, cloud and ip (as text).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessOrder {
    pub by: ProcessSort,
    /// Largest first. By name and by host, reverses the whole order.
    pub is_descending: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessSort {
    #[default]
    Name,
    /// By cloud and ip, then by name.
    Host,
    Phase,
    Cpu,
    Memory,
    Restarts,
    Started,
    Reported,
}

/// A position in the list of processes: its sort key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessCursor {
    pub namespace: Namespace,
    pub name: ProcessName,
    pub cloud: u32,
    pub ip: IpAddr,
    /// None in lists by name or host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
}

/// The part of the sort key before names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Rank {
    Number(f64),
    Text(String),
}

/// A condition on the labels of a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelTerm {
    Equals(String, String),
    /// Another value, or no such label.
    NotEquals(String, String),
    Exists(String),
    Absent(String),
}

impl LabelTerm {
    pub fn holds(&self, labels: &Labels) -> bool {
        match self {
            Self::Equals(key, value) => labels.get(key) == Some(value.as_str()),
            Self::NotEquals(key, value) => labels.get(key) != Some(value.as_str()),
            Self::Exists(key) => labels.get(key).is_some(),
            Self::Absent(key) => labels.get(key).is_none(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRecord {
    pub host: HostKey,
    pub agent: AgentId,
    /// The agent's alias.
    pub alias: Option<AgentId>,
    /// The business that the host belongs to.
    pub business: Option<u64>,
    pub online: bool,
    /// When `online` last changed.
    pub presence_changed_at: Millis,
    pub key: ProcessKey,
    pub spec: Arc<Spec>,
    /// Rises with every change on the host.
    pub generation: u64,
    pub registered_at: Millis,
    /// The last observation; None before the first.
    pub snapshot: Option<Snapshot>,
    /// When its current phase was first observed, in Unix seconds by the host's clock.
    pub phase_since: Option<i64>,
    /// The part of the sort key before names.
    pub rank: Option<Rank>,
}

impl ProcessRecord {
    /// The id by which callers know the agent.
    pub fn known_as(&self) -> &AgentId {
        self.alias.as_ref().unwrap_or(&self.agent)
    }

    pub fn cursor(&self) -> ProcessCursor {
        let ProcessKey { namespace, name } = self.key.clone();
        ProcessCursor { namespace, name, cloud: self.host.cloud, ip: self.host.ip, rank: self.rank.clone() }
    }
}

/// A revision of a process, until the next change.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecRevision {
    pub generation: u64,
    /// None: not registered.
    pub spec: Option<Arc<Spec>>,
    /// When it was changed to this.
    pub at: Millis,
}

/// One change that an agent must be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub generation: u64,
    pub key: ProcessKey,
    /// None: no longer registered.
    pub spec: Option<Arc<Spec>>,
    /// Whether the last observation said that it is managed; an agent that does not know the process takes it from
    /// here.
    pub managed: bool,
    pub registered_at: Millis,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub key: ProcessKey,
    pub snapshot: Snapshot,
}

/// What an agent reports of its processes in one session.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentReport {
    pub agent: AgentId,
    pub epoch: u64,
    pub observations: Vec<Observation>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PoolRecord {
    pub host: HostKey,
    pub agent: AgentId,
    pub pool: Pool,
}

/// Everything that an agent must be told, from one snapshot of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignments {
    /// Oldest first.
    pub processes: Vec<Assignment>,
    /// Oldest first.
    pub pools: Vec<PoolAssignment>,
    /// The list is complete: processes that the agent has beyond it were unregistered so long ago that their
    /// tombstones are gone. Holds the newest generation of those.
    pub all_through: Option<u64>,
}

/// A summary of what the store has for a host, from one snapshot, to compare with what its agent says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    pub epoch: u64,
    /// The newest generation ever given to a registration on it, even if unregistered since.
    pub generation: u64,
    pub state: AgentState,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PoolAssignment {
    pub generation: u64,
    pub pool: Pool,
}

/// Whether a process was managed when an operation of its agent finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    pub agent: AgentId,
    /// Of the session that reported it.
    pub epoch: u64,
    pub key: ProcessKey,
    pub managed: bool,
}

/// Which authorities an agent or relay has on disk, by fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerTrust {
    pub authorities: Vec<String>,
    /// The one that issued its certificate.
    pub certified_by: String,
}

impl PeerTrust {
    /// The key of an agent in the list of who trusts what.
    pub fn peer_of_agent(agent: &AgentId) -> String {
        format!("agent:{agent}")
    }

    pub fn peer_of_relay(relay: &RelayId) -> String {
        format!("relay:{relay}")
    }
}
