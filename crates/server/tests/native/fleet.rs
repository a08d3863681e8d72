//! Totals and searches over the whole fleet: what they count, and that nobody sees more than they may read.
//!
//! The fleet may be some time old: each test makes all its changes before its first query.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_model::{EVICTED_REASON, Phase, ProcessKey, Snapshot, Usage, messages};
use serde_json::{Value, json};

use crate::processes::register;
use crate::support::{AGENT, HOST, World, column, error, greeting, registration};

const OTHER: &str = "5:10.0.0.9";

/// `web/a` and `web/b` on host 1, which is of business 3 and connected; `web/a` and `db/c` on another, of cloud area 5
/// and away.
async fn world() -> World {
    let world = World::new().await;
    world.enrol(OTHER, "agent-9").await;
    world.put("/businesses/3", json!({ "name": "web" })).await;
    world.put("/hosts/placements", json!({ "hosts": [HOST], "business": 3 })).await;
    register(&world, "web", "a", json!({ "env": "prod", "tier": "1" })).await;
    register(&world, "web", "b", json!({ "env": "prod" })).await;
    for (namespace, name) in [("web", "a"), ("db", "c")] {
        let mut body = registration(name);
        body["meta"]["namespace"] = json!(namespace);
        body["meta"]["labels"] = json!({ "env": "prod", "tier": "2" });
        body["hosts"] = json!([{ "ip": "10.0.0.9", "bk_cloud_id": 5 }]);
        let (_, answer) = world.post("/processes", body).await;
        assert_eq!(answer["rows"][0]["code"], 0, "{answer}");
    }
    world
}

async fn observe(world: &World, seen: &[(&str, Snapshot)]) {
    let session = world.control.open_session(greeting(&AGENT.parse().unwrap())).await.unwrap().unwrap();
    let observations =
        seen.iter().map(|(process, snapshot)| (process.parse::<ProcessKey>().unwrap(), snapshot.clone()));
    world.control.observed(&session, observations.collect()).await;
}

fn seen(phase: Phase) -> Snapshot {
    Snapshot { phase, managed: true, reported_at: 1000, ..Snapshot::default() }
}

/// An app that may read there and nowhere else.
async fn reader(world: &World, code: &str, scopes: &[&str]) -> String {
    let (_, app) = world.post("/apps", json!({ "code": code, "trusted": true })).await;
    for binding in world.got("/bindings").await["bindings"].as_array().unwrap() {
        if binding["subject"] == format!("app:{code}") {
            world.delete(&format!("/bindings/{}", binding["id"].as_str().unwrap())).await;
        }
    }
    for scope in scopes {
        let binding = json!({ "role": "viewer", "subject": format!("app:{code}"), "scope": scope });
        assert_eq!(world.post("/bindings", binding).await.0, StatusCode::CREATED);
    }
    app["secret"].as_str().unwrap().to_owned()
}

async fn got_as(world: &World, app: &str, secret: &str, path: &str) -> (StatusCode, Value) {
    world.call_as(app, secret, Method::GET, path, Value::Null).await
}

