//! Operations: what a task shows from its first poll to its end.

use std::sync::Arc;

use proctor_model::{OperationKind, Outcome, Phase, Snapshot, Usage};
use proctor_server::control::Session;
use serde_json::{Value, json};

use crate::support::{ESB, GATEWAY, World, greeting, on_host, registered, spec};

const AGENT: &str = "020000000052540a9b2c1641";
const PENDING: &str = r#"{"error_code":115,"error_msg":"handling","content":""}"#;

pub(crate) fn operate(name: &str, ip: &str, op_type: i64) -> Value {
    let mut body = on_host(name, ip);
    body["op_type"] = json!(op_type);
    body
}

fn with_spec(mut body: Value) -> Value {
    body["spec"] = spec();
    body
}

async fn connect(world: &World) -> Arc<Session> {
    let agent = AGENT.parse().unwrap();
    world.control.open_session(greeting(&agent)).await.unwrap().unwrap()
}

/// The agent answers everything that waits for it with `outcome`.
async fn answer_all(world: &World, session: &Session, outcome: &Outcome) -> Vec<OperationKind> {
    let deliveries = world.control.take_deliveries(session, 100);
    for delivery in &deliveries {
        world.control.arrived(session, delivery.operation, outcome.clone()).await.unwrap();
    }
    deliveries.into_iter().map(|delivery| delivery.kind).collect()
}

async fn submit(world: &World, path: &str, body: Value) -> Value {
    let answer = world.post(path, body).await;
    let task = answer.data()["task_id"].clone();
    assert!(task.as_str().unwrap().starts_with("GSETASK:"));
    task
}

