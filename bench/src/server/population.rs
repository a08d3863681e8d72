//! What is in the store before anything is measured.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use proctor_model::{
    AgentId, Code, Event, EventKind, HostFacts, HostKey, Message, OperationId, OperationKind, Outcome, Phase,
    ProcessKey, Snapshot, Spec, TaskId, Usage,
};
use proctor_runtime::clock;
use proctor_store::prelude::*;
use proctor_store::sqlite::SqliteStore;
use proctor_store::{
    EndedSession, Enrolment, JoinToken, NewTask, Observation, RegisterMode, Registration, SessionOpening, Target,
    TaskItem, conformance::spec,
};
use uuid::Uuid;

/// The process whose status is asked.
pub(super) const PROCESS: &str = "bench/worker";
/// Hosts whose status is asked; each has these processes, observed.
pub(super) const OBSERVED: usize = 5_000;
/// Targets of the tasks that are polled.
pub(super) const POLLED: usize = 10_000;
const ENROLMENTS_AT_ONCE: usize = 512;
/// Each is on one of so many hosts.
const POLLED_HOSTS: usize = 500;
/// Outcomes of a task that are not known yet.
const OPEN: usize = POLLED / 2;
/// Open targets that end at one time, and how much later the next ones do.
const ENDING: usize = 50;
const ENDING_EVERY_MS: u64 = 200;
/// A server that starts waits ten seconds for agents that were connected.
const FIRST_ENDS_MS: u64 = 15_000;

pub(super) struct Population {
    hosts: usize,
}

/// The tasks that are polled.
pub(super) struct Tasks {
    pub(super) finished: TaskId,
    /// Half of it is open, and stays so.
    pub(super) pending: TaskId,
    /// Half of it is open, and ends gradually.
    pub(super) changing: TaskId,
}

impl Population {
    pub(super) async fn new(dir: &Path, hosts: usize) -> Result<Self> {
        let store = open(dir).await?;
        enrol(&store, hosts).await?;
        for process in [PROCESS, "bench/collector", "bench/reporter"] {
            let key: ProcessKey = process.parse()?;
            let spec = spec("worker");
            let registration = |number| Registration { agent: agent(number), key: key.clone(), spec: spec.clone() };
            let registrations: Vec<Registration> = (0..OBSERVED).map(registration).collect();
            store.register(&registrations, RegisterMode::Create, clock::unix_millis()).await?;
            let observe = |number| {
                let (store, key) = (&store, key.clone());
                async move {
                    let observation = Observation { key, snapshot: snapshot(number) };
                    store.observe(&agent(number), 1, &[observation]).await.map(|_| ())
                }
            };
            stream::iter(0..OBSERVED).map(observe).buffer_unordered(ENROLMENTS_AT_ONCE).try_collect::<()>().await?;
        }
        Ok(Self { hosts })
    }

    /// So many tasks of [`POLLED`] targets, all with their outcome.
    pub(super) async fn finished_tasks(&self, dir: &Path, count: usize) -> Result<()> {
        let store = open(dir).await?;
        for _ in 0..count {
            task(&store, 0, |_| 600_000).await?;
        }
        Ok(())
    }

    /// Created again: the time of the changing one begins now.
    pub(super) async fn tasks(&self, dir: &Path) -> Result<Tasks> {
        let store = open(dir).await?;
        // A server that starts waits for those that were connected.
        let connect = |number| {
            let store = &store;
            async move { store.open_session(&opening(number), clock::unix_millis()).await }
        };
        let connected = stream::iter(0..POLLED_HOSTS.min(self.hosts)).map(connect);
        connected.buffer_unordered(ENROLMENTS_AT_ONCE).try_collect::<Vec<_>>().await?;
        Ok(Tasks {
            finished: task(&store, 0, |_| 600_000).await?,
            pending: task(&store, OPEN, |_| 600_000).await?,
            changing: task(&store, OPEN, |part| FIRST_ENDS_MS + part as u64 * ENDING_EVERY_MS).await?,
        })
    }
}

async fn open(dir: &Path) -> Result<SqliteStore> {
    Ok(SqliteStore::open(&dir.join("data/proctor.db")).await?)
}

/// Unordered, like agent ids.
pub(super) fn agent(number: usize) -> AgentId {
    let digest = blake3::hash(&number.to_le_bytes());
    AgentId::from_uuid(Uuid::from_slice(&digest.as_bytes()[..16]).expect("sixteen bytes"))
}

fn opening(number: usize) -> SessionOpening {
    SessionOpening { facts: facts(), ..SessionOpening::new(agent(number), format!("key-{number}")) }
}

pub(super) fn host(number: usize) -> HostKey {
    let [_, b, c, d] = u32::try_from(number).expect("few hosts").to_be_bytes();
    HostKey::new(0, 0, IpAddr::V4(Ipv4Addr::new(10, b, c, d)))
}

