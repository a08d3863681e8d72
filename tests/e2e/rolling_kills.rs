//! Rolling tasks of a real server that is killed with SIGKILL while they run, on a real agent with real processes.
//! Deaths between any two writes are shown in crates/server/tests/api/rolling_crash.rs.

use proctor_client::{
    Client, CountOrPercent, Credentials, OperationRequest, Rolling, RolloutState, TargetQuery, TargetRow, TaskView,
};
use proctor_model::{Code, OperationKind, TaskId};
use proctor_testkit::{APP, Agent, Fleet, Subject, eventually};
use serde_json::{Value, json};

use crate::hosts;

const IP: &str = "127.0.0.1";
/// In the order of the rolling task.
const NAMES: [&str; 4] = ["roll-a", "roll-b", "roll-c", "roll-d"];

struct World {
    fleet: Fleet,
    _agent: Agent,
    client: Client,
    subjects: Vec<Subject>,
}

/// Four processes on one host, with their specs as `change` leaves them.
async fn world(change: impl Fn(&Subject, &mut Value)) -> World {
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let client = Client::new(&fleet.url(""), Credentials::new(APP, &fleet.secret, "admin")).unwrap();
    let subjects: Vec<Subject> = NAMES.iter().map(|name| Subject::new(fleet.dir(), name).unwrap()).collect();
    for subject in &subjects {
        let mut spec = subject.spec();
        spec["monitor_policy"]["start_check_secs"] = json!(0);
        change(subject, &mut spec);
        let rows =
            client.register(&json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec})).await.unwrap();
        assert!(rows.iter().all(proctor_client::Row::is_success), "{rows:?}");
    }
    World { fleet, _agent: agent, client, subjects }
}

fn one_by_one(canary: u32, wait_healthy: bool) -> Rolling {
    Rolling { max_parallel: CountOrPercent::Count(1), max_failures: 0, canary, wait_healthy }
}

impl World {
    async fn roll(&self, rolling: Rolling) -> TaskId {
        let request = OperationRequest {
            selector: Some("proc_name".into()),
            all: true,
            rolling: Some(rolling),
            ..OperationRequest::new(OperationKind::Start)
        };
        self.client.operate(&request, None).await.unwrap().task_id.unwrap()
    }

    async fn kill_server(&mut self) {
        self.fleet.restart_server().await.unwrap();
    }

    fn starts(&self) -> Vec<usize> {
        self.subjects.iter().map(Subject::starts).collect()
    }

    async fn until_started(&self, index: usize) {
        eventually("the process was started", || async { (self.subjects[index].starts() > 0).then_some(()) }).await;
    }

    async fn until_state(&self, id: TaskId, state: RolloutState) -> TaskView {
        eventually("the rollout gets there", || async {
            let task = self.client.task(id).await.ok()?;
            (task.rollout.as_ref()?.state == state).then_some(task)
        })
        .await
    }

    /// Every row is final and the rollout is over; how it ended, with the rows.
    async fn finished(&self, id: TaskId) -> (RolloutState, Vec<TargetRow>) {
        let task = eventually("no row stays open", || async {
            let task = self.client.task(id).await.ok()?;
            let is_over = !matches!(task.rollout.as_ref()?.state, RolloutState::Running | RolloutState::Paused);
            (task.is_finished() && is_over).then_some(task)
        })
        .await;
        let rows = self.client.task_targets(id, &TargetQuery::default()).await.unwrap().targets;
        let processes: Vec<&str> = rows.iter().map(|row| row.process.as_str()).collect();
        assert_eq!(processes, NAMES.map(|name| format!("e2e/{name}")));
        (task.rollout.unwrap().state, rows)
    }
}

fn codes(rows: &[TargetRow]) -> Vec<u32> {
    rows.iter().map(|row| row.code).collect()
}

