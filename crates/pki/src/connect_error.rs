//! What a failed connection to a server's link means and what to do, in one line: for agents and relays.
//!
//! Absent: texts for what neither TLS, sockets nor a session report; their errors are clear enough.

use std::error::Error;
use std::io;

use proctor_wire::{NoSession, WireError};
use rustls::{AlertDescription, CertificateError};

/// Who connects to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkClient {
    Agent,
    Relay,
}

/// Explains an error on the way to the server's link or on the link; None if the error's own text is as good.
pub fn explain_link(error: &(dyn Error + 'static), server: &str, client: LinkClient) -> Option<String> {
    let tls = cause::<rustls::Error>(error).and_then(|error| of_tls(error, client));
    let words = tls.or_else(|| cause::<io::Error>(error).and_then(|io| of_io(io, cause::<WireError>(error).is_some())));
    let words = words.or_else(|| cause::<NoSession>(error).and_then(of_session))?;
    Some(format!("{server} {words}"))
}

fn of_session(no_session: &NoSession) -> Option<&'static str> {
    match no_session {
        NoSession::Silent => {
            Some("does not answer: is it the server's link port, and does a firewall drop what is sent there?")
        }
        NoSession::Stuck => Some("takes nothing any more: the server hangs, or the network lost the connection"),
        NoSession::Closed => Some("closed the connection: the server is ending, or its log says why"),
        NoSession::Connect(_) | NoSession::Busy(_) | NoSession::Refused { .. } | NoSession::Broken(_) => None,
    }
}

/// `is_open`: TLS had been established.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; the others speak for themselves")]
fn of_io(error: &io::Error, is_open: bool) -> Option<&'static str> {
    Some(match error.kind() {
        io::ErrorKind::ConnectionRefused => "refuses connections: does the server run, and is this its link port?",
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe if is_open => {
            "cut the connection: the server was killed or restarted, or something between cuts idle connections"
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "closed the connection before TLS was agreed on: is it the server's link port, and is the server overloaded?"
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut => {
            "cannot be reached from this host: check the address, the routes and the firewalls"
        }
        _ if error.to_string().starts_with("failed to lookup address") => {
            "has a name that this host cannot resolve: check the address and DNS"
        }
        _ => return None,
    })
}

/// Whether retrying cannot help: the token names another server.
pub fn is_other_authority(error: &io::Error) -> bool {
    let is_other =
        |error: &rustls::Error| matches!(error, rustls::Error::InvalidCertificate(CertificateError::Other(_)));
    cause::<rustls::Error>(error).is_some_and(is_other)
}

/// The first cause of this type. What is wrapped in an `io::Error` is not among its sources.
fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inside.map(|inside| inside as &(dyn Error + 'static)).or_else(|| error.source());
    }
    None
}

#[expect(clippy::wildcard_enum_match_arm, reason = "foreign enums; the others speak for themselves")]
fn of_tls(error: &rustls::Error, client: LinkClient) -> Option<&'static str> {
    Some(match error {
        rustls::Error::InvalidMessage(_) => {
            "does not speak TLS: is it the server's HTTP port? Give its link port (proctor server --link, 9077 if not set)"
        }
        rustls::Error::NoApplicationProtocol
        | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "speaks TLS, but is no link of a Proctor server: check the address and the port"
        }
        rustls::Error::InvalidCertificate(CertificateError::Other(_)) => {
            "has another authority than the join token names: was the token mistyped, made by another server, or made before its authority was replaced?"
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            match client {
                LinkClient::Agent => {
                    "is not the server that this agent enrolled with: check the address, or remove the state directory \
                     and enrol again"
                }
                LinkClient::Relay => {
                    "is not the server that this relay enrolled with: check the address, or remove the state directory \
                     and enrol again"
                }
            }
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "has a certificate that expired by this host's clock: check the clocks of both; else restart the server to renew it"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "has a certificate that is not valid yet by this host's clock: check the clock",
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => expired(client),
        rustls::Error::AlertReceived(
            AlertDescription::CertificateUnknown
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError,
        ) => match client {
            LinkClient::Agent => {
                "does not accept this agent's certificate: it is of another server; remove the state directory and \
                     enrol again"
            }
            LinkClient::Relay => {
                "does not accept this relay's certificate: it is of another server; remove the state directory and \
                     enrol again"
            }
        },
        _ => return None,
    })
}