fn content(row: &Value) -> Value {
    serde_json::from_str(row["content"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn the_first_poll_has_every_key_and_an_absent_agent_is_117() {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", "agent-2").await;
    let hosts = json!([{"ip": "10.0.0.1", "bk_cloud_id": 0}, {"ip": "10.0.0.2", "bk_cloud_id": 0}]);
    let mut body = with_spec(operate("a", "10.0.0.1", 0));
    body["hosts"] = hosts;

    let task = submit(&world, &format!("{ESB}/operate_proc_multi/"), json!({"proc_operate_req": [body]})).await;
    let first = world.post(&format!("{ESB}/get_proc_operate_result_v2/"), json!({"task_id": task})).await;
    let rows = world.finished(&format!("{ESB}/get_proc_operate_result_v2"), &task).await;

    let pending: Value = serde_json::from_str(PENDING).unwrap();
    assert_eq!(*first.data(), json!({"0:10.0.0.1:web:a": pending, "0:10.0.0.2:web:a": pending}));
    for (key, agent) in [("0:10.0.0.1:web:a", AGENT), ("0:10.0.0.2:web:a", "agent-2")] {
        assert_eq!(rows[key]["error_code"], 117);
        let message = format!("agent {agent} is not connected");
        assert_eq!(rows[key]["error_msg"], message);
        let expected = json!({"value": [{"procName": "nginxd", "setupPath": "/data/nginx", "funcID": "",
            "instanceID": "", "result": message, "isAuto": false, "bk_agent_id": agent}]});
        assert_eq!(content(&rows[key]), expected);
    }
    world.end().await;
}

#[tokio::test]
async fn a_host_that_never_enrolled_is_117_at_once_and_a_strange_op_type_832() {
    let world = World::new().await;
    let items = json!({"proc_operate_req": [
        with_spec(operate("a", "10.9.9.9", 0)), operate("b", "10.9.9.9", 2), operate("c", "10.0.0.1", 5)]});

    let task = submit(&world, &format!("{ESB}/operate_proc_multi"), items).await;
    let answer = world.post(&format!("{ESB}/get_proc_operate_result_v2"), json!({"task_id": task})).await;

    let rows = answer.data();
    assert_eq!(rows["0:10.9.9.9:web:a"]["error_code"], 117);
    assert_eq!(content(&rows["0:10.9.9.9:web:a"])["value"].as_array().unwrap().len(), 1);
    let status = content(&rows["0:10.9.9.9:web:b"]);
    assert_eq!(status["process"][0]["procname"], "b");
    assert_eq!(status["process"][0]["instance"][0]["pid"], -1);
    assert_eq!(rows["0:10.0.0.1:web:c"]["error_code"], 832);
    assert_eq!(content(&rows["0:10.0.0.1:web:c"])["value"][0]["procName"], "c");
    assert_eq!(rows.as_object().unwrap().len(), 3);
    world.end().await;
}

#[tokio::test]
async fn operating_what_is_not_registered_is_65535_with_the_reason() {
    let world = World::new().await;

    let task = submit(&world, &format!("{ESB}/operate_proc"), operate("a", "10.0.0.1", 0)).await;
    let answer = world.post(&format!("{ESB}/get_proc_operate_result"), json!({"task_id": task})).await;

    let row = &answer.data()["0:7:10.0.0.1:web:a"];
    assert_eq!(row["error_code"], 65535);
    assert!(row["error_msg"].as_str().unwrap().contains("is not registered"));
    assert_eq!(content(row)["value"][0]["procName"], "a");
    world.end().await;
}

#[tokio::test]
async fn an_outcome_of_the_agent_is_told_with_the_commands_output() {
    let world = World::new().await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();
    let session = connect(&world).await;

    let task = submit(&world, &format!("{ESB}/operate_proc"), operate("a", "10.0.0.1", 0)).await;
    let kinds = answer_all(&world, &session, &Outcome::success(true).with_output("started\n".into())).await;
    let rows = world.finished(&format!("{ESB}/get_proc_operate_result"), &task).await;

    assert_eq!(kinds, [OperationKind::Start]);
    let row = &rows["0:7:10.0.0.1:web:a"];
    assert_eq!((&row["error_code"], &row["error_msg"]), (&json!(0), &json!("success")));
    let value = &content(row)["value"][0];
    assert_eq!((&value["procName"], &value["result"]), (&json!("nginxd"), &json!("started\n")));
    assert_eq!((&value["isAuto"], &value["bk_agent_id"]), (&json!(true), &json!(AGENT)));
    world.end().await;
}

fn running() -> Outcome {
    let usage = Usage {
        cpu_percent: 1.5,
        memory_bytes: 10_412 * 1024,
        memory_percent: 0.13,
        threads: 4,
        state: "S".into(),
        user_ticks: 12,
        ..Usage::default()
    };
    let snapshot = Snapshot {
        phase: Phase::Running,
        managed: true,
        pid: Some(4711),
        usage,
        started_at: 1_495_610_748,
        reported_at: 1_495_610_756,
        utc_offset_secs: 8 * 3600,
        ..Snapshot::default()
    };
    Outcome { snapshot: Some(snapshot), ..Outcome::success(true) }
}

#[tokio::test]
async fn a_status_query_tells_everything_about_one_process() {
    let world = World::new().await;
    let session = connect(&world).await;
    let mut body = with_spec(operate("a", "10.0.0.1", 2));
    body["agent_id_list"] = json!([AGENT]);

    let task = submit(&world, &format!("{GATEWAY}/operate_proc_v2"), body).await;
    answer_all(&world, &session, &running()).await;
    let rows = world.finished(&format!("{GATEWAY}/get_proc_operate_result_v2"), &task).await;

    let expected = json!({
        "ip": "10.0.0.1", "bk_agent_id": AGENT, "utctime": "2017-05-24 15:25:56", "utctime2": "2017-05-24 07:25:56",
        "timezone": 8, "process": [{"procname": "a", "instance": [{
            "processName": "a", "pid": 4711, "isAuto": true, "version": "", "health": "", "cmdline": "", "stat": "S",
            "cpuUsage": 1.5, "cpuUsageAve": 0.0, "phyMemUsage": 0.13, "usePhyMem": 10412, "freeVMem": "0",
            "diskSize": -1, "startTime": "Wed May 24 15:25:48 2017", "elapsedTime": 0, "utime": "12", "stime": "0",
            "threadCount": 4, "register_time": 0, "last_start_time": 1_495_610_748, "report_time": 1_495_610_756
        }]}]
    });
    assert_eq!(content(&rows[&format!("{AGENT}:web:a")]), expected);
    world.end().await;
}

#[tokio::test]
async fn the_older_generation_shows_the_name_of_the_executable() {
    let world = World::new().await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();
    let session = connect(&world).await;

    let task = submit(&world, &format!("{ESB}/operate_proc"), operate("a", "10.0.0.1", 2)).await;
    answer_all(&world, &session, &running()).await;
    let rows = world.finished(&format!("{ESB}/get_proc_operate_result_v2"), &task).await;

    let content = content(&rows["0:7:10.0.0.1:web:a"]);
    assert_eq!(content["process"][0]["procname"], "nginxd");
    assert_eq!(content["process"][0]["instance"][0]["processName"], "nginxd");
    world.end().await;
}

#[tokio::test]
async fn a_task_that_nobody_was_given_is_unknown() {
    let world = World::new().await;
    let ours = "GSETASK:0192f0c1a2b37c4d8e5f60718293a4b5";

    for task in ["GSETASK:20190813145456:8", ours, "x"] {
        let answer = world.post(&format!("{ESB}/get_proc_operate_result"), json!({"task_id": task})).await;

        assert_eq!((answer.status.as_u16(), answer.code()), (200, 1_000_101));
        assert_eq!(answer.json["result"], false);
    }
    world.end().await;
}

#[tokio::test]
async fn a_batch_with_one_bad_item_dispatches_nothing() {
    let world = World::new().await;
    let session = connect(&world).await;
    let good = with_spec(operate("a", "10.0.0.1", 0));
    let mut bad = with_spec(operate("b", "10.0.0.1", 0));
    bad["spec"]["identity"]["pid_path"] = json!("relative");

    let answer =
        world.post(&format!("{ESB}/operate_proc_multi"), json!({"proc_operate_req": [good.clone(), bad]})).await;
    let mut stop = good.clone();
    stop["op_type"] = json!(1);
    let twice = world.post(&format!("{ESB}/operate_proc_multi"), json!({"proc_operate_req": [good, stop]})).await;

    assert_eq!(answer.message(), "proc_operate_req[1].spec.identity.pid_path: 'relative' must be an absolute path");
    let message = "proc_operate_req[1].hosts[0]: target 0:10.0.0.1:web:a is also at proc_operate_req[0].hosts[0], \
                   with another operation or spec";
    assert_eq!(twice.message(), message);
    assert!(world.control.take_deliveries(&session, 100).is_empty());
    let list = world.post(&format!("{ESB}/sync_proc_status"), json!({"meta": {"namespace": "web"}})).await;
    assert_eq!(list.data()["count"], 0);
    world.end().await;
}
