//! Which addresses a webhook may reach: the public internet, and what the operator allows.
//!
//! Promised: everything else is rejected, so that nobody who may add a webhook can use the server to reach this
//! machine, its networks or a cloud's metadata. The address connected to is the one that was checked, whatever a name
//! resolves to later.
//! Absent: NAT64 prefixes that a network chose for itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use proctor_model::{FieldError, Message, messages};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::url::WebhookUrl;
use crate::api::Networks;

/// What operators allow besides; clones share it.
#[derive(Clone, Debug, Default)]
pub struct AddressFilter(Arc<Networks>);

impl AddressFilter {
    pub fn new(allowed: Networks) -> Self {
        Self(Arc::new(allowed))
    }

    /// What is wrong with an address in the URL itself.
    pub fn check(&self, url: &WebhookUrl) -> Result<(), FieldError> {
        let Some(address) = url.address() else { return Ok(()) };
        self.refusal(address).map_or(Ok(()), |problem| Err(FieldError::new("url", problem)))
    }

    fn refusal(&self, address: IpAddr) -> Option<Message> {
        if self.0.contain(address) {
            return None;
        }
        let kind = forbidden(address).or_else(|| is_own(address).then_some(messages::own_address as Kind))?;
        Some(messages::address_not_allowed(address, kind()))
    }
}

/// What an address is, for who wanted to use it.
type Kind = fn() -> Message;

/// A part of the address space, and what it is.
type Part<A> = (A, u32, Kind);

const LOOPBACK: Kind = messages::loopback_address;
const LINK_LOCAL: Kind = messages::link_local_address;
const METADATA: Kind = messages::metadata_address;
const NO_HOST: Kind = messages::no_host_address;
const PRIVATE: Kind = messages::private_address;
const DOCUMENTATION: Kind = messages::documentation_address;
const PROTOCOLS: Kind = messages::protocol_address;
const BENCHMARKS: Kind = messages::benchmark_address;
const MULTICAST: Kind = messages::multicast_address;
const NOT_GLOBAL: Kind = messages::not_a_public_address;

/// What is not globally reachable by IANA's registry of special purposes; then public addresses at which clouds
/// serve what belongs to a machine.
const V4: [Part<Ipv4Addr>; 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, NO_HOST),
    (Ipv4Addr::new(10, 0, 0, 0), 8, PRIVATE),
    (Ipv4Addr::new(100, 100, 100, 200), 32, METADATA),
    (Ipv4Addr::new(100, 64, 0, 0), 10, PRIVATE),
    (Ipv4Addr::new(127, 0, 0, 0), 8, LOOPBACK),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LINK_LOCAL),
    (Ipv4Addr::new(172, 16, 0, 0), 12, PRIVATE),
    (Ipv4Addr::new(192, 0, 0, 0), 24, PROTOCOLS),
    (Ipv4Addr::new(192, 0, 2, 0), 24, DOCUMENTATION),
    (Ipv4Addr::new(192, 88, 99, 0), 24, PROTOCOLS),
    (Ipv4Addr::new(192, 168, 0, 0), 16, PRIVATE),
    (Ipv4Addr::new(198, 18, 0, 0), 15, BENCHMARKS),
    (Ipv4Addr::new(198, 51, 100, 0), 24, DOCUMENTATION),
    (Ipv4Addr::new(203, 0, 113, 0), 24, DOCUMENTATION),
    (Ipv4Addr::new(224, 0, 0, 0), 3, MULTICAST), // 224/4, and 240/4, which nobody uses
    (Ipv4Addr::new(168, 63, 129, 16), 32, METADATA),
];

/// Of IPv6 only 2000::/3 is global, without these; the others have names that say more.
const V6: [Part<Ipv6Addr>; 10] = [
    (Ipv6Addr::LOCALHOST, 128, LOOPBACK),
    (Ipv6Addr::UNSPECIFIED, 128, NO_HOST),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, MULTICAST),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, LINK_LOCAL),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32, METADATA),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0), 32, METADATA),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, PRIVATE),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, PROTOCOLS),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, DOCUMENTATION),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, DOCUMENTATION),
];

const GLOBAL_V6: Part<Ipv6Addr> = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, NOT_GLOBAL);

/// What an address is that a webhook must not reach.
fn forbidden(address: IpAddr) -> Option<Kind> {
    match embedded_v4(address).unwrap_or(address) {
        IpAddr::V4(v4) => {
            let holds =
                |(network, prefix, _): &&Part<Ipv4Addr>| (v4.to_bits() ^ network.to_bits()) >> (32 - prefix) == 0;
            V4.iter().find(holds).map(|(_, _, kind)| *kind)
        }
        IpAddr::V6(v6) => {
            let holds =
                |(network, prefix, _): &&Part<Ipv6Addr>| (v6.to_bits() ^ network.to_bits()) >> (128 - prefix) == 0;
            let kind = V6.iter().find(holds).map(|(_, _, kind)| *kind);
            kind.or_else(|| (!holds(&&GLOBAL_V6)).then_some(NOT_GLOBAL))
        }
    }
}

