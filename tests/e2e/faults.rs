//! What must be survived: the end of agents and servers at the worst moment.

use proctor_testkit::{Agent, Fleet, Subject, eventually};
use serde_json::{Value, json};

use crate::{code, hosts, instance, row};

const IP: &str = "127.0.0.1";

async fn started(name: &str) -> (Fleet, Agent, Subject) {
    let (fleet, agent, subject) = registered(name, |_| {}).await;
    let body = json!({"meta": subject.meta(), "op_type": 0, "hosts": hosts(&[IP])});
    let rows = fleet.operate("operate_proc", &body).await.unwrap();
    assert_eq!(code(&rows, IP, name), 0, "{rows}");
    (fleet, agent, subject)
}

async fn registered(name: &str, change: impl FnOnce(&mut Value)) -> (Fleet, Agent, Subject) {
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), name).unwrap();
    let mut spec = subject.spec();
    change(&mut spec);
    fleet
        .gse("register_proc_info", &json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec}))
        .await
        .unwrap();
    (fleet, agent, subject)
}

#[tokio::test]
async fn an_unknown_host_is_117_and_changes_nothing() {
    let fleet = Fleet::start().await.unwrap();
    let subject = Subject::new(fleet.dir(), "nowhere").unwrap();
    let body = json!({"meta": subject.meta(), "hosts": hosts(&["10.9.9.9"]), "spec": subject.spec()});

    let register = fleet.gse("register_proc_info", &body).await.unwrap();
    let body = json!({"meta": subject.meta(), "op_type": 2, "hosts": hosts(&["10.9.9.9"])});
    let status = fleet.operate("operate_proc", &body).await.unwrap();

    assert_eq!(code(&register["data"], "10.9.9.9", "nowhere"), 117);
    assert_eq!(code(&status, "10.9.9.9", "nowhere"), 117);
    assert!(row(&status, "10.9.9.9", "nowhere")["error_msg"].as_str().unwrap().contains("10.9.9.9"));
    assert_eq!(fleet.get("/api/v1/processes").await.unwrap()["processes"], json!([]));
}

#[tokio::test]
async fn of_two_hosts_the_offline_one_is_117_and_the_other_succeeds() {
    let fleet = Fleet::start().await.unwrap();
    let _here = fleet.agent("127.0.0.1").await.unwrap();
    let mut there = fleet.agent("127.0.0.2").await.unwrap();
    let subject = Subject::new(fleet.dir(), "halfway").unwrap();
    let both = hosts(&["127.0.0.1", "127.0.0.2"]);
    there.program.kill();
    fleet.until_online("127.0.0.2", false).await;
    let register = json!({"meta": subject.meta(), "hosts": both, "spec": subject.spec()});
    let answer = fleet.gse("register_proc_info", &register).await.unwrap();
    assert_eq!(code(&answer["data"], "127.0.0.2", "halfway"), 0, "an offline host is registered all the same");

    let body = json!({"meta": subject.meta(), "op_type": 0, "hosts": both});
    let task = fleet.gse("operate_proc", &body).await.unwrap()["data"]["task_id"].as_str().unwrap().to_owned();
    let absent = eventually("the offline row is final", || async {
        let poll = fleet.gse("get_proc_operate_result", &json!({"task_id": task})).await.unwrap();
        let code = code(&poll["data"], "127.0.0.2", "halfway");
        (code != 115).then_some(code)
    })
    .await;

    assert_eq!(absent, 117);
    let rows = fleet.until_final(&task).await;
    assert_eq!(code(&rows, "127.0.0.1", "halfway"), 0, "{rows}");

    // What was registered while it was away reaches the host when it is back.
    there.restart().unwrap();
    fleet.until_online("127.0.0.2", true).await;
    let body = json!({"meta": subject.meta(), "op_type": 2, "hosts": hosts(&["127.0.0.2"])});
    let rows = fleet.operate("operate_proc", &body).await.unwrap();
    assert_eq!(code(&rows, "127.0.0.2", "halfway"), 0, "{rows}");
}

