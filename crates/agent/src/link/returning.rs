//! Comes back after an absence longer than the certificate's validity.
//!
//! Promised: the server is the one of this agent's authority, and the agent proves itself with its own key; nothing
//! is sent to anybody else, and a certificate that is not for this agent's key and id changes nothing.
//! Absent: the permission to come back, which an operator gives on the server.

use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use proctor_runtime::prepare_link;
use proctor_wire::{AgentCodec, CONNECT_LIMIT, Counted, FromAgent, FromServer, NoSession, framed};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Link, SessionEnd, within_limit};
use crate::connect_error;

impl Link {
    /// Replaces the expired certificate, or says why there is no new one.
    pub(super) async fn come_back(&self, server: &str, expired_at: jiff::Timestamp) -> Result<(), SessionEnd> {
        let dial = Box::pin(TcpStream::connect(server));
        let asked = within_limit(CONNECT_LIMIT, dial, |tcp| Box::pin(self.ask_to_return(tcp))).await;
        match asked {
            Ok(certificate_pem) => self.take_back(&certificate_pem, expired_at),
            // The waits follow what the server says.
            Err(SessionEnd::Link(NoSession::Refused { reason, retry })) => {
                let reason = connect_error::expired(expired_at, &reason);
                Err(NoSession::Refused { reason, retry }.into())
            }
            Err(SessionEnd::Link(no_session)) => {
                let why = connect_error::explain(&no_session, server);
                tracing::warn!(server, why = connect_error::expired(expired_at, &why), "cannot come back");
                Err(no_session.into())
            }
            Err(other) => Err(other),
        }
    }

    async fn ask_to_return(&self, tcp: TcpStream) -> Result<String, SessionEnd> {
        let identity = &self.identity;
        prepare_link(&tcp)?;
        let config = proctor_pki::return_config(&identity.authorities_pem())?;
        let connector = TlsConnector::from(Arc::new(config));
        let tls = connector.connect(proctor_pki::server_name(), Counted::new(tcp)).await?;
        let mut frames = framed(tls, AgentCodec::enrolment());
        let certificate_der = proctor_pki::certificate_der(&identity.current_certificate())?;
        frames.send(FromAgent::Return { certificate_der }).await?;
        let answer = frames.next().await.ok_or(NoSession::Closed)??;
        let FromServer::Challenge { nonce } = answer else { return Err(NoSession::answered(answer).into()) };
        frames.send(FromAgent::Signed(proctor_pki::seal_return(&identity.key, &nonce)?)).await?;
        let answer = frames.next().await.ok_or(NoSession::Closed)??;
        let FromServer::Renewed { certificate_pem } = answer else { return Err(NoSession::answered(answer).into()) };
        Ok(certificate_pem)
    }

    fn take_back(&self, certificate_pem: &str, expired_at: jiff::Timestamp) -> Result<(), SessionEnd> {
        // What cannot be used must not replace what is merely too old.
        proctor_pki::session_config(&self.identity.authorities_pem(), certificate_pem, &self.identity.key)?;
        self.identity.renew(certificate_pem)?;
        tracing::info!(%expired_at, "expired certificate replaced");
        Ok(())
    }
}
