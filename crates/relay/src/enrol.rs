//! Enrolment: once in the life of a state directory.

use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_pki::JoinToken;
use proctor_runtime::{Backoff, chain};
use proctor_wire::{AgentCodec, FromAgent, FromServer, NoSession, framed};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::identity::{Found, Identity};
use crate::{Options, RelayError};

const ATTEMPT_LIMIT: Duration = Duration::from_secs(15);

/// Why an attempt failed: some causes pass by themselves.
enum Failure {
    ForGood(RelayError),
    Passing(String),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Passing(chain(&error))
    }
}

/// The identity in the state directory, or a new one from the server. Tries until it has one.
pub(crate) async fn identity(options: &Options) -> Result<Identity, RelayError> {
    let state_dir = |source| RelayError::StateDir { path: options.state_dir.clone(), source };
    let without_token = match Identity::load(&options.state_dir).map_err(state_dir)? {
        Found::Usable(identity) if identity.cloud == options.cloud => return Ok(*identity),
        Found::Usable(identity) => {
            return Err(RelayError::OtherCloud { found: identity.cloud, asked: options.cloud });
        }
        Found::Expired { relay, expired_at } => {
            tracing::warn!(%relay, %expired_at, "the certificate has expired: this relay enrols again");
            RelayError::Expired { relay, expired_at }
        }
        Found::Nothing => RelayError::NoToken,
    };
    let token: JoinToken = options.token.as_deref().ok_or(without_token)?.parse()?;
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    for server in options.upstreams.iter().cycle() {
        let reason = match tokio::time::timeout(ATTEMPT_LIMIT, Box::pin(attempt(options, server, &token))).await {
            Ok(Ok(())) => break,
            Ok(Err(Failure::ForGood(error))) => return Err(error),
            Ok(Err(Failure::Passing(reason))) => reason,
            Err(_) => "the server does not answer".to_owned(),
        };
        tracing::warn!(server, reason, "cannot enrol yet; trying again");
        tokio::time::sleep(backoff.next_wait()).await;
    }
    match Identity::load(&options.state_dir).map_err(state_dir)? {
        Found::Usable(identity) => Ok(*identity),
        Found::Expired { relay, expired_at } => Err(RelayError::Expired { relay, expired_at }),
        Found::Nothing => Err(RelayError::NoToken),
    }
}

async fn attempt(options: &Options, server: &str, token: &JoinToken) -> Result<(), Failure> {
    let config = proctor_pki::enrol_config(&token.authority_fingerprint).map_err(|e| Failure::ForGood(e.into()))?;
    let key = Identity::key(&options.state_dir)?;
    let csr_der = key.csr_der().map_err(|error| Failure::ForGood(error.into()))?;
    let tcp = TcpStream::connect(server).await?;
    let tls = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await?;
    let mut frames = framed(tls, AgentCodec::enrolment());
    let (token_id, token_secret) = (token.id.clone(), token.secret.clone());
    frames.send(FromAgent::EnrolRelay { token_id, token_secret, csr_der, cloud: options.cloud }).await?;
    let answer = frames.next().await.ok_or(NoSession::Closed)??;
    let FromServer::RelayEnrolled { relay, certificate_pem, authority_pem } = answer else {
        return Err(match NoSession::answered(answer) {
            NoSession::Refused { reason, retry: false } => Failure::ForGood(RelayError::Refused { reason }),
            other @ (NoSession::Refused { .. }
            | NoSession::Connect(_)
            | NoSession::Silent
            | NoSession::Stuck
            | NoSession::Closed
            | NoSession::Busy(_)
            | NoSession::Broken(_)) => other.into(),
        });
    };
    let found = proctor_pki::certificate_fingerprint(&authority_pem);
    if !found.is_ok_and(|found| proctor_pki::secrets_match(&found, &token.authority_fingerprint)) {
        return Err(Failure::ForGood(RelayError::OtherAuthority));
    }
    Ok(Identity::save(&options.state_dir, &relay, options.cloud, &certificate_pem, &authority_pem)?)
}
