//! A real agent in its own network, whose packets are lost, delayed or swallowed.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proctor_testkit::{Agent, Fleet, HANDLING, Marked, NetworkNamespace, Setup, eventually};

use crate::Arguments;
use crate::judge::{Seen, at_most, judge, p99};

const IP: &str = "127.0.0.1";
/// Maximum slowdown under packet loss.
const LOSS_FACTOR_MAX: u32 = 5;
/// TCP waits at least this long for a lost packet, however quick an operation is otherwise.
const BASELINE_MIN: Duration = Duration::from_millis(200);
/// Beside large outputs on a line of 64 kbit/s.
const SLOW_P99_MAX: Duration = Duration::from_secs(5);

struct World {
    marked: Marked,
    agent: Agent,
    fleet: Fleet,
    /// Dropped last, when nothing runs in it any more.
    network: NetworkNamespace,
}

async fn world() -> Result<World> {
    let network = NetworkNamespace::create()?;
    let setup = Setup { link_ip: Ipv4Addr::UNSPECIFIED.into(), ..Setup::default() };
    let fleet = Fleet::start_as(tempfile::tempdir()?, setup).await?;
    let link = format!("{}:{}", network.gateway, fleet.server.link);
    let agent = fleet.agent_by(&network.launcher(), &link, IP, &[]).await?;
    let marked = Marked::start(&fleet, &agent, "remote").await?;
    Ok(World { marked, agent, fleet, network })
}

impl World {
    /// How long an operation takes, from the submit to its result.
    async fn operate(&mut self, command: &str) -> Result<Duration> {
        let begun = Instant::now();
        let task = self.marked.submit(&self.fleet, command).await?;
        self.fleet.until_final(&task).await;
        Ok(begun.elapsed())
    }

    async fn operate_for(&mut self, time: Duration) -> Result<Latencies> {
        let until = Instant::now() + time;
        let mut took = Vec::new();
        while Instant::now() < until || took.len() < 5 {
            took.push(self.operate("true").await?);
        }
        Ok(Latencies::of(took))
    }

    /// How often the agent was reported offline.
    async fn flaps(&self) -> Result<usize> {
        let answer = self.fleet.api().get("/api/v1/events?type=agent_offline&limit=1000").await;
        let (status, events) = answer.context("the events are not answered")?;
        ensure!(status.is_success(), "the events are answered with {status}: {events:?}");
        events.and_then(|events| events["events"].as_array().map(Vec::len)).context("no list of events")
    }

    /// Judged, with every result a success.
    async fn settle(self, seen: &mut Seen) -> Result<()> {
        let Self { marked, agent, fleet, network } = self;
        let (history, codes) = marked.finish(&fleet).await?;
        let failed = codes.iter().filter(|code| **code != 0).count();
        ensure!(failed == 0, "{failed} of {} operations failed: {codes:?}", codes.len());
        judge(&history, seen)?;
        drop((agent, fleet, network));
        Ok(())
    }
}

/// In order.
struct Latencies(Vec<Duration>);

impl Latencies {
    fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        Self(took)
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |percent: usize| self.0.get(self.0.len() * percent / 100).map_or(0, Duration::as_millis);
        write!(f, "p50 {} ms, p99 {} ms of {}", at(50), at(99), self.0.len())
    }
}

pub(crate) async fn partition(arguments: &Arguments) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut world = world().await?;
    let wait = "touch begun; until test -e go; do sleep 0.1; done";
    let task = world.marked.submit(&world.fleet, wait).await?;
    let dir = world.marked.subject.dir.clone();
    eventually("the command runs", || async { dir.join("begun").exists().then_some(()) }).await;
    let before = world.marked.subject.pid().context("the process runs")?;
    world.network.partition()?;
    let until = Instant::now() + arguments.scaled(120);
    std::fs::write(dir.join("go"), "")?;
    world.marked.until_executed(1).await;
    world.marked.subject.kill(before);
    eventually("it is started again", || async { world.marked.subject.pid().filter(|pid| *pid != before) }).await;
    let mut looks = 0;
    while Instant::now() < until {
        let code = world.marked.code(&world.fleet, &task).await;
        ensure!(code == Some(HANDLING), "the target reads {code:?} before its time is over");
        looks += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.network.heal()?;
    let healed = Instant::now();
    world.fleet.until_final(&task).await;
    seen.add(format!(
        "open in all {looks} looks during the partition, its result {:.1} s after the end of it",
        healed.elapsed().as_secs_f64()
    ));
    ensure!(world.marked.subject.copies().len() == 1, "copies: {:?}", world.marked.subject.copies());
    world.settle(&mut seen).await?;
    Ok(seen)
}

