//! Tasks that are let go a few at a time, cancelled, and repeated, with the agents' part played by hand.

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{Code, HostKey, Message, OperationKind, Outcome, TaskId};
use proctor_server::control::{
    Caller, Control, ControlError, Delivery, HostRef, IdempotencyKey, Rolling, Session, Share, SpecSource, Submission,
    SubmitOptions, SubmittedItem, SubmittedTarget,
};
use proctor_store::{Cordon, RolloutState, TaskView};

use crate::support::{ESB, World, greeting, registered};

pub(crate) const HOSTS: usize = 4;

/// Four hosts with a process and a session each.
pub(crate) async fn fleet() -> (World, Vec<Arc<Session>>) {
    let world = World::new().await;
    let mut sessions = Vec::new();
    for number in 0..HOSTS {
        let agent = format!("agent-{number}");
        world.enrol(&host(number).to_string(), &agent).await;
        let body = registered("m", &host(number).ip.to_string());
        world.post(&format!("{ESB}/register_proc_info"), body).await.data();
        sessions.push(connect(&world.control, &agent).await);
    }
    (world, sessions)
}

fn host(number: usize) -> HostKey {
    format!("0:10.0.1.{number}").parse().unwrap()
}

pub(crate) async fn connect(control: &Control, agent: &str) -> Arc<Session> {
    control.open_session(greeting(&agent.parse().unwrap())).await.unwrap().unwrap()
}

pub(crate) fn restart(options: SubmitOptions) -> Submission {
    let target = |number| SubmittedTarget { host: HostRef::Key(host(number)), row_key: host(number).to_string() };
    let item = SubmittedItem {
        key: "web/m".parse().unwrap(),
        kind: Some(OperationKind::Restart),
        spec: SpecSource::Registered,
        targets: (0..HOSTS).map(target).collect(),
    };
    Submission { caller: Caller::local("test"), family: "native", items: vec![item], options }
}

pub(crate) fn rolling(max_parallel: u32, max_failures: u32, canary: u32) -> SubmitOptions {
    let max_parallel = Share::Number(max_parallel);
    let rolling = Rolling { max_parallel, max_failures, canary, wait_healthy: false };
    SubmitOptions { rolling: Some(rolling), ..SubmitOptions::default() }
}

fn deliveries(world: &World, sessions: &[Arc<Session>]) -> Vec<(usize, Delivery)> {
    let of = |(number, session): (usize, &Arc<Session>)| {
        world.control.take_deliveries(session, 10).into_iter().map(move |delivery| (number, delivery))
    };
    sessions.iter().enumerate().flat_map(of).collect()
}

/// Waits for the next deliveries; there must be exactly so many.
pub(crate) async fn expect(world: &World, sessions: &[Arc<Session>], count: usize) -> Vec<(usize, Delivery)> {
    let mut all = Vec::new();
    let patience = async {
        while all.len() < count {
            all.extend(deliveries(world, sessions));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), patience).await.expect("deliveries come");
    assert_eq!(all.len(), count);
    all
}

pub(crate) async fn answer(
    world: &World,
    sessions: &[Arc<Session>],
    (number, delivery): &(usize, Delivery),
    code: Code,
) {
    let outcome = Outcome::new(code, Message::foreign("said the test"), true);
    world.control.arrived(&sessions[*number], delivery.operation, outcome).await.unwrap();
}

