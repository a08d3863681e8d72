//! The identity of a host, and what its agent says about it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{FieldError, messages};

/// A host as callers address it. The stable name behind it is its [`crate::AgentId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostKey {
    pub cloud: u32,
    pub supplier: u32,
    pub ip: IpAddr,
}

impl HostKey {
    /// An IPv4-mapped IPv6 address is the IPv4 address.
    pub fn new(cloud: u32, supplier: u32, ip: IpAddr) -> Self {
        Self { cloud, supplier, ip: ip.to_canonical() }
    }
}

/// `cloud:ip`: the compatibility form of an agent id, and how people write a host.
impl std::fmt::Display for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.cloud, self.ip)
    }
}

impl std::str::FromStr for HostKey {
    type Err = FieldError;

    /// Accepts `cloud:ip` and a bare ip, which is in cloud area 0.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || FieldError::new("host", messages::neither_address_nor_host(text));
        if let Ok(ip) = text.parse() {
            return Ok(Self::new(0, 0, ip));
        }
        let (cloud, ip) = text.split_once(':').ok_or_else(bad)?;
        Ok(Self::new(cloud.parse().map_err(|_| bad())?, 0, ip.parse().map_err(|_| bad())?))
    }
}

/// What an agent tells about its machine when a session opens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HostFacts {
    pub hostname: String,
    pub os: String,
    pub arch: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub agent_version: String,
    /// The host policy file in force; empty if there is none and everything is allowed, absent from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_ip_or_cloud_and_ip() {
        assert_eq!("3:10.0.0.1".parse::<HostKey>().unwrap().to_string(), "3:10.0.0.1");
        assert_eq!("10.0.0.1".parse::<HostKey>().unwrap().to_string(), "0:10.0.0.1");
        assert_eq!("0:::ffff:10.0.0.1".parse::<HostKey>().unwrap().to_string(), "0:10.0.0.1");
        assert!("x:10.0.0.1".parse::<HostKey>().is_err());
        assert!("host-a".parse::<HostKey>().is_err());
    }
}
