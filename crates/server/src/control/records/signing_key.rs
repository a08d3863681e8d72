//! The key that signs messages to agents, the keys of their TLS tickets, and the epoch of this control plane.

use jiff::Timestamp;
use proctor_pki::TicketKeys;
use proctor_store::Result;

use crate::control::Control;
use crate::{ServerError, gateway};

impl Control {
    /// Made on first use; another program may rotate it.
    pub(crate) async fn signing_secret(&self) -> std::result::Result<Vec<u8>, ServerError> {
        gateway::signing_secret(&self.inner.store).await
    }

    /// Made on first use, and rotated where that is due.
    pub(crate) async fn ticket_keys(&self, now: Timestamp) -> std::result::Result<TicketKeys, ServerError> {
        gateway::ticket_keys(&self.inner.store, now).await
    }

    /// Raised by a restore.
    pub(crate) async fn control_epoch(&self) -> Result<u64> {
        self.inner.store.control_epoch().await
    }
}
