//! Enrolment: once in the life of a state directory.

use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_host::Host;
use proctor_model::{AgentId, HostKey};
use proctor_pki::JoinToken;
use proctor_runtime::Backoff;
use proctor_wire::{AgentCodec, FromAgent, FromServer};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::codec::Framed;
use uuid::Uuid;

use crate::identity::Identity;
use crate::words;
use crate::{AgentError, Options};

const ATTEMPT_LIMIT: Duration = Duration::from_secs(15);

/// Why an attempt failed: some causes pass by themselves.
enum Failure {
    ForGood(AgentError),
    Passing(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Passing(error.to_string())
    }
}

/// The identity in the state directory, or a new one from the server. Tries until it has one.
pub(crate) async fn identity(options: &Options, host: &Host) -> Result<Identity, AgentError> {
    let state_dir = |source| AgentError::StateDir { path: options.state_dir.clone(), source };
    if let Some(identity) = Identity::load(&options.state_dir).map_err(state_dir)? {
        return match &options.agent_id {
            Some(asked) if *asked != identity.agent => {
                Err(AgentError::OtherAgent { found: identity.agent, asked: asked.clone() })
            }
            Some(_) | None => Ok(identity),
        };
    }
    let token: JoinToken = options.token.as_deref().ok_or(AgentError::NoToken)?.parse()?;
    let agent = options.agent_id.clone().unwrap_or_else(|| AgentId::from_uuid(Uuid::now_v7()));
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    loop {
        let attempt = Box::pin(attempt(options, &token, &agent));
        match tokio::time::timeout(ATTEMPT_LIMIT, attempt).await {
            Ok(Ok(())) => break,
            Ok(Err(Failure::ForGood(error))) => return Err(error),
            Ok(Err(Failure::Passing(reason))) => {
                tracing::warn!(server = %options.server, %reason, "cannot enrol yet; trying again");
            }
            Err(_) => tracing::warn!(server = %options.server, "the server does not answer; trying again"),
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
    tracing::debug!(boot = ?host.boot_id(), "enrolled");
    Identity::load(&options.state_dir).map_err(state_dir)?.ok_or(AgentError::NoToken)
}

async fn attempt(options: &Options, token: &JoinToken, agent: &AgentId) -> Result<(), Failure> {
    let config = proctor_pki::enrol_config(&token.authority_fingerprint).map_err(|e| Failure::ForGood(e.into()))?;
    let key = Identity::key(&options.state_dir)?;
    let csr_der = key.csr_der().map_err(|error| Failure::ForGood(error.into()))?;
    let passing = |error: std::io::Error| Failure::Passing(words::explain(&error, &options.server));
    let tcp = TcpStream::connect(&options.server).await.map_err(passing)?;
    let ip = match options.ip {
        Some(ip) => ip,
        None => tcp.local_addr()?.ip(),
    };
    let host = HostKey::new(options.cloud, options.supplier, ip);
    let tls = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await.map_err(|error| {
        if words::is_other_authority(&error) {
            return Failure::ForGood(AgentError::Refused { reason: words::explain(&error, &options.server) });
        }
        passing(error)
    })?;
    let mut frames = Framed::new(tls, AgentCodec::enrolment());
    let request = FromAgent::Enrol {
        token_id: token.id.clone(),
        token_secret: token.secret.clone(),
        csr_der,
        agent: Some(agent.clone()),
        host,
    };
    frames.send(request).await.map_err(|error| Failure::Passing(error.to_string()))?;
    match frames.next().await {
        Some(Ok(FromServer::Enrolled { agent, certificate_pem, authority_pem })) => {
            Ok(Identity::save(&options.state_dir, &agent, host, &certificate_pem, &authority_pem)?)
        }
        Some(Ok(FromServer::Refused { reason, retry: false })) => Err(Failure::ForGood(AgentError::Refused { reason })),
        Some(Ok(FromServer::Refused { reason, retry: true })) => Err(Failure::Passing(reason)),
        Some(Ok(FromServer::Busy { .. })) => Err(Failure::Passing("the server is busy".into())),
        Some(Ok(_)) | None => Err(Failure::Passing("the server closed the connection".into())),
        Some(Err(error)) => Err(Failure::Passing(error.to_string())),
    }
}