async fn enrol(store: &SqliteStore, count: usize) -> Result<()> {
    let token = JoinToken {
        id: "t".to_owned(),
        secret_hash: "h".to_owned(),
        uses: u32::MAX,
        expires_at: i64::MAX,
        cloud: None,
        business: None,
        host: None,
    };
    store.put_token(token).await?;
    let enrol = |number| async move {
        let enrolment = Enrolment {
            token_id: "t".to_owned(),
            token_secret_hash: "h".to_owned(),
            host: host(number),
            agent: agent(number),
            key_fingerprint: format!("key-{number}"),
            remote: None,
            needs_approval: false,
        };
        store.enrol(enrolment, clock::unix_millis()).await??;
        store.open_session(&opening(number), clock::unix_millis()).await??;
        store.end_sessions(&[ended(number)], clock::unix_millis()).await?;
        anyhow::Ok(())
    };
    stream::iter(0..count).map(enrol).buffer_unordered(ENROLMENTS_AT_ONCE).try_collect::<()>().await
}

/// Its first session is over.
fn ended(number: usize) -> EndedSession {
    let event = Event {
        sequence: 0,
        at: clock::unix_millis(),
        process: None,
        proc_name: String::new(),
        report_id: None,
        kind: EventKind::AgentOffline,
        content: Message::default(),
        details: BTreeMap::new(),
    };
    EndedSession { agent: agent(number), epoch: 1, event: Some(event), untold: false }
}

fn facts() -> HostFacts {
    HostFacts {
        hostname: "worker-01.example.net".to_owned(),
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
        cpus: 16,
        memory_bytes: 68_719_476_736,
        agent_version: "0.1.0".to_owned(),
        ..HostFacts::default()
    }
}

fn snapshot(number: usize) -> Snapshot {
    let pid = i32::try_from(number).expect("few hosts") + 1000;
    Snapshot {
        phase: Phase::Running,
        managed: true,
        pid: Some(pid),
        usage: Usage {
            cpu_percent: 100.0 / f64::from(pid),
            cpu_percent_average: 50.0 / f64::from(pid),
            memory_percent: 1.25,
            memory_bytes: 73_400_320,
            threads: 12,
            state: "S".to_owned(),
            command_line: "/opt/app/worker --config /opt/app/etc/worker.toml".to_owned(),
            user_ticks: 12_345,
            system_ticks: 2345,
            elapsed_secs: 86_400,
            fds: 24,
        },
        version: "1.2.3".to_owned(),
        started_at: 1_700_000_000,
        registered_at: 1_700_000_000,
        reported_at: 1_700_086_400,
        utc_offset_secs: 8 * 3600,
        ..Snapshot::default()
    }
}

/// A start of many processes on some hosts; the last `open` targets have no outcome, and the time of
/// each part of them is over after `limit_ms`.
async fn task(store: &SqliteStore, open: usize, limit_ms: impl Fn(usize) -> u64) -> Result<TaskId> {
    let id = TaskId::from_uuid(Uuid::now_v7());
    let spec = spec("worker");
    let parts = POLLED / ENDING;
    let item = |part: usize| TaskItem {
        key: PROCESS.parse().expect("a legal name"),
        kind: Some(OperationKind::Start),
        spec: Some(Arc::<Spec>::clone(&spec)),
        carried: false,
        register: false,
        time_limit_ms: limit_ms(part.saturating_sub(parts - open / ENDING)),
        wait_ms: 0,
    };
    let target = |number: usize| Target {
        item: u32::try_from(number / ENDING).expect("few items"),
        agent: Some(agent(number % POLLED_HOSTS)),
        host: Some(host(number % POLLED_HOSTS)),
        row_key: format!("{}:bench:worker-{number}", agent(number % POLLED_HOSTS)),
        other_row_keys: Vec::new(),
    };
    let task = NewTask {
        id,
        created_at: clock::unix_millis(),
        app: proctor_testkit::APP.to_owned(),
        user: "admin".to_owned(),
        family: "gse_v2".to_owned(),
        items: (0..parts).map(item).collect(),
        targets: (0..POLLED).map(target).collect(),
        outcomes: Vec::new(),
        audit: None,
        idempotency: None,
        retry_of: None,
        scope: None,
        rollout: None,
    };
    store.create_task(task).await?;
    let known: Vec<_> = (0..POLLED - open).map(|number| (operation(id, number), outcome(number))).collect();
    store.record_outcomes(&known, clock::unix_millis()).await?;
    Ok(id)
}

fn operation(task: TaskId, number: usize) -> OperationId {
    OperationId::first(task, u32::try_from(number).expect("few targets"))
}

fn outcome(number: usize) -> Outcome {
    if number.is_multiple_of(50) {
        Outcome::new(Code::CommandFailed, Message::foreign("exit code 1"), false)
            .with_output("no such file\n".repeat(5))
    } else {
        Outcome::success(true)
    }
}
