//! The records that cross the store's border.

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

/// Where a host is and who serves it: all that questions about thousands of hosts need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLocation {
    pub key: HostKey,
    pub agent: AgentId,
    /// The id that it was bound to; callers see it in place of the agent's own.
    pub alias: Option<AgentId>,
    /// The business that it belongs to.
    pub business: Option<u64>,
    /// The last cordon, which may be over.
    pub cordon: Option<Box<Cordon>>,
    /// It is new, and no operator has approved it yet.
    pub awaits_approval: bool,
}

impl HostLocation {
    /// The id that callers know the agent by.
    pub fn known_as(&self) -> &AgentId {
        self.alias.as_ref().unwrap_or(&self.agent)
    }

    /// The cordon that holds at this time.
    pub fn cordon_at(&self, now: Millis) -> Option<&Cordon> {
        self.cordon.as_deref().filter(|cordon| cordon.holds_at(now))
    }
}

/// Maintenance: the host takes no starts from the fleet, and its events are no alarms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cordon {
    pub reason: String,
    /// Who said so, in words.
    pub by: String,
    pub since: Millis,
    /// When it ends by itself; None: when somebody ends it.
    pub until: Option<Millis>,
    /// Since when the host has been cordoned without a pause, where this one replaced another. The store sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Millis>,
}

impl Cordon {
    /// Since when the host has been cordoned without a pause.
    pub fn began(&self) -> Millis {
        self.held_since.map_or(self.since, |held| held.min(self.since))
    }

    /// In place of `before`.
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
    /// Its key opens no session since then.
    pub revoked_at: Option<Millis>,
    /// Another key may take it over until then.
    pub rejoin_until: Option<Millis>,
    /// Of the key that serves it.
    pub key_fingerprint: String,
    /// Its last session came through a relay of its cloud area.
    pub relayed: bool,
    /// It is not online, and nobody was told: it is out of reach with the relays of its area.
    pub untold: bool,
}

impl std::ops::Deref for HostRecord {
    type Target = HostLocation;

    fn deref(&self) -> &HostLocation {
        &self.site
    }
}

/// A removal of a host that has begun: no agent serves it, and no key opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRemoval {
    /// The agent that served it, if any.
    pub agent: Option<AgentId>,
    pub(crate) row: i64,
}

/// A host whose agent has left it for another one. Its registrations wait for an agent that enrols for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedHost {
    pub key: HostKey,
    pub business: Option<u64>,
    /// Of the key that served it; in a host whose removal was cut short, of none.
    pub key_fingerprint: String,
    /// When its agent left.
    pub since: Millis,
    pub revoked_at: Option<Millis>,
    pub rejoin_until: Option<Millis>,
    /// Registered on it.
    pub processes: u64,
}

/// Which hosts; a field that is None does not narrow.
#[derive(Clone, Debug, Default)]
pub struct HostQuery {
    pub business: Option<u64>,
    pub cloud: Option<u32>,
    pub online: Option<bool>,
    /// The agent's version.
    pub version: Option<String>,
    /// The id of the join token that its agent enrolled with.
    pub token: Option<String>,
    /// Part of `CLOUD:IP`, the agent's id or the host name; the case of letters does not matter.
    pub text: Option<String>,
    /// Only what lies in one of these as a whole: what the caller may see.
    pub scopes: Option<ScopeSet>,
    /// Only what is sorted behind it.
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
    /// An existing registration is left as it is.
    Create,
    Upsert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    Stored { generation: u64 },
    Exists,
    NoHost,
}

