//! SIGKILL to the supervisor, then the same start again: which process survives, and which runs twice.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::figures::Table;
use crate::peers::{Crowd, Kind, Supervisor};

const CROWD: usize = 20;
const SETTLE: Duration = Duration::from_secs(10);

pub(crate) async fn measure(bench: &Bench) -> Result<Vec<Table>> {
    let columns = ["", "killed", "kept their pid", "second copies", "lost"];
    let mut table = Table::new(format!("SIGKILL to the supervisor of {CROWD} processes, and its next start"), &columns);
    for kind in bench.kinds(&mut table) {
        let has_many = matches!(kind, Kind::Runit | Kind::S6);
        for all in if has_many { vec![false, true] } else { vec![true] } {
            let crowd = Crowd { worker: &bench.worker, peers: &bench.peers, count: CROWD, limits: false };
            match survive(bench, kind, crowd, all).await {
                Ok((kept, copies, lost)) => {
                    let killed = if all { "all its processes" } else { "its first process" };
                    let [kept, copies, lost] = [kept, copies, lost].map(|count| count.to_string());
                    table.row([kind.title().to_owned(), killed.to_owned(), kept, copies, lost]);
                }
                Err(error) => table.notes.push(format!("{}: {error:#}.", kind.title())),
            }
        }
    }
    Ok(vec![table.finish()])
}

async fn survive(bench: &Bench, kind: Kind, crowd: Crowd<'_>, all: bool) -> Result<(usize, usize, usize)> {
    let mut supervisor = Supervisor::start(kind, crowd).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = of_crowd(bench, &supervisor);
    supervisor.kill(all);
    tokio::time::sleep(Duration::from_secs(1)).await;
    supervisor.start_again().await?;
    tokio::time::sleep(SETTLE).await;
    let after = of_crowd(bench, &supervisor);

    let kept = before.iter().filter(|(name, pids)| after.get(*name).is_some_and(|now| now.contains(&pids[0]))).count();
    let copies = after.values().map(|pids| pids.len() - 1).sum();
    Ok((kept, copies, CROWD - after.len()))
}

fn of_crowd(bench: &Bench, supervisor: &Supervisor<'_>) -> HashMap<String, Vec<i32>> {
    let mut living: HashMap<String, Vec<i32>> = HashMap::new();
    for (name, pid) in bench.worker.living().into_iter().filter(|(name, _)| supervisor.names.contains(name)) {
        living.entry(name).or_default().push(pid);
    }
    living
}
