//! The key that signs what agents are told, and the epoch of this control plane.

use proctor_store::Result;

use crate::control::Control;
use crate::{ServerError, gateway};

impl Control {
    /// Made on first use; another program may rotate it.
    pub(crate) async fn signing_secret(&self) -> std::result::Result<Vec<u8>, ServerError> {
        gateway::signing_secret(&self.inner.store).await
    }

    /// Raised by a restore.
    pub(crate) async fn control_epoch(&self) -> Result<u64> {
        self.inner.store.control_epoch().await
    }
}