#[tokio::test]
async fn the_overview_counts_and_ranks_what_needs_attention() {
    let world = world().await;
    let looping = Snapshot { restarts: 3, health: "unhealthy".to_owned(), ..seen(Phase::Running) };
    let evicted = Snapshot { reason: format!("{EVICTED_REASON}memory: 9 %"), ..seen(Phase::Waiting) };
    observe(&world, &[("web/a", looping), ("web/b", evicted)]).await;

    let overview = world.got("/overview").await;

    let hosts = json!({ "total": 2, "online": 1, "away": 1, "revoked": 0, "unreachable": 0, "cordoned": 0,
                        "awaits_approval": 0 });
    assert_eq!(overview["hosts"], hosts);
    assert_eq!(
        (column(&overview["clouds"], "cloud"), &overview["clouds_total"]),
        (vec![&json!(0), &json!(5)], &json!(2))
    );
    assert_eq!(column(&overview["clouds"], "away"), [0, 1]);
    let processes = &overview["processes"];
    assert_eq!(
        (&processes["total"], &processes["phases"]["running"], &processes["phases"]["unknown"]),
        (&json!(4), &json!(1), &json!(2))
    );
    assert_eq!(
        (&processes["unhealthy"], &processes["crash_looping"], &processes["evicted"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(overview["tasks"], json!({ "running": 0, "paused": 0 }));
    let lines = &overview["attention"];
    assert_eq!(column(lines, "kind"), ["crash_looping", "evicted", "unhealthy", "host_away"]);
    assert_eq!(column(lines, "severity"), ["critical", "warning", "warning", "warning"]);
    let first = &lines[0];
    assert_eq!((&first["process"], &first["host"], &first["since"]), (&json!("web/a"), &json!(HOST), &json!(1000)));
    assert_eq!(
        (&lines[1]["reason"], &lines[3]["hosts"]),
        (&json!("ended for its use of memory: 9 %"), &json!([OTHER]))
    );
    assert_eq!(overview["attention_total"], 4);
    assert_eq!(overview["agent_versions"], json!([{ "version": "", "hosts": 2 }]));
}

/// What the overview counts in this state, and what the list has.
async fn in_state(world: &World, state: &str) -> (u64, Vec<String>) {
    let counted = world.got("/overview").await["hosts"][state].as_u64().unwrap();
    let listed = world.got(&format!("/hosts?state={state}")).await["hosts"].clone();
    (counted, column(&listed, "host").into_iter().map(|host| host.as_str().unwrap().to_owned()).collect())
}

#[tokio::test]
async fn hosts_in_maintenance_raise_no_alarm_and_are_counted_apart() {
    let world = world().await;
    observe(&world, &[("web/a", seen(Phase::Failed)), ("web/b", Snapshot { restarts: 3, ..seen(Phase::Running) })])
        .await;
    for host in [HOST, OTHER] {
        world.put(&format!("/hosts/{host}/cordon"), json!({ "reason": "new disk" })).await;
    }

    let (overview, map) = (world.got("/overview").await, world.got("/overview/map").await);

    assert_eq!(overview["attention"], json!([]), "{overview}");
    let processes = &overview["processes"];
    assert_eq!((&processes["total"], &processes["cordoned"]), (&json!(4), &json!(4)));
    assert_eq!((&processes["phases"]["failed"], &processes["crash_looping"]), (&json!(0), &json!(0)));
    assert_eq!(map["worst"], json!(["cordoned", "cordoned"]));
    assert_eq!(in_state(&world, "cordoned").await, (2, vec![HOST.to_owned(), OTHER.to_owned()]));
    assert_eq!((in_state(&world, "away").await, in_state(&world, "online").await), ((0, vec![]), (0, vec![])));
    let failed = async |query: &str| world.got(&format!("/processes?phase=failed{query}")).await["processes"].clone();
    assert_eq!(failed("&cordoned=false").await, json!([]));
    assert_eq!(column(&failed("&cordoned=true").await, "host"), [HOST]);
}

#[tokio::test]
async fn hosts_are_listed_by_state_as_they_are_counted() {
    let world = world().await;
    world.enrol("5:10.0.0.10", "agent-10").await;
    world.enrol("5:10.0.0.11", "agent-11").await;
    observe(&world, &[]).await;
    assert_eq!(world.delete("/hosts/5:10.0.0.10/certificate").await.0, StatusCode::OK);

    assert_eq!(in_state(&world, "online").await, (1, vec![HOST.to_owned()]));
    assert_eq!(in_state(&world, "away").await, (2, vec!["5:10.0.0.11".to_owned(), OTHER.to_owned()]));
    assert_eq!(in_state(&world, "revoked").await, (1, vec!["5:10.0.0.10".to_owned()]));
    assert_eq!((in_state(&world, "unreachable").await.0, in_state(&world, "awaits_approval").await.0), (0, 0));
    let first = world.got("/hosts?state=away&limit=1").await;
    let next = first["next"].as_str().unwrap();
    let rest = world.got(&format!("/hosts?state=away&limit=1&after={next}")).await;
    assert_eq!(column(&first["hosts"], "host"), ["5:10.0.0.11"]);
    assert_eq!(column(&rest["hosts"], "host"), [OTHER]);
    assert!(rest.get("next").is_none(), "{rest}");
    let narrowed = world.got("/hosts?state=away&q=AGENT-9&cloud=5").await;
    assert_eq!(column(&narrowed["hosts"], "host"), [OTHER]);
    let (status, answer) = world.get("/hosts?state=away&token=x").await;
    assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, "token"));
    let biz = reader(&world, "biz", &["business:3"]).await;
    assert_eq!(got_as(&world, "biz", &biz, "/hosts?state=away").await.1["hosts"], json!([]));
}

#[tokio::test]
async fn hosts_with_trouble_are_listed_by_its_kind() {
    let world = world().await;
    let mut late = greeting(&AGENT.parse().unwrap());
    late.opening.facts.agent_version = "0.0.1".to_owned();
    world.control.open_session(late).await.unwrap().unwrap();

    let overview = world.got("/overview").await;
    let listed = world.got("/hosts?trouble=agent_outdated").await;

    let line = overview["attention"].as_array().unwrap().iter().find(|line| line["kind"] == "agent_outdated").unwrap();
    assert_eq!((&line["count"], &line["reason_id"]), (&json!(1), &json!("agent_version_differs")));
    assert_eq!(column(&listed["hosts"], "host"), [HOST]);
    assert_eq!(world.got("/hosts?trouble=clock_off").await["hosts"], json!([]));
}

#[tokio::test]
async fn the_overview_says_why_in_the_language_that_was_asked_for() {
    let world = world().await;
    let mut evicted = seen(Phase::Waiting);
    evicted.set_reason(messages::ended_over_limit("memory", "31.2", "25.0"));
    observe(&world, &[("web/a", evicted)]).await;
    let request = Request::get("/api/v1/overview")
        .header("X-Bkapi-Authorization", crate::support::credentials("boss", &world.secret))
        .header("Accept-Language", "zh-CN");

    let (_, overview) = world.send(request.body(Body::empty()).unwrap()).await;

    let lines = &overview["attention"];
    assert_eq!(column(lines, "reason_id"), ["ended_over_limit", "host_agent_away"]);
    assert_eq!(lines[0]["reason_args"]["usage"], "31.2");
    assert_eq!(column(lines, "reason"), ["因 memory 用量而被结束：31.2 %，限额 25.0 %", "Agent 未连接"]);
}

#[tokio::test]
async fn hosts_behind_lost_relays_are_unreachable_and_not_away() {
    let world = world().await;
    let mut through_relay = greeting(&AGENT.parse().unwrap());
    through_relay.opening.relay_cloud = Some(0);
    let session = world.control.open_session(through_relay).await.unwrap().unwrap();
    world.control.close_session(&session).await;

    let (overview, map) = (world.got("/overview").await, world.got("/overview/map").await);

    let hosts = &overview["hosts"];
    assert_eq!((&hosts["away"], &hosts["unreachable"]), (&json!(1), &json!(1)), "{hosts}");
    let lines = &overview["attention"];
    assert_eq!(column(lines, "kind"), ["host_unreachable", "host_away"]);
    assert_eq!((&lines[0]["severity"], &lines[0]["host"]), (&json!("critical"), &json!(HOST)));
    assert_eq!(map["worst"], json!(["unreachable", "away"]));
}

#[tokio::test]
async fn a_roll_out_that_fails_on_many_hosts_is_one_line() {
    let world = World::new().await;
    for number in 2..9 {
        world.enrol(&format!("0:10.0.0.{number}"), &format!("agent-{number}")).await;
    }
    let mut body = registration("a");
    body["hosts"] = (1..9).map(|last| json!({ "ip": format!("10.0.0.{last}"), "bk_cloud_id": 0 })).collect();
    world.post("/processes", body).await;
    for number in 1..9 {
        let agent = format!("agent-{number}").parse().unwrap();
        let session = world.control.open_session(greeting(&agent)).await.unwrap().unwrap();
        let failed = Snapshot { reason: "exit code 1".to_owned(), reported_at: 50 + number, ..seen(Phase::Failed) };
        world.control.observed(&session, vec![("web/a".parse().unwrap(), failed)]).await;
    }

    let overview = world.got("/overview").await;

    assert_eq!(overview["attention"].as_array().unwrap().len(), 1, "{overview}");
    let line = &overview["attention"][0];
    assert_eq!((&line["kind"], &line["count"], &line["since"]), (&json!("failed"), &json!(8), &json!(51)));
    assert_eq!((line["hosts"].as_array().unwrap().len(), &line["host"]), (5, &Value::Null));
    assert_eq!(line["reason"], "exit code 1");
}

#[tokio::test]
async fn the_map_has_the_worst_of_each_host() {
    let world = world().await;
    observe(&world, &[("web/a", seen(Phase::Running)), ("web/b", seen(Phase::Stopped))]).await;

    let map = world.got("/overview/map").await;

    assert_eq!(map["hosts"], json!([HOST, OTHER]));
    assert_eq!((&map["business"], &map["worst"]), (&json!([3, null]), &json!(["stopped", "away"])));
}

#[tokio::test]
async fn groups_sum_over_hosts_and_are_sorted_and_paged() {
    let world = world().await;
    let usage = Usage { cpu_percent: 2.5, ..Usage::default() };
    observe(&world, &[("web/a", Snapshot { restarts: 2, usage, ..seen(Phase::Failed) })]).await;

    let page = world.got("/processes/groups?sort=total&limit=1").await;
    let after = page["next"].as_str().unwrap();
    let rest = world.got(&format!("/processes/groups?sort=total&limit=2&after={after}")).await;
    let prod = world.got("/processes/groups?selector=tier%3D2&q=10.0.0.9&phase=unknown&cloud=5").await;

    let group = &page["groups"][0];
    assert_eq!((&group["process"], &group["total"], &group["online"]), (&json!("web/a"), &json!(2), &json!(1)));
    assert_eq!((&group["phases"]["failed"], &group["phases"]["unknown"]), (&json!(1), &json!(1)));
    assert_eq!((&group["specs"], &group["restarts"], &group["cpu_percent_max"]), (&json!(2), &json!(2), &json!(2.5)));
    assert_eq!((&group["labels"], &group["lifetime"]), (&json!({ "env": "prod" }), &json!("resident")));
    assert_eq!((&page["total"], &group["phase_since_max"]), (&json!(3), &json!(1000)));
    assert_eq!((column(&rest["groups"], "process"), rest.get("next")), (vec![&json!("db/c"), &json!("web/b")], None));
    assert_eq!(column(&prod["groups"], "process"), ["db/c", "web/a"]);
    let (status, answer) = world.get("/processes/groups?after=x").await;
    assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, "after"));
}

