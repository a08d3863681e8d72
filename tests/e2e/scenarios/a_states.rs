//! A. Identity, continued: processes in odd states.

use std::process::Command;

use proctor_testkit::skip;
use serde_json::Value;

use super::a_identity::{message, set};
use super::zero::stat;
use super::{Scene, numbers, until};

#[tokio::test]
async fn a17_a_zombie_counts_as_dead_and_is_replaced() {
    let scene = Scene::new("zombie", |_, spec| {
        // The parent never waits for its child.
        let code = "$pid = fork; exec q(./zombie), 100000 unless $pid; \
                    open F, q(>), q(zombie.pid); print F $pid; close F; \
                    open F, q(>>), q(parents); print F qq($$\\n); close F; sleep 1000 while 1";
        set(spec, "/control/start_cmd", format!("echo start >> commands.log; perl -e '{code}' > /dev/null 2>&1 &"));
    })
    .await;
    assert_eq!(scene.operate(0).await["error_code"], 0);
    let first = scene.until_pid().await;

    scene.subject.kill(first);
    until("it is a zombie", || stat(first).is_some_and(|(state, _)| state == 'Z')).await;
    let second = scene.until_other_than(first).await;

    assert_eq!(stat(first).map(|(state, _)| state), Some('Z'), "nobody has waited for it");
    assert_eq!(scene.status().await["pid"], second);
    assert_eq!(scene.subject.starts(), 2);
    assert_eq!(scene.operate(9).await["error_code"], 0);
    for parent in numbers(&scene.path("parents")) {
        scene.subject.kill(parent);
    }
    scene.zero_list(0).await;
}

#[tokio::test]
async fn a18_a_stopped_process_fails_its_stop_and_gets_no_second_copy() {
    let scene = Scene::running("frozen", |_, spec| set(spec, "/monitor_policy/stop_check_secs", 1)).await;
    let pid = scene.subject.pid().unwrap();
    signal("STOP", pid);

    let stop = scene.operate(1).await;

    assert_eq!(stop["error_code"], 836, "{stop}");
    assert!(message(&stop).starts_with("stop"), "{stop}");
    assert_eq!(scene.operate(0).await["error_code"], 828);
    let restart = scene.operate(7).await;
    assert_eq!(restart["error_code"], 836, "{restart}");
    assert_eq!(scene.subject.copies(), [pid]);
    assert_eq!(scene.operate(9).await["error_code"], 0, "SIGKILL gets a stopped process");
    scene.zero_list(0).await;
}

/// Frozen by a cgroup v1 freezer, a process is in uninterruptible sleep: no signal reaches it.
struct Freezer(std::path::PathBuf);

impl Freezer {
    fn freeze(pid: i32) -> Option<Self> {
        let directory = std::path::PathBuf::from(format!("/sys/fs/cgroup/freezer/proctor-e2e-{pid}"));
        std::fs::create_dir(&directory).ok()?;
        let freezer = Self(directory);
        std::fs::write(freezer.0.join("cgroup.procs"), pid.to_string()).ok()?;
        freezer.set("FROZEN");
        Some(freezer)
    }

    fn set(&self, state: &str) {
        std::fs::write(self.0.join("freezer.state"), state).unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set("THAWED");
        let members = std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for member in members.lines() {
            let _ = std::fs::write("/sys/fs/cgroup/freezer/cgroup.procs", member);
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[tokio::test]
async fn a18_a_process_that_cannot_be_killed_fails_the_kill_and_gets_no_second_copy() {
    let scene = Scene::running("unkillable", |_, spec| set(spec, "/monitor_policy/stop_check_secs", 1)).await;
    let pid = scene.subject.pid().unwrap();
    let Some(freezer) = Freezer::freeze(pid) else { return skip("there is no cgroup v1 freezer") };
    until("it is in uninterruptible sleep", || stat(pid).is_some_and(|(state, _)| state == 'D')).await;

    let stop = scene.operate(1).await;
    let kill = scene.operate(9).await;

    assert_eq!((&stop["error_code"], &kill["error_code"]), (&Value::from(836), &Value::from(836)), "{stop} {kill}");
    assert!(message(&kill).contains("still running after SIGKILL"), "{kill}");
    assert_eq!(scene.operate(0).await["error_code"], 828);
    assert_eq!((scene.subject.copies(), scene.subject.starts()), (vec![pid], 1));
    // It was not released, so it comes back when it can die.
    drop(freezer);
    scene.until_other_than(pid).await;
    scene.zero_list(1).await;
}

#[tokio::test]
async fn a19_a_pid_of_another_pid_namespace_is_not_taken_for_one_of_the_host() {
    let scene = Scene::new("inner", |_, spec| {
        let inside = "echo filler | cat; ./inner 100000 & echo $! > inner.pid; wait";
        set(spec, "/control/start_cmd", format!("setsid unshare -pf sh -c '{inside}' > /dev/null 2>&1 &"));
        set(spec, "/monitor_policy/start_check_secs", 1);
    })
    .await;

    let row = scene.operate(0).await;

    let pid = numbers(&scene.subject.pid_file())[0];
    assert!(pid < 100, "{pid} is a pid of inside");
    assert_eq!(row["error_code"], 836, "{row}");
    assert_eq!(scene.status().await["pid"], -1);
    for op_type in [1, 9] {
        assert_eq!(scene.operate(op_type).await["error_code"], 829);
    }
    // With a cgroup, what the start left behind is gone; without one, nobody knows it.
    let left = scene.subject.copies().len();
    scene.zero_list(left).await;
}

fn signal(name: &str, pid: i32) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}
