//! One `operate_proc_multi` item for every host, from the request to the durable task id.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use proctor_testkit::Fleet;
use serde_json::{Value, json};

use super::floors::BareStore;
use super::population::{agent, host};
use super::{HOSTS, call, ticks, told};
use crate::figures::{Table, millis};

const PATH: &str = "/api/v2/proc/operate_proc_multi/";
/// Of a registration's row and what refers to it.
const REGISTRATION_BYTES: usize = 122;
const TARGETS_PER_CHUNK: usize = 1000;

/// What one kind of submission took.
struct Kind {
    name: &'static str,
    samples: Vec<Duration>,
    ticks: u64,
}

pub(super) async fn measure(fleet: &Fleet, rounds: usize) -> Result<Table> {
    let title = format!("Submission for {HOSTS} hosts in one item, {rounds} each; at most 300 ms");
    let mut table = Table::new(title, &["", "median", "worst", "CPU of the server"]);
    let kind = |name| Kind { name, samples: Vec::new(), ticks: 0 };
    let mut kinds = [
        kind("registers the process on every host"),
        kind("registered already, equal spec"),
        kind("registered already, another spec"),
        kind("stores no spec (stop)"),
    ];
    for round in 0..rounds {
        let name = format!("new-{round}");
        let bodies = [body(&name, 0, "a"), body(&name, 0, "a"), body(&name, 0, "b"), body(&name, 1, "b")];
        for (kind, body) in kinds.iter_mut().zip(bodies) {
            let before = ticks(fleet)?;
            let (took, answer) = call(fleet, PATH, body).await?;
            kind.ticks += ticks(fleet)? - before;
            kind.samples.push(took);
            until_over(fleet, &answer).await?;
        }
    }
    for Kind { name, samples, ticks } in &kinds {
        let [median, worst] = told(samples);
        let cpu = Duration::from_millis(10 * ticks) / u32::try_from(rounds)?;
        table.row([(*name).to_owned(), median, worst, millis(cpu)]);
    }
    for (name, samples) in floors(fleet, rounds)? {
        let [median, worst] = told(&samples);
        table.row([name, median, worst, String::new()]);
    }
    Ok(table.finish())
}

fn body(name: &str, op_type: u8, command: &str) -> Bytes {
    let hosts: Vec<Value> =
        (0..HOSTS).map(|number| json!({"ip": host(number).ip.to_string(), "bk_cloud_id": 0})).collect();
    let item = json!({
        "meta": {"namespace": "bench", "name": name, "labels": {"proc_name": "worker"}},
        "op_type": op_type,
        "hosts": hosts,
        "spec": {
            "identity": {
                "proc_name": "worker", "setup_path": "/opt/app", "pid_path": "/run/worker.pid", "user": "root",
                "config_path": "", "log_path": "", "index_key": "",
            },
            "control": {
                "start_cmd": format!("./start.sh {command}"), "stop_cmd": "./stop.sh",
                "restart_cmd": "", "reload_cmd": "", "kill_cmd": "", "version_cmd": "", "health_cmd": "",
            },
            "resource": {"cpu": 30.0, "mem": 20.0},
            "monitor_policy": {"auto_type": 1, "start_check_secs": 5, "op_timeout": 60},
        },
    });
    Bytes::from(json!({"proc_operate_req": [item]}).to_string())
}

/// No agent is connected: every target ends within a few seconds, and the next call finds the store idle.
async fn until_over(fleet: &Fleet, answer: &[u8]) -> Result<()> {
    let answer: Value = serde_json::from_slice(answer)?;
    let task = answer["data"]["task_id"].as_str().context("a task id")?;
    loop {
        let task = fleet.get(&format!("/api/v1/tasks/{task}")).await?;
        ensure!(task["task_id"].is_string(), "no task: {task}");
        if !task["finished_at"].is_null() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The same bytes as rows of a bare file.
fn floors(fleet: &Fleet, rounds: usize) -> Result<[(String, Vec<Duration>); 2]> {
    let bare = BareStore::new(&fleet.dir().join("bare-submit.db"))?;
    let targets: Vec<Value> = (0..HOSTS)
        .map(|number| {
            let host = host(number);
            json!({"item": 0, "agent": agent(number), "host": host, "row_key": format!("{host}:bench:new-0")})
        })
        .collect();
    let chunks: Vec<String> = targets.chunks(TARGETS_PER_CHUNK).map(|chunk| json!(chunk).to_string()).collect();
    let megabytes = chunks.iter().map(String::len).sum::<usize>() as f64 / 1e6;
    let row = "r".repeat(REGISTRATION_BYTES);
    let (mut plain, mut registering) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.push(bare.write(chunks.iter().map(String::as_str))?);
        let registrations = std::iter::repeat_n(row.as_str(), HOSTS);
        registering.push(bare.write(chunks.iter().map(String::as_str).chain(registrations))?);
    }
    Ok([
        (format!("bare SQLite: the targets, {megabytes:.1} MB"), plain),
        (format!("bare SQLite: and {HOSTS} rows of {REGISTRATION_BYTES} bytes"), registering),
    ])
}
