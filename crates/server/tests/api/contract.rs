//! Rows of the contract that hold for every family: repeated or impossible targets, empty lists, schedules, what a
//! spec omits, bound ids, and groups.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use proctor_model::{Outcome, Spec};
use proctor_server::control::Session;
use proctor_store::ProcessQuery;
use serde_json::{Value, json};

use crate::support::{APP, Answer, ESB, GATEWAY, JOB, SECRET, World, greeting, on_host, registered, spec};

const AGENT: &str = "020000000052540a9b2c1641";
const BOUND: &str = "020000000242010a00002f17521298676503";

/// The second generation's operations, in every family.
const OPERATE: [&str; 3] = [
    "/api/c/compapi/v2/gse/operate_proc_v2",
    "/api/bk-gse/prod/api/v2/proc/operate_proc_v2",
    "/procapi/v2/proc/operate",
];
const BATCH: [&str; 3] = [
    "/api/c/compapi/v2/gse/operate_proc_multi",
    "/api/bk-gse/prod/api/v2/proc/operate_proc_multi",
    "/procapi/v2/proc/multioperate",
];
const UPDATE: [(Method, &str); 3] = [
    (Method::POST, "/api/c/compapi/v2/gse/update_proc_info"),
    (Method::POST, "/api/bk-gse/prod/api/v2/proc/update_proc_info"),
    (Method::PUT, "/procapi/v1/proc/procinfo"),
];
const STATUS: [(Method, &str); 3] = [
    (Method::POST, "/api/c/compapi/v2/gse/get_proc_status_v2"),
    (Method::POST, "/api/bk-gse/prod/api/v2/proc/get_proc_status_v2"),
    (Method::GET, "/procapi/v2/proc/status"),
];
const RESULT: &str = "/api/c/compapi/v2/gse/get_proc_operate_result_v2";

async fn call(world: &World, method: &Method, path: &str, body: &Value) -> Answer {
    let who = json!({"bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin"});
    let request = Request::builder().method(method).uri(path).header("X-Bkapi-Authorization", who.to_string());
    world.send(request.body(Body::from(body.to_string())).unwrap()).await
}

async fn post(world: &World, path: &str, body: &Value) -> Answer {
    call(world, &Method::POST, path, body).await
}

async fn connected(world: &World, agent: &str) -> Arc<Session> {
    world.control.open_session(greeting(&agent.parse().unwrap())).await.unwrap().unwrap()
}

/// An operation with a spec on these agent ids.
fn by_ids(op_type: i64, ids: &[&str]) -> Value {
    json!({"meta": {"namespace": "web", "name": "a", "labels": {"tier": "1"}}, "op_type": op_type,
        "agent_id_list": ids, "spec": spec()})
}

