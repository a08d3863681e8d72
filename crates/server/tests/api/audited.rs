//! What the audit log says about each change: enough to know what was there before, and what is there now.

use axum::http::Method;
use proctor_server::api::{self, RouteInfo};
use proctor_store::{AuditEntry, AuditPhase, AuditQuery};
use serde_json::json;

use crate::matrix::{AGENT, a_task, prepare, sample};
use crate::support::{APP, ESB, SECRET, World, on_host, registered};

/// Words that the entry of a change by the sample of a route must contain, in its targets or in its result. None
/// for a route that nobody has considered.
fn details(route: &RouteInfo) -> Option<&'static [&'static str]> {
    let Some(path) = route.path.strip_prefix("/api/v1") else { return compatible(route) };
    let details: &[&str] = match (route.method.as_str(), path) {
        ("PUT", "/hosts/placements") => &["0:10.0.0.9 to no business, was in "],
        ("POST", "/hosts/import") => &["0:10.0.0.9 to business 7, was in "],
        ("PUT", "/businesses/{id}") => &["business 7: 'games', was 'games'"],
        ("DELETE", "/businesses/{id}") => &["business 7: 'games'"],
        ("PUT", "/business-sets/{id}") => &["set 7: 'all' with businesses none, was 'all' with businesses none"],
        ("DELETE", "/business-sets/{id}") => &["set 7: 'all' with businesses none"],
        ("POST", "/hosts/{host}/rejoin") => &["0:10.0.0.8 until "],
        ("DELETE", "/hosts/{host}/rejoin") => &["host 0:10.0.0.8: leave to rejoin withdrawn"],
        ("PUT", "/hosts/{host}/cordon") => &["0:10.0.0.8, until ", ": new disk"],
        ("DELETE", "/hosts/{host}/cordon") => &["0:10.0.0.8"],
        ("POST", "/hosts/{host}/approve") => &["0:10.0.0.8"],
        ("DELETE", "/hosts/{host}/certificate") => &["certificate of host 0:10.0.0.8"],
        ("DELETE", "/hosts/{host}") => &["host 0:10.0.0.8: agent spare-"],
        ("POST", "/tokens") => &["for 1 agents within 60 s, cloud any, business none", "done: join token "],
        ("DELETE", "/relays/{relay}") => &["relay spare-relay"],
        ("POST", "/authority/prepare" | "/authority/switch" | "/authority/finish" | "/authority/abort") => {
            &["certificate authority", "done"]
        }
        ("DELETE", "/tokens/{id}") => &["join token ", ": 0 of 1 uses, business none, host any"],
        ("POST", "/processes") => &["0:10.0.0.1 web/m: spec ", " of user root in /data/nginx", "1 × 0"],
        ("DELETE", "/processes/{namespace}/{name}") => &["0:10.0.0.1 web/m", "1 × 0"],
        ("POST", "/operations") => &["0:10.0.0.1 web/m", "GSETASK:"],
        ("POST", "/tasks/{task_id}/cancel") => &["GSETASK:", "cancelled"],
        ("POST", "/tasks/{task_id}/pause") => &["GSETASK:", "paused"],
        ("POST", "/tasks/{task_id}/resume") => &["GSETASK:", "resumed"],
        ("POST", "/tasks/{task_id}/retry") => &["0:10.0.0.1 web/absent", "GSETASK:"],
        ("PUT", "/pools") => &["web/web cpu 20% by usage, memory 30% by usage, ", "1 × 0"],
        ("DELETE", "/pools/{namespace}/{id}") => &["web/web: was cpu 20% by usage, memory 30% by usage"],
        ("POST", "/webhooks") => &["http://receiver.invalid, all events", "done: webhook "],
        ("POST", "/webhooks/{id}/test") => &["webhook ", ": http://receiver.invalid, all events", "not delivered: "],
        ("DELETE", "/webhooks/{id}") => &["webhook ", ": http://receiver.invalid, all events"],
        ("POST", "/apps") => &["app made_by_the_matrix: not trusted"],
        ("POST", "/apps/{code}/secret") => &["app made_by_the_matrix: new secret, may sign as before"],
        ("DELETE", "/apps/{code}") => &["app made_by_the_matrix: not trusted, no bindings"],
        ("POST", "/users") => &["user m: enabled, no bindings"],
        ("PUT", "/users/{name}") => &["user m: enabled, was enabled, ", " tokens, no bindings"],
        ("DELETE", "/users/{name}") => &["user m: enabled, ", " tokens, no bindings"],
        ("POST", "/users/{name}/tokens") => &["token of user m: without an end, note 'x'", "done: token "],
        ("DELETE", "/users/{name}/tokens/{id}") => &[" of user m: note 'x'"],
        ("PUT", "/users/{name}/password") => &["user m, no password"],
        ("POST", "/users/{name}/sign-in-link") => &["sign-in link of user m"],
        ("POST", "/upgrades") => &["version 9.9.9 (", ") on 1 hosts, upgrade ", "0:10.0.0.8", "begun"],
        ("POST", "/upgrades/{id}/pause" | "/upgrades/{id}/resume" | "/upgrades/{id}/cancel") => &["upgrade ", "done"],
        ("PUT", "/roles/{name}") => &["role m: read, was read"],
        ("DELETE", "/roles/{name}") => &["role m: read, no bindings"],
        ("POST", "/bindings") => &["app:x as viewer on everything", "done: binding "],
        ("DELETE", "/bindings/{id}") => &["binding ", ": app:x as viewer on everything"],
        _ => return None,
    };
    Some(details)
}

