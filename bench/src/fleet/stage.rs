//! The real programs of one run: a server, relays if requested, and swarms of agents.
//!
//! Promised: everything runs in a temporary directory and is gone with it. Every wait has a limit.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proctor_testkit::{Fleet, binary, free_port, run_proctor};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use super::children::{Launch, Running};
use super::swarm_report::SwarmReport;
use crate::figures::quantile;
use crate::procs;

/// Agents per swarm process; more take another one.
const AGENTS_PER_SWARM_MAX: usize = 15_000;
/// Descriptors of a process besides its agents: for HTTP, the store, connections being opened.
const DESCRIPTORS_SPARE: usize = 500;
/// Agents per relay at most.
const AGENTS_PER_RELAY_MAX: usize = 20_000;
const FIRST_IP: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 0);
/// Rare enough to cost the server little.
const SESSIONS_POLL: Duration = Duration::from_millis(500);
/// How often the time of a scrape is taken.
const SCRAPES: usize = 50;
const SCRAPE_PAUSE: Duration = Duration::from_millis(100);
const RELAYS_WITHIN: Duration = Duration::from_secs(60);
const SWARM_END_MAX: Duration = Duration::from_secs(60);
/// Swarms that outlive the benchmark end on their own.
const SWARM_FOR: &str = "3h";
const TOKEN_TTL: &str = "3h";

/// What is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) agents: usize,
    pub(super) relays: usize,
    /// New connections per second during ramp-up.
    pub(super) connect_rate: u32,
}

/// Programs are dropped in this order.
#[derive(Debug)]
pub(super) struct Stage {
    swarms: Vec<Running>,
    relays: Vec<Running>,
    relay_ports: Vec<u16>,
    pub(super) fleet: Fleet,
    pub(super) plan: Plan,
}

/// How long a wait for all agents took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connected {
    pub(super) took: Duration,
    /// The sum of the time that every agent was connected meanwhile.
    pub(super) agent_time: Duration,
}

/// CPU time of the programs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    pub(super) server: Duration,
    pub(super) swarms: Duration,
    pub(super) relays: Duration,
}

impl Cpu {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            server: self.server.saturating_sub(earlier.server),
            swarms: self.swarms.saturating_sub(earlier.swarms),
            relays: self.relays.saturating_sub(earlier.relays),
        }
    }
}

/// The time of one scrape of `/metrics`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scrapes {
    pub(super) median: Duration,
    pub(super) worst: Duration,
}

impl Stage {
    /// A server and relays, without agents.
    pub(super) async fn start(plan: Plan) -> Result<Self> {
        allow_descriptors(plan)?;
        let fleet = Fleet::start().await?;
        let mut stage = Self { swarms: Vec::new(), relays: Vec::new(), relay_ports: Vec::new(), fleet, plan };
        if plan.relays > 0 {
            stage.start_relays()?;
            stage.until_relays_connected().await?;
        }
        Ok(stage)
    }

    fn start_relays(&mut self) -> Result<()> {
        let count = self.plan.relays.to_string();
        let token = self.token(&["--relay", "--cloud-id", "0", "--uses", &count])?;
        let agents_max = relay_agents_max(self.plan);
        for index in 0..self.plan.relays {
            let port = free_port();
            let state = self.fleet.dir().join(format!("relay-{index}"));
            let line = format!(
                "relay --upstream 127.0.0.1:{} --listen 127.0.0.1:{port} --cloud-id 0 --state-dir {} \
                 --agents-max {agents_max} --connections 2",
                self.fleet.server.link,
                state.display()
            );
            let relay = self.launch(format!("relay-{index}"), &line, token.clone()).start()?;
            self.relays.push(relay);
            self.relay_ports.push(port);
        }
        Ok(())
    }

