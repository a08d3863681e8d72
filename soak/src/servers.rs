//! Servers that die, and connections that break, with a swarm of recorded agents.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proctor_testkit::{
    Answer, FaultProxy, Fleet, History, Load, LoadPlan, Swarm, SwarmPlan, read_until_final, submit_until_answered,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::Arguments;
use crate::judge::{Seen, Usage, at_most, judge, mebibytes, p99, watch_server};

/// More than a server of this size ever needs; a leak goes beyond it.
const SERVER_BYTES_MAX: u64 = 1 << 30;
const PROCESSES: usize = 2;
/// All agents are back after a restart; after one that everybody waited for, with many more of them.
const BACK_MAX: Duration = Duration::from_secs(60);
const BACK_AFTER_STORM_MAX: Duration = Duration::from_secs(120);
/// The API while the fleet comes back.
const API_P99_MAX: Duration = Duration::from_secs(1);
/// Beyond 5 % of the baseline: pages that are in use now and then.
const GROWTH_SPARE: u64 = 8 << 20;
/// Half of the agents take up to a second per command, so that a fault finds some at work.
const SLOW_HALF: &str = "[[group]]\nname = 'slow'\nshare = 0.5\ncommand_ms = [50, 1000]\n";

fn plan(arguments: &Arguments) -> SwarmPlan {
    SwarmPlan { behaviour: SLOW_HALF.to_owned(), ..SwarmPlan::new(arguments.agents, PROCESSES) }
}

fn load(arguments: &Arguments, fleet: &Fleet, swarm: &Swarm) -> Load {
    let plan = LoadPlan { rate: arguments.rate, hosts: swarm.hosts(), processes: PROCESSES };
    Load::start(fleet.api(), plan)
}

/// The record of everybody, judged.
async fn settle(load: Load, swarm: Swarm, usage: &Usage, seen: &mut Seen) -> Result<()> {
    let mut history = load.finish().await?;
    history.hosts = swarm.finish()?;
    history.has_all_executions = true;
    usage.record(&mut history, "server", SERVER_BYTES_MAX);
    seen.add(format!("server at most {}", mebibytes(usage.peak())));
    judge(&history, seen)
}

/// Away events that nobody should have been told.
async fn false_alarms(fleet: &Fleet) -> Result<usize> {
    let (status, events) =
        fleet.api().get("/api/v1/events?type=agent_offline&limit=1000").await.context("events are read")?;
    ensure!(status.is_success(), "the events are answered with {status}: {events:?}");
    events.and_then(|events| events["events"].as_array().map(Vec::len)).context("no list of events")
}

pub(crate) async fn killed_under_load(arguments: &Arguments) -> Result<Seen> {
    const KILLS: u32 = 3;
    let (mut seen, mut usage) = (Seen::default(), Usage::default());
    let mut fleet = Fleet::start().await?;
    let swarm = Swarm::start(&fleet, &plan(arguments)).await?;
    let load = load(arguments, &fleet, &swarm);
    for _ in 0..KILLS {
        watch_server(&fleet, &mut usage, arguments.scaled(20)).await;
        fleet.server.program.kill();
        tokio::time::sleep(arguments.scaled(5)).await;
        fleet.start_server_again().await?;
        let begun = Instant::now();
        swarm.until_online(&fleet.api()).await;
        let back = begun.elapsed();
        seen.add(format!("all agents back {:.1} s after the restart", back.as_secs_f64()));
        at_most("the return of all agents", Some(back), BACK_MAX)?;
    }
    watch_server(&fleet, &mut usage, arguments.scaled(10)).await;
    at_most("agents that were called offline", Some(false_alarms(&fleet).await?), 0)?;
    settle(load, swarm, &usage, &mut seen).await?;
    Ok(seen)
}

pub(crate) async fn killed_amid_submits(arguments: &Arguments) -> Result<Seen> {
    let (mut seen, mut usage) = (Seen::default(), Usage::default());
    let mut fleet = Fleet::start().await?;
    let processes = arguments.targets.div_ceil(arguments.agents as usize).max(1);
    let swarm = Swarm::start(&fleet, &SwarmPlan::new(arguments.agents, processes)).await?;
    let api = fleet.api();
    let hosts = swarm.hosts();
    let pairs = (0..processes).flat_map(|number| hosts.iter().map(move |host| (number, host)));
    let pair = |(number, host): (usize, &String)| json!({"process": format!("swarm/p-{number}"), "host": host});
    let targets: Vec<_> = pairs.take(arguments.targets).map(pair).collect();
    let operation = json!({"operation": "restart", "targets": targets});
    let rounds = arguments.scaled(10).as_secs().clamp(2, 50);
    let (mut history, mut first_answers) = (History::default(), 0);
    for round in 0..rounds {
        let key = format!("round-{round}");
        let (of_submit, body, sent_key) = (api.clone(), operation.clone(), key.clone());
        let mut submitting = JoinSet::new();
        submitting.spawn(async move { of_submit.submit(&body, &sent_key).await });
        // From before the request is read until after its answer.
        tokio::time::sleep(Duration::from_millis(round * 400 / rounds)).await;
        usage.sample(&fleet.server.program);
        fleet.server.program.kill();
        let answered = submitting.join_next().await.context("a submit")???;
        first_answers += usize::from(answered.is_some());
        history.answers.extend(answered.map(|task| Answer { key: key.clone(), task }));
        fleet.start_server_again().await?;
        let task = submit_until_answered(&api, &operation, &key).await?;
        history.answers.push(Answer { key, task });
    }
    read_until_final(&api, &mut history).await?;
    let (_, tasks) = api.get("/api/v1/tasks?limit=1000").await.context("tasks are read")?;
    let count = tasks.and_then(|tasks| tasks["tasks"].as_array().map(Vec::len)).unwrap_or_default();
    ensure!(u64::try_from(count)? == rounds, "{rounds} keys made {count} tasks");
    seen.add(format!("{rounds} kills, {first_answers} submits answered before them, {count} tasks"));
    history.hosts = swarm.finish()?;
    history.has_all_executions = true;
    usage.record(&mut history, "server", SERVER_BYTES_MAX);
    judge(&history, &mut seen)?;
    Ok(seen)
}