#[tokio::test]
async fn facets_count_the_values_of_what_matches() {
    let world = world().await;
    observe(&world, &[("web/a", seen(Phase::Running))]).await;

    let facets = world.got("/processes/facets?q=web").await;

    let count = |value: &str, count: u64| json!({ "value": value, "count": count });
    assert_eq!((&facets["total"], &facets["namespaces"]), (&json!(3), &json!([count("web", 3)])));
    assert_eq!(facets["phases"], json!([count("unknown", 2), count("running", 1)]));
    assert_eq!(
        (&facets["businesses"], &facets["lifetimes"]),
        (&json!([count("3", 2)]), &json!([count("resident", 3)]))
    );
    assert_eq!(facets["labels"][0], json!({ "key": "env", "values": [count("prod", 3)] }));
    assert_eq!(facets["labels"][1], json!({ "key": "tier", "values": [count("1", 1), count("2", 1)] }));
}

#[tokio::test]
async fn facets_show_what_each_filter_could_be_set_to() {
    let world = world().await;
    observe(&world, &[("web/a", seen(Phase::Running))]).await;
    let filter = "namespace=web&phase=running&business=3&selector=tier%3D1";

    let narrow = world.got(&format!("/processes/facets?{filter}")).await;
    let each = world.got(&format!("/processes/facets?{filter}&each_without=true")).await;

    let count = |value: &str, count: u64| json!({ "value": value, "count": count });
    assert_eq!((&narrow["total"], &each["total"]), (&json!(1), &json!(1)));
    assert_eq!(narrow["phases"], json!([count("running", 1)]));
    let mut expected = narrow.clone();
    expected["at_ms"] = each["at_ms"].clone();
    for (kind, list) in
        [("namespace", "namespaces"), ("phase", "phases"), ("business", "businesses"), ("selector", "labels")]
    {
        expected[list] = facets_without(&world, filter, kind).await[list].clone();
    }
    assert_eq!(each, expected);
}

