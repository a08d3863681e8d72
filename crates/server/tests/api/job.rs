//! The JOB family: its keys, its envelope, and how it reports that a task is done.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use proctor_model::{OperationKind, Outcome};
use proctor_store::{Business, BusinessSet};
use serde_json::{Value, json};

use crate::support::{APP, Answer, ESB, JOB, SECRET, World, greeting};

const KEY: &str = "/data/nginx/nginxd:0:10.0.0.1";

fn body(op_type: i64) -> Value {
    json!({"bk_biz_id": 2, "op_type": op_type, "process_infos": [{
        "setup_path": "/data/nginx/", "proc_name": "nginxd", "pid_path": "/data/nginx/n.pid", "func_id": "f",
        "ip_list": [{"bk_cloud_id": 0, "ip": "10.0.0.1"}]}]})
}

async fn submit(world: &World, call: &str, body: Value) -> String {
    let answer = world.post(&format!("{JOB}/{call}/"), body).await;
    assert_eq!(answer.message(), "");
    answer.data()["bk_gse_taskid"].as_str().unwrap().to_owned()
}

async fn result(world: &World, task: &str) -> Value {
    let query = format!("bk_app_code={APP}&bk_app_secret={SECRET}&bk_username=admin");
    let path = format!("/api/c/compapi/v2/job/get_proc_result/?{query}&bk_biz_id=2&bk_gse_taskid={task}");
    world.get(&path).await.data().clone()
}

