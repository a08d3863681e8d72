//! One life of a process. A pid alone is never an identity: the kernel gives pids out again.

use serde::{Deserialize, Serialize};

/// The kernel's name for the time since the last boot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BootId(pub String);

/// Identity of one life: equal values mean the same life.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    pub boot: BootId,
    pub pid: i32,
    /// Clock ticks between boot and the start of the process.
    pub start_ticks: u64,
    /// Inode of its pidfd, where the kernel gives every process its own (Linux 6.9 and later).
    pub pidfd_inode: Option<u64>,
}
