//! Inputs and outputs of the machine of a pool.

use std::time::Duration;

use proctor_model::{Labels, Pool, PoolLimits, ProcessKey};

use crate::Time;
use crate::threshold::{Resource, effective, sound};

/// Older samples are not acted upon, and a longer gap between them restarts the windows.
pub(super) const SAMPLE_AGE_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq)]
pub enum PoolEvent {
    Changed(PoolLimits),
    /// The running members that are managed, all of them, with their newest samples.
    Sampled {
        at: Time,
        members: Vec<Member>,
    },
    /// The whole tree of this process is dead.
    Gone {
        key: ProcessKey,
    },
    Tick,
}

/// One running member, in % of the whole machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub key: ProcessKey,
    pub cpu: f64,
    pub memory: f64,
    pub cpu_limit: Option<f64>,
    pub memory_limit: Option<f64>,
    pub sampled_at: Time,
    /// Nothing is in progress for it, so it may be evicted.
    pub eligible: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PoolAction {
    Kill {
        victim: ProcessKey,
        resource: Resource,
        usage: f64,
        limit: f64,
        /// The eligible members with the highest scores, the victim first.
        ranking: Vec<Ranked>,
    },
    /// What would have been killed without the dry run; once per breach.
    WouldKill {
        victim: ProcessKey,
        resource: Resource,
        usage: f64,
        limit: f64,
        ranking: Vec<Ranked>,
    },
    Warn {
        resource: Resource,
        usage: f64,
        limit: f64,
        warning: PoolWarning,
    },
}

/// Warnings for people; each once per breach.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolWarning {
    /// The limit was lowered below the current usage, and takes effect in 10 s.
    Lowered,
    /// No eligible member uses anything of it.
    NoVictim,
    /// The member with the highest score may not be evicted now (an operation or a start is in progress), and no
    /// other is evicted instead.
    Blocked(ProcessKey),
    /// Six members were killed within a minute.
    KillsCapped,
    /// The victim is still alive after a minute; the pool continues without its death.
    VictimSurvives(ProcessKey),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    pub key: ProcessKey,
    pub usage: f64,
    pub score: f64,
}

/// Whether the process belongs to the pool.
pub fn is_member(pool: &Pool, key: &ProcessKey, labels: &Labels) -> bool {
    key.namespace == pool.namespace && pool.id.has_member(&pool.namespace, labels)
}

impl Member {
    /// A sample from the future is as worthless as an old one.
    pub(super) fn is_fresh(&self, now: Time) -> bool {
        self.sampled_at <= now && now.since(self.sampled_at) <= SAMPLE_AGE_MAX
    }

    pub(super) fn usage(&self, resource: Resource) -> f64 {
        sound(match resource {
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
        })
        .unwrap_or(0.0)
    }

    pub(super) fn limit(&self, resource: Resource) -> Option<f64> {
        effective(match resource {
            Resource::Cpu => self.cpu_limit,
            Resource::Memory => self.memory_limit,
        })
    }

    pub(super) fn is_over_its_own_limit(&self) -> bool {
        [Resource::Cpu, Resource::Memory]
            .into_iter()
            .any(|resource| self.limit(resource).is_some_and(|limit| self.usage(resource) > limit))
    }
}
