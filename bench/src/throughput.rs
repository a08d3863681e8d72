//! Status queries per second, each from HTTP submit to the final row, through the store, the link
//! and a real agent; against how many tasks with their outcome the store alone can write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use proctor_model::{AgentId, OperationId, OperationKind, Outcome, ProcessKey, TaskId};
use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use proctor_store::{NewTask, Target, TaskItem};
use proctor_testkit::Fleet;
use serde_json::json;
use uuid::Uuid;

use crate::figures::Table;

const IP: &str = "127.0.0.1";

pub(crate) async fn measure(concurrency: usize, seconds: u64) -> Result<Vec<Table>> {
    let title = format!("Status queries through HTTP, link and agent, {concurrency} at a time, {seconds} s");
    let mut table = Table::new(title, &["", "per second"]);
    let limit = Duration::from_secs(seconds);
    let store = store_rate(concurrency, limit).await?;
    let ours = query_rate(concurrency, limit).await?;
    table.row(["Proctor: submit, deliver, answer, poll until final".to_owned(), format!("{ours:.0}")]);
    table.row(["the store alone: one task and its outcome, both synced".to_owned(), format!("{store:.0}")]);
    table.row(["ratio".to_owned(), format!("{:.2}", ours / store)]);
    Ok(vec![table.finish()])
}

async fn query_rate(concurrency: usize, limit: Duration) -> Result<f64> {
    let fleet = Fleet::start().await?;
    let _agent = fleet.agent(IP).await?;
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    try_join_all((0..concurrency).map(|_| async {
        while begun.elapsed() < limit {
            query(&fleet).await?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(rate(&done, begun))
}

/// One status query of an unknown process: the cheapest thing to ask of an agent.
async fn query(fleet: &Fleet) -> Result<()> {
    let body = json!({
        "meta": {"namespace": "bench", "name": "nothing"}, "op_type": 2,
        "hosts": [{"ip": IP, "bk_cloud_id": 0, "bk_supplier_id": 0}],
    });
    let answer = fleet.gse("operate_proc", &body).await?;
    let task = answer["data"]["task_id"].as_str().with_context(|| format!("a task id: {answer}"))?.to_owned();
    loop {
        let poll = fleet.gse("get_proc_operate_result", &json!({"task_id": task})).await?;
        let row = &poll["data"][format!("0:0:{IP}:bench:nothing")];
        match row["error_code"].as_i64() {
            Some(115) => {}
            Some(0) => return Ok(()),
            Some(_) | None => anyhow::bail!("unexpected row: {poll}"),
        }
    }
}

async fn store_rate(concurrency: usize, limit: Duration) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(&dir.path().join("bench.db")).await?);
    let key: ProcessKey = "bench/nothing".parse()?;
    let agent: AgentId = "bench".parse()?;
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    try_join_all((0..concurrency).map(|_| async {
        while begun.elapsed() < limit {
            let id = TaskId::from_uuid(Uuid::now_v7());
            store.create_task(task(id, &key, &agent)).await?;
            store.record_outcomes(&[(OperationId::first(id, 0), Outcome::success(false))], 2).await?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(rate(&done, begun))
}

fn task(id: TaskId, key: &ProcessKey, agent: &AgentId) -> NewTask {
    NewTask {
        id,
        created_at: 1,
        app: "bench".into(),
        user: "bench".into(),
        family: "gse_v1".into(),
        items: vec![TaskItem {
            key: key.clone(),
            kind: Some(OperationKind::Status),
            spec: None,
            carried: false,
            register: false,
            time_limit_ms: 10_000,
            wait_ms: 0,
        }],
        targets: vec![Target {
            item: 0,
            agent: Some(agent.clone()),
            host: None,
            row_key: "k".into(),
            other_row_keys: Vec::new(),
        }],
        outcomes: Vec::new(),
        audit: None,
        idempotency: None,
        retry_of: None,
        scope: None,
        rollout: None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn rate(done: &AtomicU64, begun: Instant) -> f64 {
    done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}
