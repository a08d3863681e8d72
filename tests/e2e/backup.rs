//! Backup of a running server, restore into another directory, and agents that come back; shutdown of a server.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use proctor_testkit::{Fleet, Subject, binary, eventually, run_proctor};
use serde_json::json;

use crate::{code, hosts, instance};

const IP: &str = "127.0.0.1";

fn proctor(arguments: &[&str]) -> Output {
    Command::new(binary("proctor")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

async fn operate(fleet: &Fleet, subject: &Subject, op_type: u8) -> i64 {
    let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
    let rows = fleet.operate("operate_proc", &body).await.unwrap();
    code(&rows, IP, &subject.name)
}

#[tokio::test]
async fn a_restored_server_gets_its_agents_back_with_what_they_supervise() {
    let mut fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "kept").unwrap();
    let register = |subject: &Subject| json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
    fleet.gse("register_proc_info", &register(&subject)).await.unwrap();
    assert_eq!(operate(&fleet, &subject, 0).await, 0);
    let before = instance(&fleet, IP, "kept").await;
    let (data, file) = (fleet.dir().join("data"), fleet.dir().join("proctor.backup"));
    let (right, wrong) = (fleet.dir().join("right"), fleet.dir().join("wrong"));
    std::fs::write(&right, "correct horse battery staple\n").unwrap();
    std::fs::write(&wrong, "incorrect horse battery\n").unwrap();

    run_proctor(&["backup", &text(&file), "--data-dir", &text(&data), "--passphrase-file", &text(&right)]).unwrap();
    let again = proctor(&["backup", &text(&file), "--data-dir", &text(&data), "--passphrase-file", &text(&right)]);
    // What happens after the backup is not in it, but the agent has seen it.
    let late = Subject::new(fleet.dir(), "late").unwrap();
    fleet.gse("register_proc_info", &register(&late)).await.unwrap();
    assert_eq!(operate(&fleet, &late, 0).await, 0);

    assert!(!again.status.success() && said(&again).contains("already exists"), "{}", said(&again));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let copy = std::fs::read(&file).unwrap();
    assert!(!copy.windows(11).any(|window| window == b"PRIVATE KEY"), "the authority's key is sealed");

    fleet.server.program.terminate().unwrap();
    let occupied = restore(&file, &data, &right);
    std::fs::rename(&data, fleet.dir().join("lost")).unwrap();
    let refused = restore(&file, &data, &wrong);
    let nothing_made = !data.join("proctor.db").exists();
    let restored = restore(&file, &data, &right);

    assert!(!occupied.status.success() && said(&occupied).contains("never replaced"), "{}", said(&occupied));
    assert!(!refused.status.success() && said(&refused).contains("passphrase is wrong"), "{}", said(&refused));
    assert!(nothing_made);
    assert!(restored.status.success(), "{}", said(&restored));

    fleet.start_server_again().await.unwrap();
    fleet.until_online(IP, true).await;
    assert_eq!(instance(&fleet, IP, "kept").await["pid"], before["pid"], "the process lives on");
    assert_eq!(operate(&fleet, &subject, 7).await, 0, "a restart is carried out");
    let newer = Subject::new(fleet.dir(), "newer").unwrap();
    fleet.gse("register_proc_info", &register(&newer)).await.unwrap();
    assert_eq!(operate(&fleet, &newer, 0).await, 0, "what is registered now reaches an agent that had seen more");
    let audit = fleet.get("/api/v1/audit?action=restore").await.unwrap();
    assert!(audit.to_string().contains("proctor.backup"), "{audit}");
}

fn restore(file: &Path, data: &Path, passphrase: &Path) -> Output {
    proctor(&["restore", &text(file), "--data-dir", &text(data), "--passphrase-file", &text(passphrase)])
}

#[test]
fn a_sealed_backup_is_no_store_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (data, other) = (dir.path().join("data"), dir.path().join("other"));
    let passphrase = dir.path().join("passphrase");
    std::fs::write(&passphrase, "correct horse battery staple").unwrap();
    make_store(&data);
    std::fs::create_dir(&other).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o700)).unwrap();
    let copy = other.join("proctor.db");
    run_proctor(&["backup", &text(&copy), "--data-dir", &text(&data), "--passphrase-file", &text(&passphrase)])
        .unwrap();

    let arguments = ["server", "--http", "127.0.0.1:0", "--link", "127.0.0.1:0", "--data-dir", &text(&other)];
    let refused = proctor(&arguments);

    assert!(!refused.status.success() && said(&refused).contains("proctor restore"), "{}", said(&refused));
}

/// As the first start of a server does.
fn make_store(data: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        proctor_runtime::private::dir(data).unwrap();
        drop(proctor_store::sqlite::SqliteStore::open(&data.join("proctor.db")).await.unwrap());
    });
}

#[tokio::test]
async fn a_server_that_is_asked_to_end_says_so_first_and_answers_until_then() {
    let mut fleet = Fleet::start_in(tempfile::tempdir().unwrap(), &["--drain-time", "1h"]).await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let ready = async |fleet: &Fleet| fleet.client.get(fleet.url("/readyz")).send().await.unwrap().status().as_u16();
    assert_eq!(ready(&fleet).await, 200);

    let pid = fleet.server.program.pid().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    eventually("it is no longer ready", || async { (ready(&fleet).await == 503).then_some(()) }).await;

    let body = fleet.client.get(fleet.url("/readyz")).send().await.unwrap().text().await.unwrap();
    assert!(body.contains("stopping"), "{body}");
    assert!(fleet.get("/api/v1/hosts").await.unwrap()["hosts"][0]["online"] == true, "calls and sessions go on");
    // The second signal cuts the hour short.
    let ended = fleet.server.program.terminate().unwrap();
    assert!(ended.success());
    let log = fleet.server.program.log();
    assert!(log.contains("drained"), "{log}");
}

/// When the first line with these words was written: times of all programs compare as text.
fn time_of(log: &str, words: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains(words))?;
    line.split(' ').next().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_answers_the_calls_under_way_before_it_lets_agents_go() {
    let mut fleet = Fleet::start_in(tempfile::tempdir().unwrap(), &["--drain-time", "1h"]).await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    let under_way = fleet.question("/api/v1/events/stream").send().await.unwrap();
    let pid = fleet.server.program.pid().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    eventually("it drains", || async { fleet.server.program.log().contains("no longer ready").then_some(()) }).await;
    assert!(fleet.get("/api/v1/hosts").await.unwrap()["hosts"][0]["online"] == true, "the session goes on");
    // The second signal cuts the hour short.
    assert!(fleet.server.program.terminate().unwrap().success());

    assert_eq!(under_way.status().as_u16(), 200);
    under_way.text().await.expect("the answer comes to its end, and is not cut off");
    let lost = eventually("the agent sees its session end", || async {
        let log = agent.program.log();
        time_of(log.split_once("link: connected")?.1, "cannot open session")
    })
    .await;
    let log = fleet.server.program.log();
    let [unready, answered] = ["draining: no longer ready", "drained all_ended=true"]
        .map(|words| time_of(&log, words).unwrap_or_else(|| panic!("'{words}' is not in {log}")));
    assert!(unready < answered && answered < lost, "{unready} {answered} {lost}");
}
