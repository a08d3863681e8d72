//! Agents that are upgraded over their link, and roll back on their own if the new version is bad.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proctor_model::BUILD_MARK;
use proctor_testkit::{Fleet, Program, Subject, binary, eventually, run_proctor, running_in};
use serde_json::{Value, json};

use crate::{code, hosts};

const IP: &str = "127.0.0.1";
const CHILDREN: usize = 50;

/// A server that holds builds, and an agent that runs from a file of its own.
struct World {
    fleet: Fleet,
    agent: Program,
    program: PathBuf,
    arguments: Vec<String>,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (downloads, own) = (dir.path().join("downloads"), dir.path().join("own"));
        for dir in [&downloads, &own] {
            std::fs::create_dir(dir).unwrap();
            std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let program = own.join("proctor-agent");
        std::fs::copy(binary("proctor-agent"), &program).unwrap();
        let downloads = downloads.display().to_string();
        let fleet = Fleet::start_in(dir, &["--download-dir", &downloads]).await.unwrap();
        let data = fleet.dir().join("data").display().to_string();
        let token = run_proctor(&["token", "create", "--data-dir", &data]).unwrap();
        let (link, state) = (format!("127.0.0.1:{}", fleet.server.link), state_dir(&fleet).display().to_string());
        let arguments = ["--server", &link, "--state-dir", &state, "--ip", IP].map(String::from).to_vec();
        let first = [&arguments[..], &["--token".to_owned(), token]].concat();
        let log = fleet.dir().join("agent.log");
        let agent = Program::start(&program.display().to_string(), &first, &log).unwrap();
        fleet.until_online(IP, true).await;
        Self { fleet, agent, program, arguments }
    }

    /// As systemd would.
    fn start_agent(&mut self) {
        let log = self.fleet.dir().join("agent.log");
        self.agent = Program::start(&self.program.display().to_string(), &self.arguments, &log).unwrap();
    }

    /// The program of this very build, under another version.
    fn hold_build(&self, version: &str) {
        let mut content = std::fs::read(binary("proctor-agent")).unwrap();
        let mark = BUILD_MARK.as_bytes();
        let at = content.windows(mark.len()).position(|window| window == mark).unwrap() + mark.len();
        content[at..=at + version.len()].copy_from_slice(format!("{version}\0").as_bytes());
        let path = self.fleet.dir().join(format!("downloads/proctor-agent-{version}"));
        std::fs::write(path, content).unwrap();
    }

