//! Thousands of simulated agents in one process, for load and fault tests of a real server.
//!
//! Promised: every agent has its own key, certificate and TLS connection, uses the real link protocol
//! and follows the rules of a real agent's ledger ([`agent`]); only its host is simulated, with the
//! latencies and faults of a [`Behaviour`]. What the server guarantees to agents is checked on the way
//! ([`Violation`]). The same options give the same agents the same faults.
//! Absent: real processes; use `proctor-agent` for those.
//!
//! Start at [`agent`] (the simulated agent, without IO) and `connection` (its socket).

mod agent;
mod behaviour;
mod connection;
mod identity;
mod record;
mod rng;
mod stats;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{FieldError, HostKey, messages};
use proctor_pki::JoinToken;
use proctor_runtime::Tasks;
use tokio::sync::Semaphore;

pub use behaviour::{Behaviour, BehaviourError, Group};
pub use identity::StateError;
pub use stats::{Latency, Report, Stats, Violation};

use agent::SimAgent;
use connection::{Shared, Turns};
use identity::Identities;
use record::Recorder;

/// More do not fit into one process's ports to one server address.
pub const AGENTS_MAX: u32 = 60_000;
/// Handshakes under way at the same time unless the options say otherwise, so that their CPU time is not measured as the
/// server's latency.
pub const HANDSHAKES: u32 = 64;

#[derive(Clone, Debug)]
pub struct Options {
    /// The server's link, or those of relays, which the agents take by turns.
    pub servers: Vec<SocketAddr>,
    /// Good for as many enrolments as there are agents without an identity.
    pub token: JoinToken,
    pub agents: u32,
    pub behaviour: Behaviour,
    /// The address of the first agent; the others follow it.
    pub first_ip: Ipv4Addr,
    pub cloud: u32,
    /// New connections per second while the swarm gathers.
    pub connect_rate: u32,
    /// Handshakes under way at the same time. As many as agents: a storm.
    pub handshakes: u32,
    /// Where identities are kept for the next run.
    pub state: Option<PathBuf>,
    /// Where everything that agents are told and do is written, one JSON object a line.
    pub record: Option<PathBuf>,
}

impl Options {
    /// The hosts of all agents, in order.
    pub fn hosts(&self) -> Result<Vec<HostKey>, FieldError> {
        if self.agents == 0 || self.agents > AGENTS_MAX {
            return Err(FieldError::new("agents", messages::not_between(self.agents, 1, AGENTS_MAX)));
        }
        if self.servers.is_empty() {
            return Err(FieldError::new("servers", messages::must_not_be_empty()));
        }
        if self.connect_rate == 0 {
            return Err(FieldError::new("connect_rate", messages::must_be_at_least_1()));
        }
        if self.handshakes == 0 {
            return Err(FieldError::new("handshakes", messages::must_be_at_least_1()));
        }
        let first = u32::from(self.first_ip);
        let last = first.checked_add(self.agents - 1);
        let last = last.ok_or_else(|| FieldError::new("first_ip", messages::too_few_addresses()))?;
        let host = |ip: u32| HostKey::new(self.cloud, 0, IpAddr::V4(Ipv4Addr::from(ip)));
        Ok((first..=last).map(host).collect())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SwarmError {
    #[error(transparent)]
    Options(#[from] FieldError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("cannot create the record {path}")]
    Record { path: PathBuf, source: std::io::Error },
}

/// Starts the agents, as fast as the options allow, and returns at once; they run until `tasks` end.
pub fn start(options: &Options, tasks: &Tasks) -> Result<Arc<Stats>, SwarmError> {
    let hosts = options.hosts()?;
    let figures = Arc::new(Stats::default());
    let shared = Arc::new(Shared {
        enrol_at: Turns::new(options.servers.clone()),
        connect_at: Turns::new(options.servers.clone()),
        token: options.token.clone(),
        figures: figures.clone(),
        identities: Identities::open(options.state.as_deref())?,
        handshakes: Semaphore::new(options.handshakes as usize),
        started: Instant::now(),
        verified: Arc::default(),
    });
    let recorder = options.record.as_deref().map(create_record).transpose()?;
    let gap = Duration::from_secs(1) / options.connect_rate;
    let (behaviour, count, of_tasks) = (options.behaviour.clone(), options.agents, tasks.clone());
    tasks.spawn("gathering", async move {
        let mut pace = tokio::time::interval(gap);
        for (index, host) in (0..).zip(hosts) {
            pace.tick().await;
            let group = behaviour.group_of(index, count);
            let mut agent = SimAgent::new(group, index.into(), shared.figures.clone(), shared.now());
            if let Some(recorder) = &recorder {
                agent.record_to(recorder.clone(), host.to_string());
            }
            of_tasks.spawn("simulated agent", connection::run(shared.clone(), host, agent));
        }
    });
    Ok(figures)
}

fn create_record(path: &Path) -> Result<Arc<Recorder>, SwarmError> {
    let recorder = Recorder::create(path).map_err(|source| SwarmError::Record { path: path.to_owned(), source })?;
    Ok(Arc::new(recorder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(agents: u32, first_ip: &str) -> Options {
        Options {
            servers: vec!["127.0.0.1:1".parse().unwrap()],
            token: JoinToken::generate(&"0".repeat(64)).unwrap(),
            agents,
            behaviour: Behaviour::default(),
            first_ip: first_ip.parse().unwrap(),
            cloud: 3,
            connect_rate: 100,
            handshakes: HANDSHAKES,
            state: None,
            record: None,
        }
    }

    #[test]
    fn agents_have_consecutive_addresses() {
        let hosts = options(300, "10.64.0.0").hosts().unwrap();

        assert_eq!(
            (hosts.len(), hosts[0].to_string(), hosts[299].to_string()),
            (300, "3:10.64.0.0".into(), "3:10.64.1.43".into())
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_field() {
        let field = |options: Options| options.hosts().unwrap_err().field;

        assert_eq!(field(options(0, "10.64.0.0")), "agents");
        assert_eq!(field(options(AGENTS_MAX + 1, "10.64.0.0")), "agents");
        assert_eq!(field(options(2, "255.255.255.255")), "first_ip");
        assert_eq!(field(Options { handshakes: 0, ..options(1, "10.64.0.0") }), "handshakes");
        assert_eq!(field(Options { connect_rate: 0, ..options(1, "10.64.0.0") }), "connect_rate");
    }
}
