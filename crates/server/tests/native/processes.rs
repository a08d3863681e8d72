//! Lists of processes, and how their specs changed.

use std::sync::Arc;

use axum::http::StatusCode;
use proctor_model::{Phase, ProcessKey, Snapshot, Usage};
use serde_json::{Value, json};

use crate::support::{AGENT, HOST, World, column, error, greeting, registration};

pub(crate) async fn register(world: &World, namespace: &str, name: &str, labels: Value) {
    let mut body = registration(name);
    body["meta"]["namespace"] = json!(namespace);
    body["meta"]["labels"] = labels;
    let (_, answer) = world.post("/processes", body).await;
    assert_eq!(answer["rows"][0]["code"], 0, "{answer}");
}

/// Says what is seen of processes on the host: name, phase and memory.
pub(crate) async fn observe(world: &World, seen: &[(&str, Phase, f64)]) {
    let agent = AGENT.parse().unwrap();
    let session = world.control.open_session(greeting(&agent)).await;
    let session: Arc<_> = session.unwrap().unwrap();
    let snapshot = |phase: Phase, memory: f64| Snapshot {
        phase,
        usage: Usage { memory_percent: memory, memory_bytes: 5, ..Usage::default() },
        ..Snapshot::default()
    };
    let observations = seen.iter().map(|(name, phase, memory)| {
        (ProcessKey::new("web".parse().unwrap(), name.parse().unwrap()), snapshot(*phase, *memory))
    });
    world.control.observed(&session, observations.collect()).await;
}

#[tokio::test]
async fn processes_are_selected_by_their_labels() {
    let world = World::new().await;
    register(&world, "web", "a", json!({ "env": "prod", "tier": "web" })).await;
    register(&world, "web", "b", json!({ "env": "prod", "tier": "db" })).await;
    register(&world, "db", "c", json!({ "env": "test" })).await;

    let found = async |selector: &str| {
        let answer = world.got(&format!("/processes?selector={selector}")).await;
        column(&answer["processes"], "process").into_iter().cloned().collect::<Vec<Value>>()
    };

    assert_eq!(found("env%3Dprod").await, ["web/a", "web/b"]);
    assert_eq!(found("env%3Dprod,tier!%3Ddb").await, ["web/a"]);
    assert_eq!(found("!tier").await, ["db/c"]);
    assert_eq!(found("env,tier").await, ["web/a", "web/b"]);
    let (bad, answer) = world.get("/processes?selector=env%3Dprod,").await;
    assert_eq!((bad, error(&answer).1), (StatusCode::BAD_REQUEST, "selector"));
}

#[tokio::test]
async fn processes_are_narrowed_by_phase_business_and_host_and_paged_in_any_order() {
    let world = World::new().await;
    world.put("/businesses/3", json!({ "name": "web" })).await;
    world.put("/hosts/placements", json!({ "hosts": [HOST], "business": 3 })).await;
    for name in ["a", "b", "c", "d"] {
        world.register(name).await;
    }
    observe(&world, &[("a", Phase::Running, 1.0), ("b", Phase::Failed, 9.0), ("c", Phase::Running, 1.0)]).await;

    let names = |answer: &Value| column(&answer["processes"], "process").into_iter().cloned().collect::<Vec<Value>>();
    let running = world.got("/processes?phase=running,failed").await;
    let unknown = world.got("/processes?phase=unknown&business=3&host=10.0.0.1").await;
    let nobody = world.got("/processes?business=4").await;
    let mut pages = Vec::new();
    for sort in ["name", "memory"] {
        let first = world.got(&format!("/processes?sort={sort}&limit=3")).await;
        let after = first["next"].as_str().unwrap();
        let rest = world.got(&format!("/processes?sort={sort}&limit=3&after={after}")).await;
        assert_eq!(rest.get("next"), None);
        pages.push([names(&first), names(&rest)].concat());
    }

    assert_eq!(
        (names(&running), names(&unknown)),
        (vec![json!("web/a"), json!("web/b"), json!("web/c")], vec![json!("web/d")])
    );
    assert_eq!((names(&nobody).len(), &running["processes"][0]["business"]), (0, &json!(3)));
    assert_eq!(pages[0], ["web/a", "web/b", "web/c", "web/d"]);
    assert_eq!(pages[1], ["web/b", "web/a", "web/c", "web/d"]);
    for (query, field) in
        [("phase=asleep", "phase"), ("sort=age", "sort"), ("limit=1001", "limit"), ("after=x", "after")]
    {
        let (status, answer) = world.get(&format!("/processes?{query}")).await;
        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{answer}");
    }
}

