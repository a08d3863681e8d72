//! The relay of a cloud area: agents connect to it as if it were the server, and it carries their sessions over a few
//! connections to the server.
//!
//! Promised: a relay carries and holds no key that could command an agent or report for one. It forwards frames
//! unchanged, except heartbeats, which it answers and reports in batches; enrolments pass through it whole,
//! protected up to the server. What it holds per agent is bounded, and so is the number of agents. If its
//! connection to the server is lost, so are the sessions on it: the agents come back, here or through another
//! relay, and their ledgers have what was not acknowledged. Absent: a spool of its own, and what sessions say.
//!
//! Start at `listener` (agents), `upstream` (the server) and `passenger` (one agent between them).

mod boarding;
mod client_hello;
mod enrol;
mod enrolments;
mod greetings;
mod identity;
mod listener;
mod passenger;
mod upstream;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proctor_model::RelayId;
use proctor_pki::LinkClient;
use proctor_runtime::{Tasks, private, systemd};
use proctor_wire::RELAY_STREAMS_MAX;

pub use identity::is_enrolled;

/// Agents of one relay at most, whatever the setting: each takes a descriptor and some memory.
pub const AGENTS_MAX: u32 = 20_000;
/// Connections to the server at most.
pub const CONNECTIONS_MAX: u32 = 4;

#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT` of the server's link; if there are several, the connections use them in turn.
    pub upstreams: Vec<String>,
    pub listen: SocketAddr,
    /// A join token for relays; needed only until the state directory holds an identity.
    pub token: Option<String>,
    pub cloud: u32,
    pub state_dir: PathBuf,
    /// Connections to the server.
    pub connections: u32,
    pub agents_max: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("cannot use the state directory {path}")]
    StateDir { path: PathBuf, source: std::io::Error },
    #[error("cannot keep state")]
    Private(#[from] private::PrivateError),
    #[error("another relay uses the state directory {path}: stop that one first, or give this one its own --state-dir")]
    Locked { path: PathBuf },
    #[error("this relay has not enrolled yet: give a token of `proctor token create --relay --cloud-id N`")]
    NoToken,
    #[error(
        "the certificate of relay {relay} ended at {expired_at}: give a token of `proctor token create --relay --cloud-id N`, \
         and it keeps its name"
    )]
    Expired { relay: RelayId, expired_at: jiff::Timestamp },
    #[error(
        "this relay enrolled for cloud area {found}, not for {asked}: use another state directory for another area"
    )]
    OtherCloud { found: u32, asked: u32 },
    #[error("the server refused: {reason}")]
    Refused { reason: String },
    #[error("{reason}")]
    OtherAuthority { reason: String },
    #[error("cannot listen at {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Pki(#[from] proctor_pki::PkiError),
    #[error("{field} must be between 1 and {max}")]
    Bound { field: &'static str, max: u32 },
    #[error("agents_max must be at most {max} for each connection to the server: give more connections")]
    ConnectionsForAgents { max: usize },
}

/// A running relay, until it is dropped: then its connections to the server carry nothing more, before the tasks of
/// the agents end one by one. To the server the agents disconnect with their relay, rather than one by one.
#[derive(Debug)]
pub struct Relay {
    pub address: SocketAddr,
    upstreams: Arc<upstream::Upstreams>,
    _lock: std::fs::File,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.upstreams.end();
    }
}

/// Enrols if needed, which may take until the server can be reached, then listens. Runs until `tasks` end.
pub async fn start(options: Options, tasks: &Tasks) -> Result<Relay, RelayError> {
    check(&options)?;
    let lock = lock(&options.state_dir)?;
    let identity = Arc::new(enrol::identity(&options).await?);
    tracing::info!(relay = %identity.relay, cloud = identity.cloud, "relay enrolled");
    let upstreams = upstream::start(&options, identity.clone(), tasks);
    let address = listener::start(&options, identity, upstreams.clone(), tasks).await?;
    systemd::notify("READY=1\nSTATUS=carrying");
    Ok(Relay { address, upstreams, _lock: lock })
}

/// What went wrong on the way to a server, in one line.
fn explain(error: &(dyn std::error::Error + 'static), server: &str) -> String {
    proctor_pki::explain_link(error, server, LinkClient::Relay).unwrap_or_else(|| proctor_runtime::chain(error))
}

fn check(options: &Options) -> Result<(), RelayError> {
    for (field, value, max) in
        [("connections", options.connections, CONNECTIONS_MAX), ("agents_max", options.agents_max, AGENTS_MAX)]
    {
        if value == 0 || value > max {
            return Err(RelayError::Bound { field, max });
        }
    }
    if options.agents_max as usize > RELAY_STREAMS_MAX * options.connections as usize {
        return Err(RelayError::ConnectionsForAgents { max: RELAY_STREAMS_MAX });
    }
    Ok(())
}

/// Held while the relay runs; the kernel releases it when the relay dies.
fn lock(state_dir: &Path) -> Result<std::fs::File, RelayError> {
    let failed = |source| RelayError::StateDir { path: state_dir.to_owned(), source };
    private::dir(state_dir)?;
    let file = private::file(&state_dir.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(RelayError::Locked { path: state_dir.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_takes_no_more_agents_than_its_connections_carry() {
        let checked = |connections, agents_max| {
            check(&Options {
                upstreams: Vec::new(),
                listen: ([127, 0, 0, 1], 0).into(),
                token: None,
                cloud: 0,
                state_dir: PathBuf::new(),
                connections,
                agents_max,
            })
        };

        assert!(checked(1, 10_000).is_ok() && checked(2, 20_000).is_ok());
        assert!(matches!(checked(1, 10_001), Err(RelayError::ConnectionsForAgents { max: 10_000 })));
        for (connections, agents_max) in [(0, 1), (1, 0), (CONNECTIONS_MAX + 1, 1), (4, AGENTS_MAX + 1)] {
            assert!(matches!(checked(connections, agents_max), Err(RelayError::Bound { .. })));
        }
    }
}
