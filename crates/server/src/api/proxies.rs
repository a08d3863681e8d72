//! Who sent a request that came through proxies.
//!
//! Promised: a header counts only from a trusted proxy, and only the one header that an operator chose: a proxy that
//! writes one of them passes the other through unchanged. Of its addresses, the right-most that is not a trusted
//! proxy is the caller; everything to the left was written by the caller. An address that cannot be parsed counts as
//! none, never as the proxy's, and so does a missing header.
//! Absent: the PROXY protocol.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;

use super::settings::Networks;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Proxies in front, and how they report whom they forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    pub networks: Networks,
    pub header: ProxyHeader,
}

/// The header that the proxies write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`, and `X-Forwarded-Proto`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// The connection that a request came over is encrypted.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverTls;

/// Who sent a request, and how it reached the first of our proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// None if that cannot be determined.
    pub(super) from: Option<IpAddr>,
    pub(super) is_https: bool,
}

/// One hop as a proxy wrote it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hop {
    from: Option<IpAddr>,
    is_https: bool,
}

impl TrustedProxies {
    pub(super) fn resolve(&self, peer: Option<IpAddr>, is_tls: bool, headers: &HeaderMap) -> Reached {
        let own = Reached { from: peer, is_https: is_tls };
        let Some(_) = peer.filter(|peer| self.networks.contain(*peer)) else { return own };
        let hops = match self.header {
            ProxyHeader::XForwardedFor => x_forwarded(headers),
            ProxyHeader::Forwarded => forwarded(headers),
        };
        // A proxy that does not say whom it forwards forwards nobody: its own address would open what is open to it.
        let mut reached = Reached { from: None, ..own };
        for hop in hops.into_iter().rev() {
            reached = Reached { from: hop.from, is_https: hop.is_https };
            if !hop.from.is_some_and(|from| self.networks.contain(from)) {
                break;
            }
        }
        reached
    }
}

/// Attaches [`Reached`] to every request.
pub(super) async fn resolve(State(proxies): State<TrustedProxies>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip().to_canonical());
    let is_tls = request.extensions().get::<OverTls>().is_some();
    let reached = proxies.resolve(peer, is_tls, request.headers());
    request.extensions_mut().insert(reached);
    next.run(request).await
}

/// Lines of one header are one list.
fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    // A line that is no text has an address that cannot be read.
    headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?")).collect()
}

fn x_forwarded(headers: &HeaderMap) -> Vec<Hop> {
    let proto = lines(headers, &X_FORWARDED_PROTO).last().and_then(|line| line.rsplit(',').next());
    let is_https = proto.is_some_and(|proto| proto.trim().eq_ignore_ascii_case("https"));
    let addresses = lines(headers, &X_FORWARDED_FOR);
    let addresses = addresses.iter().flat_map(|line| line.split(','));
    addresses.map(|text| Hop { from: address(text.trim()), is_https }).collect()
}

fn forwarded(headers: &HeaderMap) -> Vec<Hop> {
    let lines = lines(headers, &HeaderName::from_static("forwarded"));
    lines.iter().flat_map(|line| outside_quotes(line, ',')).map(hop).collect()
}

fn hop(element: &str) -> Hop {
    let mut hop = Hop::default();
    for pair in outside_quotes(element, ';') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        let (name, value) = (name.trim(), unquoted(value.trim()));
        if name.eq_ignore_ascii_case("for") {
            hop.from = address(value);
        } else if name.eq_ignore_ascii_case("proto") {
            hop.is_https = value.eq_ignore_ascii_case("https");
        }
    }
    hop
}