    async fn until_relays_connected(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            self.relays.iter_mut().try_for_each(Running::ensure_running)?;
            let answer = self.fleet.get("/api/v1/relays").await?;
            let connected = |relay: &&Value| relay["connected"] == true;
            let count = answer["relays"].as_array().context("a list of relays")?.iter().filter(connected).count();
            if count == self.plan.relays {
                return Ok(());
            }
            ensure!(begun.elapsed() < RELAYS_WITHIN, "{count} relays are connected after {RELAYS_WITHIN:?}");
            tokio::time::sleep(SESSIONS_POLL).await;
        }
    }

    /// Starts the agents; see [`Self::until_connected`].
    pub(super) fn start_swarms(&mut self) -> Result<()> {
        let token = self.token(&["--uses", &self.plan.agents.to_string()])?;
        let parts = parts(self.plan.agents);
        let rate = (self.plan.connect_rate as usize / parts.len()).max(1);
        let way = if self.relay_ports.is_empty() {
            (format!("--server 127.0.0.1:{}", self.fleet.server.link), String::new())
        } else {
            let relays: Vec<String> = self.relay_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            (String::new(), format!("--via-relay {}", relays.join(",")))
        };
        let mut first = 0;
        for (index, agents) in parts.into_iter().enumerate() {
            let line = format!(
                "{} -o json swarm {} --agents {agents} --first-ip {} --connect-rate {rate} --handshakes {agents} \
                 --for {SWARM_FOR}",
                way.0,
                way.1,
                ip(first)
            );
            let swarm = self.launch(format!("swarm-{index}"), &line, token.clone()).start()?;
            self.swarms.push(swarm);
            first += agents;
        }
        Ok(())
    }

    fn launch(&self, name: String, line: &str, token: String) -> Launch<'_> {
        Launch {
            name,
            program: binary("proctor"),
            arguments: line.split_whitespace().map(str::to_owned).collect(),
            environment: vec![("PROCTOR_TOKEN", token), ("PROCTOR_LOG", "warn".to_owned())],
            dir: self.fleet.dir(),
        }
    }

    fn token(&self, options: &[&str]) -> Result<String> {
        let data = self.fleet.dir().join("data").display().to_string();
        let common = ["token", "create", "--ttl", TOKEN_TTL, "--data-dir", &data];
        run_proctor(&common.iter().chain(options).copied().collect::<Vec<_>>())
    }

    /// Waits until the server has a session of every agent.
    pub(super) async fn until_connected(&mut self, limit: Duration) -> Result<Connected> {
        let begun = Instant::now();
        let (mut agent_time, mut last) = (Duration::ZERO, begun);
        loop {
            self.swarms.iter_mut().chain(&mut self.relays).try_for_each(Running::ensure_running)?;
            let sessions = self.sessions().await.unwrap_or(0);
            agent_time += last.elapsed() * u32::try_from(sessions)?;
            last = Instant::now();
            if sessions >= self.plan.agents {
                return Ok(Connected { took: begun.elapsed(), agent_time });
            }
            ensure!(begun.elapsed() < limit, "{sessions} of {} agents are connected after {limit:?}", self.plan.agents);
            tokio::time::sleep(SESSIONS_POLL).await;
        }
    }

    /// Connected agents, as the server counts them; None while it does not answer.
    async fn sessions(&self) -> Option<usize> {
        gauge(&self.metrics().await.ok()?, "proctor_sessions")
    }

    async fn metrics(&self) -> Result<String> {
        let request = self.fleet.client.get(self.fleet.url("/metrics"));
        let request = request.header("X-Bkapi-Authorization", self.fleet.authorization());
        Ok(request.send().await?.error_for_status()?.text().await?)
    }

    /// How long the server takes for its metrics, from the request to the end of the answer.
    pub(super) async fn scrapes(&self) -> Result<Scrapes> {
        let mut took = Vec::with_capacity(SCRAPES);
        for _ in 0..SCRAPES {
            let begun = Instant::now();
            self.metrics().await?;
            took.push(begun.elapsed());
            tokio::time::sleep(SCRAPE_PAUSE).await;
        }
        Ok(Scrapes { median: quantile(&took, 0.5), worst: quantile(&took, 1.0) })
    }

    pub(super) fn server_pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.fleet.server.program.pid())?)
    }

    /// CPU time of the server so far.
    pub(super) fn server_cpu(&self) -> Result<Duration> {
        self.fleet.server.program.cpu_time().context("the server has ended")
    }

    /// CPU time so far: of the server, of all swarms together and of all relays together.
    pub(super) fn cpu(&self) -> Result<Cpu> {
        const TICK: Duration = Duration::from_millis(10);
        let sum = |programs: &[Running], what: &'static str| {
            let ticks = programs.iter().map(|program| procs::ticks(program.pid()).context(what));
            Ok::<_, anyhow::Error>(TICK.mul_f64(ticks.sum::<Result<u64>>()? as f64))
        };
        Ok(Cpu {
            server: self.server_cpu()?,
            swarms: sum(&self.swarms, "a swarm has ended")?,
            relays: sum(&self.relays, "a relay has ended")?,
        })
    }

    /// Anonymous memory: of the server, and of all relays together.
    pub(super) fn memory(&self) -> Result<(u64, u64)> {
        let server = procs::anonymous(self.server_pid()?).context("the server has ended")?;
        let relays = self.relays.iter().map(|relay| procs::anonymous(relay.pid()).context("a relay has ended"));
        Ok((server, relays.sum::<Result<u64>>()?))
    }

    /// Ends the agents; returns what they saw.
    pub(super) async fn finish(&mut self) -> Result<SwarmReport> {
        let mut sum = SwarmReport::default();
        for swarm in self.swarms.drain(..) {
            sum.add(&SwarmReport::parse(&swarm.terminate(SWARM_END_MAX).await?)?);
        }
        Ok(sum)
    }
}

