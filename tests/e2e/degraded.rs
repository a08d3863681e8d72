//! A log that cannot be written and a full disk: what still works, and what is reported.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

use proctor_testkit::{Agent, Fleet, Subject, eventually, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::proctor;
use crate::disk::SmallDisk;
use crate::{code, hosts};

const IP: &str = "127.0.0.1";
const LOGS: [&str; 2] = ["server.log", "agent-127.0.0.1.log"];
const O_NONBLOCK: i32 = 0o4000;

async fn start(dir: TempDir) -> (Fleet, Agent, Subject) {
    let fleet = Fleet::start_in(dir, &[]).await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "worker").unwrap();
    (fleet, agent, subject)
}

/// Registers, starts and stops a process: proves that the store's writer, the recorder and the session work.
async fn works(fleet: &Fleet, subject: &Subject) {
    let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    let answer = fleet.gse("update_proc_info", &register).await.unwrap();
    assert_eq!(code(&answer["data"], IP, "worker"), 0, "{answer}");
    for operation in [0, 1] {
        let body = json!({"meta": subject.meta(), "op_type": operation, "hosts": hosts(&[IP])});
        let rows = fleet.operate("operate_proc", &body).await.unwrap();
        assert_eq!(code(&rows, IP, "worker"), 0, "op_type {operation}: {rows}");
    }
    assert_eq!(health(fleet, "/readyz").await, (200, json!({"status": "ok"})));
}

async fn health(fleet: &Fleet, path: &str) -> (u16, Value) {
    let answer = fleet.client.get(fleet.url(path)).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
}

async fn works_and_ends(mut fleet: Fleet, mut agent: Agent, subject: Subject) {
    works(&fleet, &subject).await;
    // A session that breaks and comes back logs on both sides.
    agent.restart().unwrap();
    fleet.until_online(IP, true).await;
    works(&fleet, &subject).await;

    assert!(agent.program.terminate().unwrap().success());
    assert!(fleet.server.program.terminate().unwrap().success());
}

#[tokio::test]
async fn server_and_agent_work_while_their_logs_are_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    for log in LOGS {
        symlink("/dev/full", dir.path().join(log)).unwrap();
    }

    let (fleet, agent, subject) = start(dir).await;

    works_and_ends(fleet, agent, subject).await;
}

/// A pipe in place of a log, with our end for reading.
fn pipe(path: &Path) -> File {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    File::options().read(true).write(true).custom_flags(O_NONBLOCK).open(path).unwrap()
}

#[tokio::test]
async fn server_and_agent_work_while_nobody_reads_their_logs() {
    let dir = tempfile::tempdir().unwrap();
    let pipes: Vec<File> = LOGS.iter().map(|log| pipe(&dir.path().join(log))).collect();
    for mut pipe in &pipes {
        while pipe.write(&[b'x'; 4096]).is_ok() {} // until it is full
    }

    let (fleet, agent, subject) = start(dir).await;

    works_and_ends(fleet, agent, subject).await;
}

#[tokio::test]
async fn server_and_agent_work_after_the_readers_of_their_logs_have_gone() {
    let dir = tempfile::tempdir().unwrap();
    let pipes: Vec<File> = LOGS.iter().map(|log| pipe(&dir.path().join(log))).collect();
    let (fleet, agent, subject) = start(dir).await;

    drop(pipes);

    works(&fleet, &subject).await;
    assert!(agent.state_dir().exists());
}

async fn reads(fleet: &Fleet, task: &str) {
    let rows = fleet.gse("get_proc_operate_result", &json!({"task_id": task})).await.unwrap();
    assert_eq!(code(&rows["data"], IP, "worker"), 0, "{rows}");
    let hosts = fleet.get("/api/v1/hosts").await.unwrap();
    assert_eq!(hosts["hosts"][0]["ip"], IP, "{hosts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_on_a_full_disk_serves_reads_says_so_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path().join("data")) else { return skip("tmpfs cannot be mounted") };
    let (mut fleet, agent, subject) = start(dir).await;
    works(&fleet, &subject).await;
    let body = json!({"meta": subject.meta(), "op_type": 2, "hosts": hosts(&[IP])});
    let task = fleet.gse("operate_proc", &body).await.unwrap()["data"]["task_id"].as_str().unwrap().to_owned();
    fleet.until_final(&task).await;

    disk.fill();
    let full = eventually("a full disk is noticed", || async {
        let (status, body) = health(&fleet, "/readyz").await;
        (status == 503).then_some(body)
    })
    .await;
    assert_eq!(full, json!({"status": "not_ready", "reason": "the store has no space left to be written"}));
    reads(&fleet, &task).await;

    for end in ["SIGTERM", "SIGKILL"] {
        match end {
            "SIGTERM" => drop(fleet.server.program.terminate().unwrap()),
            _ => fleet.server.program.kill(),
        }
        disk.fill(); // what the end of the server has freed
        fleet.start_server_again().await.unwrap();

        reads(&fleet, &task).await;
        let (status, body) = health(&fleet, "/healthz").await;
        assert_eq!((status, &body["status"]), (200, &json!("degraded")), "{end}: {body}");
        assert_eq!(health(&fleet, "/readyz").await.0, 503, "{end}");
    }
    // Its agent cannot open a session; after the grace period it is shown as what it is, and both are reported.
    fleet.until_online(IP, false).await;
    assert!(fleet.get("/api/v1/hosts?online=true").await.unwrap()["hosts"].as_array().unwrap().is_empty());
    let refused = eventually("the agent says why it has no session", || async {
        agent.program.log().lines().find(|line| line.contains("no space left")).map(str::to_owned)
    })
    .await;
    assert!(refused.contains("it cannot open a session now: the store has no space left"), "{refused}");
    assert!(fleet.server.program.log().contains("session not opened"), "{}", fleet.server.program.log());
    let doctor = proctor(&fleet, &["doctor"]);
    let found = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(1), "{found}");
    for words in
        ["the store has no space left", "free space on the disk", "1 of 1 are not connected", "0M of 8M are left"]
    {
        assert!(found.contains(words), "{words}: {found}");
    }

    disk.free();
    fleet.until_online(IP, true).await;
    eventually("it is ready again", || async { (health(&fleet, "/readyz").await.0 == 200).then_some(()) }).await;
    works(&fleet, &subject).await;
}

#[tokio::test]
async fn a_server_whose_store_was_removed_is_not_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = Fleet::start_in(dir, &[]).await.unwrap();

    std::fs::remove_file(fleet.dir().join("data/proctor.db")).unwrap();

    let body = eventually("the loss is noticed", || async {
        let (status, body) = health(&fleet, "/healthz").await;
        (status == 503).then_some(body)
    })
    .await;
    let reason = "the store holds a damaged file: it cannot be read any more (entity not found)";
    assert_eq!(body, json!({"status": "failed", "reason": reason}));
    assert_eq!(health(&fleet, "/readyz").await.0, 503);
}