#[tokio::test]
async fn the_process_survives_its_agent_and_is_adopted_again() {
    let (fleet, mut agent, subject) = started("survivor").await;
    let before = subject.pid().unwrap();

    agent.program.kill();
    fleet.until_online(IP, false).await;
    assert_eq!(subject.pid(), Some(before));
    agent.restart().unwrap();
    fleet.until_online(IP, true).await;

    let seen = instance(&fleet, IP, "survivor").await;
    assert_eq!((&seen["pid"], &seen["isAuto"]), (&json!(before), &json!(true)));
    assert_eq!(subject.copies(), vec![before]);
    assert_eq!(subject.starts(), 1);
    // And it is watched again.
    subject.kill(before);
    eventually("the adopted process is restarted", || async { subject.pid().filter(|pid| *pid != before) }).await;
    assert_eq!(subject.copies().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_processes_survive_their_agent_and_are_adopted_again() {
    const COUNT: usize = 50;
    let fleet = Fleet::start().await.unwrap();
    let mut agent = fleet.agent(IP).await.unwrap();
    let subjects: Vec<Subject> =
        (0..COUNT).map(|number| Subject::new(fleet.dir(), &format!("many-{number}")).unwrap()).collect();
    for subject in &subjects {
        let mut spec = subject.spec();
        spec["monitor_policy"]["start_check_secs"] = json!(0);
        let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
        fleet.gse("register_proc_info", &register).await.unwrap();
    }
    let start = json!({"operation": "start", "selector": "proc_name", "all": true});
    let task = proctor_testkit::submit_until_answered(&fleet.api(), &start, "start").await.unwrap();
    let rows = fleet.until_final(&task).await;
    assert!(rows.as_object().unwrap().values().all(|row| row["error_code"] == 0), "{rows}");
    let pids = |subjects: &[Subject]| subjects.iter().map(Subject::pid).collect::<Vec<_>>();
    let before = pids(&subjects);

    agent.program.kill();
    fleet.until_online(IP, false).await;
    agent.restart().unwrap();
    fleet.until_online(IP, true).await;

    let query = json!({"operation": "status", "selector": "proc_name", "all": true});
    let task = proctor_testkit::submit_until_answered(&fleet.api(), &query, "status").await.unwrap();
    let rows = fleet.until_final(&task).await;
    for (subject, pid) in subjects.iter().zip(&before) {
        let row = &rows[format!("0:{IP} e2e/{}", subject.name)];
        let process = &crate::content(row)["process"][0]["instance"][0];
        assert_eq!((&process["pid"], &process["isAuto"]), (&json!(pid), &json!(true)), "{}", subject.name);
        assert_eq!(subject.starts(), 1, "{}", subject.name);
    }
    assert_eq!(pids(&subjects), before);
}

#[tokio::test]
async fn a_process_that_died_with_its_agent_away_is_started_again() {
    let (_fleet, mut agent, subject) = started("orphan").await;
    let before = subject.pid().unwrap();

    agent.program.kill();
    subject.kill(before);
    agent.restart().unwrap();

    eventually("it runs again", || async { subject.pid().filter(|pid| *pid != before) }).await;
    assert_eq!(subject.copies().len(), 1);
}

#[tokio::test]
async fn an_agent_killed_during_a_start_neither_loses_the_task_nor_doubles_the_process() {
    let (fleet, mut agent, subject) = registered("interrupted", |spec| {
        let start = spec["control"]["start_cmd"].as_str().unwrap().replacen("echo start", "sleep 1; echo start", 1);
        spec["control"]["start_cmd"] = json!(format!("touch begun; {start}"));
        spec["monitor_policy"]["op_timeout"] = json!(5);
    })
    .await;
    let body = json!({"meta": subject.meta(), "op_type": 0, "hosts": hosts(&[IP])});
    let task = fleet.gse("operate_proc", &body).await.unwrap()["data"]["task_id"].as_str().unwrap().to_owned();
    eventually("the start command runs", || async { subject.dir.join("begun").exists().then_some(()) }).await;

    agent.program.kill();
    agent.restart().unwrap();

    let rows = fleet.until_final(&task).await;
    assert_eq!(code(&rows, IP, "interrupted"), 0, "{rows}");
    assert_eq!(subject.starts(), 1);
    assert_eq!(subject.copies().len(), 1);
}

#[tokio::test]
async fn a_server_killed_between_submit_and_result_loses_no_task() {
    let (mut fleet, _agent, subject) = registered("persistent", |_| {}).await;
    let mut tasks = Vec::new();
    for op_type in [0, 2, 7, 2] {
        let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
        let answer = fleet.gse("operate_proc", &body).await.unwrap();
        tasks.push(answer["data"]["task_id"].as_str().unwrap().to_owned());
    }

    fleet.restart_server().await.unwrap();

    for task in &tasks {
        let rows = fleet.until_final(task).await;
        assert_eq!(code(&rows, IP, "persistent"), 0, "{rows}");
    }
    assert_eq!(subject.copies().len(), 1);
    assert_eq!(subject.starts(), 2, "one start, one restart");
}

#[tokio::test]
async fn supervision_goes_on_without_the_server() {
    let (mut fleet, _agent, subject) = started("autonomous").await;
    let before = subject.pid().unwrap();

    fleet.server.program.kill();
    subject.kill(before);
    let after = eventually("it is back", || async { subject.pid().filter(|pid| *pid != before) }).await;
    fleet.restart_server().await.unwrap();
    fleet.until_online(IP, true).await;

    assert_eq!(instance(&fleet, IP, "autonomous").await["pid"], after);
}

#[tokio::test]
async fn a_second_agent_on_the_same_state_directory_refuses() {
    let (fleet, agent, _subject) = registered("alone", |_| {}).await;
    let arguments = ["--server", &format!("127.0.0.1:{}", fleet.server.link), "--state-dir"].map(String::from);
    let mut arguments = arguments.to_vec();
    arguments.push(agent.state_dir().display().to_string());

    let mut second =
        proctor_testkit::Program::start("proctor-agent", &arguments, &fleet.dir().join("second.log")).unwrap();
    let status = eventually("the second agent ends", || {
        let ended = second.has_ended();
        async move { ended }
    })
    .await;

    assert!(!status.success());
    assert!(second.log().contains("another agent"), "{}", second.log());
}

#[tokio::test]
async fn a_join_token_is_good_for_as_many_agents_as_it_says() {
    let fleet = Fleet::start().await.unwrap();
    let data = fleet.dir().join("data").display().to_string();
    let token = proctor_testkit::run_proctor(&["token", "create", "--uses", "1", "--data-dir", &data]).unwrap();
    let start = |ip: &str| {
        let state = fleet.dir().join(format!("token-{ip}")).display().to_string();
        let server = format!("127.0.0.1:{}", fleet.server.link);
        let arguments = ["--server", &server, "--token", &token, "--state-dir", &state, "--ip", ip].map(String::from);
        proctor_testkit::Program::start("proctor-agent", &arguments, &fleet.dir().join(format!("token-{ip}.log")))
            .unwrap()
    };

    let _first = start("127.0.0.3");
    fleet.until_online("127.0.0.3", true).await;
    let mut second = start("127.0.0.4");
    let status = eventually("the second agent is refused", || {
        let ended = second.has_ended();
        async move { ended }
    })
    .await;

    assert!(!status.success());
    assert!(second.log().contains("no uses left"), "{}", second.log());
}
