//! New agents that all enrol at once, with one token that has fewer uses than there are agents.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proctor_testkit::{Fleet, Program, eventually, run_proctor};

use crate::Arguments;
use crate::judge::{Seen, Usage, at_most, mebibytes, p99};

/// One more for each of so many that get in.
const TOO_MANY_PART: u32 = 10;
/// More than a server of this size ever needs.
const SERVER_BYTES_MAX: u64 = 1 << 30;
const API_P99_MAX: Duration = Duration::from_secs(1);
/// Rows of one page.
const PAGE: usize = 1000;

pub(crate) async fn storm(arguments: &Arguments) -> Result<Seen> {
    let (mut seen, mut usage) = (Seen::default(), Usage::default());
    let fleet = Fleet::start().await?;
    let uses = arguments.agents * 5;
    let agents = uses + (uses / TOO_MANY_PART).max(1);
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--uses", &uses.to_string(), "--data-dir", &data])?;
    // Nothing in the swarm holds anybody back.
    let line = format!(
        "--server 127.0.0.1:{} -o json swarm --token {token} --agents {agents} --connect-rate {agents} \
         --handshakes {agents}",
        fleet.server.link
    );
    let line: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let (begun, api) = (Instant::now(), fleet.api());
    let mut swarm = Program::start("proctor", &line, &fleet.dir().join("swarm.log"))?;
    let mut took = Vec::new();
    let mut in_or_out = Box::pin(eventually("every agent is enrolled or turned away", || async {
        let online = api.online().await.unwrap_or(0);
        (online >= uses as usize && refusals(&fleet) >= agents - uses).then_some(())
    }));
    loop {
        let at = Instant::now();
        tokio::select! {
            () = &mut in_or_out => break,
            answer = api.get("/api/v1/overview") => {
                ensure!(answer.is_some_and(|(status, _)| status.is_success()), "the API does not answer");
                took.push(at.elapsed());
                usage.sample(&fleet.server.program);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(in_or_out);
    let enrolled = begun.elapsed();
    let ids = agent_ids(&fleet).await?;
    let distinct: HashSet<&String> = ids.iter().collect();
    seen.add(format!(
        "{} of {agents} agents enrolled with a token of {uses} uses in {:.1} s, {} turned away, p99 of {} API calls \
         {:?}, server at most {}",
        ids.len(),
        enrolled.as_secs_f64(),
        refusals(&fleet),
        took.len(),
        p99(&took),
        mebibytes(usage.peak()),
    ));
    ensure!(ids.len() == uses as usize, "{} hosts are enrolled with a token of {uses} uses", ids.len());
    ensure!(distinct.len() == ids.len(), "{} hosts share {} agent ids", ids.len(), distinct.len());
    at_most("p99 of the API", p99(&took), API_P99_MAX)?;
    at_most("memory of the server", usage.peak(), SERVER_BYTES_MAX)?;
    let status = swarm.terminate()?;
    ensure!(status.success(), "the swarm ended with {status}: {}", swarm.log());
    Ok(seen)
}

/// Agents that were told not to come back, by the log of the swarm.
fn refusals(fleet: &Fleet) -> u32 {
    let log = std::fs::read_to_string(fleet.dir().join("swarm.log")).unwrap_or_default();
    u32::try_from(log.lines().filter(|line| line.contains("agent turned away")).count()).unwrap_or(u32::MAX)
}

async fn agent_ids(fleet: &Fleet) -> Result<Vec<String>> {
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let (_, page) =
            fleet.api().get(&format!("/api/v1/hosts?limit={PAGE}{after}")).await.context("hosts are read")?;
        let page = page.context("hosts without JSON")?;
        let hosts = page["hosts"].as_array().context("no list of hosts")?;
        ids.extend(hosts.iter().filter_map(|host| host["agent"].as_str().map(str::to_owned)));
        match page["next"].as_str().map(str::to_owned) {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(ids),
        }
    }
}
