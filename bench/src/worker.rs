//! The process that everybody supervises, and the reports of its starts.
//!
//! Promised: the same program for all; the time of a start is the worker's own, taken first thing. Absent: who
//! started it.

use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

/// Starts that take longer are a failure: of a crowd, and of one process.
const PATIENCE: Duration = Duration::from_secs(180);
const PATIENCE_ONE: Duration = Duration::from_secs(30);

/// One start: whose, and when on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) pid: i32,
    pub(crate) nanos: u64,
}

#[derive(Debug, Default)]
struct Heard {
    /// The newest start of each worker.
    newest: Mutex<HashMap<String, Start>>,
    more: Condvar,
}

/// The built program and the socket on which its starts are reported.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) program: PathBuf,
    socket: PathBuf,
    heard: Arc<Heard>,
}

impl Worker {
    pub(crate) fn build(dir: &Path) -> Result<Self> {
        let (source, program, socket) = (dir.join("worker.c"), dir.join("worker"), dir.join("starts"));
        std::fs::write(&source, include_str!("worker.c"))?;
        let status = Command::new("cc").args(["-Os", "-static", "-s", "-o"]).arg(&program).arg(&source).status();
        ensure!(status.context("a C compiler is needed")?.success(), "the worker cannot be compiled");
        let listener = UnixDatagram::bind(&socket)?;
        let heard = Arc::new(Heard::default());
        let listening = Arc::clone(&heard);
        std::thread::spawn(move || listen(&listener, &listening));
        Ok(Self { program, socket, heard })
    }

    /// The shell line whose shell becomes the worker.
    pub(crate) fn foreground(&self, name: &str) -> String {
        format!("exec {} {} {name}", self.program.display(), self.socket.display())
    }

    /// The shell line that leaves the worker in the background, with its pid in a file.
    pub(crate) fn daemon(&self, name: &str, pid_file: &Path) -> String {
        let (program, socket, pid_file) = (self.program.display(), self.socket.display(), pid_file.display());
        format!("{program} {socket} {name} > /dev/null 2>&1 & echo $! > {pid_file}")
    }

    pub(crate) fn newest(&self, name: &str) -> Option<Start> {
        self.heard.newest.lock().get(name).copied()
    }

    /// The first start of that worker after a moment.
    pub(crate) fn wait(&self, name: &str, after: u64) -> Result<Start> {
        Ok(self.wait_for(std::slice::from_ref(&name.to_owned()), after, PATIENCE_ONE)?[0])
    }

    /// Blocks until every one of them has started after a moment.
    pub(crate) fn wait_all(&self, names: &[String], after: u64) -> Result<Vec<Start>> {
        self.wait_for(names, after, PATIENCE)
    }

    fn wait_for(&self, names: &[String], after: u64, patience: Duration) -> Result<Vec<Start>> {
        let begun = Instant::now();
        let mut newest = self.heard.newest.lock();
        let mut missing: Vec<&String> = names.iter().collect();
        loop {
            missing.retain(|name| newest.get(*name).is_none_or(|start| start.nanos <= after));
            if missing.is_empty() {
                return Ok(names.iter().filter_map(|name| newest.get(name).copied()).collect());
            }
            let (count, left) = (missing.len(), patience.saturating_sub(begun.elapsed()));
            ensure!(!left.is_zero(), "{count} of {} workers do not start: {}", names.len(), missing[0]);
            self.heard.more.wait_for(&mut newest, left.min(Duration::from_secs(1)));
        }
    }

    /// All live workers by name; more than one of a name are duplicates.
    pub(crate) fn living(&self) -> Vec<(String, i32)> {
        crate::procs::all()
            .into_iter()
            .filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.program))
            .filter_map(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let name = line.split(|byte| *byte == 0).nth(2)?;
                Some((String::from_utf8_lossy(name).into_owned(), pid))
            })
            .collect()
    }

    /// Kills the remaining workers whose names begin like this.
    pub(crate) fn end(&self, prefix: &str) {
        for (_, pid) in self.living().into_iter().filter(|(name, _)| name.starts_with(prefix)) {
            crate::procs::kill(pid);
        }
    }
}

fn listen(socket: &UnixDatagram, heard: &Heard) {
    let mut bytes = [0; 256];
    while let Ok(length) = socket.recv(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..length]);
        let mut words = text.split(' ');
        if let (Some(name), Some(Ok(pid)), Some(Ok(nanos))) =
            (words.next(), words.next().map(str::parse), words.next().map(str::parse))
        {
            heard.newest.lock().insert(name.to_owned(), Start { pid, nanos });
            heard.more.notify_all();
        }
    }
}

/// The clock that the workers read.
pub(crate) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).expect("the clock counts from boot")
}
