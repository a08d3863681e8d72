//! Every route, from the router's own tables: callers without permission are refused, those with it are admitted,
//! and every change is audited. A route without a sample here fails.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_model::{Class, Classes, Outcome, Role, TaskId};
use proctor_server::api::{self, RouteInfo};
use proctor_server::control::Session;
use proctor_store::conformance::Joining;
use proctor_store::{AuditPhase, AuditQuery, TargetView};
use serde_json::{Value, json};

use crate::support::{APP, Answer, ESB, SECRET, World, on_host, registered};

const HOST: &str = "0:10.0.0.1";
/// One that may go.
const SPARE_HOST: &str = "0:10.0.0.8";
const SPARE_RELAY: &str = "spare-relay";
pub(crate) const AGENT: &str = "020000000052540a9b2c1641";

/// Somebody who calls, and what they may do, everywhere.
struct Who {
    app: String,
    classes: Classes,
}

/// Nobody, every built-in role, each class alone, and everything but each class.
fn callers() -> Vec<Who> {
    use Class::{Limits, Operate, Read, Register};
    let who = |app: String, classes: &[Class]| Who { app, classes: classes.iter().copied().collect() };
    let mut callers = vec![
        who("nobody".to_owned(), &[]),
        who("viewer".to_owned(), &[Read]),
        who("operator".to_owned(), &[Read, Operate]),
        who("owner".to_owned(), &[Read, Operate, Register, Limits]),
        who("admin".to_owned(), &Class::ALL),
    ];
    for class in Class::ALL {
        let others: Vec<Class> = Class::ALL.into_iter().filter(|other| *other != class).collect();
        callers.push(who(format!("only-{class}"), &[class]));
        callers.push(who(format!("all-but-{class}"), &others));
    }
    callers
}

/// A world with these apps, and an agent that is connected.
async fn world(callers: &[Who]) -> World {
    let world = World::new().await;
    for Who { app, classes } in callers {
        world.app(app).await;
        if app.contains("only-") || app.contains("all-but-") {
            let role = Role { name: app.parse().unwrap(), classes: *classes };
            world.store.put_role(role).await.unwrap().unwrap();
        }
        if !classes.is_empty() {
            world.bind(&format!("app:{app}"), app, "everything").await;
        }
    }
    world
}

/// By the trusted app, which may do everything.
async fn by_admin(world: &World, method: Method, path: &str, body: Value) -> Value {
    let credentials = json!({ "bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin" });
    world.call(&credentials, &method, &format!("/api/v1{path}"), &body).await.json
}

