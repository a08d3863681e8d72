//! `proctor swarm` for a fleet, with a record of everything that its agents are told and do.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::{APP, Api, Fleet, HostRecord, Program, eventually, read_swarm_record, run_proctor};

#[derive(Clone, Debug)]
pub struct SwarmPlan {
    /// At most 65,536.
    pub agents: u32,
    /// `swarm/p-0` and following, on every agent.
    pub processes: usize,
    /// A behaviour file; see docs/swarm.md.
    pub behaviour: String,
    /// Where the agents connect, instead of the server's own port.
    pub through: Option<u16>,
    /// `HOST:PORT,HOST:PORT` of relays, instead of that.
    pub relays: Option<String>,
    /// New connections per second during ramp-up.
    pub connect_rate: u32,
}

impl SwarmPlan {
    pub fn new(agents: u32, processes: usize) -> Self {
        Self { agents, processes, behaviour: String::new(), through: None, relays: None, connect_rate: 100 }
    }
}

#[derive(Debug)]
pub struct Swarm {
    pub program: Program,
    agents: u32,
    record: PathBuf,
}

impl Swarm {
    /// Returns when its processes are registered.
    pub async fn start(fleet: &Fleet, plan: &SwarmPlan) -> Result<Self> {
        let (agents, processes) = (plan.agents, plan.processes);
        let data = fleet.dir().join("data").display().to_string();
        let token = run_proctor(&["token", "create", "--uses", &agents.to_string(), "--data-dir", &data])?;
        let (behaviour, record) = (fleet.dir().join("behaviour.toml"), fleet.dir().join("swarm.jsonl"));
        std::fs::write(&behaviour, &plan.behaviour)?;
        let line = format!(
            "--server 127.0.0.1:{} --app-code {APP} --app-secret {} --user admin swarm --token {token} \
             --agents {agents} --processes-per-agent {processes} --api {} --behaviour {} --record {} --connect-rate {}",
            plan.through.unwrap_or(fleet.server.link),
            fleet.secret,
            fleet.url(""),
            behaviour.display(),
            record.display(),
            plan.connect_rate,
        );
        let mut arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        arguments.extend(plan.relays.iter().flat_map(|relays| ["--via-relay".to_owned(), relays.clone()]));
        let program = Program::start("proctor", &arguments, &fleet.dir().join("swarm.log"))?;
        let swarm = Self { program, agents, record };
        eventually("the processes of the swarm are registered", || async {
            let registered = format!("registered {processes} processes on each of {agents} hosts");
            swarm.program.log().contains(&registered).then_some(())
        })
        .await;
        swarm.until_online(&fleet.api()).await;
        Ok(swarm)
    }

    /// `CLOUD:IP` of every agent.
    pub fn hosts(&self) -> Vec<String> {
        (0..self.agents).map(|number| format!("0:10.64.{}.{}", number / 256, number % 256)).collect()
    }

    pub async fn until_online(&self, api: &Api) {
        let agents = self.agents as usize;
        eventually("all agents of the swarm are online", || async {
            api.online().await.filter(|online| *online >= agents).map(drop)
        })
        .await;
    }

    /// Stops the agents and returns their record. Fails if they saw a promise of the server broken.
    pub fn finish(mut self) -> Result<Vec<HostRecord>> {
        let status = self.program.terminate()?;
        ensure!(status.success(), "the swarm ended with {status}: {}", self.program.log());
        read_swarm_record(&self.record)
    }
}
