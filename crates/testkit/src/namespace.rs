//! A network for one host: a network namespace, connected to ours by a veth pair.
//!
//! Promised: it is removed when it is dropped, if nothing runs in it any more. Absent: delay (no netem); see
//! [`crate::FaultProxy`].

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

use crate::Launcher;

/// Of this process.
static CREATED: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
    /// Of the interface on our side.
    outside: String,
    /// Our address, as seen from inside.
    pub gateway: Ipv4Addr,
    /// The address inside.
    pub address: Ipv4Addr,
}

impl NetworkNamespace {
    /// Fails if this machine does not permit it, or lacks `ip`.
    pub fn create() -> Result<Self> {
        let number = std::process::id().wrapping_mul(31).wrapping_add(CREATED.fetch_add(1, Ordering::Relaxed));
        let (name, outside) = (format!("proctor-{number}"), format!("pt{number:x}"));
        // 10.192.0.0/10 in pieces of four addresses.
        let base = u32::from(Ipv4Addr::new(10, 192, 0, 0)) + number % (1 << 20) * 4;
        let (gateway, address) = (Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2));
        run("ip", &["netns", "add", &name])?;
        let namespace = Self { name, outside, gateway, address };
        let (name, outside) = (&namespace.name, &namespace.outside);
        run("ip", &["link", "add", outside, "type", "veth", "peer", "name", "inside", "netns", name])?;
        run("ip", &["address", "add", &format!("{gateway}/30"), "dev", outside])?;
        run("ip", &["link", "set", outside, "up"])?;
        namespace.run("ip", &["address", "add", &format!("{address}/30"), "dev", "inside"])?;
        namespace.run("ip", &["link", "set", "inside", "up"])?;
        namespace.run("ip", &["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Runs programs inside.
    pub fn launcher(&self) -> Launcher {
        let prefix = ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec();
        Launcher { prefix, ..Launcher::default() }
    }

    /// Cuts it off; open connections are not notified.
    pub fn partition(&self) -> Result<()> {
        self.run("ip", &["route", "add", "blackhole", &format!("{}/32", self.gateway)])
    }

    pub fn heal(&self) -> Result<()> {
        self.run("ip", &["route", "del", "blackhole", &format!("{}/32", self.gateway)])
    }

    /// Replaces the filter rules for incoming and outgoing traffic inside, such as `ct state established drop`.
    pub fn filter(&self, incoming: &str, outgoing: &str) -> Result<()> {
        self.clear_filter();
        self.run("nft", &["add", "table", "inet", "faults"])?;
        for (hook, rule) in [("input", incoming), ("output", outgoing)] {
            let chain = format!("{{ type filter hook {hook} priority 0; policy accept; }}");
            self.run("nft", &["add", "chain", "inet", "faults", hook, &chain])?;
            if !rule.is_empty() {
                self.run("nft", &["add", "rule", "inet", "faults", hook, rule])?;
            }
        }
        Ok(())
    }

    pub fn clear_filter(&self) {
        // There may be none.
        let _ = self.run("nft", &["delete", "table", "inet", "faults"]);
    }

    /// In bits per second, each way.
    pub fn set_rate(&self, rate: &str) -> Result<()> {
        let shape = ["root", "tbf", "rate", rate, "burst", "4kb", "latency", "2s"];
        let device = |name| [["qdisc", "replace", "dev", name].as_slice(), &shape].concat();
        self.run("tc", &device("inside"))?;
        run("tc", &device(&self.outside))
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        run("ip", &[["netns", "exec", &self.name, program].as_slice(), arguments].concat())
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        let _ = run("ip", &["link", "del", &self.outside]);
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), said.trim());
    Ok(())
}
