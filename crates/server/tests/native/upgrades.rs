//! Upgrades of agents: which hosts of one are listed, and how far it is.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::support::{World, column, error, greeting};

const VERSION: &str = "9.0.0";

/// With four hosts that are away, and a build of a newer version.
async fn world() -> World {
    let world = World::new().await;
    for number in 2..=4 {
        world.enrol(&format!("0:10.0.0.{number}"), &format!("agent-{number}")).await;
    }
    world.hold_build(VERSION).await;
    world
}

/// Its path.
async fn begun(world: &World) -> String {
    let body = json!({ "version": VERSION, "all": true, "rings": [1, "100%"] });
    let (status, upgrade) = world.post("/upgrades", body).await;
    assert_eq!(status, StatusCode::CREATED, "{upgrade}");
    format!("/upgrades/{}", upgrade["id"].as_str().unwrap())
}

#[tokio::test]
async fn the_hosts_of_an_upgrade_are_listed_in_pages_with_the_progress_of_every_ring() {
    let world = world().await;
    let path = begun(&world).await;

    let first = world.got(&format!("{path}?limit=3")).await;
    let rest = world.got(&format!("{path}?limit=3&after={}", first["next"])).await;
    let all = world.got(&path).await;
    let done = world.got(&format!("{path}?state=done&limit=3")).await;

    assert_eq!(column(&first["hosts"], "ring"), [&json!(1), &json!(2), &json!(2)]);
    assert_eq!((rest["hosts"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
    assert_eq!(all["hosts"].as_array().unwrap().len(), 4);
    assert_eq!(done["hosts"], json!([]));
    let waiting = |hosts: u32| json!({ "waiting": hosts, "upgrading": 0, "done": 0, "failed": 0, "skipped": 0 });
    for answer in [&first, &rest, &all, &done] {
        assert_eq!(answer["progress"], json!([waiting(1), waiting(3)]));
    }
}

#[tokio::test]
async fn a_plan_tells_who_is_away_up_to_date_too_old_or_of_another_machine() {
    let world = world().await;
    world.enrol("0:10.0.0.5", "agent-5").await;
    world.enrol("0:10.0.0.6", "agent-6").await;
    for (agent, arch, version, takes_upgrades) in [
        ("agent-1", "x86_64", "1.0.0", true),
        ("agent-2", "x86_64", VERSION, true),
        ("agent-3", "riscv64", "1.0.0", true),
        ("agent-4", "x86_64", "10.0.0", true),
        ("agent-5", "x86_64", "1.0.0", false),
    ] {
        let mut greeting = greeting(&agent.parse().unwrap());
        greeting.opening.facts.arch = arch.to_owned();
        greeting.opening.facts.agent_version = version.to_owned();
        greeting.takes_upgrades = takes_upgrades;
        world.control.open_session(greeting).await.unwrap().unwrap();
    }
    let planned = async |allow_downgrade: bool| {
        let body = json!({ "version": VERSION, "all": true, "rings": [], "allow_downgrade": allow_downgrade });
        let (status, plan) = world.post("/upgrades/plan", body).await;
        assert_eq!(status, StatusCode::OK, "{plan}");
        let ring = plan["rings"][0].clone();
        assert_eq!(ring["hosts"].as_array().unwrap().len(), 6);
        ["away", "current", "too_old", "without_build", "newer"].map(|name| ring[name].as_u64().unwrap())
    };

    assert_eq!(planned(false).await, [1, 1, 1, 1, 1]);
    assert_eq!(planned(true).await, [1, 1, 1, 1, 0]);
}

#[tokio::test]
async fn a_page_of_hosts_has_a_bound() {
    let world = world().await;
    let path = begun(&world).await;

    let (status, answer) = world.get(&format!("{path}?limit=1001")).await;

    assert_eq!((status, error(&answer)), (StatusCode::BAD_REQUEST, ("invalid_argument", "limit")));
}

#[tokio::test]
async fn why_an_upgrade_is_over_has_its_entry_of_the_catalogue() {
    let world = world().await;
    let path = begun(&world).await;

    let (_, cancelled) = world.post(&format!("{path}/cancel"), Value::Null).await;

    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(cancelled["reason_id"], "upgrade_cancelled_by");
    let host = &world.got(&path).await["hosts"][0];
    assert_eq!((&host["state"], &host["reason_id"]), (&json!("skipped"), &json!("upgrade_cancelled_by")));
}
