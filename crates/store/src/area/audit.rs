//! The audit log: a chain of entries that are appended and read, and removed only from its beginning.
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
    /// The last entry that was removed; the oldest that is here follows it.
    async fn audit_anchor(&self) -> Result<AuditAnchor>;
    /// The newest entry that was written before; 0 where none was. May be a while too low.
    async fn audit_before(&self, before: Uptime) -> Result<u64>;
}
