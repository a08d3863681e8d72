//! Tasks as a grid, pausing rolling ones, finding them, and what was asked of one process.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use proctor_model::Outcome;
use proctor_server::control::Session;
use serde_json::{Value, json};

use crate::support::{HOST, World, column, error, greeting, registration};

/// web/a on three hosts, whose agents are connected.
struct Fleet {
    world: World,
    sessions: Vec<Arc<Session>>,
}

impl std::ops::Deref for Fleet {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

async fn world() -> Fleet {
    let world = World::new().await;
    for number in [2, 3] {
        world.enrol(&format!("0:10.0.0.{number}"), &format!("agent-{number}")).await;
    }
    let mut body = registration("a");
    body["hosts"] = (1..4).map(|last| json!({ "ip": format!("10.0.0.{last}"), "bk_cloud_id": 0 })).collect();
    world.post("/processes", body).await;
    world.register("b").await;
    let mut sessions = Vec::new();
    for number in 1..4 {
        let agent = format!("agent-{number}").parse().unwrap();
        sessions.push(world.control.open_session(greeting(&agent)).await.unwrap().unwrap());
    }
    Fleet { world, sessions }
}

async fn rolling(world: &Fleet, canary: u32) -> String {
    let rolling = json!({ "max_parallel": 1, "max_failures": 9, "canary": canary });
    let body = json!({ "operation": "stop", "process": "web/a", "all": true, "rolling": rolling });
    let (_, accepted) = world.post("/operations", body).await;
    format!("/tasks/{}", accepted["task_id"].as_str().unwrap_or_else(|| panic!("{accepted}")))
}

async fn until(fleet: &Fleet, task: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let reached = async {
        loop {
            let view = fleet.got(task).await;
            if is_so(&view) {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached).await.expect("the task comes that far")
}

/// The first agent does what it is asked for, which comes a moment after the task shows it as released.
async fn answer(fleet: &Fleet) {
    let session = &fleet.sessions[0];
    let asked = async {
        loop {
            let deliveries = fleet.control.take_deliveries(session, 10);
            if !deliveries.is_empty() {
                return deliveries;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    for delivery in tokio::time::timeout(Duration::from_secs(60), asked).await.expect("an operation") {
        fleet.control.arrived(session, delivery.operation, Outcome::success(false)).await.unwrap();
    }
}

#[tokio::test]
async fn a_paused_task_releases_nothing_until_it_is_resumed() {
    let world = world().await;
    let task = rolling(&world, 0).await;
    until(&world, &task, |view| view["rollout"]["released"] == 1).await;
    let pause = async || world.post(&format!("{task}/pause"), Value::Null).await;

    let (status, paused) = pause().await;
    let again = pause().await.0;
    answer(&world).await;
    let still = until(&world, &task, |view| view["succeeded"] == 1).await;
    let held = world.got(&format!("{task}/grid")).await;
    let resumed = world.post(&format!("{task}/resume"), Value::Null).await.1;

    assert_eq!((status, &paused["rollout"]["state"]), (StatusCode::OK, &json!("paused")));
    assert_eq!((again, &still["rollout"]["released"]), (StatusCode::CONFLICT, &json!(1)));
    assert_eq!((&held["states"], &held["total"]), (&json!("spp"), &json!(3)));
    assert_eq!(resumed["rollout"]["state"], "running");
    until(&world, &task, |view| view["rollout"]["released"] == 2).await;
}

#[tokio::test]
async fn a_pause_before_the_canary_does_not_skip_the_canary() {
    let world = world().await;
    let task = rolling(&world, 2).await;

    world.post(&format!("{task}/pause"), Value::Null).await;
    let resumed = world.post(&format!("{task}/resume"), Value::Null).await.1;

    assert_eq!((&resumed["rollout"]["canary"], &resumed["rollout"]["state"]), (&json!(2), &json!("running")));
}

#[tokio::test]
async fn a_grid_has_a_letter_for_each_target_and_waits_for_a_change() {
    let world = world().await;
    let task = rolling(&world, 0).await;
    until(&world, &task, |view| view["rollout"]["released"] == 1).await;
    answer(&world).await;
    let first = until(&world, &task, |view| view["rollout"]["released"] == 2).await;
    let grid = world.got(&format!("{task}/grid")).await;
    assert_eq!((&grid["states"], &first["succeeded"]), (&json!("srp"), &json!(1)));

    let waiting = format!("{task}/grid?version={}&wait=30", grid["version"]);
    let cancel = format!("{task}/cancel");
    let (changed, _) = tokio::join!(world.got(&waiting), world.post(&cancel, Value::Null));
    let (status, answer) = world.get(&format!("{task}/grid?wait=31")).await;

    assert!(changed["version"].as_u64() > grid["version"].as_u64(), "{changed}");
    assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, "wait"));
    until(&world, &task, |view| view["pending"] == 0).await;
    assert_eq!(world.got(&format!("{task}/grid?version=1&wait=30")).await["states"], "scc");
    let cancelled = world.got(&format!("{task}/targets?state=cancelled&output=false")).await;
    assert_eq!(column(&cancelled["targets"], "index"), [1, 2]);
    let code = cancelled["targets"][0]["code"].clone();
    assert_eq!(world.got(&format!("{task}/targets?code={code}")).await["targets"].as_array().unwrap().len(), 2);
    for query in ["code=7", "code=0&state=failed"] {
        assert_eq!(error(&world.get(&format!("{task}/targets?{query}")).await.1).1, "code");
    }
    let unknown = "/tasks/GSETASK:00000000000000000000000000000001/grid";
    assert_eq!(world.get(unknown).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn tasks_are_found_by_process_operation_state_and_time() {
    let world = world().await;
    let stop = rolling(&world, 0).await;
    world.post(&format!("{stop}/pause"), Value::Null).await;
    world.post("/operations", json!({ "operation": "start", "process": "web/b", "all": true })).await;
    world.post("/operations", json!({ "operation": "start", "process": "web/none", "hosts": [HOST] })).await;

    let count = async |query: &str| world.got(&format!("/tasks?{query}")).await["tasks"].as_array().unwrap().len();

    assert_eq!((count("process=web/a").await, count("process=web/b&operation=start").await), (1, 1));
    assert_eq!((count("operation=start").await, count("operation=kill").await), (2, 0));
    assert_eq!((count("state=paused").await, count("state=running").await, count("state=failed").await), (1, 1, 1));
    assert_eq!((count("state=done").await, count("since=1").await, count("until=1").await), (0, 3, 0));
    for (query, field) in [("process=a:b", "process"), ("state=lost", "state"), ("operation=fly", "operation")] {
        let (status, answer) = world.get(&format!("/tasks?{query}")).await;
        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{answer}");
    }
}

#[tokio::test]
async fn what_was_asked_of_a_process_is_shown_to_who_may_read_those_tasks() {
    let world = world().await;
    for operation in ["start", "stop"] {
        world.post("/operations", json!({ "operation": operation, "process": "web/a", "all": true })).await;
    }
    world.post("/operations", json!({ "operation": "kill", "process": "web/b", "all": true })).await;
    world.post("/users", json!({ "name": "ana" })).await;
    world.post("/bindings", json!({ "role": "viewer", "subject": "user:ana", "scope": "namespace:web" })).await;
    let (_, token) = world.post("/users/ana/tokens", json!({})).await;
    let as_ana = Request::get("/api/v1/processes/web/a/operations")
        .header("Authorization", format!("Bearer {}", token["token"].as_str().unwrap()));

    let all = world.got("/processes/web/a/operations").await;
    let here = world.got("/processes/web/a/operations?host=10.0.0.2").await;
    // Three targets of each of two tasks: pages end within a task.
    let (mut paged, mut path) = (Vec::new(), "/processes/web/a/operations?limit=2".to_owned());
    loop {
        let page = world.got(&path).await;
        let operations = page["operations"].as_array().unwrap().clone();
        assert!(operations.len() <= 2, "{page}");
        paged.extend(operations);
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/processes/web/a/operations?limit=2&after={next}");
    }
    let (status, foreign) = world.send(as_ana.body(Body::empty()).unwrap()).await;

    assert_eq!(column(&all["operations"], "operation"), ["stop", "stop", "stop", "start", "start", "start"]);
    assert_eq!((column(&here["operations"], "host"), here.get("next")), (vec![&json!("0:10.0.0.2"); 2], None));
    assert_eq!(json!(paged), all["operations"]);
    assert_eq!((&paged[0]["app"], &paged[0]["user"]), (&json!("boss"), &json!("admin")));
    assert_eq!((status, &foreign["operations"]), (StatusCode::OK, &json!([])));
    assert_eq!(world.get("/processes/web/a/operations?after=x").await.0, StatusCode::BAD_REQUEST);
    let unknown_host = world.got("/processes/web/a/operations?host=10.9.9.9").await;
    assert_eq!(unknown_host["operations"], json!([]));
}
