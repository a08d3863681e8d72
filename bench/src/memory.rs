//! Memory of a supervisor (PSS of all its processes): settled, and after a burst.

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::burst::kill_all;
use crate::figures::Table;
use crate::peers::{Crowd, Kind, Supervisor};
use crate::procs;

const SETTLE: Duration = Duration::from_secs(10);

pub(crate) async fn measure(bench: &Bench, counts: &[usize]) -> Result<Vec<Table>> {
    let columns = ["", "processes", "settled", "after all were killed once", "its own processes"];
    let mut table = Table::new("Memory of the supervisor", &columns);
    for count in counts {
        for kind in bench.kinds_at_rest(&mut table) {
            let crowd = Crowd { worker: &bench.worker, peers: &bench.peers, count: *count, limits: false };
            match around_burst(bench, kind, crowd).await {
                Ok((settled, after, own)) => {
                    let own = own.to_string();
                    table.row([kind.title().to_owned(), count.to_string(), megabytes(settled), megabytes(after), own]);
                }
                Err(error) => table.notes.push(format!("{}: {error:#}.", kind.title())),
            }
        }
    }
    table.notes.dedup();
    Ok(vec![table.finish()])
}

async fn around_burst(bench: &Bench, kind: Kind, crowd: Crowd<'_>) -> Result<(u64, u64, usize)> {
    let supervisor = Supervisor::start(kind, crowd).await?;
    tokio::time::sleep(SETTLE).await;
    let (settled, own) = held(&supervisor);
    kill_all(&bench.worker, &supervisor)?;
    tokio::time::sleep(SETTLE).await;
    let (after, _) = held(&supervisor);
    Ok((settled, after, own))
}

fn held(supervisor: &Supervisor<'_>) -> (u64, usize) {
    let processes = supervisor.processes();
    (processes.iter().filter_map(|pid| procs::pss(*pid)).sum(), processes.len())
}

#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