fn skipped() -> u32 {
    Code::Skipped.number()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_whose_server_is_killed_in_every_batch_starts_everything_once() {
    let mut world = world(|_, _| {}).await;

    let id = world.roll(one_by_one(0, true)).await;
    for index in 0..NAMES.len() {
        world.until_started(index).await;
        world.kill_server().await;
    }

    let (state, rows) = world.finished(id).await;
    assert_eq!((state, codes(&rows)), (RolloutState::Done, vec![0; 4]), "{rows:?}");
    assert_eq!(world.starts(), [1; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_pauses_across_deaths_of_the_server_until_it_is_resumed() {
    let mut world = world(|_, _| {}).await;

    let id = world.roll(one_by_one(1, false)).await;
    world.kill_server().await;
    world.until_state(id, RolloutState::Paused).await;
    world.kill_server().await;
    world.until_state(id, RolloutState::Paused).await;
    assert_eq!(world.starts(), [1, 0, 0, 0]);
    eventually("it is resumed", || async { world.client.resume_task(id).await.ok() }).await;
    world.kill_server().await;

    let (state, rows) = world.finished(id).await;
    assert_eq!((state, codes(&rows)), (RolloutState::Done, vec![0; 4]), "{rows:?}");
    assert_eq!(world.starts(), [1; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_batch_nothing_more_is_begun_by_any_life_of_the_server() {
    let mut world = world(|subject, spec| {
        if subject.name == NAMES[1] {
            spec["control"]["start_cmd"] = json!("echo start >> commands.log; exit 3");
        }
    })
    .await;

    let id = world.roll(one_by_one(0, false)).await;
    world.until_started(1).await;
    world.kill_server().await;
    world.until_state(id, RolloutState::Failed).await;
    world.kill_server().await;

    let (state, rows) = world.finished(id).await;
    assert_eq!(state, RolloutState::Failed);
    assert_eq!(codes(&rows), [0, Code::CommandFailed.number(), skipped(), skipped()], "{rows:?}");
    assert_eq!(world.starts(), [1, 1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_rollout_never_goes_on_whatever_becomes_of_the_server() {
    let mut world = world(|subject, spec| {
        if subject.name == NAMES[1] {
            // Until somebody releases it, so that the cancel finds it in progress.
            let start = spec["control"]["start_cmd"].as_str().unwrap();
            spec["control"]["start_cmd"] =
                json!(start.replacen("commands.log; ", "commands.log; until test -e go; do sleep 0.1; done; ", 1));
        }
    })
    .await;

    let id = world.roll(one_by_one(0, false)).await;
    world.until_started(1).await;
    world.client.cancel_task(id).await.unwrap();
    world.kill_server().await;

    let (state, rows) = world.finished(id).await;
    std::fs::write(world.subjects[1].dir.join("go"), "").unwrap();
    assert_eq!(state, RolloutState::Cancelled);
    assert_eq!(codes(&rows)[0], 0, "{rows:?}");
    assert!(codes(&rows)[1..].iter().all(|code| *code != 0), "{rows:?}");
    world.kill_server().await;
    let (state, again) = world.finished(id).await;
    assert_eq!((state, codes(&again)), (RolloutState::Cancelled, codes(&rows)));
    assert_eq!(world.starts()[2..], [0, 0], "nothing that had not begun is begun");
    assert!(world.starts()[1] <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_not_healthy_does_not_let_the_next_one_go() {
    let mut world = world(|subject, spec| {
        if subject.name == NAMES[0] {
            spec["control"]["health_cmd"] = json!("echo asked >> health.log; test -e well");
            let health = json!({"interval_secs": 1, "timeout_secs": 5, "failures": 100, "grace_secs": 0});
            spec["monitor_policy"]["health_check"] = health;
        }
    })
    .await;
    let asked = |world: &World| {
        let log = std::fs::read_to_string(world.subjects[0].dir.join("health.log")).unwrap_or_default();
        log.lines().count()
    };

    let id = world.roll(one_by_one(0, true)).await;
    for _ in 0..2 {
        world.until_started(0).await;
        world.kill_server().await;
        world.fleet.until_online(IP, true).await;
        let before = asked(&world);
        eventually("its health is asked for again", || async { (asked(&world) > before + 2).then_some(()) }).await;
        assert_eq!(world.starts(), [1, 0, 0, 0], "it does not count as healthy");
    }
    assert_eq!(world.client.task(id).await.unwrap().rollout.unwrap().state, RolloutState::Running);
    std::fs::write(world.subjects[0].dir.join("well"), "").unwrap();

    let (state, rows) = world.finished(id).await;
    assert_eq!((state, codes(&rows)), (RolloutState::Done, vec![0; 4]), "{rows:?}");
    assert_eq!(world.starts(), [1; 4]);
}
