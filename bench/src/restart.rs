//! Restart latency: from SIGKILL to the process until its pid file names the next life.
//!
//! The floor is a bare parent: it learns of the death by waitpid of nothing more than its own
//! child, forks, execs the same start command, waits for it, and finds the same pid file written.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use proctor_testkit::{Fleet, Subject};
use serde_json::json;

use crate::figures::{millis, quantile, ratio};

const IP: &str = "127.0.0.1";

pub(crate) async fn measure(rounds: usize) -> Result<()> {
    let fleet = Fleet::start().await?;
    let _agent = fleet.agent(IP).await?;
    let subject = Subject::new(fleet.dir(), "restarted")?;
    start(&fleet, &subject).await?;

    let mut ours = Vec::new();
    let mut floor = Vec::new();
    let bare = Subject::new(fleet.dir(), "bare")?;
    run_start_command(&bare)?;
    for _ in 0..rounds {
        // Alternating, so that both see the same weather. A life of a moment comes first: what dies
        // before anybody could look at it is another measurement.
        tokio::time::sleep(Duration::from_millis(50)).await;
        ours.push(supervised_round(&subject)?);
        floor.push(bare_round(&bare)?);
    }
    println!("## Restart latency of a killed process, {rounds} rounds");
    println!("| | median | p99 |");
    println!("|---|---|---|");
    let row = |name: &str, samples: &[Duration]| {
        println!("| {name} | {} | {} |", millis(quantile(samples, 0.5)), millis(quantile(samples, 0.99)));
    };
    row("Proctor", &ours);
    row("floor: bare fork + exec + waitpid", &floor);
    let (median, high) =
        (ratio(quantile(&ours, 0.5), quantile(&floor, 0.5)), ratio(quantile(&ours, 0.99), quantile(&floor, 0.99)));
    println!("| ratio | {median:.2} | {high:.2} |\n");
    Ok(())
}

async fn start(fleet: &Fleet, subject: &Subject) -> Result<()> {
    let mut spec = subject.spec();
    spec["control"]["version_cmd"] = json!("");
    spec["monitor_policy"] = json!({
        "auto_type": 1, "start_check_secs": 0, "start_retries": 1_000_000, "start_interval": 0, "op_timeout": 20,
    });
    let item = json!({
        "meta": subject.meta(), "op_type": 0, "spec": spec, "hosts": [{"ip": IP, "bk_cloud_id": 0}],
    });
    let rows = fleet.operate("operate_proc_v2", &item).await?;
    anyhow::ensure!(rows[format!("0:{IP}:e2e:restarted")]["error_code"] == 0, "{rows}");
    Ok(())
}

/// Kills the process and spins until its pid file names another living one.
fn supervised_round(subject: &Subject) -> Result<Duration> {
    let before = read_pid(subject).context("the process has a pid file")?;
    let killed = Instant::now();
    subject.kill(before);
    loop {
        if let Some(pid) = read_pid(subject).filter(|pid| *pid != before) {
            let took = killed.elapsed();
            anyhow::ensure!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is gone");
            return Ok(took);
        }
        anyhow::ensure!(killed.elapsed() < Duration::from_secs(30), "the process does not come back");
        pause();
    }
}

fn bare_round(subject: &Subject) -> Result<Duration> {
    let before = read_pid(subject).context("the bare process has a pid file")?;
    let mut child = Command::new("/bin/sh").args(["-c", "exec sleep 1000"]).spawn()?;
    let killed = Instant::now();
    subject.kill(before);
    child.kill()?;
    child.wait()?;
    run_start_command(subject)?;
    loop {
        if read_pid(subject).is_some_and(|pid| pid != before) {
            return Ok(killed.elapsed());
        }
        pause();
    }
}

/// Looking must not take the core that the one looked at needs.
#[allow(clippy::disallowed_methods, reason = "a measurement, in a thread of its own")]
fn pause() {
    std::thread::sleep(Duration::from_micros(100));
}

fn run_start_command(subject: &Subject) -> Result<()> {
    let status = Command::new("/bin/sh")
        .args(["-c", &subject.start_cmd()])
        .current_dir(&subject.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    anyhow::ensure!(status.success(), "the start command failed: {status}");
    Ok(())
}

fn read_pid(subject: &Subject) -> Option<i32> {
    std::fs::read_to_string(subject.pid_file()).ok()?.trim().parse().ok()
}