/// The facets with all filters but one.
async fn facets_without(world: &World, filter: &str, without: &str) -> Value {
    let rest: Vec<&str> = filter.split('&').filter(|part| !part.starts_with(without)).collect();
    world.got(&format!("/processes/facets?{}", rest.join("&"))).await
}

#[tokio::test]
async fn a_search_finds_names_hosts_and_the_beginnings_of_task_ids() {
    let world = world().await;
    let (_, accepted) =
        world.post("/operations", json!({ "operation": "stop", "process": "web/b", "all": true })).await;
    let id = accepted["task_id"].as_str().unwrap();
    let digits = id.strip_prefix("GSETASK:").unwrap();

    let web = world.got("/search?q=WE").await;
    let hosts = world.got("/search?q=10.0.0.9").await;
    let agent = world.got("/search?q=agent-1&limit=1").await;
    let tasks = world.got(&format!("/search?q={}", &digits[..20])).await;
    let whole = world.got(&format!("/search?q={id}")).await;

    assert_eq!((&web["processes"], &web["namespaces"]), (&json!(["web/a", "web/b"]), &json!(["web"])));
    assert_eq!(hosts["hosts"], json!([{ "host": OTHER, "hostname": "", "online": false }]));
    assert_eq!(column(&agent["hosts"], "host"), [HOST]);
    assert_eq!((&tasks["tasks"][0]["task_id"], &whole["tasks"][0]["task_id"]), (&json!(id), &json!(id)));
    for (query, field) in [("", "q"), ("q=", "q"), ("q=a&limit=51", "limit")] {
        let (status, answer) = world.get(&format!("/search?{query}")).await;
        assert_eq!((status, error(&answer).1), (StatusCode::BAD_REQUEST, field), "{answer}");
    }
}

