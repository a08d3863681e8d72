//! Control of the agent on its own host, with or without a server.
//!
//! Promised: only root, or the user that the agent runs as, may use it: the socket is in the private state directory,
//! has mode 0600, and the peer's credentials are checked. An operation goes through the driver exactly like one from
//! the server, is written to the ledger, and is reported to the server later, by an event that names the user.
//! Connections, requests and waits are bounded.
//! Absent: registering processes, which only the server does.
//!
//! One request and one reply per connection, each a line of JSON. Start at `socket` (the agent) and `client` (`ctl`).

mod client;
mod socket;

use proctor_model::{Event, OperationKind, Outcome, ProcessKey, Snapshot};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

pub use client::{LocalError, ask, recorded};
pub(crate) use socket::{About, serve};

/// In the state directory.
pub const SOCKET: &str = "control.sock";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum LocalRequest {
    /// The agent, its link and how it follows processes.
    About,
    /// Every process, as last seen.
    List,
    /// One operation on one process; a status query is a fresh probe of the host.
    Operate { process: ProcessKey, operation: OperationKind },
    /// The newest events that the server has not seen.
    Events { limit: usize },
    /// The agent's metrics, for Prometheus; per process on request.
    Metrics { processes: bool },
}

impl LocalRequest {
    /// Whether it may wait for a long time. What ends a process always gets through.
    fn may_wait(&self) -> bool {
        match self {
            Self::Operate { operation, .. } => match operation {
                OperationKind::Start | OperationKind::Restart | OperationKind::Reload | OperationKind::Manage => true,
                OperationKind::Stop | OperationKind::Kill | OperationKind::Release | OperationKind::Status => false,
            },
            Self::About | Self::List | Self::Events { .. } | Self::Metrics { .. } => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum LocalAnswer {
    About(AgentView),
    Processes { processes: Vec<LocalProcess> },
    Outcome { outcome: Box<Outcome> },
    Events { events: Vec<Event>, waiting: usize },
    Metrics { text: String },
    Refused { reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    pub version: String,
    /// None before it has enrolled.
    pub agent: Option<String>,
    pub host: Option<String>,
    pub server: String,
    pub connected: bool,
    /// By how much this host's clock went before the server's when the session opened.
    pub clock_ahead_ms: Option<i64>,
    /// How it knows what belongs to a process.
    pub tracking: String,
    /// The policy file that is in force.
    pub policy: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalProcess {
    pub process: String,
    pub snapshot: Snapshot,
}

/// A request to the driver.
#[derive(Debug)]
pub(crate) struct LocalCall {
    pub(crate) request: LocalRequest,
    pub(crate) uid: u32,
    pub(crate) answer: oneshot::Sender<LocalAnswer>,
}