fn compatible(route: &RouteInfo) -> Option<&'static [&'static str]> {
    let name = route.path.rsplit('/').next()?;
    let details: &[&str] = match (route.method.as_str(), name) {
        (_, "register_proc_info" | "update_proc_info") | ("POST" | "PUT", "procinfo") => {
            &["0:10.0.0.1 web/m: spec ", " of user root in /data/nginx", "1 × 0"]
        }
        (_, "unregister_proc_info") | ("DELETE", "procinfo") => &["0:10.0.0.1 web/m", "1 × 0"],
        (_, "set_process_group_info") | ("POST", "groupinfo") => {
            &["web/web cpu 50% by usage, memory 50% by usage, ", "1 × 0"]
        }
        (_, "operate_proc" | "operate_process" | "manage_proc") if route.path.contains("/job") => {
            &["0:10.0.0.1 job/", "GSETASK:"]
        }
        (_, "operate_proc" | "operate_proc_v2" | "operate_proc_multi" | "multioperate" | "operate") => {
            &["0:10.0.0.1 web/m", "GSETASK:"]
        }
        (_, "upgrade_to_agent_id") => &["0:10.0.0.1", AGENT],
        _ => return None,
    };
    Some(details)
}

async fn entries(world: &World, after: u64) -> Vec<AuditEntry> {
    world.store.audit(&AuditQuery { after, limit: 1000, ..AuditQuery::default() }).await.unwrap()
}

async fn newest(world: &World) -> u64 {
    let query = AuditQuery { limit: 1, newest: true, ..AuditQuery::default() };
    world.store.audit(&query).await.unwrap().last().map_or(0, |entry| entry.seq)
}

