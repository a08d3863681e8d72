//! Operations that wait for an offline host, with the real programs.

use proctor_testkit::{APP, Fleet, Subject, eventually, run_proctor};
use serde_json::{Value, json};

use crate::hosts;

const IP: &str = "127.0.0.1";

/// Runs the CLI against the fleet's server.
fn proctor(fleet: &Fleet, arguments: &[&str]) -> anyhow::Result<String> {
    let (server, secret) = (fleet.url(""), fleet.secret.clone());
    let own = ["--server", &server, "--app-code", APP, "--app-secret", &secret, "--user", "ada"];
    run_proctor(&[arguments, &own].concat())
}

/// The only row of a task.
async fn row(fleet: &Fleet, task: &str) -> Value {
    fleet.get(&format!("/api/v1/tasks/{task}/targets")).await.unwrap()["targets"][0].clone()
}

async fn until_code(fleet: &Fleet, task: &str, code: u32) -> Value {
    eventually("the row has its code", || async { Some(row(fleet, task).await).filter(|row| row["code"] == code) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_waits_for_its_host_across_a_death_of_the_server_and_runs_once() {
    let mut fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "later").unwrap();
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &body).await.unwrap();
    agent.program.kill();
    // A host that may still come back may have received what is asked; cancels then wait for its answer.
    eventually("the host is offline", || async {
        let hosts = fleet.get("/api/v1/hosts").await.ok()?;
        let host = &hosts["hosts"][0];
        (host["online"] == false && host["suspect"] != true).then_some(())
    })
    .await;

    let start = ["start", "e2e/later", "--host", IP, "--no-wait"];
    let waiting = proctor(&fleet, &[&start[..], &["--wait-for-offline", "10m"]].concat()).unwrap();
    let cancelled =
        proctor(&fleet, &["stop", "e2e/later", "--host", IP, "--no-wait", "--wait-for-offline", "10m"]).unwrap();
    let fast = proctor(&fleet, &start).unwrap();
    let (waiting, cancelled, fast) = (waiting.trim(), cancelled.trim(), fast.trim());
    until_code(&fleet, fast, 117).await;
    let shown = row(&fleet, waiting).await;
    assert_eq!(shown["code"], 115, "{shown}");
    assert!(shown["message"].as_str().unwrap().starts_with("waits for agent "), "{shown}");

    fleet.restart_server().await.unwrap();
    proctor(&fleet, &["task", "cancel", cancelled]).unwrap();
    until_code(&fleet, cancelled, 126).await;
    assert_eq!(row(&fleet, waiting).await["code"], 115);
    assert_eq!(subject.starts(), 0);
    agent.restart().unwrap();

    until_code(&fleet, waiting, 0).await;
    assert_eq!(subject.starts(), 1);
    proctor(&fleet, &["stop", "e2e/later", "--host", IP]).unwrap();
    assert_eq!(subject.starts(), 1, "what failed fast or was cancelled did not come back");
}