#[tokio::test]
async fn processes_are_searched_ordered_and_counted() {
    let world = World::new().await;
    for name in ["a", "b", "c", "Nginx"] {
        world.register(name).await;
    }
    observe(&world, &[("a", Phase::Running, 1.0), ("b", Phase::Failed, 9.0), ("c", Phase::Running, 4.0)]).await;
    let names = |answer: &Value| column(&answer["processes"], "process").into_iter().cloned().collect::<Vec<Value>>();

    let found = world.got("/processes?q=nGINX&count=true&lifetime=resident&online=true&managed=false").await;
    let ascending = world.got("/processes?sort=memory&order=asc&limit=2").await;
    let after = ascending["next"].as_str().unwrap().to_owned();
    let rest = world.got(&format!("/processes?sort=memory&order=asc&limit=2&after={after}&count=true")).await;
    let other_order = world.get(&format!("/processes?after={after}")).await;
    let by_phase = world.got("/processes?sort=phase&limit=1").await;

    assert_eq!((names(&found), &found["total"]), (vec![json!("web/Nginx")], &json!(1)));
    assert_eq!(names(&ascending), ["web/Nginx", "web/a"]);
    assert_eq!((names(&rest), &rest["total"]), (vec![json!("web/c"), json!("web/b")], &json!(4)));
    assert_eq!((other_order.0, error(&other_order.1).1), (StatusCode::BAD_REQUEST, "after"));
    assert_eq!((names(&by_phase), ascending.get("total")), (vec![json!("web/b")], None));
    let row = &by_phase["processes"][0];
    assert_eq!(
        (&row["cpu_limit"], &row["memory_limit"], &row["memory_bytes"]),
        (&json!(12.5), &json!(30.0), &json!(5))
    );
    assert_eq!((&row["labels"], &row["health"], row.get("spec")), (&json!({ "team": "a" }), &json!(""), None));
    for (query, field) in [("q=", "q"), ("q=%20", "q"), ("order=up", "order"), ("health=ill", "health")] {
        let (status, answer) = world.get(&format!("/processes?{query}")).await;
        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{answer}");
    }
    let long = world.get(&format!("/processes?q={}", "x".repeat(129))).await;
    assert_eq!(error(&long.1).1, "q");
}