pub(crate) async fn until(world: &World, task: TaskId, what: &str, is_so: impl Fn(&TaskView) -> bool) -> TaskView {
    let caller = Caller::local("test");
    let patience = async {
        loop {
            let view = world.control.task(&caller, task).await.unwrap().unwrap();
            if is_so(&view) {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), patience).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

pub(crate) fn codes(view: &TaskView) -> Vec<Option<Code>> {
    view.targets.iter().map(|target| target.outcome.as_ref().map(|outcome| outcome.code)).collect()
}

pub(crate) fn is_over(view: &TaskView) -> bool {
    view.targets.iter().all(|target| target.outcome.is_some())
}

#[tokio::test]
async fn a_canary_goes_first_and_the_rest_after_somebody_has_resumed() {
    let (world, sessions) = fleet().await;
    let caller = Caller::local("test");
    let task = world.control.submit(restart(rolling(3, 0, 1))).await.unwrap().task;

    let canary = expect(&world, &sessions, 1).await;
    assert_eq!(canary[0].1.operation.index, 0);
    answer(&world, &sessions, &canary[0], Code::Success).await;
    let paused = |view: &TaskView| view.rollout.as_ref().is_some_and(|rollout| rollout.state == RolloutState::Paused);
    until(&world, task, "it pauses", paused).await;
    assert!(deliveries(&world, &sessions).is_empty(), "nothing beyond the canary");

    world.control.resume(&caller, task).await.unwrap();
    for delivery in expect(&world, &sessions, 3).await {
        answer(&world, &sessions, &delivery, Code::Success).await;
    }

    let done = |view: &TaskView| view.rollout.as_ref().is_some_and(|rollout| rollout.state == RolloutState::Done);
    assert!(is_over(&until(&world, task, "it is done", done).await));
    let again = world.control.resume(&caller, task).await;
    assert!(matches!(again, Err(ControlError::TaskState { .. })), "{again:?}");
    world.end().await;
}

#[tokio::test]
async fn too_many_failures_skip_the_rest_and_only_what_failed_is_repeated() {
    let (world, sessions) = fleet().await;
    let task = world.control.submit(restart(rolling(1, 1, 0))).await.unwrap().task;

    for code in [Code::CheckFailed, Code::CommandFailed] {
        let delivery = expect(&world, &sessions, 1).await;
        answer(&world, &sessions, &delivery[0], code).await;
    }
    let view = until(&world, task, "it ends", is_over).await;

    let expected = [Code::CheckFailed, Code::CommandFailed, Code::Skipped, Code::Skipped];
    assert_eq!(codes(&view), expected.map(Some));
    let retried = world.control.retry(&Caller::local("test"), view.id, SubmitOptions::default()).await.unwrap();
    assert_eq!(expect(&world, &sessions, 4).await.len(), 4, "all four failed in one way or another");
    let view = until(&world, retried.task, "it is there", |_| true).await;
    assert_eq!(view.retry_of, Some(task));
    world.end().await;
}

#[tokio::test]
async fn a_rolling_task_goes_on_where_it_was_after_a_restart_of_the_server() {
    let (world, sessions) = fleet().await;
    world.control.submit(restart(rolling(2, 0, 0))).await.unwrap();
    let first = expect(&world, &sessions, 2).await;
    answer(&world, &sessions, &first[0], Code::Success).await;
    expect(&world, &sessions, 1).await;

    let tasks = proctor_runtime::Tasks::default();
    let control = Control::start(Arc::clone(&world.store), &tasks).await.unwrap();
    let mut delivered = Vec::new();
    for number in 0..HOSTS {
        let session = connect(&control, &format!("agent-{number}")).await;
        delivered.extend(control.take_deliveries(&session, 10));
    }

    let indexes: Vec<u32> = delivered.iter().map(|delivery| delivery.operation.index).collect();
    assert_eq!(indexes, [1, 2], "what was released and is open, and no more");
    assert!(tasks.end(Duration::from_secs(60)).await);
    world.end().await;
}

fn cordon(since: i64) -> Cordon {
    Cordon { reason: "new disk".into(), by: "ada".into(), since, until: None, held_since: None }
}

#[tokio::test]
async fn a_later_release_takes_nothing_back_that_was_delivered_before_a_cordon() {
    let (world, sessions) = fleet().await;
    let task = world.control.submit(restart(rolling(2, 0, 0))).await.unwrap().task;
    let first = expect(&world, &sessions, 2).await;
    let released_at = world.store.open_rollouts().await.unwrap()[0].rollout.released_at;
    world.store.set_cordon(&host(1), Some(cordon(released_at + 1))).await.unwrap();
    while proctor_runtime::clock::unix_millis() <= released_at + 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    answer(&world, &sessions, &first[0], Code::Success).await;
    expect(&world, &sessions, 1).await;

    let tasks = proctor_runtime::Tasks::default();
    let control = Control::start(world.store.clone(), &tasks).await.unwrap();
    let mut delivered = Vec::new();
    for number in 0..HOSTS {
        let session = connect(&control, &format!("agent-{number}")).await;
        delivered.extend(control.take_deliveries(&session, 10));
    }

    let indexes: Vec<u32> = delivered.iter().map(|delivery| delivery.operation.index).collect();
    assert_eq!(indexes, [1, 2], "the second target began before its cordon");
    let view = world.store.task(task).await.unwrap().unwrap();
    assert_eq!(codes(&view)[1], None);
    assert!(tasks.end(Duration::from_secs(60)).await);
    world.end().await;
}

#[tokio::test]
async fn what_was_released_to_a_cordoned_host_ends_when_another_server_takes_it_up() {
    let (world, sessions) = fleet().await;
    let task = world.control.submit(restart(rolling(2, 0, 0))).await.unwrap().task;
    expect(&world, &sessions, 2).await;
    // As if the server had died before it wrote that the first is refused; the other began before its cordon.
    world.store.set_cordon(&host(0), Some(cordon(1))).await.unwrap();
    // A new reason is no new cordon.
    world.store.set_cordon(&host(0), Some(cordon(i64::MAX))).await.unwrap();
    world.store.set_cordon(&host(1), Some(cordon(i64::MAX))).await.unwrap();

    let tasks = proctor_runtime::Tasks::default();
    let control = Control::start(Arc::clone(&world.store), &tasks).await.unwrap();
    let mut delivered = Vec::new();
    for number in 0..2 {
        let session = connect(&control, &format!("agent-{number}")).await;
        delivered.extend(control.take_deliveries(&session, 10));
    }

    let indexes: Vec<u32> = delivered.iter().map(|delivery| delivery.operation.index).collect();
    assert_eq!(indexes, [1]);
    until(&world, task, "it is refused", |view| codes(view)[0] == Some(Code::Cordoned)).await;
    assert!(tasks.end(Duration::from_secs(60)).await);
    world.end().await;
}

#[tokio::test]
async fn a_cancel_ends_what_is_held_and_reaches_the_agents_that_may_be_at_it() {
    let (world, sessions) = fleet().await;
    let task = world.control.submit(restart(rolling(1, 0, 0))).await.unwrap().task;
    let under_way = expect(&world, &sessions, 1).await;

    assert!(world.control.cancel(&Caller::local("test"), task).await.unwrap());
    let told = world.control.take_cancels(&sessions[0]);
    answer(&world, &sessions, &under_way[0], Code::Cancelled).await;
    let view = until(&world, task, "it ends", is_over).await;

    assert_eq!(told, [under_way[0].1.operation]);
    assert_eq!(codes(&view), [Some(Code::Cancelled); HOSTS]);
    assert!(deliveries(&world, &sessions).is_empty());
    assert!(!world.control.cancel(&Caller::local("test"), task).await.unwrap(), "it was over");
    world.end().await;
}

#[tokio::test]
async fn an_idempotency_key_makes_one_task_and_another_request_under_it_is_refused() {
    let (world, _sessions) = fleet().await;
    let keyed = |hash| SubmitOptions {
        idempotency: Some(IdempotencyKey { key: "deploy-7".into(), body_hash: [hash; 32] }),
        ..SubmitOptions::default()
    };

    let first = world.control.submit(restart(keyed(1))).await.unwrap();
    let second = world.control.submit(restart(keyed(1))).await.unwrap();
    let other = world.control.submit(restart(keyed(2))).await;

    assert!(first.is_new && !second.is_new);
    assert_eq!(first.task, second.task);
    assert!(matches!(other, Err(ControlError::KeyReused { task }) if task == first.task), "{other:?}");
    world.end().await;
}
