//! Enrolment: once in the life of a state directory.

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proctor_pki::JoinToken;
use proctor_runtime::{Backoff, chain};
use proctor_wire::{AgentCodec, FromAgent, FromServer, NoSession, WireError, framed};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::identity::{Found, Identity};
use crate::{Options, RelayError, explain};

const ATTEMPT_LIMIT: Duration = Duration::from_secs(15);

/// Why an attempt failed: some causes go away by themselves.
enum Failure {
    ForGood(RelayError),
    /// This server is not the one of the join token; another upstream may be.
    OtherAuthority(String),
    Passing(String),
}

impl Failure {
    /// On the way to this server.
    fn of_link(error: &(dyn Error + 'static), server: &str) -> Self {
        Self::Passing(explain(error, server))
    }
}

impl<E: Error> From<E> for Failure {
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
            tracing::warn!(%relay, %expired_at, "relay certificate expired, enrolling again");
            RelayError::Expired { relay, expired_at }
        }
        Found::Nothing => RelayError::NoToken,
    };
    let token: JoinToken = options.token.as_deref().ok_or(without_token)?.parse()?;
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let mut of_others = HashSet::new();
    for server in options.upstreams.iter().cycle() {
        let reason = match tokio::time::timeout(ATTEMPT_LIMIT, Box::pin(attempt(options, server, &token))).await {
            Ok(Ok(())) => break,
            Ok(Err(Failure::ForGood(error))) => return Err(error),
            Ok(Err(Failure::OtherAuthority(reason))) => {
                of_others.insert(server);
                if options.upstreams.iter().all(|server| of_others.contains(server)) {
                    return Err(RelayError::OtherAuthority { reason });
                }
                reason
            }
            Ok(Err(Failure::Passing(reason))) => reason,
            Err(_) => explain(&NoSession::Silent, server),
        };
        tracing::warn!(server, reason, "cannot enrol yet, retrying");
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
    let broken = |error: WireError| Failure::of_link(&error, server);
    let tcp = TcpStream::connect(server).await.map_err(|error| Failure::of_link(&error, server))?;
    let tls = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await.map_err(|error| {
        if proctor_pki::is_other_authority(&error) {
            return Failure::OtherAuthority(explain(&error, server));
        }
        Failure::of_link(&error, server)
    })?;
    let mut frames = framed(tls, AgentCodec::enrolment());
    let (token_id, token_secret) = (token.id.clone(), token.secret.clone());
    frames
        .send(FromAgent::EnrolRelay { token_id, token_secret, csr_der, cloud: options.cloud })
        .await
        .map_err(broken)?;
    let answer = match frames.next().await {
        Some(answer) => answer.map_err(broken)?,
        None => return Err(Failure::of_link(&NoSession::Closed, server)),
    };
    let FromServer::RelayEnrolled { relay, certificate_pem, authority_pem } = answer else {
        return Err(match NoSession::answered(answer) {
            NoSession::Refused { reason, retry: false } => Failure::ForGood(RelayError::Refused { reason }),
            other @ (NoSession::Refused { .. }
            | NoSession::Connect(_)
            | NoSession::Silent
            | NoSession::Stuck
            | NoSession::Closed
            | NoSession::Busy(_)
            | NoSession::Broken(_)) => Failure::of_link(&other, server),
        });
    };
    let found = proctor_pki::certificate_fingerprint(&authority_pem);
    if !found.is_ok_and(|found| proctor_pki::secrets_match(&found, &token.authority_fingerprint)) {
        let reason = format!(
            "{server} enrolled this relay with another authority than the join token names, so nothing was kept: something \
             between this host and the server may have changed the answer"
        );
        return Err(Failure::ForGood(RelayError::OtherAuthority { reason }));
    }
    Ok(Identity::save(&options.state_dir, &relay, options.cloud, &certificate_pem, &authority_pem)?)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proctor_pki::Authority;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn options(upstreams: Vec<String>, token: &JoinToken, state_dir: &std::path::Path) -> Options {
        Options {
            upstreams,
            listen: ([127, 0, 0, 1], 0).into(),
            token: Some(token.to_string()),
            cloud: 0,
            state_dir: state_dir.to_owned(),
            connections: 1,
            agents_max: 1,
        }
    }

    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    /// A server with an authority that no join token names.
    async fn serve_as_other(listener: TcpListener) -> Infallible {
        let now = jiff::Timestamp::from_millisecond(proctor_runtime::clock::unix_millis()).unwrap();
        let authority = Authority::load(&Authority::generate(now).unwrap()).unwrap();
        let (config, _) = proctor_pki::server_config(&authority, now).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let _ = acceptor.accept(tcp).await;
        }
    }

    #[tokio::test]
    async fn a_mistyped_token_ends_the_relay_with_words_that_say_what_to_do() {
        let (listener, server) = listener().await;
        let dir = tempfile::tempdir().unwrap();
        let token = JoinToken::generate(&"ab".repeat(32)).unwrap();
        let options = options(vec![server.clone()], &token, dir.path());

        let enrolled = async {
            tokio::select! {
                enrolled = identity(&options) => enrolled,
                never = serve_as_other(listener) => match never {},
            }
        };
        let refused = tokio::time::timeout(PATIENCE, enrolled).await.expect("trying again cannot help").unwrap_err();

        assert_eq!(
            refused.to_string(),
            format!(
                "{server} has another authority than the join token names: was the token mistyped, made by another server, or \
                 made before its authority was replaced?"
            )
        );
    }

    #[tokio::test]
    async fn one_upstream_of_another_authority_does_not_keep_a_relay_from_the_next() {
        let ((other, other_address), (next, next_address)) = (listener().await, listener().await);
        let dir = tempfile::tempdir().unwrap();
        let token = JoinToken::generate(&"ab".repeat(32)).unwrap();
        let options = options(vec![other_address, next_address], &token, dir.path());

        let asked = async {
            tokio::select! {
                ended = identity(&options) => panic!("it ended: {:?}", ended.err()),
                never = serve_as_other(other) => match never {},
                asked = next.accept() => asked,
            }
        };

        tokio::time::timeout(PATIENCE, asked).await.expect("the next one is asked").unwrap();
    }
}
