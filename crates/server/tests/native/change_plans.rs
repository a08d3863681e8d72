//! Plans: what setting and deleting pools and unregistering processes would do.

use axum::http::{Method, StatusCode};
use proctor_model::Phase;
use serde_json::{Value, json};

use crate::processes::{observe, register};
use crate::support::{HOST, World, error};

/// Never enrolled.
const STRANGER: &str = "0:10.9.9.9";

fn pool(id: &str, memory: f64) -> Value {
    json!({ "namespace": "web", "id": id, "cpu": 20.0, "memory": memory,
            "cpu_weight": "usage", "memory_weight": "usage", "dry_run": false })
}

async fn plan_of_pools(world: &World, hosts: Value, pools: Value) -> Value {
    let (status, answer) = world.post("/pools/plan", json!({ "hosts": hosts, "pools": pools })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer["pools"].clone()
}

#[tokio::test]
async fn a_plan_of_an_unregistration_says_what_becomes_of_each_host_and_changes_nothing() {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    register(&world, "web", "a", json!({})).await;
    observe(&world, &[("a", Phase::Running, 1.0)]).await;
    let body = json!({ "hosts": [HOST, "0:10.0.0.2", STRANGER] });

    let (status, plan) = world.post("/processes/web/a/unregister/plan", body.clone()).await;

    assert_eq!((status, &plan["process"]), (StatusCode::OK, &json!("web/a")), "{plan}");
    assert_eq!(plan["hosts"][0], json!({ "host": HOST, "phase": "running", "online": true }));
    assert_eq!(plan["hosts"][1]["refused"]["code"], 829, "{plan}");
    assert_eq!(plan["hosts"][2]["refused"]["code"], 117, "{plan}");
    assert_eq!(world.got("/processes").await["processes"].as_array().unwrap().len(), 1);
    assert_eq!(world.got("/audit?action=unregister").await["entries"], json!([]));
    let (_, done) = world.call(Method::DELETE, "/processes/web/a", body).await;
    for (row, planned) in done["rows"].as_array().unwrap().iter().zip(plan["hosts"].as_array().unwrap()) {
        let refused = planned["refused"]["code"].as_u64().unwrap_or_default();
        assert_eq!(row["code"], json!(refused), "{row} {planned}");
    }
}

#[tokio::test]
async fn a_plan_of_pools_compares_new_limits_with_old_ones_and_with_what_members_use() {
    let world = World::new().await;
    register(&world, "web", "a", json!({ "process_group": "front" })).await;
    register(&world, "web", "b", json!({ "process_group": "web" })).await;
    register(&world, "db", "c", json!({})).await;
    observe(&world, &[("a", Phase::Running, 30.0), ("b", Phase::Running, 12.5)]).await;
    world.put("/pools", json!({ "hosts": [HOST], "pools": [pool("web", 50.0)] })).await;

    let rows = plan_of_pools(&world, json!([HOST]), json!([pool("web", 40.0), pool("front", 25.0)])).await;
    let same = plan_of_pools(&world, json!([HOST]), json!([pool("web", 50.0)])).await;

    assert_eq!((&rows[0]["set"], &rows[0]["online"]), (&json!(true), &json!(true)), "{rows}");
    assert_eq!(rows[0]["changes"], json!([{ "path": "memory", "from": 50.0, "to": 40.0 }]));
    assert_eq!(rows[0]["usage"], json!({ "members": 2, "cpu_percent": 0.0, "memory_percent": 42.5 }));
    assert_eq!((&rows[1]["set"], &rows[1]["usage"]["members"]), (&json!(false), &json!(1)), "{rows}");
    assert_eq!(rows[1]["usage"]["memory_percent"], 30.0);
    assert_eq!((&same[0]["changes"], &same[0]["refused"]), (&json!([]), &Value::Null));
    assert_eq!(world.got("/pools").await["pools"].as_array().unwrap().len(), 1, "a plan sets nothing");
}

#[tokio::test]
async fn a_plan_of_a_deletion_names_the_hosts_without_the_pool() {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    world.put("/pools", json!({ "hosts": [HOST], "pools": [pool("web", 50.0)] })).await;
    let body = json!({ "hosts": [HOST, "0:10.0.0.2", STRANGER] });

    let (status, plan) = world.post("/pools/web/web/delete/plan", body.clone()).await;

    assert_eq!(status, StatusCode::OK, "{plan}");
    assert_eq!((&plan["pools"][0]["set"], &plan["pools"][0]["refused"]), (&json!(true), &Value::Null), "{plan}");
    let codes = |rows: &Value, of: fn(&Value) -> &Value| -> Vec<u64> {
        rows.as_array().unwrap().iter().map(|row| of(row).as_u64().unwrap_or_default()).collect()
    };
    let (_, done) = world.call(Method::DELETE, "/pools/web/web", body).await;
    assert_eq!(codes(&plan["pools"], |row| &row["refused"]["code"]), codes(&done["rows"], |row| &row["code"]));
    let (missing, answer) = world.post("/pools/web/web/delete/plan", json!({ "all": true })).await;
    assert_eq!(missing, StatusCode::NOT_FOUND, "{answer}");
}

#[tokio::test]
async fn a_plan_of_more_rows_than_an_answer_holds_is_refused() {
    let world = World::new().await;
    for number in 2..=101 {
        world.enrol(&format!("0:10.0.1.{number}"), &format!("agent-{number}")).await;
    }
    let pools: Vec<Value> = (0..1000).map(|number| pool(&format!("p{number}"), 1.0)).collect();

    let (status, answer) = world.post("/pools/plan", json!({ "all": true, "pools": pools })).await;

    assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, "pools"), "{answer}");
}
