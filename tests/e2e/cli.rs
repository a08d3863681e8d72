//! The CLI for everyday use.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use proctor_testkit::{APP, Fleet, Subject, binary};
use serde_json::{Value, json};

use crate::hosts;

const IP: &str = "127.0.0.1";

pub(crate) fn proctor(fleet: &Fleet, arguments: &[&str]) -> Output {
    command(fleet, arguments).output().unwrap()
}

pub(crate) fn command(fleet: &Fleet, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("proctor"));
    command
        .args(arguments)
        .env("PROCTOR_SERVER", fleet.url(""))
        .env("PROCTOR_APP_CODE", APP)
        .env("PROCTOR_APP_SECRET", &fleet.secret)
        .env("PROCTOR_USER", "admin");
    command
}

pub(crate) fn out(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_registered_started_shown_and_stopped_from_the_shell() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "shelled").unwrap();
    let file = fleet.dir().join("shelled.json");
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    std::fs::write(&file, body.to_string()).unwrap();

    out(&proctor(&fleet, &["register", "-f", file.to_str().unwrap()]));
    out(&proctor(&fleet, &["start", "e2e/shelled", "--host", IP]));
    let pid = subject.pid().unwrap().to_string();

    assert!(out(&proctor(&fleet, &["ps"])).contains(&pid));
    assert!(out(&proctor(&fleet, &["hosts"])).contains(IP));
    assert!(out(&proctor(&fleet, &["status", "e2e/shelled"])).contains(&pid));
    assert!(out(&proctor(&fleet, &["show", "e2e/shelled"])).contains("echo 1.2.3"));
    let list: Value = serde_json::from_str(&out(&proctor(&fleet, &["ps", "-o", "json"]))).unwrap();
    assert!(list.to_string().contains(&pid), "{list}");

    let again = proctor(&fleet, &["start", "e2e/shelled", "--all"]);
    assert_eq!(again.status.code(), Some(1), "a failed target is a failed command");
    out(&proctor(&fleet, &["stop", "e2e/shelled", "--all"]));
    assert!(subject.copies().is_empty());
    out(&proctor(&fleet, &["group", "set", "e2e", "--cpu", "20", "--memory", "20", "--all"]));
    assert!(out(&proctor(&fleet, &["group", "get", "e2e"])).contains("20"));
    out(&proctor(&fleet, &["group", "delete", "e2e", "--all"]));
    assert!(!out(&proctor(&fleet, &["group", "get"])).contains("e2e"));
    let gone = proctor(&fleet, &["group", "delete", "e2e", "--all"]);
    assert_eq!(gone.status.code(), Some(3), "{gone:?}");
    out(&proctor(&fleet, &["unregister", "e2e/shelled", "--all"]));
    let unreachable = Command::new(binary("proctor"))
        .args(["--server", "http://127.0.0.1:1", "ps"])
        .env("PROCTOR_APP_CODE", APP)
        .env("PROCTOR_APP_SECRET", "x")
        .output()
        .unwrap();
    assert_eq!(unreachable.status.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_watched_is_told_again_when_it_changes() {
    let fleet = Fleet::start().await.unwrap();
    let mut watching = command(&fleet, &["task", "list", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let header = lines.next().unwrap().unwrap();

    let asked = json!({"operation": "status", "process": "e2e/nothing", "hosts": [IP]});
    let accepted = fleet.post("/api/v1/operations", &asked).await.unwrap();
    let again = lines.next().unwrap().unwrap();
    let row = lines.next().unwrap().unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();

    assert!(header.starts_with("TASK"), "{header}");
    assert!(again.starts_with("TASK"), "{again}");
    assert!(row.starts_with(accepted["task_id"].as_str().unwrap()), "{row}");
}