/// The address of an agent.
pub(super) fn ip(index: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(FIRST_IP) + u32::try_from(index).expect("fewer agents than addresses"))
}

/// How many agents each swarm process has.
fn parts(agents: usize) -> Vec<usize> {
    let count = agents.div_ceil(AGENTS_PER_SWARM_MAX).max(1);
    (0..count).map(|index| agents / count + usize::from(index < agents % count)).collect()
}

/// With slack for an uneven spread.
fn relay_agents_max(plan: Plan) -> usize {
    (plan.agents.div_ceil(plan.relays) * 5 / 4 + 16).min(AGENTS_PER_RELAY_MAX)
}

/// Programs inherit the limit; it is raised if permitted.
fn allow_descriptors(plan: Plan) -> Result<()> {
    let needed = descriptors_needed(plan);
    let limit = getrlimit(Resource::Nofile);
    let raised = limit.maximum.map(|maximum| maximum.max(needed));
    let wanted = [raised, limit.maximum].map(|most| Rlimit { current: most, maximum: most });
    let _ = wanted.into_iter().find(|wanted| setrlimit(Resource::Nofile, *wanted).is_ok());
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(
        needed <= allowed,
        "a program needs {needed} descriptors and may open {allowed}: raise `ulimit -n`, or give more --relays"
    );
    Ok(())
}

/// For the program with most agents: a swarm, a relay, or the server if there are no relays.
fn descriptors_needed(plan: Plan) -> u64 {
    let most = match plan.relays {
        0 => plan.agents,
        relays => plan.agents.div_ceil(relays),
    };
    (most.max(parts(plan.agents)[0]) + DESCRIPTORS_SPARE) as u64
}

/// The value of a metric without labels.
fn gauge(metrics: &str, name: &str) -> Option<usize> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<usize>().ok();
    metrics.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_fleet_is_divided_evenly_among_swarms() {
        assert_eq!(parts(300), [300]);
        assert_eq!(parts(15_000), [15_000]);
        assert_eq!(parts(15_001), [7501, 7500]);
        assert_eq!(parts(50_000), [12_500; 4]);
    }

    #[test]
    fn agents_have_consecutive_addresses() {
        assert_eq!(ip(0).to_string(), "10.64.0.0");
        assert_eq!(ip(12_500).to_string(), "10.64.48.212");
    }

    #[test]
    fn a_relay_has_room_for_an_uneven_spread() {
        let plan = |agents, relays| Plan { agents, relays, connect_rate: 1 };

        assert_eq!(relay_agents_max(plan(50_000, 4)), 15_641);
        assert_eq!(relay_agents_max(plan(100_000, 4)), AGENTS_PER_RELAY_MAX);
    }

    #[test]
    fn relays_take_descriptors_off_the_server() {
        let needed = |agents, relays| descriptors_needed(Plan { agents, relays, connect_rate: 1 });

        assert_eq!(needed(50_000, 0), 50_500);
        assert_eq!(needed(50_000, 4), 13_000);
        assert_eq!(needed(10_000, 4), 10_500);
    }

    #[test]
    fn a_gauge_is_found_by_its_whole_name() {
        let metrics = "# HELP proctor_sessions x\nproctor_sessions_total 9\nproctor_sessions 15000\n";

        assert_eq!(gauge(metrics, "proctor_sessions"), Some(15_000));
        assert_eq!(gauge(metrics, "proctor_relays"), None);
    }
}