    /// A program that passes its check and then does something other than an agent.
    fn hold_bad_build(&self, version: &str, does: &str) {
        let source = self.fleet.dir().join("bad.c");
        let text = format!(
            r#"#include <stdio.h>
               #include <stdlib.h>
               #include <string.h>
               #include <unistd.h>
               const char mark[] = "{BUILD_MARK}{version}";
               int main(int argc, char **argv) {{
                   if (argc > 1 && !strcmp(argv[1], "upgrade-check")) {{
                       printf("{{\"version\":\"%s\",\"ledger_schema\":1,\"ledger_oldest_reader\":1,\"more\":1}}\n",
                              mark + {});
                       return 0;
                   }}
                   {does}
                   return 1;
               }}"#,
            BUILD_MARK.len()
        );
        std::fs::write(&source, text).unwrap();
        let path = self.fleet.dir().join(format!("downloads/proctor-agent-{version}"));
        let made = Command::new("cc").arg("-o").arg(&path).arg(&source).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    async fn upgrade(&self, more: Value) -> String {
        // A proof takes half of the deadline.
        let mut body = json!({"hosts": [IP], "rings": ["100%"], "health_deadline_secs": 24});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let begun = self.fleet.post("/api/v1/upgrades", &body).await.unwrap();
        begun["id"].as_str().unwrap().to_owned()
    }

    /// The upgrade when its host is final.
    async fn until_final(&self, id: &str) -> Value {
        eventually("the upgrade of the host is over", || async {
            let upgrade = self.fleet.get(&format!("/api/v1/upgrades/{id}")).await.ok()?;
            let state = upgrade["hosts"][0]["state"].as_str()?;
            let is_final = state == "done" || (state == "failed" && upgrade["state"] == "failed");
            is_final.then_some(upgrade)
        })
        .await
    }

    /// Does not wait until the host has settled.
    async fn cancel(&self, id: &str) {
        self.fleet.post(&format!("/api/v1/upgrades/{id}/cancel"), &json!({})).await.unwrap();
    }

    async fn version(&self) -> String {
        let hosts = self.fleet.get("/api/v1/hosts").await.unwrap();
        hosts["hosts"][0]["facts"]["agent_version"].as_str().unwrap().to_owned()
    }

    async fn until_event(&self, kind: &str) -> Value {
        eventually("the event arrives", || async {
            let events = self.fleet.get(&format!("/api/v1/events?type={kind}")).await.ok()?;
            events["events"].as_array()?.last().cloned()
        })
        .await
    }

    async fn subject(&self, name: &str) -> Subject {
        let subject = Subject::new(self.fleet.dir(), name).unwrap();
        let register = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": subject.spec()});
        self.fleet.gse("register_proc_info", &register).await.unwrap();
        let rows = operate(&self.fleet, &subject, 0).await;
        assert_eq!(code(&rows, IP, name), 0, "{rows}");
        subject
    }
}

fn state_dir(fleet: &Fleet) -> PathBuf {
    fleet.dir().join("agent-state")
}

async fn operate(fleet: &Fleet, subject: &Subject, op_type: u8) -> Value {
    let body = json!({"meta": subject.meta(), "op_type": op_type, "hosts": hosts(&[IP])});
    fleet.operate("operate_proc", &body).await.unwrap()
}

/// Restarts a process again and again until it is told to stop; returns how often.
async fn load(fleet: &Fleet, subject: &Subject, is_over: &AtomicBool) -> usize {
    let mut count = 0;
    while !is_over.load(Ordering::Acquire) {
        let rows = operate(fleet, subject, 7).await;
        assert_eq!(code(&rows, IP, &subject.name), 0, "{rows}");
        count += 1;
    }
    count
}

/// The trial has begun, and nothing of the old agent works except what watches it. Before that, the new program
/// also runs for its check.
async fn until_watched(world: &World, trials: impl Fn() -> usize) {
    let is_watched = || trials() == 1 && threads(world.agent.pid()) == ["log", "proctor-agent"];
    eventually("the trial is watched", || async { is_watched().then_some(()) }).await;
}

/// The names of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    // One that has just ended has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    names
}

