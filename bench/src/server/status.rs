//! `get_proc_status` for many hosts, in both generations.

use anyhow::{Result, ensure};
use bytes::Bytes;
use proctor_testkit::Fleet;
use serde_json::{Value, json};

use super::floors::{self, BareStore};
use super::population::{OBSERVED, agent, host};
use super::{call, cpu_each, ticks, told};
use crate::figures::{Table, millis};

pub(super) async fn measure(fleet: &Fleet, rounds: usize) -> Result<Table> {
    let title = format!("Status of one process on {OBSERVED} hosts, {rounds} calls each; at most 100 ms");
    let mut table = Table::new(title, &["", "median", "worst", "CPU of the server"]);
    let mut shown = Bytes::new();
    for (name, path, body) in calls() {
        let body = Bytes::from(body.to_string());
        let mut samples = Vec::new();
        let before = ticks(fleet)?;
        for _ in 0..rounds {
            let (took, answer) = call(fleet, path, body.clone()).await?;
            samples.push(took);
            shown = answer;
        }
        let cpu = cpu_each(fleet, before, rounds)?;
        check(&shown)?;
        let [median, worst] = told(&samples);
        table.row([name.to_owned(), median, worst, millis(cpu)]);
    }
    let bare = BareStore::new(&fleet.dir().join("bare-status.db"))?;
    let rows = rows(&shown)?;
    bare.write(rows.iter().map(String::as_str))?;
    let read = bare.read(rows.len())?;
    let size = shown.len() as f64 / 1e6;
    table.row([format!("bare SQLite: the {} rows by number", rows.len()), millis(read), String::new(), String::new()]);
    let written = floors::json(&shown)?;
    table.row([format!("serde_json writes the {size:.1} MB"), millis(written), String::new(), String::new()]);
    Ok(table.finish())
}

fn calls() -> [(&'static str, &'static str, Value); 3] {
    let meta = json!({"namespace": "bench", "name": "worker"});
    let hosts: Vec<Value> = (0..OBSERVED)
        .map(|number| json!({"ip": host(number).ip.to_string(), "bk_cloud_id": 0, "bk_supplier_id": 0}))
        .collect();
    let ids: Vec<String> = (0..OBSERVED).map(|number| agent(number).to_string()).collect();
    [
        ("ESB, by address", "/api/c/compapi/v2/gse/get_proc_status/", json!({"meta": meta, "hosts": hosts})),
        ("v2, by address", "/api/v2/proc/get_proc_status_v2/", json!({"meta": meta, "hosts": hosts})),
        ("v2, by agent id", "/api/v2/proc/get_proc_status_v2/", json!({"meta": meta, "agent_id_list": ids})),
    ]
}

fn check(answer: &[u8]) -> Result<()> {
    let answer: Value = serde_json::from_slice(answer)?;
    let rows = answer["data"]["proc_infos"].as_array().map_or(&[][..], Vec::as_slice);
    let running = rows.iter().filter(|row| row["status"] == 1 && row["pid"].as_i64() > Some(0)).count();
    ensure!(running == OBSERVED, "{running} of {OBSERVED} processes are told to run");
    Ok(())
}

fn rows(answer: &[u8]) -> Result<Vec<String>> {
    let answer: Value = serde_json::from_slice(answer)?;
    Ok(answer["data"]["proc_infos"].as_array().into_iter().flatten().map(Value::to_string).collect())
}