/// Parts between separators; a quoted string may hold them, too.
fn outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            c if c == separator && !is_quoted => {
                parts.push(&text[begin..at]);
                begin = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// No address needs an escape: one with any is not read.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// With or without a port and brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = || text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let alone = text.parse().ok().or_else(|| bracketed()?.parse().ok());
    let address = alone.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(header: ProxyHeader) -> TrustedProxies {
        TrustedProxies { networks: "10.0.0.0/8,::1".parse().unwrap(), header }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn from(header: ProxyHeader, peer: &str, pairs: &[(&'static str, &'static str)]) -> Option<String> {
        let reached = proxies(header).resolve(Some(peer.parse().unwrap()), false, &headers(pairs));
        reached.from.map(|from| from.to_string())
    }

    #[test]
    fn the_right_most_address_that_is_no_proxy_is_the_caller() {
        let cases: [(&'static str, Option<&str>); 9] = [
            ("203.0.113.9", Some("203.0.113.9")),
            ("198.51.100.1, 203.0.113.9", Some("203.0.113.9")),
            ("198.51.100.1, 203.0.113.9, 10.9.9.9", Some("203.0.113.9")),
            ("10.1.1.1, 10.9.9.9", Some("10.1.1.1")),
            ("203.0.113.9:4711", Some("203.0.113.9")),
            ("[2001:db8::7]:4711,10.0.0.2", Some("2001:db8::7")),
            ("::ffff:203.0.113.9", Some("203.0.113.9")),
            ("203.0.113.9, unknown, 10.9.9.9", None),
            ("203.0.113.9,", None),
        ];
        for (value, expected) in cases {
            let found = from(ProxyHeader::XForwardedFor, "10.0.0.2", &[("x-forwarded-for", value)]);

            assert_eq!(found.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn the_standard_header_is_read_with_its_quotes_and_parameters() {
        let cases: [(&'static str, Option<&str>); 7] = [
            ("for=203.0.113.9", Some("203.0.113.9")),
            ("For=\"[2001:db8::7]:4711\";proto=https;by=10.0.0.2", Some("2001:db8::7")),
            ("for=198.51.100.1, for=203.0.113.9;host=\"a,b;for=10.1.1.1\"", Some("203.0.113.9")),
            ("for=203.0.113.9, for=10.9.9.9", Some("203.0.113.9")),
            ("for=203.0.113.9, for=_hidden", None),
            ("for=203.0.113.9, proto=https", None),
            ("for=203.0.113.9, for=\"unended, for=10.9.9.9", None),
        ];
        for (value, expected) in cases {
            let found = from(ProxyHeader::Forwarded, "10.0.0.2", &[("forwarded", value)]);

            assert_eq!(found.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_header_of_anyone_else_or_one_that_was_not_chosen_is_ignored() {
        let both = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=198.51.100.1")];

        assert_eq!(from(ProxyHeader::XForwardedFor, "192.0.2.1", &both).as_deref(), Some("192.0.2.1"));
        assert_eq!(from(ProxyHeader::XForwardedFor, "10.0.0.2", &both).as_deref(), Some("203.0.113.9"));
        assert_eq!(from(ProxyHeader::Forwarded, "10.0.0.2", &both).as_deref(), Some("198.51.100.1"));
        assert_eq!(from(ProxyHeader::Forwarded, "10.0.0.2", &both[..1]), None);
        assert_eq!(from(ProxyHeader::XForwardedFor, "10.0.0.2", &[]), None);
    }

    #[test]
    fn several_lines_are_one_list() {
        let two = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.9, 10.9.9.9")];

        assert_eq!(from(ProxyHeader::XForwardedFor, "10.0.0.2", &two).as_deref(), Some("203.0.113.9"));
    }

    #[test]
    fn the_scheme_is_that_of_the_outermost_trusted_hop() {
        let is_https = |header, peer: &str, is_tls, pairs: &[(&'static str, &'static str)]| {
            proxies(header).resolve(Some(peer.parse().unwrap()), is_tls, &headers(pairs)).is_https
        };
        let x = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-proto", "https")];
        let standard = [("forwarded", "for=203.0.113.9;proto=https, for=10.9.9.9;proto=http")];

        assert!(is_https(ProxyHeader::XForwardedFor, "10.0.0.2", false, &x));
        assert!(!is_https(ProxyHeader::XForwardedFor, "192.0.2.1", false, &x));
        assert!(is_https(ProxyHeader::XForwardedFor, "192.0.2.1", true, &[]));
        assert!(is_https(ProxyHeader::Forwarded, "10.0.0.2", false, &standard));
    }
}
