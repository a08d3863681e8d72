//! Records of agent upgrades.

use proctor_model::{AgentId, FieldError, HostKey, Message, Subject, messages};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Millis;

/// When another one begins, older ones are deleted.
pub const UPGRADES_KEPT_MAX: u32 = 100;

/// The specification of an upgrade; it never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradePlan {
    pub version: String,
    pub builds: Vec<UpgradeBuild>,
    /// Number of hosts in each ring.
    pub rings: Vec<u32>,
    pub health_deadline_secs: u64,
    /// Beyond this many failures, no further host starts.
    pub failures_max: u32,
    pub allow_downgrade: bool,
}

/// The program for one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeBuild {
    pub arch: String,
    pub name: String,
    /// In hexadecimal digits.
    pub sha256: String,
    pub size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeState {
    Running,
    Paused,
    Done,
    /// Too many hosts failed.
    Failed,
    Cancelled,
}

impl UpgradeState {
    const ALL: [Self; 5] = [Self::Running, Self::Paused, Self::Done, Self::Failed, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

impl std::str::FromStr for UpgradeState {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found
            .ok_or_else(|| FieldError::new("state", messages::not_one_of(text, Self::ALL.map(Self::as_str).join(", "))))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeHostState {
    Waiting,
    /// It was ordered, perhaps more than once.
    Upgrading,
    Done,
    Failed,
    /// Nothing was done.
    Skipped,
}

impl UpgradeHostState {
    const ALL: [Self; 5] = [Self::Waiting, Self::Upgrading, Self::Done, Self::Failed, Self::Skipped];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Upgrading => "upgrading",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Skipped)
    }
}

impl std::str::FromStr for UpgradeHostState {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found
            .ok_or_else(|| FieldError::new("state", messages::not_one_of(text, Self::ALL.map(Self::as_str).join(", "))))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub id: Uuid,
    pub plan: UpgradePlan,
    pub state: UpgradeState,
    /// Why it is paused or has ended.
    pub reason: Message,
    pub created_by: String,
    /// Whose permissions it continues with: those of whoever started it, or resumed it last. None for the server's
    /// own.
    pub makers: Vec<Subject>,
    pub created_at: Millis,
    pub changed_at: Millis,
}

/// Another state of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeTransition {
    /// In any other state, nothing changes.
    pub from: Vec<UpgradeState>,
    pub to: UpgradeState,
    pub reason: Message,
    /// Who is responsible for it from now on, if that changes.
    pub makers: Option<Vec<Subject>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeHost {
    pub agent: AgentId,
    pub host: HostKey,
    /// From 0.
    pub ring: u32,
    pub state: UpgradeHostState,
    pub reason: Message,
    pub version_before: String,
    pub changed_at: Millis,
}

/// Which hosts of an upgrade to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpgradeHostQuery {
    pub state: Option<UpgradeHostState>,
    /// Only those after this index in the order.
    pub after: Option<u32>,
    /// None: all of them.
    pub limit: Option<u32>,
}

/// How many hosts of a ring are in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradeCount {
    /// From 0.
    pub ring: u32,
    pub state: UpgradeHostState,
    pub hosts: u32,
}

/// The result of one host. A final one stays, except that one that was done may still fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeHostChange {
    pub agent: AgentId,
    pub state: UpgradeHostState,
    pub reason: Message,
}

impl UpgradeHostChange {
    pub fn is_allowed_from(&self, state: UpgradeHostState) -> bool {
        !state.is_final() || (state == UpgradeHostState::Done && self.state == UpgradeHostState::Failed)
    }
}
