//! The link at fleet scale: the real server with thousands of simulated agents, compared with plain NATS.
//!
//! Promised: the real programs, each in its own process, on the loopback; every wait has a limit, and everything
//! that was started is gone at the end, also after an error or a signal. Absent: agents on other machines, and so
//! any effect of a network. The agents use CPU time of the same machine.

mod children;
mod crash;
mod fan_out;
mod idle;
pub(crate) mod nats;
mod prober;
mod report;
mod stage;
mod swarm_report;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::bench::Bench;
use crate::figures::Table;
use fan_out::Operation;
use nats::Nats;
use report::{Figures, Tables};
use stage::{Plan, Stage};

/// Beyond this a process of peers on NATS, and the NATS server, need more descriptors than they commonly have.
const NATS_AGENTS_MAX: usize = 15_000;
/// About the size of a row of a task's result.
const REPLY_BYTES: usize = 200;
/// Between one kill of the server and the next.
const BETWEEN_KILLS: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Memory, idle CPU and the cost of joining; always measured
    Idle,
    /// Operations on all agents, taking turns with NATS
    FanOut,
    /// SIGKILL of the server, twice
    Kill,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Simulated agents; several numbers show how costs grow
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "15000")]
    agents: Vec<usize>,
    /// Connect the agents through so many relays
    #[arg(long, value_name = "K", default_value_t = 0)]
    relays: usize,
    /// Only these [default: all]
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    parts: Vec<Part>,
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// How long the server is watched idling
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// New connections per second while the agents gather
    #[arg(long, value_name = "N", default_value_t = 200)]
    connect_rate: u32,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    fn check(&self) -> Result<()> {
        ensure!(self.agents.iter().all(|agents| *agents > 0), "--agents must be at least 1");
        ensure!(self.rounds > 0, "--rounds must be at least 1");
        ensure!(self.seconds > 0, "--seconds must be at least 1");
        ensure!(self.connect_rate > 0, "--connect-rate must be at least 1");
        Ok(())
    }
}

pub(crate) async fn measure(bench: &Bench, options: &Options) -> Result<Vec<Table>> {
    options.check()?;
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        tables = Box::pin(all(&bench.peers, options)) => Ok(tables),
        _ = interrupted.recv() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    }
}

/// A failed run is noted with what it had measured, and the next one begins.
async fn all(peers: &Path, options: &Options) -> Vec<Table> {
    let mut tables = Tables::new();
    for agents in &options.agents {
        let plan = Plan { agents: *agents, relays: options.relays, connect_rate: options.connect_rate };
        let mut figures = Figures::new(plan);
        if let Err(error) = run(peers, options, &mut figures).await {
            eprintln!("bench: {agents} agents: {error:#}");
            figures.notes.push(format!("{agents} agents: {error:#}."));
        }
        tables.add(&figures);
    }
    tables.finish()
}

async fn run(peers: &Path, options: &Options, figures: &mut Figures) -> Result<()> {
    let plan = figures.plan;
    eprintln!("bench: {} agents, {} relays", plan.agents, plan.relays);
    let mut stage = Stage::start(plan).await?;
    let idle = idle::measure(&mut stage, options.seconds).await?;
    figures.idle = Some(idle);
    let operation = Operation::new(plan.agents);
    let mut asked = 0;
    if options.wants(Part::FanOut) {
        eprintln!("bench: {} operations on all", options.rounds);
        asked += fan_out(peers, options, &stage, &operation, figures).await?;
    }
    if options.wants(Part::Kill) {
        eprintln!("bench: the server is killed");
        figures.quiet = Some(crash::kill_quiet(&mut stage, idle.cpu_per_agent(plan.agents)).await?);
        tokio::time::sleep(BETWEEN_KILLS).await;
        eprintln!("bench: the server is killed with an operation under way");
        figures.busy = Some(crash::kill_busy(&mut stage, &operation).await?);
        asked += plan.agents;
    }
    figures.swarm = Some((stage.finish().await?, asked));
    Ok(())
}

/// How many operations were asked of agents.
async fn fan_out(
    peers: &Path,
    options: &Options,
    stage: &Stage,
    operation: &Operation,
    figures: &mut Figures,
) -> Result<usize> {
    let agents = stage.plan.agents;
    let mut nats = match nats_absence(peers, stage.plan) {
        None => Some(Nats::start(peers, stage.fleet.dir(), agents, Operation::request_bytes(), REPLY_BYTES).await?),
        Some(why) => {
            figures.notes.push(why);
            None
        }
    };
    // Registers the process everywhere; the rounds find it registered.
    operation.round(stage).await?;
    if let Some(nats) = &mut nats {
        nats.round().await?;
    }
    for _ in 0..options.rounds {
        figures.rounds.push(operation.round(stage).await?);
        if let Some(nats) = &mut nats {
            figures.nats.push(nats.round().await?);
        }
    }
    Ok(agents * (options.rounds + 1))
}

fn nats_absence(peers: &Path, plan: Plan) -> Option<String> {
    if plan.relays > 0 {
        return Some("NATS has no relays and is left out.".to_owned());
    }
    if plan.agents > NATS_AGENTS_MAX {
        return Some(format!("NATS is left out with more than {NATS_AGENTS_MAX} peers."));
    }
    nats::absence(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nats_takes_part_without_relays_where_it_is_installed() {
        let peers = tempfile::tempdir().unwrap();
        let program = peers.path().join("debian/usr/sbin/nats-server");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        let plan = |agents, relays| Plan { agents, relays, connect_rate: 200 };

        assert!(nats_absence(peers.path(), plan(300, 0)).unwrap().contains("not installed"));
        std::fs::write(program, "").unwrap();
        assert_eq!(nats_absence(peers.path(), plan(300, 0)), None);
        assert!(nats_absence(peers.path(), plan(300, 2)).unwrap().contains("relays"));
        assert!(nats_absence(peers.path(), plan(NATS_AGENTS_MAX + 1, 0)).is_some());
    }
}