pub(crate) async fn resets(arguments: &Arguments) -> Result<Seen> {
    const PERIOD: Duration = Duration::from_secs(10);
    let (mut seen, mut usage) = (Seen::default(), Usage::default());
    let fleet = Fleet::start().await?;
    let proxy = FaultProxy::start(fleet.server.link).await?;
    let swarm = Swarm::start(&fleet, &SwarmPlan { through: Some(proxy.port), ..plan(arguments) }).await?;
    let load = load(arguments, &fleet, &swarm);
    let rounds = (arguments.scaled(300).as_secs() / PERIOD.as_secs()).max(2);
    // After the first round, everything that grows once has grown.
    let mut settled = (None, None);
    for round in 0..rounds {
        watch_server(&fleet, &mut usage, PERIOD).await;
        if round == 0 {
            settled = (usage.last(), usage.descriptors.last().copied());
        }
        let before = load.answered().await;
        proxy.reset_all();
        tokio::time::sleep(Duration::from_secs(1)).await;
        ensure!(load.answered().await > before, "no submit was answered after a reset");
    }
    swarm.until_online(&fleet.api()).await;
    watch_server(&fleet, &mut usage, Duration::from_secs(10)).await;
    let descriptors = usage.descriptors.last().copied();
    seen.add(format!(
        "{rounds} resets of all connections, memory {} then {}, descriptors {:?} then {descriptors:?}",
        mebibytes(settled.0),
        mebibytes(usage.last()),
        settled.1
    ));
    let (memory, opened) = (settled.0.context("no memory")?, settled.1.context("no descriptors")?);
    at_most("descriptors", descriptors, opened + 64)?;
    at_most("memory at the end", usage.last(), memory + memory / 20 + GROWTH_SPARE)?;
    settle(load, swarm, &usage, &mut seen).await?;
    Ok(seen)
}

pub(crate) async fn reconnect_storm(arguments: &Arguments) -> Result<Seen> {
    let (mut seen, mut usage) = (Seen::default(), Usage::default());
    let mut fleet = Fleet::start().await?;
    // The most agents of all scenarios.
    let swarm = Swarm::start(&fleet, &SwarmPlan::new(arguments.agents * 5, 1)).await?;
    let api = fleet.api();
    watch_server(&fleet, &mut usage, Duration::from_secs(5)).await;
    let steady = usage.last();
    fleet.server.program.kill();
    fleet.start_server_again().await?;
    let begun = Instant::now();
    let mut took = Vec::new();
    let mut back = Box::pin(swarm.until_online(&api));
    loop {
        let at = Instant::now();
        tokio::select! {
            () = &mut back => break,
            answer = api.get("/api/v1/overview") => {
                ensure!(answer.is_some_and(|(status, _)| status.is_success()), "the API does not answer");
                took.push(at.elapsed());
                usage.sample(&fleet.server.program);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(back);
    let back = begun.elapsed();
    seen.add(format!(
        "{} agents back after {:.1} s, p99 of {} API calls {:?}, memory {} then at most {}",
        arguments.agents * 5,
        back.as_secs_f64(),
        took.len(),
        p99(&took),
        mebibytes(steady),
        mebibytes(usage.peak()),
    ));
    at_most("the return of all agents", Some(back), BACK_AFTER_STORM_MAX)?;
    at_most("p99 of the API", p99(&took), API_P99_MAX)?;
    let steady = steady.context("no memory")?;
    at_most("memory during the storm", usage.peak(), steady + steady / 2)?;
    let key = "after-the-storm".to_owned();
    let operation = json!({"operation": "start", "process": "swarm/p-0", "all": true});
    let task = submit_until_answered(&api, &operation, &key).await?;
    let mut history = History { answers: vec![Answer { key, task }], ..History::default() };
    read_until_final(&api, &mut history).await?;
    history.hosts = swarm.finish()?;
    history.has_all_executions = true;
    usage.record(&mut history, "server", SERVER_BYTES_MAX);
    judge(&history, &mut seen)?;
    Ok(seen)
}
