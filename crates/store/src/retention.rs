//! What is deleted when it is old, and how old is measured.
//!
//! Age is the time that servers ran on the store ([`Uptime`]), never a reading of the wall clock: a
//! clock that is set ahead by forty days deletes nothing. What grows only grows while a server runs, so
//! this bounds it as well as the wall clock would.

use crate::Millis;

/// Milliseconds that servers have run on this store, all together.
pub type Uptime = i64;

/// What [`crate::Store::prune`] deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Tasks that were finished before, with their targets, outcomes and idempotency keys.
    Tasks { before: Uptime },
    /// As [`Self::Tasks`], of those that did nothing but ask for the status of processes, and those of which nothing
    /// reached a host: every target had an outcome when they were made.
    BriefTasks { before: Uptime },
    /// Events that were stored before. Of more than `keep`, the oldest of the hosts that have more than an equal
    /// share, those with the most first.
    Events { before: Uptime, keep: u64 },
    /// What is left of hosts whose removal was cut short.
    RemovedHosts,
    /// The oldest upgrades, beyond [`crate::UPGRADES_KEPT_MAX`].
    Upgrades,
    /// Unregistered processes and deleted pools that their agents know to be gone.
    Tombstones { before: Uptime },
    /// Join tokens and users' tokens that were seen expired or used up before, and at `now` still are.
    Tokens { before: Uptime, now: Millis },
    /// Specs that were last used before and that nothing refers to.
    Specs { before: Uptime },
    /// Nonces of signatures that count no longer: neither at `now` nor by the uptime.
    Nonces { now: Millis },
    /// Audit entries up to this number, which are archived.
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

/// What one table takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSize {
    pub table: String,
    pub rows: u64,
    /// With its indexes.
    pub bytes: u64,
}

/// What the file system of a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// That the server may still use.
    pub free_bytes: u64,
    pub total_bytes: u64,
}
