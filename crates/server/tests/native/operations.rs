//! Operations by selector, planned, rolling, repeated; and steering their tasks.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::support::{HOST, World, column, credentials, error, registration};

/// Two hosts; web/a with env=prod and web/b with env=test on the first, web/a on the second too.
async fn world() -> World {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    for (name, env, hosts) in [("a", "prod", vec!["10.0.0.1", "10.0.0.2"]), ("b", "test", vec!["10.0.0.1"])] {
        let mut body = registration(name);
        body["meta"]["labels"] = json!({ "env": env });
        body["hosts"] = hosts.into_iter().map(|ip| json!({ "ip": ip, "bk_cloud_id": 0 })).collect();
        let (status, answer) = world.post("/processes", body).await;
        assert_eq!((status, &answer["rows"][0]["code"]), (StatusCode::OK, &json!(0)), "{answer}");
    }
    world
}

async fn keyed(world: &World, path: &str, key: &str, body: Value) -> (StatusCode, Value) {
    let request = Request::post(format!("/api/v1{path}"))
        .header("X-Bkapi-Authorization", credentials("boss", &world.secret))
        .header("Idempotency-Key", key)
        .body(Body::from(body.to_string()))
        .unwrap();
    world.send(request).await
}

fn task_path(accepted: &Value) -> String {
    format!("/tasks/{}", accepted["task_id"].as_str().unwrap_or_else(|| panic!("{accepted}")))
}

