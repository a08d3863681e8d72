//! A server that comes back and agrees with its agents: nothing is sent again.

use proctor_testkit::{Fleet, Subject, eventually};
use serde_json::json;

use crate::{code, hosts};

const IP: &str = "127.0.0.1";

async fn registered(fleet: &Fleet, name: &str) -> Subject {
    let subject = Subject::new(fleet.dir(), name).unwrap();
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &body).await.unwrap();
    subject
}

/// How many sessions agreed, and how many did not.
async fn resyncs(fleet: &Fleet, what: &str) -> [u64; 2] {
    let text = fleet.question("/metrics").send().await.unwrap().text().await.unwrap();
    let value = |result: &str| {
        let series = format!("proctor_link_resyncs_total{{what=\"{what}\",result=\"{result}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or(0)
    };
    ["equal", "different"].map(value)
}

async fn until_running(fleet: &Fleet, name: &str, pid: i32) {
    eventually("the store knows the process", || async {
        let shown = fleet.get(&format!("/api/v1/processes?namespace=e2e&name={name}")).await.ok()?;
        let process = &shown["processes"][0];
        (process["phase"] == "running" && process["pid"] == pid && process["managed"] == true).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_hears_nothing_of_what_it_has_and_all_of_what_has_changed() {
    let mut fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();
    let subject = registered(&fleet, "runs").await;
    let start = json!({"meta": subject.meta(), "op_type": 0, "hosts": hosts(&[IP])});
    assert_eq!(code(&fleet.operate("operate_proc", &start).await.unwrap(), IP, "runs"), 0);
    let first = subject.pid().unwrap();
    until_running(&fleet, "runs", first).await;

    fleet.restart_server().await.unwrap();
    fleet.until_online(IP, true).await;
    assert_eq!(resyncs(&fleet, "assignments").await, [1, 0]);
    assert_eq!(resyncs(&fleet, "observations").await, [1, 0]);
    until_running(&fleet, "runs", first).await;

    // While there is no server, the process dies and is restarted; and the agent becomes another process.
    fleet.server.program.kill();
    subject.kill(first);
    let second = eventually("it is started again", || async { subject.pid().filter(|pid| *pid != first) }).await;
    agent.program.kill();
    agent.restart().unwrap();
    fleet.start_server_again().await.unwrap();
    fleet.until_online(IP, true).await;
    assert_eq!(resyncs(&fleet, "assignments").await, [1, 0], "its ledger knows the generations");
    assert_eq!(resyncs(&fleet, "observations").await, [0, 1]);
    until_running(&fleet, "runs", second).await;

    // What is registered while the agent is away is all that it is sent.
    agent.program.kill();
    fleet.until_online(IP, false).await;
    let _later = registered(&fleet, "later").await;
    agent.restart().unwrap();
    fleet.until_online(IP, true).await;
    assert_eq!(resyncs(&fleet, "assignments").await, [1, 1]);
    eventually("the agent reports it", || async {
        let shown = fleet.get("/api/v1/processes?namespace=e2e&name=later").await.ok()?;
        (shown["processes"][0]["phase"] == "stopped").then_some(())
    })
    .await;
    assert!(!fleet.server.program.log().contains("full registration list"), "{}", fleet.server.program.log());
    let stop = json!({"meta": subject.meta(), "op_type": 1, "hosts": hosts(&[IP])});
    assert_eq!(code(&fleet.operate("operate_proc", &stop).await.unwrap(), IP, "runs"), 0);
}
