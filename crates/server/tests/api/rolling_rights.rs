//! Rolling tasks end with the rights of who made them, and are resumed by who has them.

use std::sync::Arc;

use proctor_model::{Class, Code, Spec, Subject, TaskId};
use proctor_server::control::{Caller, ControlError, GivenSpec, Missing, Omitted, SpecSource, SubmitOptions};
use proctor_store::{ProcessQuery, RolloutState, TaskView, User};

use crate::rolling::{answer, codes, expect, fleet, is_over, restart, rolling, until};
use crate::support::{ESB, World, registered};

/// Somebody with these rights as of now.
pub(crate) async fn caller(world: &World, subjects: &[&str]) -> Caller {
    let subjects: Vec<Subject> = subjects.iter().map(|subject| subject.parse().unwrap()).collect();
    let permissions = world.control.permissions(&subjects).await.unwrap();
    let (mut app, mut user) = (String::new(), String::new());
    for subject in &subjects {
        match subject {
            Subject::App(code) => app = code.clone(),
            Subject::User(name) => user = name.clone(),
        }
    }
    Caller { app, user, subjects, permissions, ..Caller::local("") }
}

#[tokio::test]
async fn a_rolling_task_takes_no_spec_that_is_not_registered() {
    let (world, sessions) = fleet().await;
    let mut carried = restart(rolling(1, 0, 0));
    let (_, records) = world.store.processes(&ProcessQuery::default()).await.unwrap();
    let mut other = Spec::clone(&records[0].spec);
    other.identity.pid_path = "/run/other.pid".parse().unwrap();
    carried.items[0].spec = SpecSource::Given(GivenSpec { spec: Arc::new(other), omitted: Omitted::default() });

    let refused = world.control.submit(carried).await;

    assert!(matches!(refused, Err(ControlError::TaskState(_))), "{refused:?}");
    let task = world.control.submit(restart(rolling(1, 0, 0))).await.unwrap();
    assert!(task.is_new, "what is registered rolls");
    expect(&world, &sessions, 1).await;
}

fn is_paused(view: &TaskView) -> bool {
    view.rollout.as_ref().is_some_and(|rollout| rollout.state == RolloutState::Paused)
}

/// What an administrator takes away.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    Binding,
    Enabled,
    /// Beside the server: nothing says that something has changed.
    BindingUnseen,
}

impl Taken {
    pub(crate) async fn take(self, world: &World) {
        match self {
            Self::Binding | Self::BindingUnseen => {
                for binding in world.store.bindings().await.unwrap() {
                    if binding.subject == Subject::User("ana".to_owned()) {
                        world.store.delete_binding(binding.id).await.unwrap();
                    }
                }
            }
            Self::Enabled => _ = world.store.disable_user("ana", true).await.unwrap().unwrap(),
        }
        match self {
            Self::Binding | Self::Enabled => world.control.access_changed(),
            Self::BindingUnseen => {}
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Binding | Self::BindingUnseen => {
                "skipped: app:console and user:ana may no longer operate in namespace web on host 0:10.0.1.1, \
                 so the rolling task was stopped"
            }
            Self::Enabled => "skipped: user ana is disabled, so the rolling task was stopped",
        }
    }
}

/// With user ana, who may operate the namespace, through an app without rights of its own.
async fn ana(world: &World) -> Caller {
    world.store.create_user(User { name: "ana".to_owned(), created_at: 0, disabled: false }).await.unwrap().unwrap();
    world.bind("user:ana", "operator", "namespace:web").await;
    caller(world, &["app:console", "user:ana"]).await
}

/// Submits a restart of all targets as ana.
async fn submit_as_ana(world: &World, options: SubmitOptions) -> TaskId {
    let mut submission = restart(options);
    submission.caller = ana(world).await;
    world.control.submit(submission).await.unwrap().task
}

#[tokio::test]
async fn a_rolling_task_stops_when_its_maker_is_unbound_or_disabled() {
    for taken in [Taken::Binding, Taken::Enabled] {
        let (world, sessions) = fleet().await;
        let task = submit_as_ana(&world, rolling(1, 0, 0)).await;
        let first = expect(&world, &sessions, 1).await;

        taken.take(&world).await;

        let stopped = until(&world, task, "the rest is skipped", |view| codes(view)[1].is_some()).await;
        let skipped = Some(Code::Skipped);
        assert_eq!(codes(&stopped), [None, skipped, skipped, skipped], "{taken:?}");
        let messages = stopped.targets.iter().filter_map(|target| Some(target.outcome.as_ref()?.message.as_str()));
        assert!(messages.into_iter().all(|message| message == taken.message()), "{taken:?}: {stopped:?}");
        // What was released is running, and reports its outcome.
        answer(&world, &sessions, &first[0], Code::Success).await;
        let over = until(&world, task, "the first ends", is_over).await;
        assert_eq!(codes(&over)[0], Some(Code::Success));
        let rollout = over.rollout.unwrap();
        assert_eq!((rollout.state, rollout.reason.as_deref()), (RolloutState::Failed, Some(taken.message())));
        world.end().await;
    }
}

