//! Pools (进程组): processes of one namespace on one host that share limits.

use serde::{Deserialize, Serialize};

use crate::field::{FieldError, check_text, text_type};
use crate::{Labels, Namespace, Percent};

/// Equal to its namespace: all processes of the namespace. Else: those with the label
/// `process_group` equal to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(try_from = "String")]
pub struct PoolId(String);

text_type!(PoolId);

impl PoolId {
    fn parse(text: String) -> Result<Self, FieldError> {
        check_text("id", &text, 128)?;
        Ok(Self(text))
    }
}

/// How a member's score is computed from its usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Score = usage.
    Usage,
    /// Score = usage / own limit: a member with a larger own limit is spared longer.
    UsageByLimit,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolLimits {
    pub cpu: Percent,
    pub memory: Percent,
    pub cpu_weight: Weight,
    pub memory_weight: Weight,
    /// Only report who would be evicted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl PoolLimits {
    /// A pool that limits nothing is like no pool.
    pub fn limit_something(&self) -> bool {
        self.cpu.get() > 0.0 || self.memory.get() > 0.0
    }
}

/// A short description for people.
impl std::fmt::Display for PoolLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by = |weight: Weight| match weight {
            Weight::Usage => "usage",
            Weight::UsageByLimit => "usage by limit",
        };
        let Self { cpu, memory, cpu_weight, memory_weight, dry_run } = self;
        write!(f, "cpu {}% by {}, memory {}% by {}", cpu.get(), by(*cpu_weight), memory.get(), by(*memory_weight))?;
        f.write_str(if *dry_run { ", dry run" } else { "" })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    pub namespace: Namespace,
    pub id: PoolId,
    pub limits: PoolLimits,
}

/// The label that puts a process into a pool with an id of its own.
pub const POOL_LABEL: &str = "process_group";

impl PoolId {
    /// Whether a process with these labels is a member of the pool of this id in its namespace.
    pub fn has_member(&self, namespace: &Namespace, labels: &Labels) -> bool {
        self.0 == namespace.as_str() || labels.get(POOL_LABEL).is_some_and(|id| id == self.0)
    }
}