#[tokio::test]
async fn a_selector_is_frozen_into_targets_when_the_call_is_made() {
    let world = world().await;

    let (status, accepted) =
        world.post("/operations", json!({ "operation": "start", "selector": "env=prod", "all": true })).await;
    let (_, on_one) =
        world.post("/operations", json!({ "operation": "stop", "selector": "env", "hosts": [HOST] })).await;
    let (none, _) =
        world.post("/operations", json!({ "operation": "stop", "selector": "env=none", "all": true })).await;
    let other = json!({ "operation": "stop", "selector": "env", "namespace": "db", "all": true });
    let (elsewhere, _) = world.post("/operations", other).await;

    assert_eq!(status, StatusCode::ACCEPTED);
    let targets = world.got(&format!("{}/targets", task_path(&accepted))).await;
    assert_eq!(column(&targets["targets"], "host"), [HOST, "0:10.0.0.2"]);
    assert_eq!(column(&targets["targets"], "process"), ["web/a", "web/a"]);
    let targets = world.got(&format!("{}/targets", task_path(&on_one))).await;
    assert_eq!(column(&targets["targets"], "process"), ["web/a", "web/b"]);
    assert_eq!((none, elsewhere), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn exact_targets_are_pairs_of_a_process_and_a_host() {
    let world = world().await;
    let pair = |process: &str, host: &str| json!({ "process": process, "host": host });
    let asked = |targets: Value| json!({ "operation": "stop", "targets": targets });
    let pairs = json!([pair("web/b", "10.0.0.1"), pair("web/a", "agent-2"), pair("web/none", HOST)]);

    let (status, accepted) = world.post("/operations", asked(pairs)).await;

    assert_eq!(status, StatusCode::ACCEPTED);
    let targets = world.got(&format!("{}/targets", task_path(&accepted))).await;
    assert_eq!(column(&targets["targets"], "process"), ["web/a", "web/b", "web/none"]);
    assert_eq!(column(&targets["targets"], "host"), ["0:10.0.0.2", HOST, HOST]);
    let unregistered = &targets["targets"][2];
    assert_eq!(
        (&unregistered["code"], &unregistered["name"]),
        (&json!(65535), &json!("command_failed")),
        "{unregistered}"
    );
    for (targets, field) in [
        (json!([]), "targets"),
        (json!([pair("web/a", HOST), pair("web/a", "agent-1")]), "targets[1]"),
        (json!([pair("web/a", "no such/host")]), "targets[0].host"),
        (json!([pair("a:b/c", HOST)]), "targets[0].process"),
    ] {
        let (status, answer) = world.post("/operations", asked(targets)).await;
        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{answer}");
    }
    for (field, value) in [("process", json!("web/a")), ("selector", json!("env")), ("all", json!(true))] {
        let mut body = asked(json!([pair("web/a", HOST)]));
        body[field] = value;
        let (status, answer) = world.post("/operations", body).await;
        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{answer}");
    }
}

#[tokio::test]
async fn a_request_that_says_too_much_or_too_little_names_its_field() {
    let world = world().await;
    let cases = [
        (json!({ "operation": "stop", "all": true }), "process"),
        (json!({ "operation": "stop", "process": "web/a", "selector": "env", "all": true }), "selector"),
        (json!({ "operation": "stop", "process": "web/a", "namespace": "web", "all": true }), "namespace"),
        (json!({ "operation": "stop", "selector": "env=", "all": true, "business": 3 }), "all"),
        (json!({ "operation": "stop", "selector": "=", "all": true }), "selector"),
        (json!({ "operation": "stop", "selector": "env", "all": true, "rolling": {} }), "rolling.max_parallel"),
        (
            json!({ "operation": "stop", "selector": "env", "all": true, "rolling": { "max_parallel": "0%" } }),
            "rolling.max_parallel",
        ),
        (
            json!({ "operation": "stop", "selector": "env", "all": true, "rolling": { "max_parallel": 1, "x": 1 } }),
            "rolling.x",
        ),
        (
            json!({ "operation": "status", "selector": "env", "all": true,
                    "rolling": { "max_parallel": 1, "canary": 1 } }),
            "rolling",
        ),
        (
            json!({ "operation": "status", "selector": "env", "all": true, "plan": true,
                    "rolling": { "max_parallel": 1 } }),
            "rolling",
        ),
    ];
    for (body, field) in cases {
        let (status, answer) = world.post("/operations", body.clone()).await;

        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{body}: {answer}");
    }
    assert_eq!(world.got("/tasks").await, json!({ "tasks": [] }));
}

#[tokio::test]
async fn a_plan_tells_the_targets_and_what_would_be_refused_and_changes_nothing() {
    let world = world().await;

    let body =
        json!({ "operation": "restart", "process": "web/b", "hosts": [HOST, "0:10.0.0.2", "10.0.0.9"], "plan": true });
    let (status, answer) = world.post("/operations", body).await;

    assert_eq!((status, answer.get("task_id")), (StatusCode::OK, None));
    let plan = &answer["plan"];
    assert_eq!((&plan["total"], &plan["refused"]), (&json!(3), &json!(2)));
    let first =
        json!({ "host": HOST, "process": "web/b", "operation": "restart", "phase": "unknown", "online": false });
    assert_eq!(plan["targets"][0], first);
    assert!(plan["targets"][1]["refused"]["message"].as_str().unwrap().contains("not registered"), "{plan}");
    assert_eq!(plan["targets"][2]["refused"]["code"], 117);
    assert_eq!(world.got("/tasks").await, json!({ "tasks": [] }));
}

#[tokio::test]
async fn the_same_key_and_body_are_the_same_task_and_another_body_is_a_conflict() {
    let world = world().await;
    let body = json!({ "operation": "stop", "process": "web/a", "all": true });

    let (made, first) = keyed(&world, "/operations", "key-1", body.clone()).await;
    let (found, second) = keyed(&world, "/operations", "key-1", body.clone()).await;
    let (conflict, answer) =
        keyed(&world, "/operations", "key-1", json!({ "operation": "start", "process": "web/a", "all": true })).await;
    let (_, other) = keyed(&world, "/operations", "key-2", body.clone()).await;
    let (bad, bad_key) = keyed(&world, "/operations", "a b", body).await;

    assert_eq!((made, found, &first), (StatusCode::ACCEPTED, StatusCode::OK, &second));
    assert_eq!((conflict, error(&answer).0), (StatusCode::CONFLICT, "conflict"));
    assert_ne!(first, other);
    assert_eq!((bad, error(&bad_key).1), (StatusCode::BAD_REQUEST, "Idempotency-Key"));
    assert_eq!(world.got("/tasks").await["tasks"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_repetition_finds_its_task_though_its_selector_finds_nothing_any_more() {
    let world = world().await;
    let body = json!({ "operation": "stop", "selector": "env=test", "all": true });

    let (made, first) = keyed(&world, "/operations", "key-1", body.clone()).await;
    world.call(Method::DELETE, "/processes/web/b", json!({ "all": true })).await;
    let (found, second) = keyed(&world, "/operations", "key-1", body.clone()).await;
    let other = json!({ "operation": "kill", "selector": "env=test", "all": true });
    let (conflict, _) = keyed(&world, "/operations", "key-1", other).await;
    let (fresh, _) = keyed(&world, "/operations", "key-2", body.clone()).await;
    let mut plan = body;
    plan["plan"] = json!(true);
    let (planned, _) = keyed(&world, "/operations", "key-1", plan).await;

    assert_eq!((made, found, first), (StatusCode::ACCEPTED, StatusCode::OK, second));
    assert_eq!((conflict, fresh, planned), (StatusCode::CONFLICT, StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn keys_of_users_are_their_own() {
    let world = world().await;
    let body = json!({ "operation": "stop", "process": "web/a", "all": true });
    let mut tasks = Vec::new();

    for user in ["ana", "bo"] {
        world.post("/users", json!({ "name": user })).await;
        let binding = json!({ "role": "operator", "subject": format!("user:{user}"), "scope": "everything" });
        world.post("/bindings", binding).await;
        let (_, token) = world.post(&format!("/users/{user}/tokens"), json!({})).await;
        let request = Request::post("/api/v1/operations")
            .header("Authorization", format!("Bearer {}", token["token"].as_str().unwrap()))
            .header("Idempotency-Key", "key-1")
            .body(Body::from(body.to_string()))
            .unwrap();
        tasks.push(world.send(request).await);
    }

    assert_eq!((tasks[0].0, tasks[1].0), (StatusCode::ACCEPTED, StatusCode::ACCEPTED));
    assert_ne!(tasks[0].1, tasks[1].1);
}

#[tokio::test]
async fn tasks_come_newest_first_in_pages() {
    let world = world().await;
    let mut ids = Vec::new();
    for operation in ["start", "stop", "kill"] {
        let (_, accepted) =
            world.post("/operations", json!({ "operation": operation, "process": "web/a", "all": true })).await;
        ids.insert(0, accepted["task_id"].clone());
    }

    let first = world.got("/tasks?limit=2").await;
    let rest = world.got(&format!("/tasks?limit=2&after={}", first["next"].as_str().unwrap())).await;
    let mine = world.got("/tasks?app=boss&user=admin&unfinished=true").await;
    let nobodys = world.got("/tasks?app=nobody").await;
    let (bad, answer) = world.get("/tasks?after=x").await;

    assert_eq!(
        [column(&first["tasks"], "task_id"), column(&rest["tasks"], "task_id")].concat(),
        ids.iter().collect::<Vec<_>>()
    );
    assert_eq!(rest.get("next"), None);
    assert_eq!((mine["tasks"].as_array().unwrap().len(), nobodys), (3, json!({ "tasks": [] })));
    let newest = &first["tasks"][0];
    assert_eq!(
        (&newest["operations"], &newest["total"], &newest["family"]),
        (&json!(["kill"]), &json!(2), &json!("native"))
    );
    assert_eq!((bad, error(&answer).1), (StatusCode::BAD_REQUEST, "after"));
}

#[tokio::test]
async fn a_rolling_task_waits_after_its_canary_and_is_cancelled() {
    let world = world().await;
    let body = json!({ "operation": "restart", "selector": "env=prod", "all": true,
                       "rolling": { "max_parallel": "50%", "max_failures": 5, "canary": 1, "wait_healthy": true } });

    let (_, accepted) = world.post("/operations", body).await;
    let path = task_path(&accepted);
    let begun = world.got(&path).await;
    let (cancelled, after) = world.post(&format!("{path}/cancel"), Value::Null).await;
    let (twice, _) = world.post(&format!("{path}/cancel"), Value::Null).await;
    let (resumed, _) = world.post(&format!("{path}/resume"), Value::Null).await;

    let rollout = &begun["rollout"];
    assert_eq!((&rollout["max_parallel"], &rollout["canary"]), (&json!(1), &json!(1)), "{begun}");
    assert_eq!((cancelled, after["cancelled_at"].is_i64()), (StatusCode::OK, true));
    assert_eq!((twice, resumed), (StatusCode::CONFLICT, StatusCode::CONFLICT));
}

#[tokio::test]
async fn a_caller_has_a_bounded_number_of_rolling_tasks_that_are_not_over() {
    let world = world().await;
    let body = json!({ "operation": "restart", "selector": "env=prod", "all": true,
                       "rolling": { "max_parallel": 1, "canary": 1 } });
    // The agents are offline, so none of them ends. An administrator has twice as many as others, and
    // one user of an app three quarters of that.
    let mut last = Value::Null;
    for _ in 0..48 {
        let (status, accepted) = world.post("/operations", body.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{accepted}");
        last = accepted;
    }

    let (refused, answer) = world.post("/operations", body.clone()).await;
    let mut at_once = body.clone();
    at_once.as_object_mut().unwrap().remove("rolling");
    let (other, _) = world.post("/operations", at_once).await;
    let (cancelled, _) = world.post(&format!("{}/cancel", task_path(&last)), Value::Null).await;
    let (again, _) = world.post("/operations", body).await;

    assert_eq!((refused, error(&answer).0), (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"), "{answer}");
    let message =
        "this caller has 48 rolling tasks that are not over, and may not have more: wait for one to end, or cancel one";
    assert_eq!(answer["error"]["message"], message);
    assert_eq!((other, cancelled, again), (StatusCode::ACCEPTED, StatusCode::OK, StatusCode::ACCEPTED));
    assert_eq!(world.got("/tasks").await["tasks"].as_array().unwrap().len(), 50);
}

#[tokio::test]
async fn what_failed_is_tried_again_and_only_once_with_a_key() {
    let world = world().await;
    let body = json!({ "operation": "stop", "process": "web/b", "hosts": ["0:10.0.0.2"] });
    let (_, accepted) = world.post("/operations", body).await;
    let path = format!("{}/retry", task_path(&accepted));

    let (status, retried) = world.post(&path, Value::Null).await;
    let (_, first) = keyed(&world, &path, "again", json!({})).await;
    let (found, second) = keyed(&world, &path, "again", json!({})).await;
    let (unknown, _) = world.post("/tasks/GSETASK:00000000000000000000000000000001/retry", Value::Null).await;

    assert_eq!((status, &retried["retry_of"]), (StatusCode::ACCEPTED, &accepted["task_id"]), "{retried}");
    assert_eq!((found, &first["task_id"], unknown), (StatusCode::OK, &second["task_id"], StatusCode::NOT_FOUND));
}
