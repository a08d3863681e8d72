//! The server is killed under a connected fleet and restarted at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proctor_testkit::{Fleet, unix_millis};
use serde_json::Value;

use super::fan_out::{self, Operation, Progress};
use super::prober::{Prober, Probes, ROUTES};
use super::stage::Stage;

/// Longer than the goal, so that a miss is measured, too.
const BACK_WITHIN: Duration = Duration::from_secs(600);
/// Share of the outcomes that are in when the server is killed.
const KILLED_AFTER: usize = 4;
/// An agent that the server considered gone would be reported by then.
const EVENTS_WITHIN: Duration = Duration::from_secs(10);
const EVENTS_PER_PAGE: usize = 1000;
const EVENT_PAGES_MAX: usize = 100;
/// Number of events that are listed.
const EVENTS_SHOWN: usize = 3;

/// Agents that the server reported as gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfflineEvents {
    pub(super) count: usize,
    /// The first ones, with the time since the kill.
    pub(super) first: Vec<String>,
}

/// A kill while nothing else happens.
#[derive(Clone, Debug)]
pub(super) struct QuietKill {
    /// From SIGKILL until the API answers, and until all agents are back.
    pub(super) api_back: Duration,
    pub(super) all_back: Duration,
    /// CPU time of the new server until then, including its start, minus idle usage.
    pub(super) cpu: Duration,
    pub(super) idle_cpu: Duration,
    pub(super) offline: OfflineEvents,
}

/// A kill with an operation on all agents in progress, while the API is called.
#[derive(Clone, Debug)]
pub(super) struct BusyKill {
    pub(super) api_back: Duration,
    pub(super) all_back: Duration,
    pub(super) offline: OfflineEvents,
    /// The operation when the server was killed, and in the end.
    pub(super) before: Progress,
    pub(super) after: Progress,
    /// Of calls between the first answer and the return of the last agent.
    pub(super) probes: [Probes; ROUTES.len()],
}

/// `idle_cpu` is what the server uses for each agent and second when nothing happens.
pub(super) async fn kill_quiet(stage: &mut Stage, idle_cpu: Duration) -> Result<QuietKill> {
    let (killed_ms, killed) = (unix_millis(), Instant::now());
    stage.fleet.restart_server().await?;
    let api_back = killed.elapsed();
    let connected = stage.until_connected(BACK_WITHIN).await?;
    let all_back = killed.elapsed();
    let cpu = stage.server_cpu()?;
    tokio::time::sleep(EVENTS_WITHIN).await;
    Ok(QuietKill {
        api_back,
        all_back,
        cpu,
        idle_cpu: idle_cpu.mul_f64(connected.agent_time.as_secs_f64()),
        offline: offline_events(&stage.fleet, killed_ms).await?,
    })
}

pub(super) async fn kill_busy(stage: &mut Stage, operation: &Operation) -> Result<BusyKill> {
    let prober = Prober::start(stage.fleet.api());
    let (_, task) = operation.submit(&stage.fleet).await?;
    let before = until_under_way(&stage.fleet, &task, stage.plan.agents).await?;
    let (killed_ms, killed) = (unix_millis(), Instant::now());
    stage.fleet.restart_server().await?;
    let (api_back, answering) = (killed.elapsed(), Instant::now());
    stage.until_connected(BACK_WITHIN).await?;
    let all_back = killed.elapsed();
    let probes = prober.finish(answering).await;
    let after = fan_out::until_final(&stage.fleet, &task).await?;
    tokio::time::sleep(EVENTS_WITHIN).await;
    let offline = offline_events(&stage.fleet, killed_ms).await?;
    Ok(BusyKill { api_back, all_back, offline, before, after, probes })
}

/// Until some of the outcomes are in.
async fn until_under_way(fleet: &Fleet, task: &str, agents: usize) -> Result<Progress> {
    let begun = Instant::now();
    loop {
        let progress = fan_out::progress(fleet, task).await.context("a task that was submitted cannot be read")?;
        if progress.succeeded + progress.failed > agents / KILLED_AFTER {
            return Ok(progress);
        }
        ensure!(begun.elapsed() < BACK_WITHIN, "an operation makes no progress: {progress:?}");
    }
}

/// Since then.
async fn offline_events(fleet: &Fleet, since_ms: i64) -> Result<OfflineEvents> {
    let (mut seen, mut after) = (OfflineEvents::default(), 0);
    for _ in 0..EVENT_PAGES_MAX {
        let path =
            format!("/api/v1/events?type=agent_offline&since_ms={since_ms}&after={after}&limit={EVENTS_PER_PAGE}");
        let page = fleet.get(&path).await?;
        let events = page["events"].as_array().with_context(|| format!("no events: {page}"))?;
        seen.add(events, since_ms);
        if events.len() < EVENTS_PER_PAGE {
            break;
        }
        after = page["next"].as_u64().with_context(|| format!("no next page: {page}"))?;
    }
    Ok(seen)
}

impl OfflineEvents {
    fn add(&mut self, events: &[Value], since_ms: i64) {
        self.count += events.len();
        let shown = |event: &Value| {
            let after_ms = event["at_ms"].as_i64().unwrap_or_default() - since_ms;
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            format!("{} ms after the kill: {} {}", after_ms, text("host"), text("content"))
        };
        let room = EVENTS_SHOWN - self.first.len();
        self.first.extend(events.iter().take(room).map(shown));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_first_events_are_told_word_for_word() {
        let event = json!({"at_ms": 1250, "host": "0:10.64.0.1", "content": "agent disconnected"});
        let mut seen = OfflineEvents::default();

        seen.add(&[event.clone(), event.clone()], 1000);
        seen.add(&[event.clone(), event], 1000);

        assert_eq!((seen.count, seen.first.len()), (4, EVENTS_SHOWN));
        assert_eq!(seen.first[0], "250 ms after the kill: 0:10.64.0.1 agent disconnected");
    }
}
