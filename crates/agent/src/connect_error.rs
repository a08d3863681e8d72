//! What a failed connection means and what to do, in one line.

use std::error::Error;
use std::io;

use proctor_wire::{NoSession, WireError};
use rustls::{AlertDescription, CertificateError};

/// Of an error on the way to the server's link or on the link; the error's own words where there are no better ones.
pub(crate) fn explain(error: &(dyn Error + 'static), server: &str) -> String {
    let tls = cause::<rustls::Error>(error).and_then(of_tls);
    let words = tls.or_else(|| cause::<io::Error>(error).and_then(|io| of_io(io, cause::<WireError>(error).is_some())));
    let words = words.or_else(|| cause::<NoSession>(error).and_then(of_session));
    words.map_or_else(|| proctor_runtime::chain(error), |words| format!("{server} {words}"))
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

/// `is_open`: TLS had been agreed on.
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

/// Whether trying again cannot help: the token names another server.
pub(crate) fn is_other_authority(error: &io::Error) -> bool {
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
fn of_tls(error: &rustls::Error) -> Option<&'static str> {
    Some(match error {
        rustls::Error::InvalidMessage(_) => {
            "does not speak TLS: is it the server's HTTP port? Give its link port (proctor server --link, 9077 if not set)"
        }
        rustls::Error::NoApplicationProtocol
        | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "speaks TLS, but is no link of a Proctor server: check the address and the port"
        }
        rustls::Error::InvalidCertificate(CertificateError::Other(_)) => {
            "has another authority than the join token names: was the token mistyped, or made by another server?"
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "is not the server that this agent enrolled with: check the address, or remove the state directory and \
             enrol again"
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "has a certificate that expired by this host's clock: check the clocks of both; else restart the server to renew it"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "has a certificate that is not valid yet by this host's clock: check the clock",
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => EXPIRED,
        rustls::Error::AlertReceived(
            AlertDescription::CertificateUnknown
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError,
        ) => {
            "does not accept this agent's certificate: it is of another server; remove the state directory and enrol \
             again"
        }
        _ => return None,
    })
}

const EXPIRED: &str = "does not accept this agent's certificate any more, it has expired: check the clocks; else remove \
                       identity/certificate.pem from the state directory and start the agent with a join token (it keeps its key \
                       and its host)";

/// What an agent says of its own certificate before it tries.
pub(crate) fn expired(since: jiff::Timestamp) -> String {
    format!(
        "this agent's certificate expired at {since}: check the clock; else remove identity/certificate.pem from the \
         state directory and start the agent with a join token (it keeps its key and its host)"
    )
}

/// The address of a link as people write it: `HOST:PORT`, nothing else.
pub fn parse_link(text: &str) -> Result<String, String> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let host = rest.split(['/', ':']).next().unwrap_or_default();
        return Err(format!(
            "is a URL ({scheme}); give HOST:PORT of the server's link, such as {host}:9077, not of its API"
        ));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') && !host.starts_with('[') => {
            return Err(format!("needs brackets around the IPv6 address, such as [{text}]:9077"));
        }
        Some((host, port)) => (host, port),
        None => return Err(format!("has no port: give HOST:PORT of the server's link, such as {text}:9077")),
    };
    if host.is_empty() || port.parse::<u16>().is_ok_and(|port| port == 0) || port.parse::<u16>().is_err() {
        return Err("is not HOST:PORT with a port of 1 to 65535".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;

    use super::*;

    #[test]
    fn an_address_without_a_port_or_with_a_scheme_says_what_to_write() {
        assert_eq!(parse_link("10.0.0.1:9077"), Ok("10.0.0.1:9077".to_owned()));
        assert_eq!(parse_link("[::1]:9077"), Ok("[::1]:9077".to_owned()));
        let problems = [
            ("10.0.0.1", "has no port: give HOST:PORT of the server's link, such as 10.0.0.1:9077"),
            (
                "https://a.b:8080/x",
                "is a URL (https); give HOST:PORT of the server's link, such as a.b:9077, not of its API",
            ),
            ("::1", "needs brackets around the IPv6 address, such as [::1]:9077"),
            (":9077", "is not HOST:PORT with a port of 1 to 65535"),
            ("a:0", "is not HOST:PORT with a port of 1 to 65535"),
            ("a:b", "is not HOST:PORT with a port of 1 to 65535"),
        ];
        for (text, problem) in problems {
            assert_eq!(parse_link(text), Err(problem.to_owned()));
        }
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
            let config = proctor_pki::enrol_config(&"ab".repeat(32)).unwrap();
            let tcp = TcpStream::connect(address).await.unwrap();
            TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), tcp).await
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
        assert_eq!(explain(&refused, "h:1"), "the server refused: the agent's certificate was revoked");
    }
}
