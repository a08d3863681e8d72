//! The operations of document S2 on a registered process.

use proctor_testkit::{Fleet, Subject, eventually};
use serde_json::{Value, json};

use crate::{code, content, hosts, instance, row};

const IP: &str = "127.0.0.1";

/// A fleet of one host with one registered subject.
async fn registered(name: &str, change: impl FnOnce(&mut Value)) -> (Fleet, proctor_testkit::Agent, Subject) {
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), name).unwrap();
    let mut spec = subject.spec();
    change(&mut spec);
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
    let answer = fleet.gse("register_proc_info", &body).await.unwrap();
    assert_eq!(code(&answer["data"], IP, name), 0, "{answer}");
    (fleet, agent, subject)
}

async fn operate(fleet: &Fleet, subject: &Subject, op_type: i64) -> Value {
    let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
    let rows = fleet.operate("operate_proc", &body).await.unwrap();
    let row = row(&rows, IP, &subject.name).clone();
    if op_type != 2 {
        assert_eq!(content(&row)["value"].as_array().unwrap().len(), 1, "{row}");
    }
    row
}

#[tokio::test]
async fn start_runs_the_process_and_manages_it_and_a_second_start_is_828() {
    let (fleet, _agent, subject) = registered("starts", |_| {}).await;

    let row = operate(&fleet, &subject, 0).await;

    assert_eq!(row["error_code"], 0, "{row}");
    let seen = instance(&fleet, IP, "starts").await;
    assert_eq!(seen["pid"], subject.pid().unwrap());
    assert_eq!(seen["isAuto"], true);
    assert_eq!(seen["version"], "1.2.3");

    let again = operate(&fleet, &subject, 0).await;
    assert_eq!(again["error_code"], 828, "{again}");
    assert_eq!(subject.copies().len(), 1);
    assert_eq!(subject.starts(), 1);
}

#[tokio::test]
async fn stop_ends_the_process_and_its_management_and_a_second_stop_is_829() {
    let (fleet, _agent, subject) = registered("stops", |_| {}).await;
    operate(&fleet, &subject, 0).await;

    let row = operate(&fleet, &subject, 1).await;

    assert_eq!(row["error_code"], 0, "{row}");
    assert_eq!(subject.copies(), Vec::<i32>::new());
    let seen = instance(&fleet, IP, "stops").await;
    assert_eq!((&seen["pid"], &seen["isAuto"]), (&json!(-1), &json!(false)));
    assert_eq!(operate(&fleet, &subject, 1).await["error_code"], 829);
}

#[tokio::test]
async fn a_failing_start_command_is_65535_with_its_output() {
    let change = |spec: &mut Value| spec["control"]["start_cmd"] = json!("echo no such licence; exit 3");
    let (fleet, _agent, subject) = registered("fails", change).await;

    let row = operate(&fleet, &subject, 0).await;

    assert_eq!(row["error_code"], 65535);
    assert!(row["error_msg"].as_str().unwrap().contains("no such licence"), "{row}");
    assert_eq!(instance(&fleet, IP, "fails").await["isAuto"], false);
}

#[tokio::test]
async fn a_start_command_that_leaves_no_process_is_836() {
    let (fleet, _agent, subject) = registered("vanishes", |spec| spec["control"]["start_cmd"] = json!("true")).await;

    let row = operate(&fleet, &subject, 0).await;

    assert_eq!(row["error_code"], 836, "{row}");
    assert!(row["error_msg"].as_str().unwrap().contains("pid file"), "{row}");
}

#[tokio::test]
async fn a_stop_that_does_not_help_is_836_and_says_stop() {
    let change = |spec: &mut Value| {
        spec["control"]["stop_cmd"] = json!("true");
        spec["monitor_policy"]["stop_check_secs"] = json!(1);
    };
    let (fleet, _agent, subject) = registered("stays", change).await;
    operate(&fleet, &subject, 0).await;

    let row = operate(&fleet, &subject, 1).await;

    assert_eq!(row["error_code"], 836, "{row}");
    assert!(row["error_msg"].as_str().unwrap().starts_with("stop"), "{row}");
    assert_eq!(instance(&fleet, IP, "stays").await["isAuto"], true);
}

