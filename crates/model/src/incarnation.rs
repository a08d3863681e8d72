//! One life of a process. A pid alone is never an identity: the kernel reuses pids.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The kernel's id for the time since the last boot. Every life has it, so clones are cheap.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "String")]
pub struct BootId(Arc<str>);

impl BootId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for BootId {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for BootId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Serialize for BootId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Identity of one life: equal values mean the same life.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    pub boot: BootId,
    pub pid: i32,
    /// Clock ticks between boot and the start of the process.
    pub start_ticks: u64,
    /// Inode of its pidfd, if the kernel gives every process its own (Linux 6.9 and later).
    pub pidfd_inode: Option<u64>,
}
