//! Reading the audit log; entries are written together with the changes they describe.

use proctor_store::{AuditAnchor, AuditEntry, AuditQuery, Result};

use crate::control::Control;

impl Control {
    pub(crate) async fn audit_entries(&self, query: &AuditQuery) -> Result<Vec<AuditEntry>> {
        self.inner.store.audit(query).await
    }

    /// Where the chain in the store begins.
    pub(crate) async fn audit_anchor(&self) -> Result<AuditAnchor> {
        self.inner.store.audit_anchor().await
    }
}
