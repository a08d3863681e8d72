//! The driver with a real host, a real ledger and real commands; the test is its server.

use std::collections::BTreeMap;
use std::time::Instant;

use proctor_model::{Control, Event as Told, EventKind, Percent, Phase, Snapshot, TaskId};
use tempfile::TempDir;

use super::*;
use crate::local::{LocalAnswer, LocalCall, LocalRequest};
use proctor_model::samples::spec;
use tokio::sync::oneshot;

mod held;
mod hung_mounts;
mod limits;
mod logs;
mod metrics;
mod mishaps;
mod reregistration;
mod usage;

/// Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

struct Stage {
    dir: TempDir,
    tasks: Tasks,
    inbox: Inbox,
    heard: mpsc::Receiver<FromAgent>,
    outcomes: BTreeMap<OperationId, Outcome>,
    events: Vec<Told>,
    observed: Vec<(ProcessKey, Snapshot)>,
    usage: BTreeMap<u64, proctor_model::UsageHistory>,
    logs: BTreeMap<u64, proctor_model::LogTail>,
    registered: u64,
    /// Above the agent's cgroups, where it has some.
    above: Option<std::path::PathBuf>,
}

impl Stage {
    async fn new() -> Self {
        Self::in_dir(TempDir::new().unwrap()).await
    }

    /// The agent ends, and another one goes on.
    async fn restarted(self) -> Self {
        self.restarted_after(|| {}).await
    }

    /// As [`Self::restarted`], and this happens in between.
    async fn restarted_after(mut self, mishap: impl FnOnce()) -> Self {
        assert!(self.tasks.end(PATIENCE).await, "it ends in time");
        mishap();
        let dir = std::mem::replace(&mut self.dir, TempDir::new().unwrap());
        Self::in_dir(dir).await
    }

    async fn in_dir(dir: TempDir) -> Self {
        Self::with_policy(dir, None).await
    }

