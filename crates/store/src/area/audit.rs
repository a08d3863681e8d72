//! The audit log: a chain of entries that is appended to and read, and only ever truncated at its beginning.
//!
//! Absent: the archive of removed entries, which is a file of the server.

use async_trait::async_trait;

use crate::{AuditAnchor, AuditDraft, AuditEntry, AuditQuery, Millis, Result, Uptime};

/// The audit log.
#[async_trait]
pub trait AuditStore: Send + Sync + std::fmt::Debug {
    /// Appends the entry to the chain and returns its number. Entries are never changed, and removed only
    /// from the beginning, once they are archived ([`Prune::Audit`](crate::Prune::Audit)).
    async fn append_audit(&self, draft: AuditDraft, now: Millis) -> Result<u64>;
    /// The matching entries, oldest first; with `newest`, the newest of them.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>>;
    /// The last entry that was removed; the oldest remaining one follows it.
    async fn audit_anchor(&self) -> Result<AuditAnchor>;
    /// The newest entry written before this time; 0 if there is none. May lag behind for a while.
    async fn audit_before(&self, before: Uptime) -> Result<u64>;
}
