//! One operation on every agent: from the HTTP request until the outcomes of all are stored and can be read.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use proctor_testkit::Fleet;
use serde_json::{Value, json};

use super::stage::{Cpu, Stage, ip};
use crate::server::call;

const SUBMIT: &str = "/api/v2/proc/operate_proc_multi/";
const RESULT: &str = "/api/v2/proc/get_proc_operate_result_v2/";
const RESTART: u8 = 7;
const POLL: Duration = Duration::from_millis(10);
/// Time limit of a command, long enough for a fleet that comes back after a server restart meanwhile.
const OPERATION_SECS: u32 = 300;
/// After the last outcome: by then agents know that theirs are stored, and their reports are stored too.
const SETTLE: Duration = Duration::from_secs(1);
const ROUND_WITHIN: Duration = Duration::from_secs(300);

/// The request, made once.
#[derive(Debug)]
pub(super) struct Operation {
    agents: usize,
    body: Bytes,
}

/// The cost of one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Until the task is durable.
    pub(super) submitted: Duration,
    /// Until every outcome is stored, as a poll shows.
    pub(super) total: Duration,
    /// CPU time of all programs, including what follows the last outcome.
    pub(super) cpu: Cpu,
}

/// A task, as the native API sums it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) pending: usize,
    pub(super) succeeded: usize,
    pub(super) failed: usize,
}

impl Operation {
    pub(super) fn new(agents: usize) -> Self {
        let hosts: Vec<Value> = (0..agents).map(|index| json!({"ip": ip(index), "bk_cloud_id": 0})).collect();
        let mut item = item();
        item["hosts"] = hosts.into();
        Self { agents, body: Bytes::from(json!({"proc_operate_req": [item]}).to_string()) }
    }

    /// The bytes that say what to do, without the hosts.
    pub(super) fn request_bytes() -> usize {
        item().to_string().len()
    }

    /// Submits it; returns how long that took, and the id of the durable task.
    pub(super) async fn submit(&self, fleet: &Fleet) -> Result<(Duration, String)> {
        let (took, answer) = call(fleet, SUBMIT, self.body.clone()).await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        Ok((took, answer["data"]["task_id"].as_str().context("a task id")?.to_owned()))
    }

    pub(super) async fn round(&self, stage: &Stage) -> Result<Round> {
        let fleet = &stage.fleet;
        let (cpu, begun) = (stage.cpu()?, Instant::now());
        let (submitted, task) = self.submit(fleet).await?;
        let progress = until_final(fleet, &task).await?;
        let total = begun.elapsed();
        tokio::time::sleep(SETTLE).await;
        let cpu = stage.cpu()?.since(cpu);
        ensure!(progress.succeeded == self.agents, "an operation ended with {progress:?}");
        self.check_rows(fleet, &task).await?;
        Ok(Round { submitted, total, cpu })
    }

    /// Every agent has its row, with success.
    async fn check_rows(&self, fleet: &Fleet, task: &str) -> Result<()> {
        let (_, answer) = call(fleet, RESULT, Bytes::from(json!({"task_id": task}).to_string())).await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let rows = answer["data"].as_object().context("a map of rows")?;
        let good = rows.values().filter(|row| row["error_code"] == 0).count();
        ensure!((rows.len(), good) == (self.agents, self.agents), "{good} of {} rows are a success", rows.len());
        Ok(())
    }
}

/// None while the server does not answer.
pub(super) async fn progress(fleet: &Fleet, task: &str) -> Option<Progress> {
    let view = fleet.get(&format!("/api/v1/tasks/{task}")).await.ok()?;
    parse(&view)
}

pub(super) async fn until_final(fleet: &Fleet, task: &str) -> Result<Progress> {
    let begun = Instant::now();
    loop {
        let progress = progress(fleet, task).await;
        if let Some(done) = progress.filter(|progress| progress.pending == 0) {
            return Ok(done);
        }
        ensure!(begun.elapsed() < ROUND_WITHIN, "a task is not over after {ROUND_WITHIN:?}: {progress:?}");
        tokio::time::sleep(POLL).await;
    }
}

fn parse(view: &Value) -> Option<Progress> {
    let number = |name: &str| usize::try_from(view[name].as_u64()?).ok();
    Some(Progress { pending: number("pending")?, succeeded: number("succeeded")?, failed: number("failed")? })
}

fn item() -> Value {
    json!({
        "meta": {"namespace": "bench", "name": "fleet", "labels": {"proc_name": "worker"}},
        "op_type": RESTART,
        "spec": {
            "identity": {
                "proc_name": "worker", "setup_path": "/opt/app", "pid_path": "/run/worker.pid", "user": "root",
                "config_path": "", "log_path": "", "index_key": "",
            },
            "control": {
                "start_cmd": "./start.sh", "stop_cmd": "./stop.sh", "restart_cmd": "./restart.sh",
                "reload_cmd": "", "kill_cmd": "", "version_cmd": "", "health_cmd": "",
            },
            "resource": {"cpu": 30.0, "mem": 20.0},
            "monitor_policy": {"auto_type": 1, "start_check_secs": 5, "op_timeout": OPERATION_SECS},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_every_host() {
        let operation = Operation::new(3);

        let body: Value = serde_json::from_slice(&operation.body).unwrap();

        let item = &body["proc_operate_req"][0];
        assert_eq!(item["hosts"].as_array().unwrap().len(), 3);
        assert_eq!(item["hosts"][2]["ip"], "10.64.0.2");
        assert!(operation.body.len() > Operation::request_bytes());
    }

    #[test]
    fn a_task_without_its_counts_has_no_progress() {
        let view = json!({"pending": 1, "succeeded": 2, "failed": 0, "total": 3});

        assert_eq!(parse(&view), Some(Progress { pending: 1, succeeded: 2, failed: 0 }));
        assert_eq!(parse(&json!({"error": "unavailable"})), None);
    }
}
