//! What somebody may not see looks to them as if it were not there: no answer tells the two apart.

use axum::http::Method;
use proctor_store::{Business, Store};
use serde_json::{Value, json};

use crate::support::{ESB, GATEWAY, JOB, SECRET, World, on_host, registered};

const AGENT: &str = "020000000052540a9b2c1641";
const NO_AGENT: &str = "020000000052540a9b2c9999";
/// Of a task that was never made.
const NO_TASK: &str = "GSETASK:01a1e1aad079712ea5b3820efcbf9948";

/// The app `inside` owns business 3, and has a host there; 10.0.0.1 and its agent are in business 4.
async fn world() -> World {
    let world = World::new().await;
    for id in [3, 4] {
        world.store.put_business(Business { id, name: format!("b{id}") }).await.unwrap();
    }
    world.enrol("0:10.0.0.3", "agent-3").await;
    let placements = [("0:10.0.0.1".parse().unwrap(), Some(4)), ("0:10.0.0.3".parse().unwrap(), Some(3))];
    world.store.place_hosts(&placements).await.unwrap().unwrap();
    world.app("inside").await;
    world.bind("app:inside", "owner", "business:3").await;
    for ip in ["10.0.0.1", "10.0.0.3"] {
        world.post(&format!("{ESB}/register_proc_info"), registered("m", ip)).await.data();
    }
    world
}

async fn call(world: &World, method: &Method, path: &str, body: &Value) -> (u16, Value) {
    let credentials = json!({ "bk_app_code": "inside", "bk_app_secret": SECRET, "bk_username": "ana" });
    let answer = world.call(&credentials, method, path, body).await;
    (answer.status.as_u16(), answer.json)
}

/// The answer to a call about `name`, with what a task says of it, and without what is new in every answer.
async fn told(world: &World, (method, path, body): &(Method, String, Value), name: &str) -> String {
    let fill = |text: &str| text.replace("NAME", name);
    let body: Value = serde_json::from_str(&fill(&body.to_string())).unwrap();
    let (status, mut json) = call(world, method, &fill(path), &body).await;
    let made = json["data"].get("task_id").or_else(|| json.get("task_id")).cloned();
    if let Some(task) = made {
        let rows = format!("/api/v1/tasks/{}/targets", task.as_str().unwrap());
        let state = GATEWAY.replace("/proc", "/task") + "/get_task_state";
        let (_, rows) = call(world, &Method::GET, &rows, &json!({})).await;
        let (_, all) = call(world, &Method::POST, &state, &json!({ "task_id": task })).await;
        let one = json!({ "task_id": task, "agent_id_list": [if name.contains('.') { format!("0:{name}") } else { name.to_owned() }] });
        let (_, one) = call(world, &Method::POST, &state, &one).await;
        json = json!([rows, all["data"], one["data"], one["code"]]);
    }
    for id in ["request_id", "job_request_id"] {
        json.as_object_mut().map(|object| object.remove(id));
    }
    format!("{status} {json}").replace(name, "NAME")
}

fn native(method: Method, path: &str, body: Value) -> (Method, String, Value) {
    (method, format!("/api/v1{path}"), body)
}

/// Calls that name one host by its address.
fn by_address() -> Vec<(Method, String, Value)> {
    let post = |path: &str, body: Value| (Method::POST, format!("{ESB}/{path}"), body);
    let with = |mut body: Value, field: &str, value: Value| {
        body[field] = value;
        body
    };
    let here = || on_host("m", "NAME");
    let pool = json!({ "namespace": "web", "id": "web", "cpu": 20.0, "memory": 30.0,
                       "cpu_weight": "usage", "memory_weight": "usage" });
    let group = json!({ "process_group": [{ "id": "web", "resource": { "cpu_pool_limit": 50.0, "mem_pool_limit": 50.0,
                        "cpu_pool_weight": 0, "mem_pool_weight": 0 } }] });
    let hosts = || json!({ "hosts": ["0:NAME"] });
    let operation = |operation: &str| json!({ "operation": operation, "process": "web/m", "hosts": ["0:NAME"] });
    vec![
        post("register_proc_info", registered("m", "NAME")),
        post("update_proc_info", registered("m", "NAME")),
        post("unregister_proc_info", here()),
        post("operate_proc", with(here(), "op_type", json!(1))),
        post("operate_proc", with(here(), "op_type", json!(2))),
        post("operate_proc_v2", with(registered("m", "NAME"), "op_type", json!(0))),
        post("operate_proc_multi", json!({ "proc_operate_req": [with(here(), "op_type", json!(2))] })),
        post("get_proc_status", here()),
        post("get_process_group_info", here()),
        post("set_process_group_info", with(here(), "spec", group)),
        post("get_agent_status", here()),
        post("get_agent_info", here()),
        native(Method::GET, "/events?host=0:NAME", json!({})),
        native(Method::GET, "/events?host=0:NAME&namespace=web", json!({})),
        native(Method::GET, "/processes?host=0:NAME", json!({})),
        native(Method::GET, "/processes/web/m?host=0:NAME", json!({})),
        native(Method::GET, "/processes/web/m/history?host=0:NAME", json!({})),
        native(Method::GET, "/processes/web/m/diff?host=0:NAME", json!({})),
        native(Method::GET, "/pools?host=0:NAME&usage=true", json!({})),
        native(Method::POST, "/processes", registered("m", "NAME")),
        native(Method::POST, "/processes/plan", registered("m", "NAME")),
        native(Method::DELETE, "/processes/web/m", hosts()),
        native(Method::PUT, "/pools", json!({ "hosts": ["0:NAME"], "pools": [pool] })),
        native(Method::DELETE, "/pools/web/web", hosts()),
        native(Method::POST, "/operations", operation("stop")),
        native(Method::POST, "/operations", operation("status")),
        native(Method::DELETE, "/hosts/0:NAME", json!({})),
    ]
}

