//! E. Schedules. The rules about time itself are tested in virtual time, in crates/supervise.

use std::fs;
use std::time::Duration;

use proctor_testkit::{Subject, eventually};
use serde_json::{Value, json};

use super::{IP, Scene, until};

/// Of a second host.
const OTHER_IP: &str = "127.0.0.2";

/// Manages a process of the JOB family that runs every so many seconds.
pub(super) async fn cyclic(scene: &Scene, name: &str, cycle: u32, line: &str) -> Subject {
    let subject = Subject::new(scene.fleet.dir(), name).unwrap();
    operate(scene, &subject, cycle, line, 3).await;
    subject
}

pub(super) async fn operate(scene: &Scene, subject: &Subject, cycle: u32, line: &str, op_type: i64) {
    operate_on(scene, IP, subject, cycle, line, op_type).await;
}

async fn operate_on(scene: &Scene, ip: &str, subject: &Subject, cycle: u32, line: &str, op_type: i64) {
    let info = json!({
        "setup_path": subject.dir, "proc_name": subject.name, "pid_path": subject.pid_file(), "account": "root",
        "type": 0, "cycle_time": cycle, "start_cmd": line, "value_key": subject.name,
        "ip_list": [{"bk_cloud_id": 0, "ip": ip}]
    });
    let body = json!({"bk_biz_id": 1, "op_type": op_type, "process_infos": [info]});
    let answer = scene.fleet.job("operate_process", &body).await.unwrap();
    assert_eq!(answer["code"], 0, "{answer}");
}

/// When the runs were, in nanoseconds.
pub(super) fn runs(subject: &Subject) -> Vec<u64> {
    let text = fs::read_to_string(subject.dir.join("runs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

async fn first_event(scene: &Scene, name: &str, kind: &str) -> Value {
    let path = format!("/api/v1/events?namespace=job&name={name}&type={kind}");
    eventually("the event is there", || async {
        scene.fleet.get(&path).await.ok()?["events"].as_array()?.first().cloned()
    })
    .await
}

#[tokio::test]
async fn e1_a_run_that_is_due_while_the_one_before_runs_is_skipped_and_counted() {
    let scene = Scene::new("unrelated", |_, _| {}).await;
    let line = "date +%s%N >> runs; echo + >> now; test $(grep -c . now) = 1 || touch doubled; \
                until [ -e go ] || [ ! -d $PWD ]; do sleep 0.05; done; rm now";

    let job = cyclic(&scene, "overlapping", 1, line).await;

    let told = first_event(&scene, "overlapping", "schedule_skipped").await;
    assert!(told["details"]["skipped"].as_str().unwrap().parse::<u64>().unwrap() >= 1, "{told}");
    assert_eq!(runs(&job).len(), 1);
    fs::write(job.dir.join("go"), "").unwrap();
    until("it runs again", || runs(&job).len() >= 2).await;
    assert!(!job.dir.join("doubled").exists(), "two runs at the same time");
    scene.zero_list(0).await;
}

#[tokio::test]
async fn e3_runs_that_came_due_while_the_agent_was_down_are_caught_up_once() {
    let mut scene = Scene::new("unrelated", |_, _| {}).await;
    let _other_agent = scene.fleet.agent(OTHER_IP).await.unwrap();
    let job = cyclic(&scene, "missed", 2, "date +%s%N >> runs").await;
    let witness = Subject::new(scene.fleet.dir(), "witness").unwrap();
    operate_on(&scene, OTHER_IP, &witness, 2, "date +%s%N >> runs", 3).await;
    first_event(&scene, "missed", "exited").await;

    scene.kill_agent().await;
    let (before, witnessed) = (runs(&job).len(), runs(&witness).len());
    // On the other host, the same schedule says when that many were due here.
    until("three runs are missed", || runs(&witness).len() >= witnessed + 4).await;
    assert_eq!(runs(&job).len(), before);
    scene.restart_agent().await;
    until("it runs as planned again", || runs(&job).len() >= before + 3).await;

    let after = &runs(&job)[before..];
    let spread = Duration::from_nanos(after[2] - after[0]);
    // Two planned runs are a whole cycle apart, and what is caught up runs at once.
    assert!(spread >= Duration::from_secs(1), "one run at most was caught up: {spread:?}");
    scene.zero_list(0).await;
}

#[tokio::test]
async fn e3_a_run_during_which_the_agent_was_killed_does_not_hold_up_the_next_ones() {
    let mut scene = Scene::new("unrelated", |_, _| {}).await;
    let line = "date +%s%N >> runs; echo + >> now; test $(grep -c . now) = 1 || touch doubled; \
                until [ -e go ] || [ ! -d $PWD ]; do sleep 0.05; done; rm now";
    let job = cyclic(&scene, "interrupted", 1, line).await;
    until("it runs", || runs(&job).len() == 1).await;

    scene.kill_agent().await;
    scene.restart_agent().await;

    // What comes due while the interrupted run continues is skipped, and the run is not duplicated.
    first_event(&scene, "interrupted", "schedule_skipped").await;
    assert_eq!(runs(&job).len(), 1);
    fs::write(job.dir.join("go"), "").unwrap();
    until("it runs again", || runs(&job).len() >= 3).await;
    assert!(!job.dir.join("doubled").exists(), "two runs at the same time");
    scene.zero_list(0).await;
}

#[tokio::test]
async fn e5_bad_rules_are_refused_at_registration_and_change_nothing() {
    let scene = Scene::new("unrelated", |_, _| {}).await;
    let subject = Subject::new(scene.fleet.dir(), "ruled").unwrap();
    let long = "1,".repeat(5000);
    for rule in ["0 0 30 2 *", "60 * * * *", "*/0 * * * *", "31 2", "* * * * * *", "a b c d e", long.as_str()] {
        let answer = scene
            .register(&subject, |_, spec| {
                spec["monitor_policy"]["auto_type"] = json!(0);
                spec["monitor_policy"]["crontab_rule"] = json!(rule);
            })
            .await;

        assert_eq!(answer["code"], 1_306_406, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains("crontab_rule"), "{answer}");
    }
    let known = scene.fleet.get("/api/v1/processes").await.unwrap();
    assert_eq!(known["processes"].as_array().unwrap().len(), 1, "only the one of before: {known}");
    scene.zero_list(0).await;
}

#[tokio::test]
async fn e7_a_scheduled_run_under_way_shows_its_pid_and_is_ended_by_a_stop() {
    let scene = Scene::new("unrelated", |_, _| {}).await;
    let line = "echo $$ > runner; date +%s%N >> runs; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.05; done";
    let job = cyclic(&scene, "long", 1, line).await;
    until("it runs", || runs(&job).len() == 1).await;
    let runner: i64 = fs::read_to_string(job.dir.join("runner")).unwrap().trim().parse().unwrap();

    let shown = eventually("its pid is shown", || async {
        let shown = scene.fleet.get("/api/v1/processes/job/long").await.ok()?["processes"][0].clone();
        (shown["pid"] == runner).then_some(shown)
    })
    .await;
    assert_eq!(shown["phase"], "running", "{shown}");

    operate(&scene, &job, 1, line, 1).await;
    until("the run is ended", || !std::path::Path::new(&format!("/proc/{runner}")).exists()).await;
    assert_eq!(runs(&job).len(), 1, "and none follows");
    scene.zero_list(0).await;
}
