//! The trial of a new program: the old one stays and watches.
//!
//! Promised: the process of the agent is the same before, during and after an upgrade, so that whoever started it (systemd,
//! or nobody) has nothing to do, and what it is the parent of stays its child. The new program runs as a child, with
//! everything an agent does; it gets the name of the old one only after it has proved itself, so that a power failure, or
//! the death of everything, at any moment before leaves the old one in its place. A new program that ends, hangs, or
//! cannot keep a session is killed, and the old one goes on by itself. The new program never outlives the old one that
//! watches it. Absent: what an agent does; during a trial the old one does nothing of it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use proctor_model::{Message, UpgradeStep, messages};
use proctor_runtime::systemd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use uuid::Uuid;

use super::program::Program;
use super::record::{Record, Records, Sign};

/// The new program has this variable during its trial; its value is the id of the upgrade.
pub(crate) const TRIAL_VARIABLE: &str = "PROCTOR_UPGRADE_TRIAL";
/// The sub-command by which the old program starts the new one; for the old one alone.
pub const TRIAL_COMMAND: &str = "upgrade-trial";
/// Until the driver of the new program turns nothing on this host is supervised.
const STARTED_MAX: Duration = Duration::from_secs(15);
/// An agent that is asked to end does so within this time, or is killed.
const END_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
const REAP_PERIOD: Duration = Duration::from_secs(1);
const WATCHDOG_PERIOD: Duration = Duration::from_secs(10);

/// How a program of the agent is started.
#[derive(Clone, Copy)]
pub struct Startup<'a> {
    /// With the name of the program.
    pub arguments: &'a [OsString],
    /// Writes what was logged: the process is about to become another program.
    pub flush: &'a dyn Fn(),
}

impl std::fmt::Debug for Startup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An argument may be a join token.
        f.debug_struct("Startup").field("arguments", &self.arguments.len()).finish_non_exhaustive()
    }
}

/// A new program that is ready to be tried; the agent has ended.
#[derive(Debug)]
pub struct Trial {
    pub(crate) records: Records,
    pub(crate) record: Record,
    pub(crate) program: Program,
}

/// What came of it.
enum Verdict {
    Proved,
    Failed(Message),
    /// Somebody stopped the agent meanwhile.
    Stopped,
}

/// The upgrade that this program is on trial for, if it is.
pub(super) fn upgrade_on_trial() -> Option<Uuid> {
    std::env::var(TRIAL_VARIABLE).ok()?.parse().ok()
}

/// The first word of [`TRIAL_COMMAND`]: becomes the new program, which dies with the process that watches it. Returns only
/// where that fails.
pub fn become_trial(arguments: &[OsString]) -> ExitCode {
    let [parent, program, name, rest @ ..] = arguments else { return ExitCode::from(2) };
    let kill = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let is_child = rustix::process::getppid().is_some_and(|pid| *parent == *pid.as_raw_nonzero().to_string());
    if kill.is_err() || !is_child {
        return ExitCode::FAILURE; // who watches is gone already
    }
    let error = Command::new(program).arg0(name).args(rest).exec();
    eprintln!("proctor-agent: cannot run the new program: {error}");
    ExitCode::from(NOT_RUN)
}

const NOT_RUN: u8 = 126;

impl Trial {
    /// The version that is tried.
    pub fn version(&self) -> &str {
        &self.record.version
    }

    /// The agent did not come to rest, so that there can be no trial: it starts anew.
    pub fn give_up(self, startup: Startup<'_>) -> String {
        self.go_back(&messages::upgrade_not_started("the agent did not come to rest"), startup)
    }

    /// Tries the new program and becomes it, or the old one again. Returns only where somebody stopped the agent, or
    /// nothing can be started any more. On the main thread, whose end the new program does not survive.
    pub async fn run(self, startup: Startup<'_>) -> Result<(), String> {
        proctor_host::descriptors::restore();
        if let Err(error) = self.records.forget_signs() {
            return Err(self.go_back(&messages::upgrade_not_started(error), startup));
        }
        let mut child = match self.start(startup.arguments) {
            Ok(child) => child,
            Err(error) => return Err(self.go_back(&messages::upgrade_not_started(error), startup)),
        };
        tracing::info!(version = self.record.version, pid = child.id(), "a new version is on trial");
        let verdict = tokio::select! {
            verdict = self.watch(&mut child) => verdict,
            () = proctor_runtime::stop_requested() => Verdict::Stopped,
        };
        match verdict {
            Verdict::Proved => {
                end(&mut child).await;
                Err(self.go_on(startup))
            }
            Verdict::Failed(reason) => {
                kill(&mut child);
                Err(self.go_back(&reason, startup))
            }
            Verdict::Stopped => {
                systemd::notify("STOPPING=1");
                end(&mut child).await;
                self.save(&Record { step: UpgradeStep::Fetching, ..self.record.clone() });
                Ok(())
            }
        }
    }

