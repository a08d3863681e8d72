//! Servers that die under load, and clients that contradict one another; judged by what everybody recorded.
//! Larger fleets: `make soak`.

use std::time::Duration;

use proctor_testkit::{Answer, Fleet, History, Load, LoadPlan, Subject, Swarm, SwarmPlan, eventually};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{code, hosts};

const IP: &str = "127.0.0.1";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_loses_nothing_and_repeats_nothing() {
    let mut fleet = Fleet::start().await.unwrap();
    let mut plan = SwarmPlan::new(20, 2);
    plan.behaviour = "[[group]]\nname = 'slow'\nshare = 0.5\ncommand_ms = [50, 800]\n".to_owned();
    let swarm = Swarm::start(&fleet, &plan).await.unwrap();
    let api = fleet.api();
    let load = Load::start(api.clone(), LoadPlan { rate: 40, hosts: swarm.hosts(), processes: 2 });

    for round in 1..=2 {
        eventually("the load goes on", || async { (load.answered().await >= 60 * round).then_some(()) }).await;
        fleet.restart_server().await.unwrap();
    }
    swarm.until_online(&api).await;
    let before = load.answered().await;
    eventually("the load goes on", || async { (load.answered().await > before + 20).then_some(()) }).await;

    let mut history = load.finish().await.unwrap();
    history.hosts = swarm.finish().unwrap();
    history.has_all_executions = true;
    history.assert_holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_whose_server_is_killed_is_one_task_or_none_until_it_is_repeated() {
    const ROUNDS: usize = 5;
    let mut fleet = Fleet::start().await.unwrap();
    let swarm = Swarm::start(&fleet, &SwarmPlan::new(10, 20)).await.unwrap();
    let api = fleet.api();
    let mut history = History::default();
    let everything: Vec<_> = swarm
        .hosts()
        .iter()
        .flat_map(|host| (0..20).map(move |number| json!({"process": format!("swarm/p-{number}"), "host": host})))
        .collect();

    for round in 0..ROUNDS {
        let (api, key) = (api.clone(), format!("round-{round}"));
        let operation = json!({"operation": "restart", "targets": everything});
        let (of_submit, first_key, first_operation) = (api.clone(), key.clone(), operation.clone());
        let mut submitting = JoinSet::new();
        submitting.spawn(async move { of_submit.submit(&first_operation, &first_key).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(12 * round as u64)).await;
        fleet.server.program.kill();
        let answered = submitting.join_next().await.unwrap().unwrap();
        history.answers.extend(answered.map(|task| Answer { key: key.clone(), task }));
        fleet.start_server_again().await.unwrap();
        let task = proctor_testkit::submit_until_answered(&api, &operation, &key).await.unwrap();
        history.answers.push(Answer { key, task });
    }

    proctor_testkit::read_until_final(&api, &mut history).await.unwrap();
    let tasks = fleet.get("/api/v1/tasks?limit=100").await.unwrap();
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), ROUNDS, "{tasks}");
    history.hosts = swarm.finish().unwrap();
    history.has_all_executions = true;
    history.assert_holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_and_stops_of_two_clients_at_once_follow_one_another() {
    const ROUNDS: usize = 25;
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "contested").unwrap();
    let mut spec = subject.spec();
    spec["monitor_policy"]["start_check_secs"] = json!(0);
    for (name, command) in [("start_cmd", "start"), ("stop_cmd", "stop")] {
        let plain =
            spec["control"][name].as_str().unwrap().replacen(&format!("echo {command} >> commands.log; "), "", 1);
        spec["control"][name] = json!(format!("echo begin >> order.log; {plain}; echo end {command} >> order.log"));
    }
    let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
    fleet.gse("register_proc_info", &register).await.unwrap();

    let submit_all = async |op_type: u8| {
        let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
        let mut tasks = Vec::new();
        for _ in 0..ROUNDS {
            let answer = fleet.gse("operate_proc", &body).await.unwrap();
            tasks.push(answer["data"]["task_id"].as_str().unwrap().to_owned());
        }
        tasks
    };
    let (starts, stops) = tokio::join!(submit_all(0), submit_all(1));

    for task in starts.iter().chain(&stops) {
        let rows = fleet.until_final(task).await;
        assert!([0, 828, 829].contains(&code(&rows, IP, "contested")), "{rows}");
    }
    let order = std::fs::read_to_string(subject.dir.join("order.log")).unwrap();
    let lines: Vec<&str> = order.lines().collect();
    assert!(lines.chunks(2).all(|pair| pair[0] == "begin" && pair[1].starts_with("end ")), "{order}");
    // Alternately, because a start of what runs and a stop of what does not are refused without a command.
    let commands: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("end ")).collect();
    assert!(commands.iter().enumerate().all(|(index, command)| *command == ["start", "stop"][index % 2]), "{order}");
    assert_eq!(subject.copies().len(), usize::from(commands.last() == Some(&"start")), "{order}");
}