#[tokio::test]
async fn one_process_is_narrowed_and_shown_without_its_spec() {
    let world = World::new().await;
    world.register("a").await;
    observe(&world, &[("a", Phase::Running, 1.0)]).await;

    let whole = world.got("/processes/web/a?count=true").await;
    let brief = world.got("/processes/web/a?full=false&phase=running&q=10.0.0").await;
    let none = world.got("/processes/web/a?phase=failed&count=true").await;

    assert_eq!((&whole["total"], whole["processes"][0]["spec"].is_object()), (&json!(1), true));
    assert_eq!((brief["processes"][0].get("spec"), &brief["processes"][0]["phase"]), (None, &json!("running")));
    assert_eq!((&none["processes"], &none["total"]), (&json!([]), &json!(0)));
    assert_eq!(world.get("/processes/web/none").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_history_of_a_spec_tells_what_changed_when() {
    let world = World::new().await;
    world.register("nginx").await;
    let mut changed = registration("nginx");
    changed["spec"]["control"]["start_cmd"] = json!("./other.sh");
    changed["spec"]["resource"]["mem"] = json!(40);
    world.post("/processes?update=true", changed).await;

    let history = world.got("/processes/web/nginx/history?host=10.0.0.1").await;
    let newest = world.got("/processes/web/nginx/diff?host=10.0.0.1").await;
    let [second, first] = &column(&history["revisions"], "generation")[..] else { panic!("{history}") };
    let back = world.got(&format!("/processes/web/nginx/diff?host=10.0.0.1&from={second}&to={first}")).await;
    let begin = world.got(&format!("/processes/web/nginx/diff?host=10.0.0.1&to={first}")).await;
    let (bad, answer) = world.get("/processes/web/nginx/diff?host=10.0.0.1&from=999").await;
    let (missing, no_host) = world.get("/processes/web/nginx/diff").await;

    assert_eq!(history["revisions"][1]["spec"]["control"]["start"], "./start.sh");
    assert_eq!((&newest["from"], &newest["to"]), (*first, *second));
    assert_eq!(
        newest["changes"],
        json!([
            { "path": "control.start", "from": "./start.sh", "to": "./other.sh" },
            { "path": "limits.memory", "from": 30.0, "to": 40.0 },
        ])
    );
    assert_eq!(back["changes"][0]["to"], "./start.sh");
    assert_eq!((begin.get("from"), begin["changes"][0]["from"].is_null()), (None, true));
    assert_eq!((bad, error(&answer).1), (StatusCode::BAD_REQUEST, "from"));
    assert_eq!((missing, error(&no_host).1), (StatusCode::BAD_REQUEST, "host"));
    assert_eq!(world.get("/processes/web/none/history?host=10.0.0.1").await.0, StatusCode::NOT_FOUND);
    assert_eq!(world.get("/processes/web/nginx/history?host=10.0.0.9").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn pools_show_what_their_members_use() {
    let world = World::new().await;
    register(&world, "web", "a", json!({ "process_group": "front" })).await;
    register(&world, "web", "b", json!({})).await;
    observe(&world, &[("a", Phase::Running, 2.0), ("b", Phase::Running, 3.0)]).await;
    let pool = |id: &str| {
        json!({ "namespace": "web", "id": id, "cpu": 20, "memory": 30,
                                  "cpu_weight": "usage", "memory_weight": "usage" })
    };
    world.put("/pools", json!({ "all": true, "pools": [pool("web"), pool("front")] })).await;

    let pools = world.got("/pools?usage=true").await;

    let of = |id: &str| {
        let pool = pools["pools"].as_array().unwrap().iter().find(|pool| pool["id"] == id).unwrap();
        (pool["usage"]["memory_percent"].as_f64().unwrap(), pool["usage"]["members"].as_array().unwrap().len())
    };
    assert_eq!((of("web"), of("front")), ((5.0, 2), (2.0, 1)));
}

#[tokio::test]
async fn pools_come_page_by_page_each_with_its_own_members() {
    let world = World::new().await;
    register(&world, "web", "a", json!({ "process_group": "front" })).await;
    register(&world, "web", "b", json!({})).await;
    observe(&world, &[("a", Phase::Running, 2.0), ("b", Phase::Running, 3.0)]).await;
    let pool = |namespace: &str, id: &str| {
        json!({ "namespace": namespace, "id": id, "cpu": 20, "memory": 30,
                "cpu_weight": "usage", "memory_weight": "usage" })
    };
    let pools = [pool("db", "db"), pool("web", "front"), pool("web", "web")];
    world.put("/pools", json!({ "all": true, "pools": pools })).await;

    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let page = world.got(&format!("/pools?usage=true&limit=1{after}")).await;
        for pool in page["pools"].as_array().unwrap() {
            found.push((pool["id"].as_str().unwrap().to_owned(), pool["usage"]["members"].as_array().unwrap().len()));
        }
        assert_eq!(page["pools"].as_array().unwrap().len(), 1);
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }

    let of = |id: &str, members| (id.to_owned(), members);
    assert_eq!(found, [of("db", 0), of("front", 1), of("web", 2)]);
    for refused in ["after=nonsense", "limit=0"] {
        assert_eq!(world.get(&format!("/pools?{refused}")).await.0, StatusCode::BAD_REQUEST, "{refused}");
    }
}

#[tokio::test]
async fn a_page_of_pools_with_usage_ends_after_fifty_namespaces() {
    let world = World::new().await;
    let pool = |namespace: String| {
        json!({ "namespace": namespace, "id": namespace, "cpu": 20, "memory": 30,
                "cpu_weight": "usage", "memory_weight": "usage" })
    };
    let pools: Vec<_> = (10..70).map(|number| pool(format!("ns{number}"))).collect();
    world.put("/pools", json!({ "all": true, "pools": pools })).await;
    let count = |page: &Value| page["pools"].as_array().unwrap().len();

    let bare = world.got("/pools?limit=1000").await;
    let first = world.got("/pools?usage=true&limit=1000").await;
    let next = first["next"].as_str().unwrap();
    let second = world.got(&format!("/pools?usage=true&limit=1000&after={next}")).await;

    let hosts = count(&bare) / pools.len();
    assert_eq!((count(&first), count(&second)), (50 * hosts, 10 * hosts));
    assert!(second["next"].is_null(), "{second}");
}