#[tokio::test]
async fn a_task_is_115_until_every_row_is_done_and_contents_are_objects() {
    let world = World::new().await;
    let agent = "020000000052540a9b2c1641".parse().unwrap();
    let session = world.control.open_session(greeting(&agent)).await.unwrap().unwrap();

    let task = submit(&world, "operate_process", body(0)).await;
    let pending = result(&world, &task).await;
    let deliveries = world.control.take_deliveries(&session, 10);
    world.control.arrived(&session, deliveries[0].operation, Outcome::success(true)).await.unwrap();
    let done = async {
        loop {
            let now = result(&world, &task).await;
            if now["status"] != 115 {
                break now;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(60), done).await.expect("the outcome is recorded");

    let handling = json!({"error_code": 115, "error_msg": "handling", "content": {}});
    assert_eq!(pending, json!({"status": 115, "result": {KEY: handling}}));
    assert_eq!(deliveries[0].key.to_string(), "job//data/nginx/nginxd");
    assert_eq!((&done["status"], &done["result"][KEY]["error_code"]), (&json!(0), &json!(0)));
    let value = &done["result"][KEY]["content"]["value"][0];
    assert_eq!((&value["procName"], &value["funcID"]), (&json!("nginxd"), &json!("f")));
    world.end().await;
}

#[tokio::test]
async fn manage_proc_manages_by_1_and_releases_by_2() {
    let world = World::new().await;
    let agent = "020000000052540a9b2c1641".parse().unwrap();
    let session = world.control.open_session(greeting(&agent)).await.unwrap().unwrap();

    let mut manage = body(1);
    manage["process_infos"][0]["type"] = json!(1);
    submit(&world, "manage_proc", manage).await;
    submit(&world, "manage_proc", body(2)).await;

    let kinds: Vec<OperationKind> =
        world.control.take_deliveries(&session, 10).into_iter().map(|delivery| delivery.kind).collect();
    assert_eq!(kinds, [OperationKind::Manage, OperationKind::Release]);
    world.end().await;
}

#[tokio::test]
async fn several_processes_are_one_task() {
    let world = World::new().await;
    let mut both = body(2);
    let mut second = both["process_infos"][0].clone();
    second["value_key"] = json!("second");
    both["process_infos"].as_array_mut().unwrap().push(second);

    let task = submit(&world, "operate_process", both).await;
    let rows = result(&world, &task).await["result"].clone();

    let keys: Vec<&String> = rows.as_object().unwrap().keys().collect();
    assert_eq!(keys, [KEY, "second:0:10.0.0.1"]);
    world.end().await;
}

#[tokio::test]
async fn a_task_that_nobody_was_given_is_an_error_of_gse() {
    let world = World::new().await;

    let answer = world.post(&format!("{JOB}/get_proc_result"), json!({"bk_biz_id": 2, "bk_gse_taskid": "x"})).await;

    assert_eq!((answer.status.as_u16(), answer.code()), (200, 1_210_001));
    world.end().await;
}

/// The operations that were accepted, as rows of `get_proc_result` by their keys.
async fn rows(world: &World, answer: &Answer) -> Value {
    result(world, answer.data()["bk_gse_taskid"].as_str().unwrap()).await["result"].clone()
}

async fn placed(world: &World, business: u64, host: &str) {
    let host = host.parse().unwrap();
    world.store.put_business(Business { id: business, name: format!("business {business}") }).await.unwrap();
    world.store.place_hosts(&[(host, Some(business))]).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_placed_host_is_reached_only_under_a_scope_that_contains_it() {
    let world = World::new().await;
    placed(&world, 2, "0:10.0.0.1").await;
    world.store.put_business(Business { id: 3, name: "other".to_owned() }).await.unwrap();
    for (id, members) in [(7, vec![2, 3]), (8, vec![3])] {
        let set = BusinessSet { id, name: format!("set {id}"), members: members.into_iter().collect() };
        world.store.put_business_set(set).await.unwrap().unwrap();
    }
    let under = |scope: Value| {
        let mut body = body(1);
        body.as_object_mut().unwrap().remove("bk_biz_id");
        body.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
        body
    };
    let set = |id: u64| json!({"bk_scope_type": "biz_set", "bk_scope_id": id.to_string()});
    let path = format!("{JOB}/operate_process");

    for inside in [json!({"bk_biz_id": 2}), set(7)] {
        world.post(&path, under(inside)).await.data();
    }
    let tasks = world.store.task_ids(100).await.unwrap().len();
    let outside = [
        (json!({"bk_biz_id": 3}), "business 3 does not contain host 0:10.0.0.1"),
        (json!({"bk_scope_type": "biz", "bk_scope_id": 3}), "business 3 does not contain host 0:10.0.0.1"),
        (set(8), "business set 8 does not contain host 0:10.0.0.1"),
        (set(99), "business set 99 does not contain host 0:10.0.0.1"),
    ];
    for (scope, message) in outside {
        for name in ["operate_process", "operate_proc", "manage_proc"] {
            let mut body = under(scope.clone());
            body["op_type"] = json!(2);
            let answer = world.post(&format!("{JOB}/{name}"), body).await;
            assert_eq!((answer.code(), answer.message()), (9_900_403, message), "{name}");
            let host = &answer.json["permission"]["actions"][0]["related_resource_types"][0]["instances"][0][0];
            assert_eq!(host["id"], "0:10.0.0.1");
        }
    }
    assert_eq!(world.store.task_ids(100).await.unwrap().len(), tasks, "nothing was begun");
    world.end().await;
}

#[tokio::test]
async fn a_host_that_is_placed_nowhere_is_reached_under_any_scope() {
    let world = World::new().await;

    for id in [1, 99] {
        let mut body = body(1);
        body["bk_biz_id"] = json!(id);
        world.post(&format!("{JOB}/operate_process"), body).await.data();
    }
    world.end().await;
}

#[tokio::test]
async fn a_call_that_is_forbidden_everywhere_is_refused_and_elsewhere_by_rows() {
    let world = World::new().await;
    world.enrol("3:10.0.0.2", "agent-2").await;
    world.app("half").await;
    world.bind("app:half", "owner", "cloud:3").await;
    let as_half = |hosts: Value| {
        let mut body = body(1);
        body["process_infos"][0]["ip_list"] = hosts;
        body["bk_app_code"] = json!("half");
        body["bk_app_secret"] = json!(SECRET);
        body["bk_username"] = json!("half");
        body
    };
    let (forbidden, allowed) =
        (json!({"bk_cloud_id": 0, "ip": "10.0.0.1"}), json!({"bk_cloud_id": 3, "ip": "10.0.0.2"}));
    let path = format!("{JOB}/operate_process");

    let whole = world.post_as_is(&path, &as_half(json!([forbidden]))).await;
    let some = world.post_as_is(&path, &as_half(json!([forbidden, allowed]))).await;

    assert_eq!((whole.status.as_u16(), whole.code()), (200, 9_900_403), "{}", whole.json);
    let host = &whole.json["permission"]["actions"][0]["related_resource_types"][0]["instances"][0][0];
    assert_eq!(host["id"], "0:10.0.0.1");
    let rows = rows(&world, &some).await;
    assert_eq!(rows[KEY]["error_code"], 403);
    assert_eq!(rows["/data/nginx/nginxd:3:10.0.0.2"]["error_code"], 115);
    world.end().await;
}

#[tokio::test]
async fn a_retry_is_held_to_the_scope_of_the_call() {
    let world = World::new().await;
    for id in [3, 4] {
        world.store.put_business(Business { id, name: format!("b{id}") }).await.unwrap();
    }
    let host = "0:10.0.0.1".parse().unwrap();
    world.store.place_hosts(&[(host, Some(3))]).await.unwrap().unwrap();
    let mut body = body(1);
    body["bk_biz_id"] = json!(3);
    let failed = world.post(&format!("{JOB}/operate_process"), body).await.data()["bk_gse_taskid"].clone();
    world.finished(&format!("{ESB}/get_proc_operate_result"), &failed).await;
    let path = format!("/api/v1/tasks/{}/retry", failed.as_str().unwrap());
    let admin = json!({ "bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin" });

    let inside = world.call(&admin, &Method::POST, &path, &json!({})).await;
    world.store.place_hosts(&[(host, Some(4))]).await.unwrap().unwrap();
    let moved = world.call(&admin, &Method::POST, &path, &json!({})).await;

    assert_eq!(inside.status, StatusCode::ACCEPTED, "{}", inside.json);
    assert_eq!(moved.status, StatusCode::FORBIDDEN, "{}", moved.json);
    assert_eq!(moved.json["error"]["message"], "business 3 does not contain host 0:10.0.0.1");
    world.end().await;
}