    async fn with_policy(dir: TempDir, policy: Option<&std::path::Path>) -> Self {
        let tasks = Tasks::default();
        let host = Host::new(proctor_host::Options::new(dir.path().join("state")), &tasks).unwrap();
        let tracking = host.tracking();
        let scope = std::path::Path::new(tracking.detail.split([',', ';']).next().unwrap());
        let above = scope.ancestors().nth(2).filter(|_| tracking.method != proctor_host::Method::Descendants);
        let above = above.map(std::path::Path::to_owned);
        let (ledger, memory) = Ledger::open(&dir.path().join("ledger.db")).unwrap();
        let policy = Arc::new(PolicyFile::open(policy).unwrap());
        let (inbox, inputs) = inbox();
        let keeper = Keeper::new(dir.path().join("usage"));
        let driver = Driver::new(host, policy, ledger, memory, keeper, inbox.clone(), tasks.clone()).unwrap();
        tasks.spawn_on_thread("driver", driver.run(inputs)).unwrap();
        let (link, heard) = mpsc::channel(1024);
        let link = LinkOutbox { control: link.clone(), reports: link };
        inbox.send(Input::Connected { link, is_state_known: false }).await.unwrap();
        Self {
            dir,
            tasks,
            inbox,
            heard,
            outcomes: BTreeMap::new(),
            events: Vec::new(),
            observed: Vec::new(),
            usage: BTreeMap::new(),
            logs: BTreeMap::new(),
            registered: 0,
            above,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// A spec whose commands run in the test's directory.
    fn spec(&self, change: impl FnOnce(&mut Spec)) -> Arc<Spec> {
        spec(|spec| {
            spec.identity.setup_path = self.dir.path().to_str().unwrap().parse().unwrap();
            spec.identity.pid_path = self.path("p.pid").to_str().unwrap().parse().unwrap();
            change(spec);
        })
    }

    async fn say(&self, message: FromServer) {
        self.inbox.send(Input::Server(message)).await.unwrap();
    }

    async fn assign(&mut self, name: &str, spec: &Arc<Spec>) {
        self.registered += 1;
        let (generation, key) = (self.registered, key(name));
        let assign = Assign { generation, key, spec: Some(spec.clone()), managed: false, registered_at: 1 };
        self.say(FromServer::Assign { assignments: vec![assign] }).await;
    }

    async fn operate(&mut self, index: u32, name: &str, kind: OperationKind, spec: &Arc<Spec>) -> OperationId {
        self.assign(name, spec).await;
        let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
        let (key, spec, expires_in) = (key(name), Some(spec.clone()), PATIENCE);
        self.say(FromServer::Operate { operation, key, kind, spec, expires_in }).await;
        operation
    }

    async fn hear(&mut self) {
        let message = tokio::time::timeout(PATIENCE, self.heard.recv()).await.expect("in time").unwrap();
        match message {
            FromAgent::Outcome { operation, outcome } => {
                self.outcomes.insert(operation, outcome);
            }
            FromAgent::Events { events } => self.events.extend(events),
            FromAgent::Observed { observations } => self.observed.extend(observations),
            FromAgent::UsageHistory { request, history } => drop(self.usage.insert(request, history)),
            FromAgent::LogTail { request, tail } => drop(self.logs.insert(request, tail)),
            FromAgent::Seen { .. } | FromAgent::Beat | FromAgent::Unknown => {}
            other @ (FromAgent::Enrol { .. }
            | FromAgent::EnrolRelay { .. }
            | FromAgent::Trusted(_)
            | FromAgent::Return { .. }
            | FromAgent::Hello { .. }
            | FromAgent::Settled { .. }
            | FromAgent::Signed(_)
            | FromAgent::FetchBuild { .. }
            | FromAgent::UpgradeReport { .. }
            | FromAgent::Pong { .. }
            | FromAgent::Paced { .. }
            | FromAgent::Goodbye
            | FromAgent::Renew { .. }) => {
                panic!("not of the driver: {other:?}")
            }
        }
    }

    async fn outcome(&mut self, operation: OperationId) -> Outcome {
        while !self.outcomes.contains_key(&operation) {
            self.hear().await;
        }
        self.outcomes[&operation].clone()
    }

    /// Asks on the control socket.
    async fn ask_locally(&self, name: &str, operation: OperationKind) -> oneshot::Receiver<LocalAnswer> {
        let (answer, answered) = oneshot::channel();
        let request = LocalRequest::Operate { process: key(name), operation };
        self.inbox.send(Input::Local(LocalCall { request, uid: 0, answer })).await.unwrap();
        answered
    }

    async fn until(&self, file: &str) {
        let start = Instant::now();
        while !self.path(file).exists() {
            assert!(start.elapsed() < PATIENCE, "{file} does not come");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tasks.shutdown().cancel();
        for pid in numbers(&self.path("pids")) {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid).unwrap(),
                rustix::process::Signal::KILL,
            );
        }
    }
}

fn key(name: &str) -> ProcessKey {
    format!("ns/{name}").parse().unwrap()
}

fn numbers(path: &std::path::Path) -> Vec<i32> {
    std::fs::read_to_string(path).unwrap_or_default().lines().filter_map(|line| line.parse().ok()).collect()
}

fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_cancel_ends_the_command_that_runs_and_what_waits_behind_it() {
    let mut stage = Stage::new().await;
    let line = "sleep 1000 & echo $! >> pids; echo $$ >> pids; touch begun; wait";
    let spec = stage.spec(|spec| {
        spec.control.start = Some(line.parse().unwrap());
        spec.control.stop = Some("touch stopped".parse().unwrap());
    });
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    let stop = stage.operate(1, "p", OperationKind::Stop, &spec).await;
    stage.until("begun").await;

    stage.say(FromServer::Cancel { operations: vec![stop] }).await;
    let stopped = stage.outcome(stop).await;
    stage.say(FromServer::Cancel { operations: vec![start, stop] }).await;
    let started = stage.outcome(start).await;

    assert_eq!((stopped.code, started.code), (Code::Cancelled, Code::Cancelled));
    assert!(started.message.contains("start command"), "{}", started.message);
    assert!(!started.managed && !stage.path("stopped").exists());
    let start = Instant::now();
    while !numbers(&stage.path("pids")).into_iter().all(is_gone) {
        assert!(start.elapsed() < PATIENCE, "its tree lives on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_cancelled_operation_that_is_delivered_again_is_answered_and_does_not_run() {
    let mut stage = Stage::new().await;
    let spec = stage.spec(|spec| {
        spec.control.start =
            Some("touch begun; until [ -e go ] || [ ! -e begun ]; do sleep 0.01; done".parse().unwrap());
        spec.control.reload = Some("touch reloaded".parse().unwrap());
    });
    stage.operate(0, "p", OperationKind::Start, &spec).await;
    let reload = stage.operate(1, "p", OperationKind::Reload, &spec).await;
    stage.until("begun").await;
    stage.say(FromServer::Cancel { operations: vec![reload] }).await;
    assert_eq!(stage.outcome(reload).await.code, Code::Cancelled);

    stage.say(FromServer::Acknowledge { operations: vec![reload] }).await;
    stage.outcomes.clear();
    stage.operate(1, "p", OperationKind::Reload, &spec).await;
    std::fs::write(stage.path("go"), "").unwrap();

    assert_eq!(stage.outcome(reload).await.code, Code::Cancelled, "the ledger remembers");
    assert!(!stage.path("reloaded").exists());
}

#[tokio::test]
async fn an_agent_that_cannot_write_its_ledger_still_kills_and_the_outcome_is_written_later() {
    let mut stage = Stage::new().await;
    let spec = stage.spec(|spec| {
        spec.identity.proc_name = "sleep".parse().unwrap();
        spec.control.start = Some("sleep 1000 > /dev/null 2>&1 & echo $! | tee p.pid >> pids".parse().unwrap());
        spec.policy.start_check = 0.try_into().unwrap();
    });
    let other = stage.spec(|spec| {
        spec.identity.pid_path = stage.path("q.pid").to_str().unwrap().parse().unwrap();
        spec.control.start = Some("touch started".parse().unwrap());
    });
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    stage.assign("q", &other).await;
    // As a full disk would: nothing more can be written.
    let disk = rusqlite::Connection::open(stage.path("ledger.db")).unwrap();
    for table in ["process", "operation", "fact"] {
        let refuse = "SELECT RAISE(FAIL, 'database or disk is full'); END;";
        disk.execute_batch(&format!("CREATE TRIGGER full_{table} BEFORE INSERT ON {table} BEGIN {refuse}")).unwrap();
    }

    let refused = stage.operate(1, "q", OperationKind::Start, &other).await;
    let kill = stage.operate(2, "p", OperationKind::Kill, &spec).await;
    let (refused, killed) = (stage.outcome(refused).await, stage.outcome(kill).await);

    assert_eq!(refused.code, Code::CommandFailed);
    assert!(refused.message.contains("only stops and kills"), "{}", refused.message);
    assert!(!stage.path("started").exists());
    assert_eq!((killed.code, killed.managed), (Code::Success, false), "{}", killed.message);
    assert!(numbers(&stage.path("pids")).into_iter().all(is_gone));
    let written = || -> u32 {
        let query = "SELECT count(*) FROM operation WHERE id = ?1 AND outcome IS NOT NULL";
        disk.query_row(query, [kill.to_string()], |row| row.get(0)).unwrap()
    };
    assert_eq!(written(), 0);
    disk.execute_batch("DROP TRIGGER full_process; DROP TRIGGER full_operation; DROP TRIGGER full_fact;").unwrap();
    let begun = Instant::now();
    while written() == 0 {
        assert!(begun.elapsed() < PATIENCE, "the outcome is owed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_driver_says_itself_that_it_is_alive() {
    let mut stage = Stage::new().await;

    stage.inbox.send(Input::Beat).await.unwrap();

    loop {
        let message = tokio::time::timeout(PATIENCE, stage.heard.recv()).await.expect("in time").unwrap();
        if message == FromAgent::Beat {
            break;
        }
    }
}

#[tokio::test]
async fn what_commands_of_a_forgotten_process_printed_is_removed() {
    let mut stage = Stage::new().await;
    let spec = stage.spec(|spec| spec.control.reload = Some("echo words".parse().unwrap()));
    let spec = {
        let mut spec = (*spec).clone();
        spec.identity.proc_name = "sleep".parse().unwrap();
        spec.control.start = Some("sleep 1000 > /dev/null 2>&1 & echo $! | tee p.pid >> pids".parse().unwrap());
        spec.policy.start_check = 0.try_into().unwrap();
        Arc::new(spec)
    };
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let files = || std::fs::read_dir(stage.path("state/output")).unwrap().count();
    assert!(files() > 0);

    let assign = Assign { generation: 9, key: key("p"), spec: None, managed: false, registered_at: 1 };
    stage.say(FromServer::Assign { assignments: vec![assign] }).await;

    let begun = Instant::now();
    while files() > 0 {
        assert!(begun.elapsed() < PATIENCE, "{} files stay", files());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_unknown_operation_is_cancelled_in_vain() {
    let mut stage = Stage::new().await;
    let spec = stage.spec(|_| {});
    let unknown = OperationId::first(TaskId::from_uuid(uuid::Uuid::max()), 7);

    stage.say(FromServer::Cancel { operations: vec![unknown] }).await;
    let status = stage.operate(0, "p", OperationKind::Status, &spec).await;

    assert_eq!(stage.outcome(status).await.code, Code::Success);
    assert!(!stage.outcomes.contains_key(&unknown));
}

#[tokio::test]
async fn ten_thousand_status_queries_at_once_all_end_with_their_outcome() {
    const COUNT: u32 = 10_000;
    let mut stage = Stage::new().await;
    let spec = stage.spec(|_| {});
    let inbox = stage.inbox.clone();
    let of = spec.clone();
    // As a server sends them: what is registered first, then the operations.
    stage.tasks.spawn("server", async move {
        for index in 0..COUNT {
            let assign = Assign {
                generation: u64::from(index) + 1,
                key: key(&format!("p{index}")),
                spec: Some(of.clone()),
                managed: false,
                registered_at: 1,
            };
            inbox.send(Input::Server(FromServer::Assign { assignments: vec![assign] })).await.unwrap();
            let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
            let (key, kind) = (key(&format!("p{index}")), OperationKind::Status);
            let message = FromServer::Operate { operation, key, kind, spec: Some(of.clone()), expires_in: PATIENCE };
            inbox.send(Input::Server(message)).await.unwrap();
        }
    });

    while stage.outcomes.len() < COUNT as usize {
        stage.hear().await;
    }

    assert!(stage.outcomes.values().all(|outcome| outcome.code == Code::Success));
}

#[tokio::test]
async fn a_status_query_runs_the_version_command_of_the_registered_spec_only() {
    let mut stage = Stage::new().await;
    let mut running = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    for file in ["p.pid", "pids"] {
        std::fs::write(stage.path(file), running.id().to_string()).unwrap();
    }
    let asking = |stage: &Stage, file: &str| {
        stage.spec(|spec| {
            spec.identity.proc_name = "sleep".parse().unwrap();
            spec.control.version = Some(format!("touch {file}; echo {file}").parse().unwrap());
        })
    };
    let (registered, carried) = (asking(&stage, "registered"), asking(&stage, "carried"));
    let ask = |index, of: &str, spec: &Arc<Spec>| {
        let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
        let (key, kind, spec) = (key(of), OperationKind::Status, Some(spec.clone()));
        (operation, FromServer::Operate { operation, key, kind, spec, expires_in: PATIENCE })
    };
    stage.assign("known", &registered).await;

    let (unknown, message) = ask(0, "unknown", &carried);
    stage.say(message).await;
    let (known, message) = ask(1, "known", &carried);
    stage.say(message).await;

    let seen = stage.outcome(unknown).await.snapshot.unwrap();
    let pid = i32::try_from(running.id()).unwrap();
    assert_eq!((seen.pid, seen.version.as_str()), (Some(pid), ""), "it is looked for, and that is all");
    assert_eq!(stage.outcome(known).await.snapshot.unwrap().version, "registered");
    assert!(!stage.path("carried").exists());
    running.kill().unwrap();
    let _ = running.wait(); // the agent's reaper may have been faster
}

#[tokio::test]
async fn a16_of_two_processes_with_one_pid_file_only_one_is_managed() {
    let mut stage = Stage::new().await;
    let spec = stage.spec(|spec| {
        spec.policy.lifetime = proctor_model::Lifetime::Once;
        spec.policy.start_check = 1.try_into().unwrap();
        spec.control.start = Some("echo x >> runs".parse().unwrap());
    });
    let first = stage.operate(0, "first", OperationKind::Manage, &spec).await;
    assert_eq!(stage.outcome(first).await.code, Code::Success);

    for (index, kind) in (1..).zip([OperationKind::Start, OperationKind::Restart, OperationKind::Manage]) {
        let second = stage.operate(index, "second", kind, &spec).await;
        let refused = stage.outcome(second).await;
        assert_eq!(refused.code, Code::CommandFailed);
        assert!(refused.message.contains("ns/first"), "{}", refused.message);
        assert!(refused.message.contains(spec.identity.pid_path.as_str()), "{}", refused.message);
    }
    assert!(!stage.path("runs").exists(), "nothing was run");

    let release = stage.operate(10, "first", OperationKind::Release, &spec).await;
    stage.outcome(release).await;
    let second = stage.operate(11, "second", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(second).await.code, Code::Success, "a registration alone holds nothing");
    assert!(stage.path("runs").exists());
}

#[tokio::test]
async fn a16_two_programs_may_share_a_directory_for_their_pid_files_but_not_a_file() {
    let mut stage = Stage::new().await;
    let named = |stage: &Stage, name: &str| {
        stage.spec(|spec| {
            spec.policy.lifetime = proctor_model::Lifetime::Once;
            spec.policy.start_check = 1.try_into().unwrap();
            spec.identity.proc_name = name.parse().unwrap();
            spec.identity.pid_path = stage.path("run").to_str().unwrap().parse().unwrap();
            spec.control.start = Some("true".parse().unwrap());
        })
    };
    let (a, b) = (named(&stage, "a"), named(&stage, "b"));
    let inside = stage.spec(|spec| {
        spec.identity.pid_path = stage.path("run/./a.pid").to_str().unwrap().parse().unwrap();
    });
    let manage = stage.operate(0, "a", OperationKind::Manage, &a).await;
    stage.outcome(manage).await;

    let as_file = stage.operate(1, "b", OperationKind::Start, &b).await;
    let as_file = stage.outcome(as_file).await;
    std::fs::create_dir(stage.path("run")).unwrap();
    let as_directory = stage.operate(2, "b", OperationKind::Start, &b).await;
    let as_directory = stage.outcome(as_directory).await;
    let same = stage.operate(3, "c", OperationKind::Manage, &inside).await;
    let same = stage.outcome(same).await;

    assert_eq!((as_file.code, as_directory.code), (Code::CommandFailed, Code::Success));
    assert_eq!(same.code, Code::CommandFailed);
    assert!(same.message.contains("ns/a") && same.message.contains("run/a.pid"), "{}", same.message);
}

#[tokio::test]
async fn a_changed_version_command_is_asked_in_the_present_life() {
    let mut stage = Stage::new().await;
    let spec = |stage: &Stage, version: &str| {
        let spec = limits::eater(stage, None);
        let control = Control { version: Some(version.parse().unwrap()), ..spec.control.clone() };
        Arc::new(Spec { control, ..(*spec).clone() })
    };
    let (first, second) = (spec(&stage, "echo first"), spec(&stage, "echo second; touch asked"));
    let start = stage.operate(0, "p", OperationKind::Start, &first).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let status = stage.operate(1, "p", OperationKind::Status, &first).await;
    assert_eq!(stage.outcome(status).await.snapshot.unwrap().version, "first");

    stage.assign("p", &second).await;
    stage.until("asked").await;

    let status = stage.operate(2, "p", OperationKind::Status, &second).await;
    assert_eq!(stage.outcome(status).await.snapshot.unwrap().version, "second");
}

#[tokio::test]
async fn every_command_knows_its_instance() {
    let mut stage = Stage::new().await;
    let line = |name: &str| Some(format!("echo {name} $PROCTOR_INSTANCE >> instances; touch {name}").parse().unwrap());
    let spec = limits::eater(&stage, None);
    let start = format!("echo start $PROCTOR_INSTANCE >> instances; {}", spec.control.start.as_ref().unwrap());
    let control = Control {
        start: Some(start.parse().unwrap()),
        stop: line("stop"),
        restart: None,
        reload: line("reload"),
        kill: line("kill"),
        version: line("version"),
        health: line("health"),
    };
    let mut spec = Spec { control, ..(*spec).clone() };
    spec.policy.health.grace = 0.try_into().unwrap();
    spec.policy.stop_check = 0.try_into().unwrap();
    let spec = Arc::new(spec);

    for (index, kind) in (0..).zip([OperationKind::Start, OperationKind::Reload, OperationKind::Stop]) {
        let operation = stage.operate(index, "p", kind, &spec).await;
        stage.outcome(operation).await;
    }
    stage.until("version").await;
    stage.until("health").await;
    let kill = stage.operate(9, "p", OperationKind::Kill, &spec).await;
    stage.outcome(kill).await;

    let text = std::fs::read_to_string(stage.path("instances")).unwrap();
    let mut said: Vec<&str> = text.lines().collect();
    said.sort_unstable();
    said.dedup();
    assert_eq!(said, ["health 1", "kill 1", "reload 1", "start 1", "stop 1", "version 1"]);
}
