//! What the owner of a host controls: the host policy, and the configuration files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use proctor_testkit::{Agent, Fleet, Subject, binary, eventually};
use serde_json::{Value, json};

use crate::{IP, code, hosts, instance, operate, register};

fn write_policy(fleet: &Fleet, text: &str) -> PathBuf {
    let path = fleet.dir().join("policy.toml");
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::rename(new, &path).unwrap();
    path
}

async fn agent_under(fleet: &Fleet, policy: &str) -> Agent {
    let path = write_policy(fleet, policy);
    fleet.agent_with(IP, &["--policy", path.to_str().unwrap()]).await.unwrap()
}

/// Every event of this type about the process.
async fn events(fleet: &Fleet, subject: &Subject, kind: &str) -> Vec<Value> {
    let path = format!("/api/v1/events?namespace=e2e&name={}&type={kind}", subject.name);
    fleet.get(&path).await.unwrap()["events"].as_array().unwrap().clone()
}

async fn until_events(fleet: &Fleet, subject: &Subject, kind: &str, count: usize) -> Vec<Value> {
    eventually("the events are there", || async {
        let events = events(fleet, subject, kind).await;
        (events.len() >= count).then_some(events)
    })
    .await
}

#[tokio::test]
async fn an_operation_that_the_policy_refuses_says_which_rule_and_runs_nothing() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = agent_under(&fleet, "users = ['nobody', 'www-*']\n").await;
    let subject = Subject::new(fleet.dir(), "forbidden").unwrap();
    register(&fleet, &subject, |spec| spec["control"]["version_cmd"] = json!("touch asked")).await;

    let row = operate(&fleet, &subject, 0).await;

    let (file, told) = (fleet.dir().join("policy.toml"), row.to_string());
    let reason = format!("refused by the host's policy {}, line `users`: user 'root' is not allowed", file.display());
    assert_eq!(row["error_code"], 65535, "{row}");
    assert!(told.contains(&reason), "{told}");
    assert_eq!((subject.starts(), subject.copies().len()), (0, 0));
    let seen = instance(&fleet, IP, "forbidden").await;
    assert_eq!(seen["isAuto"], false, "a status query is allowed");
    assert!(!subject.dir.join("asked").exists(), "but it runs nothing");
}

#[tokio::test]
async fn paths_are_checked_where_their_links_lead_and_operations_keep_their_order() {
    let fleet = Fleet::start().await.unwrap();
    let outside = tempfile::tempdir().unwrap();
    let _agent = agent_under(&fleet, &format!("paths = ['{}']", fleet.dir().display())).await;
    let inside = Subject::new(fleet.dir(), "inside").unwrap();
    let escaped = Subject::new(outside.path(), "escaped").unwrap();
    symlink(outside.path(), fleet.dir().join("link")).unwrap();
    register(&fleet, &inside, |_| {}).await;
    register(&fleet, &escaped, |spec| {
        let dir = fleet.dir().join("link/escaped");
        spec["identity"]["setup_path"] = json!(dir);
        spec["identity"]["pid_path"] = json!(dir.join("escaped.pid"));
    })
    .await;

    let submit = |op_type: i64| json!({"meta": inside.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
    let start = fleet.gse("operate_proc", &submit(0)).await.unwrap()["data"]["task_id"].as_str().unwrap().to_owned();
    let stop = fleet.gse("operate_proc", &submit(1)).await.unwrap()["data"]["task_id"].as_str().unwrap().to_owned();
    let refused = operate(&fleet, &escaped, 0).await;

    assert!(refused.to_string().contains("line `paths`: setup_path"), "{refused}");
    assert!(refused.to_string().contains("outside the allowed paths"), "{refused}");
    assert_eq!(escaped.starts(), 0);
    for task in [start, stop] {
        let rows = fleet.until_final(&task).await;
        assert_eq!(code(&rows, IP, "inside"), 0, "{rows}");
    }
    assert_eq!((inside.starts(), inside.copies().len()), (1, 0));
}

#[tokio::test]
async fn supervision_does_not_relaunch_what_a_new_policy_forbids() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = agent_under(&fleet, "").await;
    let subject = Subject::new(fleet.dir(), "outlawed").unwrap();
    register(&fleet, &subject, |spec| spec["monitor_policy"]["start_retries"] = json!(1)).await;
    assert_eq!(operate(&fleet, &subject, 0).await["error_code"], 0);

    write_policy(&fleet, "[[rule]]\nnamespaces = ['e2e']\noperations = ['status', 'stop']\n");
    // For up to a second the agent may still use the old file.
    eventually("the new policy counts", || async {
        operate(&fleet, &subject, 3).await.to_string().contains("refused by").then_some(())
    })
    .await;
    subject.kill(subject.pid().unwrap());

    let told = until_events(&fleet, &subject, "restart_failed", 1).await;
    assert!(told[0].to_string().contains("line `operations` of rule 1: operation 'start' is not allowed"), "{told:?}");
    until_events(&fleet, &subject, "cancel_restart", 1).await;
    assert_eq!((subject.starts(), subject.copies().len()), (1, 0));
}

#[tokio::test]
async fn an_agent_does_not_start_with_a_policy_that_others_may_write() {
    let fleet = Fleet::start().await.unwrap();
    let policy = write_policy(&fleet, "users = []");
    std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o666)).unwrap();

    let agent = Command::new(binary("proctor-agent"))
        .args(["--server", "127.0.0.1:1", "--state-dir"])
        .arg(fleet.dir().join("state"))
        .arg("--policy")
        .arg(&policy)
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&agent.stderr);
    assert!(!agent.status.success());
    assert!(
        said.contains(&format!("the policy file {} has unsafe ownership or permissions", policy.display())),
        "{said}"
    );
}

#[tokio::test]
async fn g4_a_configuration_file_that_changes_gives_one_event_and_no_restart() {
    let fleet = Fleet::start().await.unwrap();
    let _agent = fleet.agent(IP).await.unwrap();
    let subject = Subject::new(fleet.dir(), "configured").unwrap();
    let config = subject.dir.join("app.conf");
    // A new spec is checked at once, whereas a mere change of the file waits for up to 30 s.
    let write_and_register = async |text: &str| {
        std::fs::write(&config, text).unwrap();
        register(&fleet, &subject, |spec| {
            spec["configmap"] = json!([{"path": config, "md5": "f97c5d29941bfb1b2fdab0874906ab82"}]);
            spec["control"]["version_cmd"] = json!(format!("echo {text}"));
        })
        .await;
    };
    write_and_register("one").await;
    assert_eq!(operate(&fleet, &subject, 0).await["error_code"], 0);
    let before = subject.pid().unwrap();

    write_and_register("another").await;
    let wrong = until_events(&fleet, &subject, "config_changed", 1).await;
    write_and_register("yet-another").await;
    write_and_register("one").await;
    let all = until_events(&fleet, &subject, "config_changed", 2).await;

    assert_eq!(wrong[0]["details"]["state"], "differs", "{wrong:?}");
    assert!(wrong[0].to_string().contains(config.to_str().unwrap()), "{wrong:?}");
    let is_right = |event: &&Value| event["details"]["state"] == "right";
    assert_eq!((all.len(), all.iter().filter(is_right).count()), (2, 1), "{all:?}");
    assert_eq!((subject.pid(), subject.starts()), (Some(before), 1), "nothing is restarted");
}
