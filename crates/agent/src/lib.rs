//! The agent of one host: it enrols, keeps a session with the server, and runs the state machines of
//! `proctor_supervise` on the real host.
//!
//! Promised: supervised processes never die with the agent; what is begun is on disk before it happens; an operation
//! takes effect at most once however often it is delivered; supervision continues without the server.
//! Absent: decisions about processes (see `proctor_supervise`) and direct access to Linux (see `proctor_host`).
//!
//! Start at `driver` (the loop), `ledger` (what is durable) and `link` (the session).

mod build;
mod connect_error;
pub mod doctor;
mod driver;
mod endpoints;
mod enrol;
mod history;
mod identity;
mod ledger;
mod link;
pub mod local;
mod log_file;
mod metrics;
mod policy;
mod regular_file;
mod report_sender;
mod single_instance;
mod spool;
mod trust;
mod upgrade;
mod watchdog;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proctor_host::{Host, TrackingPreference};

pub use proctor_host::SpawnMethod;
use proctor_model::AgentId;
use proctor_runtime::{Tasks, private, systemd};
use proctor_traces::Traces;
use tokio::sync::oneshot;

pub use build::version;
pub use connect_error::parse_link;
pub use endpoints::parse_links;
pub use identity::{enrolled_id, is_enrolled, verify_file};
pub use upgrade::{CHECK_COMMAND, ProgramCheck, Startup, TRIAL_COMMAND, Trial, WATCH_COMMAND, become_trial};

