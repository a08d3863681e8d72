//! Benchmarks tasks: `task_cost [targets] [directory]`; by default 30,000 targets in a temporary directory.
//!
//! Prints the median wall time of each call and this program's CPU time during it, next to what SQLite needs for
//! the same bytes in a plain table of a second file with the same durability: one transaction, one sync.

#![allow(clippy::unwrap_used, reason = "a measurement may end as soon as something is odd")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{
    AgentId, Code, HostKey, OperationId, OperationKind, Outcome, ProcessKey, Snapshot, Spec, TaskId, messages,
};
use proctor_store::conformance::{Joining, spec};
use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use proctor_store::{NewTask, Target, TargetFilter, TargetQuery, TaskItem};
use rusqlite::Connection;
use tokio::task::JoinSet;
use uuid::Uuid;

const ROUNDS: usize = 7;
const READ_TARGETS: usize = 10_000;
const ENROLMENTS_AT_ONCE: usize = 512;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(30_000, |text| text.parse().unwrap());
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory).unwrap();
    let store = Arc::new(SqliteStore::open(&directory.path().join("proctor.db")).await.unwrap());
    enrol(&store, count).await;
    println!("{count} targets, {} rounds, medians", ROUNDS);

    writes(&store, directory.path(), count).await;
    reads(&store).await;
}

async fn writes(store: &SqliteStore, directory: &Path, count: usize) {
    let raw = bare_file(&directory.join("raw.db"));
    let targets = targets(count);
    let chunks: Vec<String> = targets.chunks(1000).map(|chunk| serde_json::to_string(chunk).unwrap()).collect();
    let chunk_bytes: usize = chunks.iter().map(String::len).sum();
    let row_bytes = registration_bytes();

    let (mut plain, mut same, mut changed, mut first) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut raw_plain, mut raw_register) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        plain.push(create(store, &targets, item("web/a", "a", false)).await);
        let key = format!("web/new-{round}");
        first.push(create(store, &targets, item(&key, "a", true)).await);
        same.push(create(store, &targets, item(&key, "a", true)).await);
        changed.push(create(store, &targets, item(&key, "b", true)).await);
    }
    // Afterwards: all connections of a process share one page cache.
    for _ in 0..ROUNDS {
        raw_plain.push(raw_write(&raw, &chunks, 0, 0));
        raw_register.push(raw_write(&raw, &chunks, count, row_bytes));
    }
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    println!("create_task                          {}", shown(&mut plain));
    println!("  raw: the same {:.1} MB               {}", megabytes(chunk_bytes), shown(&mut raw_plain));
    println!("create_task, registers on each host  {}", shown(&mut first));
    println!("  raw: and {count} rows of {row_bytes} bytes    {}", shown(&mut raw_register));
    println!("  registered already, equal spec     {}", shown(&mut same));
    println!("  registered already, another spec   {}", shown(&mut changed));
}

async fn create(store: &SqliteStore, targets: &[Target], item: TaskItem) -> Cost {
    let task = task(targets, item);
    // After a large write the store checkpoints its log; the next write waits for that.
    store.secret_or_insert("settled", Vec::new()).await.unwrap();
    let begun = Clock::start();
    store.create_task(task).await.unwrap();
    begun.stop()
}

async fn reads(store: &SqliteStore) {
    let targets = targets(READ_TARGETS);
    let task = task(&targets, item("web/a", "a", false));
    let id = task.id;
    store.create_task(task).await.unwrap();
    println!("a task of {READ_TARGETS} targets");
    println!("  task, nothing known                {}", shown(&mut read(store, id).await));

    let outcomes: Vec<_> = (0..u32::try_from(READ_TARGETS).unwrap()).map(|index| outcome(id, index)).collect();
    let mut batches = Vec::new();
    for batch in outcomes.chunks(500) {
        let begun = Clock::start();
        store.record_outcomes(batch, 1).await.unwrap();
        batches.push(begun.stop());
    }
    println!("  record_outcomes of 500             {}", shown(&mut batches));
    println!("  task, all known                    {}", shown(&mut read(store, id).await));
    for which in [TargetFilter::All, TargetFilter::Pending, TargetFilter::Failed] {
        let query = TargetQuery { after: Some(4999), limit: 100, which };
        let mut times = Vec::new();
        for _ in 0..ROUNDS * 5 {
            let begun = Clock::start();
            store.task_targets(id, &query).await.unwrap();
            times.push(begun.stop());
        }
        println!("  a page of 100, {:19} {}", format!("{which:?}"), shown(&mut times));
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS * 5 {
        let begun = Clock::start();
        store.task_summary(id).await.unwrap();
        times.push(begun.stop());
    }
    println!("  task_summary                       {}", shown(&mut times));
}

async fn read(store: &SqliteStore, id: TaskId) -> Vec<Cost> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS * 5 {
        let begun = Clock::start();
        assert_eq!(store.task(id).await.unwrap().unwrap().targets.len(), READ_TARGETS);
        times.push(begun.stop());
    }
    times
}

