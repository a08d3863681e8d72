//! Repeated calls, retries, rollouts and cancelled tasks.

use std::sync::Arc;

use proctor_model::{Scope, Subject, TaskId};
use tokio::task::JoinSet;

use super::tasks::{failed, id, operation, read, task};
use super::{agent, enrol, prune};
use crate::{
    App, CreatedTask, FinishedTarget, Idempotency, NewTask, ProcessQuery, Prune, Rollout, RolloutState, RolloutStep,
    Store, TaskQuery, User,
};

/// A task that registers nothing.
const CREATED: CreatedTask = CreatedTask::Created { registered: Vec::new() };

fn keyed(number: u128, app: &str, key: &str, body: u8) -> NewTask {
    let idempotency = Idempotency { app: app.to_owned(), key: key.to_owned(), body_hash: [body; 32] };
    NewTask { idempotency: Some(idempotency), ..task(number, 5, 1) }
}

fn rollout(released: u32, state: RolloutState) -> Rollout {
    Rollout {
        max_parallel: 10,
        max_failures: 3,
        canary: 1,
        wait_healthy: true,
        released,
        released_at: 4,
        earlier: Vec::new(),
        state,
        reason: None,
        reason_phrase: None,
        makers: Vec::new(),
    }
}

fn step(rollout: Rollout) -> RolloutStep {
    RolloutStep { rollout, judged: Vec::new(), unreleased: None }
}

fn rolling(number: u128) -> NewTask {
    NewTask { rollout: Some(rollout(1, RolloutState::Running)), ..task(number, 5, 2) }
}

async fn open(store: &dyn Store) -> Vec<TaskId> {
    store.open_rollouts().await.unwrap().into_iter().map(|open| open.task).collect()
}

async fn state(store: &dyn Store, number: u128) -> RolloutState {
    read(store, number).await.rollout.unwrap().state
}

async fn messages(store: &dyn Store, number: u128) -> Vec<Option<String>> {
    let targets = read(store, number).await.targets;
    targets.into_iter().map(|target| target.outcome.map(|outcome| outcome.message.into_text())).collect()
}

pub async fn a_repeated_key_finds_the_first_task_and_writes_nothing(store: Arc<dyn Store>) {
    enrol(&*store, 1).await;
    let first = store.create_task(keyed(1, "job", "k", 1)).await.unwrap();

    let mut again = keyed(2, "job", "k", 1);
    again.items[0].register = true;
    let again = store.create_task(again).await.unwrap();
    let other_body = store.create_task(keyed(3, "job", "k", 2)).await.unwrap();

    assert_eq!(first, CREATED);
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
        assert_eq!(store.create_task(keyed(number, app, key, 1)).await.unwrap(), CREATED);
    }
}

pub async fn of_many_calls_with_one_key_one_makes_the_task(store: Arc<dyn Store>) {
    let mut callers = JoinSet::new();
    for number in 0..20 {
        let store = Arc::clone(&store);
        callers.spawn(async move { store.create_task(keyed(number, "job", "k", 1)).await.unwrap() });
    }

    let answers = callers.join_all().await;

    let made = answers.iter().filter(|answer| **answer == CREATED).count();
    assert_eq!(made, 1);
    assert_eq!(store.task_ids(99).await.unwrap().len(), 1);
}

pub async fn a_key_is_free_again_when_its_task_is_forgotten(store: Arc<dyn Store>) {
    store.create_task(keyed(1, "job", "k", 1)).await.unwrap();
    store.record_outcomes(&[(operation(1, 0), failed("x"))], 6).await.unwrap();
    prune(&*store, Prune::Tasks { before: 1 }).await;

    assert_eq!(store.create_task(keyed(2, "job", "k", 2)).await.unwrap(), CREATED);
}

pub async fn a_task_that_was_refused_leaves_its_key_free(store: Arc<dyn Store>) {
    let mut contradictory = keyed(1, "job", "k", 1);
    contradictory.targets[0].item = 9;

    assert!(store.create_task(contradictory).await.is_err());
    assert_eq!(store.create_task(keyed(2, "job", "k", 1)).await.unwrap(), CREATED);
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
    let answers = [1, 2, 3].map(|number| store.step_rollout(id(number), step(paused.clone()), 6));
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
        store.step_rollout(id(number), step(rollout(2, state)), 6).await.unwrap();
    }
    store.create_task(task(9, 5, 1)).await.unwrap();
    let with_open_targets = open(&*store).await;

    for number in 1..=5 {
        let outcomes = [0, 1].map(|index| (operation(number, index), failed("x")));
        store.record_outcomes(&outcomes, 6).await.unwrap();
    }

    assert_eq!(with_open_targets, [1, 2, 3, 4, 5].map(id));
    assert_eq!(open(&*store).await, [id(1), id(2)]);
    assert_eq!(store.open_rollouts().await.unwrap()[1].rollout, rollout(2, RolloutState::Paused));
}

