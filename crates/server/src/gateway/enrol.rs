//! Enrolment: a join token and a signing request in, a certificate out.
//!
//! Promised: without a valid token nobody reaches the store's writer or the authority's key, or leaves more than a
//! log line, at most one a second.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use proctor_model::{AgentId, HostKey};
use proctor_runtime::chain;
use proctor_store::{EnrolRefusal, Enrolment};
use proctor_wire::{FromAgent, FromServer, ServerCodec, framed, hang_up};
use uuid::Uuid;

use super::connection::Direct;
use super::{Gateway, now, relay, returning};
use crate::control::ControlError;
use crate::log_limit::LogLimit;

/// Renewed over the session when a third of it is left.
pub(super) const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

pub(super) async fn enrol(tls: Direct, peer: SocketAddr, gateway: &Gateway) {
    let mut frames = framed(tls, ServerCodec::enrolment());
    let first = frames.next().await;
    if let Some(Ok(FromAgent::Return { certificate_der })) = first {
        return returning::come_back(frames, certificate_der, peer, gateway).await;
    }
    let (who, decided) = match first {
        Some(Ok(FromAgent::Enrol { token_id, token_secret, csr_der, agent, host })) => {
            let token_secret_hash = proctor_pki::hash_secret(&token_secret);
            let request = Request { token_id, token_secret_hash, csr_der, agent, host };
            (format!("host {host}"), decide(gateway, request, peer).await)
        }
        Some(Ok(FromAgent::EnrolRelay { token_id, token_secret, csr_der, cloud })) => {
            let request = relay::Request { token_id, token_secret, csr_der, cloud };
            (format!("relay of cloud area {cloud}"), relay::enrol(gateway, request, peer).await)
        }
        _ => return tracing::debug!(%peer, "a peer did not enrol"),
    };
    let answer = match decided {
        Ok(enrolled) => {
            gateway.control.metrics().enrolment("enrolled");
            tracing::info!(%peer, who, "enrolled");
            enrolled
        }
        Err(refused) => {
            gateway.strangers.log(peer, &who, &refused);
            let retry = matches!(refused, Refused::Later(_));
            gateway.control.metrics().enrolment(if retry { "failed" } else { "refused" });
            FromServer::Refused { reason: refused.to_string(), retry }
        }
    };
    if let Err(error) = frames.send(answer).await {
        tracing::debug!(%peer, %error, "an enrolment's answer was not delivered");
    }
    Box::pin(hang_up(frames.into_inner())).await;
}

struct Request {
    token_id: String,
    token_secret_hash: String,
    csr_der: Vec<u8>,
    agent: Option<AgentId>,
    host: HostKey,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Rules(#[from] EnrolRefusal),
    #[error(
        "the join token is unknown, or not one for relays: make one with `proctor token create --relay --cloud-id N`"
    )]
    NoRelayToken,
    #[error("the certificate request cannot be used: {0}")]
    Request(proctor_pki::PkiError),
    #[error("the server cannot enrol now: {0}")]
    Later(String),
}

/// The token is looked up first, without a write; then the request is read; the store checks and uses the
/// token; only then is anything signed. Where that fails, the agent repeats it without a further use.
async fn decide(gateway: &Gateway, request: Request, peer: SocketAddr) -> Result<FromServer, Refused> {
    let later = |error: &dyn std::fmt::Display| Refused::Later(error.to_string());
    let Request { token_id, token_secret_hash, csr_der, agent, host } = request;
    let known = gateway.control.knows_token(&token_id, &token_secret_hash).await;
    if !known.map_err(|error| later(&error))? {
        return Err(EnrolRefusal::UnknownToken.into());
    }
    let key_fingerprint = proctor_pki::requested_fingerprint(&csr_der).map_err(Refused::Request)?;
    let agent = agent.unwrap_or_else(|| AgentId::from_uuid(Uuid::now_v7()));
    let remote = Some(peer.ip());
    let enrolment = Enrolment {
        token_id,
        token_secret_hash,
        host,
        agent: agent.clone(),
        key_fingerprint,
        remote,
        needs_approval: gateway.policy.approve_hosts,
    };
    gateway.control.enrol(enrolment).await.map_err(|error| later(&error))??;
    let believed = gateway.control.believed();
    let authorities = &believed.authorities;
    let certificate_pem =
        authorities.issue_agent(&csr_der, &agent, now(), CERTIFICATE_LIFETIME).map_err(|error| later(&error))?;
    let authority_pem = authorities.current().certificate_pem().to_owned();
    let signer_der = Some(gateway.signing.signer().certificate_der().to_vec());
    Ok(FromServer::Enrolled { agent, certificate_pem, authority_pem, signer_der })
}

/// Refusals, logged no faster than the log can take them.
#[derive(Debug, Default)]
pub(super) struct UnverifiedPeerLog(LogLimit);

impl UnverifiedPeerLog {
    fn log(&self, peer: SocketAddr, who: &str, refused: &Refused) {
        if let Some(unlogged) = self.0.turn(Instant::now()) {
            tracing::warn!(%peer, who, reason = %refused, unlogged, "enrolment refused");
        }
    }

    pub(super) fn log_session(&self, peer: SocketAddr, agent: &AgentId, error: &ControlError) {
        if let Some(unlogged) = self.0.turn(Instant::now()) {
            tracing::warn!(%peer, %agent, error = %chain(error), unlogged, "session not opened");
        }
    }

    /// What an operator can do something about; port scanners and broken connections are for debugging.
    pub(super) fn log_handshake(&self, peer: SocketAddr, error: &std::io::Error) {
        let Some(why) = error.get_ref().and_then(|error| error.downcast_ref()).and_then(handshake_words) else {
            return tracing::debug!(%peer, %error, "TLS handshake failed");
        };
        if let Some(unlogged) = self.0.turn(Instant::now()) {
            tracing::warn!(%peer, why, unlogged, "TLS handshake failed");
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "foreign enums; the others are for debugging")]
fn handshake_words(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidMessage(_) => Some(
            "the peer does not speak TLS: HTTP is served at --http, the link is for agents (proctor-agent --server)",
        ),
        rustls::Error::InvalidCertificate(
            rustls::CertificateError::Expired | rustls::CertificateError::ExpiredContext { .. },
        ) => Some(
            "the agent's certificate has expired: check its clock and ours; an agent of this release asks to come back and is \
             let in with `proctor hosts approve`, an older one needs a join token",
        ),
        rustls::Error::InvalidCertificate(_) => {
            Some("the agent's certificate is not of this server's authority: it enrolled with another server")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_that_people_can_mend_are_told_in_words() {
        let expired = handshake_words(&rustls::CertificateError::Expired.into()).unwrap();
        let http = handshake_words(&rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)).unwrap();

        assert!(expired.contains("has expired") && expired.contains("join token"), "{expired}");
        assert!(http.contains("does not speak TLS"), "{http}");
        assert_eq!(handshake_words(&rustls::Error::HandshakeNotComplete), None);
    }
}
