//! The audit over HTTP.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use proctor_store::{AuditDraft, AuditPhase};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{World, column, credentials, error};

async fn append(world: &World, count: u32, action: &str) {
    for number in 0..count {
        let draft = AuditDraft {
            phase: AuditPhase::Done,
            of: None,
            app: "job".into(),
            user: "ana".into(),
            remote: None,
            request_id: format!("r-{number}"),
            action: action.into(),
            classes: [proctor_model::Class::Operate].into_iter().collect(),
            target_count: 1,
            targets: vec!["0:10.0.0.1".into()],
            outcome: "done".into(),
        };
        world.store.append_audit(draft, 1000 * i64::from(number)).await.unwrap();
    }
}

#[tokio::test]
async fn entries_are_narrowed_and_paged() {
    let world = World::new().await;
    append(&world, 3, "start").await;
    append(&world, 2, "stop").await;

    let first = world.got("/audit?app=job&limit=2").await;
    let rest = world.got(&format!("/audit?app=job&after={}", first["next"])).await;
    let stops = world.got("/audit?action=stop&since=1").await;
    let newest = world.got("/audit?app=job&order=desc&limit=3").await;
    let older = world.got(&format!("/audit?app=job&order=desc&limit=3&before={}", newest["next"])).await;
    let (bad, answer) = world.get("/audit?limit=5000").await;

    assert_eq!(column(&newest["entries"], "action"), ["stop", "stop", "start"]);
    assert_eq!(column(&older["entries"], "request_id"), ["r-1", "r-0"]);
    assert_eq!(older["next"], 0);
    assert_eq!(column(&first["entries"], "request_id"), ["r-0", "r-1"]);
    assert_eq!(column(&rest["entries"], "action"), ["start", "stop", "stop"]);
    assert_eq!(column(&stops["entries"], "request_id"), ["r-1"]);
    assert_eq!((bad, error(&answer).1), (StatusCode::BAD_REQUEST, "limit"));
}

#[tokio::test]
async fn an_export_has_every_entry_in_a_line_with_hashes_that_can_be_made_again() {
    let world = World::new().await;
    append(&world, 1203, "start").await;

    let request = Request::get("/api/v1/audit/export?app=job")
        .header("X-Bkapi-Authorization", credentials("boss", &world.secret))
        .body(Body::empty())
        .unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let lines: Vec<Value> = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();

    assert_eq!(lines.len(), 1203);
    for pair in lines.windows(2) {
        assert_eq!(pair[0]["hash"], pair[1]["prev_hash"]);
    }
    let mut entry = lines[7].clone();
    let hash = entry.as_object_mut().unwrap().remove("hash").unwrap();
    let mut hasher = blake3::Hasher::new();
    hasher.update(blake3::Hash::from_hex(lines[7]["prev_hash"].as_str().unwrap()).unwrap().as_bytes());
    // Maps of serde_json are in the order of their keys.
    hasher.update(entry.to_string().as_bytes());
    assert_eq!(json!(hasher.finalize().to_string()), hash);
}

#[tokio::test]
async fn a_whole_chain_is_found_intact() {
    let world = World::new().await;
    append(&world, 2001, "start").await;

    let verdict = world.got("/audit/verify").await;

    assert_eq!((&verdict["intact"], &verdict["broken_at"]), (&json!(true), &Value::Null));
    assert!(verdict["entries"].as_u64().unwrap() >= 2001);
}

#[tokio::test]
async fn the_end_of_a_change_names_a_few_of_the_targets_that_its_beginning_names() {
    let world = World::new().await;
    let mut hosts = Vec::new();
    for number in 2..32 {
        let host = format!("0:10.0.0.{number}");
        world.enrol(&host, &format!("agent-{number}")).await;
        hosts.push(host);
    }
    let pool = json!({ "namespace": "web", "id": "web", "cpu": 20.0, "memory": 30.0,
                       "cpu_weight": "usage", "memory_weight": "usage" });

    let (status, answer) = world.put("/pools", json!({ "hosts": hosts, "pools": [pool] })).await;

    assert_eq!(status, StatusCode::OK, "{answer}");
    let entries = world.got("/audit?action=set_pools").await["entries"].clone();
    let named = entries.as_array().unwrap().iter().map(|entry| entry["targets"].as_array().unwrap().len());
    assert_eq!(named.collect::<Vec<_>>(), [30, 20]);
    assert_eq!(column(&entries, "target_count"), [30, 30]);
}
