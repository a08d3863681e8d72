//! Every route there is, from the router's own tables: who may not is refused, who may is let in, and
//! what changes something leaves its trace. A route without a sample here fails.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_model::{Class, Code, Role, TaskId};
use proctor_server::api::{self, RouteInfo};
use proctor_store::{AuditPhase, AuditQuery, Store};
use serde_json::{Value, json};

use crate::support::{Answer, ESB, SECRET, World, on_host, registered};

const HOST: &str = "0:10.0.0.1";
/// One that may go.
const SPARE_HOST: &str = "0:10.0.0.8";
const NOBODY: &str = "nobody";

/// A world with an app for each class, which has that class alone, everywhere, and one that has none.
async fn world() -> World {
    let world = World::new().await;
    for class in Class::ALL {
        let role = Role { name: format!("only-{class}").parse().unwrap(), classes: [class].into_iter().collect() };
        world.store.put_role(role).await.unwrap().unwrap();
        world.app(&only(class)).await;
        world.bind(&format!("app:{}", only(class)), &format!("only-{class}"), "everything").await;
    }
    world.app(NOBODY).await;
    world.enrol(SPARE_HOST, "spare-agent").await;
    world.post(&format!("{ESB}/register_proc_info"), registered("m", "10.0.0.1")).await.data();
    world
}

fn only(class: Class) -> String {
    format!("app_{class}")
}

/// Registers what the samples carry, whatever the routes before have done to it.
async fn register_samples(world: &World, route: &RouteInfo) {
    world.post(&format!("{ESB}/update_proc_info"), registered("m", "10.0.0.1")).await.data();
    let name = route.path.rsplit('/').next().unwrap();
    if route.path.contains("/job") && name != "get_proc_result" {
        world.post(&route.path, job(if name == "manage_proc" { 1 } else { 3 })).await.data();
    }
}

/// A task that waits for its host; for a retry, one that has failed.
async fn a_task(world: &World, route: &RouteInfo) -> String {
    let name = if route.path.ends_with("/retry") { "absent" } else { "m" };
    let mut body = on_host(name, "10.0.0.1");
    body["op_type"] = json!(1);
    let answer = world.post(&format!("{ESB}/operate_proc"), body).await;
    answer.data()["task_id"].as_str().unwrap().to_owned()
}

/// A request that is well formed for the route; None where nobody has thought of one.
fn sample(route: &RouteInfo, task: &str) -> Option<(String, Value)> {
    let (area, name) = match route.path.strip_prefix("/api/v1") {
        Some(rest) => ("native", rest),
        None => ("compatible", route.path.rsplit('/').next()?),
    };
    if area == "native" {
        return native_sample(&route.method, name, task);
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
        "proc_name": "m", "setup_path": "/data/m", "pid_path": "/data/m/m.pid", "start_cmd": "./a", "stop_cmd": "./b",
        "ip_list": [{ "bk_cloud_id": 0, "ip": "10.0.0.1" }],
    });
    json!({ "bk_biz_id": 2, "op_type": op_type, "process_infos": [process] })
}

fn native_sample(method: &Method, path: &str, task: &str) -> Option<(String, Value)> {
    let id = "0193a0a0-0000-7000-8000-000000000001";
    let hosts = json!({ "hosts": [HOST] });
    let body = match (method.as_str(), path) {
        ("GET", "/processes/{namespace}/{name}/diff") => {
            return Some((format!("/api/v1/processes/web/m/diff?host={HOST}"), json!({})));
        }
        ("GET", "/processes/{namespace}/{name}/history") => {
            return Some((format!("/api/v1/processes/web/m/history?host={HOST}"), json!({})));
        }
        ("GET", _) => json!({}),
        ("POST", "/apps") => json!({ "code": "made_by_the_matrix" }),
        ("POST", "/bindings") => json!({ "role": "viewer", "subject": "app:x", "scope": "everything" }),
        ("PUT", "/business-sets/{id}") => json!({ "name": "all", "members": [] }),
        ("PUT", "/businesses/{id}") => json!({ "name": "games" }),
        ("POST", "/hosts/import") => json!([{ "cloud": 0, "ip": "10.0.0.9", "business": 7, "business_name": "games" }]),
        ("PUT", "/hosts/placements") => json!({ "hosts": ["0:10.0.0.9"], "business": null }),
        ("POST", "/operations") => json!({ "operation": "stop", "process": "web/m", "hosts": [HOST] }),
        ("PUT", "/pools") => {
            json!({ "hosts": [HOST], "pools": [{ "namespace": "web", "id": "web", "cpu": 20.0, "memory": 30.0,
                    "cpu_weight": "usage", "memory_weight": "usage" }] })
        }
        ("POST", "/processes" | "/processes/plan") => registered("m", "10.0.0.1"),
        ("DELETE", "/processes/{namespace}/{name}" | "/pools/{namespace}/{id}") => hosts,
        ("PUT", "/roles/{name}") => json!({ "classes": ["read"] }),
        ("POST", "/hosts/{host}/rejoin") => json!({ "ttl_secs": 60 }),
        ("POST", "/tokens") => json!({ "uses": 1, "ttl_secs": 60 }),
        ("POST", "/users") => json!({ "name": "m" }),
        ("POST", "/users/{name}/tokens") => json!({ "note": "x" }),
        ("PUT", "/users/{name}") => json!({ "disabled": false }),
        ("POST", "/webhooks") => json!({ "url": "http://127.0.0.1:9/" }),
        ("POST", "/tasks/{task_id}/cancel" | "/tasks/{task_id}/retry" | "/tasks/{task_id}/resume") => json!({}),
        ("POST", "/apps/{code}/secret") | ("DELETE", _) => json!({}),
        _ => return None,
    };
    let path = path
        .replace("{task_id}", task)
        .replace("{namespace}", "web")
        .replace("{host}", SPARE_HOST)
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
    let request = Request::builder()
        .method(method.clone())
        .uri(path)
        .header("X-Bkapi-Authorization", credentials.to_string())
        .body(Body::from(if *body == json!({}) { String::new() } else { body.to_string() }))
        .unwrap();
    if path.contains("/events/stream") || path.contains("/audit/export") {
        // Not one JSON text; the status says enough.
        use tower::ServiceExt;
        let response = world.router.clone().oneshot(request).await.unwrap();
        return Answer { status: response.status(), headers: response.headers().clone(), json: Value::Null };
    }
    world.send(request).await
}

