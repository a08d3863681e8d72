//! Registrations and what is known about processes and agents.

use proctor_model::{Phase, Snapshot, Usage};
use proctor_store::ProcessQuery;
use serde_json::{Value, json};

use crate::support::{APP, ESB, GATEWAY, World, greeting, on_host, registered, spec};

const AGENT: &str = "020000000052540a9b2c1641";
const ROW: &str = "0:7:10.0.0.1:web:a";

async fn observe(world: &World, snapshot: Snapshot) {
    let agent = AGENT.parse().unwrap();
    let session = world.control.open_session(greeting(&agent)).await.unwrap().unwrap();
    world.control.observed(&session, vec![("web/a".parse().unwrap(), snapshot)]).await;
}

/// Of the store itself.
async fn stored(world: &World) -> Snapshot {
    let (_, mut records) = world.store.processes(&ProcessQuery::default()).await.unwrap();
    records.remove(0).snapshot.unwrap()
}

#[tokio::test]
async fn usage_is_shown_at_once_and_stored_only_with_what_else_changes() {
    let world = World::new().await;
    let body = registered("a", "10.0.0.1");
    world.post(&format!("{ESB}/register_proc_info"), body.clone()).await;
    let session = world.control.open_session(greeting(&AGENT.parse().unwrap())).await.unwrap().unwrap();
    let observe = async |cpu_percent: f64, fds: u64, pid: i32| {
        let usage = Usage { cpu_percent, fds, ..Usage::default() };
        let snapshot = Snapshot { phase: Phase::Running, pid: Some(pid), usage, ..Snapshot::default() };
        world.control.observed(&session, vec![("web/a".parse().unwrap(), snapshot)]).await;
        let shown = world.post(&format!("{ESB}/get_proc_status"), on_host("a", "10.0.0.1")).await;
        let shown = &shown.data()["proc_infos"][0];
        (shown["cpu_usage"].as_f64().unwrap(), shown["fd"].as_u64().unwrap(), stored(&world).await.usage.fds)
    };

    assert_eq!(observe(10.0, 3, 7).await, (10.0, 3, 3));
    assert_eq!(observe(10.5, 4, 7).await, (10.5, 4, 3), "usage alone");
    assert_eq!(observe(10.5, 5, 8).await, (10.5, 5, 5), "another life");

    // Registered again, nothing earlier is known; the agent's next report is stored whatever it says.
    world.post(&format!("{ESB}/unregister_proc_info"), on_host("a", "10.0.0.1")).await;
    world.post(&format!("{ESB}/register_proc_info"), body).await;
    assert_eq!(observe(10.5, 6, 8).await, (10.5, 6, 6));
    world.end().await;
}

#[tokio::test]
async fn an_operation_with_the_spec_that_an_agent_has_reads_nothing_for_it() {
    let world = World::new().await;
    let session = world.control.open_session(greeting(&AGENT.parse().unwrap())).await.unwrap().unwrap();
    let operate = async |start_cmd: &str| {
        let meta = json!({"namespace": "web", "name": "a"});
        let mut body = json!({"meta": meta, "op_type": 7, "spec": spec(), "agent_id_list": [AGENT]});
        body["spec"]["control"]["start_cmd"] = json!(start_cmd);
        assert_eq!(world.post(&format!("{GATEWAY}/operate_proc_v2"), body).await.code(), 0);
        session.take_reassign()
    };
    session.take_reassign();

    assert!(operate("./one").await);
    let sent = world.control.assignments(&session, session.sent_generation()).await.unwrap().processes[0].generation;
    session.set_sent_generation(sent);
    assert!(!operate("./one").await);
    assert!(operate("./two").await, "another spec");
    world.end().await;
}

