//! Businesses, sets of them, and which hosts belong where.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use proctor_store::conformance::Joining;
use serde_json::{Value, json};

use crate::support::{AGENT, HOST, World, column, credentials, error};

async fn import(world: &World, content_type: &str, body: &str) -> (StatusCode, Value) {
    let request = Request::post("/api/v1/hosts/import")
        .header("X-Bkapi-Authorization", credentials("boss", &world.secret))
        .header("Content-Type", content_type)
        .body(Body::from(body.to_owned()))
        .unwrap();
    world.send(request).await
}

#[tokio::test]
async fn businesses_are_made_renamed_listed_and_removed() {
    let world = World::new().await;

    let (made, business) = world.put("/businesses/3", json!({ "name": "网站" })).await;
    world.put("/businesses/3", json!({ "name": "web" })).await;
    world.put("/businesses/1", json!({ "name": "first" })).await;
    let list = world.got("/businesses").await;
    let (gone, _) = world.delete("/businesses/3").await;
    let (again, _) = world.delete("/businesses/3").await;
    let (bad, answer) = world.put("/businesses/3", json!({ "name": " " })).await;
    let (no_number, _) = world.put("/businesses/three", json!({ "name": "x" })).await;

    assert_eq!((made, business), (StatusCode::OK, json!({ "id": 3, "name": "网站" })));
    assert_eq!(list["businesses"], json!([{ "id": 1, "name": "first" }, { "id": 3, "name": "web" }]));
    let (large, _) = world.put("/businesses/9223372036854775808", json!({ "name": "x" })).await;
    let (token, _) = world.post("/tokens", json!({ "business": 99 })).await;
    let set = json!({ "name": "x", "members": [9_223_372_036_854_775_808_u64] });
    let (member, answer_to_set) = world.put("/business-sets/1", set).await;

    assert_eq!((gone, again), (StatusCode::OK, StatusCode::NOT_FOUND));
    assert_eq!((large, token), (StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND));
    assert_eq!((member, error(&answer_to_set).1), (StatusCode::BAD_REQUEST, "members"));
    assert_eq!((bad, error(&answer).1, no_number), (StatusCode::BAD_REQUEST, "name", StatusCode::BAD_REQUEST));
}

#[tokio::test]
async fn a_set_has_only_businesses_that_are_there() {
    let world = World::new().await;
    world.put("/businesses/3", json!({ "name": "web" })).await;

    let (refused, _) = world.put("/business-sets/1", json!({ "name": "all", "members": [3, 4] })).await;
    let (made, set) = world.put("/business-sets/1", json!({ "name": "all", "members": [3, 3] })).await;
    let list = world.got("/business-sets").await;
    let (gone, _) = world.delete("/business-sets/1").await;

    assert_eq!((refused, made, gone), (StatusCode::NOT_FOUND, StatusCode::OK, StatusCode::OK));
    assert_eq!(set, json!({ "id": 1, "name": "all", "members": [3] }));
    assert_eq!(list["business_sets"], json!([set]));
}

#[tokio::test]
async fn hosts_are_placed_also_before_they_enrol() {
    let world = World::new().await;
    world.put("/businesses/3", json!({ "name": "web" })).await;

    let hosts = json!({ "hosts": ["agent-1", "0:10.0.0.2"], "business": 3 });
    let (status, placed) = world.put("/hosts/placements", hosts).await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    let of_three = world.got("/hosts?business=3").await;
    world.put("/hosts/placements", json!({ "hosts": [HOST], "business": null })).await;
    let after = world.got("/hosts?business=3").await;

    assert_eq!((status, placed), (StatusCode::OK, json!({ "hosts": 2 })));
    assert_eq!(column(&of_three["hosts"], "host"), [HOST, "0:10.0.0.2"]);
    assert_eq!(column(&after["hosts"], "host"), ["0:10.0.0.2"]);
}

#[tokio::test]
async fn a_placement_that_does_not_fit_changes_nothing() {
    let world = World::new().await;
    world.put("/businesses/3", json!({ "name": "web" })).await;

    let (unknown, _) = world.put("/hosts/placements", json!({ "hosts": [HOST], "business": 4 })).await;
    let (stranger, answer) = world.put("/hosts/placements", json!({ "hosts": [HOST, "agent-9"], "business": 3 })).await;
    let (none, _) = world.put("/hosts/placements", json!({ "hosts": [], "business": 3 })).await;
    let (nowhere, left_out) = world.put("/hosts/placements", json!({ "hosts": [HOST] })).await;

    assert_eq!((unknown, none), (StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST));
    assert_eq!((nowhere, error(&left_out).1), (StatusCode::BAD_REQUEST, "business"));
    assert_eq!((stranger, error(&answer).1), (StatusCode::BAD_REQUEST, "hosts[1]"));
    assert_eq!(world.got("/hosts?business=3").await["hosts"], json!([]));
}

