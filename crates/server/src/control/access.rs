//! What callers may do, target by target.
//!
//! Promised: every method of [`Control`] that a caller can reach checks here what its class of operations needs; a
//! forbidden target is refused in its own row, a call without rows as a whole. A caller who may not touch a host
//! cannot tell whether it exists: an unknown one is judged by its address and refused alike. What lasts longer than a
//! call holds a [`LiveCaller`] and asks it again: permissions end when they are revoked.
//! Absent: authentication (see `api::auth`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{
    AccessTarget, Class, Classes, Code, HostKey, Message, Namespace, Outcome, Permissions, Spec, Subject, messages,
};
use proctor_runtime::clock;
use proctor_store::{HostLocation, Refusal};
use tokio::sync::watch;

use super::{Caller, Control, ControlError, HostRef, PresentedCredentials, Result};

/// Instead of targets.
const EVERYTHING: &str = "everything";
const ANYTHING: &str = "anything";
/// So many of the things that a caller may not touch are named.
const NAMED_MAX: usize = 20;

/// What a refused call lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The caller, in words.
    pub who: Message,
    pub class: Class,
    /// At most the first twenty, as `CLOUD:IP` or in words.
    pub targets: Vec<String>,
}

impl Missing {
    pub(super) fn message(&self) -> Message {
        let targets = match &self.targets[..] {
            [all] if all == EVERYTHING => messages::everything(),
            [any] if any == ANYTHING => messages::anything(),
            targets => messages::named(targets.join(", ")),
        };
        messages::may_not(self.who.clone(), self.class.message(), targets)
    }
}

/// Where a host is that a call names, also one that is not known: that has the placement of its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<'a> {
    /// Refusals name it as the call does: they must not reveal what an agent id stands for.
    pub(super) named: &'a HostRef,
    business: Option<u64>,
    cloud: Option<u32>,
}

impl<'a> Spot<'a> {
    fn of(named: &'a HostRef, site: Option<&HostLocation>, placement: Option<u64>) -> Self {
        let cloud = site.map(|site| site.key).or_else(|| named.key()).map(|key| key.cloud);
        Self { named, business: site.map_or(placement, |site| site.business), cloud }
    }

    fn access_target<'n>(&self, namespace: Option<&'n Namespace>) -> AccessTarget<'n> {
        AccessTarget { business: self.business, cloud: self.cloud, namespace }
    }
}

impl Control {
    /// Where the hosts of a call are; `sites` are those of them that are known.
    pub(super) async fn spots<'a>(
        &self,
        hosts: &'a [HostRef],
        sites: &[Option<HostLocation>],
    ) -> Result<Vec<Spot<'a>>> {
        let named = || hosts.iter().zip(sites);
        let unknown = named().filter(|(_, site)| site.is_none()).filter_map(|(named, _)| named.key());
        let unknown: Vec<HostKey> = unknown.collect();
        let placements = if unknown.is_empty() { Vec::new() } else { self.inner.store.placements(&unknown).await? };
        let mut placements = placements.into_iter();
        let spot = |(named, site): (&'a HostRef, &Option<HostLocation>)| {
            let is_unknown_address = site.is_none() && named.key().is_some();
            let placement = if is_unknown_address { placements.next().flatten() } else { None };
            Spot::of(named, site.as_ref(), placement)
        };
        Ok(named().map(spot).collect())
    }

    /// The combined permissions of these: a call is allowed if one of them is. Read afresh for every call, so that a
    /// change counts at once, even one made outside the server.
    pub async fn permissions(&self, subjects: &[Subject]) -> Result<Arc<Permissions>> {
        let refused = |refusal: Refusal| ControlError::Unauthenticated(refusal.message());
        Ok(Arc::new(self.inner.store.permissions(subjects).await?.map_err(refused)?))
    }

    /// To be called after a change of apps, users, tokens, roles, bindings or placements.
    pub fn access_changed(&self) {
        self.inner.notifiers.access.send_replace(());
    }

    /// Changes when somebody may have gained or lost a permission through this server.
    pub(super) fn access_changes(&self) -> watch::Receiver<()> {
        self.inner.notifiers.access.subscribe()
    }

    /// What the caller may do from now on.
    pub fn live_caller(&self, caller: Caller) -> LiveCaller {
        let mut changes = self.access_changes();
        changes.mark_changed(); // something may have changed since the caller was authenticated
        LiveCaller { caller, changes, checked: Instant::now() }
    }

    /// Fails where a secret or token that the caller showed counts no longer.
    async fn recheck_credentials(&self, caller: &Caller) -> Result<()> {
        let taken_back = |reason: Message| Err(ControlError::Unauthenticated(reason));
        let PresentedCredentials { app_secret, user_token } = &caller.proof;
        if let Some(hash) = app_secret {
            let app = self.inner.store.app(&caller.app).await?;
            if app.is_none_or(|app| app.secret_hash != *hash) {
                return taken_back(messages::app_secret_replaced(&caller.app));
            }
        }
        if let Some(id) = user_token {
            let token = self.inner.store.user_token(id).await?;
            let now = clock::unix_millis();
            if token.is_none_or(|token| token.expires_at.is_some_and(|end| end <= now)) {
                return taken_back(messages::user_token_gone(id, &caller.user));
            }
        }
        Ok(())
    }
}

