//! Which addresses a webhook may reach: not this machine, not its neighbours, not a cloud's metadata.
//!
//! Promised: the address that is connected to is the one that was checked, whatever a name resolves to later.
//! Absent: private networks are not refused, since receivers mostly live there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use proctor_model::FieldError;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::url::WebhookUrl;
use crate::api::Networks;

/// What operators allow besides; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Reach(Arc<Networks>);

impl Reach {
    pub fn new(allowed: Networks) -> Self {
        Self(Arc::new(allowed))
    }

    /// What is wrong with an address that stands in the URL itself.
    pub fn check(&self, url: &WebhookUrl) -> Result<(), FieldError> {
        let Some(address) = url.address() else { return Ok(()) };
        self.refusal(address).map_or(Ok(()), |problem| Err(FieldError::new("url", problem)))
    }

    fn refusal(&self, address: IpAddr) -> Option<String> {
        let kind = forbidden(address).filter(|_| !self.0.contain(address))?;
        Some(format!("{address} is {kind}: allow it with --webhook-allow of the server if it is meant"))
    }
}

/// What an address is that a webhook must not reach.
fn forbidden(address: IpAddr) -> Option<&'static str> {
    let address = embedded_v4(address).unwrap_or(address);
    match address {
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_unspecified() => Some("no address of one host"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 || v4.is_broadcast() => Some("no address of one host"),
        IpAddr::V4(v4) if v4.is_link_local() => Some("a link-local address, where clouds serve their metadata"),
        IpAddr::V4(v4) if v4 == ALIBABA_METADATA => Some("the metadata service of a cloud"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("a link-local address"),
        IpAddr::V6(v6) if v6 == EC2_METADATA => Some("the metadata service of a cloud"),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

const ALIBABA_METADATA: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
const EC2_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// The IPv4 address that an IPv6 one leads to: mapped, compatible, NAT64 (RFC 6052) or 6to4.
fn embedded_v4(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let segments = v6.segments();
    let v4 = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Resolves names, and leaves only what may be reached; the connection is made to one of those.
impl Resolve for Reach {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let refused = found.first().and_then(|address| reach.refusal(address.ip()));
            let allowed: Vec<SocketAddr> =
                found.into_iter().filter(|address| reach.refusal(address.ip()).is_none()).collect();
            if let (true, Some(problem)) = (allowed.is_empty(), refused) {
                return Err(format!("'{}' leads to {problem}", name.as_str()).into());
            }
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(reach: &Reach, address: &str) -> bool {
        reach.refusal(address.parse().unwrap()).is_some()
    }

    #[test]
    fn this_machine_its_neighbours_and_metadata_are_refused_in_every_spelling() {
        let reach = Reach::default();
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "::7f00:1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
        ] {
            assert!(is_refused(&reach, bad), "{bad}");
        }
        for good in ["10.0.0.1", "192.168.1.1", "192.0.2.1", "8.8.8.8", "fd00::1", "2001:db8::1", "64:ff9b::808:808"] {
            assert!(!is_refused(&reach, good), "{good}");
        }
    }

    #[test]
    fn what_is_allowed_is_allowed_alone() {
        let reach = Reach::new("127.0.0.0/8".parse().unwrap());

        assert!(!is_refused(&reach, "127.0.0.1"));
        assert!(!is_refused(&reach, "::ffff:127.0.0.1"));
        assert!(is_refused(&reach, "::1"));
        assert!(is_refused(&reach, "169.254.169.254"));
    }

    #[test]
    fn an_address_in_a_url_is_refused_at_once_and_says_how_to_allow_it() {
        for url in ["http://127.0.0.1:9/x", "http://[::1]/", "http://2130706433/", "https://0x7f.1/"] {
            let error = Reach::default().check(&url.parse().unwrap()).unwrap_err();

            assert_eq!(error.field, "url", "{url}");
            assert!(error.problem.contains("--webhook-allow"), "{}", error.problem);
        }
        assert!(Reach::default().check(&"https://alerts.example.com/".parse().unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_refused_where_it_is_resolved() {
        let refused = Reach::default().resolve("localhost".parse().unwrap()).await.err().unwrap();
        let allowed = Reach::new("127.0.0.0/8,::1".parse().unwrap()).resolve("localhost".parse().unwrap()).await;

        assert!(refused.to_string().contains("loopback"), "{refused}");
        assert!(allowed.unwrap().all(|address| address.ip().is_loopback()));
    }
}
