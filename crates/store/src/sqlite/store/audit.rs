//! The audit log.

use async_trait::async_trait;

use crate::sqlite::{SqliteStore, audit, retention};
use crate::{AuditAnchor, AuditDraft, AuditEntry, AuditQuery, AuditStore, Millis, Result, Uptime};

#[async_trait]
impl AuditStore for SqliteStore {
    async fn append_audit(&self, draft: AuditDraft, now: Millis) -> Result<u64> {
        self.writer.run("write the audit log", move |c| audit::append(c, draft, now)).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        let query = query.clone();
        self.readers.run("read the audit log", move |c| audit::list(c, &query)).await
    }

    async fn audit_anchor(&self) -> Result<AuditAnchor> {
        self.readers.run("read the audit log", retention::anchor).await
    }

    async fn audit_before(&self, before: Uptime) -> Result<u64> {
        self.readers.run("read the audit log", move |c| retention::audit_before(c, before)).await
    }
}