#[tokio::test]
async fn a_second_registration_is_850_and_an_update_goes_through() {
    let world = World::new().await;
    let body = registered("a", "10.0.0.1");

    let first = world.post(&format!("{ESB}/register_proc_info"), body.clone()).await;
    let second = world.post(&format!("{ESB}/register_proc_info"), body.clone()).await;
    let update = world.post(&format!("{ESB}/update_proc_info"), body).await;

    assert_eq!(*first.data(), json!({ROW: {"error_code": 0, "error_msg": "success", "content": ""}}));
    assert_eq!(second.data()[ROW]["error_code"], 850);
    assert_eq!(second.data()[ROW]["error_msg"], "Fail to register, for the process info already exists.");
    assert_eq!(update.data()[ROW]["error_code"], 0);
    world.end().await;
}

#[tokio::test]
async fn an_update_creates_what_is_not_there() {
    let world = World::new().await;

    let update = world.post(&format!("{ESB}/update_proc_info"), registered("a", "10.0.0.1")).await;
    let status = world.post(&format!("{ESB}/get_proc_status"), on_host("a", "10.0.0.1")).await;

    assert_eq!(update.data()[ROW]["error_code"], 0);
    assert_eq!(status.data()["proc_infos"].as_array().unwrap().len(), 1);
    world.end().await;
}

#[tokio::test]
async fn a_host_that_never_enrolled_is_117_and_nothing_is_stored() {
    let world = World::new().await;

    let register = world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.9.9.9")).await;
    let unregister = world.post(&format!("{ESB}/unregister_proc_info"), on_host("a", "10.9.9.9")).await;
    let list = world.post(&format!("{ESB}/sync_proc_status"), json!({"meta": {"namespace": "web"}})).await;

    assert_eq!(register.data()["0:7:10.9.9.9:web:a"]["error_code"], 117);
    assert_eq!(unregister.data()["0:7:10.9.9.9:web:a"]["error_code"], 117);
    assert_eq!(*list.data(), json!({"count": 0, "proc_infos": []}));
    world.end().await;
}

#[tokio::test]
async fn unregistering_twice_is_829() {
    let world = World::new().await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();

    let first = world.post(&format!("{ESB}/unregister_proc_info"), on_host("a", "10.0.0.1")).await;
    let second = world.post(&format!("{ESB}/unregister_proc_info"), on_host("a", "10.0.0.1")).await;

    assert_eq!(first.data()[ROW]["error_code"], 0);
    assert_eq!(second.data()[ROW]["error_code"], 829);
    world.end().await;
}

#[tokio::test]
async fn a_request_with_one_bad_host_changes_nothing() {
    let world = World::new().await;
    let good = json!({"ip": "10.0.0.1", "bk_cloud_id": 0});
    let cases = [
        (json!([]), "hosts: "),
        (json!([good, {"ip": "a\tb", "bk_cloud_id": 0}]), "hosts[1].ip: "),
        (json!([good, {"ip": "10.0.0.2", "bk_cloud_id": -1}]), "hosts[1].bk_cloud_id: "),
        (json!([good, {"bk_cloud_id": 0}]), "hosts[1].ip: "),
    ];

    for (hosts, path) in cases {
        let mut body = registered("a", "10.0.0.1");
        body["hosts"] = hosts;
        let answer = world.post(&format!("{ESB}/register_proc_info"), body).await;

        assert_eq!(answer.code(), 1_306_406);
        assert!(answer.message().starts_with(path), "{}", answer.message());
    }
    let status = world.post(&format!("{ESB}/get_proc_status"), on_host("a", "10.0.0.1")).await;
    assert_eq!(status.data()["proc_infos"], json!([]));
    world.end().await;
}

#[tokio::test]
async fn a_process_that_was_never_observed_is_stopped_and_its_agent_is_named_as_absent() {
    let world = World::new().await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();

    let v1 = world.post(&format!("{ESB}/get_proc_status"), on_host("a", "10.0.0.1")).await;

    let row = &v1.data()["proc_infos"][0];
    assert_eq!(row["meta"], json!({"namespace": "web", "name": "a", "labels": {"tier": "1"}}));
    assert_eq!(row["host"], json!({"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_supplier_id": 7}));
    assert_eq!((&row["status"], &row["flag"], &row["pid"]), (&json!(2), &json!(2), &json!(-1)));
    assert_eq!(row["isauto"], false);
    assert!(row["message"].as_str().unwrap().contains("is not connected"));
    assert!(row["register_time"].as_i64().unwrap() > 1_500_000_000);
    world.end().await;
}

