//! Hosts in maintenance and hosts that await approval, with a real agent.

use proctor_testkit::{APP, Fleet, Program, Subject, eventually, run_proctor};
use serde_json::{Value, json};

use crate::{code, hosts, row};

const IP: &str = "127.0.0.1";

/// Runs the CLI against the fleet's server.
fn proctor(fleet: &Fleet, arguments: &[&str]) -> anyhow::Result<String> {
    let (server, secret) = (fleet.url(""), fleet.secret.clone());
    let own = ["--server", &server, "--app-code", APP, "--app-secret", &secret, "--user", "ada"];
    run_proctor(&[arguments, &own].concat())
}

async fn registered(fleet: &Fleet, name: &str) -> Subject {
    let subject = Subject::new(fleet.dir(), name).unwrap();
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &body).await.unwrap();
    subject
}

async fn operate(fleet: &Fleet, subject: &Subject, op_type: i64) -> Value {
    let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
    fleet.operate("operate_proc", &body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_host_refuses_starts_and_keeps_what_runs_alive() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let (runs, rests) = (registered(&fleet, "runs").await, registered(&fleet, "rests").await);
    assert_eq!(code(&operate(&fleet, &runs, 0).await, IP, "runs"), 0);
    let first = runs.pid().unwrap();

    let said = proctor(&fleet, &["hosts", "cordon", IP, "--reason", "new disk", "--for", "1h"]).unwrap();
    let listed = proctor(&fleet, &["hosts"]).unwrap();
    let refused = operate(&fleet, &rests, 0).await;
    runs.kill(first);

    assert!(said.contains("takes no starts from the fleet"), "{said}");
    assert!(listed.contains("online,cordoned") && listed.contains("new disk (until 20"), "{listed}");
    assert_eq!(code(&refused, IP, "rests"), 128, "{refused}");
    let told = row(&refused, IP, "rests")["error_msg"].as_str().unwrap();
    assert!(told.contains("is cordoned by app testapp for user ada until") && told.ends_with("new disk"), "{told}");
    assert_eq!(rests.starts(), 0);
    eventually("the agent starts again what it supervises", || async { runs.pid().filter(|pid| *pid != first) }).await;
    eventually("the exit is stored as muted", || async {
        let events = fleet.get("/api/v1/events?namespace=e2e&name=runs&type=exited").await.ok()?;
        events["events"].as_array()?.iter().any(|event| event["muted"] == true).then_some(())
    })
    .await;
    assert_eq!(code(&operate(&fleet, &runs, 1).await, IP, "runs"), 0, "a stop goes through");
    proctor(&fleet, &["hosts", "uncordon", IP]).unwrap();
    assert_eq!(code(&operate(&fleet, &rests, 0).await, IP, "rests"), 0);
    assert_eq!(code(&operate(&fleet, &rests, 1).await, IP, "rests"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_ends_by_itself() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = registered(&fleet, "patient").await;

    proctor(&fleet, &["hosts", "cordon", IP, "--reason", "a moment", "--for", "3s"]).unwrap();

    eventually("the cordon is over", || async {
        fleet.get("/api/v1/hosts/127.0.0.1").await.ok()?.get("cordon").is_none().then_some(())
    })
    .await;
    assert_eq!(code(&operate(&fleet, &subject, 0).await, IP, "patient"), 0);
    assert_eq!(code(&operate(&fleet, &subject, 1).await, IP, "patient"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_told_to_stop_says_goodbye() {
    let fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();

    assert!(agent.program.terminate().unwrap().success());

    eventually("the server has heard that it ends in order", || async {
        fleet.server.program.log().contains("the agent shut down cleanly").then_some(())
    })
    .await;
}

/// An agent that is not waited for.
fn unapproved(fleet: &Fleet) -> (Program, std::path::PathBuf) {
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--data-dir", &data]).unwrap();
    let state = fleet.dir().join("agent");
    let link = format!("127.0.0.1:{}", fleet.server.link);
    let arguments = ["--server", &link, "--state-dir", state.to_str().unwrap(), "--ip", IP, "--token", &token];
    let program =
        Program::start("proctor-agent", &arguments.map(String::from), &fleet.dir().join("agent.log")).unwrap();
    (program, state)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_host_waits_for_its_approval_and_is_removed_with_its_processes_alive() {
    let fleet = Fleet::start_in(tempfile::tempdir().unwrap(), &["--approve-hosts"]).await.unwrap();
    let (program, _) = unapproved(&fleet);
    eventually("the host waits, with its facts", || async {
        let host = fleet.get("/api/v1/hosts/127.0.0.1").await.ok()?;
        (host["awaits_approval"] == true && host["facts"]["agent_version"].as_str()?.len() > 1).then_some(())
    })
    .await;
    let listed = proctor(&fleet, &["hosts"]).unwrap();
    assert!(listed.contains("pending"), "{listed}");
    eventually("the agent says what it waits for", || async {
        program.log().contains("awaits approval").then_some(())
    })
    .await;
    let other = proctor(&fleet, &["hosts", "approve", IP, "--key", "00:11"]).unwrap_err().to_string();
    assert!(other.contains("enrolled with key"), "{other}");

    let key = fleet.get("/api/v1/hosts/127.0.0.1").await.unwrap()["key_fingerprint"].as_str().unwrap().to_owned();
    proctor(&fleet, &["hosts", "approve", IP, "--key", &key]).unwrap();

    fleet.until_online(IP, true).await;
    let subject = registered(&fleet, "survivor").await;
    assert_eq!(code(&operate(&fleet, &subject, 0).await, IP, "survivor"), 0);
    let pid = subject.pid().unwrap();
    proctor(&fleet, &["hosts", "remove", IP]).unwrap();
    eventually("the agent hears of it", || async { program.log().contains("was removed").then_some(()) }).await;
    assert_eq!(subject.pid(), Some(pid));
}
