//! Large calls at the server: the real program on its real store, called over HTTP.
//!
//! The hosts and their observations are put into the store before the server starts; no agent is connected. Each
//! figure is shown next to what the machine takes for the same bytes: a bare SQLite file with the same durability,
//! `serde_json` that writes the same answer, a bare server that sends it.

pub(crate) mod backup;
mod cores;
mod floors;
mod polls;
mod population;
mod status;
mod submit;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use proctor_testkit::Fleet;

use crate::figures::{Table, millis, quantile};
use population::Population;

/// Hosts in the store; a task is for all of them.
const HOSTS: usize = 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Status,
    Submit,
    Polls,
}

pub(crate) async fn measure(parts: &[Part], rounds: usize, seconds: u64) -> Result<Vec<Table>> {
    let is_wanted = |part| parts.is_empty() || parts.contains(&part);
    let mut fleet = Fleet::start().await?;
    fleet.server.program.kill();
    let population = Population::new(fleet.dir(), HOSTS).await?;
    fleet.restart_server().await?;
    let mut tables = Vec::new();
    if is_wanted(Part::Status) {
        tables.push(status::measure(&fleet, rounds).await?);
    }
    if is_wanted(Part::Submit) {
        tables.push(submit::measure(&fleet, rounds).await?);
    }
    if is_wanted(Part::Polls) {
        fleet.server.program.kill();
        let tasks = population.tasks(fleet.dir()).await?;
        fleet.restart_server().await?;
        tables.push(polls::measure(&fleet, &tasks, Duration::from_secs(seconds)).await?);
    }
    Ok(tables)
}

/// Sends the body and reads the whole answer, which must be a success.
pub(crate) async fn call(fleet: &Fleet, path: &str, body: Bytes) -> Result<(Duration, Bytes)> {
    let begun = Instant::now();
    let answer = fleet.request(path).body(body).send().await?;
    let status = answer.status();
    let answer = answer.bytes().await?;
    let took = begun.elapsed();
    let is_success = answer.starts_with(br#"{"result":true,"#);
    ensure!(status.is_success() && is_success, "{path} answered {status}: {}", String::from_utf8_lossy(&answer));
    Ok((took, answer))
}

/// Median and worst.
fn told(samples: &[Duration]) -> [String; 2] {
    [millis(quantile(samples, 0.5)), millis(quantile(samples, 1.0))]
}

/// CPU time of the server per call.
fn cpu_each(fleet: &Fleet, before: u64, calls: usize) -> Result<Duration> {
    let used = ticks(fleet)? - before;
    Ok(Duration::from_millis(10 * used) / u32::try_from(calls)?)
}

fn ticks(fleet: &Fleet) -> Result<u64> {
    let pid = i32::try_from(fleet.server.program.pid())?;
    crate::procs::ticks(pid).context("the server has ended")
}
