//! Clients that start and stop processes of a swarm at a rate, whatever happens to the server.
//!
//! Promised: every submit has its own key and is repeated with it until it is answered; answers and reads are
//! recorded. Absent: waiting for outcomes before [`Load::finish`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::history::{Answer, HANDLING, History};
use crate::{Api, PATIENCE};

/// Submits that wait for their answer, so that a server that is away does not meet a mob when it returns.
const UNDER_WAY_MAX: usize = 256;
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Every n-th submit is repeated although it was answered.
const REPEATED: usize = 10;
const READ_PERIOD: Duration = Duration::from_millis(200);
/// Tasks that are read at the same time at the end.
const READERS: usize = 8;

#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Operations per second, each a task of its own.
    pub rate: u32,
    /// `CLOUD:IP` each.
    pub hosts: Vec<String>,
    /// `swarm/p-0` and following.
    pub processes: usize,
}

#[derive(Debug)]
pub struct Load {
    api: Api,
    stop: watch::Sender<bool>,
    recorded: Arc<Mutex<History>>,
    working: JoinSet<Result<()>>,
}

impl Load {
    pub fn start(api: Api, plan: LoadPlan) -> Self {
        let (stop, stopped) = watch::channel(false);
        let recorded = Arc::<Mutex<History>>::default();
        let mut working = JoinSet::new();
        working.spawn(submit_all(api.clone(), plan, recorded.clone(), stopped.clone()));
        working.spawn(read_on(api.clone(), recorded.clone(), stopped));
        Self { api, stop, recorded, working }
    }

    pub async fn answered(&self) -> usize {
        self.recorded.lock().await.answers.len()
    }

    /// Ends the load, waits until every target of every accepted task is final, and returns the record.
    pub async fn finish(mut self) -> Result<History> {
        let _ = self.stop.send(true);
        while let Some(ended) = self.working.join_next().await {
            ended??;
        }
        let mut history = std::mem::take(&mut *self.recorded.lock().await);
        read_until_final(&self.api, &mut history).await?;
        Ok(history)
    }
}

async fn submit_all(
    api: Api,
    plan: LoadPlan,
    recorded: Arc<Mutex<History>>,
    mut stopped: watch::Receiver<bool>,
) -> Result<()> {
    let mut period = tokio::time::interval(Duration::from_secs(1) / plan.rate.max(1));
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    for number in 0.. {
        tokio::select! {
            _ = period.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        while under_way.len() >= UNDER_WAY_MAX {
            under_way.join_next().await.expect("some are under way")??;
        }
        while let Some(ended) = under_way.try_join_next() {
            ended??;
        }
        under_way.spawn(submit_one(api.clone(), operation(&plan, number), number, recorded.clone()));
    }
    while let Some(ended) = under_way.join_next().await {
        ended??;
    }
    Ok(())
}

/// Cycles through all hosts and processes with starts, then with stops, and so on.
fn operation(plan: &LoadPlan, number: usize) -> serde_json::Value {
    let host = &plan.hosts[number % plan.hosts.len()];
    let process = number / plan.hosts.len() % plan.processes;
    let is_start = (number / plan.hosts.len() / plan.processes).is_multiple_of(2);
    json!({"operation": if is_start { "start" } else { "stop" }, "process": format!("swarm/p-{process}"), "hosts": [host]})
}

async fn submit_one(
    api: Api,
    operation: serde_json::Value,
    number: usize,
    recorded: Arc<Mutex<History>>,
) -> Result<()> {
    let key = format!("load-{number}");
    let times = if number.is_multiple_of(REPEATED) { 2 } else { 1 };
    for _ in 0..times {
        let task = submit_until_answered(&api, &operation, &key).await?;
        recorded.lock().await.answers.push(Answer { key: key.clone(), task });
    }
    Ok(())
}

/// The task's id; the same key yields the same task, however often it is sent.
pub async fn submit_until_answered(api: &Api, operation: &serde_json::Value, key: &str) -> Result<String> {
    let begun = Instant::now();
    loop {
        if let Some(task) = api.submit(operation, key).await? {
            return Ok(task);
        }
        ensure!(begun.elapsed() < PATIENCE, "the submit {key} was not answered");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Reads the newest task and an older one now and then, and the generations.
async fn read_on(api: Api, recorded: Arc<Mutex<History>>, mut stopped: watch::Receiver<bool>) -> Result<()> {
    for round in 0_usize.. {
        tokio::select! {
            () = tokio::time::sleep(READ_PERIOD) => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        let tasks: Vec<String> = {
            let recorded = recorded.lock().await;
            let count = recorded.answers.len();
            let indices = [count.checked_sub(1), (count > 0).then(|| round * 7919 % count)];
            indices.into_iter().flatten().map(|index| recorded.answers[index].task.clone()).collect()
        };
        for task in tasks {
            let read = api.read_task(&task).await;
            recorded.lock().await.reads.extend(read);
        }
        let generations = api.generations().await;
        recorded.lock().await.generations.extend(generations);
    }
    Ok(())
}

/// Adds a read of each accepted task in which every target is final.
pub async fn read_until_final(api: &Api, history: &mut History) -> Result<()> {
    let tasks: BTreeSet<&str> = history.answers.iter().map(|answer| answer.task.as_str()).collect();
    let mut left: Vec<String> = tasks.into_iter().map(str::to_owned).collect();
    let mut reading = JoinSet::new();
    loop {
        while reading.len() < READERS {
            let Some(task) = left.pop() else { break };
            let api = api.clone();
            reading.spawn(async move { until_final(&api, &task).await });
        }
        let Some(read) = reading.join_next().await else { return Ok(()) };
        history.reads.push(read??);
    }
}

/// Returns the last read even if something is open after [`PATIENCE`]: the judge says so.
async fn until_final(api: &Api, task: &str) -> Result<crate::TaskRead> {
    let begun = Instant::now();
    let mut last = None;
    loop {
        if let Some(read) = api.read_task(task).await {
            let is_open = read.targets.iter().flatten().any(|target| target.code == HANDLING);
            if !is_open {
                return Ok(read);
            }
            last = Some(read);
        }
        if begun.elapsed() > PATIENCE {
            return last.with_context(|| format!("task {task} cannot be read"));
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}