/// Prepares what the route's sample needs, whatever earlier calls have done: the sample does something, and does it
/// for the first time. Returns the id of what it names.
pub(crate) async fn prepare(world: &World, route: &RouteInfo) -> String {
    let (method, path) = (route.method.as_str(), route.path.as_str());
    let name = path.rsplit('/').next().unwrap();
    world.post(&format!("{ESB}/update_proc_info"), registered("m", "10.0.0.1")).await.data();
    if path.contains("/job") && name != "get_proc_result" {
        world.post(path, job(if name == "manage_proc" { 1 } else { 3 })).await.data();
    }
    if name == "register_proc_info" || matches!((method, name), ("POST", "procinfo" | "processes")) {
        world.post(&format!("{ESB}/unregister_proc_info"), on_host("m", "10.0.0.1")).await.data();
    }
    let Some(path) = path.strip_prefix("/api/v1") else { return String::new() };
    if is_rolling(route) {
        world.post(&format!("{ESB}/update_proc_info"), registered("m", "10.0.0.2")).await.data();
    }
    let id_of = |json: Value| json["id"].as_str().unwrap_or_else(|| panic!("no id: {json}")).to_owned();
    match path {
        "/apps" if method == "POST" => {
            by_admin(world, Method::DELETE, "/apps/made_by_the_matrix", json!({})).await;
        }
        "/apps/{code}" | "/apps/{code}/secret" => {
            by_admin(world, Method::POST, "/apps", json!({ "code": "made_by_the_matrix" })).await;
        }
        "/users" if method == "POST" => {
            by_admin(world, Method::DELETE, "/users/m", json!({})).await;
        }
        "/users/{name}"
        | "/users/{name}/password"
        | "/users/{name}/sign-in-link"
        | "/users/{name}/tokens"
        | "/users/{name}/tokens/{id}" => {
            by_admin(world, Method::POST, "/users", json!({ "name": "m" })).await;
            if path.ends_with("{id}") {
                return id_of(by_admin(world, Method::POST, "/users/m/tokens", json!({ "note": "x" })).await);
            }
        }
        "/roles/{name}" => {
            by_admin(world, Method::PUT, "/roles/m", json!({ "classes": ["read"] })).await;
        }
        "/bindings/{id}" => {
            let binding = json!({ "role": "viewer", "subject": "app:x", "scope": "everything" });
            return id_of(by_admin(world, Method::POST, "/bindings", binding).await);
        }
        "/webhooks/{id}" | "/webhooks/{id}/test" => {
            let webhook = json!({ "url": "http://receiver.invalid/" });
            return id_of(by_admin(world, Method::POST, "/webhooks", webhook).await);
        }
        "/tokens/{id}" => {
            return id_of(by_admin(world, Method::POST, "/tokens", json!({ "uses": 1, "ttl_secs": 60 })).await);
        }
        _ if path.starts_with("/upgrades") => return an_upgrade(world, path).await,
        "/hosts/{host}"
        | "/hosts/{host}/approve"
        | "/hosts/{host}/certificate"
        | "/hosts/{host}/cordon"
        | "/hosts/{host}/rejoin" => {
            by_admin(world, Method::DELETE, &format!("/hosts/{SPARE_HOST}"), json!({})).await;
            let needs_approval = path == "/hosts/{host}/approve";
            let spare = Joining::new(SPARE_HOST, &format!("spare-{}", uuid::Uuid::now_v7()));
            Joining { needs_approval, ..spare }.enrol(&*world.store).await;
            if (method, path) == ("DELETE", "/hosts/{host}/rejoin") {
                let rejoin = format!("/hosts/{SPARE_HOST}/rejoin");
                by_admin(world, Method::POST, &rejoin, json!({ "ttl_secs": 60 })).await;
            }
            if (method, path) == ("DELETE", "/hosts/{host}/cordon") {
                let cordon = format!("/hosts/{SPARE_HOST}/cordon");
                by_admin(world, Method::PUT, &cordon, json!({ "reason": "new disk" })).await;
            }
        }
        "/relays/{relay}" => world.enrol_relay(SPARE_RELAY).await,
        _ if path.starts_with("/authority/") => a_rotation(world, path).await,
        "/businesses/{id}" => {
            by_admin(world, Method::PUT, "/businesses/7", json!({ "name": "games" })).await;
        }
        "/business-sets/{id}" => {
            by_admin(world, Method::PUT, "/business-sets/7", json!({ "name": "all", "members": [] })).await;
        }
        "/pools/{namespace}/{id}" | "/pools/{namespace}/{id}/delete/plan" => {
            let pool = json!({ "namespace": "web", "id": "web", "cpu": 20.0, "memory": 30.0,
                               "cpu_weight": "usage", "memory_weight": "usage" });
            by_admin(world, Method::PUT, "/pools", json!({ "hosts": [HOST], "pools": [pool] })).await;
        }
        _ => {}
    }
    String::new()
}

/// In the phase that the step is for; nobody has followed in this world, so the steps are forced.
async fn a_rotation(world: &World, path: &str) {
    for _ in 0..2 {
        by_admin(world, Method::POST, "/authority/abort", json!({ "force": true })).await;
    }
    let before: &[&str] = match path {
        "/authority/prepare" => &[],
        "/authority/switch" | "/authority/abort" => &["prepare"],
        "/authority/finish" => &["prepare", "switch"],
        other => panic!("unknown step {other}"),
    };
    for step in before {
        by_admin(world, Method::POST, &format!("/authority/{step}"), json!({ "force": true })).await;
    }
}

fn upgrade() -> Value {
    json!({ "version": "9.9.9", "hosts": [SPARE_HOST] })
}

