//! Upgrades of agents run with the permissions of whoever began or last resumed them.
//!
//! Promised: a host begins only while they are administrators of everything; otherwise the upgrade is paused and says
//! why, also after a restart of the server. Checked in every step, so within a second, and at once after an access
//! change through this server.
//! Absent: hosts that already have the order; they continue, and a cancel stops them.

use proctor_model::{Class, Message, Subject, messages};

use super::super::rollout::permissions::refused;
use super::super::{Control, Result};

impl Control {
    /// Why an upgrade must not go on with the rights of these.
    pub(super) async fn upgrade_withdrawn(&self, makers: &[Subject]) -> Result<Option<Message>> {
        if makers.is_empty() {
            return Ok(None);
        }
        let why = match self.inner.store.permissions(makers).await? {
            Ok(permissions) if permissions.allows_everywhere(Class::Admin) => return Ok(None),
            Ok(_) => {
                let makers: Vec<String> = makers.iter().map(ToString::to_string).collect();
                messages::may_not_administer(makers.join(" and "))
            }
            Err(refusal) => refused(&refusal),
        };
        Ok(Some(messages::upgrade_without_right(why)))
    }
}
