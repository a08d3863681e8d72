//! Benchmarks queries over a whole fleet: `fleet_cost [processes] [hosts] [directory]`; by default 100,000
//! processes on 15,000 hosts in a temporary directory. Prints median wall times.

#![allow(clippy::unwrap_used, reason = "a measurement may end as soon as something is odd")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, HostKey, Phase, ProcessKey, Snapshot, Spec, Usage};
use proctor_store::conformance::{Joining, opening_of, spec};
use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use proctor_store::{
    Business, FleetFilter, Observation, ProcessOrder, ProcessQuery, ProcessSort, RegisterMode, Registration, Store,
};
use tokio::task::JoinSet;

const ROUNDS: usize = 9;
const AT_ONCE: usize = 512;
const BUSINESSES: usize = 20;
const NAMESPACES: usize = 8;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual: usize| arguments.next().map_or(usual, |text| text.parse().unwrap());
    let (processes, hosts) = (number(100_000), number(15_000));
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory).unwrap();
    let store = Arc::new(SqliteStore::open(&directory.path().join("proctor.db")).await.unwrap());
    fill(&store, processes, hosts).await;
    println!("{processes} processes on {hosts} hosts, {ROUNDS} rounds, medians in ms");
    lists(&*store).await;
    whole(&*store).await;
}

fn host(number: usize) -> HostKey {
    let [_, second, third, fourth] = u32::try_from(number).unwrap().to_be_bytes();
    HostKey::new(0, 0, IpAddr::V4(Ipv4Addr::new(10, second, third, fourth)))
}

fn agent(number: usize) -> AgentId {
    format!("agent-{number}").parse().unwrap()
}

/// Process `number` of a host: one of about forty names, so that each runs on thousands of hosts.
fn key(number: usize) -> ProcessKey {
    format!("space-{}/service-{number:02}", number % NAMESPACES).parse().unwrap()
}

fn seen(number: usize) -> Snapshot {
    let share = (number * 7919 % 1000) as f64 / 10.0;
    let phase = match number % 100 {
        0 => Phase::Failed,
        1..4 => Phase::Stopped,
        4 => Phase::Waiting,
        _ => Phase::Running,
    };
    Snapshot {
        phase,
        managed: true,
        pid: Some(4711),
        usage: Usage {
            cpu_percent: share,
            cpu_percent_average: share,
            memory_percent: share / 2.0,
            memory_bytes: 123_456_789,
            threads: 12,
            state: "S".to_owned(),
            command_line: "/opt/services/bin/service --config /etc/service/service.conf --verbose".to_owned(),
            ..Usage::default()
        },
        version: format!("1.{}.0", number % 5),
        health: "healthy".to_owned(),
        started_at: 1_700_000_000 + number as i64,
        registered_at: 1_700_000_000,
        reported_at: 1_700_001_000,
        restarts: u32::from(number.is_multiple_of(50)),
        reason: if phase == Phase::Failed { "exit code 1".to_owned() } else { String::new() },
        ..Snapshot::default()
    }
}

async fn fill(store: &Arc<SqliteStore>, processes: usize, hosts: usize) {
    let specs: Vec<Arc<Spec>> = (0..50).map(|number| spec(&format!("service-{number}"))).collect();
    for first in (0..hosts).step_by(AT_ONCE) {
        let mut all = JoinSet::new();
        for number in first..(first + AT_ONCE).min(hosts) {
            let (store, specs) = (store.clone(), specs.clone());
            let mine: Vec<usize> =
                (number..processes).step_by(hosts).enumerate().map(|(turn, _)| turn * 5 + number % 5).collect();
            all.spawn(async move { fill_host(&store, number, &mine, &specs).await });
        }
        all.join_all().await;
    }
    for id in 0..BUSINESSES {
        store.put_business(Business { id: id as u64, name: format!("business {id}") }).await.unwrap();
    }
    let placed: Vec<_> = (0..hosts).map(|number| (host(number), Some((number % BUSINESSES) as u64))).collect();
    store.place_hosts(&placed).await.unwrap().unwrap();
}

