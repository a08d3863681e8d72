//! Readmits agents that were away for longer than their certificates are valid.
//!
//! Promised: only the key of the expired certificate can request a new one, for a fresh nonce; the host must still
//! belong to that key, and an operator must have approved it (`proctor hosts approve`). Until then the agent is told
//! so, and its host is shown as waiting. A certificate that is still valid by this server's clock needs no approval,
//! and the new one does not outlive it: only a session or an operator extends an identity.
//! Absent: whose key was revoked, which the store knows.

use std::net::SocketAddr;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_model::AgentId;
use proctor_pki::{open_return, random_bytes};
use proctor_runtime::chain;
use proctor_store::SessionRefusal;
use proctor_wire::{FromAgent, FromServer, ServerCodec, hang_up};
use rustls::pki_types::CertificateDer;
use tokio_util::codec::Framed;

use super::connection::Direct;
use super::enrol::CERTIFICATE_LIFETIME;
use super::{Gateway, now};

const NONCE_BYTES: usize = 32;

type Frames = Framed<Direct, ServerCodec>;

/// Why an agent gets no other certificate.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the expired certificate is not one of this control plane")]
    Foreign,
    #[error("the request is not by the key of the expired certificate")]
    Forged,
    #[error(transparent)]
    Rules(SessionRefusal),
    #[error("the server cannot issue a certificate now: its log says why")]
    Later,
}

impl Refused {
    fn may_pass(&self) -> bool {
        match self {
            Self::Rules(SessionRefusal::CertificateExpired { .. } | SessionRefusal::AwaitsApproval { .. })
            | Self::Later => true,
            Self::Foreign | Self::Forged | Self::Rules(_) => false,
        }
    }
}

pub(super) async fn come_back(mut frames: Frames, certificate_der: Vec<u8>, peer: SocketAddr, gateway: &Gateway) {
    let certificate = CertificateDer::from(certificate_der);
    let answer = match decide(&mut frames, &certificate, peer, gateway).await {
        Ok(None) => return tracing::debug!(%peer, "a returning agent left"),
        Ok(Some((agent, certificate_pem))) => {
            tracing::info!(%peer, %agent, "expired certificate replaced");
            FromServer::Renewed { certificate_pem }
        }
        Err(refused) => {
            if let Some(unlogged) = gateway.refused.turn(std::time::Instant::now()) {
                tracing::warn!(%peer, reason = %refused, unlogged, "return refused");
            }
            FromServer::Refused { reason: refused.to_string(), retry: refused.may_pass() }
        }
    };
    if let Err(error) = frames.send(answer).await {
        tracing::debug!(%peer, %error, "the answer to a return was not delivered");
    }
    Box::pin(hang_up(frames.into_inner())).await;
}

/// Nothing is read from the store before the key has proved itself.
async fn decide(
    frames: &mut Frames,
    certificate: &CertificateDer<'_>,
    peer: SocketAddr,
    gateway: &Gateway,
) -> Result<Option<(AgentId, String)>, Refused> {
    let believed = gateway.control.believed();
    let (agent, expires_at) = believed.agent_certificates.verify_expired(certificate).map_err(|_| Refused::Foreign)?;
    let nonce = random_bytes::<NONCE_BYTES>();
    if frames.send(FromServer::Challenge { nonce: nonce.to_vec() }).await.is_err() {
        return Ok(None);
    }
    let Some(Ok(FromAgent::Signed(signed))) = frames.next().await else { return Ok(None) };
    let csr_der = open_return(certificate, &nonce, &signed).map_err(|_| Refused::Forged)?;
    let fingerprint = proctor_pki::key_fingerprint_der(certificate).map_err(|_| Refused::Foreign)?;
    if proctor_pki::requested_fingerprint(&csr_der).map_err(|_| Refused::Forged)? != fingerprint {
        return Err(Refused::Forged);
    }
    let left = Duration::try_from(expires_at.duration_since(now())).ok().filter(|left| !left.is_zero());
    let (is_valid, remote) = (left.is_some(), Some(peer.ip()));
    let allowed = gateway.control.let_back(&agent, &fingerprint, is_valid, remote).await.map_err(|error| {
        tracing::warn!(%peer, %agent, error = %chain(&error), "cannot tell whether an agent may come back");
        Refused::Later
    })?;
    allowed.map_err(Refused::Rules)?;
    gateway.control.agent_renews(&agent).await;
    let lifetime = left.unwrap_or(CERTIFICATE_LIFETIME);
    let issued = believed.authorities.issue_agent(&csr_der, &agent, now(), lifetime);
    let certificate_pem = issued.map_err(|error| {
        tracing::warn!(%peer, %agent, error = %chain(&error), "cannot replace an expired certificate");
        Refused::Later
    })?;
    Ok(Some((agent, certificate_pem)))
}
