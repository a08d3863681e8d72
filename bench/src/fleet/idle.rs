//! What connected agents cost an idle server, and what joining costs.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::stage::{Connected, Scrapes, Stage};

/// Before memory and CPU time are read: a server returns freed memory after some seconds.
const SETTLE: Duration = Duration::from_secs(15);
/// On top of what the connection rate takes.
const CONNECTED_WITHIN: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// From the start of the swarms until every agent has a session.
    pub(super) connected: Connected,
    /// Anonymous memory added by the agents, of the server and of all relays, in bytes.
    pub(super) server_memory: u64,
    pub(super) relay_memory: u64,
    /// CPU time of the server while the agents joined.
    pub(super) join_cpu: Duration,
    /// CPU time of the server while nothing happened, and for how long that was.
    pub(super) cpu: Duration,
    pub(super) time: Duration,
    /// Afterwards.
    pub(super) scrapes: Scrapes,
}

/// Lets the agents join and watches the server idle.
pub(super) async fn measure(stage: &mut Stage, seconds: u64) -> Result<Idle> {
    tokio::time::sleep(SETTLE).await;
    let (memory, cpu) = (stage.memory()?, stage.server_cpu()?);
    stage.start_swarms()?;
    let gathering = Duration::from_secs(1).mul_f64(stage.plan.agents as f64 / f64::from(stage.plan.connect_rate));
    let connected = stage.until_connected(gathering + CONNECTED_WITHIN).await?;
    let join_cpu = stage.server_cpu()? - cpu;
    tokio::time::sleep(SETTLE).await;
    let (begun, cpu) = (Instant::now(), stage.server_cpu()?);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (cpu, time) = (stage.server_cpu()? - cpu, begun.elapsed());
    let (server, relays) = stage.memory()?;
    Ok(Idle {
        connected,
        server_memory: server.saturating_sub(memory.0),
        relay_memory: relays.saturating_sub(memory.1),
        join_cpu,
        cpu,
        time,
        scrapes: stage.scrapes().await?,
    })
}

impl Idle {
    /// CPU time of one agent in one second.
    pub(super) fn cpu_per_agent(&self, agents: usize) -> Duration {
        self.cpu.div_f64(self.time.as_secs_f64() * agents as f64)
    }

    /// CPU time of one join, without what already connected agents took meanwhile.
    pub(super) fn cpu_per_join(&self, agents: usize) -> Duration {
        let idling = self.cpu_per_agent(agents).mul_f64(self.connected.agent_time.as_secs_f64());
        self.join_cpu.saturating_sub(idling).div_f64(agents as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_is_not_charged_for_agents_that_idle_meanwhile() {
        let connected = Connected { took: Duration::from_secs(50), agent_time: Duration::from_secs(25_000) };
        let idle = Idle {
            connected,
            server_memory: 0,
            relay_memory: 0,
            join_cpu: Duration::from_secs(3),
            cpu: Duration::from_millis(2400),
            time: Duration::from_secs(60),
            scrapes: Scrapes { median: Duration::ZERO, worst: Duration::ZERO },
        };

        assert_eq!(idle.cpu_per_agent(1000), Duration::from_micros(40));
        assert_eq!(idle.cpu_per_join(1000), Duration::from_millis(2));
    }
}