pub async fn a_task_is_cancelled_once_and_its_targets_stay_open(store: Arc<dyn Store>) {
    store.create_task(task(1, 5, 2)).await.unwrap();
    let before = read(&*store, 1).await.cancelled_at;

    let first = store.cancel_task(id(1), failed("x"), 8).await.unwrap();
    let second = store.cancel_task(id(1), failed("x"), 9).await.unwrap();

    assert_eq!((before, first, second), (None, true, false));
    assert_eq!(read(&*store, 1).await.cancelled_at, Some(8));
    assert_eq!(store.task_summary(id(1)).await.unwrap().unwrap().cancelled_at, Some(8));
    assert_eq!(store.open_targets().await.unwrap().len(), 2);
}

pub async fn a_finished_or_unknown_task_is_not_cancelled(store: Arc<dyn Store>) {
    store.create_task(task(1, 5, 1)).await.unwrap();
    store.record_outcomes(&[(operation(1, 0), failed("x"))], 6).await.unwrap();

    assert!(!store.cancel_task(id(1), failed("y"), 8).await.unwrap());
    assert!(!store.cancel_task(id(2), failed("y"), 8).await.unwrap());
    assert_eq!(read(&*store, 1).await.cancelled_at, None);
}

pub async fn a_rollout_that_ends_gives_its_unreleased_targets_their_outcome(store: Arc<dyn Store>) {
    store.create_task(NewTask { rollout: Some(rollout(1, RolloutState::Running)), ..task(1, 5, 4) }).await.unwrap();
    store.record_outcomes(&[(operation(1, 2), failed("known"))], 6).await.unwrap();

    let last = RolloutStep { unreleased: Some(failed("skipped")), ..step(rollout(1, RolloutState::Failed)) };
    assert!(store.step_rollout(id(1), last, 7).await.unwrap());

    let expected = [None, Some("skipped"), Some("known"), Some("skipped")];
    assert_eq!(messages(&*store, 1).await, expected.map(|text| text.map(str::to_owned)));
    let summary = store.task_summary(id(1)).await.unwrap().unwrap();
    assert_eq!((summary.pending, summary.failed, summary.finished_at), (1, 3, None));
    store.record_outcomes(&[(operation(1, 0), failed("late"))], 9).await.unwrap();
    assert_eq!(store.task_summary(id(1)).await.unwrap().unwrap().finished_at, Some(9));
}

pub async fn a_rollout_that_is_over_never_goes_on(store: Arc<dyn Store>) {
    let over = [RolloutState::Failed, RolloutState::Cancelled, RolloutState::Done];
    for (number, end) in (1..).zip(over) {
        store.create_task(rolling(number)).await.unwrap();
        assert!(store.step_rollout(id(number), step(rollout(1, end)), 6).await.unwrap());

        for next in [RolloutState::Running, RolloutState::Paused] {
            let more = RolloutStep { judged: vec![(0, true)], ..step(rollout(2, next)) };
            assert!(!store.step_rollout(id(number), more, 7).await.unwrap(), "{end:?} to {next:?}");
        }

        assert_eq!(read(&*store, number).await.rollout, Some(rollout(1, end)), "nothing was written");
        let again = RolloutStep { unreleased: Some(failed("x")), ..step(rollout(1, end)) };
        assert!(store.step_rollout(id(number), again, 8).await.unwrap(), "rows left open can still be closed");
    }
}

pub async fn a_cancelled_task_ends_its_rollout_with_its_unreleased_targets(store: Arc<dyn Store>) {
    for paused_or_not in [rollout(1, RolloutState::Running), rollout(1, RolloutState::Paused)] {
        let number = if paused_or_not.state == RolloutState::Paused { 2 } else { 1 };
        store.create_task(NewTask { rollout: Some(paused_or_not), ..task(number, 5, 3) }).await.unwrap();

        assert!(store.cancel_task(id(number), failed("cancelled"), 8).await.unwrap());

        assert_eq!(state(&*store, number).await, RolloutState::Cancelled);
        let expected = [None, Some("cancelled"), Some("cancelled")];
        assert_eq!(messages(&*store, number).await, expected.map(|text| text.map(str::to_owned)));
        let late = step(rollout(3, RolloutState::Running));
        assert!(!store.step_rollout(id(number), late, 9).await.unwrap(), "a release that comes too late");
        assert_eq!(read(&*store, number).await.rollout.unwrap().released, 1);
    }
}

