//! What somebody may not see looks as if it did not exist: no answer tells the two apart.

use axum::http::Method;
use proctor_store::Business;
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
    // Hidden ids must not be told either.
    let alias = "020000000052540a9b2c0001".parse().unwrap();
    world.store.bind_agent_ids(&[("0:10.0.0.1".parse().unwrap(), alias)]).await.unwrap();
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

/// The answer to a call about `name`, with what its task says, and without what changes with every answer.
async fn told(world: &World, (method, path, body): &(Method, String, Value), name: &str) -> String {
    let fill = |text: &str| text.replace("NAME", name);
    let body: Value = serde_json::from_str(&fill(&body.to_string())).unwrap();
    let (status, mut json) = call(world, method, &fill(path), &body).await;
    let in_data = json["data"].get("task_id").or_else(|| json["data"].get("bk_gse_taskid"));
    let made = in_data.or_else(|| json.get("task_id")).cloned();
    if let Some(task) = made {
        let rows = format!("/api/v1/tasks/{}/targets", task.as_str().unwrap());
        let state = GATEWAY.replace("/proc", "/task") + "/get_task_state";
        let (_, rows) = call(world, &Method::GET, &rows, &json!({})).await;
        let (_, all) = call(world, &Method::POST, &state, &json!({ "task_id": task })).await;
        let result = format!("{GATEWAY}/get_proc_operate_result_v2");
        let (_, result) = call(world, &Method::POST, &result, &json!({ "task_id": task })).await;
        let one = json!({ "task_id": task, "agent_id_list": [if name.contains('.') { format!("0:{name}") } else { name.to_owned() }] });
        let (_, one) = call(world, &Method::POST, &state, &one).await;
        json = json!([rows, all["data"], result["data"], one["data"], one["code"]]);
    }
    for id in ["request_id", "job_request_id"] {
        json.as_object_mut().map(|object| object.remove(id));
    }
    without_times(format!("{status} {json}").replace(name, "NAME"))
}

/// The two answers may come in different seconds.
fn without_times(mut text: String) -> String {
    for label in [r#"\"utctime\":\""#, r#"\"utctime2\":\""#] {
        let begins: Vec<usize> = text.match_indices(label).map(|(at, _)| at + label.len()).collect();
        for begin in begins {
            text.replace_range(begin..begin + "2026-11-16 07:34:42".len(), "2026-11-16 00:00:00");
        }
    }
    text
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
        post("operate_proc", with(here(), "op_type", json!(6))),
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
        native(Method::GET, "/processes/web/m/usage?host=0:NAME", json!({})),
        native(Method::GET, "/processes/web/m/log?host=0:NAME", json!({})),
        native(Method::GET, "/processes/web/m/diff?host=0:NAME", json!({})),
        native(Method::GET, "/pools?host=0:NAME&usage=true", json!({})),
        native(Method::POST, "/processes", registered("m", "NAME")),
        native(Method::POST, "/processes/plan", registered("m", "NAME")),
        native(Method::DELETE, "/processes/web/m", hosts()),
        native(Method::POST, "/processes/web/m/unregister/plan", hosts()),
        native(Method::PUT, "/pools", json!({ "hosts": ["0:NAME"], "pools": [pool] })),
        native(Method::POST, "/pools/plan", json!({ "hosts": ["0:NAME"], "pools": [pool] })),
        native(Method::DELETE, "/pools/web/web", hosts()),
        native(Method::POST, "/pools/web/web/delete/plan", hosts()),
        native(Method::POST, "/operations", operation("stop")),
        native(Method::POST, "/operations", operation("status")),
        // Beside a host that may be touched, so that there is a task with rows.
        native(
            Method::POST,
            "/operations",
            json!({ "operation": "stop", "process": "web/m", "hosts": ["0:NAME", "0:10.0.0.3"] }),
        ),
        native(
            Method::POST,
            "/operations",
            json!({ "operation": "status", "process": "web/m", "hosts": ["0:NAME", "0:10.0.0.3"] }),
        ),
        native(Method::DELETE, "/hosts/0:NAME", json!({})),
        job(3, json!([{ "bk_cloud_id": 0, "ip": "NAME" }])),
        job(4, json!([{ "bk_cloud_id": 0, "ip": "NAME" }])),
        job(3, json!([{ "bk_cloud_id": 0, "ip": "NAME" }, { "bk_cloud_id": 0, "ip": "10.0.0.3" }])),
        job(4, json!([{ "bk_cloud_id": 0, "ip": "NAME" }, { "bk_cloud_id": 0, "ip": "10.0.0.3" }])),
    ]
}

fn job(business: u64, hosts: Value) -> (Method, String, Value) {
    let process = json!({ "setup_path": "/data/nginx/", "proc_name": "nginxd", "pid_path": "/data/nginx/n.pid",
                          "func_id": "f", "ip_list": hosts });
    let body = json!({ "bk_biz_id": business, "op_type": 1, "process_infos": [process] });
    (Method::POST, format!("{JOB}/operate_process"), body)
}

