//! CPU usage of an idle supervisor, with limits on its processes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::bench::Bench;
use crate::figures::Table;
use crate::peers::{Crowd, Kind, Supervisor};
use crate::procs;

/// Limits are checked more often for young processes.
const SETTLE: Duration = Duration::from_secs(30);
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) async fn measure(bench: &Bench, count: usize, seconds: u64) -> Result<Vec<Table>> {
    let columns = ["", "CPU time", "of one core", "its processes", "limits"];
    let mut table = Table::new(format!("Idle with {count} processes, {seconds} s"), &columns);
    for kind in bench.kinds_at_rest(&mut table) {
        let crowd = Crowd { worker: &bench.worker, peers: &bench.peers, count, limits: true };
        match idle(kind, crowd, Duration::from_secs(seconds)).await {
            Ok((used, elapsed, processes)) => {
                let percent = format!("{:.3} %", used / elapsed.as_secs_f64() * 100.0);
                let used = format!("{used:.2} s");
                table.row([kind.title().to_owned(), used, percent, processes.to_string(), kind.limits().to_owned()]);
            }
            Err(error) => table.notes.push(format!("{}: {error:#}.", kind.title())),
        }
    }
    Ok(vec![table.finish()])
}

async fn idle(kind: Kind, crowd: Crowd<'_>, window: Duration) -> Result<(f64, Duration, usize)> {
    let supervisor = Supervisor::start(kind, crowd).await?;
    tokio::time::sleep(SETTLE).await;
    let processes = supervisor.processes();
    ensure!(!processes.is_empty(), "its processes are not found");
    let used = || processes.iter().filter_map(|pid| procs::ticks(*pid)).sum::<u64>();
    let (before, begun) = (used(), Instant::now());
    tokio::time::sleep(window).await;
    let (after, elapsed) = (used(), begun.elapsed());
    #[allow(clippy::cast_precision_loss, reason = "ticks of some minutes")]
    Ok(((after - before) as f64 / TICKS_PER_SECOND, elapsed, processes.len()))
}
