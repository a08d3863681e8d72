//! Relays that die, with a swarm of recorded agents behind them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proctor_testkit::{Fleet, HostEvent, Load, LoadPlan, Relays, Swarm, SwarmPlan, eventually};
use serde_json::Value;

use crate::Arguments;
use crate::judge::{Seen, at_most, judge};

const PROCESSES: usize = 2;
/// From the kill of a relay until its agents have sessions through the other one.
const MOVED_MAX: Duration = Duration::from_secs(10);
const SLOW_HALF: &str = "[[group]]\nname = 'slow'\nshare = 0.5\ncommand_ms = [50, 1000]\n";

async fn start(arguments: &Arguments) -> Result<(Fleet, Relays, Swarm)> {
    let fleet = Fleet::start().await?;
    let relays = Relays::start(&fleet, 2).await?;
    let plan = SwarmPlan {
        behaviour: SLOW_HALF.to_owned(),
        relays: Some(relays.endpoints()),
        ..SwarmPlan::new(arguments.agents, PROCESSES)
    };
    let swarm = Swarm::start(&fleet, &plan).await?;
    Ok((fleet, relays, swarm))
}

async fn offline_events(fleet: &Fleet) -> Result<usize> {
    let events = fleet.get("/api/v1/events?type=agent_offline&limit=1000").await?;
    events["events"].as_array().map(Vec::len).with_context(|| format!("no list of events: {events}"))
}

pub(crate) async fn killed(arguments: &Arguments) -> Result<Seen> {
    let mut seen = Seen::default();
    let (fleet, mut relays, swarm) = start(arguments).await?;
    let load =
        Load::start(fleet.api(), LoadPlan { rate: arguments.rate.min(50), hosts: swarm.hosts(), processes: PROCESSES });
    for round in 0..2 {
        tokio::time::sleep(arguments.scaled(20)).await;
        let carried = relays.carried(&fleet).await.context("the relays are read")?;
        ensure!(carried.iter().all(|count| *count > 0), "a relay carries nobody: {carried:?}");
        relays.programs[round].kill();
        let begun = Instant::now();
        eventually("the other relay carries all agents", || async {
            let carried = relays.carried(&fleet).await?;
            carried.contains(&u64::from(arguments.agents)).then_some(())
        })
        .await;
        let moved = begun.elapsed();
        seen.add(format!(
            "{} of {} agents moved in {:.1} s",
            carried.iter().min().unwrap_or(&0),
            arguments.agents,
            moved.as_secs_f64()
        ));
        at_most("the move to the other relay", Some(moved), MOVED_MAX)?;
        relays.restart(round)?;
        relays.until_connected(&fleet, 2).await;
        // Agents stay where they are: only new sessions move some of them back.
        if round == 0 {
            relays.programs[1].kill();
            relays.restart(1)?;
            eventually("both carry agents", || async {
                let carried = relays.carried(&fleet).await?;
                (carried.iter().all(|count| *count > 0) && carried.iter().sum::<u64>() == u64::from(arguments.agents))
                    .then_some(())
            })
            .await;
        }
    }
    at_most("agents that were called offline", Some(offline_events(&fleet).await?), 0)?;
    let mut history = load.finish().await?;
    history.hosts = swarm.finish()?;
    history.has_all_executions = true;
    judge(&history, &mut seen)?;
    Ok(seen)
}

pub(crate) async fn gone(arguments: &Arguments) -> Result<Seen> {
    let mut seen = Seen::default();
    let (fleet, mut relays, swarm) = start(arguments).await?;
    let agents = arguments.agents as usize;
    relays.programs.iter_mut().for_each(proctor_testkit::Program::kill);
    let unreachable = || async {
        let hosts = fleet.get("/api/v1/hosts?limit=1000").await.ok()?;
        let is_unreachable = |host: &&Value| host["unreachable"] == true && host["online"] == false;
        Some(hosts["hosts"].as_array()?.iter().filter(is_unreachable).count())
    };
    eventually("all hosts are unreachable", || async { (unreachable().await? == agents.min(1000)).then_some(()) })
        .await;
    tokio::time::sleep(arguments.scaled(300)).await;
    ensure!(unreachable().await == Some(agents.min(1000)), "the hosts of the area are no longer unreachable");
    at_most("agents that were called offline", Some(offline_events(&fleet).await?), 0)?;
    let back_at = proctor_testkit::unix_millis();
    for index in 0..2 {
        relays.restart(index)?;
    }
    let begun = Instant::now();
    swarm.until_online(&fleet.api()).await;
    let back = begun.elapsed();
    at_most("agents that were called offline", Some(offline_events(&fleet).await?), 0)?;
    let records = swarm.finish()?;
    let connected = |record: &&proctor_testkit::HostRecord| {
        matches!(record.what, HostEvent::Connected { .. }) && record.at_ms >= back_at
    };
    let first = records.iter().filter(connected).map(|record| record.at_ms).min().context("nobody came back")?;
    seen.add(format!(
        "{agents} agents unreachable for {:?}, back within {:.1} s, the first after {:.1} s",
        arguments.scaled(300),
        back.as_secs_f64(),
        (first - back_at) as f64 / 1000.0
    ));
    Ok(seen)
}