pub async fn what_was_judged_is_kept_and_the_first_verdict_counts(store: Arc<dyn Store>) {
    store.create_task(NewTask { rollout: Some(rollout(3, RolloutState::Running)), ..task(1, 5, 4) }).await.unwrap();
    let success = proctor_model::Outcome::success(true);
    let outcomes = [(0, success.clone()), (1, success.clone()), (2, success), (3, failed("x"))];
    store.record_outcomes(&outcomes.map(|(index, outcome)| (operation(1, index), outcome)), 6).await.unwrap();

    for judged in [vec![(0, true), (1, false)], vec![(1, true)]] {
        let step = RolloutStep { judged, ..step(rollout(3, RolloutState::Running)) };
        assert!(store.step_rollout(id(1), step, 7).await.unwrap());
    }

    let open = store.open_rollouts().await.unwrap().remove(0);
    let ended = |is_success, healthy| FinishedTarget { is_success, recorded_at: 6, healthy };
    let expected = [ended(true, Some(true)), ended(true, Some(false)), ended(true, None), ended(false, None)];
    assert_eq!(open.ended, (0..).zip(expected).collect());
    assert_eq!((open.task, open.age, open.cancelled_at, open.total), (id(1), std::time::Duration::ZERO, None, 4));
}

/// Neither an app nor a user, by the id of a task or by a key.
pub async fn a_name_that_is_given_again_owns_nothing_of_before(store: Arc<dyn Store>) {
    let scope = Some(Scope::BusinessSet(4));
    let made = |number| NewTask { user: "ana".to_owned(), scope: scope.clone(), ..keyed(number, "job", "k", 1) };
    let app = || App {
        code: "job".to_owned(),
        secret_hash: "x".to_owned(),
        sealed_secret: None,
        trusted: false,
        created_at: 5,
    };
    let ana = || User { name: "ana".to_owned(), created_at: 5, disabled: false };
    store.create_app(app(), &[]).await.unwrap().unwrap();
    store.create_user(ana()).await.unwrap().unwrap();
    let (code, name) = (Subject::App(app().code), Subject::User("ana".to_owned()));
    let first = NewTask { app: app().code, ..made(1) };
    store.create_task(first.clone()).await.unwrap();
    let before = read(&*store, 1).await;

    store.delete_user("ana").await.unwrap();
    let without_user = read(&*store, 1).await.owners;
    store.delete_app("job").await.unwrap();
    store.delete_app("job").await.unwrap();
    store.create_app(app(), &[]).await.unwrap().unwrap();
    store.create_user(ana()).await.unwrap().unwrap();
    let key = first.idempotency.clone().unwrap();
    let by_key = store.task_of_key(&key).await.unwrap();
    store.create_task(NewTask { id: id(2), ..first }).await.unwrap();

    assert_eq!((before.owners, before.scope), (vec![code.clone(), name.clone()], scope));
    assert_eq!(without_user, std::slice::from_ref(&code));
    assert_eq!(by_key, None);
    assert_eq!(read(&*store, 1).await.owners, []);
    assert_eq!(read(&*store, 2).await.owners, [code.clone(), name.clone()]);
    for owner in [code, name] {
        let query = TaskQuery { limit: 9, owner: Some(owner), ..TaskQuery::default() };
        let found: Vec<_> = store.tasks(&query).await.unwrap().into_iter().map(|task| task.id).collect();
        assert_eq!(found, [id(2)]);
    }
}

pub async fn a_new_user_owns_nothing_that_was_done_in_that_name_before(store: Arc<dyn Store>) {
    let name = Subject::User("ana".to_owned());
    let made = |number| NewTask { user: "ana".to_owned(), ..keyed(number, "job", &number.to_string(), 1) };
    store.create_task(made(1)).await.unwrap();

    store.create_user(User { name: "ana".to_owned(), created_at: 5, disabled: false }).await.unwrap().unwrap();
    store.create_task(made(2)).await.unwrap();

    assert!(!read(&*store, 1).await.owners.contains(&name));
    assert!(read(&*store, 2).await.owners.contains(&name));
}
