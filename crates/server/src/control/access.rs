//! What callers may do, target by target.
//!
//! Promised: every method of [`Control`] that a caller reaches checks here what its class of
//! operations needs; a forbidden target is refused in its own row, a call without rows as a whole.
//! Absent: who somebody is (see `api::auth`).

use std::sync::Arc;

use proctor_model::{Class, Code, Namespace, Outcome, Permissions, Place, Subject};
use proctor_store::HostSite;

use super::{Caller, Control, ControlError, Result};

/// So many of the things that a caller may not touch are named.
const NAMED_MAX: usize = 20;

/// What a refused call lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} may not {class} on {}", .targets.join(", "))]
pub struct Missing {
    /// The caller, in words.
    pub who: String,
    pub class: Class,
    /// At most the first twenty, as `CLOUD:IP` or in words.
    pub targets: Vec<String>,
}

impl Control {
    /// What these may do together: a call is allowed where one of them is. Read anew for every call,
    /// so that a change counts at once, also one that was made beside the server.
    pub async fn permissions(&self, subjects: &[Subject]) -> Result<Arc<Permissions>> {
        Ok(Arc::new(self.inner.store.permissions(subjects).await?))
    }
}

impl Caller {
    pub(super) fn may(&self, class: Class, host: &HostSite, namespace: Option<&Namespace>) -> bool {
        let place = Place { business: host.business, cloud: host.key.cloud, namespace };
        self.permissions.allows(class, &place)
    }

    /// The first of the classes that is not allowed there.
    pub(super) fn lacks(&self, classes: &[Class], host: &HostSite, namespace: &Namespace) -> Option<Class> {
        classes.iter().copied().find(|class| !self.may(*class, host, Some(namespace)))
    }

    /// The row of a target that the caller may not touch.
    pub(super) fn refusal(&self, class: Class, host: &HostSite, namespace: &Namespace) -> Outcome {
        let message = format!(
            "{} may not {class} in namespace {namespace} on host {}: ask an administrator for a role with '{class}' there",
            self.name(),
            host.key
        );
        Outcome::new(Code::Forbidden, message, false)
    }

    /// For what concerns no single host.
    pub fn must(&self, class: Class) -> Result<()> {
        if self.permissions.allows_everywhere(class) {
            return Ok(());
        }
        Err(self.missing(class, ["everything".to_owned()]))
    }

    /// For lists that show only what the caller may see: it must see something.
    pub fn must_somewhere(&self, class: Class) -> Result<()> {
        if self.permissions.allows_anywhere(class) {
            return Ok(());
        }
        Err(self.missing(class, ["anything".to_owned()]))
    }

    /// For calls without rows: every known host must be allowed.
    pub(super) fn must_on<'a>(
        &self,
        class: Class,
        hosts: impl IntoIterator<Item = &'a HostSite>,
        namespace: Option<&Namespace>,
    ) -> Result<()> {
        let forbidden = hosts.into_iter().filter(|host| !self.may(class, host, namespace));
        let mut named = forbidden.map(|host| host.key.to_string()).take(NAMED_MAX).peekable();
        if named.peek().is_none() { Ok(()) } else { Err(self.missing(class, named)) }
    }

    fn missing(&self, class: Class, targets: impl IntoIterator<Item = String>) -> ControlError {
        Missing { who: self.name(), class, targets: targets.into_iter().collect() }.into()
    }

    /// The caller in words.
    pub fn name(&self) -> String {
        match (self.app.as_str(), self.user.as_str()) {
            ("", user) => format!("user {user}"),
            (app, "") => format!("app {app}"),
            (app, user) => format!("app {app} for user {user}"),
        }
    }
}