#[tokio::test]
async fn an_import_places_everything_or_nothing() {
    let world = World::new().await;

    let lines = "cloud,ip,business,business_name\n0,10.0.0.1,3,网站\n2,10.0.0.9,4,\"db, old\"\n";
    let (status, imported) = import(&world, "text/csv; charset=utf-8", lines).await;
    let bad = "0,10.0.0.1,4,other\n0,10.0.0.300,4,\n";
    let (refused, answer) = import(&world, "text/csv", bad).await;
    let rows = json!([{ "cloud": 0, "ip": "10.0.0.1", "business": 9 }]);
    let (unknown, _) = import(&world, "application/json", &rows.to_string()).await;
    let half =
        json!([{ "ip": "10.0.0.1", "business": 8, "business_name": "new" }, { "ip": "10.0.0.2", "business": 9 }]);
    let (nothing, _) = import(&world, "application/json", &half.to_string()).await;

    assert_eq!((status, imported), (StatusCode::OK, json!({ "hosts": 2, "businesses": 2 })));
    assert_eq!((refused, error(&answer).1), (StatusCode::BAD_REQUEST, "row 2.ip"), "{answer}");
    assert_eq!((unknown, nothing), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    let businesses = world.got("/businesses").await;
    assert_eq!(businesses["businesses"], json!([{ "id": 3, "name": "网站" }, { "id": 4, "name": "db, old" }]));
    assert_eq!(world.got("/hosts").await["hosts"][0]["business"], 3);
}

#[tokio::test]
async fn hosts_come_in_pages_in_their_order() {
    let world = World::new().await;
    for (host, agent) in [("1:10.0.0.1", "agent-4"), ("0:10.0.0.10", "agent-3"), ("0:10.0.0.2", "agent-2")] {
        world.enrol(host, agent).await;
    }

    let first = world.got("/hosts?limit=3").await;
    let rest = world.got(&format!("/hosts?limit=3&after={}", first["next"].as_str().unwrap())).await;
    let cloud = world.got("/hosts?cloud=1").await;
    let online = world.got("/hosts?online=true").await;
    let (bad, answer) = world.get("/hosts?after=nonsense").await;

    assert_eq!(column(&first["hosts"], "host"), ["0:10.0.0.1", "0:10.0.0.10", "0:10.0.0.2"]);
    assert_eq!(column(&rest["hosts"], "host"), ["1:10.0.0.1"]);
    assert_eq!(rest.get("next"), None);
    assert_eq!(column(&cloud["hosts"], "host"), ["1:10.0.0.1"]);
    assert_eq!(online, json!({ "hosts": [] }));
    assert_eq!((bad, error(&answer).1), (StatusCode::BAD_REQUEST, "after"));
}

#[tokio::test]
async fn the_hosts_of_a_business_are_meant_by_its_number() {
    let world = World::new().await;
    world.put("/businesses/3", json!({ "name": "web" })).await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    world.put("/hosts/placements", json!({ "hosts": ["10.0.0.2"], "business": 3 })).await;
    let pool = json!({ "namespace": "web", "id": "web", "cpu": 20, "memory": 30,
                       "cpu_weight": "usage", "memory_weight": "usage" });

    let (_, set) = world.put("/pools", json!({ "business": 3, "pools": [pool] })).await;
    let (none, _) = world.put("/pools", json!({ "business": 4, "pools": [pool] })).await;

    assert_eq!(column(&set["rows"], "host"), ["0:10.0.0.2"]);
    assert_eq!(none, StatusCode::NOT_FOUND);
}

/// The agent enrols for another known host, with a token that names that one.
async fn move_agent(world: &World, agent: &str, host: &str) {
    let joining = Joining { is_named: true, now: 7000, ..Joining::new(host, agent) };
    joining.enrol(&*world.store).await;
}

#[tokio::test]
async fn a_host_whose_agent_has_left_it_is_listed_revoked_and_removed() {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    world.register("a").await;
    move_agent(&world, AGENT, "0:10.0.0.2").await;

    let unserved = world.got("/hosts/unserved").await["hosts"].clone();
    let (revoked, _) = world.delete(&format!("/hosts/{HOST}/certificate")).await;
    let (removed, answer) = world.delete(&format!("/hosts/{HOST}")).await;
    let (again, unknown) = world.delete(&format!("/hosts/{HOST}")).await;

    assert_eq!(column(&unserved, "host"), [HOST]);
    assert_eq!((&unserved[0]["processes"], &unserved[0]["since"]), (&json!(1), &json!(7)));
    assert_eq!((revoked, removed), (StatusCode::OK, StatusCode::OK), "{answer}");
    assert_eq!((again, error(&unknown).0), (StatusCode::NOT_FOUND, "not_found"));
    assert_eq!(world.got("/hosts/unserved").await["hosts"], json!([]));
}