/// One that waits for a host that is not connected, and none beside it.
async fn an_upgrade(world: &World, path: &str) -> String {
    world.hold_build("9.9.9").await;
    let before = by_admin(world, Method::GET, "/upgrades", json!({})).await;
    for one in before["upgrades"].as_array().unwrap() {
        let cancel = format!("/upgrades/{}/cancel", one["id"].as_str().unwrap());
        by_admin(world, Method::POST, &cancel, json!({})).await;
    }
    by_admin(world, Method::DELETE, &format!("/hosts/{SPARE_HOST}"), json!({})).await;
    world.enrol(SPARE_HOST, &format!("spare-{}", uuid::Uuid::now_v7())).await;
    if !path.contains("{id}") {
        return String::new();
    }
    let begun = by_admin(world, Method::POST, "/upgrades", upgrade()).await;
    let id = begun["id"].as_str().unwrap_or_else(|| panic!("no id: {begun}")).to_owned();
    if path.ends_with("/resume") {
        by_admin(world, Method::POST, &format!("/upgrades/{id}/pause"), json!({})).await;
    }
    id
}

/// A task of the trusted app: for a resume one that waits after its canary, for a pause one that rolls, for a retry one that has
/// failed, and else one that waits for its host.
pub(crate) async fn a_task(world: &World, session: &Session, route: &RouteInfo) -> String {
    world.control.take_deliveries(session, 1000);
    if is_rolling(route) {
        let resumes = route.path.ends_with("/resume");
        let rolling = json!({ "max_parallel": 1, "canary": u32::from(resumes), "wait_healthy": false });
        let body = json!({ "operation": "stop", "selector": "tier=1", "all": true, "rolling": rolling });
        let answer = by_admin(world, Method::POST, "/operations", body).await;
        let task = answer["task_id"].as_str().unwrap_or_else(|| panic!("no task: {answer}")).to_owned();
        if resumes {
            until_paused(world, session, &task).await;
        }
        return task;
    }
    let name = if route.path.ends_with("/retry") { "absent" } else { "m" };
    let mut body = on_host(name, "10.0.0.1");
    body["op_type"] = json!(1);
    let answer = world.post(&format!("{ESB}/operate_proc"), body).await;
    answer.data()["task_id"].as_str().unwrap().to_owned()
}

fn is_rolling(route: &RouteInfo) -> bool {
    route.path.ends_with("/resume") || route.path.ends_with("/pause")
}