/// A child that is just being started holds the lock for a moment after its agent has ended.
const LOCKED_MAX: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT` of the server's link, or several, with commas: those of the relays of its cloud area.
    pub server: String,
    /// Needed only until the state directory holds an identity.
    pub token: Option<String>,
    pub state_dir: PathBuf,
    /// The host's address; by default the one that reaches the server.
    pub ip: Option<IpAddr>,
    pub cloud: u32,
    pub supplier: u32,
    /// Generated at enrolment by default.
    pub agent_id: Option<AgentId>,
    /// The host owner's policy; by default `/etc/proctor/policy.toml`, if it exists.
    pub policy: Option<PathBuf>,
    /// Where to serve metrics; an address of the loopback.
    pub metrics: Option<SocketAddr>,
    /// With the usage of each process.
    pub metrics_processes: bool,
    /// How to know what belongs to a process, at best.
    pub tracking: Tracking,
    pub spawn: SpawnMethod,
    /// Where the traces of operations go.
    pub traces: Traces,
    /// Whether the agent is its own program, which can be replaced by another version.
    pub is_program: bool,
}

impl Options {
    fn host(&self) -> proctor_host::Options {
        let tracking = match self.tracking {
            Tracking::Best => TrackingPreference::Best,
            Tracking::Descent => TrackingPreference::Descendants,
        };
        proctor_host::Options { tracking, spawn: self.spawn, ..proctor_host::Options::new(&self.state_dir) }
    }
}

/// How the agent knows what belongs to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// By cgroups if usable, by descent otherwise.
    #[default]
    Best,
    /// By descent: a process that leaves its tree by a double fork is not known.
    Descent,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot use the state directory {path}")]
    StateDir { path: PathBuf, source: std::io::Error },
    #[error("cannot keep state")]
    Private(#[from] private::PrivateError),
    #[error("another agent uses the state directory {path}: stop that one first, or give this one its own --state-dir")]
    Locked { path: PathBuf },
    #[error(
        "agent {agent} runs on this machine already, from another state directory: one of them is a copy; remove \
         the copy's state directory and enrol it with a join token of its own"
    )]
    Cloned { agent: AgentId },
    #[error("cannot claim the name of agent {agent} on this machine")]
    Claim { agent: AgentId, source: std::io::Error },
    #[error("this host has not enrolled yet: give a join token (`proctor token create` on the server)")]
    NoToken,
    #[error("the server refused: {reason}")]
    Refused { reason: String },
    /// It is this agent that refuses: nothing was sent.
    #[error("{reason}")]
    OtherAuthority { reason: String },
    #[error(
        "{server} did not show the key that it signs commands with, and the join token says that it has one, so nothing \
         was kept: something between this host and the server may have left it out, or the server was downgraded"
    )]
    NoSigner { server: String },
    #[error("the state directory belongs to agent {found}, not to {asked}")]
    OtherAgent { found: AgentId, asked: AgentId },
    #[error(transparent)]
    Pki(#[from] proctor_pki::PkiError),
    #[error(transparent)]
    Ledger(#[from] ledger::LedgerError),
    #[error(transparent)]
    Policy(#[from] policy::PolicyError),
    #[error("metrics are served on the loopback only, not on {address}: use 127.0.0.1 or [::1]")]
    MetricsAddress { address: SocketAddr },
    #[error("cannot start a thread")]
    Thread { source: std::io::Error },
    #[error("the driver exited: a restart resumes supervision")]
    DriverEnded,
    #[error("the watchdog exited: a restart resumes supervision")]
    WatchdogEnded,
    #[error("the driver has made no progress for {} s: exiting so that a restart can resume supervision", watchdog::STALL_MAX.as_secs())]
    DriverStalled,
    #[error("cannot take control of the host")]
    Host(#[from] proctor_host::Error),
}

/// How an agent ended that did nothing wrong.
#[derive(Debug)]
pub enum AgentExit {
    Stopped,
    /// Another version is to be tried instead.
    Upgrade(Box<Trial>),
}

/// Runs until `tasks` end, or a new version is ready for its trial. Returns an error for what waiting does not cure.
pub async fn run(options: Options, tasks: Tasks) -> Result<AgentExit, AgentError> {
    let _lock = lock(&options.state_dir).await?;
    let alone = match enrolled_id(&options.state_dir) {
        Some(agent) => Some(single_instance::claim(&agent).await?),
        None => None,
    };
    let policy = Arc::new(policy::PolicyFile::open(options.policy.as_deref())?);
    let host = Host::new(options.host(), &tasks)?;
    let is_on_trial = options.is_program && upgrade::upgrade_on_trial().is_some();
    let (ledger, memory) = ledger::Ledger::open_as(&options.state_dir.join("ledger.db"), is_on_trial)?;
    let (inbox, inputs) = driver::inbox();
    let mut driver = {
        let keeper = history::Keeper::new(options.state_dir.join("usage"));
        driver::Driver::new(host.clone(), policy.clone(), ledger, memory, keeper, inbox.clone(), tasks.clone())?
    };
    driver.trace(options.traces.clone());
    let counted = driver.metrics();
    let (seen, turns, driven) = (driver.seen_generation(), driver.turns(), driver.run(inputs));
    let (upgrades, told) = upgrade::inbox();
    let upgrader = {
        let (host, is_program) = (host.clone(), options.is_program);
        let now = Box::new(move || proctor_supervise::Time::since_boot(host.now()));
        let (policy, inbox, turns) = (policy.clone(), inbox.clone(), turns.clone());
        upgrade::Upgrader::new(&options.state_dir, policy, inbox, turns, now, is_program)
    };
    let (is_there, is_gone) = oneshot::channel::<()>();
    // Dropped when the driver returns or panics.
    let driven = async move {
        let _is_there = is_there;
        driven.await;
    };
    // Supervision does not wait for the server, nor for the enrolment.
    // It writes the ledger on its own thread.
    tasks.spawn_on_thread("driver", driven).map_err(|source| AgentError::Thread { source })?;
    let watchdog = watchdog::Watchdog::start(inbox.clone(), turns.clone(), tasks.shutdown(), options.is_program);
    let mut watchdog = watchdog.map_err(|source| AgentError::Thread { source })?;

    let tracking = host.tracking().detail.clone();
    let about = Arc::new(local::About::new(options.server.clone(), tracking, policy.clone(), counted));
    local::serve(&options.state_dir, inbox.clone(), about.clone(), &tasks);
    if let Some(address) = options.metrics {
        let endpoint = metrics::Endpoint { address, processes: options.metrics_processes };
        metrics::serve(endpoint, inbox.clone(), &tasks)?;
    }
    systemd::notify("READY=1\nSTATUS=supervising");
    let (leaving, linked) = (link::Leaving::new(tasks.shutdown()), about.clone());
    let connected = async {
        let identity = enrol::identity(&options, &host).await?;
        let _alone = match alone {
            Some(alone) => alone,
            None => single_instance::claim(&identity.agent).await?,
        };
        tracing::info!(agent = %identity.agent, host = %identity.host, "agent enrolled");
        about.enrolled(&identity);
        let trust = trust::Trust::load(&options.state_dir, &identity.authorities_pem())?;
        let known = link::Known { identity: Arc::new(identity), trust, upgrades, leaving: leaving.clone() };
        let driver = link::DriverSide { inbox: inbox.clone(), seen_generation: seen, turns };
        link::Link::new(&options, known, host, policy, driver, about).run().await
    };
    let watched = watchdog.failure(is_gone, tasks.shutdown());
    let connected = async {
        tokio::select! {
            result = connected => result.map(|()| AgentExit::Stopped),
            failure = watched => Err(failure),
            trial = Box::pin(upgrader.run(told)) => Ok(AgentExit::Upgrade(Box::new(trial))),
        }
    };
    tokio::select! {
        result = connected => result,
        () = leaving.is_over(|| linked.is_connected()) => Ok(AgentExit::Stopped),
    }
}

/// Held as long as the agent runs; the kernel releases it when the agent dies.
async fn lock(state_dir: &Path) -> Result<std::fs::File, AgentError> {
    let failed = |source| AgentError::StateDir { path: state_dir.to_owned(), source };
    private::dir(state_dir)?;
    let file = private::file(&state_dir.join("lock")).map_err(failed)?;
    let begun = tokio::time::Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::Error(source)) => return Err(failed(source)),
            Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() >= LOCKED_MAX => {
                return Err(AgentError::Locked { path: state_dir.to_owned() });
            }
            Err(std::fs::TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY).await,
        }
    }
}