/// Calls that name one host by its agent.
fn by_agent() -> Vec<(Method, String, Value)> {
    let ids = || json!({ "agent_id_list": ["NAME"], "meta": { "namespace": "web", "name": "m" }, "op_type": 2 });
    let post = |path: &str, body: Value| (Method::POST, format!("{GATEWAY}/{path}"), body);
    let cluster = GATEWAY.replace("/proc", "/cluster");
    vec![
        post("operate_proc_v2", ids()),
        post("operate_proc_multi", json!({ "proc_operate_req": [ids()] })),
        post("get_proc_status_v2", ids()),
        (Method::POST, format!("{cluster}/list_agent_state"), ids()),
        (Method::POST, format!("{cluster}/list_agent_info"), ids()),
        native(Method::GET, "/events?host=NAME", json!({})),
        native(Method::GET, "/processes/web/m/history?host=NAME", json!({})),
        native(Method::POST, "/operations", json!({ "operation": "stop", "process": "web/m", "hosts": ["NAME"] })),
    ]
}

/// Calls that name a task.
fn by_task() -> Vec<(Method, String, Value)> {
    let result = json!({ "task_id": "NAME" });
    vec![
        (Method::POST, format!("{ESB}/get_proc_operate_result"), result.clone()),
        (Method::POST, format!("{GATEWAY}/get_proc_operate_result_v2"), result),
        (Method::POST, format!("{JOB}/get_proc_result"), json!({ "bk_biz_id": 3, "bk_gse_taskid": "NAME" })),
        native(Method::GET, "/tasks/NAME", json!({})),
        native(Method::GET, "/tasks/NAME/targets", json!({})),
        native(Method::POST, "/tasks/NAME/cancel", json!({})),
        native(Method::POST, "/tasks/NAME/resume", json!({})),
        native(Method::POST, "/tasks/NAME/retry", json!({})),
    ]
}

async fn differences(world: &World, calls: &[(Method, String, Value)], there: &str, missing: &str) -> Vec<String> {
    let mut different = Vec::new();
    for call in calls {
        let (hidden, unknown) = (told(world, call, there).await, told(world, call, missing).await);
        if hidden != unknown {
            different.push(format!("{} {}\n  there   {hidden}\n  missing {unknown}", call.0, call.1));
        }
    }
    different
}

#[tokio::test]
async fn a_host_or_task_that_somebody_may_not_see_looks_like_one_that_is_not_there() {
    let world = world().await;
    let stop = json!({ "operation": "stop", "process": "web/m", "hosts": ["0:10.0.0.1"] });
    let admin = json!({ "bk_app_code": "sample_app", "bk_app_secret": SECRET, "bk_username": "admin" });
    let made = world.call(&admin, &Method::POST, "/api/v1/operations", &stop).await.json["task_id"].clone();

    let mut different = differences(&world, &by_address(), "10.0.0.1", "10.0.0.9").await;
    different.extend(differences(&world, &by_agent(), AGENT, NO_AGENT).await);
    different.extend(differences(&world, &by_task(), made.as_str().unwrap(), NO_TASK).await);

    assert!(different.is_empty(), "{}", different.join("\n"));
    world.end().await;
}

/// The other side: who may touch a host that is not known is told that it is not.
#[tokio::test]
async fn an_unknown_host_is_told_to_who_could_touch_it() {
    let world = world().await;
    world.store.place_hosts(&[("0:10.0.0.7".parse().unwrap(), Some(3))]).await.unwrap().unwrap();
    let stop = |ip: &str| {
        let body = json!({ "operation": "stop", "process": "web/m", "hosts": [format!("0:{ip}")] });
        native(Method::POST, "/operations", body)
    };

    let placed = told(&world, &stop("10.0.0.7"), "NAME").await;
    let elsewhere = told(&world, &stop("10.0.0.9"), "NAME").await;

    assert!(placed.contains("has never enrolled an agent"), "{placed}");
    assert!(elsewhere.contains("may not operate in namespace web on host 0:10.0.0.9"), "{elsewhere}");
    world.end().await;
}
