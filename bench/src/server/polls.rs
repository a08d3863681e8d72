//! How often a large task can be polled on one core.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use parking_lot::Mutex;
use proctor_model::TaskId;
use proctor_testkit::Fleet;
use serde_json::{Value, json};

use super::floors::{self, BareServer};
use super::population::{POLLED, Tasks};
use super::{call, cores, cpu_each, ticks, told};
use crate::figures::{Table, millis};

const V2: &str = "/api/v2/proc/get_proc_operate_result_v2/";
const ESB: &str = "/api/c/compapi/v2/gse/get_proc_operate_result/";
const CALLERS: usize = 4;
/// Until the open targets begin to end.
const CHANGES_WITHIN: Duration = Duration::from_secs(60);

/// Polls of one task during some time.
struct Polls {
    rate: f64,
    cpu: Duration,
    samples: Vec<Duration>,
    /// The fewest and most targets without an outcome in any answer.
    pending: (usize, usize),
    last: Bytes,
}

pub(super) async fn measure(fleet: &Fleet, tasks: &Tasks, limit: Duration) -> Result<Table> {
    let title =
        format!("Polls of a task of {POLLED} targets, {CALLERS} callers, the server on one core; at least 100/s");
    let columns = ["", "per second", "CPU of the server each", "median", "worst"];
    let mut table = Table::new(title, &columns);
    let (server, callers) = cores::two()?;
    cores::pin(fleet.server.program.pid(), server)?;
    let _aside = cores::Aside::on(callers)?;
    let mut add = |name: String, polls: &Polls| {
        let [median, worst] = told(&polls.samples);
        table.row([name, format!("{:.0}", polls.rate), millis(polls.cpu), median, worst]);
    };
    until_changing(fleet, tasks.changing).await?;
    let changing = poll(fleet, V2, tasks.changing, limit).await?;
    let (least, most) = changing.pending;
    ensure!(least < most, "nothing has changed while it was polled");
    add(format!("v2, under way: {most} open at first, {least} in the end"), &changing);
    for (path, name) in [(V2, "v2"), (ESB, "ESB")] {
        add(format!("{name}, half of it open"), &poll(fleet, path, tasks.pending, limit).await?);
    }
    let v2 = poll(fleet, V2, tasks.finished, limit).await?;
    let esb = poll(fleet, ESB, tasks.finished, limit).await?;
    let answer = esb.last.clone();
    let bare = tokio::task::spawn_blocking(move || bare((server, callers), &answer, limit)).await??;
    let size = esb.last.len() as f64 / 1e6;
    add(format!("v2, finished, {size:.1} MB"), &v2);
    add(format!("ESB, finished, {size:.1} MB"), &esb);
    add("a bare server that sends the same bytes, one caller".to_owned(), &bare);
    let written = floors::json(&esb.last)?;
    table.notes.push(format!("serde_json writes the finished answer in {}.", millis(written)));
    Ok(table.finish())
}

async fn until_changing(fleet: &Fleet, task: TaskId) -> Result<()> {
    let begun = Instant::now();
    let first = pending(&one(fleet, V2, task).await?.1);
    while pending(&one(fleet, V2, task).await?.1) == first {
        ensure!(begun.elapsed() < CHANGES_WITHIN, "no target of the task under way ends");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn one(fleet: &Fleet, path: &str, task: TaskId) -> Result<(Duration, Bytes)> {
    call(fleet, path, Bytes::from(json!({"task_id": task.to_string()}).to_string())).await
}

async fn poll(fleet: &Fleet, path: &str, task: TaskId, limit: Duration) -> Result<Polls> {
    let first = one(fleet, path, task).await?.1;
    check(&first)?;
    let (samples, last) = (Mutex::new(Vec::new()), Mutex::new(first.clone()));
    let before = ticks(fleet)?;
    let begun = Instant::now();
    let caller = || async {
        while begun.elapsed() < limit {
            let (took, answer) = one(fleet, path, task).await?;
            samples.lock().push(took);
            *last.lock() = answer;
        }
        anyhow::Ok(())
    };
    try_join_all((0..CALLERS).map(|_| caller())).await?;
    let took = begun.elapsed();
    let (samples, last) = (samples.into_inner(), last.into_inner());
    check(&last)?;
    let cpu = cpu_each(fleet, before, samples.len())?;
    let pending = (pending(&last), pending(&first));
    Ok(Polls { rate: samples.len() as f64 / took.as_secs_f64(), cpu, samples, pending, last })
}

/// Every target has its row.
fn check(answer: &[u8]) -> Result<()> {
    let answer: Value = serde_json::from_slice(answer)?;
    let rows = answer["data"].as_object().context("a map of rows")?.len();
    ensure!(rows == POLLED, "an answer has {rows} rows of {POLLED}");
    Ok(())
}

fn pending(answer: &[u8]) -> usize {
    let wanted = b"\"error_code\":115,";
    answer.windows(wanted.len()).filter(|window| window == wanted).count()
}

/// Asks the bare server from a bare caller, one call after the other.
fn bare((server, caller): (usize, usize), answer: &Bytes, limit: Duration) -> Result<Polls> {
    cores::pin_here(caller)?;
    let server = BareServer::start(server, answer.clone())?;
    let mut stream = TcpStream::connect(server.address)?;
    stream.set_nodelay(true)?;
    let mut received = vec![0; floors::head(answer.len()).len() + answer.len()];
    let mut samples = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < limit {
        let asked = Instant::now();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: bare\r\n\r\n")?;
        stream.read_exact(&mut received)?;
        samples.push(asked.elapsed());
    }
    let took = begun.elapsed();
    drop(stream);
    let used = server.end()?;
    let calls = samples.len();
    let rate = calls as f64 / took.as_secs_f64();
    Ok(Polls { rate, cpu: used / u32::try_from(calls)?, samples, pending: (0, 0), last: Bytes::new() })
}