/// As a whole, in every row, or in every target of the task that was made.
async fn is_refused(world: &World, answer: &Answer) -> bool {
    const CODES: [i64; 3] = [1_306_403, 9_900_403, 1_640_301];
    let json = &answer.json;
    if answer.status == StatusCode::FORBIDDEN || json["code"].as_i64().is_some_and(|code| CODES.contains(&code)) {
        return true;
    }
    let data = &json["data"];
    let tasks = [&data["task_id"], &data["bk_gse_taskid"], &json["task_id"]];
    if let Some(task) = tasks.into_iter().find_map(|task| task.as_str()?.parse::<TaskId>().ok()) {
        let view = world.store.task(task).await.unwrap().unwrap();
        return view.targets.iter().all(|t| t.outcome.as_ref().is_some_and(|o| o.code == Code::Forbidden));
    }
    let native = json["rows"].as_array().map(|rows| rows.iter().map(|row| &row["code"]).collect::<Vec<_>>());
    let rows = data.as_object().map(|rows| rows.values().map(|row| &row["error_code"]).collect::<Vec<_>>());
    native.or(rows).is_some_and(|codes| !codes.is_empty() && codes.iter().all(|code| **code == json!(403)))
}

async fn newest_entry(world: &World) -> u64 {
    let query = AuditQuery { limit: 100_000, ..AuditQuery::default() };
    world.store.audit(&query).await.unwrap().last().map_or(0, |entry| entry.seq)
}

/// Whether the app has left a trace of these phases since.
async fn has_trace(world: &World, app: &str, since: u64, phases: &[AuditPhase]) -> bool {
    let query = AuditQuery { after: since, limit: 1000, ..AuditQuery::default() };
    let entries = world.store.audit(&query).await.unwrap();
    entries.iter().any(|entry| entry.draft.app == app && phases.contains(&entry.draft.phase))
}

#[tokio::test]
async fn every_route_asks_who_may_and_every_change_leaves_its_trace() {
    let world = world().await;
    let routes = api::routes();
    assert!(routes.len() > 100, "the tables are read: {}", routes.len());

    let mut wrong = Vec::new();
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
        register_samples(&world, &route).await;
        let task = a_task(&world, &route).await;
        let Some((path, body)) = sample(&route, &task) else {
            wrong.push(format!("{what} has no sample here"));
            continue;
        };

        let refused = call(&world, NOBODY, &route.method, &path, &body).await;
        if !is_refused(&world, &refused).await {
            wrong.push(format!("{what} lets everybody in: {}", refused.json));
        }

        let before = newest_entry(&world).await;
        let app = only(class);
        let allowed = call(&world, &app, &route.method, &path, &body).await;
        if is_refused(&world, &allowed).await || allowed.status == StatusCode::BAD_REQUEST {
            wrong.push(format!("{what} refuses class {class}: {}", allowed.json));
        }
        let done = [AuditPhase::Done, AuditPhase::Ended];
        if route.mutates && !has_trace(&world, &app, before, &done).await {
            wrong.push(format!("{what} leaves no trace: {}", allowed.json));
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
    assert!(entries.last().unwrap().draft.outcome.ends_with("; 1 forbidden"), "the audit tells what was refused");
    world.end().await;
}