    fn start(&self, arguments: &[OsString]) -> std::io::Result<Child> {
        let name = arguments.first().cloned().unwrap_or_else(|| self.program.path().into());
        Command::new("/proc/self/exe")
            .arg(TRIAL_COMMAND)
            .arg(std::process::id().to_string())
            .arg(self.program.staged())
            .arg(name)
            .args(arguments.get(1..).unwrap_or_default())
            .env(TRIAL_VARIABLE, self.record.upgrade.to_string())
            // It is not the service that systemd knows, yet.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .spawn()
    }

    async fn watch(&self, child: &mut Child) -> Verdict {
        let deadline = Duration::from_secs(self.record.health_deadline_secs);
        let begun = Instant::now();
        let (mut reaped_at, mut fed_at) = (begun, None::<Instant>);
        loop {
            let sign = self.records.shown(self.record.upgrade);
            if sign == Some(Sign::Proved) {
                return Verdict::Proved;
            }
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Verdict::Failed(messages::upgrade_ended(how(status))),
                Err(error) => return Verdict::Failed(messages::upgrade_ended(error)),
            }
            if sign.is_none() && begun.elapsed() >= STARTED_MAX.min(deadline) {
                return Verdict::Failed(messages::upgrade_hung(STARTED_MAX.min(deadline).as_secs()));
            }
            if begun.elapsed() >= deadline {
                return Verdict::Failed(messages::upgrade_unproved(deadline.as_secs()));
            }
            if reaped_at.elapsed() >= REAP_PERIOD {
                reaped_at = Instant::now();
                // What the old agent started stays its child.
                let _ = tokio::task::spawn_blocking(proctor_host::reap_orphans).await;
            }
            if fed_at.is_none_or(|at| at.elapsed() >= WATCHDOG_PERIOD) {
                fed_at = Some(Instant::now());
                systemd::notify(&format!("WATCHDOG=1\nSTATUS=version {} is on trial", self.record.version));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn save(&self, record: &Record) {
        if let Err(error) = self.records.save(record) {
            tracing::error!(%error, "the end of the trial cannot be recorded");
        }
    }

    /// Becomes the old program again; returns why that failed.
    fn go_back(&self, reason: &Message, startup: Startup<'_>) -> String {
        tracing::error!(version = self.record.version, %reason, "the upgrade failed; the old version goes on");
        self.save(&self.record.clone().failed(reason));
        self.program.clear();
        let old = self.program.again();
        let error = become_program(&old, startup);
        format!("cannot start {} again: {error}", old.display())
    }

    /// Becomes the new program; returns why nothing could be started.
    fn go_on(&self, startup: Startup<'_>) -> String {
        let path = self.program.path();
        if let Err(error) = self.program.install() {
            return self.go_back(&messages::upgrade_not_installed(path.display(), error), startup);
        }
        tracing::info!(version = self.record.version, "the new version proved itself and goes on");
        let error = become_program(path, startup);
        if let Err(problem) = self.program.put_back() {
            tracing::error!(%problem, path = %path.display(), "the old program cannot have its name back");
        }
        self.go_back(&messages::upgrade_not_installed(path.display(), error), startup)
    }
}

/// Returns only where it fails.
fn become_program(program: &Path, Startup { arguments, flush }: Startup<'_>) -> std::io::Error {
    flush();
    let name = arguments.first().cloned().unwrap_or_else(|| program.into());
    Command::new(program).arg0(name).args(arguments.get(1..).unwrap_or_default()).env_remove(TRIAL_VARIABLE).exec()
}

fn how(status: ExitStatus) -> String {
    if status.code() == Some(i32::from(NOT_RUN)) { "it cannot be run".to_owned() } else { status.to_string() }
}

/// Asks it to end, as systemd would, and kills it where it does not.
async fn end(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It is our child and was not waited for, so this pid is nobody else's.
    let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(process) = process {
        let _ = pidfd_send_signal(process, Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < END_MAX {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }
    kill(child);
}

fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