/// Which registered processes; a field that is None, and a list of terms or phases that is empty, do
/// not narrow.
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
    /// All of them hold.
    pub labels: Vec<LabelTerm>,
    /// As last observed; one that was never observed is [`Phase::Unknown`].
    pub phases: Vec<Phase>,
    pub lifetime: Option<Lifetime>,
    /// Whether the host's agent is connected.
    pub online: Option<bool>,
    /// Whether the host is cordoned at this time.
    pub cordoned: Option<(bool, Millis)>,
    pub managed: Option<bool>,
    /// What the health command said last: `healthy`, `unhealthy` or `cannot_run`.
    pub health: Option<String>,
    pub trouble: Option<Trouble>,
    /// Part of `namespace/name`, `cloud:ip` or the version; the case of ASCII letters does not matter.
    pub text: Option<String>,
    pub order: ProcessOrder,
    /// Only what is sorted behind it; of a list in the same order.
    pub after: Option<ProcessCursor>,
    pub offset: u64,
    pub limit: Option<u64>,
    /// Answers 0 as the number of all that match, and saves a pass over them.
    pub is_uncounted: bool,
}

/// The order of a list. What is equal is in the order of names: namespace, name, cloud and ip (as text).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessOrder {
    pub by: ProcessSort,
    /// The largest first. By name and by host it turns the whole order round.
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

/// A position in the list of processes: what it is sorted by.
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

/// What a list is sorted by before names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Rank {
    Number(f64),
    Text(String),
}

/// What is asked of the labels of a spec.
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
    /// The id that the agent was bound to.
    pub alias: Option<AgentId>,
    /// The business that the host belongs to.
    pub business: Option<u64>,
    pub online: bool,
    /// When `online` last changed.
    pub presence_changed_at: Millis,
    pub key: ProcessKey,
    pub spec: Arc<Spec>,
    /// Grows with every change on the host.
    pub generation: u64,
    pub registered_at: Millis,
    /// The last observation; None before the first.
    pub snapshot: Option<Snapshot>,
    /// When the first observation of its present phase was made, in Unix seconds by the host's clock.
    pub phase_since: Option<i64>,
    /// What the list was sorted by before names.
    pub rank: Option<Rank>,
}

impl ProcessRecord {
    /// The id that callers know the agent by.
    pub fn known_as(&self) -> &AgentId {
        self.alias.as_ref().unwrap_or(&self.agent)
    }

    pub fn cursor(&self) -> ProcessCursor {
        let ProcessKey { namespace, name } = self.key.clone();
        ProcessCursor { namespace, name, cloud: self.host.cloud, ip: self.host.ip, rank: self.rank.clone() }
    }
}

/// What a process was from one change to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecRevision {
    pub generation: u64,
    /// None: not registered.
    pub spec: Option<Arc<Spec>>,
    /// When it was changed to this.
    pub at: Millis,
}

/// One change that an agent must learn of.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub generation: u64,
    pub key: ProcessKey,
    /// None: no longer registered.
    pub spec: Option<Arc<Spec>>,
    /// Whether the last observation said that it is managed; an agent without a memory of the
    /// process takes it from here.
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

/// Everything that an agent must learn of, from one moment of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignments {
    /// Oldest first.
    pub processes: Vec<Assignment>,
    /// Oldest first.
    pub pools: Vec<PoolAssignment>,
    /// It is all that is registered: the agent may know of more, which was unregistered so long ago that no tombstone
    /// says so. The newest generation of those.
    pub all_through: Option<u64>,
}

/// What the store has of a host, in short, from one moment: to be compared with what its agent says that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    pub epoch: u64,
    /// The newest of everything that was ever registered on it, unregistered since or not.
    pub generation: u64,
    pub state: AgentState,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PoolAssignment {
    pub generation: u64,
    pub pool: Pool,
}

/// Whether a process was managed when an operation of its agent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    pub agent: AgentId,
    /// Of the session that brought the news.
    pub epoch: u64,
    pub key: ProcessKey,
    pub managed: bool,
}

/// Which authorities an agent or a relay has on its disk, by fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerTrust {
    pub authorities: Vec<String>,
    /// The one that issued its certificate.
    pub certified_by: String,
}

impl PeerTrust {
    /// What an agent is called among those who have said whom they trust.
    pub fn peer_of_agent(agent: &AgentId) -> String {
        format!("agent:{agent}")
    }

    pub fn peer_of_relay(relay: &RelayId) -> String {
        format!("relay:{relay}")
    }
}
