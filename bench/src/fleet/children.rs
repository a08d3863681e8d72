//! Programs that a run starts besides its server.
//!
//! Promised: each has its log in a file, and is gone when it is dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

const END_POLL: Duration = Duration::from_millis(50);
/// Lines shown from the log of a program that ended too early.
const LINES_SHOWN: usize = 5;

#[derive(Debug)]
pub(super) struct Running {
    name: String,
    child: Child,
    stdout: PathBuf,
    log: PathBuf,
}

/// How a program is started.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    /// Its files are called after it.
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) dir: &'a Path,
}

impl Launch<'_> {
    pub(super) fn start(self) -> Result<Running> {
        let (stdout, log) = (self.dir.join(format!("{}.out", self.name)), self.dir.join(format!("{}.log", self.name)));
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(Running { name: self.name, child, stdout, log })
    }
}

impl Running {
    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("pids are small")
    }

    /// What it has printed so far.
    pub(super) fn printed(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    pub(super) fn ensure_running(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(LINES_SHOWN).collect();
        bail!("{} ended with {status}: {}", self.name, lines.into_iter().rev().collect::<Vec<_>>().join(" / "))
    }

    /// SIGTERM, the wait for its end, and what it has printed.
    pub(super) async fn terminate(mut self, limit: Duration) -> Result<String> {
        self.ensure_running()?;
        kill_process(Pid::from_raw(self.pid()).context("a pid")?, Signal::TERM)?;
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(begun.elapsed() < limit, "{} has not ended {limit:?} after SIGTERM", self.name);
            tokio::time::sleep(END_POLL).await;
        }
        Ok(self.printed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
