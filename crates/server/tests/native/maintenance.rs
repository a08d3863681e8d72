//! Cordoned hosts, and hosts that await approval.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use proctor_model::HostFacts;
use proctor_store::conformance::Joining;
use proctor_store::{SessionOpening, SessionRefusal};
use serde_json::{Value, json};

use crate::support::{AGENT, HOST, World, column, error, greeting};

const CORDONED: u32 = 128;
/// Handed to the agent, which does not answer here.
const PENDING: u32 = 115;

async fn targets(world: &World, operation: &str) -> Value {
    let (status, accepted) =
        world.post("/operations", json!({ "operation": operation, "process": "web/a", "all": true })).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{accepted}");
    let path = format!("/tasks/{}/targets", accepted["task_id"].as_str().unwrap());
    world.got(&path).await["targets"].clone()
}

/// With web/a registered on two hosts.
async fn world() -> World {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    let mut body = crate::support::registration("a");
    body["hosts"] = json!([{ "ip": "10.0.0.1", "bk_cloud_id": 0 }, { "ip": "10.0.0.2", "bk_cloud_id": 0 }]);
    let (status, answer) = world.post("/processes", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    world
}

#[tokio::test]
async fn a_cordoned_host_refuses_starts_with_its_reason_and_takes_the_rest() {
    let world = world().await;
    // Their targets stay open: those of an agent that is away end with a code of their own after a while.
    for agent in [AGENT, "agent-2"] {
        world.control.open_session(greeting(&agent.parse().unwrap())).await.unwrap().unwrap();
    }

    let (status, cordon) = world.put("/hosts/10.0.0.1/cordon", json!({ "reason": "new disk", "ttl_secs": 600 })).await;

    assert_eq!((status, &cordon["reason"]), (StatusCode::OK, &json!("new disk")), "{cordon}");
    assert_eq!(world.got("/hosts/10.0.0.1").await["cordon"], cordon);
    for (operation, refused) in
        [("start", true), ("restart", true), ("manage", true), ("stop", false), ("reload", false), ("release", false)]
    {
        let rows = targets(&world, operation).await;
        assert_eq!(rows[0]["host"], HOST);
        let expected = [if refused { CORDONED } else { PENDING }, PENDING];
        assert_eq!(column(&rows, "code"), expected.map(Value::from).each_ref(), "{operation}: {rows}");
        if refused {
            let message = rows[0]["message"].as_str().unwrap();
            assert!(message.contains("is cordoned by app boss for user admin until 20"), "{message}");
            assert!(message.ends_with(": new disk"), "{message}");
        }
    }
    assert_eq!(world.delete("/hosts/10.0.0.1/cordon").await.0, StatusCode::OK);
    let rows = targets(&world, "start").await;
    assert_eq!(column(&rows, "code"), [PENDING, PENDING].map(Value::from).each_ref(), "{rows}");
    assert_eq!(world.delete("/hosts/10.0.0.1/cordon").await.0, StatusCode::NOT_FOUND);
    assert!(world.got("/hosts/10.0.0.1").await.get("cordon").is_none());
}

#[tokio::test]
async fn a_start_with_a_spec_registers_nothing_on_a_cordoned_host() {
    let world = World::new().await;
    world.put("/hosts/10.0.0.1/cordon", json!({ "reason": "new disk" })).await;

    let mut body = crate::support::registration("b");
    body["op_type"] = json!(0);
    let (_, planned) = world.post("/processes/plan", crate::support::registration("b")).await;
    let request = Request::post("/api/c/compapi/v2/gse/operate_proc/")
        .header("X-Bkapi-Authorization", crate::support::credentials("boss", &world.secret))
        .body(Body::from(body.to_string()))
        .unwrap();
    let (status, answer) = world.send(request).await;

    assert_eq!((status, &answer["code"]), (StatusCode::OK, &json!(0)), "{answer} {planned}");
    let (missing, _) = world.get("/processes/web/b").await;
    assert_eq!(missing, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_bad_cordon_names_its_field_and_changes_nothing() {
    let world = World::new().await;
    for (body, field) in [
        (json!({}), "reason"),
        (json!({ "reason": " " }), "reason"),
        (json!({ "reason": "x\ny" }), "reason"),
        (json!({ "reason": "x", "until": 1 }), "until"),
        (json!({ "reason": "x", "ttl_secs": 0 }), "ttl_secs"),
        (json!({ "reason": "x", "for": "1h" }), "for"),
    ] {
        let (status, answer) = world.put("/hosts/10.0.0.1/cordon", body).await;
        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{answer}");
    }

    assert_eq!(world.put("/hosts/10.9.9.9/cordon", json!({ "reason": "x" })).await.0, StatusCode::NOT_FOUND);
    assert!(world.got("/hosts/10.0.0.1").await.get("cordon").is_none());
}

#[tokio::test]
async fn a_cordon_takes_the_right_to_operate_the_whole_host() {
    let world = World::new().await;
    world.enrol("7:10.0.0.1", "agent-7").await;
    world.post("/users", json!({ "name": "ops" })).await;
    let (_, token) = world.post("/users/ops/tokens", json!({ "note": "x" })).await;
    let token = token["token"].as_str().unwrap_or_else(|| panic!("{token}"));
    for (role, scope) in [("operator", "cloud:7"), ("operator", "namespace:web"), ("viewer", "everything")] {
        world.post("/bindings", json!({ "role": role, "subject": "user:ops", "scope": scope })).await;
    }
    let cordon = async |host: &str| {
        let request =
            Request::put(format!("/api/v1/hosts/{host}/cordon")).header("Authorization", format!("Bearer {token}"));
        world.send(request.body(Body::from(r#"{"reason": "x"}"#)).unwrap()).await.0
    };

    assert_eq!(cordon("7:10.0.0.1").await, StatusCode::OK);
    assert_eq!(cordon("0:10.0.0.1").await, StatusCode::FORBIDDEN, "a namespace is no host");
    let audit = world.got("/audit?action=cordon_host").await;
    let phases = column(&audit["entries"], "phase");
    assert_eq!(phases, ["begun", "ended", "refused"], "{audit}");
}

#[tokio::test]
async fn a_host_that_awaits_approval_gets_no_work_until_an_administrator_lets_it_in() {
    let world = World::new().await;
    let joining =
        Joining { key_fingerprint: "key".to_owned(), needs_approval: true, ..Joining::new("0:10.0.0.9", "agent-new") };
    let agent = joining.agent.clone();
    joining.enrol(&*world.store).await;
    let facts = HostFacts { hostname: "new".to_owned(), ..HostFacts::default() };
    let opening = SessionOpening { facts, ..SessionOpening::new(agent, "key") };
    let refused = world.store.open_session(&opening, 2).await.unwrap();
    assert!(matches!(refused, Err(SessionRefusal::AwaitsApproval { .. })), "{refused:?}");

    let waiting = world.got("/hosts/10.0.0.9").await;
    let (overview, listed) = (world.got("/overview").await, world.got("/hosts?state=awaits_approval").await);
    let (_, accepted) =
        world.post("/operations", json!({ "operation": "status", "process": "web/a", "hosts": ["10.0.0.9"] })).await;
    let rows = world.got(&format!("/tasks/{}/targets", accepted["task_id"].as_str().unwrap())).await;
    let (other, refused) = world.post("/hosts/10.0.0.9/approve", json!({ "key": "AB:CD" })).await;
    let still = world.got("/hosts/10.0.0.9").await;
    let (status, approved) = world.post("/hosts/10.0.0.9/approve", json!({ "key": "K:ey" })).await;

    assert_eq!(other, StatusCode::CONFLICT, "{refused}");
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("enrolled with key key, not with abcd"),
        "{refused}"
    );
    assert_eq!(still["awaits_approval"], true);

    assert_eq!((&waiting["awaits_approval"], &waiting["facts"]["hostname"]), (&json!(true), &json!("new")));
    assert_eq!(waiting["key_fingerprint"], "key");
    assert_eq!((&overview["hosts"]["awaits_approval"], column(&listed["hosts"], "host").len()), (&json!(1), 1));
    let notice = overview["attention"].as_array().unwrap().iter().find(|line| line["kind"] == "awaits_approval");
    assert_eq!(notice.map(|line| (&line["host"], &line["severity"])), Some((&json!("0:10.0.0.9"), &json!("notice"))));
    assert_eq!(rows["targets"][0]["code"], 117);
    assert!(rows["targets"][0]["message"].as_str().unwrap().contains("awaits approval"), "{rows}");
    assert_eq!(status, StatusCode::OK, "{approved}");
    assert!(approved.get("awaits_approval").is_none(), "{approved}");
    assert!(world.store.open_session(&opening, 3).await.unwrap().is_ok());
    assert_eq!(world.post("/hosts/10.9.9.9/approve", json!({})).await.0, StatusCode::NOT_FOUND);
    let (again, refused) = world.post("/hosts/10.0.0.9/approve", json!({})).await;
    assert_eq!(again, StatusCode::CONFLICT, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("is not waiting for approval"), "{refused}");
}
