//! Messages in answers: in the language of the call, with the id and arguments of the message.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::support::{HOST, World, column, credentials, registration};

/// As a caller who reads Chinese.
async fn chinese(world: &World, method: &str, path: &str, body: &Value) -> Value {
    let request = Request::builder()
        .method(method)
        .uri(format!("/api/v1{path}"))
        .header("X-Bkapi-Authorization", credentials("boss", &world.secret))
        .header("Accept-Language", "zh-CN");
    world.send(request.body(Body::from(body.to_string())).unwrap()).await.1
}

fn is_chinese(text: &Value) -> bool {
    text.as_str().unwrap_or_default().contains(|letter: char| ('\u{4e00}'..='\u{9fff}').contains(&letter))
}

#[tokio::test]
async fn every_sentence_of_a_plan_has_an_id_and_comes_in_the_language_that_was_asked_for() {
    let world = World::new().await;
    world.register("a").await;
    world.put(&format!("/hosts/{HOST}/cordon"), json!({ "reason": "new disk" })).await;
    let start = json!({ "operation": "start", "process": "web/a", "all": true, "plan": true });

    let plan = chinese(&world, "POST", "/operations", &start).await;

    let refused = &plan["plan"]["targets"][0]["refused"];
    assert_eq!((&refused["code"], refused["message_id"].is_string()), (&json!(128), true), "{plan}");
    assert!(is_chinese(&refused["message"]) && refused["message_args"].to_string().contains("new disk"), "{refused}");
}

#[tokio::test]
async fn rows_of_a_registration_and_its_plan_have_ids() {
    let world = World::new().await;
    let mut body = registration("b");
    body["hosts"] = json!([{ "ip": "10.0.0.77", "bk_cloud_id": 0 }]);

    let rows = chinese(&world, "POST", "/processes", &body).await;
    let plan = chinese(&world, "POST", "/processes/plan", &body).await;

    for told in [&rows["rows"][0], &plan["hosts"][0]["refused"]] {
        assert!(is_chinese(&told["message"]) && told["message_id"].is_string(), "{rows} {plan}");
    }
}

#[tokio::test]
async fn operations_of_a_process_and_the_end_of_a_rolling_task_have_ids() {
    let world = World::new().await;
    world.register("a").await;
    let rolling =
        json!({ "operation": "stop", "process": "web/a", "all": true, "rolling": { "max_parallel": 1, "canary": 1 } });
    let task = world.post("/operations", rolling).await.1["task_id"].as_str().unwrap().to_owned();
    world.post(&format!("/tasks/{task}/cancel"), json!({})).await;

    let shown = chinese(&world, "GET", &format!("/tasks/{task}"), &Value::Null).await;
    let operations = chinese(&world, "GET", "/processes/web/a/operations", &Value::Null).await;

    let rollout = &shown["rollout"];
    assert!(rollout["reason_id"].is_string() && is_chinese(&rollout["reason"]), "{shown}");
    let told = column(&operations["operations"], "message_id");
    assert!(
        told.iter().all(|id| id.is_string()) && is_chinese(&operations["operations"][0]["message"]),
        "{operations}"
    );
}

#[tokio::test]
async fn a_rolling_task_of_an_earlier_version_keeps_its_reason_as_text() {
    let kept = json!({ "max_parallel": 1, "max_failures": 0, "canary": 0, "wait_healthy": false, "released": 0,
                       "state": "failed", "reason": "skipped: too many failed" });

    let rollout: proctor_store::Rollout = serde_json::from_value(kept).unwrap();

    let reason = rollout.reason().unwrap();
    assert_eq!((reason.as_str(), reason.phrase()), ("skipped: too many failed", None));
}
