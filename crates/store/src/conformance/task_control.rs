//! Repeated calls, retries, rollouts and cancelled tasks.

use std::sync::Arc;

use proctor_model::TaskId;
use tokio::task::JoinSet;

use super::tasks::{failed, id, operation, read, task};
use super::{agent, enrol};
use crate::{CreatedTask, Idempotency, NewTask, ProcessQuery, Rollout, RolloutState, Store};

fn keyed(number: u128, app: &str, key: &str, body: u8) -> NewTask {
    let idempotency = Idempotency { app: app.to_owned(), key: key.to_owned(), body_hash: [body; 32] };
    NewTask { idempotency: Some(idempotency), ..task(number, 5, 1) }
}

fn rollout(released: u32, state: RolloutState) -> Rollout {
    Rollout { max_parallel: 10, max_failures: 3, canary: 1, wait_healthy: true, released, state }
}

fn rolling(number: u128) -> NewTask {
    NewTask { rollout: Some(rollout(1, RolloutState::Running)), ..task(number, 5, 2) }
}

async fn open(store: &dyn Store) -> Vec<TaskId> {
    store.open_rollouts().await.unwrap().into_iter().map(|(task, _)| task).collect()
}

pub async fn a_repeated_key_finds_the_first_task_and_writes_nothing(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let first = store.create_task(keyed(1, "job", "k", 1)).await.unwrap();

    let mut again = keyed(2, "job", "k", 1);
    again.items[0].register = true;
    let again = store.create_task(again).await.unwrap();
    let other_body = store.create_task(keyed(3, "job", "k", 2)).await.unwrap();

    assert_eq!(first, CreatedTask::Created);
    assert_eq!(again, CreatedTask::Existing { id: id(1), same_body: true });
    assert_eq!(other_body, CreatedTask::Existing { id: id(1), same_body: false });
    assert_eq!(store.task_ids(9).await.unwrap(), [id(1)]);
    let of_key = async |task: NewTask| store.task_of_key(&task.idempotency.unwrap()).await.unwrap();
    assert_eq!(of_key(keyed(2, "job", "k", 1)).await, Some((id(1), true)));
    assert_eq!(of_key(keyed(2, "job", "k", 2)).await, Some((id(1), false)));
    assert_eq!(of_key(keyed(2, "gsekit", "k", 1)).await, None);
    assert_eq!(store.processes(&ProcessQuery::default()).await.unwrap().0, 0);
    assert!(store.assignments(&agent(0), 0).await.unwrap().processes.is_empty());
}

pub async fn a_key_is_unique_only_for_its_app(store: Arc<dyn Store>) {
    for (number, app, key) in [(1, "job", "k"), (2, "job", "K"), (3, "gsekit", "k")] {
        assert_eq!(store.create_task(keyed(number, app, key, 1)).await.unwrap(), CreatedTask::Created);
    }
}

pub async fn of_many_calls_with_one_key_one_makes_the_task(store: Arc<dyn Store>) {
    let mut callers = JoinSet::new();
    for number in 0..20 {
        let store = Arc::clone(&store);
        callers.spawn(async move { store.create_task(keyed(number, "job", "k", 1)).await.unwrap() });
    }

    let answers = callers.join_all().await;

    let made = answers.iter().filter(|answer| **answer == CreatedTask::Created).count();
    assert_eq!(made, 1);
    assert_eq!(store.task_ids(99).await.unwrap().len(), 1);
}

pub async fn a_key_is_free_again_when_its_task_is_forgotten(store: Arc<dyn Store>) {
    store.create_task(keyed(1, "job", "k", 1)).await.unwrap();
    store.record_outcomes(&[(operation(1, 0), failed("x"))], 6).await.unwrap();
    store.prune_tasks(10).await.unwrap();

    assert_eq!(store.create_task(keyed(2, "job", "k", 2)).await.unwrap(), CreatedTask::Created);
}

