//! Agents: their state, what is known about them, and a task seen by its agents.

use proctor_model::{HostFacts, Outcome};
use serde_json::{Value, json};

use crate::support::{GATEWAY, World, greeting, spec};

const AGENT: &str = "020000000052540a9b2c1641";
const SECOND: &str = "020000000052540a9b2c9999";
const CLUSTER: &str = "/api/bk-gse/prod/api/v2/cluster";
const TASK_STATE: &str = "/api/bk-gse/prod/api/v2/task/get_task_state";

async fn connected(world: &World, agent: &str) -> std::sync::Arc<proctor_server::control::Session> {
    let facts = HostFacts {
        os: "linux".into(),
        arch: "x86_64".into(),
        cpus: 4,
        memory_bytes: 1 << 30,
        agent_version: "0.1.0".into(),
        ..HostFacts::default()
    };
    let mut greeting = greeting(&agent.parse().unwrap());
    greeting.opening.facts = facts;
    world.control.open_session(greeting).await.unwrap().unwrap()
}

fn ids(rows: &Value) -> Vec<&str> {
    rows.as_array().unwrap().iter().map(|row| row["bk_agent_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_agent_that_is_asked_for_by_address_answers_with_its_real_id_too() {
    let world = World::new().await;
    connected(&world, AGENT).await;
    let query = json!({"agent_id_list": ["0:10.0.0.1", AGENT, "0:10.9.9.9"]});

    let states = world.post(&format!("{CLUSTER}/list_agent_state"), query).await;

    let rows = states.data();
    assert_eq!(ids(rows), [AGENT, "0:10.0.0.1", AGENT, "0:10.9.9.9"]);
    let codes: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["status_code"]).collect();
    assert_eq!(codes, [2, 2, 2, -2]);
    assert_eq!((&rows[0]["bk_cloud_id"], &rows[0]["run_mode"]), (&json!(0), &json!(1)));
    assert_eq!(rows[0]["version"], "0.1.0");
    world.end().await;
}

#[tokio::test]
async fn everything_that_is_documented_about_an_agent_is_there() {
    let world = World::new().await;
    connected(&world, AGENT).await;
    let fields = [
        "bk_agent_id",
        "bk_cloud_id",
        "version",
        "run_mode",
        "status_code",
        "code",
        "message",
        "bk_host_ip",
        "bk_os_type",
        "bk_cpu_architecture",
        "parent_ip",
        "parent_port",
        "report_time",
        "cpu_rate",
        "mem_rate",
        "cpu_num",
        "mem_size",
        "start_time",
        "last_work_time",
        "conn_cycle_time",
        "status",
        "last_status_code",
        "last_status",
        "remark",
    ];

    let infos = world.post(&format!("{CLUSTER}/list_agent_info/"), json!({"agent_id_list": [AGENT, "nobody"]})).await;

    let rows = infos.data();
    for (row, field) in [0, 1].into_iter().flat_map(|row| fields.map(|field| (row, field))) {
        assert!(rows[row].get(field).is_some(), "row {row} lacks {field}");
    }
    assert_eq!((&rows[0]["status"], &rows[0]["bk_host_ip"]), (&json!("running"), &json!("10.0.0.1")));
    assert!(rows[0]["start_time"].as_i64().unwrap() <= rows[0]["report_time"].as_i64().unwrap());
    assert_eq!((&rows[1]["code"], &rows[1]["status_code"]), (&json!(1_011_003), &json!(-2)));
    world.end().await;
}

#[tokio::test]
async fn a_task_is_told_by_its_agents() {
    let world = World::new().await;
    world.enrol("0:10.0.0.2", SECOND).await;
    let session = connected(&world, AGENT).await;
    let body = json!({"meta": {"namespace": "web", "name": "a"}, "op_type": 0, "spec": spec(),
        "agent_id_list": ["0:10.0.0.1", SECOND, "never-enrolled"]});
    let task = world.post(&format!("{GATEWAY}/operate_proc_v2"), body).await.data()["task_id"].clone();
    let query = json!({"task_id": task, "agent_id_list": ["0:10.0.0.1", SECOND, "never-enrolled"]});

    let first = world.post(TASK_STATE, query.clone()).await;
    let deliveries = world.control.take_deliveries(&session, 10);
    world.control.arrived(&session, deliveries[0].operation, Outcome::success(true)).await.unwrap();
    world.finished(&format!("{GATEWAY}/get_proc_operate_result_v2"), &task).await;
    let last = world.post(TASK_STATE, query).await;
    let by_task = world.post(TASK_STATE, json!({"task_id": task})).await;

    let lists = |state: &str, pending: Value, succeeded: Value, offline: Value| {
        json!({"result": {"state": state, "pending_agents": pending, "successed_agents": succeeded,
            "offline_agents": offline, "failed_agents": [], "timeout_agents": [], "restarted_agents": []}})
    };
    let open = json!(["0:10.0.0.1", SECOND]);
    assert_eq!(*first.data(), lists("executing", open, json!([]), json!(["never-enrolled"])));
    let offline = json!([SECOND, "never-enrolled"]);
    assert_eq!(*last.data(), lists("failed", json!([]), json!(["0:10.0.0.1"]), offline.clone()));
    assert_eq!(*by_task.data(), lists("failed", json!([]), json!([AGENT]), offline));
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_a_task_does_not_concern_is_named() {
    let world = World::new().await;
    let body = json!({"meta": {"namespace": "web", "name": "a"}, "op_type": 2, "agent_id_list": [AGENT]});
    let task = world.post(&format!("{GATEWAY}/operate_proc_v2"), body).await.data()["task_id"].clone();

    let answer = world.post(TASK_STATE, json!({"task_id": task, "agent_id_list": [AGENT, "other"]})).await;
    let unknown = world.post(TASK_STATE, json!({"task_id": "GSETASK:x"})).await;

    assert_eq!(answer.message(), "agent_id_list[1]: 'other' is no target of this task");
    assert_eq!(unknown.code(), 1_000_101);
    world.end().await;
}
