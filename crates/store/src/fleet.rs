//! All hosts and processes at one moment, with only the fields needed for aggregation and search.
//!
//! About sixty bytes per process, so it can be kept in memory between queries. Absent: permissions.

use std::collections::HashMap;
use std::sync::Arc;

use proctor_model::{Labels, Lifetime, Message, Phase, ProcessKey};

use crate::{HostLocation, Millis};

#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// Those that an agent serves, by cloud and ip (as text).
    pub hosts: Vec<FleetHost>,
    /// By namespace and name.
    pub keys: Vec<ProcessKey>,
    /// The registered processes, by namespace, name and host.
    pub processes: Vec<FleetProcess>,
    /// Every spec that some process has.
    pub specs: HashMap<SpecNumber, Arc<FleetSpec>>,
    /// Every version that some process has.
    pub versions: Vec<Box<str>>,
    /// One reason per group of processes that are all visible, or all invisible, to any caller; see
    /// [`Self::reason`].
    pub(crate) reasons: HashMap<ReasonKey, Message>,
}

/// Processes of one key and phase on hosts of one business and cloud area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReasonKey {
    /// Into [`Fleet::keys`].
    pub(crate) key: u32,
    pub(crate) phase: Phase,
    pub(crate) business: Option<u64>,
    pub(crate) cloud: u32,
}

impl ReasonKey {
    pub(crate) fn new(key: u32, phase: Phase, host: &FleetHost) -> Self {
        Self { key, phase, business: host.site.business, cloud: host.site.key.cloud }
    }
}

/// Identifies a spec as long as its hash is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecNumber(pub i64);

#[derive(Clone, Debug, PartialEq)]
pub struct FleetHost {
    pub site: HostLocation,
    pub hostname: Box<str>,
    pub agent_version: Box<str>,
    pub online: bool,
    /// When `online` last changed.
    pub presence_changed_at: Millis,
    pub is_revoked: bool,
}

/// The part of a spec that many processes may share.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSpec {
    pub hash: Box<str>,
    pub lifetime: Lifetime,
    pub labels: Labels,
}

/// One process on one host, as last observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetProcess {
    /// Into [`Fleet::keys`].
    pub key: u32,
    /// Into [`Fleet::hosts`].
    pub host: u32,
    /// Into [`Fleet::versions`].
    pub version: u32,
    pub restarts: u32,
    pub spec: SpecNumber,
    pub phase: Phase,
    pub health: Health,
    pub managed: bool,
    pub evicted: bool,
    pub cpu: f32,
    pub memory: f32,
    /// Unix seconds by the host's clock; 0: unknown.
    pub phase_since: i64,
}

/// This many starts by supervision without a stable run in between are a restart loop.
pub const CRASH_LOOP_STARTS: u32 = 3;

/// What is wrong with a process beyond its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    CrashLooping,
    /// Evicted because it, or its pool, exceeded a limit.
    Evicted,
}

impl FleetProcess {
    pub fn has(&self, trouble: Trouble) -> bool {
        match trouble {
            Trouble::CrashLooping => self.is_crash_looping(),
            Trouble::Evicted => self.evicted,
        }
    }

    /// An evicted process is restarted too, but it did not crash.
    pub fn is_crash_looping(&self) -> bool {
        self.managed && self.restarts >= CRASH_LOOP_STARTS && !self.evicted && self.phase != Phase::Failed
    }
}

/// The last result of the health command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// There is no command, or it has not run yet.
    #[default]
    Unknown,
    Healthy,
    Unhealthy,
    CannotRun,
}

impl Health {
    pub fn from_text(text: &str) -> Self {
        match text {
            "healthy" => Self::Healthy,
            "unhealthy" => Self::Unhealthy,
            "cannot_run" => Self::CannotRun,
            _ => Self::Unknown,
        }
    }
}

impl Fleet {
    pub fn key(&self, process: &FleetProcess) -> &ProcessKey {
        &self.keys[process.key as usize]
    }

    pub fn host(&self, process: &FleetProcess) -> &FleetHost {
        &self.hosts[process.host as usize]
    }

    /// Why the process, or another one that the same callers can see, is in its phase, if known.
    pub fn reason(&self, process: &FleetProcess) -> Option<&Message> {
        self.reasons.get(&ReasonKey::new(process.key, process.phase, self.host(process)))
    }

    pub fn spec(&self, process: &FleetProcess) -> &FleetSpec {
        &self.specs[&process.spec]
    }
}
