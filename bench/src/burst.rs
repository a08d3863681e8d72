//! A thousand processes killed at once, until all run again.
//!
//! The floor is the time that a bare parent needs to start as many with the same shell line, at its best degree of
//! parallelism. Floor and supervisor take turns.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::figures::{Table, millis, quantile, ratio};
use crate::peers::{Crowd, Kind, Supervisor};
use crate::procs;
use crate::restart::{Style, run};
use crate::worker::{Worker, monotonic};

const PARALLEL: [usize; 5] = [1, 2, 4, 8, 32];

pub(crate) async fn measure(bench: &Bench, count: usize, rounds: usize) -> Result<Vec<Table>> {
    let columns = ["", "median", "longest", "floor beside it", "of the floor", "rounds"];
    let mut table = Table::new(format!("{count} processes killed at once until all run again"), &columns);
    let parallel = best_parallelism(&bench.worker, count)?;
    table.notes.push(format!("The bare parent is best with {parallel} starts at a time."));
    for kind in bench.kinds(&mut table) {
        let crowd = Crowd { worker: &bench.worker, peers: &bench.peers, count, limits: false };
        match beside_floor(bench, kind, crowd, parallel, rounds).await {
            Ok((ours, floor)) => {
                let (median, floor) = (quantile(&ours, 0.5), quantile(&floor, 0.5));
                let (longest, of_floor) = (quantile(&ours, 1.0), format!("{:.2}", ratio(median, floor)));
                let rounds = ours.len().to_string();
                table.row([kind.title().to_owned(), millis(median), millis(longest), millis(floor), of_floor, rounds]);
            }
            Err(error) => table.notes.push(format!("{}: {error:#}.", kind.title())),
        }
    }
    Ok(vec![table.finish()])
}

async fn beside_floor(
    bench: &Bench,
    kind: Kind,
    crowd: Crowd<'_>,
    parallel: usize,
    rounds: usize,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let style = if matches!(kind, Kind::Proctor | Kind::Monit) { Style::Daemon } else { Style::Foreground };
    let supervisor = Supervisor::start(kind, crowd).await?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        floor.push(start_all(&bench.worker, crowd.count, parallel, style)?);
        // Until no worker is in the first second of its life, and the floor's own workers are gone.
        tokio::time::sleep(Duration::from_secs(3)).await;
        ours.push(kill_all(&bench.worker, &supervisor)?);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    Ok((ours, floor))
}

/// From the first kill until the last worker runs again.
pub(crate) fn kill_all(worker: &Worker, supervisor: &Supervisor<'_>) -> Result<Duration> {
    let pids: Vec<i32> =
        supervisor.names.iter().filter_map(|name| worker.newest(name)).map(|start| start.pid).collect();
    let begun = monotonic();
    pids.iter().copied().for_each(procs::signal);
    pids.into_iter().for_each(procs::reap);
    let starts = worker.wait_all(&supervisor.names, begun)?;
    let last = starts.iter().map(|start| start.nanos).max().unwrap_or(begun);
    Ok(Duration::from_nanos(last - begun))
}

fn best_parallelism(worker: &Worker, count: usize) -> Result<usize> {
    let mut best = (Duration::MAX, 1);
    for parallel in PARALLEL {
        let mut samples = Vec::new();
        for _ in 0..3 {
            samples.push(start_all(worker, count, parallel, Style::Foreground)?);
        }
        best = best.min((quantile(&samples, 0.5), parallel));
    }
    Ok(best.1)
}

fn start_all(worker: &Worker, count: usize, parallel: usize, style: Style) -> Result<Duration> {
    let dir = tempfile::tempdir()?;
    let names: Vec<String> = (0..count).map(|number| format!("many-{number}")).collect();
    let next = AtomicUsize::new(0);
    let begun = monotonic();
    let children = std::thread::scope(|scope| {
        let starter = || {
            let mut children = Vec::new();
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut child = run(&match style {
                    Style::Foreground => worker.foreground(name),
                    Style::Daemon => worker.daemon(name, &dir.path().join(name)),
                })?;
                if matches!(style, Style::Daemon) {
                    child.wait()?; // the shell; who starts daemons waits for it
                }
                children.push(child);
            }
            anyhow::Ok(children)
        };
        let threads: Vec<_> = (0..parallel).map(|_| scope.spawn(starter)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("a starter does not panic"));
        ended.collect::<Result<Vec<_>>>()
    });
    let started = worker.wait_all(&names, begun);
    worker.end("many-");
    for mut child in children?.into_iter().flatten() {
        let _ = child.wait();
    }
    let starts = started?;
    starts.iter().for_each(|start| procs::reap(start.pid));
    let last = starts.iter().map(|start| start.nanos).max().unwrap_or(begun);
    Ok(Duration::from_nanos(last - begun))
}
