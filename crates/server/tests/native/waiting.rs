//! Operations that wait for offline hosts, with the agent's part played by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use proctor_model::{Code, Outcome};
use proctor_runtime::Tasks;
use proctor_server::control::{Caller, Control, Session};
use serde_json::{Value, json};

use crate::support::{AGENT, HOST, World, error, greeting};

const PATIENCE: Duration = Duration::from_secs(60);

async fn world() -> World {
    let world = World::new().await;
    world.register("a").await;
    world
}

async fn connect(control: &Control) -> Arc<Session> {
    control.open_session(greeting(&AGENT.parse().unwrap())).await.unwrap().unwrap()
}

fn asked(operation: &str, wait_secs: Option<u64>) -> Value {
    let mut body = json!({ "operation": operation, "process": "web/a", "all": true });
    if let Some(wait_secs) = wait_secs {
        body["wait_secs"] = json!(wait_secs);
    }
    body
}

/// The path of the task.
async fn operate(world: &World, operation: &str, wait_secs: Option<u64>) -> String {
    let (status, accepted) = world.post("/operations", asked(operation, wait_secs)).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{accepted}");
    format!("/tasks/{}", accepted["task_id"].as_str().unwrap())
}

/// A new user's start that waits for ten minutes; the path of its task.
async fn wait_of_user(world: &World, user: &str) -> String {
    world.post("/users", json!({ "name": user })).await;
    let binding = json!({ "role": "operator", "subject": format!("user:{user}"), "scope": "everything" });
    world.post("/bindings", binding).await;
    let (_, token) = world.post(&format!("/users/{user}/tokens"), json!({})).await;
    let request = Request::post("/api/v1/operations")
        .header("Authorization", format!("Bearer {}", token["token"].as_str().unwrap()))
        .body(Body::from(asked("start", Some(600)).to_string()))
        .unwrap();
    let (status, accepted) = world.send(request).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{accepted}");
    format!("/tasks/{}", accepted["task_id"].as_str().unwrap())
}

/// The only row of the task.
async fn row(world: &World, task: &str) -> Value {
    world.got(&format!("{task}/targets")).await["targets"][0].clone()
}

async fn until_code(world: &World, task: &str, code: u64) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let row = row(world, task).await;
        if row["code"] == code {
            return row;
        }
        assert!(Instant::now() < until && row["code"] == 115, "{row}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_operation_waits_for_its_host_and_its_row_says_so_while_others_fail_fast() {
    let world = world().await;
    let begun = Instant::now();
    let waiting = operate(&world, "start", Some(600)).await;

    let fast = until_code(&world, &operate(&world, "start", None).await, 117).await;
    let shown = row(&world, &waiting).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "fail-fast stays fast");
    assert_eq!(fast["message"], "agent agent-1 is not connected");
    let message = shown["message"].as_str().unwrap();
    assert!(message.starts_with("waits for agent agent-1, which is not connected, for another 59"), "{shown}");
    assert_eq!(shown["message_id"], "target_waits_for_agent", "{shown}");

    let session = connect(&world.control).await;
    let deliveries = world.control.take_deliveries(&session, 10);
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].spec, None, "it starts what is registered by then");
    assert_eq!(row(&world, &waiting).await["message"], "handling");
    world.control.arrived(&session, deliveries[0].operation, Outcome::success(true)).await.unwrap();
    until_code(&world, &waiting, 0).await;
}

#[tokio::test]
async fn a_wait_ends_with_the_permissions_of_its_creator() {
    let world = world().await;
    let mut tasks = Vec::new();
    for user in ["unbound", "disabled", "deleted", "kept"] {
        tasks.push(wait_of_user(&world, user).await);
    }

    let bindings = world.got("/bindings?subject=user:unbound").await;
    world.delete(&format!("/bindings/{}", bindings["bindings"][0]["id"].as_str().unwrap())).await;
    assert!(world.put("/users/disabled", json!({ "disabled": true })).await.0.is_success());
    assert!(world.delete("/users/deleted").await.0.is_success());

    for task in &tasks[..3] {
        let row = until_code(&world, task, 403).await;
        assert!(row["message"].as_str().is_some_and(|message| !message.is_empty()), "{row}");
    }
    let session = connect(&world.control).await;
    let delivered = world.control.take_deliveries(&session, 10);
    assert_eq!(delivered.len(), 1, "who may still do it is served");
    assert!(tasks[3].ends_with(&delivered[0].operation.task.to_string()));
}

