//! The certificate that the link is served with.
//!
//! Promised: it is renewed while the server runs, long before it ends, and also when the clock was set back to before
//! it began. Sessions that are open are not touched. Absent: rotation of the authority itself.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proctor_pki::{Authority, PkiError, Tickets, with_tickets};
use tokio_rustls::TlsAcceptor;

/// It is renewed when less than this is left of its year.
const RENEW_BEFORE: Duration = Duration::from_secs(60 * 24 * 3600);
/// After a renewal that failed.
const RETRY_AFTER: Duration = Duration::from_secs(60);

pub(super) struct LinkCertificate {
    pub(super) acceptor: TlsAcceptor,
    pub(super) expires_at: Timestamp,
    issued_at: Timestamp,
    retry_at: Timestamp,
    tickets: Arc<Tickets>,
}

impl LinkCertificate {
    pub(super) fn issue(authority: &Authority, tickets: Arc<Tickets>, now: Timestamp) -> Result<Self, PkiError> {
        let (config, expires_at) = proctor_pki::server_config(authority, now)?;
        let acceptor = TlsAcceptor::from(Arc::new(with_tickets(config, tickets.clone())));
        Ok(Self { acceptor, expires_at, issued_at: now, retry_at: Timestamp::MIN, tickets })
    }

    /// Whether there is a new one.
    pub(super) fn renew_if_due(&mut self, authority: &Authority, now: Timestamp) -> bool {
        let is_due = now < self.issued_at || now + RENEW_BEFORE >= self.expires_at;
        let is_retry_due = now >= self.retry_at || now < self.issued_at;
        if !is_due || !is_retry_due {
            return false;
        }
        match Self::issue(authority, self.tickets.clone(), now) {
            Ok(new) => {
                tracing::info!(expires_at = %new.expires_at, "the link's certificate was renewed");
                *self = new;
                true
            }
            Err(error) => {
                tracing::error!(%error, expires_at = %self.expires_at, "the link's certificate cannot be renewed");
                self.retry_at = now + RETRY_AFTER;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn it_is_renewed_before_it_ends_and_when_the_clock_was_ahead() {
        let issued: Timestamp = "2026-05-01T00:00:00Z".parse().unwrap();
        let authority = Authority::load(&Authority::generate(issued).unwrap()).unwrap();
        let tickets = Arc::new(Tickets::new(&proctor_pki::TicketKeys::generate(issued)));
        let mut certificate = LinkCertificate::issue(&authority, tickets, issued).unwrap();
        let first = certificate.expires_at;

        assert!(!certificate.renew_if_due(&authority, issued + 300 * DAY));
        assert!(certificate.renew_if_due(&authority, issued + 310 * DAY));
        assert!(certificate.expires_at > first + 300 * DAY);
        assert!(!certificate.renew_if_due(&authority, issued + 311 * DAY));

        assert!(certificate.renew_if_due(&authority, issued), "the clock was set back");
        assert_eq!(certificate.expires_at, first);
    }
}