pub async fn a_task_that_was_refused_leaves_its_key_free(store: Arc<dyn Store>) {
    let mut contradictory = keyed(1, "job", "k", 1);
    contradictory.targets[0].item = 9;

    assert!(store.create_task(contradictory).await.is_err());
    assert_eq!(store.create_task(keyed(2, "job", "k", 1)).await.unwrap(), CreatedTask::Created);
}

pub async fn a_retry_names_the_task_that_it_tries_again(store: Arc<dyn Store>) {
    store.create_task(NewTask { retry_of: Some(id(7)), ..task(1, 5, 1) }).await.unwrap();

    assert_eq!(read(&*store, 1).await.retry_of, Some(id(7)));
    assert_eq!(store.task_summary(id(1)).await.unwrap().unwrap().retry_of, Some(id(7)));
}

pub async fn a_rollout_is_kept_and_replaced(store: Arc<dyn Store>) {
    for new in [rolling(1), task(2, 5, 1)] {
        store.create_task(new).await.unwrap();
    }
    let before = read(&*store, 1).await.rollout;

    let paused = rollout(2, RolloutState::Paused);
    let answers = [1, 2, 3].map(|number| store.set_rollout(id(number), &paused));
    let mut set = Vec::new();
    for answer in answers {
        set.push(answer.await.unwrap());
    }

    assert_eq!(before, Some(rollout(1, RolloutState::Running)));
    assert_eq!(set, [true, false, false], "a task without a rollout does not get one later");
    assert_eq!(read(&*store, 1).await.rollout, Some(paused.clone()));
    assert_eq!(store.task_summary(id(1)).await.unwrap().unwrap().rollout, Some(paused));
    assert_eq!(read(&*store, 2).await.rollout, None);
}

pub async fn open_rollouts_are_those_that_go_on_or_still_have_open_targets(store: Arc<dyn Store>) {
    let states = [
        RolloutState::Running,
        RolloutState::Paused,
        RolloutState::Failed,
        RolloutState::Cancelled,
        RolloutState::Done,
    ];
    for (number, state) in (1..).zip(states) {
        store.create_task(rolling(number)).await.unwrap();
        store.set_rollout(id(number), &rollout(2, state)).await.unwrap();
    }
    store.create_task(task(9, 5, 1)).await.unwrap();
    let with_open_targets = open(&*store).await;

    for number in 1..=5 {
        let outcomes = [0, 1].map(|index| (operation(number, index), failed("x")));
        store.record_outcomes(&outcomes, 6).await.unwrap();
    }

    assert_eq!(with_open_targets, [1, 2, 3, 4, 5].map(id));
    assert_eq!(open(&*store).await, [id(1), id(2)]);
    assert_eq!(store.open_rollouts().await.unwrap()[1].1, rollout(2, RolloutState::Paused));
}

pub async fn a_task_is_cancelled_once_and_its_targets_stay_open(store: Arc<dyn Store>) {
    store.create_task(task(1, 5, 2)).await.unwrap();
    let before = read(&*store, 1).await.cancelled_at;

    let first = store.cancel_task(id(1), 8).await.unwrap();
    let second = store.cancel_task(id(1), 9).await.unwrap();

    assert_eq!((before, first, second), (None, true, false));
    assert_eq!(read(&*store, 1).await.cancelled_at, Some(8));
    assert_eq!(store.task_summary(id(1)).await.unwrap().unwrap().cancelled_at, Some(8));
    assert_eq!(store.open_targets().await.unwrap().len(), 2);
}

pub async fn a_finished_or_unknown_task_is_not_cancelled(store: Arc<dyn Store>) {
    store.create_task(task(1, 5, 1)).await.unwrap();
    store.record_outcomes(&[(operation(1, 0), failed("x"))], 6).await.unwrap();

    assert!(!store.cancel_task(id(1), 8).await.unwrap());
    assert!(!store.cancel_task(id(2), 8).await.unwrap());
    assert_eq!(read(&*store, 1).await.cancelled_at, None);
}