#[tokio::test]
async fn nothing_is_released_after_the_right_was_taken_even_if_nobody_said_so() {
    let (world, sessions) = fleet().await;
    let task = submit_as_ana(&world, rolling(1, 0, 0)).await;
    let first = expect(&world, &sessions, 1).await;

    Taken::BindingUnseen.take(&world).await;
    answer(&world, &sessions, &first[0], Code::Success).await;

    let over = until(&world, task, "it is over", is_over).await;
    let skipped = Some(Code::Skipped);
    assert_eq!(codes(&over), [Some(Code::Success), skipped, skipped, skipped]);
    assert_eq!(over.targets[3].outcome.as_ref().unwrap().message, Taken::BindingUnseen.message());
    world.end().await;
}

#[tokio::test]
async fn a_paused_rolling_task_stops_with_its_makers_rights_and_cannot_be_resumed() {
    let (world, sessions) = fleet().await;
    let task = submit_as_ana(&world, rolling(3, 0, 1)).await;
    answer(&world, &sessions, &expect(&world, &sessions, 1).await[0], Code::Success).await;
    until(&world, task, "it pauses", is_paused).await;

    Taken::Binding.take(&world).await;

    until(&world, task, "it is over", is_over).await;
    let resumed = world.control.resume(&Caller::local("admin"), task).await;
    assert!(matches!(resumed, Err(ControlError::TaskState { .. })), "{resumed:?}");
    world.end().await;
}

#[tokio::test]
async fn a_resume_and_a_cancel_take_the_rights_on_the_open_targets_of_who_asks() {
    let (world, sessions) = fleet().await;
    let task = submit_as_ana(&world, rolling(3, 0, 1)).await;
    answer(&world, &sessions, &expect(&world, &sessions, 1).await[0], Code::Success).await;
    until(&world, task, "it pauses", is_paused).await;
    // Of the same app, so that both own the task.
    let stranger = caller(&world, &["app:console", "user:bob"]).await;
    world.bind("user:carl", "operator", "namespace:web").await;
    let operator = caller(&world, &["app:console", "user:carl"]).await;
    let outsider = caller(&world, &["user:carl"]).await;

    let resumed = world.control.resume(&stranger, task).await.unwrap_err();
    let cancelled = world.control.cancel(&stranger, task).await.unwrap_err();
    let foreign = world.control.resume(&outsider, task).await.unwrap_err();
    world.control.resume(&operator, task).await.unwrap();

    for refused in [resumed, cancelled] {
        let ControlError::Forbidden(Missing { class, targets, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((class, targets.len()), (Class::Operate, 3), "the three that are open: {targets:?}");
    }
    let ControlError::Forbidden(Missing { targets, .. }) = foreign else { panic!("{foreign:?}") };
    let unknown_or_foreign = format!("task {task}, which is not known or somebody else's");
    assert_eq!(targets, [unknown_or_foreign], "a task of others tells no hosts");
    for delivery in expect(&world, &sessions, 3).await {
        answer(&world, &sessions, &delivery, Code::Success).await;
    }
    assert!(is_over(&until(&world, task, "it is done", is_over).await));
    world.end().await;
}

#[tokio::test]
async fn a_rolling_task_goes_on_with_the_right_that_its_maker_still_has_from_elsewhere() {
    let (world, sessions) = fleet().await;
    let task = submit_as_ana(&world, rolling(1, 0, 0)).await;
    world.bind("app:console", "operator", "everything").await;

    Taken::Binding.take(&world).await;

    for _ in 0..crate::rolling::HOSTS {
        answer(&world, &sessions, &expect(&world, &sessions, 1).await[0], Code::Success).await;
    }
    let done = until(&world, task, "it is over", is_over).await;
    assert!(codes(&done).iter().all(|code| *code == Some(Code::Success)), "{done:?}");
    world.end().await;
}

#[tokio::test]
async fn a_rolling_task_releases_nothing_with_a_spec_that_is_no_longer_registered() {
    for is_removed in [true, false] {
        let (world, sessions) = fleet().await;
        let mut submission = restart(rolling(1, 0, 1));
        submission.caller = ana(&world).await;
        let maker = submission.caller.clone();
        let task = world.control.submit(submission).await.unwrap().task;
        answer(&world, &sessions, &expect(&world, &sessions, 1).await[0], Code::Success).await;
        until(&world, task, "it pauses", is_paused).await;

        let mut body = registered("m", "10.0.1.1");
        body["spec"]["control"]["start_cmd"] = serde_json::json!("./other.sh");
        let call = if is_removed { "unregister_proc_info" } else { "update_proc_info" };
        world.post(&format!("{ESB}/{call}"), body).await.data();
        world.control.resume(&maker, task).await.unwrap();

        let over = until(&world, task, "it is over", is_over).await;
        let skipped = Some(Code::Skipped);
        assert_eq!(codes(&over), [Some(Code::Success), skipped, skipped, skipped], "removed: {is_removed}");
        let message = "skipped: the registration of process web/m changed while the task waited, \
                       so the rolling task was stopped";
        assert_eq!(over.targets[1].outcome.as_ref().unwrap().message, message);
        world.end().await;
    }
}
