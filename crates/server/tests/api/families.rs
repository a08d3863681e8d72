//! The contract, capability by capability: the same request through every family that offers it gives
//! the same answer, in that family's envelope.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::support::{APP, Answer, SECRET, World, registered, spec};

const ESB: &str = "/api/c/compapi/v2/gse";
const GATEWAYS: [&str; 3] = ["/api/bk-gse/prod/api/v2", "/api/v2", "/api/c/compapi/v2/gse/api/v2"];
const JOBS: [&str; 2] = ["/api/c/compapi/v2/job", "/api/c/compapi/v2/jobv3"];
const AGENT: &str = "020000000052540a9b2c1641";

/// Where a capability is: its name on the ESB, on the gateway, and its method and path behind an ESB.
struct Capability {
    esb: Option<&'static str>,
    gateway: Option<&'static str>,
    backend: Option<(Method, &'static str)>,
}

impl Capability {
    const fn all(
        esb: Option<&'static str>,
        gateway: Option<&'static str>,
        backend: Option<(Method, &'static str)>,
    ) -> Self {
        Self { esb, gateway, backend }
    }

    /// Every way to call it, with and without a last slash.
    fn ways(&self) -> Vec<(Method, String)> {
        let esb = self.esb.into_iter().flat_map(|name| {
            let path = format!("{ESB}/{name}");
            [(Method::POST, path.clone()), (Method::GET, path)]
        });
        let gateway = self.gateway.into_iter();
        let gateway = gateway.flat_map(|name| GATEWAYS.map(|prefix| (Method::POST, format!("{prefix}/{name}"))));
        let backend = self.backend.clone().into_iter().map(|(method, path)| (method, format!("/procapi/{path}")));
        let ways = esb.chain(gateway).chain(backend);
        ways.flat_map(|(method, path)| [(method.clone(), format!("{path}/")), (method, path)]).collect()
    }
}

async fn call(world: &World, method: &Method, path: &str, body: &Value) -> Answer {
    let who = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin"});
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("X-Bkapi-Authorization", who.to_string())
        .body(Body::from(body.to_string()))
        .unwrap();
    world.send(request).await
}

/// The answer of every family, each checked for its envelope; `forget` undoes what a call did.
async fn everywhere(world: &World, capability: &Capability, body: &Value, check: impl Fn(&str, &Value)) {
    for (method, path) in capability.ways() {
        let answer = call(world, &method, &path, body).await;

        assert_eq!(answer.status, StatusCode::OK, "{method} {path}");
        let mut fields: Vec<&String> = answer.json.as_object().unwrap().keys().collect();
        fields.sort();
        assert_eq!(fields, ["code", "data", "message", "request_id", "result"], "{method} {path}");
        assert_eq!(answer.message(), "success");
        check(&format!("{method} {path}"), answer.data());
    }
}

fn here() -> Value {
    json!({"meta": {"namespace": "web", "name": "a"},
           "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_supplier_id": 7}]})
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

#[tokio::test]
async fn register() {
    let world = World::new().await;
    let capability = Capability::all(
        Some("register_proc_info"),
        Some("proc/register_proc_info"),
        Some((Method::POST, "v1/proc/procinfo")),
    );
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();

    everywhere(&world, &capability, &registered("a", "10.0.0.1"), |way, data| {
        assert_eq!(data["0:7:10.0.0.1:web:a"]["error_code"], 850, "{way}");
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn update() {
    let world = World::new().await;
    let capability = Capability::all(
        Some("update_proc_info"),
        Some("proc/update_proc_info"),
        Some((Method::PUT, "v1/proc/procinfo")),
    );

    everywhere(&world, &capability, &registered("a", "10.0.0.1"), |way, data| {
        assert_eq!(
            *data,
            json!({"0:7:10.0.0.1:web:a": {"error_code": 0, "error_msg": "success", "content": ""}}),
            "{way}"
        );
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn unregister() {
    let world = World::new().await;
    let capability = Capability::all(
        Some("unregister_proc_info"),
        Some("proc/unregister_proc_info"),
        Some((Method::DELETE, "v1/proc/procinfo")),
    );

    everywhere(&world, &capability, &here(), |way, data| {
        assert_eq!(data["0:7:10.0.0.1:web:a"]["error_code"], 829, "{way}");
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn operate_what_is_registered_and_read_the_result() {
    let world = World::new().await;
    let operate = Capability::all(Some("operate_proc"), None, Some((Method::POST, "v1/proc/operate")));
    let result = Capability::all(Some("get_proc_operate_result"), None, Some((Method::GET, "v1/proc/operate")));

    everywhere(&world, &operate, &with(here(), "op_type", json!(0)), |way, data| {
        assert!(data["task_id"].as_str().unwrap().starts_with("GSETASK:"), "{way}");
    })
    .await;
    let task = call(&world, &Method::POST, &format!("{ESB}/operate_proc"), &with(here(), "op_type", json!(0))).await;
    everywhere(&world, &result, &json!({"task_id": task.data()["task_id"]}), |way, data| {
        assert_eq!(data["0:7:10.0.0.1:web:a"]["error_code"], 65535, "{way}: it is not registered");
        let content: Value = serde_json::from_str(data["0:7:10.0.0.1:web:a"]["content"].as_str().unwrap()).unwrap();
        assert_eq!(content["value"].as_array().unwrap().len(), 1);
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn operate_with_a_spec_alone_and_in_batches_and_read_the_result() {
    let world = World::new().await;
    let one =
        Capability::all(Some("operate_proc_v2"), Some("proc/operate_proc_v2"), Some((Method::POST, "v2/proc/operate")));
    let batch = Capability::all(
        Some("operate_proc_multi"),
        Some("proc/operate_proc_multi"),
        Some((Method::POST, "v2/proc/multioperate")),
    );
    let result = Capability::all(
        Some("get_proc_operate_result_v2"),
        Some("proc/get_proc_operate_result_v2"),
        Some((Method::GET, "v2/proc/operate")),
    );
    let body =
        json!({"meta": {"namespace": "web", "name": "a"}, "op_type": 1, "spec": spec(), "agent_id_list": [AGENT]});
    let many = json!({"proc_operate_req": [body.clone()]});
    let has_task =
        |way: &str, data: &Value| assert!(data["task_id"].as_str().unwrap().starts_with("GSETASK:"), "{way}");

    everywhere(&world, &one, &body, has_task).await;
    everywhere(&world, &batch, &many, has_task).await;
    let task = call(&world, &Method::POST, &format!("{ESB}/operate_proc_multi"), &many).await;
    let task = task.data()["task_id"].clone();
    world.finished(&format!("{ESB}/get_proc_operate_result_v2"), &task).await;
    everywhere(&world, &result, &json!({"task_id": task}), |way, data| {
        let keys: Vec<&String> = data.as_object().unwrap().keys().collect();
        assert_eq!(keys, [&format!("{AGENT}:web:a")], "{way}");
        assert_eq!(data[keys[0]]["error_code"], 117, "{way}: its agent is not connected");
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn status_of_hosts_of_ids_and_of_a_namespace() {
    let world = World::new().await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();
    let by_host = Capability::all(Some("get_proc_status"), None, Some((Method::GET, "v1/proc/status")));
    let by_id = Capability::all(
        Some("get_proc_status_v2"),
        Some("proc/get_proc_status_v2"),
        Some((Method::GET, "v2/proc/status")),
    );
    let listed = Capability::all(
        Some("sync_proc_status"),
        Some("proc/sync_proc_status"),
        Some((Method::GET, "v1/proc/syncstatus")),
    );
    let ids = json!({"meta": {"namespace": "web", "name": "a"}, "agent_id_list": ["0:10.0.0.1"]});
    let page = json!({"meta": {"namespace": "web"}, "page": {"start": 0, "limit": 1000}});

    everywhere(&world, &by_host, &here(), |way, data| {
        let host = json!({"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_supplier_id": 7});
        assert_eq!(data["proc_infos"][0]["host"], host, "{way}");
        assert_eq!((&data["proc_infos"][0]["pid"], &data["proc_infos"][0]["isauto"]), (&json!(-1), &json!(false)));
    })
    .await;
    everywhere(&world, &by_id, &ids, |way, data| {
        assert_eq!(data["proc_infos"][0]["bk_agent_id"], "0:10.0.0.1", "{way}");
        assert!(data["proc_infos"][0]["host"].is_object());
    })
    .await;
    everywhere(&world, &listed, &page, |way, data| {
        assert_eq!((&data["count"], data["proc_infos"].as_array().unwrap().len()), (&json!(1), 1), "{way}");
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn groups() {
    let world = World::new().await;
    let set = Capability::all(
        Some("set_process_group_info"),
        Some("proc/set_process_group_info"),
        Some((Method::POST, "v1/proc/groupinfo")),
    );
    let get = Capability::all(
        Some("get_process_group_info"),
        Some("proc/get_process_group_info"),
        Some((Method::GET, "v1/proc/groupinfo")),
    );
    let limits = json!({"cpu_pool_limit": 20, "mem_pool_limit": 20, "cpu_pool_weight": 0, "mem_pool_weight": 1});
    let groups = json!({"process_group": [{"id": "web", "resource": limits}]});

    everywhere(&world, &set, &with(here(), "spec", groups), |way, data| {
        assert_eq!(
            *data,
            json!({"0:7:10.0.0.1:web": {"error_code": 0, "error_msg": "success", "content": ""}}),
            "{way}"
        );
    })
    .await;
    everywhere(&world, &get, &here(), |way, data| {
        assert_eq!(data["process_group_infos"][0]["id"], "web", "{way}");
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn agents_and_tasks_by_agents() {
    let world = World::new().await;
    let alive = Capability::all(Some("get_agent_status"), None, None);
    let info = Capability::all(Some("get_agent_info"), None, None);
    let states = Capability::all(None, Some("cluster/list_agent_state"), None);
    let infos = Capability::all(None, Some("cluster/list_agent_info"), None);
    let task_state = Capability::all(None, Some("task/get_task_state"), None);
    let bind = Capability::all(None, Some("proc/upgrade_to_agent_id"), None);
    let ids = json!({"agent_id_list": [AGENT]});
    let body = json!({"meta": {"namespace": "web", "name": "a"}, "op_type": 2, "agent_id_list": [AGENT]});
    let task = call(&world, &Method::POST, &format!("{ESB}/operate_proc_v2"), &body).await.data()["task_id"].clone();
    let upgrade = json!({"hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_agent_id": "upgraded-1"},
                                   {"ip": "10.9.9.9", "bk_cloud_id": 0, "bk_agent_id": "upgraded-2"}]});

    everywhere(&world, &alive, &here(), |way, data| assert_eq!(data["0:10.0.0.1"]["bk_agent_alive"], 0, "{way}")).await;
    everywhere(&world, &info, &here(), |way, data| assert_eq!(data["0:10.0.0.1"]["ip"], "10.0.0.1", "{way}")).await;
    everywhere(&world, &states, &ids, |way, data| assert_eq!(data[0]["status_code"], -2, "{way}")).await;
    everywhere(&world, &infos, &ids, |way, data| assert_eq!(data[0]["bk_host_ip"], "10.0.0.1", "{way}")).await;
    everywhere(&world, &task_state, &json!({"task_id": task, "agent_id_list": [AGENT]}), |way, data| {
        assert!(["pending", "failed"].contains(&data["result"]["state"].as_str().unwrap()), "{way}");
    })
    .await;
    everywhere(&world, &bind, &upgrade, |way, data| {
        assert_eq!(*data, json!({"success": ["0:10.0.0.1"], "failed": ["0:10.9.9.9"]}), "{way}");
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn a_host_answers_to_the_id_that_it_was_given() {
    let world = World::new().await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();
    let upgrade = json!({"hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_agent_id": "upgraded-1"}]});

    world.post("/api/v2/proc/upgrade_to_agent_id/", upgrade).await.data();
    let status = world
        .post(
            "/api/v2/proc/get_proc_status_v2",
            json!({"meta": {"namespace": "web", "name": "a"}, "agent_id_list": ["upgraded-1"]}),
        )
        .await;
    let states = world.post("/api/v2/cluster/list_agent_state", json!({"agent_id_list": ["0:10.0.0.1"]})).await;
    let stranger = json!({"hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_agent_id": "a b"}]});
    let bad = world.post("/api/v2/proc/upgrade_to_agent_id", stranger).await;

    assert_eq!(status.data()["proc_infos"][0]["bk_agent_id"], "upgraded-1");
    assert_eq!(states.data()[0]["bk_agent_id"], "upgraded-1");
    assert_eq!(*bad.data(), json!({"success": [], "failed": ["0:10.0.0.1"]}));
    world.end().await;
}

#[tokio::test]
async fn the_calls_of_job_in_both_of_its_places() {
    let world = World::new().await;
    let info = json!({"setup_path": "/data/nginx", "proc_name": "nginxd", "pid_path": "/data/nginx/n.pid",
                      "account": "root", "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]});
    let scope = json!({"bk_scope_type": "biz_set", "bk_scope_id": "3", "op_type": 2, "process_infos": [info]});
    let business = json!({"bk_biz_id": 2, "op_type": 2, "process_infos": [info]});

    for prefix in JOBS {
        for (name, body) in [("manage_proc", &scope), ("operate_process", &business), ("operate_proc", &business)] {
            let submitted = call(&world, &Method::POST, &format!("{prefix}/{name}/"), body).await;
            let task = submitted.data()["bk_gse_taskid"].clone();
            let result = json!({"bk_biz_id": 2, "bk_gse_taskid": task});
            let read = call(&world, &Method::POST, &format!("{prefix}/get_proc_result"), &result).await;

            assert_eq!((submitted.message(), &submitted.json["job_request_id"]), ("", &submitted.json["request_id"]));
            let rows = read.data()["result"].as_object().unwrap();
            assert_eq!(rows.keys().collect::<Vec<_>>(), ["/data/nginx/nginxd:0:10.0.0.1"], "{prefix}/{name}");
        }
    }
    world.end().await;
}
