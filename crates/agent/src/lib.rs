//! The agent of one host: enrols, keeps a session with the server, and runs the machines of
//! `proctor_supervise` on the real host.
//!
//! Promised: supervised processes never die with the agent; what was begun is on disk before it
//! happens; an operation takes effect at most once however often it is delivered; supervision goes
//! on without the server. Absent: decisions about processes (see `proctor_supervise`).

mod driver;
mod enrol;
mod identity;
mod ledger;
mod link;
mod policy;
mod regular;
#[cfg(test)]
mod specs;
mod spool;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proctor_host::{Host, Prefer};
use proctor_model::AgentId;
use proctor_runtime::Tasks;

pub use identity::{enrolled_id, is_enrolled};

#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT` of the server's link.
    pub server: String,
    /// Needed only until the state directory holds an identity.
    pub token: Option<String>,
    pub state_dir: PathBuf,
    /// The host's address; the one that reaches the server where it is not given.
    pub ip: Option<IpAddr>,
    pub cloud: u32,
    pub supplier: u32,
    /// Made up at enrolment where it is not given.
    pub agent_id: Option<AgentId>,
    /// The host owner's policy; `/etc/proctor/policy.toml`, if it exists, where it is not given.
    pub policy: Option<PathBuf>,
    /// How to know what belongs to a process, at best.
    pub tracking: Tracking,
}

/// How the agent knows what belongs to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// By cgroups where they can be used, by descent otherwise.
    #[default]
    Best,
    /// By descent: who leaves its tree by a double fork is not known.
    Descent,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot use the state directory {path}")]
    StateDir { path: PathBuf, source: std::io::Error },
    #[error("another agent uses the state directory {path}")]
    Locked { path: PathBuf },
    #[error("this host has not enrolled yet: give a join token (`proctor token create` on the server)")]
    NoToken,
    #[error("the server refused: {reason}")]
    Refused { reason: String },
    #[error("the state directory belongs to agent {found}, not to {asked}")]
    OtherAgent { found: AgentId, asked: AgentId },
    #[error(transparent)]
    Pki(#[from] proctor_pki::PkiError),
    #[error(transparent)]
    Ledger(#[from] ledger::LedgerError),
    #[error(transparent)]
    Policy(#[from] policy::PolicyError),
    #[error("cannot start a thread")]
    Thread { source: std::io::Error },
    #[error("cannot take control of the host")]
    Host(#[from] proctor_host::Error),
}

/// Runs until `tasks` end. Returns an error for what waiting does not cure.
pub async fn run(options: Options, tasks: Tasks) -> Result<(), AgentError> {
    let _lock = lock(&options.state_dir)?;
    let policy = Arc::new(policy::PolicyFile::open(options.policy.as_deref())?);
    let prefer = match options.tracking {
        Tracking::Best => Prefer::Best,
        Tracking::Descent => Prefer::Descendants,
    };
    let host = Host::with_tracking(proctor_host::Options { state_dir: options.state_dir.clone() }, prefer, &tasks)?;
    let (ledger, memory) = ledger::Ledger::open(&options.state_dir.join("ledger.db"))?;
    let (inbox, inputs) = driver::inbox();
    let driver = driver::Driver::new(host.clone(), policy.clone(), ledger, memory, inbox.clone(), tasks.clone())?;
    let (seen, driven) = (driver.seen_generation(), driver.run(inputs));
    // Supervision does not wait for the server, nor for the enrolment.
    // It writes the ledger on its own thread.
    tasks.spawn_on_thread("driver", driven).map_err(|source| AgentError::Thread { source })?;

    let shutdown = tasks.shutdown();
    let connected = async {
        let identity = enrol::identity(&options, &host).await?;
        tracing::info!(agent = %identity.agent, host = %identity.host, "this agent is enrolled");
        link::Link::new(&options, Arc::new(identity), host, policy, inbox, seen).run().await
    };
    match shutdown.run_until_cancelled(connected).await {
        Some(result) => result,
        None => Ok(()),
    }
}

/// Held as long as the agent runs; the kernel lets go of it when the agent dies.
fn lock(state_dir: &Path) -> Result<std::fs::File, AgentError> {
    let failed = |source| AgentError::StateDir { path: state_dir.to_owned(), source };
    identity::make_private_dir(state_dir).map_err(failed)?;
    let file = std::fs::File::create(state_dir.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(AgentError::Locked { path: state_dir.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}