#[tokio::test]
async fn every_change_says_what_was_changed_from_what_to_what() {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    let (session, _other) = (world.connect(AGENT).await, world.connect("agent-2").await);
    let admin = json!({ "bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin" });

    let mut wrong = Vec::new();
    for route in api::routes().into_iter().filter(|route| route.mutates) {
        let what = format!("{} {}", route.method, route.path);
        let Some(details) = details(&route) else {
            wrong.push(format!("{what}: nobody said what its entry must tell"));
            continue;
        };
        let id = prepare(&world, &route).await;
        let task = a_task(&world, &session, &route).await;
        let (path, body) = sample(&route, &task, &id).unwrap();
        let before = newest(&world).await;
        let answer = world.call(&admin, &route.method, &path, &body).await;
        let made = entries(&world, before).await;
        let is_end = |entry: &&AuditEntry| matches!(entry.draft.phase, AuditPhase::Ended | AuditPhase::Done);
        let Some(entry) = made.iter().rev().find(is_end) else {
            wrong.push(format!("{what}: no entry: {}", answer.json));
            continue;
        };
        let told = format!("{} → {}", entry.draft.targets.join(" | "), entry.draft.outcome);
        for missing in details.iter().filter(|detail| !told.contains(**detail)) {
            wrong.push(format!("{what}: '{missing}' is not in: {told}"));
        }
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn a_change_of_members_roles_and_limits_tells_both_sides() {
    let world = World::new().await;
    let admin = json!({ "bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin" });
    world.post(&format!("{ESB}/register_proc_info"), registered("m", "10.0.0.1")).await.data();
    let pool = |cpu: f64| {
        let pool = json!({ "namespace": "web", "id": "web", "cpu": cpu, "memory": 30.0, "cpu_weight": "usage",
                           "memory_weight": "usage_by_limit", "dry_run": true });
        json!({ "hosts": ["0:10.0.0.1"], "pools": [pool] })
    };
    let calls = [
        (Method::PUT, "/businesses/1", json!({ "name": "one" })),
        (Method::PUT, "/businesses/2", json!({ "name": "two" })),
        (Method::PUT, "/business-sets/7", json!({ "name": "all", "members": [1] })),
        (Method::PUT, "/business-sets/7", json!({ "name": "all", "members": [1, 2] })),
        (Method::PUT, "/roles/night", json!({ "classes": ["read"] })),
        (Method::PUT, "/roles/night", json!({ "classes": ["read", "operate"] })),
        (Method::PUT, "/pools", pool(20.0)),
        (Method::PUT, "/pools", pool(40.0)),
        (
            Method::POST,
            "/apps",
            json!({ "code": "job", "signatures": true, "roles": [{ "role": "night", "scope": "business:1" }] }),
        ),
        (Method::PUT, "/hosts/placements", json!({ "hosts": ["0:10.0.0.1"], "business": 2 })),
    ];
    for (method, path, body) in calls {
        let answer = world.call(&admin, &method, &format!("/api/v1{path}"), &body).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.json);
    }

    let told: Vec<String> = entries(&world, 0).await.into_iter().flat_map(|entry| entry.draft.targets).collect();

    for expected in [
        "set 7: 'all' with businesses 1, new",
        "set 7: 'all' with businesses 1 2, was 'all' with businesses 1",
        "role night: read operate, was read",
        "0:10.0.0.1 web/web cpu 40% by usage, memory 30% by usage by limit, dry run, \
         was cpu 20% by usage, memory 30% by usage by limit, dry run",
        "app job: not trusted, may sign, night on business:1",
        "0:10.0.0.1 to business 2, was in no business",
    ] {
        assert!(told.iter().any(|target| target == expected), "{expected} is not in\n{}", told.join("\n"));
    }
    world.end().await;
}

#[tokio::test]
async fn a_change_of_no_known_host_leaves_one_small_entry_and_others_name_what_they_change() {
    let world = World::new().await;
    let unknown =
        |number: u32| json!({ "ip": std::net::Ipv4Addr::from(0x0b00_0000 + number).to_string(), "bk_cloud_id": 0 });
    let mut body = registered("m", "10.0.0.1");
    body["spec"]["identity"]["setup_path"] = json!(format!("/{}", "x".repeat(900)));
    body["hosts"] = (0..3000).map(unknown).collect();
    let before = newest(&world).await;

    let calls = ["register_proc_info", "unregister_proc_info"];
    for call in calls {
        world.post(&format!("{ESB}/{call}"), body.clone()).await.data();
    }
    let nothing = entries(&world, before).await;
    body["hosts"].as_array_mut().unwrap().push(json!({ "ip": "10.0.0.1", "bk_cloud_id": 0 }));
    let before = newest(&world).await;
    world.post(&format!("{ESB}/register_proc_info"), body).await.data();
    let one = entries(&world, before).await;

    let bytes = |entry: &AuditEntry| entry.draft.targets.iter().map(String::len).sum::<usize>();
    assert_eq!(nothing.iter().map(|entry| entry.draft.phase).collect::<Vec<_>>(), [AuditPhase::Done; 2]);
    for (entry, action) in nothing.iter().zip(["register", "unregister"]) {
        assert_eq!((entry.draft.action.as_str(), entry.draft.target_count), (action, 3000));
        assert_eq!(entry.draft.outcome, "nothing was changed: no host is known");
        assert!(bytes(entry) < 2000, "{} bytes: {:?}", bytes(entry), entry.draft.targets);
    }
    assert_eq!(one[1].draft.outcome, "1 × 0; 3000 not known");
    assert_eq!(one.iter().map(|entry| entry.draft.phase).collect::<Vec<_>>(), [AuditPhase::Begun, AuditPhase::Ended]);
    for entry in &one {
        assert_eq!((entry.draft.targets.len(), entry.draft.target_count), (1, 3001));
        assert!(entry.draft.targets[0].starts_with("0:10.0.0.1 web/m: spec "), "{:?}", entry.draft.targets);
    }
    world.end().await;
}

#[tokio::test]
async fn refusals_are_listed_however_many_calls_changed_nothing_before() {
    let world = World::new().await;
    world.app("owner").await;
    world.bind("app:owner", "owner", "namespace:web").await;
    let owner = json!({ "bk_app_code": "owner", "bk_app_secret": SECRET, "bk_username": "ana" });
    let nothing = registered("m", "11.0.0.1");
    for _ in 0..250 {
        world.call(&owner, &Method::POST, &format!("{ESB}/register_proc_info"), &nothing).await.data();
    }
    let before = newest(&world).await;
    let listed = entries(&world, 0).await.iter().filter(|entry| entry.draft.app == "owner").count();

    let refused = world.call(&owner, &Method::POST, "/api/v1/users", &json!({ "name": "mallory" })).await;

    assert_eq!(refused.status.as_u16(), 403, "{}", refused.json);
    let told: Vec<_> = entries(&world, before).await.into_iter().map(|it| (it.draft.phase, it.draft.action)).collect();
    assert_eq!(told, [(AuditPhase::Refused, "create_user".to_owned())]);
    assert_eq!(listed, 150, "and what changed nothing is not listed for ever; one user leaves entries to others");
    world.end().await;
}

#[tokio::test]
async fn steering_a_task_that_is_over_leaves_no_entry() {
    let world = World::new().await;
    let mut absent = on_host("absent", "10.0.0.1");
    absent["op_type"] = json!(1);
    let task = world.post(&format!("{ESB}/operate_proc"), absent).await.data()["task_id"].clone();
    world.finished(&format!("{ESB}/get_proc_operate_result"), &task).await;
    let count = async || world.store.audit(&AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap().len();
    let before = count().await;
    let admin = json!({ "bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin" });

    for steer in ["cancel", "resume"] {
        let path = format!("/api/v1/tasks/{}/{steer}", task.as_str().unwrap());
        let answer = world.call(&admin, &Method::POST, &path, &json!({})).await;
        assert_eq!(answer.status.as_u16(), 409, "{}", answer.json);
    }

    assert_eq!(count().await, before);
    world.end().await;
}
