//! Follows a rotation of the control plane's authority over the live session.
//!
//! Promised: what the agent says it trusts is on its disk; a set of authorities of which it knows none is rejected,
//! so that a session can extend trust but never replace it; a certificate of an authority that no longer issues is
//! renewed at once. If the disk cannot be written, the agent keeps what it has, logs it, and retries with every
//! certificate check and on every session.
//! Absent: signatures, which the caller has verified.

use parking_lot::Mutex;
use proctor_runtime::chain;
use proctor_wire::{Announced, FromAgent, Trusted};

use super::Link;
use super::queue::LinkOutbox;

/// What the server announced last, in this run of the agent.
#[derive(Debug, Default)]
pub(super) struct Following(Mutex<Option<Announced>>);

impl Link {
    pub(super) fn hear_authorities(&self, announced: Announced, outbox: &LinkOutbox) {
        *self.following.0.lock() = Some(announced);
        for message in self.follow() {
            // The next certificate check reports it again.
            let _ = outbox.try_send(message);
        }
    }

    /// Must be called from time to time: for what could not be written, or was lost on the way.
    pub(super) fn follow_again(&self) -> Vec<FromAgent> {
        let is_behind = self.following.0.lock().as_ref().is_some_and(|announced| {
            announced.authorities_pem != *self.identity.authorities_pem()
                || self.identity.certified_by().as_ref() != Some(&announced.issuing)
        });
        if is_behind { self.follow() } else { Vec::new() }
    }

    fn follow(&self) -> Vec<FromAgent> {
        let Some(Announced { authorities_pem, .. }) = self.following.0.lock().clone() else { return Vec::new() };
        if *self.identity.authorities_pem() != authorities_pem {
            match self.trust.hand_over(&authorities_pem, || self.identity.believe(&authorities_pem)) {
                Ok(()) => {
                    tracing::info!(authorities = ?self.trusted().authorities, "authorities of the control plane changed")
                }
                Err(error) => {
                    tracing::error!(error = %chain(&error), "announced authorities not accepted, keeping the current ones");
                }
            }
        }
        let trusted = FromAgent::Trusted(self.trusted());
        std::iter::once(trusted).chain(self.is_of_other_issuer().then(|| self.renewal()).flatten()).collect()
    }

    pub(super) fn tell_trusted(&self, outbox: &LinkOutbox) {
        if self.following.0.lock().is_some() {
            let _ = outbox.try_send(FromAgent::Trusted(self.trusted()));
        }
    }

    /// Whether another authority issues now than the one that issued the certificate, and the agent believes it.
    pub(super) fn is_of_other_issuer(&self) -> bool {
        let Some(Announced { issuing, .. }) = self.following.0.lock().clone() else { return false };
        let Trusted { authorities, certified_by } = self.trusted();
        authorities.contains(&issuing) && certified_by != issuing
    }

    fn trusted(&self) -> Trusted {
        let authorities = proctor_pki::authority_fingerprints(&self.identity.authorities_pem()).unwrap_or_default();
        Trusted { authorities, certified_by: self.identity.certified_by().unwrap_or_default() }
    }
}