#[tokio::test]
async fn only_what_a_caller_may_read_is_counted_and_found() {
    let world = world().await;
    world.post("/operations", json!({ "operation": "stop", "process": "web/b", "all": true })).await;
    let by_business = reader(&world, "biz", &["business:3"]).await;
    let by_namespace = reader(&world, "space", &["namespace:db"]).await;
    let nobody = reader(&world, "nobody", &[]).await;

    for (app, secret, hosts, processes, names) in [
        ("biz", &by_business, json!([HOST]), 2, json!(["web/a", "web/b"])),
        ("space", &by_namespace, json!([]), 1, json!(["db/c"])),
    ] {
        let got = async |path: &str| got_as(&world, app, secret, path).await.1;
        let overview = got("/overview").await;
        assert_eq!(overview["hosts"]["total"], hosts.as_array().unwrap().len(), "{app}");
        assert_eq!((&overview["processes"]["total"], &overview["tasks"]["running"]), (&json!(processes), &json!(0)));
        assert!(!overview.to_string().contains(OTHER), "{overview}");
        assert_eq!(got("/overview/map").await["hosts"], hosts);
        assert_eq!(json!(column(&got("/processes/groups").await["groups"], "process")), names);
        assert_eq!(got("/processes/facets").await["total"], processes);
        let found = got("/search?q=/").await;
        assert_eq!(found["processes"], names);
        assert_eq!(json!(column(&got("/search?q=10.0").await["hosts"], "host")), hosts);
    }
    for path in
        ["/overview", "/overview/map", "/processes/groups", "/processes/facets", "/search?q=a", "/hosts/10.0.0.1"]
    {
        assert_eq!(got_as(&world, "nobody", &nobody, path).await.0, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn a_host_that_a_caller_may_not_read_looks_like_one_that_is_not_there() {
    let world = world().await;
    let secret = reader(&world, "biz", &["business:3"]).await;

    let own = got_as(&world, "biz", &secret, "/hosts/10.0.0.1").await;
    let by_agent = got_as(&world, "biz", &secret, "/hosts/agent-1").await;
    let foreign = got_as(&world, "biz", &secret, &format!("/hosts/{OTHER}")).await;
    let unknown = got_as(&world, "biz", &secret, "/hosts/5:10.0.0.8").await;

    assert_eq!((own.0, &own.1["host"], &own.1["business"]), (StatusCode::OK, &json!(HOST), &json!(3)));
    assert_eq!(by_agent.1["host"], HOST);
    assert_eq!((foreign.0, unknown.0), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    let message = |answer: &Value| answer["error"]["message"].as_str().unwrap().replace("10.0.0.9", "10.0.0.8");
    assert_eq!(message(&foreign.1), message(&unknown.1));
    assert_eq!(world.get("/hosts/no%20host").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn who_enrolled_with_a_token_is_told_to_administrators_alone() {
    let world = world().await;
    let secret = reader(&world, "reads", &["everything"]).await;

    let (plain, _) = got_as(&world, "reads", &secret, "/hosts").await;
    let (by_token, _) = got_as(&world, "reads", &secret, "/hosts?token=0123456789abcdef").await;
    let (by_admin, _) = world.get("/hosts?token=0123456789abcdef").await;

    assert_eq!([plain, by_token, by_admin], [StatusCode::OK, StatusCode::FORBIDDEN, StatusCode::OK]);
}

#[tokio::test]
async fn an_agent_that_comes_back_and_has_not_measured_yet_takes_no_usage_away() {
    let world = World::new().await;
    world.register("m").await;
    let usage = Usage { cpu_percent: 12.5, threads: 3, command_line: "m --serve".to_owned(), ..Usage::default() };
    let measured = Snapshot { pid: Some(7), usage, ..seen(Phase::Running) };
    observe(&world, &[("web/m", measured.clone())]).await;

    let again = Snapshot { usage: Usage::default(), reported_at: 1060, ..measured.clone() };
    observe(&world, &[("web/m", again)]).await;

    let stored = world.store.observations(&AGENT.parse().unwrap()).await.unwrap();
    assert_eq!(stored.iter().map(|seen| &seen.snapshot).collect::<Vec<_>>(), [&measured]);
}

#[tokio::test]
async fn hosts_in_maintenance_need_no_attention() {
    let world = world().await;
    observe(&world, &[("web/a", seen(Phase::Failed))]).await;
    for host in [HOST, OTHER] {
        let (status, cordon) = world.put(&format!("/hosts/{host}/cordon"), json!({ "reason": "new disk" })).await;
        assert_eq!(status, StatusCode::OK, "{cordon}");
    }

    let overview = world.got("/overview").await;

    assert_eq!((&overview["attention"], &overview["attention_total"]), (&json!([]), &json!(0)));
}