async fn until_paused(world: &World, session: &Session, task: &str) {
    let paused = async {
        while by_admin(world, Method::GET, &format!("/tasks/{task}"), json!({})).await["rollout"]["state"] != "paused" {
            for delivery in world.control.take_deliveries(session, 10) {
                world.control.arrived(session, delivery.operation, Outcome::success(false)).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), paused).await.expect("it waits after its canary");
}

/// A request that is well formed for the route; None where nobody has thought of one.
pub(crate) fn sample(route: &RouteInfo, task: &str, id: &str) -> Option<(String, Value)> {
    let (area, name) = match route.path.strip_prefix("/api/v1") {
        Some(rest) => ("native", rest),
        None => ("compatible", route.path.rsplit('/').next()?),
    };
    if area == "native" {
        return native_sample(&route.method, name, task, id);
    }
    let with = |mut body: Value, field: &str, value: Value| {
        body[field] = value;
        body
    };
    let stop = || with(registered("m", "10.0.0.1"), "op_type", json!(1));
    let here = || on_host("m", "10.0.0.1");
    let is_job = route.path.contains("/job");
    let body = match (&route.method, name) {
        (_, "register_proc_info" | "update_proc_info") | (&(Method::POST | Method::PUT), "procinfo") => {
            registered("m", "10.0.0.1")
        }
        (_, "unregister_proc_info") | (&Method::DELETE, "procinfo") => here(),
        (_, "manage_proc") => job(2),
        (_, "operate_process") => job(1),
        (_, "operate_proc") if is_job => job(1),
        (_, "operate_proc" | "operate_proc_v2") | (&Method::POST, "operate") => stop(),
        (_, "operate_proc_multi" | "multioperate") => json!({ "proc_operate_req": [stop()] }),
        (_, "get_proc_operate_result" | "get_proc_operate_result_v2") | (&Method::GET, "operate") => {
            json!({ "task_id": task })
        }
        (_, "get_proc_result") => json!({ "bk_biz_id": 2, "bk_gse_taskid": task }),
        (_, "get_task_state") => json!({ "agent_id_list": [HOST], "task_id": task }),
        (_, "sync_proc_status" | "syncstatus") => {
            json!({ "meta": { "namespace": "web" }, "page": { "start": 0, "limit": 10 } })
        }
        (_, "set_process_group_info") | (&Method::POST, "groupinfo") => with(here(), "spec", group()),
        (_, "list_agent_state" | "list_agent_info") => json!({ "agent_id_list": [HOST] }),
        (_, "upgrade_to_agent_id") => {
            json!({ "hosts": [{ "ip": "10.0.0.1", "bk_cloud_id": 0, "bk_agent_id": "020000000052540a9b2c1641" }] })
        }
        (_, "get_proc_status" | "get_proc_status_v2" | "status" | "get_process_group_info" | "groupinfo")
        | (_, "get_agent_status" | "get_agent_info") => here(),
        _ => return None,
    };
    Some((route.path.replace("{stage}", "prod"), body))
}

fn group() -> Value {
    let resource =
        json!({ "cpu_pool_limit": 50.0, "mem_pool_limit": 50.0, "cpu_pool_weight": 0, "mem_pool_weight": 0 });
    json!({ "process_group": [{ "id": "web", "resource": resource }] })
}

fn job(op_type: u8) -> Value {
    let process = json!({
        "proc_name": "m", "setup_path": "/data/m", "pid_path": "/data/m/m.pid", "start_cmd": "./a", "stop_cmd": "./b", "type": 1,
        "ip_list": [{ "bk_cloud_id": 0, "ip": "10.0.0.1" }],
    });
    json!({ "bk_biz_id": 2, "op_type": op_type, "process_infos": [process] })
}

fn native_sample(method: &Method, path: &str, task: &str, id: &str) -> Option<(String, Value)> {
    let hosts = json!({ "hosts": [HOST] });
    let body = match (method.as_str(), path) {
        ("GET", "/processes/{namespace}/{name}/diff") => {
            return Some((format!("/api/v1/processes/web/m/diff?host={HOST}"), json!({})));
        }
        ("GET", "/processes/{namespace}/{name}/usage") => {
            return Some((format!("/api/v1/processes/web/m/usage?host={HOST}"), json!({})));
        }
        ("GET", "/processes/{namespace}/{name}/log") => {
            return Some((format!("/api/v1/processes/web/m/log?host={HOST}"), json!({})));
        }
        ("GET", "/processes/{namespace}/{name}/history") => {
            return Some((format!("/api/v1/processes/web/m/history?host={HOST}"), json!({})));
        }
        ("GET", "/search") => return Some(("/api/v1/search?q=m".to_owned(), json!({}))),
        ("GET", _) => json!({}),
        ("POST", "/apps") => json!({ "code": "made_by_the_matrix" }),
        ("POST", "/bindings") => json!({ "role": "viewer", "subject": "app:x", "scope": "everything" }),
        ("PUT", "/business-sets/{id}") => json!({ "name": "all", "members": [] }),
        ("PUT", "/businesses/{id}") => json!({ "name": "games" }),
        ("POST", "/hosts/import") => json!([{ "cloud": 0, "ip": "10.0.0.9", "business": 7, "business_name": "games" }]),
        ("PUT", "/hosts/placements") => json!({ "hosts": ["0:10.0.0.9"], "business": null }),
        ("POST", "/operations") => json!({ "operation": "stop", "process": "web/m", "hosts": [HOST] }),
        ("PUT", "/pools") | ("POST", "/pools/plan") => {
            json!({ "hosts": [HOST], "pools": [{ "namespace": "web", "id": "web", "cpu": 20.0, "memory": 30.0,
                    "cpu_weight": "usage", "memory_weight": "usage" }] })
        }
        ("POST", "/processes" | "/processes/plan") => registered("m", "10.0.0.1"),
        ("DELETE", "/processes/{namespace}/{name}" | "/pools/{namespace}/{id}") => hosts,
        ("POST", "/processes/{namespace}/{name}/unregister/plan" | "/pools/{namespace}/{id}/delete/plan") => hosts,
        ("PUT", "/roles/{name}") => json!({ "classes": ["read"] }),
        ("PUT", "/hosts/{host}/cordon") => json!({ "reason": "new disk", "ttl_secs": 60 }),
        ("POST", "/hosts/{host}/approve") => json!({}),
        ("POST", "/hosts/{host}/rejoin") => json!({ "ttl_secs": 60 }),
        ("POST", "/tokens") => json!({ "uses": 1, "ttl_secs": 60 }),
        ("POST", "/authority/prepare" | "/authority/switch" | "/authority/finish" | "/authority/abort") => {
            json!({ "force": true })
        }
        ("POST", "/upgrades" | "/upgrades/plan") => upgrade(),
        ("POST", "/upgrades/{id}/pause" | "/upgrades/{id}/resume" | "/upgrades/{id}/cancel") => json!({}),
        ("PUT", "/users/{name}/password") => json!({ "password": null }),
        ("POST", "/users/{name}/sign-in-link") => json!({}),
        ("POST", "/users") => json!({ "name": "m" }),
        ("POST", "/users/{name}/tokens") => json!({ "note": "x" }),
        ("PUT", "/users/{name}") => json!({ "disabled": false }),
        ("POST", "/webhooks") => json!({ "url": "http://receiver.invalid/" }),
        ("POST", "/tasks/{task_id}/cancel" | "/tasks/{task_id}/retry") => json!({}),
        ("POST", "/tasks/{task_id}/pause" | "/tasks/{task_id}/resume") => json!({}),
        ("POST", "/apps/{code}/secret" | "/webhooks/{id}/test") | ("DELETE", _) => json!({}),
        _ => return None,
    };
    let path = path
        .replace("{task_id}", task)
        .replace("{namespace}", "web")
        .replace("{host}", SPARE_HOST)
        .replace("{relay}", SPARE_RELAY)
        .replace("{code}", "made_by_the_matrix")
        .replace("{name}", "m");
    let number = match () {
        () if path.starts_with("/business") => "7",
        () if path.starts_with("/pools") => "web",
        () => id,
    };
    Some((format!("/api/v1{}", path.replace("{id}", number)), body))
}

async fn call(world: &World, app: &str, method: &Method, path: &str, body: &Value) -> Answer {
    let credentials = json!({ "bk_app_code": app, "bk_app_secret": SECRET, "bk_username": "tester" });
    if path.contains("/events/stream") || path.contains("/audit/export") {
        let answer = world.open(&credentials, path).await;
        return Answer { status: answer.status(), headers: answer.headers().clone(), json: Value::Null };
    }
    world.call(&credentials, method, path, body).await
}

/// What came of a call, in a few words: the whole answer where it was refused as a whole, each row where
/// it has rows, each target of the task where it made one.
async fn verdict(world: &World, answer: &Answer) -> String {
    let json = &answer.json;
    let data = &json["data"];
    let made = [&data["task_id"], &data["bk_gse_taskid"], &json["task_id"]];
    let rows = json["rows"].as_array().map(|rows| rows.iter().map(|row| row["code"].to_string()).collect::<Vec<_>>());
    let coded = |row: &Value| row["error_code"].as_i64().map(|code| code.to_string());
    let rows = rows.or_else(|| data.as_object()?.values().map(coded).collect::<Option<Vec<_>>>());
    let what = match made.into_iter().find_map(|task| task.as_str()?.parse::<TaskId>().ok()) {
        Some(task) => {
            let view = world.store.task(task).await.unwrap().unwrap();
            let code = |target: &TargetView| target.outcome.as_ref().map_or("open", |outcome| outcome.code.name());
            format!(" task {}", view.targets.iter().map(code).collect::<Vec<_>>().join(","))
        }
        None if rows.as_ref().is_some_and(|rows| !rows.is_empty()) => format!(" rows {}", rows.unwrap().join(",")),
        None => match (json["code"].as_i64(), json["error"]["code"].as_str()) {
            (Some(code), _) => format!(" code {code}"),
            (None, Some(code)) => format!(" {code}"),
            (None, None) => String::new(),
        },
    };
    format!("{}{what}", answer.status.as_u16())
}

/// The exact answer to the sample of this route, for who may and for who may not.
struct Expected {
    allowed: &'static str,
    refused: &'static str,
}

fn expected(route: &RouteInfo, who: &Who) -> Expected {
    let of = |allowed, refused| Expected { allowed, refused };
    let method = route.method.as_str();
    if let Some(path) = route.path.strip_prefix("/api/v1") {
        return match (method, path) {
            ("POST", "/operations") => of("202 task open", "403 permission_denied"),
            // Somebody else's task is retried by who may read or operate everything; its rows tell nobody else about it.
            ("POST", "/tasks/{task_id}/retry")
                if !who.classes.contains(Class::Read) && !who.classes.contains(Class::Operate) =>
            {
                of("403 permission_denied", "403 permission_denied")
            }
            ("POST", "/tasks/{task_id}/retry") => of("202 task command_failed", "403 permission_denied"),
            ("POST", "/tasks/{task_id}/cancel") => of("200 task cancelled", "403 permission_denied"),
            ("POST", "/tasks/{task_id}/pause") => of("200 task open,open", "403 permission_denied"),
            ("POST", "/tasks/{task_id}/resume") => of("200 task success,open", "403 permission_denied"),
            ("GET", "/tasks/{task_id}") => of("200 task open", "403 permission_denied"),
            ("POST", "/processes") | ("DELETE", "/processes/{namespace}/{name}") => of("200 rows 0", "200 rows 403"),
            ("PUT", "/pools") | ("DELETE", "/pools/{namespace}/{id}") => of("200 rows 0", "200 rows 403"),
            ("PUT", "/users/{name}/password") => of("204", "403 permission_denied"),
            (
                "POST",
                "/apps"
                | "/bindings"
                | "/tokens"
                | "/upgrades"
                | "/users"
                | "/users/{name}/sign-in-link"
                | "/users/{name}/tokens"
                | "/webhooks",
            ) => of("201", "403 permission_denied"),
            // Their bodies are no JSON text, so the status is all that is read.
            ("GET", "/events/stream" | "/audit/export") => of("200", "403"),
            _ => of("200", "403 permission_denied"),
        };
    }
    let whole = match () {
        () if route.path.contains("/job") => "200 code 9900403",
        () if route.path.contains("/api/v2/") => "403 code 1640301",
        () => "200 code 1306403",
    };
    match (method, route.path.rsplit('/').next().unwrap_or_default()) {
        (_, "register_proc_info" | "update_proc_info" | "unregister_proc_info" | "set_process_group_info")
        | ("POST" | "PUT" | "DELETE", "procinfo" | "groupinfo") => of("200 rows 0", "200 rows 403"),
        // Forbidden on its only target, an operation is refused as a whole.
        (
            _,
            "operate_proc" | "operate_process" | "manage_proc" | "operate_proc_v2" | "operate_proc_multi"
            | "multioperate",
        )
        | ("POST", "operate") => of("200 task open", whole),
        (_, "get_proc_operate_result" | "get_proc_operate_result_v2") | ("GET", "operate") => of("200 rows 115", whole),
        _ => of("200 code 0", whole),
    }
}

/// What the audit has of the app since; moves on to the newest entry.
async fn traces(world: &World, app: &str, since: &mut u64) -> Vec<AuditPhase> {
    let mut traces = Vec::new();
    loop {
        let query = AuditQuery { after: *since, limit: 1000, ..AuditQuery::default() };
        let entries = world.store.audit(&query).await.unwrap();
        let Some(last) = entries.last() else { return traces };
        *since = last.seq;
        traces.extend(entries.iter().filter(|entry| entry.draft.app == app).map(|entry| entry.draft.phase));
    }
}

/// One call of one route; what is wrong with its answer or its trace.
async fn check(world: &World, session: &Session, route: &RouteInfo, who: &Who, since: &mut u64) -> Result<(), String> {
    let id = prepare(world, route).await;
    let task = a_task(world, session, route).await;
    let checked = check_on(world, route, who, since, &task, &id).await;
    if is_rolling(route) {
        // Of those, a caller may have only so many that are not over.
        by_admin(world, Method::POST, &format!("/tasks/{task}/cancel"), json!({})).await;
    }
    checked
}

async fn check_on(
    world: &World,
    route: &RouteInfo,
    who: &Who,
    since: &mut u64,
    task: &str,
    id: &str,
) -> Result<(), String> {
    let (path, body) = sample(route, task, id).ok_or("has no sample here")?;
    traces(world, &who.app, since).await;

    let answer = call(world, &who.app, &route.method, &path, &body).await;

    let found = verdict(world, &answer).await;
    let has_class = route.class.is_none_or(|class| who.classes.contains(class));
    let Expected { allowed, refused } = expected(route, who);
    let wanted = if has_class { allowed } else { refused };
    let is_allowed = has_class && allowed != refused;
    if found != wanted {
        return Err(format!("answers {found}, not {wanted}, to {}: {}", who.app, answer.json));
    }
    let left = traces(world, &who.app, since).await;
    let is_done = left.iter().any(|phase| matches!(phase, AuditPhase::Done | AuditPhase::Ended));
    match (route.mutates, is_allowed) {
        (true, true) if !is_done => Err(format!("leaves no trace of {}", who.app)),
        (true, false) if left.is_empty() => Err(format!("leaves no trace of the refusal of {}", who.app)),
        (false, _) if is_done => Err(format!("changes nothing and has a trace of {}: {left:?}", who.app)),
        (true | false, true | false) => Ok(()),
    }
}

#[tokio::test]
async fn every_route_answers_every_role_exactly_and_every_change_leaves_its_trace() {
    let callers = callers();
    let world = world(&callers).await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    let (session, _other) = (world.connect(AGENT).await, world.connect("agent-2").await);
    let routes = api::routes();
    assert!(routes.len() > 100, "the tables are read: {}", routes.len());

    let (mut wrong, mut since) = (Vec::new(), 0);
    for route in routes {
        let what = format!("{} {}", route.method, route.path);
        let Some(class) = route.class else {
            let nobody =
                world.send(Request::builder().method(route.method).uri(&route.path).body(Body::empty()).unwrap()).await;
            if nobody.status != StatusCode::UNAUTHORIZED || route.mutates {
                wrong.push(format!("{what} is open to strangers: {}", nobody.json));
            }
            continue;
        };
        // "All but" one class tells only about routes that need that class.
        let concerned = |who: &&Who| !who.app.starts_with("all-but-") || !who.classes.contains(class);
        for who in callers.iter().filter(concerned) {
            if let Err(problem) = check(&world, &session, &route, who, &mut since).await {
                wrong.push(format!("{what} {problem}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn a_role_in_a_scope_counts_there_and_nowhere_else() {
    let world = World::new().await;
    world.app("web_team").await;
    world.bind("app:web_team", "owner", "namespace:web").await;
    let register = |namespace: &str| {
        let mut body = registered("m", "10.0.0.1");
        body["meta"]["namespace"] = json!(namespace);
        body
    };
    let path = format!("{ESB}/register_proc_info");
    let row = |answer: &Answer, namespace: &str| answer.data()[format!("0:7:10.0.0.1:{namespace}:m")].clone();

    let inside = call(&world, "web_team", &Method::POST, &path, &register("web")).await;
    let outside = call(&world, "web_team", &Method::POST, &path, &register("db")).await;

    assert_eq!(row(&inside, "web")["error_code"], 0);
    assert_eq!(row(&outside, "db")["error_code"], 403);
    let message = row(&outside, "db")["error_msg"].as_str().unwrap().to_owned();
    assert!(message.contains("register") && message.contains("web_team") && message.contains("db"), "{message}");
    let all = world.post(&format!("{ESB}/sync_proc_status"), json!({ "meta": { "namespace": "db" } })).await;
    assert_eq!(all.data()["count"], 0, "what was refused is not there");
    let entries = world.store.audit(&AuditQuery { limit: 1000, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(entries.last().unwrap().draft.phase, AuditPhase::Refused, "the audit tells what was refused");
    world.end().await;
}
