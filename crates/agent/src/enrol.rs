//! Enrolment: once in the lifetime of a state directory.

use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_host::Host;
use proctor_model::{AgentId, HostKey};
use proctor_pki::JoinToken;
use proctor_runtime::Backoff;
use proctor_wire::{AgentCodec, FromAgent, FromServer, NoSession, WireError, framed};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use crate::connect_error;
use crate::endpoints::Endpoints;
use crate::identity::Identity;
use crate::trust::{Trust, TrustError};
use crate::{AgentError, Options};

const ATTEMPT_LIMIT: Duration = Duration::from_secs(15);

/// Why an attempt failed: some causes are temporary.
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
    // With an expired certificate it is the same agent that enrols again.
    let before = Identity::earlier_id(&options.state_dir);
    let agent = options.agent_id.clone().or(before).unwrap_or_else(|| AgentId::from_uuid(Uuid::now_v7()));
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let mut endpoints = Endpoints::new(&options.server);
    loop {
        let options = &Options { server: endpoints.next(), ..options.clone() };
        let attempt = Box::pin(attempt(options, &token, &agent));
        match tokio::time::timeout(ATTEMPT_LIMIT, attempt).await {
            Ok(Ok(())) => break,
            Ok(Err(Failure::ForGood(error))) => return Err(error),
            Ok(Err(Failure::Passing(reason))) => {
                tracing::warn!(server = %options.server, %reason, "cannot enrol yet, retrying");
            }
            Err(_) => {
                let reason = connect_error::explain(&NoSession::Silent, &options.server);
                tracing::warn!(server = %options.server, %reason, "cannot enrol yet, retrying");
            }
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
    let passing = |error: std::io::Error| Failure::Passing(connect_error::explain(&error, &options.server));
    let tcp = TcpStream::connect(&options.server).await.map_err(passing)?;
    let ip = match options.ip {
        Some(ip) => ip,
        None => tcp.local_addr()?.ip(),
    };
    let host = HostKey::new(options.cloud, options.supplier, ip);
    let tls = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await.map_err(|error| {
        if proctor_pki::is_other_authority(&error) {
            return Failure::ForGood(AgentError::OtherAuthority {
                reason: connect_error::explain(&error, &options.server),
            });
        }
        passing(error)
    })?;
    let mut frames = framed(tls, AgentCodec::enrolment());
    let request = FromAgent::Enrol {
        token_id: token.id.clone(),
        token_secret: token.secret.clone(),
        csr_der,
        agent: Some(agent.clone()),
        host,
    };
    let broken = |error: WireError| Failure::Passing(connect_error::explain(&error, &options.server));
    frames.send(request).await.map_err(broken)?;
    match frames.next().await {
        Some(Ok(FromServer::Enrolled { agent, certificate_pem, authority_pem, signer_der })) => {
            require_pinned(token, &authority_pem, &options.server)?;
            match signer_der {
                Some(signer_der) => record_signer(options, &authority_pem, &signer_der)
                    .map_err(|error| Failure::Passing(proctor_runtime::chain(&error)))?,
                None if token.signs() => {
                    return Err(Failure::ForGood(AgentError::NoSigner { server: options.server.clone() }));
                }
                None => {}
            }
            Ok(Identity::save(&options.state_dir, &agent, host, &certificate_pem, &authority_pem)?)
        }
        Some(Ok(FromServer::Refused { reason, retry: false })) => Err(Failure::ForGood(AgentError::Refused { reason })),
        Some(Ok(answer)) => {
            Err(Failure::Passing(connect_error::explain(&NoSession::answered(answer), &options.server)))
        }
        None => Err(Failure::Passing(connect_error::explain(&NoSession::Closed, &options.server))),
        Some(Err(error)) => Err(broken(error)),
    }
}

/// Every later session trusts this authority: it must be the one named by the token, whoever sent it.
fn require_pinned(token: &JoinToken, authority_pem: &str, server: &str) -> Result<(), Failure> {
    let found = proctor_pki::certificate_fingerprint(authority_pem);
    if found.is_ok_and(|found| proctor_pki::secrets_match(&found, &token.authority_fingerprint)) {
        return Ok(());
    }
    let reason = format!(
        "{server} enrolled this host with another authority than the join token names, so nothing was kept: something \
         between this host and the server may have changed the answer"
    );
    Err(Failure::ForGood(AgentError::OtherAuthority { reason }))
}

fn record_signer(options: &Options, authority_pem: &str, signer_der: &[u8]) -> Result<(), TrustError> {
    Trust::load(&options.state_dir, authority_pem)?.enrolled(signer_der)
}

#[cfg(test)]
mod tests {
    use proctor_pki::{Authority, CommandSigner, SigningSecret};
    use proctor_runtime::clock;
    use proctor_wire::ServerCodec;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    struct Server {
        authority: Authority,
        listener: tokio::net::TcpListener,
        acceptor: TlsAcceptor,
    }

    impl Server {
        async fn new() -> Self {
            let authority = authority();
            let (config, _) = proctor_pki::server_config(&authority, now()).unwrap();
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            Self { authority, listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
        }

        fn options(&self, state_dir: &std::path::Path) -> Options {
            Options {
                server: self.listener.local_addr().unwrap().to_string(),
                token: None,
                state_dir: state_dir.to_owned(),
                ip: None,
                cloud: 0,
                supplier: 0,
                agent_id: None,
                policy: None,
                metrics: None,
                metrics_processes: false,
                tracking: crate::Tracking::Best,
                spawn: crate::SpawnMethod::default(),
                traces: proctor_traces::Traces::default(),
                is_program: true,
            }
        }

        fn token(&self) -> JoinToken {
            JoinToken::generate(&proctor_pki::certificate_fingerprint(self.authority.certificate_pem()).unwrap())
                .unwrap()
        }

        fn signer_der(&self) -> Vec<u8> {
            let signer = CommandSigner::issue(&self.authority, &SigningSecret::generate().unwrap(), now()).unwrap();
            signer.certificate_der().to_vec()
        }

        /// Enrols the next agent, and names this authority and signing key.
        async fn enrol(&self, authority_pem: &str, signer_der: Option<Vec<u8>>) {
            let (tcp, _) = self.listener.accept().await.unwrap();
            let mut frames = framed(self.acceptor.accept(tcp).await.unwrap(), ServerCodec::enrolment());
            let Some(Ok(FromAgent::Enrol { csr_der, agent: Some(agent), .. })) = frames.next().await else {
                panic!("no enrolment")
            };
            let day = Duration::from_secs(24 * 3600);
            let certificate_pem = self.authority.issue_agent(&csr_der, &agent, now(), day).unwrap();
            let authority_pem = authority_pem.to_owned();
            let answer = FromServer::Enrolled { agent, certificate_pem, authority_pem, signer_der };
            frames.send(answer).await.unwrap();
        }
    }

    fn now() -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(clock::unix_millis()).unwrap()
    }

    fn authority() -> Authority {
        Authority::load(&Authority::generate(now()).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_token_of_another_server_is_told_as_such_and_nobody_is_said_to_have_refused() {
        let (server, dir) = (Server::new().await, tempfile::tempdir().unwrap());
        let options = server.options(dir.path());
        let token = JoinToken { authority_fingerprint: "ab".repeat(32), ..server.token() };
        let agent = "a-1".parse().unwrap();
        let serving = async {
            let (tcp, _) = server.listener.accept().await.unwrap();
            let _ = server.acceptor.accept(tcp).await;
        };

        let (_, tried) = tokio::join!(serving, attempt(&options, &token, &agent));

        let Err(Failure::ForGood(error)) = tried else { panic!("trying again cannot help") };
        assert!(
            error.to_string().starts_with(&format!("{} has another authority than the join token", options.server)),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_answer_that_names_another_authority_than_the_token_leaves_nothing_behind() {
        let (server, dir) = (Server::new().await, tempfile::tempdir().unwrap());
        let (options, agent) = (server.options(dir.path()), "a-1".parse().unwrap());
        let (token, foreign) = (server.token(), authority());
        for named in [foreign.certificate_pem(), "no certificate"] {
            let (_, tried) =
                tokio::join!(server.enrol(named, Some(server.signer_der())), attempt(&options, &token, &agent));

            assert!(matches!(tried, Err(Failure::ForGood(AgentError::OtherAuthority { .. }))));
            let left: Vec<_> = std::fs::read_dir(dir.path().join("identity")).unwrap().collect();
            assert_eq!(left.len(), 1, "the key alone: {left:?}");
        }

        let named = server.authority.certificate_pem();
        let serving = server.enrol(named, Some(server.signer_der()));
        let (_, tried) = tokio::join!(serving, attempt(&options, &token, &agent));

        assert!(tried.is_ok());
        assert!(crate::is_enrolled(dir.path()));
    }

    #[tokio::test]
    async fn a_server_that_signs_by_its_token_and_shows_no_key_enrols_nobody() {
        let (server, dir) = (Server::new().await, tempfile::tempdir().unwrap());
        let (options, agent) = (server.options(dir.path()), "a-1".parse().unwrap());
        let (token, named) = (server.token(), server.authority.certificate_pem());
        let of_earlier_release = JoinToken { id: "0123456789abcdef".to_owned(), ..token.clone() };

        let (_, tried) = tokio::join!(server.enrol(named, None), attempt(&options, &token, &agent));
        assert!(matches!(tried, Err(Failure::ForGood(AgentError::NoSigner { .. }))));
        assert!(!crate::is_enrolled(dir.path()));

        let (_, tried) = tokio::join!(server.enrol(named, None), attempt(&options, &of_earlier_release, &agent));
        assert!(tried.is_ok());
        assert!(crate::is_enrolled(dir.path()));
    }
}