/// Without a change through this server, permissions are re-read when they are older than this: a tool may have
/// changed them outside it.
const STALE_AFTER: Duration = Duration::from_secs(1);

/// A caller over a time longer than one call.
#[derive(Debug)]
pub struct LiveCaller {
    caller: Caller,
    changes: watch::Receiver<()>,
    checked: Instant,
}

impl LiveCaller {
    /// Whether [`Self::current`] would read the rights again.
    pub fn is_stale(&self) -> bool {
        self.changes.has_changed().unwrap_or(false) || self.checked.elapsed() >= STALE_AFTER
    }

    /// The caller with its current permissions; an error if it may no longer call.
    pub async fn current(&mut self, control: &Control) -> Result<&Caller> {
        if self.is_stale() && !self.caller.subjects.is_empty() {
            self.changes.mark_unchanged();
            let read_at = Instant::now();
            control.recheck_credentials(&self.caller).await?;
            self.caller.permissions = control.permissions(&self.caller.subjects).await?;
            self.checked = read_at;
        }
        Ok(&self.caller)
    }

    /// See [`Caller::account`].
    pub(super) fn account(&self) -> String {
        self.caller.account()
    }

    /// Waits until rights may have changed through this server.
    pub(super) async fn changed(&mut self) {
        if self.changes.changed().await.is_ok() {
            self.changes.mark_changed();
        }
    }
}

impl Caller {
    pub(crate) fn is_allowed(&self, class: Class, host: &HostLocation, namespace: Option<&Namespace>) -> bool {
        let target = AccessTarget { business: host.business, cloud: Some(host.key.cloud), namespace };
        self.permissions.allows(class, &target)
    }

    /// The first of the classes that is not allowed there.
    pub(super) fn first_missing(&self, classes: Classes, spot: &Spot<'_>, namespace: &Namespace) -> Option<Class> {
        classes.iter().find(|class| !self.permissions.allows(*class, &spot.access_target(Some(namespace))))
    }

    /// Whether any spec may be registered there, ignoring its bounds.
    pub(super) fn may_register_unbounded(&self, spot: &Spot<'_>, namespace: &Namespace) -> bool {
        self.permissions.registers_unbounded(&spot.access_target(Some(namespace)))
    }

    /// The row of a known host where the caller may not register, or not this spec.
    pub(super) fn registration_refusal(&self, spot: &Spot<'_>, namespace: &Namespace, spec: &Spec) -> Option<Outcome> {
        let refused = self.refused(Class::Register, spot, std::slice::from_ref(namespace));
        refused.or_else(|| self.out_of_bounds(spot, namespace, spec))
    }

