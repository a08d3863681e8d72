//! A fleet in one thread, with simulated time: the real server, store, relays, sessions and API, simulated agents on the
//! real link, and faults that a seed draws. The history of each run is judged by the invariants of docs/faults.md.
//!
//! `PROCTOR_SEEDS=FIRST..END` runs other seeds than the few of every test run; see docs/faults.md.

mod chance;
mod clients;
mod faults;
mod virtual_time;
mod world;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use proctor_swarm::Behaviour;
use proctor_testkit::{History, MemorySample, first_lines, read_until_final};

use chance::Chance;
use clients::{Plan, Recorded};
use faults::Faults;
use world::{Size, World};

const SEEDS: Range<u64> = 0..8;
/// In real time: after it no further seed begins. Seeds from the environment are all run.
const BUDGET: Duration = Duration::from_secs(15);
const SUBMITS: usize = 80;
/// Of this process with one fleet at a time: far above what a run takes, far below a leak in a loop.
const MEMORY_MAX: u64 = 1 << 30;

/// The result of a seed.
struct Run {
    history: History,
    faults: Vec<String>,
    simulated: Duration,
}

#[test]
fn the_invariants_hold_whatever_goes_wrong() {
    show_logs();
    let (start, asked) = (std::time::Instant::now(), asked_seeds());
    for seed in asked.clone().unwrap_or(SEEDS) {
        let begun = std::time::Instant::now();
        if asked.is_none() && start.elapsed() > BUDGET {
            return println!("seed {seed} and the following are left out: time is up");
        }
        let run = run(seed);
        let breaches = run.history.breaches();
        println!(
            "seed {seed}: {} faults in {:?}, {}; digest {:08x}; took {:?}",
            run.faults.len(),
            run.simulated,
            run.history.summary(),
            digest(&run),
            begun.elapsed()
        );
        assert!(breaches.is_empty(), "seed {seed}\n{}\n{}", run.faults.join("\n"), first_lines(&breaches));
    }
}

/// The programs' logs, as `RUST_LOG` says, with simulated times.
fn show_logs() {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}

/// Two runs with the same faults and the same actions on all hosts have the same digest.
fn digest(run: &Run) -> u32 {
    let mut hasher = DefaultHasher::new();
    run.faults.hash(&mut hasher);
    let first = run.history.hosts.first().map_or(0, |record| record.at_ms);
    for record in &run.history.hosts {
        (record.at_ms - first, &record.host, std::mem::discriminant(&record.what)).hash(&mut hasher);
    }
    (hasher.finish() >> 32) as u32
}

/// `FIRST..END` of the environment.
fn asked_seeds() -> Option<Range<u64>> {
    let given = std::env::var("PROCTOR_SEEDS").ok()?;
    let (first, end) = given.split_once("..").expect("PROCTOR_SEEDS is FIRST..END");
    Some(first.parse().expect("FIRST is a number")..end.parse().expect("END is a number"))
}

/// # Panics
/// With its seed, if it cannot be carried to its end.
fn run(seed: u64) -> Run {
    let run = virtual_time::simulate(seed, move || live(seed));
    run.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .unwrap_or_else(|error| panic!("seed {seed}: {error:#}"))
}

async fn live(seed: u64) -> Result<Run> {
    let mut chance = Chance::new(seed);
    let size = draw_size(&mut chance)?;
    let mut world = World::start(&size).await?;
    let begun = tokio::time::Instant::now();
    let recorded: Recorded = Rc::new(RefCell::new(History { has_all_executions: true, ..History::default() }));
    let plan = Plan {
        api: world.api.clone(),
        hosts: world.agents.iter().map(|agent| agent.host.clone()).collect(),
        processes: size.processes,
        count: SUBMITS,
    };
    let mut faults = Faults::new(chance.fork());
    let submitting = clients::submit_all(plan, chance.fork(), recorded.clone());
    let reading = clients::read_on(world.api.clone(), chance.fork(), recorded.clone());
    let breaking = faults.run(&mut world);
    tokio::select! {
        submitted = submitting => submitted.context("clients")?,
        never = reading => match never {},
        broken = breaking => match broken.context("faults")? {},
    }
    let faults = faults.log;
    world.heal().await?;
    let mut history = recorded.take();
    read_until_final(&world.api, &mut history).await?;
    history.memory.push(MemorySample { program: "simulation".to_owned(), bytes: resident_bytes()? });
    history.memory_bounds.insert("simulation".to_owned(), MEMORY_MAX);
    let simulated = begun.elapsed();
    history.hosts = world.end().await?;
    Ok(Run { history, faults, simulated })
}

fn draw_size(chance: &mut Chance) -> Result<Size> {
    let mut behaviours = |count: usize| -> Result<Vec<Behaviour>> {
        (0..count).map(|_| draw_behaviour(chance).parse().context("a behaviour")).collect()
    };
    let direct = behaviours(2)?;
    let relayed = behaviours(2)?;
    Ok(Size { direct, relayed, relays: 2, processes: 3, latency: chance.millis(0..30) })
}

/// One agent: how long its commands take, and what is wrong with it.
fn draw_behaviour(chance: &mut Chance) -> String {
    let slowest = [50, 500, 5_000, 20_000][chance.below(4)];
    let mut group = format!("[[group]]\nname = 'drawn'\nshare = 1.0\ncommand_ms = [1, {slowest}]\n");
    let mut sometimes = |key: &str, value: u64| {
        if chance.one_in(3) {
            group.push_str(&format!("{key} = {value}\n"));
        }
    };
    sometimes("read_pause_ms", 300);
    sometimes("kill_every_secs", 7);
    sometimes("disconnect_every_secs", 11);
    sometimes("crash_every_secs", 5);
    if chance.one_in(3) {
        group.push_str("failures = 0.3\n");
    }
    if chance.one_in(3) {
        let offset = chance.below(600_000);
        group.push_str(&format!("clock_offset_ms = {}\n", i64::try_from(offset).unwrap_or(0) - 300_000));
    }
    group
}

fn resident_bytes() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("no resident pages")?.parse()?;
    Ok(pages * 4096)
}
