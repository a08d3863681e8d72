//! Requests that real clients sent, captured from their own code (one line each, names replaced).

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;

use crate::support::World;

#[tokio::test]
async fn every_captured_request_is_understood() {
    let world = World::new().await;
    let captured: Vec<Value> = serde_json::from_str(include_str!("../data/captured.json")).unwrap();
    assert_eq!(captured.len(), 81);

    for entry in captured {
        let path = entry["path"].as_str().unwrap();
        let query: Vec<String> =
            entry["query"].as_object().unwrap().iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap())).collect();
        let mut request =
            Request::builder().method(entry["method"].as_str().unwrap()).uri(format!("{path}?{}", query.join("&")));
        for (name, value) in entry["headers"].as_object().unwrap() {
            request = request.header(name, value.as_str().unwrap());
        }
        let body = if entry["body"].is_null() { Body::empty() } else { Body::from(entry["body"].to_string()) };

        let answer = world.send(request.body(body).unwrap()).await;

        // The ids of their tasks were given out by another server.
        let expected = match path.rsplit('/').nth(1).unwrap() {
            "get_proc_result" => 1_210_001,
            "get_proc_operate_result" | "get_proc_operate_result_v2" => 1_000_101,
            _ => 0,
        };
        assert_eq!(answer.code(), expected, "{}: {} for {}", path, answer.json, entry["body"]);
        assert_eq!(answer.status, 200);
    }
    world.end().await;
}