#[tokio::test]
async fn restart_reload_kill_manage_and_release_do_what_the_document_says() {
    let (fleet, _agent, subject) = registered("lives", |_| {}).await;

    assert_eq!(operate(&fleet, &subject, 7).await["error_code"], 0);
    let first = subject.pid().unwrap();
    assert_eq!(operate(&fleet, &subject, 7).await["error_code"], 0);
    let second = subject.pid().unwrap();
    assert_ne!(first, second);
    assert_eq!(subject.copies(), vec![second]);

    let reload = operate(&fleet, &subject, 8).await;
    assert_eq!(reload["error_code"], 0, "{reload}");
    assert!(content(&reload)["value"][0]["result"].as_str().unwrap().contains("reloaded"));
    assert_eq!(subject.pid(), Some(second));

    assert_eq!(operate(&fleet, &subject, 4).await["error_code"], 0);
    assert_eq!(instance(&fleet, IP, "lives").await["isAuto"], false);
    assert_eq!(operate(&fleet, &subject, 3).await["error_code"], 0);
    assert_eq!(instance(&fleet, IP, "lives").await["isAuto"], true);

    assert_eq!(operate(&fleet, &subject, 9).await["error_code"], 0);
    assert_eq!(subject.copies(), Vec::<i32>::new());
    assert_eq!(instance(&fleet, IP, "lives").await["isAuto"], false);
    assert_eq!(operate(&fleet, &subject, 8).await["error_code"], 829);
}

#[tokio::test]
async fn managing_a_dead_resident_process_starts_it() {
    let (fleet, _agent, subject) = registered("managed", |_| {}).await;

    assert_eq!(operate(&fleet, &subject, 3).await["error_code"], 0);

    eventually("the process runs", || async { subject.pid() }).await;
    assert_eq!(subject.starts(), 1);
}

#[tokio::test]
async fn a_killed_process_is_back_at_once_with_another_pid() {
    let (fleet, _agent, subject) =
        registered("returns", |spec| spec["monitor_policy"]["start_interval"] = json!(3600)).await;
    operate(&fleet, &subject, 0).await;
    let before = subject.pid().unwrap();

    subject.kill(before);
    let after = eventually("the process is back", || async { subject.pid().filter(|pid| *pid != before) }).await;

    // Well before its start_interval is over.
    assert_eq!(subject.copies(), vec![after]);
    eventually("status shows the new life", || async {
        (instance(&fleet, IP, "returns").await["pid"] == after).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_crash_loop_ends_with_the_end_of_management() {
    let change = |spec: &mut Value| {
        spec["monitor_policy"]["start_retries"] = json!(2);
        spec["monitor_policy"]["start_check_secs"] = json!(0);
    };
    let (fleet, _agent, subject) = registered("loops", change).await;
    operate(&fleet, &subject, 0).await;

    eventually("management has ended", || async {
        for pid in subject.copies() {
            subject.kill(pid);
        }
        (instance(&fleet, IP, "loops").await["isAuto"] == false).then_some(())
    })
    .await;

    assert_eq!(subject.starts(), 3, "one start and two retries");
}

#[tokio::test]
async fn an_unknown_operation_is_832_in_its_row() {
    let (fleet, _agent, subject) = registered("illegal", |_| {}).await;

    let row = operate(&fleet, &subject, 5).await;

    assert_eq!(row["error_code"], 832);
}

#[tokio::test]
async fn operations_at_once_are_serialised_and_never_double_the_process() {
    let (fleet, _agent, subject) = registered("crowded", |spec| {
        spec["monitor_policy"]["start_check_secs"] = json!(0);
    })
    .await;

    let mut tasks = Vec::new();
    for round in 0..20 {
        let op_type = [0, 1, 7, 0][round % 4];
        let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
        let answer = fleet.gse("operate_proc", &body).await.unwrap();
        tasks.push(answer["data"]["task_id"].as_str().unwrap().to_owned());
    }
    for task in &tasks {
        let rows = fleet.until_final(task).await;
        let code = code(&rows, IP, "crowded");
        assert!([0, 828, 829].contains(&code), "{rows}");
        assert!(subject.copies().len() <= 1);
    }
    assert_eq!(subject.copies().len(), 1, "the last operation was a start");
}

#[tokio::test]
async fn commands_run_as_the_given_user() {
    let change = |spec: &mut Value| {
        spec["identity"]["user"] = json!("nobody");
        spec["control"]["start_cmd"] = json!("echo \"$USER $(id -un)\"; exit 1");
        spec["identity"]["setup_path"] = json!("/tmp");
    };
    let (fleet, _agent, subject) = registered("asuser", change).await;

    let row = operate(&fleet, &subject, 0).await;

    assert!(row["error_msg"].as_str().unwrap().contains("nobody nobody"), "{row}");
}
