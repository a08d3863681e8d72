//! `proctor swarm`: simulated agents, a real server, real connections.

use proctor_testkit::{APP, Fleet, Program, eventually, run_proctor};
use serde_json::json;

const AGENTS: usize = 40;

#[tokio::test]
async fn a_swarm_enrols_runs_operations_once_and_comes_back_after_a_server_restart() {
    let mut fleet = Fleet::start().await.unwrap();
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--uses", &AGENTS.to_string(), "--data-dir", &data]).unwrap();
    let behaviour = fleet.dir().join("behaviour.toml");
    let groups = "[[group]]\nname = 'failing'\nshare = 0.25\nfailures = 1.0\n\
                  [[group]]\nname = 'dropping'\nshare = 0.25\ndisconnect_every_secs = 1\n\
                  [[group]]\nname = 'crashing'\nshare = 0.25\ncrash_every_secs = 1\nclock_offset_ms = -90000\n";
    std::fs::write(&behaviour, groups).unwrap();
    let log = fleet.dir().join("swarm.log");
    let line = format!(
        "--server 127.0.0.1:{} --app-code {APP} --app-secret {} --user admin swarm --token {token} --agents {AGENTS} \
         --processes-per-agent 2 --api {} --behaviour {} --connect-rate 100",
        fleet.server.link,
        fleet.secret,
        fleet.url(""),
        behaviour.display()
    );
    let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let mut swarm = Program::start("proctor", &arguments, &log).unwrap();
    eventually("the processes are registered", || async {
        swarm.log().contains("registered 2 processes on each of 40 hosts").then_some(())
    })
    .await;

    let hosts: Vec<_> = (0..AGENTS).map(|n| json!({"ip": format!("10.64.0.{n}"), "bk_cloud_id": 0})).collect();
    let start = json!({"meta": {"namespace": "swarm", "name": "p-0"}, "op_type": 0, "hosts": hosts});
    let rows = fleet.operate("operate_proc", &start).await.unwrap();
    let code = |ip: usize| rows[format!("0:0:10.64.0.{ip}:swarm:p-0")]["error_code"].as_i64().unwrap();
    assert!((0..10).all(|ip| code(ip) == 65535), "a quarter fails: {rows}");
    assert!((20..AGENTS).all(|ip| code(ip) == 0), "half is steady: {rows}");

    fleet.restart_server().await.unwrap();
    let online = || async {
        let hosts = fleet.get("/api/v1/hosts?limit=100").await.ok()?;
        let online = hosts["hosts"].as_array()?.iter().filter(|host| host["online"] == true).count();
        (online >= AGENTS - 10).then_some(())
    };
    eventually("whoever does not drop out is back", online).await;

    assert!(swarm.terminate().unwrap().success(), "no promise was broken: {}", swarm.log());
    let report = swarm.log();
    for line in ["enrol ", "connect ", "fan-out ", "outcome acknowledged "] {
        assert!(report.lines().any(|found| found.starts_with(line)), "{line} is missing: {report}");
    }
    assert!(report.contains("0  operation delivered after its outcome was acknowledged"), "{report}");
}

#[tokio::test]
async fn a_swarm_reports_as_json() {
    let fleet = Fleet::start().await.unwrap();
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--uses", "2", "--data-dir", &data]).unwrap();
    let link = format!("127.0.0.1:{}", fleet.server.link);

    let arguments = ["--server", &link, "-o", "json", "swarm", "--token", &token, "--agents", "2", "--for", "2s"];
    let report: serde_json::Value = serde_json::from_str(&run_proctor(&arguments).unwrap()).unwrap();

    assert!(report["counters"]["sessions"].is_u64() && report["latencies"].is_object(), "{report}");
    let violations = report["violations"].as_object().unwrap();
    assert!(!violations.is_empty() && violations.values().all(|count| *count == 0), "{report}");
}