    /// The row of a target where the caller may register, but not this spec.
    pub(super) fn out_of_bounds(&self, spot: &Spot<'_>, namespace: &Namespace, spec: &Spec) -> Option<Outcome> {
        let outside = self.permissions.admit(&spot.access_target(Some(namespace)), spec).err()?;
        let message = messages::may_not_register_spec(self.name(), namespace, spot.named, outside.message());
        Some(Outcome::new(Code::Forbidden, message, false))
    }

    /// The row of a target that the caller may not touch.
    pub(super) fn refusal(&self, class: Class, spot: &Spot<'_>, namespace: &Namespace) -> Outcome {
        let message = messages::may_not_on_host(self.name(), class.message(), namespace, spot.named, class);
        Outcome::new(Code::Forbidden, message, false)
    }

    /// Whether this is an administrator, who is admitted where others have to wait.
    pub(crate) fn is_admin(&self) -> bool {
        self.permissions.allows_everywhere(Class::Admin)
    }

    /// The row of a target where the class is missing in one of the namespaces.
    pub(super) fn refused(&self, class: Class, spot: &Spot<'_>, namespaces: &[Namespace]) -> Option<Outcome> {
        let needed = Classes::from_iter([class]);
        let namespace = namespaces.iter().find(|namespace| self.first_missing(needed, spot, namespace).is_some())?;
        Some(self.refusal(class, spot, namespace))
    }

    /// False for a caller without any role.
    pub(crate) fn has_any_permission(&self) -> bool {
        Class::ALL.iter().any(|class| self.permissions.allows_anywhere(*class))
    }

    /// For what concerns no single host.
    pub fn require(&self, class: Class) -> Result<()> {
        if self.permissions.allows_everywhere(class) {
            return Ok(());
        }
        Err(self.missing(class, [EVERYTHING.to_owned()]))
    }

    /// For lists that show only what the caller may see: it must see something.
    pub fn require_anywhere(&self, class: Class) -> Result<()> {
        if self.permissions.allows_anywhere(class) {
            return Ok(());
        }
        Err(self.missing(class, [ANYTHING.to_owned()]))
    }

    /// For calls that show only the hosts that the caller may read.
    pub(super) fn must_read_some(&self, hosts: &[HostRef]) -> Result<()> {
        if self.permissions.allows_anywhere(Class::Read) {
            return Ok(());
        }
        Err(self.missing(Class::Read, hosts.iter().map(ToString::to_string)))
    }

    /// For calls without rows: every known host must be allowed.
    pub(super) fn require_on<'a>(
        &self,
        class: Class,
        hosts: impl IntoIterator<Item = &'a HostLocation>,
        namespace: Option<&Namespace>,
    ) -> Result<()> {
        let forbidden = hosts.into_iter().filter(|host| !self.is_allowed(class, host, namespace));
        let mut named = forbidden.map(|host| host.key.to_string()).take(NAMED_MAX).peekable();
        if named.peek().is_none() { Ok(()) } else { Err(self.missing(class, named)) }
    }

    pub(super) fn missing(&self, class: Class, targets: impl IntoIterator<Item = String>) -> ControlError {
        self.lacking(class, targets).into()
    }

    /// What a call lacks on these, of which the first are named, each once.
    pub(super) fn lacking(&self, class: Class, targets: impl IntoIterator<Item = String>) -> Missing {
        let mut named: Vec<String> = Vec::new();
        for target in targets {
            if named.len() == NAMED_MAX {
                break;
            }
            if !named.contains(&target) {
                named.push(target);
            }
        }
        Missing { who: self.name(), class, targets: named }
    }

    /// The caller in words.
    pub fn name(&self) -> Message {
        match (self.app.as_str(), self.user.as_str()) {
            ("", user) => messages::user_named(user),
            (app, "") => messages::app_named(app),
            (app, user) => messages::app_for_user(app, user),
        }
    }
}
