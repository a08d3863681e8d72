//! What a failed connection means and what to do, in one line.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// Of an error on the way to the server's link; the error's own words where there are no better ones.
pub(crate) fn explain(error: &(dyn Error + 'static), server: &str) -> String {
    match cause::<rustls::Error>(error).and_then(of_tls) {
        Some(words) => format!("{server} {words}"),
        None => match cause::<io::Error>(error).map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => {
                format!("{server} refuses connections: does the server run, and is this its link port?")
            }
            Some(_) | None => proctor_runtime::chain(error),
        },
    }
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
            "is not the server that this agent enrolled with: check the address, or remove the identity directory and \
             enrol again"
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "has a certificate that expired by this host's clock: check the clock; restart the server to renew it"
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
            "does not accept this agent's certificate: it is of another server; remove the identity directory and enrol \
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
}