/// The IPv4 address that an IPv6 one leads to: mapped, compatible, NAT64 (RFC 6052), 6to4 or ISATAP.
fn embedded_v4(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let segments = v6.segments();
    let v4 = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        [.., 0 | 0x200, 0x5efe, high, low] if forbidden(v4(high, low)).is_some() => Some(v4(high, low)),
        _ => None,
    }
}

/// Also a public address may be one of this machine: what listens on it may trust who comes from here. A datagram
/// socket tells, without a packet: the kernel answers for its own addresses itself.
fn is_own(address: IpAddr) -> bool {
    let binds = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    // A machine that lets programs bind to any address would bind to this one, too.
    let nobodys: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    (binds(address) && !binds(nobodys)) || reaches_itself(address).unwrap_or(false)
}

fn reaches_itself(address: IpAddr) -> std::io::Result<bool> {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((address, 9))?;
    Ok(socket.local_addr()?.ip() == address)
}

/// Resolves names, and keeps only what may be reached; the connection goes to one of those.
impl Resolve for AddressFilter {
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

    fn is_refused(reach: &AddressFilter, address: &str) -> bool {
        reach.refusal(address.parse().unwrap()).is_some()
    }

    /// One row for each part of the address space that is not the public internet, in every spelling that leads there.
    #[test]
    fn only_the_public_internet_is_reached() {
        let reach = AddressFilter::default();
        for bad in [
            // This machine, and no machine.
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "255.255.255.255",
            "240.0.0.1",
            "254.1.1.1",
            // Metadata of clouds.
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            // Private, shared and link-local networks.
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.0.1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "fc00::1",
            "fd00::1",
            // Multicast, documentation, benchmarks, protocols.
            "224.0.0.1",
            "239.255.255.255",
            "ff02::1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "2001:db8::1",
            "3fff::1",
            "198.18.0.1",
            "198.19.255.255",
            "192.88.99.1",
            "2001::1",
            "2001:20::1",
            "100::1",
            "5f00::1",
            // IPv4 inside of IPv6: mapped, compatible, NAT64, 6to4, ISATAP.
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:168.63.129.16",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "64:ff9b:1:ffff::808:808",
            "2002:7f00:1::",
            "2002:a00:1::",
            "2a00:1450::5efe:a00:1",
            "2a00:1450::200:5efe:7f00:1",
        ] {
            assert!(is_refused(&reach, bad), "{bad}");
        }
        for good in [
            "8.8.8.8",
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "168.63.129.17",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2a00:1450::1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(!is_refused(&reach, good), "{good}");
        }
    }

    #[test]
    fn an_address_of_this_machine_is_refused_whatever_it_looks_like() {
        for own in ["127.0.0.1", "::1"] {
            let own: IpAddr = own.parse().unwrap();
            // Without IPv6 there is no such address to be reached.
            assert!(is_own(own) || UdpSocket::bind((own, 0)).is_err(), "{own}");
        }
        for other in ["192.0.2.1", "8.8.8.8", "2606:4700::1111"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn what_is_allowed_is_allowed_alone() {
        let reach = AddressFilter::new("127.0.0.0/8".parse().unwrap());

        assert!(!is_refused(&reach, "127.0.0.1"));
        assert!(!is_refused(&reach, "::ffff:127.0.0.1"));
        assert!(is_refused(&reach, "::1"));
        assert!(is_refused(&reach, "169.254.169.254"));
    }

    #[test]
    fn an_address_in_a_url_is_refused_at_once_and_says_how_to_allow_it() {
        for url in ["http://127.0.0.1:9/x", "http://[::1]/", "http://2130706433/", "https://0x7f.1/"] {
            let error = AddressFilter::default().check(&url.parse().unwrap()).unwrap_err();

            assert_eq!(error.field, "url", "{url}");
            assert!(error.problem.contains("--webhook-allow"), "{}", error.problem);
        }
        assert!(AddressFilter::default().check(&"https://alerts.example.com/".parse().unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_refused_where_it_is_resolved() {
        let refused = AddressFilter::default().resolve("localhost".parse().unwrap()).await.err().unwrap();
        let allowed =
            AddressFilter::new("127.0.0.0/8,::1".parse().unwrap()).resolve("localhost".parse().unwrap()).await;

        assert!(refused.to_string().contains("loopback"), "{refused}");
        assert!(allowed.unwrap().all(|address| address.ip().is_loopback()));
    }
}
