//! The certificate of the link.
//!
//! Promised: it is renewed while the server runs, long before it expires, and also when the clock was set back to
//! before its start, or when the authorities have changed: then the next connection sees it. Open sessions are not
//! touched.
//! Absent: the rotation of the authority itself (see `control::authorities`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proctor_pki::{PkiError, Tickets, with_tickets};
use tokio_rustls::TlsAcceptor;

use crate::control::Believed;

/// It is renewed when less than this is left of its year.
const RENEW_BEFORE: Duration = Duration::from_secs(60 * 24 * 3600);
/// After a renewal that failed.
const RETRY_AFTER: Duration = Duration::from_secs(60);

pub(super) struct LinkCertificate {
    pub(super) acceptor: TlsAcceptor,
    pub(super) expires_at: Timestamp,
    issued_at: Timestamp,
    retry_at: Timestamp,
    /// Of the authorities that it is by, and by which clients are judged.
    generation: u64,
    tickets: Arc<Tickets>,
}

impl LinkCertificate {
    pub(super) fn issue(believed: &Believed, tickets: Arc<Tickets>, now: Timestamp) -> Result<Self, PkiError> {
        let (config, expires_at) = proctor_pki::link_config(&believed.authorities, now)?;
        let generation = believed.generation;
        let acceptor = TlsAcceptor::from(Arc::new(with_tickets(config, tickets.clone())));
        Ok(Self { acceptor, expires_at, issued_at: now, retry_at: Timestamp::MIN, generation, tickets })
    }

    /// Whether there is a new one.
    pub(super) fn renew_if_due(&mut self, believed: &Believed, now: Timestamp) -> bool {
        let is_other = self.generation != believed.generation;
        let is_due = is_other || now < self.issued_at || now + RENEW_BEFORE >= self.expires_at;
        let is_retry_due = now >= self.retry_at || now < self.issued_at;
        if !is_due || !is_retry_due {
            return false;
        }
        match Self::issue(believed, self.tickets.clone(), now) {
            Ok(new) => {
                tracing::info!(expires_at = %new.expires_at, "link certificate renewed");
                *self = new;
                true
            }
            Err(error) => {
                tracing::error!(%error, expires_at = %self.expires_at, "cannot renew link certificate");
                self.retry_at = now + RETRY_AFTER;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proctor_pki::{Authority, AuthoritySecret};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn it_is_renewed_before_it_ends_and_when_the_clock_was_ahead() {
        let issued: Timestamp = "2026-05-01T00:00:00Z".parse().unwrap();
        let secret = Authority::generate(issued).unwrap();
        let believed =
            |secret: &AuthoritySecret, generation| Believed::of(secret, &Arc::default(), generation).unwrap();
        let authority = believed(&secret, 1);
        let tickets = Arc::new(Tickets::new(&proctor_pki::TicketKeys::generate(issued)));
        let mut certificate = LinkCertificate::issue(&authority, tickets, issued).unwrap();
        let first = certificate.expires_at;

        assert!(!certificate.renew_if_due(&authority, issued + 300 * DAY));
        assert!(certificate.renew_if_due(&authority, issued + 310 * DAY));
        assert!(certificate.expires_at > first + 300 * DAY);
        assert!(!certificate.renew_if_due(&authority, issued + 311 * DAY));

        assert!(certificate.renew_if_due(&authority, issued), "the clock was set back");
        assert_eq!(certificate.expires_at, first);
        let prepared = believed(&secret.prepared(issued).unwrap().unwrap(), 2);
        assert!(certificate.renew_if_due(&prepared, issued), "clients are judged by both authorities");
        assert!(!certificate.renew_if_due(&prepared, issued));
    }
}