/// Calls that name one host by its agent.
fn by_agent() -> Vec<(Method, String, Value)> {
    let ids = || json!({ "agent_id_list": ["NAME"], "meta": { "namespace": "web", "name": "m" }, "op_type": 2 });
    let post = |path: &str, body: Value| (Method::POST, format!("{GATEWAY}/{path}"), body);
    let cluster = GATEWAY.replace("/proc", "/cluster");
    let no_operation = json!({ "agent_id_list": ["NAME"], "meta": { "namespace": "web", "name": "m" }, "op_type": 6 });
    vec![
        post("operate_proc_v2", no_operation),
        post("operate_proc_v2", ids()),
        post("operate_proc_multi", json!({ "proc_operate_req": [ids()] })),
        post("get_proc_status_v2", ids()),
        (Method::POST, format!("{cluster}/list_agent_state"), ids()),
        (Method::POST, format!("{cluster}/list_agent_info"), ids()),
        native(Method::GET, "/events?host=NAME", json!({})),
        native(Method::GET, "/processes/web/m/history?host=NAME", json!({})),
        native(Method::GET, "/processes/web/m/usage?host=NAME&range=7d", json!({})),
        native(Method::GET, "/processes/web/m/log?host=NAME", json!({})),
        native(Method::POST, "/operations", json!({ "operation": "stop", "process": "web/m", "hosts": ["NAME"] })),
        native(
            Method::POST,
            "/operations",
            json!({ "operation": "stop", "process": "web/m", "hosts": ["NAME", "0:10.0.0.3"] }),
        ),
        native(
            Method::POST,
            "/operations",
            json!({ "operation": "status", "process": "web/m", "hosts": ["NAME", "0:10.0.0.3"] }),
        ),
    ]
}

/// Calls that name one host twice, by its address and by its agent.
fn by_both() -> Vec<(Method, String, Value)> {
    let hosts = || json!(["0:NAME", "AGENT"]);
    let ids = |op: u32| {
        let meta = json!({ "namespace": "web", "name": "m" });
        json!({ "agent_id_list": ["0:NAME", "AGENT"], "meta": meta, "op_type": op })
    };
    let pool = json!({ "namespace": "web", "id": "web", "cpu": 20.0, "memory": 30.0,
                       "cpu_weight": "usage", "memory_weight": "usage" });
    let post = |body: Value| (Method::POST, format!("{GATEWAY}/operate_proc_v2"), body);
    let operation = |name: &str| json!({ "operation": name, "process": "web/m", "hosts": hosts() });
    let exact = json!([{ "process": "web/m", "host": "0:NAME" }, { "process": "web/m", "host": "AGENT" }]);
    vec![
        post(ids(1)),
        post(ids(2)),
        post(ids(6)),
        (Method::POST, format!("{GATEWAY}/get_proc_status_v2"), ids(2)),
        native(Method::POST, "/operations", operation("stop")),
        native(Method::POST, "/operations", operation("status")),
        native(Method::POST, "/operations", json!({ "operation": "status", "targets": exact })),
        native(
            Method::POST,
            "/operations",
            json!({ "operation": "stop", "process": "web/m", "hosts": ["0:NAME", "AGENT", "0:10.0.0.3"] }),
        ),
        native(Method::DELETE, "/processes/web/m", json!({ "hosts": hosts() })),
        native(Method::POST, "/processes/web/m/unregister/plan", json!({ "hosts": hosts() })),
        native(Method::PUT, "/pools", json!({ "hosts": hosts(), "pools": [pool] })),
        native(Method::POST, "/pools/plan", json!({ "hosts": hosts(), "pools": [pool] })),
        native(Method::DELETE, "/pools/web/web", json!({ "hosts": hosts() })),
        native(Method::POST, "/pools/web/web/delete/plan", json!({ "hosts": hosts() })),
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
        native(Method::POST, "/tasks/NAME/pause", json!({})),
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

    let mut different = differences(&world, &by_address(), "10.0.0.1", "10.0.0.2").await;
    different.extend(differences(&world, &by_agent(), AGENT, NO_AGENT).await);
    different.extend(differences(&world, &by_task(), made.as_str().unwrap(), NO_TASK).await);

    assert!(different.is_empty(), "{}", different.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn two_names_of_a_hidden_host_look_like_two_hosts_that_are_not_there() {
    let world = world().await;
    let mut different = Vec::new();
    for (method, path, body) in by_both() {
        let told = async |address: &str, agent: &str| {
            let body = serde_json::from_str(&body.to_string().replace("AGENT", agent)).unwrap();
            told(&world, &(method.clone(), path.clone(), body), address).await.replace(agent, "AGENT")
        };
        let (hidden, unknown) = (told("10.0.0.1", AGENT).await, told("10.0.0.2", NO_AGENT).await);
        if hidden != unknown {
            different.push(format!("{method} {path}\n  there   {hidden}\n  missing {unknown}"));
        }
    }

    assert!(different.is_empty(), "{}", different.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn a_task_does_not_tell_the_address_of_an_agent_that_was_refused() {
    let world = world().await;
    let state = GATEWAY.replace("/proc", "/task") + "/get_task_state";
    let told = async |address: &str, agent: &str| {
        let body = json!({ "operation": "stop", "process": "web/m", "hosts": [agent, "0:10.0.0.3"] });
        let (_, made) = call(&world, &Method::POST, "/api/v1/operations", &body).await;
        assert!(made["task_id"].is_string(), "{made}");
        let asked = json!({ "task_id": made["task_id"], "agent_id_list": [format!("0:{address}")] });
        let (status, mut json) = call(&world, &Method::POST, &state, &asked).await;
        json.as_object_mut().unwrap().remove("request_id");
        format!("{status} {json}").replace(address, "ADDRESS")
    };

    assert_eq!(told("10.0.0.1", AGENT).await, told("10.0.0.2", NO_AGENT).await);
    world.end().await;
}

/// The other side: callers who may touch an unknown host are told that it is unknown.
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
