//! Enrolment: a join token and a signing request in, a certificate out.

use std::net::SocketAddr;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_model::{AgentId, HostKey};
use proctor_runtime::clock;
use proctor_store::Enrolment;
use proctor_wire::{FromAgent, FromServer, ServerCodec};
use tokio_util::codec::Framed;
use uuid::Uuid;

use super::{Connection, Gateway, now};

/// Renewed over the session when a third of it is left.
pub(super) const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

pub(super) async fn enrol(tls: Connection, peer: SocketAddr, gateway: &Gateway) {
    let mut frames = Framed::new(tls, ServerCodec::enrolment());
    let Some(Ok(FromAgent::Enrol { token_id, token_secret, csr_der, agent, host })) = frames.next().await else {
        tracing::debug!(%peer, "a peer did not enrol");
        return;
    };
    let answer = decide(gateway, token_id, &token_secret, &csr_der, agent, host).await;
    if let FromServer::Refused { reason, .. } = &answer {
        tracing::warn!(%peer, %host, %reason, "an enrolment was refused");
    } else {
        tracing::info!(%peer, %host, "a host has enrolled");
    }
    if let Err(error) = frames.send(answer).await {
        tracing::debug!(%peer, %error, "an enrolment's answer was not delivered");
    }
    let _ = SinkExt::<FromServer>::close(&mut frames).await;
}

async fn decide(
    gateway: &Gateway,
    token_id: String,
    token_secret: &str,
    csr_der: &[u8],
    agent: Option<AgentId>,
    host: HostKey,
) -> FromServer {
    let agent = agent.unwrap_or_else(|| AgentId::from_uuid(Uuid::now_v7()));
    // The certificate first: a request that cannot be signed must not use up the token.
    let certificate_pem = match gateway.authority.issue_agent(csr_der, &agent, now(), CERTIFICATE_LIFETIME) {
        Ok(pem) => pem,
        Err(error) => return FromServer::Refused { reason: error.to_string(), retry: false },
    };
    let key_fingerprint = match proctor_pki::key_fingerprint(&certificate_pem) {
        Ok(fingerprint) => fingerprint,
        Err(error) => return FromServer::Refused { reason: error.to_string(), retry: false },
    };
    let enrolment = Enrolment {
        token_id,
        token_secret_hash: proctor_pki::hash_secret(token_secret),
        host,
        agent: agent.clone(),
        key_fingerprint,
    };
    match gateway.control.store().enrol(enrolment, clock::unix_millis()).await {
        Ok(Ok(())) => FromServer::Enrolled {
            agent,
            certificate_pem,
            authority_pem: gateway.authority.certificate_pem().to_owned(),
        },
        Ok(Err(refusal)) => FromServer::Refused { reason: refusal.to_string(), retry: false },
        Err(error) => FromServer::Refused { reason: error.to_string(), retry: true },
    }
}