async fn fill_host(store: &SqliteStore, number: usize, mine: &[usize], specs: &[Arc<Spec>]) {
    Joining::of(host(number), agent(number)).enrol(store).await;
    let registration =
        |of: &usize| Registration { agent: agent(number), key: key(*of), spec: specs[of % specs.len()].clone() };
    let registrations: Vec<_> = mine.iter().map(registration).collect();
    store.register(&registrations, RegisterMode::Create, 1).await.unwrap();
    let epoch = store.open_session(&opening_of(&agent(number)), 2).await.unwrap().unwrap();
    let observed: Vec<_> =
        mine.iter().map(|of| Observation { key: key(*of), snapshot: seen(number * 31 + of) }).collect();
    store.observe(&agent(number), epoch, &observed).await.unwrap();
}

async fn lists(store: &dyn Store) {
    let page = || ProcessQuery { limit: Some(1001), is_uncounted: true, ..ProcessQuery::default() };
    let text = |text: &str| Some(text.to_owned());
    let by = |by| ProcessOrder { by, is_descending: true };
    let (_, everything) = store.processes(&ProcessQuery { offset: 50_000, ..page() }).await.unwrap();
    let deep = everything.last().map(|record| record.cursor());
    for (name, query) in [
        ("page of 1000 by name", page()),
        ("  from the middle", ProcessQuery { after: deep, ..page() }),
        ("  with total", ProcessQuery { is_uncounted: false, ..page() }),
        ("  of one business, with total", ProcessQuery { businesses: Some(vec![3]), is_uncounted: false, ..page() }),
        ("page of 100 by cpu", ProcessQuery { order: by(ProcessSort::Cpu), limit: Some(101), ..page() }),
        ("page of 1000 by cpu", ProcessQuery { order: by(ProcessSort::Cpu), ..page() }),
        ("page of 1000 by host", ProcessQuery { order: by(ProcessSort::Host), ..page() }),
        ("page of 1000, q=service-1", ProcessQuery { text: text("service-1"), ..page() }),
        ("  with total", ProcessQuery { text: text("service-1"), is_uncounted: false, ..page() }),
        ("page of 1000, q that finds nothing", ProcessQuery { text: text("nothing"), ..page() }),
        (
            "phase=failed by memory, with total",
            ProcessQuery { phases: vec![Phase::Failed], order: by(ProcessSort::Memory), is_uncounted: false, ..page() },
        ),
        (
            "one process, page of 1000, with total",
            ProcessQuery { namespace: Some(key(9).namespace), name: Some(key(9).name), is_uncounted: false, ..page() },
        ),
    ] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            store.processes(&query).await.unwrap();
            times.push(begun.elapsed());
        }
        println!("{name:<42} {:8.1}", median(&mut times));
    }
}

async fn whole(store: &dyn Store) {
    let (mut first, mut again, mut filtered) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let fleet = Arc::new(store.fleet(None).await.unwrap());
        first.push(begun.elapsed());
        let begun = Instant::now();
        let fleet = store.fleet(Some(fleet)).await.unwrap();
        again.push(begun.elapsed());
        let begun = Instant::now();
        let query = ProcessQuery { text: Some("service-1".to_owned()), ..ProcessQuery::default() };
        let filter = FleetFilter::new(&fleet, &query);
        let found = fleet.processes.iter().filter(|process| filter.holds(process)).count();
        filtered.push(begun.elapsed());
        assert!(found > 0);
    }
    println!("{:<42} {:8.1}", "read the fleet", median(&mut first));
    println!("{:<42} {:8.1}", "  again", median(&mut again));
    println!("{:<42} {:8.1}", "narrow the fleet by q", median(&mut filtered));
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}