pub(crate) async fn packet_loss(arguments: &Arguments) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut world = world().await?;
    let without = world.operate_for(arguments.scaled(20)).await?;
    let lost = "meta l4proto tcp numgen random mod 100 < 5 drop";
    world.network.filter(lost, lost)?;
    let with = world.operate_for(arguments.scaled(120)).await?;
    world.network.clear_filter();
    let flaps = world.flaps().await?;
    seen.add(format!("without loss {without}; with 5 % lost both ways {with}; {flaps} sessions lost"));
    ensure!(flaps == 0, "{flaps} sessions were lost");
    let baseline = p99(&without.0).context("nothing was measured without loss")?;
    at_most("p99 with loss", p99(&with.0), LOSS_FACTOR_MAX * baseline.max(BASELINE_MIN))?;
    world.settle(&mut seen).await?;
    Ok(seen)
}

pub(crate) async fn slow_link(arguments: &Arguments) -> Result<Seen> {
    /// As much output as an outcome carries, incompressible.
    const PRINT: &str = "head -c 6000 /dev/urandom | base64";
    let mut seen = Seen::default();
    let mut world = world().await?;
    // Of another process: operations on one wait for each other.
    let mut bulk = Marked::start(&world.fleet, &world.agent, "bulk").await?;
    world.network.set_rate("64kbit")?;
    let until = Instant::now() + arguments.scaled(120);
    let (mut took, mut uploads) = (Vec::new(), 0);
    while Instant::now() < until || uploads < 8 {
        // Four outputs are in transit when the next operation is requested.
        let mut last = String::new();
        for _ in 0..4 {
            last = bulk.submit(&world.fleet, PRINT).await?;
            uploads += 1;
        }
        took.push(world.operate("true").await?);
        world.fleet.until_final(&last).await;
    }
    let flaps = world.flaps().await?;
    let took = Latencies::of(took);
    seen.add(format!("{uploads} outputs of 8 KiB over 64 kbit/s, operations beside them {took}"));
    ensure!(flaps == 0, "{flaps} sessions were lost");
    at_most("p99 of operations", p99(&took.0), SLOW_P99_MAX)?;
    let (history, codes) = bulk.finish(&world.fleet).await?;
    ensure!(codes.iter().all(|code| *code == 0), "outputs ended with {codes:?}");
    judge(&history, &mut seen)?;
    world.settle(&mut seen).await?;
    Ok(seen)
}

pub(crate) async fn half_open(arguments: &Arguments) -> Result<Seen> {
    /// Four heartbeats of five seconds, and what a loaded machine may add.
    const FOUND_MAX: Duration = Duration::from_secs(30);
    let mut seen = Seen::default();
    let mut world = world().await?;
    let rounds = (arguments.scaled(120).as_secs() / 30).max(1);
    for _ in 0..rounds {
        let port = session_port(&world.network)?;
        world.network.filter(&format!("tcp dport {port} drop"), &format!("tcp sport {port} drop"))?;
        let took = world.operate("true").await?;
        let next = session_port(&world.network)?;
        ensure!(next != port, "the agent still uses the connection that is gone");
        ensure!(took < FOUND_MAX, "found after {} s", took.as_secs());
        seen.add(format!("an operation got through {:.1} s later", took.as_secs_f64()));
    }
    world.network.clear_filter();
    world.settle(&mut seen).await?;
    Ok(seen)
}

/// The newest port from which the agent is connected.
fn session_port(network: &NetworkNamespace) -> Result<u16> {
    let launcher = network.launcher();
    let mut ss = Command::new(&launcher.prefix[0]);
    ss.args(&launcher.prefix[1..]).args(["ss", "-tnHO", "state", "established"]);
    let printed = String::from_utf8(ss.output().context("cannot run ss")?.stdout)?;
    let local = |line: &str| line.split_whitespace().nth(2)?.rsplit_once(':')?.1.parse().ok();
    printed.lines().filter_map(local).next_back().with_context(|| format!("no connection in '{printed}'"))
}
