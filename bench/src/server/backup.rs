//! What a backup of a large store costs the operations that run meanwhile.
//!
//! The store is filled before the server starts; a swarm carries out the operations. They come at a fixed rate,
//! whatever the server answers, and each is timed from the moment it was due.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proctor_model::TaskId;
use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use proctor_testkit::{Api, Fleet, Swarm, SwarmPlan, binary, submit_until_answered};
use serde_json::json;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::population::{OBSERVED, POLLED, Population};
use crate::figures::{Table, millis, quantile};

const SWARM: SwarmShape = SwarmShape { agents: 100, processes: 20 };
/// Before the backup, and after it.
const QUIET: Duration = Duration::from_secs(10);

struct SwarmShape {
    agents: u32,
    processes: usize,
}

/// An operation: when it was due, how long its answer took, and its task.
struct Sent {
    due: Instant,
    answered: Duration,
    task: TaskId,
}

pub(crate) async fn measure(targets: usize, rate: u32) -> Result<Vec<Table>> {
    let title =
        format!("{rate} operations a second beside a backup of a store with {targets} targets; none delayed by 100 ms");
    let columns = ["", "operations", "answered: median", "99 %", "worst", "finished: median", "99 %", "worst"];
    let mut table = Table::new(title, &columns);
    let mut fleet = Fleet::start().await?;
    fleet.server.program.kill();
    Population::new(fleet.dir(), OBSERVED).await?.finished_tasks(fleet.dir(), targets / POLLED).await?;
    fleet.restart_server().await?;
    let swarm = Swarm::start(&fleet, &SwarmPlan::new(SWARM.agents, SWARM.processes)).await?;
    let (stop, stopped) = watch::channel(false);
    let copy = fleet.dir().join("copy.db");
    let backup = async {
        tokio::time::sleep(QUIET).await;
        let backup = back_up(&fleet, &copy).await?;
        tokio::time::sleep(QUIET).await;
        stop.send(true)?;
        Ok(backup)
    };
    let (sent, backup) = futures::try_join!(send_all(fleet.api(), swarm.hosts(), rate, stopped), backup)?;
    let finished = until_finished(&fleet, &sent).await?;

    let during = |sent: &Sent| backup.0 <= sent.due && sent.due < backup.1;
    let timed: Vec<(&Sent, Duration)> = sent.iter().zip(finished).collect();
    let (beside, alone): (Vec<_>, Vec<_>) = timed.into_iter().partition(|(sent, _)| during(sent));
    table.row(row("without a backup", &alone));
    table.row(row("while the backup runs", &beside));
    let floor = copy_plainly(&fleet.dir().join("data/proctor.db"), &fleet.dir().join("plain.db"))?;
    let (took, size) = (backup.1 - backup.0, copy.metadata()?.len() as f64 / 1e6);
    table.notes.push(format!(
        "The backup of {size:.0} MB took {:.1} s, {:.2} times a plain synced copy of the file. All {} operations succeeded.",
        took.as_secs_f64(),
        took.as_secs_f64() / floor.as_secs_f64(),
        sent.len()
    ));
    Ok(vec![table.finish()])
}

fn row(name: &str, operations: &[(&Sent, Duration)]) -> [String; 8] {
    let answered: Vec<Duration> = operations.iter().map(|(sent, _)| sent.answered).collect();
    let finished: Vec<Duration> = operations.iter().map(|(_, finished)| *finished).collect();
    let told = |samples: &[Duration]| [0.5, 0.99, 1.0].map(|part| millis(quantile(samples, part)));
    let ([a, b, c], [d, e, f]) = (told(&answered), told(&finished));
    [name.to_owned(), operations.len().to_string(), a, b, c, d, e, f]
}

/// Restarts each process of each host in turn, one operation per tick, however many are in progress.
async fn send_all(api: Api, hosts: Vec<String>, rate: u32, mut stopped: watch::Receiver<bool>) -> Result<Vec<Sent>> {
    let mut period = tokio::time::interval(Duration::from_secs(1) / rate);
    period.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    for number in 0.. {
        let due = tokio::select! {
            due = period.tick() => due.into_std(),
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        let (round, host) = (number / hosts.len(), hosts[number % hosts.len()].clone());
        let process = format!("swarm/p-{}", round % SWARM.processes);
        let operation = json!({"operation": "restart", "process": process, "hosts": [host]});
        let api = api.clone();
        under_way.spawn(async move {
            let task = submit_until_answered(&api, &operation, &format!("backup-{number}")).await?;
            anyhow::Ok(Sent { due, answered: due.elapsed(), task: task.parse()? })
        });
    }
    under_way.join_all().await.into_iter().collect()
}

/// Runs the command; returns when it began and ended.
async fn back_up(fleet: &Fleet, copy: &Path) -> Result<(Instant, Instant)> {
    let passphrase = fleet.dir().join("passphrase");
    std::fs::write(&passphrase, "correct horse battery staple")?;
    let mut command = Command::new(binary("proctor"));
    command.arg("backup").arg(copy).arg("--data-dir").arg(fleet.dir().join("data"));
    command.arg("--passphrase-file").arg(passphrase).stderr(Stdio::null());
    let begun = Instant::now();
    ensure!(command.status().await?.success(), "the backup failed");
    Ok((begun, Instant::now()))
}

/// How long each took on the server, from its submission to its outcome, by the server's own clock.
async fn until_finished(fleet: &Fleet, sent: &[Sent]) -> Result<Vec<Duration>> {
    let store = SqliteStore::open_beside(&fleet.dir().join("data/proctor.db")).await?;
    let mut took = Vec::with_capacity(sent.len());
    for Sent { task, .. } in sent {
        let finished = loop {
            let task = store.task_summary(*task).await?.context("a task is lost")?;
            match task.finished_at {
                Some(at) => {
                    ensure!((task.succeeded, task.total) == (1, 1), "{} failed", task.id);
                    break at - task.created_at;
                }
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        took.push(Duration::from_millis(u64::try_from(finished)?));
    }
    Ok(took)
}

/// What the disk takes for the same bytes.
fn copy_plainly(from: &Path, to: &Path) -> Result<Duration> {
    let begun = Instant::now();
    let mut copied = File::create_new(to)?;
    std::io::copy(&mut File::open(from)?, &mut copied)?;
    copied.sync_all()?;
    Ok(begun.elapsed())
}