#[tokio::test]
async fn a_wait_of_an_app_goes_on_although_a_user_of_its_name_is_disabled() {
    let world = world().await;
    let (_, app) = world.post("/apps", json!({ "code": "twin" })).await;
    world.post("/users", json!({ "name": "twin" })).await;
    let binding = json!({ "role": "operator", "subject": "app:twin", "scope": "everything" });
    world.post("/bindings", binding).await;
    let credentials = json!({ "bk_app_code": "twin", "bk_app_secret": app["secret"], "bk_username": "twin" });
    let request = Request::post("/api/v1/operations")
        .header("X-Bkapi-Authorization", credentials.to_string())
        .body(Body::from(asked("start", Some(600)).to_string()))
        .unwrap();
    let (status, accepted) = world.send(request).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{accepted}");
    // Waits are checked in the order of their tasks: when the second has ended, the first was checked.
    let second = wait_of_user(&world, "second").await;

    assert!(world.put("/users/twin", json!({ "disabled": true })).await.0.is_success());
    assert!(world.delete("/users/second").await.0.is_success());
    until_code(&world, &second, 403).await;

    let task = format!("/tasks/{}", accepted["task_id"].as_str().unwrap());
    assert_eq!(row(&world, &task).await["code"], 115);
}

#[tokio::test]
async fn a_wait_that_is_over_ends_as_absent_and_not_before() {
    let world = world().await;
    let begun = Instant::now();

    let ended = until_code(&world, &operate(&world, "stop", Some(4)).await, 117).await;

    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(ended["message"], "agent agent-1 is not connected");
}

#[tokio::test]
async fn a_wait_goes_on_after_a_restart_and_is_cancelled_at_once() {
    let world = world().await;
    let waiting = operate(&world, "start", Some(600)).await;
    let stays = operate(&world, "stop", Some(600)).await;
    assert!(world.tasks.end(PATIENCE).await, "the server ends");

    let tasks = Tasks::default();
    let control = Control::start(world.store.clone(), &tasks).await.unwrap();
    let id = |path: &str| path.trim_start_matches("/tasks/").parse().unwrap();
    assert!(control.cancel(&Caller::local("test"), id(&waiting)).await.unwrap());

    let code_of = |task: proctor_model::TaskId| {
        let store = world.store.clone();
        async move { store.task(task).await.unwrap().unwrap().targets[0].outcome.as_ref().map(|outcome| outcome.code) }
    };
    let until = Instant::now() + PATIENCE;
    while code_of(id(&waiting)).await != Some(Code::Cancelled) {
        assert!(Instant::now() < until, "nobody has heard of it: it ends at once");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let session = connect(&control).await;
    let deliveries = control.take_deliveries(&session, 10);
    assert_eq!(deliveries.iter().map(|it| it.operation.task).collect::<Vec<_>>(), [id(&stays)]);
    assert!(tasks.end(PATIENCE).await);
}

#[tokio::test]
async fn what_waits_ends_with_a_cordon_where_it_would_bring_something_up_and_with_its_host() {
    let world = world().await;
    let (start, stop) = (operate(&world, "start", Some(600)).await, operate(&world, "stop", Some(600)).await);

    let (status, answer) = world.put(&format!("/hosts/{HOST}/cordon"), json!({ "reason": "new disk" })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let refused = until_code(&world, &start, 128).await;
    assert!(refused["message"].as_str().unwrap().contains("new disk"), "{refused}");
    assert_eq!(row(&world, &stop).await["code"], 115, "a stop goes on waiting");

    assert!(world.control.remove_host(&HOST.parse().unwrap()).await.unwrap());
    until_code(&world, &stop, 117).await;
}

#[tokio::test]
async fn a_wait_out_of_range_or_of_a_query_names_its_field_and_makes_no_task() {
    let world = world().await;

    for (operation, wait_secs) in [("start", 0), ("start", 3601), ("start", u64::MAX), ("status", 60)] {
        let (status, answer) = world.post("/operations", asked(operation, Some(wait_secs))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(error(&answer).1, "wait_secs", "{answer}");
    }
    let mut odd = asked("start", None);
    odd["wait_secs"] = json!("1m");
    assert_eq!(world.post("/operations", odd).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(world.got("/tasks").await["tasks"], json!([]));
}