fn outcome(task: TaskId, index: u32) -> (OperationId, Outcome) {
    let mut outcome = Outcome::success(true);
    if index.is_multiple_of(50) {
        outcome =
            Outcome::new(Code::CommandFailed, messages::exit_code(1), false).with_output("no such file\n".repeat(5));
    }
    if index.is_multiple_of(10) {
        outcome.snapshot = Some(Snapshot::default());
    }
    (OperationId::first(task, index), outcome)
}

/// Wall time and CPU time.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

struct Clock {
    wall: Instant,
    cpu: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { cpu: cpu_time(), wall: Instant::now() }
    }

    fn stop(self) -> Cost {
        let wall = self.wall.elapsed();
        Cost { wall, cpu: cpu_time().saturating_sub(self.cpu) }
    }
}

/// Of all live threads, in nanoseconds, as the scheduler accounts it.
fn cpu_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

fn shown(costs: &mut [Cost]) -> String {
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    costs.sort_by_key(|cost| cost.cpu);
    let cpu = millis(costs[costs.len() / 2].cpu);
    costs.sort_by_key(|cost| cost.wall);
    let [wall, worst] = [costs[costs.len() / 2], costs[costs.len() - 1]].map(|cost| millis(cost.wall));
    format!("{wall:8.2} ms (worst {worst:.2}), CPU {cpu:.2} ms")
}

fn bare_file(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "FULL").unwrap();
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(())).unwrap();
    connection.execute_batch("CREATE TABLE bare (x TEXT)").unwrap();
    connection
}

/// The time of one transaction with the chunks and this many rows of this many bytes.
fn raw_write(connection: &Connection, chunks: &[String], rows: usize, row_bytes: usize) -> Cost {
    let row = "r".repeat(row_bytes);
    let begun = Clock::start();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut statement = connection.prepare_cached("INSERT INTO bare VALUES (?1)").unwrap();
    for chunk in chunks {
        statement.execute([chunk]).unwrap();
    }
    for _ in 0..rows {
        statement.execute([&row]).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    let time = begun.stop();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    time
}

/// What a registration takes in its row and its index: key and hash, and the key again.
fn registration_bytes() -> usize {
    let key = "web/new-0".len();
    key + 64 + 4 * 8 + key + 8
}

fn task(targets: &[Target], item: TaskItem) -> NewTask {
    NewTask {
        id: TaskId::from_uuid(Uuid::now_v7()),
        created_at: 1,
        app: "bk_gsekit".to_owned(),
        user: "admin".to_owned(),
        family: "gse_v2".to_owned(),
        items: vec![item],
        targets: targets.to_vec(),
        outcomes: Vec::new(),
        audit: None,
        idempotency: None,
        retry_of: None,
        scope: None,
        rollout: None,
    }
}

fn item(key: &str, proc_name: &str, register: bool) -> TaskItem {
    let key: ProcessKey = key.parse().unwrap();
    let spec: Arc<Spec> = spec(proc_name);
    TaskItem {
        key,
        kind: Some(OperationKind::Start),
        spec: Some(spec),
        carried: register,
        register,
        time_limit_ms: 60_000,
        wait_ms: 0,
    }
}

fn targets(count: usize) -> Vec<Target> {
    let target = |number| {
        let host = host(number);
        Target {
            item: 0,
            agent: Some(agent(number)),
            host: Some(host),
            row_key: format!("{host}:web:nginx"),
            other_row_keys: Vec::new(),
        }
    };
    (0..count).map(target).collect()
}

/// Unordered, like agent ids.
fn agent(number: usize) -> AgentId {
    let digest = blake3::hash(&number.to_le_bytes());
    AgentId::from_uuid(Uuid::from_slice(&digest.as_bytes()[..16]).unwrap())
}

fn host(number: usize) -> HostKey {
    let [_, b, c, d] = u32::try_from(number).unwrap().to_be_bytes();
    HostKey::new(0, 0, IpAddr::V4(Ipv4Addr::new(10, b, c, d)))
}

async fn enrol(store: &Arc<SqliteStore>, count: usize) {
    let mut calls = JoinSet::new();
    for number in 0..count {
        if calls.len() >= ENROLMENTS_AT_ONCE {
            calls.join_next().await;
        }
        let store = Arc::clone(store);
        calls.spawn(async move { Joining::of(host(number), agent(number)).enrol(&*store).await });
    }
    calls.join_all().await;
}
