//! Agents behind relays: real programs, with relays that are killed in the middle.

use proctor_testkit::{Fleet, Program, Relays, Subject, eventually, run_proctor};
use serde_json::{Value, json};

use crate::{code, hosts};

const IP: &str = "127.0.0.1";

/// The one that carries the agent now, according to the agent.
fn used_by(relays: &Relays, agent: &Program) -> usize {
    let log = agent.log();
    let last = log.lines().rfind(|line| line.contains(": connected")).expect("it has connected").to_owned();
    relays.ports.iter().position(|port| last.contains(&format!(":{port}"))).expect("through a relay")
}

async fn agent(fleet: &Fleet, relays: &Relays) -> Program {
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--data-dir", &data]).unwrap();
    let state_dir = fleet.dir().join("agent").display().to_string();
    let endpoints = relays.endpoints();
    let arguments = ["--server", &endpoints, "--state-dir", &state_dir, "--ip", IP, "--token", &token];
    let agent = Program::start("proctor-agent", &arguments.map(str::to_owned), &fleet.dir().join("agent.log")).unwrap();
    fleet.until_online(IP, true).await;
    agent
}

async fn register(fleet: &Fleet, subject: &Subject, start_cmd: &str) {
    let mut spec = subject.spec();
    spec["control"]["start_cmd"] = json!(start_cmd);
    let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
    fleet.gse("register_proc_info", &register).await.unwrap();
}

fn operation(subject: &Subject, op_type: u32) -> Value {
    json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])})
}

#[tokio::test]
async fn an_agent_works_through_a_relay_and_moves_to_another_when_that_is_killed() {
    let fleet = Fleet::start().await.unwrap();
    let mut relays = Relays::start(&fleet, 2).await.unwrap();
    let agent = agent(&fleet, &relays).await;
    let subject = Subject::new(fleet.dir(), "moved").unwrap();
    let gate = subject.dir.join("gate");
    let start = format!("echo start >> commands.log; while [ ! -e {} ]; do sleep 0.1; done; {}", gate.display(), {
        let name = &subject.name;
        format!("./{name} 100000 > /dev/null 2>&1 & echo $! > {name}.pid")
    });
    register(&fleet, &subject, &start).await;

    let submitted = fleet.gse("operate_proc", &operation(&subject, 0)).await.unwrap();
    let task = submitted["data"]["task_id"].as_str().unwrap().to_owned();
    eventually("the command runs", || async { (subject.starts() == 1).then_some(()) }).await;
    let used = used_by(&relays, &agent);
    relays.programs[used].kill();
    eventually("the agent has a session through the other one", || async {
        (used_by(&relays, &agent) != used).then_some(())
    })
    .await;
    std::fs::write(&gate, "").unwrap();

    let rows = fleet.until_final(&task).await;
    assert_eq!(code(&rows, IP, "moved"), 0, "{rows}");
    assert_eq!((subject.starts(), subject.copies().len()), (1, 1), "it took effect once");
    let events = fleet.get("/api/v1/events").await.unwrap().to_string();
    assert!(!events.contains("agent_offline"), "{events}");
}

#[tokio::test]
async fn without_its_relays_an_area_is_unreachable_and_not_down() {
    let fleet = Fleet::start().await.unwrap();
    let mut relays = Relays::start(&fleet, 1).await.unwrap();
    let _agent = agent(&fleet, &relays).await;
    let subject = Subject::new(fleet.dir(), "cut_off").unwrap();
    register(&fleet, &subject, &subject.start_cmd()).await;

    relays.programs[0].kill();
    let host = || async { Some(fleet.get("/api/v1/hosts").await.ok()?["hosts"][0].clone()) };
    eventually("the host is unreachable", || async {
        let host = host().await?;
        (host["unreachable"] == true && host["online"] == false).then_some(())
    })
    .await;
    let rows = fleet.operate("operate_proc", &operation(&subject, 0)).await.unwrap();
    assert_eq!(code(&rows, IP, "cut_off"), 117, "{rows}");
    assert!(rows.to_string().contains("no relay of cloud area 0 is connected"), "{rows}");
    let events = fleet.get("/api/v1/events").await.unwrap().to_string();
    assert!(!events.contains("agent_offline"), "{events}");

    relays.restart(0).unwrap();
    fleet.until_online(IP, true).await;
    let rows = fleet.operate("operate_proc", &operation(&subject, 0)).await.unwrap();
    assert_eq!(code(&rows, IP, "cut_off"), 0, "{rows}");
}

#[tokio::test]
async fn agents_of_a_relay_that_is_told_to_stop_move_and_nobody_is_called_offline() {
    const AGENTS: usize = 60;
    let fleet = Fleet::start().await.unwrap();
    let mut relays = Relays::start(&fleet, 2).await.unwrap();
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--uses", &AGENTS.to_string(), "--data-dir", &data]).unwrap();
    let (endpoints, count) = (relays.endpoints(), AGENTS.to_string());
    let arguments = ["swarm", "--token", &token, "--agents", &count, "--via-relay", &endpoints];
    let log = fleet.dir().join("swarm.log");
    let mut swarm = Program::start("proctor", &arguments.map(str::to_owned), &log).unwrap();
    eventually("both relays carry agents, and all together", || async {
        let carried = relays.carried(&fleet).await?;
        (carried.iter().all(|count| *count > 0) && carried.iter().sum::<u64>() == AGENTS as u64).then_some(())
    })
    .await;

    assert!(relays.programs[0].terminate().unwrap().success());
    eventually("the other one carries all of them", || async {
        let (carried, hosts) = (relays.carried(&fleet).await?, fleet.get("/api/v1/hosts?limit=100").await.ok()?);
        let online = hosts["hosts"].as_array()?.iter().filter(|host| host["online"] == true).count();
        (carried.contains(&(AGENTS as u64)) && online == AGENTS).then_some(())
    })
    .await;

    let events = fleet.get("/api/v1/events?type=agent_offline").await.unwrap();
    assert_eq!(events["events"].as_array().map(Vec::len), Some(0), "{events}");
    assert!(swarm.terminate().unwrap().success(), "{}", swarm.log());
}

#[tokio::test]
async fn a_swarm_is_spread_over_all_relays() {
    let fleet = Fleet::start().await.unwrap();
    let relays = Relays::start(&fleet, 2).await.unwrap();
    let data = fleet.dir().join("data").display().to_string();
    let token = run_proctor(&["token", "create", "--uses", "6", "--data-dir", &data]).unwrap();
    let endpoints = relays.endpoints();
    // Slow enough that each agent is connected before the next one enrols.
    let arguments = ["swarm", "--token", &token, "--agents", "6", "--via-relay", &endpoints, "--connect-rate", "3"];
    let log = fleet.dir().join("swarm.log");
    let _swarm = Program::start("proctor", &arguments.map(str::to_owned), &log).unwrap();

    let carried = eventually("all agents are connected", || async {
        let relays = fleet.get("/api/v1/relays").await.ok()?;
        let carried: Vec<u64> = relays["relays"].as_array()?.iter().filter_map(|one| one["agents"].as_u64()).collect();
        (carried.iter().sum::<u64>() == 6).then_some(carried)
    })
    .await;
    assert!(carried.iter().all(|count| *count > 0), "a relay carries nobody: {carried:?}");
}
