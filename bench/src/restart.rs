//! Restart latency: from SIGKILL to one of 100 processes until the next one runs.
//!
//! All supervisors run at the same time and are measured in turn, so that all see the same load. The floor is a
//! bare parent with one child: it waits for the exit, and runs the same shell line.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::figures::{Table, millis, quantile, ratio};
use crate::peers::{Crowd, Kind, Supervisor};
use crate::procs;
use crate::worker::{Worker, monotonic};

const CROWD: usize = 100;
/// Those that take longer than this take part in only one of ten rounds.
const SLOW: Duration = Duration::from_millis(300);

pub(crate) async fn measure(bench: &Bench, rounds: usize) -> Result<Vec<Table>> {
    let mut table = Table::new(
        format!("Restart latency, one of {CROWD} processes killed"),
        &["", "median", "p99", "of the floor", "rounds"],
    );
    let crowd = Crowd { worker: &bench.worker, peers: &bench.peers, count: CROWD, limits: false };
    let mut supervisors: Vec<(Supervisor<'_>, Vec<Duration>)> = Vec::new();
    for kind in bench.kinds(&mut table) {
        match Supervisor::start(kind, crowd).await {
            Ok(supervisor) => supervisors.push((supervisor, Vec::new())),
            Err(error) => table.notes.push(format!("{}: {error:#}.", kind.title())),
        }
    }
    let mut foreground = Floor::new(&bench.worker, Style::Foreground)?;
    let mut daemon = Floor::new(&bench.worker, Style::Daemon)?;
    // Some delay the restart of what dies in its first second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for round in 0..rounds {
        foreground.round()?;
        daemon.round()?;
        for (supervisor, samples) in &mut supervisors {
            if !samples.is_empty() && quantile(samples, 0.5) > SLOW && round % 10 != 0 {
                continue;
            }
            match once(&bench.worker, &supervisor.names[round % CROWD]) {
                Ok(sample) => samples.push(sample),
                Err(error) => {
                    table.notes.push(format!("{} in round {}: {error}.", supervisor.kind.title(), round + 1));
                    samples.clear();
                }
            }
        }
        supervisors.retain(|(_, samples)| !samples.is_empty());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let floor = quantile(&foreground.samples, 0.5);
    let mut row = |name: &str, samples: &[Duration], floor: Duration| {
        let (median, high) = (quantile(samples, 0.5), quantile(samples, 0.99));
        let of_floor = format!("{:.2}", ratio(median, floor));
        table.row([name.to_owned(), millis(median), millis(high), of_floor, samples.len().to_string()]);
    };
    row("floor, shell becomes the worker", &foreground.samples, floor);
    row("floor, shell leaves the worker behind", &daemon.samples, quantile(&daemon.samples, 0.5));
    for (supervisor, samples) in &supervisors {
        // Those that run the longer command are compared with its floor.
        let is_daemon = matches!(supervisor.kind, Kind::Proctor | Kind::Monit);
        row(supervisor.kind.title(), samples, if is_daemon { quantile(&daemon.samples, 0.5) } else { floor });
    }
    Ok(vec![table.finish()])
}

fn once(worker: &Worker, name: &str) -> Result<Duration> {
    let pid = worker.newest(name).map_or(0, |start| start.pid);
    let killed = monotonic();
    procs::kill(pid);
    let start = worker.wait(name, killed)?;
    Ok(Duration::from_nanos(start.nanos - killed))
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Foreground,
    Daemon,
}

/// Fork, exec, wait, and nothing else.
struct Floor<'a> {
    worker: &'a Worker,
    style: Style,
    name: String,
    pid_file: tempfile::NamedTempFile,
    child: Child,
    samples: Vec<Duration>,
}

impl<'a> Floor<'a> {
    fn new(worker: &'a Worker, style: Style) -> Result<Self> {
        let (pid_file, name) = (tempfile::NamedTempFile::new()?, format!("floor-{style:?}"));
        let line = match style {
            Style::Foreground => worker.foreground(&name),
            Style::Daemon => worker.daemon(&name, pid_file.path()),
        };
        let child = run(&line)?;
        worker.wait(&name, 0)?;
        Ok(Self { worker, style, name, pid_file, child, samples: Vec::new() })
    }

    fn round(&mut self) -> Result<()> {
        let pid = self.worker.newest(&self.name).map_or(0, |start| start.pid);
        let killed = monotonic();
        match self.style {
            Style::Foreground => {
                self.child.kill()?;
                self.child.wait()?;
                self.child = run(&self.worker.foreground(&self.name))?;
            }
            Style::Daemon => {
                self.child.wait()?;
                procs::signal(pid);
                procs::reap(pid);
                self.child = run(&self.worker.daemon(&self.name, self.pid_file.path()))?;
            }
        }
        let start = self.worker.wait(&self.name, killed)?;
        self.samples.push(Duration::from_nanos(start.nanos - killed));
        Ok(())
    }
}

impl Drop for Floor<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.worker.end(&self.name);
    }
}

pub(crate) fn run(line: &str) -> Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.spawn()?)
}
