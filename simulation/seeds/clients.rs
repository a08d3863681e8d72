//! Clients that operate the fleet of a simulation, whatever happens to it, and record what they were told.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use proctor_testkit::{Answer, Api, History, submit_until_answered};
use serde_json::json;
use tokio::task::{JoinSet, LocalSet};

use crate::chance::Chance;

const PAUSE_MS: std::ops::Range<u64> = 20..600;
const READ_PERIOD: Duration = Duration::from_secs(2);

pub(crate) type Recorded = Rc<RefCell<History>>;

/// What to operate.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) api: Api,
    pub(crate) hosts: Vec<String>,
    pub(crate) processes: usize,
    /// Submits.
    pub(crate) count: usize,
}

/// Submits all, each with its own key until it is answered, and cancels some. Returns when all are answered.
pub(crate) async fn submit_all(plan: Plan, mut chance: Chance, recorded: Recorded) -> Result<()> {
    let local = LocalSet::new();
    local
        .run_until(async {
            let mut under_way = JoinSet::new();
            for number in 0..plan.count {
                tokio::time::sleep(chance.millis(PAUSE_MS)).await;
                let one = Submit {
                    api: plan.api.clone(),
                    operation: operation(&plan, &mut chance),
                    key: format!("key-{number}"),
                    is_repeated: chance.one_in(6),
                    cancel_after: chance.one_in(6).then(|| chance.millis(0..2_000)),
                };
                under_way.spawn_local(one.run(recorded.clone()));
            }
            while let Some(ended) = under_way.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await
}

fn operation(plan: &Plan, chance: &mut Chance) -> serde_json::Value {
    let kind = *chance.pick(&["start", "stop", "restart", "start", "stop", "kill", "reload"]);
    let process = format!("swarm/p-{}", chance.below(plan.processes));
    let hosts = if chance.one_in(3) { plan.hosts.clone() } else { vec![chance.pick(&plan.hosts).clone()] };
    json!({"operation": kind, "process": process, "hosts": hosts})
}

struct Submit {
    api: Api,
    operation: serde_json::Value,
    key: String,
    /// Although it was answered.
    is_repeated: bool,
    cancel_after: Option<Duration>,
}

impl Submit {
    async fn run(self, recorded: Recorded) -> Result<()> {
        for _ in 0..=usize::from(self.is_repeated) {
            let task = submit_until_answered(&self.api, &self.operation, &self.key).await?;
            recorded.borrow_mut().answers.push(Answer { key: self.key.clone(), task: task.clone() });
            if let Some(wait) = self.cancel_after {
                tokio::time::sleep(wait).await;
                self.api.cancel(&task).await;
                // What it calls over now must not begin later.
                let read = self.api.read_task(&task).await;
                recorded.borrow_mut().reads.extend(read);
            }
        }
        Ok(())
    }
}

/// Keeps reading the newest task, another one, and the generations.
pub(crate) async fn read_on(api: Api, mut chance: Chance, recorded: Recorded) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(READ_PERIOD).await;
        let tasks: Vec<String> = {
            let answers = &recorded.borrow().answers;
            let other = (!answers.is_empty()).then(|| answers[chance.below(answers.len())].task.clone());
            answers.last().map(|answer| answer.task.clone()).into_iter().chain(other).collect()
        };
        for task in tasks {
            let read = api.read_task(&task).await;
            recorded.borrow_mut().reads.extend(read);
        }
        let generations = api.generations().await;
        recorded.borrow_mut().generations.extend(generations);
    }
}
