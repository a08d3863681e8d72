//! The body of a registration: unknown fields are refused, known ones are read.

use axum::http::StatusCode;
use proctor_server::api::native::openapi_json;
use serde_json::{Value, json};

use crate::support::{World, error, registration};

/// With every field that there is, apart from second names.
fn whole() -> Value {
    let mut body = registration("a");
    body["spec"]["control"] = json!({
        "start_cmd": "a", "stop_cmd": "b", "restart_cmd": "c", "reload_cmd": "d", "kill_cmd": "e", "version_cmd": "f",
        "health_cmd": "g",
    });
    body["spec"]["monitor_policy"] = json!({
        "auto_type": 1, "start_check_secs": 1, "stop_check_secs": 2, "start_retries": 3, "start_interval": 4,
        "op_timeout": 5, "crontab_rule": null, "cycle_time": 6, "instance_num": 2,
        "health_check": { "interval_secs": 1, "timeout_secs": 1, "failures": 1, "grace_secs": 1 },
    });
    body
}

/// The pointer to every field of the schema, objects before what is in them.
fn fields(schema: &Value, pointer: &str, found: &mut Vec<(String, bool)>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let pointer = format!("{pointer}/{name}");
        let is_plain = matches!(field["type"].as_str().unwrap(), "string" | "integer" | "number");
        found.push((pointer.clone(), is_plain));
        fields(field, &pointer, found);
        fields(&field["items"], &format!("{pointer}/0"), found);
    }
}

/// `/hosts/0/ip` is the field `hosts[0].ip`.
fn written(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace("/0/", "[0].").replace('/', ".")
}

#[tokio::test]
async fn every_field_of_the_schema_is_read() {
    let world = World::new().await;
    let document: Value = serde_json::from_str(openapi_json()).unwrap();
    let mut all = Vec::new();
    fields(&document["components"]["schemas"]["Registration"], "", &mut all);
    let (status, answer) = world.post("/processes/plan", whole()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let changes = answer["hosts"][0]["changes"].as_array().unwrap();
    for (path, value) in [("policy.cycle", 6), ("policy.instances", 2)] {
        assert!(changes.iter().any(|change| change["path"] == path && change["to"] == value), "{path}: {answer}");
    }
    assert!(all.len() > 50, "{all:?}");

    for (pointer, is_plain) in all {
        let mut body = whole();
        if pointer.starts_with("/spec/alive_monitor_policy") {
            let policy = body["spec"].as_object_mut().unwrap().remove("monitor_policy").unwrap();
            body["spec"]["alive_monitor_policy"] = policy;
        }
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[name] = if is_plain { json!({}) } else { json!("a text") };

        let (status, answer) = world.post("/processes/plan", body).await;

        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, written(&pointer).as_str()), "{answer}");
    }
}

#[tokio::test]
async fn a_misspelt_field_of_a_spec_is_refused_and_nothing_is_registered() {
    let world = World::new().await;
    let mut body = whole();
    body["spec"]["control"]["strat_cmd"] = json!("./start.sh");

    for path in ["/processes", "/processes?update=true", "/processes/plan"] {
        let (status, answer) = world.post(path, body.clone()).await;

        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, "spec.control.strat_cmd"), "{path}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("there are: start_cmd, stop_cmd,"), "{message}");
    }
    assert_eq!(world.got("/processes").await["processes"], json!([]));
}

#[tokio::test]
async fn a_list_of_values_is_no_object_anywhere() {
    let world = World::new().await;
    let cases = [
        ("/operations", json!({ "operation": "stop", "all": true, "rolling": [1, 0, 0, false] }), "rolling"),
        ("/apps", json!({ "code": "x", "roles": [["viewer", "everything"]] }), "roles[0]"),
        ("/hosts/import", json!([[0, "10.0.0.1", null]]), "[0]"),
        ("/processes", json!(["meta", "hosts", "spec"]), ""),
        ("/processes", json!({ "meta": ["web", "a"], "hosts": [], "spec": {} }), "meta"),
    ];
    for (path, body, field) in cases {
        let (status, answer) = world.post(path, body.clone()).await;

        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{path} {body}: {answer}");
    }
    let pools = json!({ "all": true, "pools": [["web", "web", 1, 1, "usage", "usage", false]] });
    let (status, answer) = world.put("/pools", pools).await;
    assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, "pools[0]"), "{answer}");
}

#[tokio::test]
async fn a_call_sets_a_bounded_number_of_pools() {
    let world = World::new().await;
    let pool = |number: usize| {
        json!({ "namespace": "web", "id": format!("p{number}"), "cpu": 20.0, "memory": 30.0,
        "cpu_weight": "usage", "memory_weight": "usage" })
    };
    let set = async |count: usize| {
        let pools: Vec<_> = (0..count).map(pool).collect();
        world.put("/pools", json!({ "hosts": ["0:10.0.0.1"], "pools": pools })).await
    };

    let (most, too_many) = (set(1000).await, set(1001).await);

    assert_eq!(most.0, StatusCode::OK, "{}", most.1);
    assert_eq!(too_many.0, StatusCode::BAD_REQUEST);
    assert_eq!(too_many.1["error"]["message"], "pools: more than 1000 pools in one request: split it");
}
