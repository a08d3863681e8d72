//! The JOB family: its keys, its envelope, its way of telling that a task is done.

use std::time::Duration;

use proctor_model::{OperationKind, Outcome};
use serde_json::{Value, json};

use crate::support::{APP, JOB, SECRET, World, greeting};

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
    let done = tokio::time::timeout(Duration::from_secs(30), done).await.expect("the outcome is recorded");

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

    submit(&world, "manage_proc", body(1)).await;
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