fn expired(client: LinkClient) -> &'static str {
    match client {
        LinkClient::Agent => {
            "does not accept this agent's certificate any more, it has expired: check the clocks; else remove \
             identity/certificate.pem from the state directory and start the agent with a join token (it keeps its key and \
             its host)"
        }
        LinkClient::Relay => {
            "does not accept this relay's certificate any more, it has expired: check the clocks; else start the relay \
             with a token of `proctor token create --relay --cloud-id N` (it keeps its name)"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;

    use super::*;

    fn explain(error: &(dyn Error + 'static), server: &str) -> String {
        explain_link(error, server, LinkClient::Agent).unwrap_or_default()
    }

    #[tokio::test]
    async fn an_http_port_is_recognised() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        };
        let connect = async {
            let config = crate::enrol_config(&"ab".repeat(32)).unwrap();
            let tcp = TcpStream::connect(address).await.unwrap();
            TlsConnector::from(Arc::new(config)).connect(crate::server_name(), tcp).await
        };

        let (_, connected) = tokio::join!(answer, connect);

        let words = explain(&connected.unwrap_err(), "h:1");
        assert!(words.starts_with("h:1 does not speak TLS: is it the server's HTTP port?"), "{words}");
    }

    #[test]
    fn errors_of_tls_are_told_in_words_and_never_as_debug() {
        let of = |error: rustls::Error| explain(&io::Error::other(error), "h:1");

        let expired = of(rustls::Error::AlertReceived(AlertDescription::CertificateExpired));
        let foreign = of(CertificateError::UnknownIssuer.into());

        assert!(expired.contains("it has expired") && expired.contains("identity/certificate.pem"), "{expired}");
        assert!(foreign.contains("is not the server that this agent enrolled with"), "{foreign}");
        let of_relay = io::Error::other(rustls::Error::AlertReceived(AlertDescription::CertificateExpired));
        let of_relay = explain_link(&of_relay, "h:1", LinkClient::Relay).unwrap();
        assert!(of_relay.contains("this relay's") && of_relay.contains("token create --relay"), "{of_relay}");
        let refused = explain(&io::Error::from(io::ErrorKind::ConnectionRefused), "h:1");
        assert_eq!(refused, "h:1 refuses connections: does the server run, and is this its link port?");
    }

    #[test]
    fn a_connection_that_ends_early_is_told_in_words_of_people() {
        let eof =
            || io::Error::new(io::ErrorKind::UnexpectedEof, "peer closed connection without sending TLS close_notify");
        let wire = |error| NoSession::Broken(WireError::Io(error));

        let told = [
            explain(&NoSession::Connect(eof()), "h:1"),
            explain(&eof(), "h:1"),
            explain(&wire(eof()), "h:1"),
            explain(&wire(io::ErrorKind::ConnectionReset.into()), "h:1"),
            explain(&NoSession::Connect(io::ErrorKind::HostUnreachable.into()), "h:1"),
            explain(&NoSession::Connect(io::Error::other("failed to lookup address information: ...")), "h:1"),
            explain(&NoSession::Closed, "h:1"),
            explain(&NoSession::Silent, "h:1"),
        ];

        for words in told {
            assert!(words.starts_with("h:1 ") && words.contains(": "), "{words}");
            assert!(!words.contains("close_notify") && !words.contains("Unexpected"), "{words}");
        }
        let refused = NoSession::Refused { reason: "the agent's certificate was revoked".to_owned(), retry: false };
        assert_eq!(explain_link(&refused, "h:1", LinkClient::Agent), None, "the server's words are as good");
    }
}