fn info() -> Value {
    json!({"setup_path": "/d", "proc_name": "n", "pid_path": "/d/n.pid", "type": 1, "value_key": "k",
        "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]})
}

fn job(op_type: i64, infos: Value) -> Value {
    json!({"bk_biz_id": 2, "op_type": op_type, "process_infos": infos})
}

fn keys(rows: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = rows.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

async fn rows_of(world: &World, submitted: &Answer) -> Value {
    let task = submitted.data()["task_id"].clone();
    post(world, RESULT, &json!({"task_id": task})).await.data().clone()
}

async fn stored(world: &World, name: &str) -> Arc<Spec> {
    let query = ProcessQuery { name: Some(name.parse().unwrap()), ..ProcessQuery::default() };
    world.store.processes(&query).await.unwrap().1[0].spec.clone()
}

#[tokio::test]
async fn a_target_that_is_repeated_with_the_same_request_is_one_row() {
    let world = World::new().await;

    for path in BATCH {
        let item = by_ids(1, &["0:10.0.0.1", "0:10.0.0.1"]);
        let submitted = post(&world, path, &json!({"proc_operate_req": [item, item]})).await;
        assert_eq!(keys(&rows_of(&world, &submitted).await), ["0:10.0.0.1:web:a"], "{path}");
    }
    let host = json!({"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_supplier_id": 7});
    let mut twice = registered("b", "10.0.0.1");
    twice["hosts"] = json!([host, host]);
    let register = post(&world, &format!("{ESB}/register_proc_info"), &twice).await;
    assert_eq!(register.data()["0:7:10.0.0.1:web:b"]["error_code"], 0, "not 850 by its own repetition");
    world.end().await;
}

#[tokio::test]
async fn a_target_that_is_repeated_with_another_request_is_refused_by_both_places() {
    let world = World::new().await;
    let (start, stop) = (by_ids(0, &["0:10.0.0.1"]), by_ids(1, &["0:10.0.0.1"]));
    let mut other = info();
    other["stop_cmd"] = json!("./stop.sh");

    for path in BATCH {
        let answer = post(&world, path, &json!({"proc_operate_req": [start, stop]})).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::OK, 1_306_406), "{path}");
        assert_eq!(
            answer.message(),
            "proc_operate_req[1].agent_id_list[0]: target 0:10.0.0.1:web:a is also at \
             proc_operate_req[0].agent_id_list[0], with another operation or spec"
        );
    }
    let answer = post(&world, &format!("{JOB}/operate_process"), &job(0, json!([info(), other]))).await;
    assert_eq!(answer.code(), 1_241_002);
    assert_eq!(
        answer.message(),
        "process_infos[1].ip_list[0]: target k:0:10.0.0.1 is also at process_infos[0].ip_list[0], \
         with another operation or spec"
    );
    assert!(world.store.task_ids(10).await.unwrap().is_empty(), "nothing was begun");
    world.end().await;
}

#[tokio::test]
async fn a_host_under_two_names_runs_once_and_answers_under_both() {
    let world = World::new().await;
    let session = connected(&world, AGENT).await;

    for path in OPERATE {
        let submitted = post(&world, path, &by_ids(1, &["0:10.0.0.1", AGENT])).await;
        let deliveries = world.control.take_deliveries(&session, 10);
        assert_eq!(deliveries.len(), 1, "{path}");
        world.control.arrived(&session, deliveries[0].operation, Outcome::success(false)).await.unwrap();
        let rows = world.finished(RESULT, &submitted.data()["task_id"]).await;
        let (by_address, by_id) = ("0:10.0.0.1:web:a", format!("{AGENT}:web:a"));
        assert_eq!(keys(&rows), [&*by_id, by_address], "{path}");
        assert_eq!(rows[by_address], rows[&by_id]);
        assert_eq!(rows[by_address]["error_code"], 0);
    }
    let contradicting = json!({"proc_operate_req": [by_ids(1, &["0:10.0.0.1"]), by_ids(9, &[AGENT])]});
    let refused = post(&world, BATCH[0], &contradicting).await;
    assert_eq!(refused.code(), 1_306_406, "{}", refused.json);
    assert_eq!(
        refused.message(),
        format!("targets 0:10.0.0.1:web:a and {AGENT}:web:a are one host, with different operations or specs")
    );
    let mut both = registered("b", "10.0.0.1");
    both["hosts"] =
        json!([{"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_supplier_id": 1}, {"ip": "10.0.0.1", "bk_cloud_id": 0}]);
    let register = post(&world, &format!("{ESB}/register_proc_info"), &both).await;
    for key in ["0:1:10.0.0.1:web:b", "0:0:10.0.0.1:web:b"] {
        assert_eq!(register.data()[key]["error_code"], 0, "{key}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_target_that_can_be_none_fails_alone() {
    let world = World::new().await;
    let session = connected(&world, AGENT).await;

    for path in OPERATE {
        let submitted = post(&world, path, &by_ids(1, &["0:10.0.0.1", "0:"])).await;
        assert_eq!(world.control.take_deliveries(&session, 10).len(), 1, "{path}");
        let rows = rows_of(&world, &submitted).await;
        assert_eq!(rows["0:10.0.0.1:web:a"]["error_code"], 115);
        assert_eq!(rows["0::web:a"]["error_code"], 117);
        assert_eq!(rows["0::web:a"]["error_msg"], "'0:' is neither an IP address nor an agent id");
    }
    let mut both = registered("b", "");
    both["hosts"] = json!([{"ip": "", "bk_cloud_id": 0}, {"ip": "10.0.0.1", "bk_cloud_id": 0}]);
    for (method, path) in UPDATE {
        let rows = call(&world, &method, path, &both).await.data().clone();
        assert_eq!(
            (&rows["0:0::web:b"]["error_code"], &rows["0:0:10.0.0.1:web:b"]["error_code"]),
            (&json!(117), &json!(0))
        );
    }
    let mut unusable = info();
    unusable["ip_list"] = json!([{"bk_cloud_id": 0, "ip": ""}, {"bk_cloud_id": 0, "ip": "10.0.0.1"}]);
    let submitted = post(&world, &format!("{JOB}/operate_process"), &job(2, json!([unusable]))).await;
    let result = json!({"bk_biz_id": 2, "bk_gse_taskid": submitted.data()["bk_gse_taskid"]});
    let rows = post(&world, &format!("{JOB}/get_proc_result"), &result).await.data()["result"].clone();
    assert_eq!((&rows["k:0:"]["error_code"], &rows["k:0:10.0.0.1"]["error_code"]), (&json!(117), &json!(115)));
    for (method, path) in STATUS {
        let query = json!({"meta": {"namespace": "web", "name": "b"}, "agent_id_list": ["0:", "0:10.0.0.1"]});
        let infos = call(&world, &method, path, &query).await.data()["proc_infos"].clone();
        assert_eq!(infos.as_array().unwrap().len(), 1, "{path}");
    }
    let alive =
        post(&world, &format!("{ESB}/get_agent_status"), &json!({"hosts": [{"ip": "", "bk_cloud_id": 3}]})).await;
    assert_eq!(*alive.data(), json!({"3:": {"ip": "", "bk_cloud_id": 3, "bk_agent_alive": 0}}));
    world.end().await;
}

#[tokio::test]
async fn a_query_of_no_host_is_answered_with_nothing_and_an_operation_is_refused() {
    let world = World::new().await;
    let nobody = json!({"meta": {"namespace": "web", "name": "a"}, "agent_id_list": []});

    for (method, path) in STATUS {
        assert_eq!(*call(&world, &method, path, &nobody).await.data(), json!({"proc_infos": []}), "{path}");
    }
    let v1 = json!({"meta": {"namespace": "web", "name": "a"}, "hosts": []});
    assert_eq!(*post(&world, &format!("{ESB}/get_proc_status"), &v1).await.data(), json!({"proc_infos": []}));
    let groups = post(&world, &format!("{ESB}/get_process_group_info"), &v1).await;
    assert_eq!(*groups.data(), json!({"process_group_infos": []}));
    for name in ["get_agent_status", "get_agent_info"] {
        assert_eq!(*post(&world, &format!("{ESB}/{name}"), &json!({"hosts": []})).await.data(), json!({}));
    }
    for name in ["list_agent_state", "list_agent_info"] {
        let path = format!("/api/bk-gse/prod/api/v2/cluster/{name}");
        assert_eq!(*post(&world, &path, &json!({"agent_id_list": []})).await.data(), json!([]));
    }
    for path in OPERATE {
        let refused = post(&world, path, &by_ids(2, &[])).await;
        assert_eq!((refused.code(), refused.message()), (1_306_406, "agent_id_list: must name at least one host"));
    }
    let mut none = registered("a", "10.0.0.1");
    none["hosts"] = json!([]);
    let refused = post(&world, &format!("{ESB}/register_proc_info"), &none).await;
    assert_eq!((refused.code(), refused.message()), (1_306_406, "hosts: must name at least one host"));
    world.end().await;
}

#[tokio::test]
async fn a_periodic_process_without_a_schedule_is_refused_wherever_it_would_be_stored() {
    let world = World::new().await;
    let mut periodic = registered("a", "10.0.0.1");
    periodic["spec"]["monitor_policy"] = json!({"auto_type": 0});
    let message = "spec.monitor_policy.crontab_rule: is missing: a periodic process needs a schedule";

    for (method, path) in UPDATE {
        let refused = call(&world, &method, path, &periodic).await;
        assert_eq!((refused.code(), refused.message()), (1_306_406, message), "{path}");
    }
    for path in OPERATE {
        let mut body = by_ids(0, &[AGENT]);
        body["spec"]["monitor_policy"] = json!({"auto_type": 0});
        assert_eq!(post(&world, path, &body).await.message(), message, "{path}");
        body["op_type"] = json!(1);
        post(&world, path, &body).await.data();
    }
    let mut unscheduled = info();
    unscheduled["type"] = json!(0);
    for (name, op_type) in [("manage_proc", 1), ("operate_process", 0)] {
        let refused = post(&world, &format!("{JOB}/{name}"), &job(op_type, json!([unscheduled]))).await;
        let message = "process_infos[0].cycle_time: is missing: a periodic process needs a schedule";
        assert_eq!((refused.code(), refused.message()), (1_241_002, message), "{name}");
    }
    assert_eq!(world.store.processes(&ProcessQuery::default()).await.unwrap().0, 0, "nothing was stored");
    world.end().await;
}

#[tokio::test]
async fn labels_and_limits_that_a_call_omits_stay_and_empty_ones_clear() {
    let world = World::new().await;
    let bare = |op_type: i64| {
        let mut body = by_ids(op_type, &[AGENT]);
        body["meta"].as_object_mut().unwrap().remove("labels");
        body["spec"].as_object_mut().unwrap().remove("resource");
        body["spec"]["control"]["start_cmd"] = json!(format!("./start-{op_type}.sh"));
        body
    };
    post(&world, &format!("{ESB}/register_proc_info"), &registered("a", "10.0.0.1")).await.data();
    let before = stored(&world, "a").await;

    for (path, op_type) in OPERATE.into_iter().zip([0, 3, 7]) {
        post(&world, path, &bare(op_type)).await.data();
        let now = stored(&world, "a").await;
        assert_eq!((&now.labels, &now.limits), (&before.labels, &before.limits), "{path}");
        assert_eq!(now.control.start.as_ref().unwrap().as_str(), format!("./start-{op_type}.sh"));
    }
    for (method, path) in UPDATE {
        let mut update = registered("a", "10.0.0.1");
        update["spec"].as_object_mut().unwrap().remove("resource");
        update["meta"].as_object_mut().unwrap().remove("labels");
        call(&world, &method, path, &update).await.data();
        let now = stored(&world, "a").await;
        assert_eq!((&now.labels, &now.limits), (&before.labels, &before.limits), "{path}");
    }
    let mut empty = by_ids(0, &[AGENT]);
    empty["meta"]["labels"] = json!({});
    empty["spec"]["resource"] = json!({});
    post(&world, OPERATE[0], &empty).await.data();
    let cleared = stored(&world, "a").await;
    assert!(cleared.labels.is_empty() && cleared.limits == proctor_model::Limits::default());
    let mut fresh = bare(0);
    fresh["meta"]["name"] = json!("new");
    post(&world, OPERATE[0], &fresh).await.data();
    assert_eq!(stored(&world, "new").await.limits, proctor_model::Limits::default());
    world.end().await;
}

#[tokio::test]
async fn paths_of_job_may_be_relative_and_cycles_long() {
    let world = World::new().await;
    let mut long = info();
    long["type"] = json!(0);
    long["cycle_time"] = json!(366 * 24 * 3600);
    long["cfg_path"] = json!("../etc/n.conf");
    long["log_path"] = json!("log");

    let accepted = post(&world, &format!("{JOB}/manage_proc"), &job(1, json!([long]))).await;

    accepted.data();
    let spec = stored(&world, "k").await;
    assert_eq!(spec.policy.cycle.unwrap().get(), 31_622_400);
    assert_eq!(spec.identity.config_path.as_ref().unwrap().as_str(), "../etc/n.conf");
    assert_eq!(spec.identity.log_path.as_ref().unwrap().as_str(), "log");
    world.end().await;
}

#[tokio::test]
async fn a_bound_id_is_in_every_answer() {
    let world = World::new().await;
    let session = connected(&world, AGENT).await;
    post(&world, &format!("{ESB}/register_proc_info"), &registered("a", "10.0.0.1")).await.data();
    let group = json!({"id": "web", "resource":
        {"cpu_pool_limit": 20, "mem_pool_limit": 20, "cpu_pool_weight": 0, "mem_pool_weight": 1}});
    let mut groups = on_host("a", "10.0.0.1");
    groups["spec"] = json!({"process_group": [group]});
    post(&world, &format!("{ESB}/set_process_group_info"), &groups).await.data();
    let submitted = post(&world, OPERATE[0], &by_ids(1, &["0:10.0.0.1"])).await;
    let task = submitted.data()["task_id"].clone();
    let delivery = world.control.take_deliveries(&session, 10).remove(0);
    world.control.arrived(&session, delivery.operation, Outcome::success(false)).await.unwrap();
    let content = |rows: &Value| -> Value {
        serde_json::from_str(rows["0:10.0.0.1:web:a"]["content"].as_str().unwrap()).unwrap()
    };
    let before = world.finished(RESULT, &task).await;
    assert_eq!(content(&before)["value"][0]["bk_agent_id"], AGENT);

    let host = json!({"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_agent_id": BOUND});
    let unusable = json!({"ip": "", "bk_cloud_id": 0, "bk_agent_id": "x"});
    let bind = post(&world, &format!("{GATEWAY}/upgrade_to_agent_id"), &json!({"hosts": [host, host, unusable]})).await;

    assert_eq!(*bind.data(), json!({"success": ["0:10.0.0.1"], "failed": ["0:"]}));
    let of_hosts = json!({"meta": {"namespace": "web", "name": "a"}, "hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 0}]});
    for (method, path) in STATUS {
        let infos = call(&world, &method, path, &of_hosts).await.data()["proc_infos"].clone();
        assert_eq!(infos[0]["bk_agent_id"], BOUND, "{path}");
    }
    let sync = post(&world, &format!("{GATEWAY}/sync_proc_status"), &json!({"meta": {"namespace": "web"}})).await;
    assert_eq!(sync.data()["proc_infos"][0]["bk_agent_id"], BOUND);
    let after = post(&world, RESULT, &json!({"task_id": task})).await;
    assert_eq!(content(after.data())["value"][0]["bk_agent_id"], BOUND);
    let read = post(&world, &format!("{ESB}/get_process_group_info"), &on_host("a", "10.0.0.1")).await;
    assert_eq!(read.data()["process_group_infos"][0]["bk_agent_id"], BOUND);
    let cluster = "/api/bk-gse/prod/api/v2/cluster/list_agent_state";
    let states = post(&world, cluster, &json!({"agent_id_list": ["0:10.0.0.1"]})).await;
    assert_eq!(states.data()[0]["bk_agent_id"], BOUND);
    let state = post(&world, "/api/bk-gse/prod/api/v2/task/get_task_state", &json!({"task_id": task})).await;
    assert_eq!(state.data()["result"]["successed_agents"], json!([BOUND]));
    world.end().await;
}

#[tokio::test]
async fn a_group_says_how_many_processes_it_has() {
    let world = World::new().await;
    let group = |id: &str| {
        json!({"id": id, "resource":
            {"cpu_pool_limit": 20, "mem_pool_limit": 20, "cpu_pool_weight": 0, "mem_pool_weight": 1}})
    };
    let mut groups = on_host("", "10.0.0.1");
    groups["spec"] = json!({"process_group": [group("web"), group("batch"), group("empty")]});
    let mut member = registered("a", "10.0.0.1");
    member["meta"]["labels"] = json!({"process_group": "batch"});
    post(&world, &format!("{ESB}/register_proc_info"), &member).await.data();
    post(&world, &format!("{ESB}/register_proc_info"), &registered("b", "10.0.0.1")).await.data();

    let set = post(&world, &format!("{ESB}/set_process_group_info"), &groups).await;
    let read = post(&world, &format!("{ESB}/get_process_group_info"), &groups).await;

    assert_eq!(set.data()["0:7:10.0.0.1:web"]["error_code"], 0);
    let infos = read.data()["process_group_infos"].as_array().unwrap().clone();
    let told: Vec<(&str, &Value, &str)> = infos
        .iter()
        .map(|info| (info["id"].as_str().unwrap(), &info["members"], info["message"].as_str().unwrap()))
        .collect();
    let (one, two, none) = (json!(1), json!(2), json!(0));
    let missing = "no process of namespace web on this host has the label process_group=empty";
    assert_eq!(told, [("batch", &one, ""), ("empty", &none, missing), ("web", &two, "")]);
    world.end().await;
}
