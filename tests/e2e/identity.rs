//! Identities of agents: copies of a state directory, and hosts that were revoked.

use std::process::Command;

use proctor_testkit::{Fleet, Program, binary, eventually, run_proctor};

const IP: &str = "127.0.0.1";

/// A copy of a state directory; made again where the agent has just replaced one of its files.
async fn copied(fleet: &Fleet, from: &std::path::Path) -> String {
    let copy = fleet.dir().join("copy");
    eventually("the copy is whole", || async {
        let _ = std::fs::remove_dir_all(&copy);
        Command::new("cp").arg("-a").args([from, &copy]).status().unwrap().success().then_some(())
    })
    .await;
    copy.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_on_a_copied_state_directory_ends_before_it_does_anything() {
    let fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();
    let copy = copied(&fleet, agent.state_dir()).await;
    let link = format!("127.0.0.1:{}", fleet.server.link);

    let output = Command::new(binary("proctor-agent"))
        .args(["--server", &link, "--state-dir", &copy, "--ip", IP])
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("runs on this machine already, from another state directory"), "{said}");
    assert!(!said.contains("connected"), "{said}");
    agent.restart().unwrap();
    fleet.until_online(IP, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_connected_while_the_original_was_away_shuts_the_original_out() {
    let fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();
    let recorded = |dir: &std::path::Path| std::fs::read_to_string(dir.join("identity/session")).ok();
    // The server knows of a session a moment before the agent has recorded it.
    eventually("the original has recorded its session", || async { recorded(agent.state_dir()) }).await;
    agent.program.kill();
    fleet.until_online(IP, false).await;
    let copy = copied(&fleet, agent.state_dir()).await;
    let link = format!("127.0.0.1:{}", fleet.server.link);
    let arguments = ["--server", &link, "--state-dir", &copy, "--ip", IP].map(String::from);
    let mut clone = Program::start("proctor-agent", &arguments, &fleet.dir().join("copy.log")).unwrap();
    fleet.until_online(IP, true).await;
    eventually("the copy has recorded its session", || async {
        (recorded(copy.as_ref()) != recorded(agent.state_dir())).then_some(())
    })
    .await;
    clone.terminate().unwrap();
    fleet.until_online(IP, false).await;

    agent.restart().unwrap();

    eventually("the server refuses the older state", || async {
        agent.program.log().contains("is an old copy").then_some(())
    })
    .await;
    let mut arguments = vec!["hosts", "allow-rejoin", IP];
    let (server, secret) = (fleet.url(""), fleet.secret.clone());
    arguments.extend([
        "--server",
        &server,
        "--app-code",
        proctor_testkit::APP,
        "--app-secret",
        &secret,
        "--user",
        "op",
    ]);
    let said = run_proctor(&arguments).unwrap();
    assert!(said.starts_with("0:127.0.0.1 may rejoin once until "), "{said}");
    agent.restart().unwrap();
    fleet.until_online(IP, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_enrols_again_for_lack_of_a_certificate_is_the_same_agent() {
    let fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();
    let id = async || fleet.get("/api/v1/hosts").await.unwrap()["hosts"][0]["agent"].clone();
    let before = id().await;
    assert!(before.is_string(), "{before}");
    agent.program.kill();
    fleet.until_online(IP, false).await;

    std::fs::remove_file(agent.state_dir().join("identity/certificate.pem")).unwrap();
    let _again = fleet.agent(IP).await.unwrap();

    assert_eq!(id().await, before);
}