#[tokio::test]
async fn the_last_observation_is_what_is_told() {
    let world = World::new().await;
    world.post(&format!("{ESB}/register_proc_info"), registered("a", "10.0.0.1")).await.data();
    let snapshot = Snapshot {
        phase: Phase::Running,
        managed: true,
        pid: Some(4711),
        version: "1.2".into(),
        started_at: 1_700_000_000,
        reported_at: 1_700_000_100,
        ..Snapshot::default()
    };
    observe(&world, snapshot).await;
    let body = json!({"meta": {"namespace": "web", "name": "a"}, "agent_id_list": ["0:10.0.0.1"]});

    let v2 = world.post(&format!("{GATEWAY}/get_proc_status_v2"), body).await;
    let by_host = world.post(&format!("{ESB}/get_proc_status_v2"), on_host("a", "10.0.0.1")).await;

    let row = &v2.data()["proc_infos"][0];
    assert_eq!((&row["status"], &row["flag"], &row["pid"]), (&json!(1), &json!(1), &json!(4711)));
    assert_eq!((&row["isauto"], &row["version"]), (&json!(true), &json!("1.2")));
    assert_eq!((&row["last_start_time"], &row["report_time"]), (&json!(1_700_000_000), &json!(1_700_000_100)));
    assert_eq!(row["bk_agent_id"], "0:10.0.0.1");
    assert_eq!(by_host.data()["proc_infos"][0]["bk_agent_id"], AGENT);
    assert_eq!(by_host.data()["proc_infos"][0]["host"], json!({"ip": "10.0.0.1", "bk_cloud_id": 0}));
    world.end().await;
}

#[tokio::test]
async fn a_namespace_is_listed_in_pages() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.post(&format!("{ESB}/register_proc_info"), registered(name, "10.0.0.1")).await.data();
    }
    let page = json!({"meta": {"namespace": "web"}, "page": {"start": 1, "limit": 1}});

    let answer = world.post(&format!("{GATEWAY}/sync_proc_status"), page).await;

    let names: Vec<&Value> =
        answer.data()["proc_infos"].as_array().unwrap().iter().map(|row| &row["meta"]["name"]).collect();
    assert_eq!((&answer.data()["count"], names), (&json!(3), vec![&json!("b")]));
    world.end().await;
}

#[tokio::test]
async fn agents_are_told_alive_only_while_connected() {
    let world = World::new().await;
    let hosts = json!({"hosts": [{"ip": "10.0.0.1", "bk_cloud_id": 0}, {"ip": "10.9.9.9", "bk_cloud_id": 0}]});
    let ids = json!({"agent_id_list": [AGENT]});

    let before = world.post(&format!("{ESB}/get_agent_status"), hosts.clone()).await;
    observe(&world, Snapshot::default()).await;
    let after = world.post(&format!("{ESB}/get_agent_status"), hosts).await;
    let state = world.post("/api/v2/cluster/list_agent_state", ids).await;
    let unknown = world.post("/api/v2/cluster/list_agent_state", json!({"agent_id_list": ["nobody"]})).await;

    assert_eq!(before.data()["0:10.0.0.1"]["bk_agent_alive"], 0);
    assert_eq!(after.data()["0:10.0.0.1"], json!({"ip": "10.0.0.1", "bk_cloud_id": 0, "bk_agent_alive": 1}));
    assert_eq!(after.data()["0:10.9.9.9"]["bk_agent_alive"], 0);
    assert_eq!((&state.data()[0]["status_code"], &state.data()[0]["bk_agent_id"]), (&json!(2), &json!(AGENT)));
    assert_eq!(unknown.code(), 1_011_003);
    assert!(!state.json.to_string().contains(APP));
    world.end().await;
}
