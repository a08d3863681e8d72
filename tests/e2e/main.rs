//! Real binaries, real processes, real sockets: what a user of the API documents sees.

#![allow(clippy::unwrap_used, reason = "tests")]

mod backup;
mod cli;
mod cli_fleet;
mod client;
mod configuration;
mod degraded;
mod descriptors;
mod dev;
mod disk;
mod docs;
mod documents;
mod errors;
mod exhaustion;
mod faults;
mod harness;
mod https;
mod identity;
mod job;
mod join;
mod link_faults;
mod load_faults;
mod local;
mod logs;
mod maintenance;
mod metrics;
mod native;
mod operations;
mod owner;
mod relay;
mod resync;
mod rolling_kills;
mod rotation;
mod scenarios;
mod signed;
mod slow_link;
mod supervision;
mod swarm;
#[cfg(feature = "otel")]
mod traces;
mod upgrade;
mod waiting;
mod words;

use proctor_testkit::{Fleet, Subject};
use serde_json::{Value, json};

/// The host of a fleet with one agent.
const IP: &str = "127.0.0.1";

/// The host list of a v1 call.
fn hosts(ips: &[&str]) -> Value {
    ips.iter().map(|ip| json!({"ip": ip, "bk_cloud_id": 0, "bk_supplier_id": 0})).collect()
}

/// The row of a v1 answer for this host and process.
fn row<'a>(rows: &'a Value, ip: &str, name: &str) -> &'a Value {
    let v1 = format!("0:0:{ip}:e2e:{name}");
    let v2 = format!("0:{ip}:e2e:{name}");
    rows.get(&v1).or_else(|| rows.get(&v2)).unwrap_or_else(|| panic!("no row {v1} in {rows}"))
}

fn code(rows: &Value, ip: &str, name: &str) -> i64 {
    row(rows, ip, name)["error_code"].as_i64().unwrap()
}

/// `content` of a finished row, parsed: it is JSON inside a string.
fn content(row: &Value) -> Value {
    serde_json::from_str(row["content"].as_str().unwrap()).unwrap()
}

/// The live instance of a process, by a status query.
async fn instance(fleet: &Fleet, ip: &str, name: &str) -> Value {
    let body = json!({"meta": {"namespace": "e2e", "name": name}, "op_type": 2, "hosts": hosts(&[ip])});
    let rows = fleet.operate("operate_proc", &body).await.unwrap();
    let row = row(&rows, ip, name);
    assert_eq!(row["error_code"], 0, "{row}");
    content(row)["process"][0]["instance"][0].clone()
}

/// Registers the subject on [`IP`], or updates it, with its spec changed by `change`.
async fn register(fleet: &Fleet, subject: &Subject, change: impl FnOnce(&mut Value)) {
    let mut spec = subject.spec();
    change(&mut spec);
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
    let answer = fleet.gse("update_proc_info", &body).await.unwrap();
    assert_eq!(code(&answer["data"], IP, &subject.name), 0, "{answer}");
}

/// The final row of an operation on the subject on [`IP`].
async fn operate(fleet: &Fleet, subject: &Subject, op_type: i64) -> Value {
    let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
    let rows = fleet.operate("operate_proc", &body).await.unwrap();
    row(&rows, IP, &subject.name).clone()
}
