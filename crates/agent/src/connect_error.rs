//! What a failed connection means and what to do, in one line: `proctor_pki`'s explanation if it has one.

use std::error::Error;

use proctor_pki::LinkClient;

/// For an error on the way to the server's link or on the link; the error's own text if there is no better one.
pub(crate) fn explain(error: &(dyn Error + 'static), server: &str) -> String {
    proctor_pki::explain_link(error, server, LinkClient::Agent).unwrap_or_else(|| proctor_runtime::chain(error))
}

/// What an agent reports about its own certificate, and why it got no new one.
pub(crate) fn expired(since: jiff::Timestamp, why: &str) -> String {
    format!("this agent's certificate expired at {since} (check the clock), and it got no new one: {why}")
}

/// The address of a link as users write it: `HOST:PORT`, nothing else.
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
}
