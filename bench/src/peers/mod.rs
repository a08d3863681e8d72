//! Proctor and its peers, each with the same workers to supervise.
//!
//! Promised: every supervisor runs in a directory of its own, by hand, with short waits in its
//! configuration (see `configs`), and is gone with everything it started when it is dropped.
//! Absent: installing them, see `scripts/install-bench-peers`.

mod configs;
mod proctor;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::procs;
use crate::worker::Worker;

/// Who supervises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Proctor; its start command leaves a daemon behind, as the protocol expects
    Proctor,
    /// Proctor; its start command is the process itself, as for the peers
    ProctorForeground,
    /// Proctor with the agent's metrics on, scraped every 15 s; only at rest
    ProctorMetrics,
    /// supervisord
    Supervisord,
    /// monit
    Monit,
    /// runit: runsvdir and one runsv for each process
    Runit,
    /// s6: s6-svscan and one s6-supervise for each process
    S6,
    /// circus
    Circus,
    /// pm2
    Pm2,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Proctor,
        Self::ProctorForeground,
        Self::Runit,
        Self::S6,
        Self::Supervisord,
        Self::Monit,
        Self::Circus,
        Self::Pm2,
    ];

    /// Those that are compared at rest.
    pub(crate) fn at_rest() -> impl Iterator<Item = Self> {
        std::iter::once(Self::ProctorMetrics).chain(Self::ALL)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Proctor => "Proctor",
            Self::ProctorForeground => "Proctor, foreground",
            Self::ProctorMetrics => "Proctor, metrics on",
            Self::Supervisord => "supervisord",
            Self::Monit => "monit",
            Self::Runit => "runit",
            Self::S6 => "s6",
            Self::Circus => "circus",
            Self::Pm2 => "pm2",
        }
    }

    pub(crate) fn is_proctor(self) -> bool {
        matches!(self, Self::Proctor | Self::ProctorForeground | Self::ProctorMetrics)
    }

    /// Why it cannot take part, if so.
    pub(crate) fn absence(self, peers: &Path) -> Option<String> {
        let program = configs::program(self)?;
        (!peers.join(program).exists()).then(|| format!("{} is not installed and is left out.", self.title()))
    }

    /// How it limits what its processes use, where limits are on.
    pub(crate) fn limits(self) -> &'static str {
        match self {
            Self::Proctor | Self::ProctorForeground | Self::ProctorMetrics => "cpu and memory of each",
            Self::Supervisord => "memmon: memory of all, every minute",
            Self::Monit => "cpu and memory of each, every 10 s",
            Self::Runit | Self::S6 | Self::Circus => "has none",
            Self::Pm2 => "memory of each",
        }
    }
}

/// What to supervise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd<'a> {
    pub(crate) worker: &'a Worker,
    /// Where the peers are installed.
    pub(crate) peers: &'a Path,
    pub(crate) count: usize,
    /// With limits; a polling supervisor polls no more often than the limits need.
    pub(crate) limits: bool,
}

#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    pub(crate) kind: Kind,
    pub(crate) names: Vec<String>,
    crowd: Crowd<'a>,
    dir: tempfile::TempDir,
    mark: String,
    own: Own,
    /// After the supervisor, which would restart what is killed.
    _leftovers: Leftovers<'a>,
}

/// Kills the remaining workers, and whatever else carries their mark.
#[derive(Debug)]
struct Leftovers<'a> {
    worker: &'a Worker,
    prefix: String,
    mark: String,
}

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        self.worker.end(&self.prefix);
        procs::marked(&self.mark).into_iter().for_each(procs::kill);
    }
}

#[derive(Debug)]
enum Own {
    Proctor(Box<proctor::Proctor>),
    Peer { command: Launch, main: Option<Child> },
}

/// The command that starts a peer, every time.
#[derive(Debug)]
struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl<'a> Supervisor<'a> {
    /// Starts it and waits until the whole crowd runs.
    pub(crate) async fn start(kind: Kind, crowd: Crowd<'a>) -> Result<Self> {
        eprintln!("bench: {} with {} processes", kind.title(), crowd.count);
        // Short: sockets in it have names of at most 107 bytes.
        let dir = tempfile::Builder::new().prefix("pb").tempdir()?;
        let mark = dir.path().display().to_string();
        let prefix =
            format!("{}-", dir.path().file_name().and_then(|name| name.to_str()).unwrap_or("pb").to_lowercase());
        let names: Vec<String> = (0..crowd.count).map(|number| format!("{prefix}{number}")).collect();
        let leftovers = Leftovers { worker: crowd.worker, prefix, mark: mark.clone() };
        let own = if kind.is_proctor() {
            Own::Proctor(Box::new(proctor::Proctor::start(kind, &crowd, &names).await?))
        } else {
            let command = configs::write(kind, &crowd, &names, dir.path())?;
            Own::Peer { main: Some(command.run(dir.path(), &mark)?), command }
        };
        let supervisor = Self { kind, names, crowd, dir, mark, own, _leftovers: leftovers };
        let started = crowd.worker.wait_all(&supervisor.names, 0);
        started.with_context(|| format!("{} does not start its crowd: {}", kind.title(), supervisor.log()))?;
        Ok(supervisor)
    }

    /// Its own processes, without those that it supervises.
    pub(crate) fn processes(&self) -> Vec<i32> {
        match &self.own {
            Own::Proctor(proctor) => vec![proctor.pid()],
            Own::Peer { .. } => {
                let workers: Vec<i32> = self.crowd.worker.living().into_iter().map(|(_, pid)| pid).collect();
                procs::marked(&self.mark).into_iter().filter(|pid| !workers.contains(pid)).collect()
            }
        }
    }

    /// SIGKILL to its main process, or to all of its own.
    pub(crate) fn kill(&mut self, all: bool) {
        let own = self.processes();
        match &mut self.own {
            Own::Proctor(proctor) => proctor.kill(),
            Own::Peer { main, .. } => {
                let running = main.take().map(|mut child| {
                    let ended_before = child.try_wait().ok().flatten().is_some();
                    let _ = child.kill();
                    let _ = child.wait();
                    !ended_before
                });
                // One that daemonizes has no other main process than the daemon.
                if all || running != Some(true) {
                    own.into_iter().for_each(procs::kill);
                }
            }
        }
    }

    pub(crate) async fn start_again(&mut self) -> Result<()> {
        match &mut self.own {
            Own::Proctor(proctor) => proctor.start_again().await,
            Own::Peer { command, main } => {
                *main = Some(command.run(self.dir.path(), &self.mark)?);
                Ok(())
            }
        }
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().rev().take(3).collect::<Vec<_>>().join(" / ")
    }
}

impl Launch {
    fn run(&self, dir: &Path, mark: &str) -> Result<Child> {
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log"))?;
        ensure!(self.program.exists(), "{} is not installed", self.program.display());
        Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(procs::MARK, mark)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        self.kill(true);
    }
}