fn left_beside(program: &Path) -> Vec<String> {
    let names = std::fs::read_dir(program.parent().unwrap()).unwrap();
    let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_becomes_another_version_and_nothing_on_its_host_notices() {
    let mut world = World::new().await;
    let mut children = Vec::new();
    for number in 0..CHILDREN {
        children.push(world.subject(&format!("child-{number}")).await);
    }
    let busy = world.subject("busy").await;
    let pids: Vec<_> = children.iter().map(|child| child.pid().unwrap()).collect();
    let (pid, before) = (world.agent.pid(), world.version().await);
    world.hold_build("7.0.1");
    let is_over = Arc::new(AtomicBool::new(false));

    let operated = load(&world.fleet, &busy, &is_over);
    let upgraded = async {
        let id = world.upgrade(json!({"version": "7.0.1"})).await;
        let upgrade = world.until_final(&id).await;
        is_over.store(true, Ordering::Release);
        upgrade
    };
    let (operations, upgrade) = tokio::join!(operated, upgraded);

    assert_eq!((&upgrade["state"], &upgrade["hosts"][0]["state"]), (&json!("running"), &json!("done")), "{upgrade}");
    world.cancel(upgrade["id"].as_str().unwrap()).await;
    assert_eq!(
        (world.version().await.as_str(), upgrade["hosts"][0]["version_before"].as_str()),
        ("7.0.1", Some(&*before))
    );
    assert_eq!(world.agent.has_ended(), None, "it is the same process");
    assert_eq!(world.agent.pid(), pid);
    let now: Vec<_> = children.iter().map(|child| child.pid().unwrap()).collect();
    assert_eq!(now, pids, "no child was touched");
    assert!(children.iter().all(|child| child.starts() == 1));
    assert_eq!(busy.starts(), operations + 1, "every operation once");
    assert_eq!(left_beside(&world.program), ["proctor-agent", "proctor-agent.previous"]);
    let event = world.until_event("agent_upgraded").await;
    assert_eq!(event["details"]["version"], "7.0.1", "{event}");
    // Its children are still its own.
    children[0].kill(pids[0]);
    eventually("the new version supervises", || async { children[0].pid().filter(|pid| *pid != pids[0]) }).await;

    // Back again, by an explicit order.
    let newer = world.upgrade(json!({"version": "7.0.1"})).await;
    assert_eq!(world.until_final(&newer).await["hosts"][0]["reason_id"], "upgrade_runs_already");
    world.cancel(&newer).await;
    world.hold_build("6.9.9");
    let refused = world.upgrade(json!({"version": "6.9.9"})).await;
    let refused = world.until_final(&refused).await;
    assert_eq!(
        (&refused["state"], &refused["hosts"][0]["reason_id"]),
        (&json!("failed"), &json!("upgrade_would_downgrade"))
    );
    let back = world.upgrade(json!({"version": "6.9.9", "allow_downgrade": true})).await;
    assert_eq!(world.until_final(&back).await["hosts"][0]["state"], "done");
    assert_eq!(world.version().await, "6.9.9");
    assert_eq!(children[1].pid(), Some(pids[1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_that_crashes_hangs_or_cannot_connect_is_given_up_by_the_old_one() {
    let mut world = World::new().await;
    let (child, busy) = (world.subject("child").await, world.subject("busy").await);
    let (pid, before) = (child.pid(), world.version().await);
    // Writes the driver's heartbeat where a real one would.
    let starts = r#"
        char path[4096] = "";
        for (int i = 1; i + 1 < argc; i++) if (!strcmp(argv[i], "--state-dir")) strcpy(path, argv[i + 1]);
        strcat(path, "/upgrade-proof");
        FILE *proof = fopen(path, "w");
        fprintf(proof, "%s started", getenv("PROCTOR_UPGRADE_TRIAL"));
        fclose(proof);
        for (;;) pause();"#;
    let bad = [
        ("7.1.0", "return 1;", "upgrade_ended"),
        ("7.1.1", "abort();", "upgrade_ended"),
        ("7.1.2", "for (;;) pause();", "upgrade_hung"),
        ("7.1.3", starts, "upgrade_unproved"),
    ];

    for (version, does, expected) in bad {
        world.hold_bad_build(version, does);
        let is_over = Arc::new(AtomicBool::new(false));
        let starts_before = busy.starts();
        let operated = load(&world.fleet, &busy, &is_over);
        let upgraded = async {
            let id = world.upgrade(json!({"version": version, "health_deadline_secs": 10})).await;
            let upgrade = world.until_final(&id).await;
            is_over.store(true, Ordering::Release);
            upgrade
        };
        let (operations, upgrade) = tokio::join!(operated, upgraded);

        let host = &upgrade["hosts"][0];
        assert_eq!((&upgrade["state"], &host["reason_id"]), (&json!("failed"), &json!(expected)), "{upgrade}");
        assert_eq!(world.version().await, before);
        assert_eq!((child.pid(), child.starts()), (pid, 1));
        assert_eq!(busy.starts() - starts_before, operations, "every operation once");
        assert_eq!(world.agent.has_ended(), None);
        assert_eq!(left_beside(&world.program), ["proctor-agent"]);
        let event = world.until_event("agent_upgrade_failed").await;
        assert_eq!(event["details"]["version"], version, "{event}");
    }
    // What fails its check is not even tried.
    world.hold_build("7.1.4");
    let path = world.fleet.dir().join("downloads/proctor-agent-7.1.4");
    let mut content = std::fs::read(&path).unwrap();
    let mark = BUILD_MARK.as_bytes();
    let at = content.windows(mark.len()).position(|window| window == mark).unwrap();
    content.truncate(at + 2 * mark.len());
    std::fs::write(&path, content).unwrap();
    let id = world.upgrade(json!({"version": "7.1.4"})).await;
    assert_eq!(world.until_final(&id).await["hosts"][0]["reason_id"], "upgrade_check_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_everything_during_a_trial_leaves_the_old_version_in_its_place() {
    let mut world = World::new().await;
    let child = world.subject("child").await;
    let (pid, before) = (child.pid(), world.version().await);
    world.hold_bad_build("7.2.0", "for (;;) pause();");
    let trials = || running_in(&world.fleet.dir().join("own/.proctor-agent.upgrade")).len();

    let id = world.upgrade(json!({"version": "7.2.0", "health_deadline_secs": 600})).await;
    until_watched(&world, trials).await;
    world.agent.kill();
    eventually("the new version dies with the old one", || async { (trials() == 0).then_some(()) }).await;
    world.fleet.restart_server().await.unwrap();
    world.start_agent();
    let upgrade = world.until_final(&id).await;

    // Twice, and then never again: the second trial is given up as hung.
    assert_eq!(upgrade["hosts"][0]["reason_id"], "upgrade_hung", "{upgrade}");
    assert_eq!(world.version().await, before);
    assert_eq!((child.pid(), child.starts()), (pid, 1));
    world.agent.kill();
    world.start_agent();
    world.fleet.until_online(IP, true).await;
    assert_eq!(world.version().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_stopped_during_a_trial_ends_and_tries_again_when_it_is_started() {
    let mut world = World::new().await;
    let child = world.subject("child").await;
    let (pid, before) = (child.pid(), world.version().await);
    world.hold_bad_build("7.5.0", "for (;;) pause();");
    let trials = || running_in(&world.fleet.dir().join("own/.proctor-agent.upgrade")).len();

    let id = world.upgrade(json!({"version": "7.5.0", "health_deadline_secs": 600})).await;
    until_watched(&world, trials).await;
    let ended = world.agent.terminate().unwrap();

    assert!(ended.success(), "{ended}");
    assert_eq!(trials(), 0, "nothing was started after that");
    world.start_agent();
    let upgrade = world.until_final(&id).await;
    assert_eq!(upgrade["hosts"][0]["reason_id"], "upgrade_hung", "{upgrade}");
    assert_eq!((world.version().await, child.pid(), child.starts()), (before, pid, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_survives_the_death_of_its_server_and_goes_ring_by_ring() {
    let mut world = World::new().await;
    world.hold_build("7.3.0");
    let id = world.upgrade(json!({"version": "7.3.0", "rings": [1]})).await;

    world.fleet.restart_server().await.unwrap();

    assert_eq!(world.until_final(&id).await["state"], "running", "the host has to settle");
    assert_eq!(world.version().await, "7.3.0");
    eventually("the upgrade is done", || async {
        let upgrade = world.fleet.get(&format!("/api/v1/upgrades/{id}")).await.ok()?;
        (upgrade["state"] == "done").then_some(())
    })
    .await;
    let pause = world.fleet.request(&format!("/api/v1/upgrades/{id}/pause")).send().await.unwrap();
    assert_eq!(pause.status().as_u16(), 409, "it is over");
    let unknown = json!({"version": "9.9.9", "all": true}).to_string();
    let answer = world.fleet.request("/api/v1/upgrades").body(unknown).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 400);
    assert!(answer.text().await.unwrap().contains("there are: 7.3.0"));
}
