//! What is pruned, and how age is measured.
//!
//! Age is measured by server uptime on the store ([`Uptime`]), never by the wall clock: setting a clock forty days
//! ahead deletes nothing. The store only grows while a server runs, so this bounds it just as well.

use crate::Millis;

/// Total time that servers have run on this store, in milliseconds.
pub type Uptime = i64;

/// What [`crate::Store::prune`] deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Tasks that finished before then, with their targets, outcomes and idempotency keys.
    Tasks { before: Uptime },
    /// As [`Self::Tasks`], for tasks that only queried the status of processes, and for those that reached no host:
    /// every target had an outcome at creation.
    BriefTasks { before: Uptime },
    /// Events stored before then. Beyond `keep`, the oldest events of the hosts that have more than an equal share,
    /// those with the most first.
    Events { before: Uptime, keep: u64 },
    /// The rest of hosts whose removal was interrupted.
    RemovedHosts,
    /// The oldest upgrades, beyond [`crate::UPGRADES_KEPT_MAX`].
    Upgrades,
    /// Unregistered processes and deleted pools whose agents have been told.
    Tombstones { before: Uptime },
    /// Join tokens and user tokens that were seen expired or used up before then, and still are at `now`.
    Tokens { before: Uptime, now: Millis },
    /// Unreferenced specs that were last used before then.
    Specs { before: Uptime },
    /// Nonces of expired signatures: expired both at `now` and by uptime.
    Nonces { now: Millis },
    /// Audit entries up to this number, which must be archived.
    Audit { through: u64 },
}

/// Where the audit log of the store begins: everything up to `seq` was archived and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditAnchor {
    pub seq: u64,
    /// The hash of that entry, which the next one holds.
    pub hash: [u8; 32],
}

impl AuditAnchor {
    pub fn hash_hex(&self) -> String {
        blake3::Hash::from_bytes(self.hash).to_string()
    }
}

/// The size of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSize {
    pub table: String,
    pub rows: u64,
    /// With its indexes.
    pub bytes: u64,
}

/// The space of a store's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Available to the server.
    pub free_bytes: u64,
    pub total_bytes: u64,
}
