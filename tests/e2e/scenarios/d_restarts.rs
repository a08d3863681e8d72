//! D. The restart policy.

use std::fs;
use std::time::Duration;

use proctor_testkit::{Fleet, Subject, eventually};
use serde_json::{Value, json};

use super::{IP, Scene, until};
use crate::{hosts, row};

/// A start command that records when it ran.
fn timed(subject: &Subject) -> Value {
    json!(format!("date +%s%N >> times; {}", subject.start_cmd()))
}

/// The waits between the starts.
fn waits(scene: &Scene) -> Vec<Duration> {
    let text = fs::read_to_string(scene.path("times")).unwrap_or_default();
    let times: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    times.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0])).collect()
}

#[tokio::test]
async fn d1_a_crash_loop_keeps_its_intervals_and_ends_with_exactly_one_alert() {
    let scene = Scene::new("loops", |_, spec| {
        spec["control"]["start_cmd"] =
            json!("date +%s%N >> times; ./loops 0 > /dev/null 2>&1 & echo $! > loops.pid; wait; exit 0");
        spec["monitor_policy"]["start_retries"] = json!(3);
        spec["monitor_policy"]["start_interval"] = json!(1);
        spec["monitor_policy"]["start_check_secs"] = json!(1);
    })
    .await;

    assert_eq!(scene.operate(3).await["error_code"], 0);
    scene.event("cancel_restart").await;

    let waits = waits(&scene);
    assert_eq!(waits.len(), 2, "three attempts: {waits:?}");
    for wait in &waits {
        assert!(*wait >= Duration::from_secs(1), "{waits:?}");
    }
    assert_eq!(scene.events("cancel_restart").await.len(), 1);
    assert_eq!(scene.events("restart_failed").await.len(), 3);
    scene.until_released().await;
    assert_eq!(scene.shown().await["phase"], "failed");
    scene.zero_list(0).await;
}

/// So many processes of one program, each with a pid file of its own.
pub(super) fn storm(subject: &Subject, count: usize, op_type: i64) -> Value {
    let item = |index: usize| {
        let mut spec = subject.spec();
        let file = format!("{}/{index}.pid", subject.dir.display());
        spec["identity"]["pid_path"] = json!(file);
        spec["control"] = json!({"start_cmd": format!("./stormy 100000 > /dev/null 2>&1 & echo $! > {file}"),
                                 "stop_cmd": format!("kill $(cat {file})")});
        spec["resource"] = json!({"cpu": 0, "mem": 0});
        spec["monitor_policy"]["start_check_secs"] = json!(0);
        spec["monitor_policy"]["op_timeout"] = json!(50);
        json!({"meta": {"namespace": "e2e", "name": format!("stormy-{index}")}, "op_type": op_type,
               "hosts": hosts(&[IP]), "spec": spec})
    };
    json!({"proc_operate_req": (0..count).map(item).collect::<Vec<_>>()})
}

#[tokio::test]
async fn d2_a_storm_of_restarts_leaves_the_api_alone_and_everybody_comes_back_once() {
    const COUNT: usize = 1000;
    let scene = Scene::new("stormy", |_, _| {}).await;
    let manage = scene.fleet.gse("operate_proc_multi", &storm(&scene.subject, COUNT, 3)).await.unwrap();
    scene.fleet.until_final(manage["data"]["task_id"].as_str().unwrap()).await;
    until("all of them run", || scene.subject.copies().len() == COUNT).await;
    let other = Subject::new(scene.fleet.dir(), "calm").unwrap();
    scene.register(&other, |_, _| {}).await;
    let first = scene.subject.copies();

    for pid in &first {
        scene.subject.kill(*pid);
    }
    let back = || scene.subject.copies().into_iter().filter(|pid| !first.contains(pid)).count();
    scene.fleet.get("/api/v1/hosts").await.unwrap();
    assert!(back() < COUNT, "the API answers while the storm goes on");
    let start = scene.operate_on(&other, 0).await;
    assert_eq!(start["error_code"], 0, "an operator is not held up: {start}");

    until("all of them are back", || back() == COUNT && scene.subject.copies().len() == COUNT).await;
    let status = storm(&scene.subject, COUNT, 2);
    let managed = eventually("all of them are known", || async {
        let rows = scene.fleet.operate("operate_proc_multi", &status).await.ok()?;
        let managed = (0..COUNT).filter(|index| {
            let row = row(&rows, IP, &format!("stormy-{index}"));
            row["content"].as_str().unwrap().contains("\"isAuto\":true")
        });
        Some(managed.count())
    })
    .await;
    assert_eq!(managed, COUNT);
    let release = storm(&scene.subject, COUNT, 4);
    scene.fleet.operate("operate_proc_multi", &release).await.unwrap();
    scene.zero_list(COUNT).await;
}

#[tokio::test]
async fn d2_a_call_that_kills_a_thousand_ends_all_of_them_and_none_comes_back() {
    const COUNT: usize = 1000;
    for tracking in ["best", "descent"] {
        let fleet = Fleet::start().await.unwrap();
        let agent = fleet.agent_with(IP, &["--tracking", tracking]).await.unwrap();
        let scene = Scene::with(fleet, agent, "stormy", |_, _| {}).await;
        let manage = scene.fleet.gse("operate_proc_multi", &storm(&scene.subject, COUNT, 3)).await.unwrap();
        scene.fleet.until_final(manage["data"]["task_id"].as_str().unwrap()).await;
        until("all of them run", || scene.subject.copies().len() == COUNT).await;

        let kill = scene.fleet.gse("operate_proc_multi", &storm(&scene.subject, COUNT, 9)).await.unwrap();
        let rows = scene.fleet.until_final(kill["data"]["task_id"].as_str().unwrap()).await;

        for index in 0..COUNT {
            let row = row(&rows, IP, &format!("stormy-{index}"));
            assert_eq!(row["error_code"], 0, "{tracking}: {row}");
        }
        assert_eq!(scene.subject.copies(), Vec::<i32>::new(), "{tracking}: none lives");
        // A restart happens at once: the answer to a later operation comes after it.
        let other = Subject::new(scene.fleet.dir(), "calm").unwrap();
        scene.register(&other, |_, _| {}).await;
        assert_eq!(scene.operate_on(&other, 0).await["error_code"], 0);
        assert_eq!(scene.subject.copies(), Vec::<i32>::new(), "{tracking}: none comes back");
        scene.zero_list(0).await;
    }
}

#[tokio::test]
async fn d6_a_kill_from_outside_is_an_abnormal_end_and_so_is_an_exit_with_0() {
    let scene = Scene::running("outsider", |subject, spec| {
        spec["control"]["start_cmd"] = super::perl(subject, "$SIG{USR1} = sub { exit 0 }; sleep 1000 while 1");
        spec["monitor_policy"]["start_retries"] = json!(10);
    })
    .await;
    let first = scene.subject.pid().unwrap();

    scene.subject.kill(first);
    let second = scene.until_other_than(first).await;
    scene.until_known(second).await;
    let handled = || fs::read_to_string(format!("/proc/{second}/status")).unwrap_or_default();
    until("it can be asked to exit", || {
        let status = handled();
        status.lines().any(|line| line.starts_with("SigCgt:") && line.trim_end().ends_with("200"))
    })
    .await;
    assert!(std::process::Command::new("kill").args(["-USR1", &second.to_string()]).status().unwrap().success());
    scene.until_other_than(second).await;

    eventually("both ends are told", || async { (scene.events("exited").await.len() == 2).then_some(()) }).await;
    let told = serde_json::to_string(&scene.events("exited").await).unwrap();
    assert!(told.contains("signal 9") && told.contains("exit code 0"), "{told}");
    assert_eq!(scene.subject.starts(), 3);
    assert_eq!(scene.status().await["isAuto"], true);
    scene.zero_list(1).await;
}

#[tokio::test]
async fn d8_who_runs_once_is_recorded_and_never_run_again() {
    let mut scene = Scene::new("oneshot", |_, _| {}).await;
    let ends = [("exit 0", "exit code 0"), ("exit 5", "exit code 5"), ("kill -9 $$", "signal 9")];
    for (round, (end, words)) in ends.into_iter().enumerate() {
        let code = format!(
            "open F, q(>>), q(runs.log); print F qq(run\\n); close F; sleep 1 until -e q(end{round}); exec q(sh), q(-c), q({end})"
        );
        scene
            .register(&scene.subject, |subject, spec| {
                spec["control"]["start_cmd"] = super::perl(subject, &code);
                spec["monitor_policy"]["auto_type"] = json!(2);
            })
            .await;
        let row = scene.operate(0).await;
        assert_eq!(row["error_code"], 0, "{row}");
        until("it runs", || scene.subject.pid().is_some()).await;

        fs::write(scene.path(&format!("end{round}")), "").unwrap();
        eventually("its end is recorded", || async {
            let told = serde_json::to_string(&scene.events("exited").await).unwrap();
            told.contains(words).then_some(())
        })
        .await;
        scene.restart_agent().await;
        assert_eq!(scene.status().await["pid"], -1);
    }
    let runs = fs::read_to_string(scene.path("runs.log")).unwrap();
    assert_eq!(runs.lines().count(), 3, "each start ran once");
    assert_eq!(scene.subject.starts(), 3);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn d8_who_has_ended_well_before_anybody_looked_is_a_success() {
    let scene = Scene::new("quick", |_, spec| {
        spec["control"]["start_cmd"] = json!("echo start >> commands.log");
        spec["monitor_policy"]["auto_type"] = json!(2);
        spec["monitor_policy"]["start_check_secs"] = json!(1);
    })
    .await;

    let row = scene.operate(0).await;

    assert_eq!(row["error_code"], 0, "{row}");
    scene
        .register(&scene.subject, |_, spec| {
            spec["control"]["start_cmd"] = json!("echo start >> commands.log; echo no luck; exit 1");
            spec["monitor_policy"]["auto_type"] = json!(2);
        })
        .await;
    let row = scene.operate(0).await;
    assert_eq!(row["error_code"], 65535, "{row}");
    assert_eq!(scene.subject.starts(), 2);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn d9_a_process_that_was_given_up_runs_again_when_an_operator_starts_it() {
    let scene = Scene::new("forgiven", |subject, spec| {
        spec["control"]["start_cmd"] = json!(format!("test -e fixed || exit 1; {}", subject.start_cmd()));
        spec["monitor_policy"]["start_retries"] = json!(1);
    })
    .await;
    assert_eq!(scene.operate(3).await["error_code"], 0);
    scene.event("cancel_restart").await;
    scene.until_released().await;
    fs::write(scene.path("fixed"), "").unwrap();

    let row = scene.operate(0).await;

    assert_eq!(row["error_code"], 0, "{row}");
    eventually("its counters are cleared", || async {
        let shown = scene.shown().await;
        (shown["phase"] == "running" && shown["restarts"] == 0 && shown["managed"] == true).then_some(())
    })
    .await;
    let pid = scene.subject.pid().unwrap();
    scene.subject.kill(pid);
    scene.until_other_than(pid).await;
    scene.zero_list(1).await;
}

#[tokio::test]
async fn d10_a_broken_binary_that_is_repaired_recovers_by_itself() {
    let scene = Scene::running("mended", |subject, spec| {
        spec["control"]["start_cmd"] = timed(subject);
        spec["monitor_policy"]["start_retries"] = json!(100);
        spec["monitor_policy"]["start_interval"] = json!(1);
        spec["monitor_policy"]["start_check_secs"] = json!(1);
    })
    .await;
    let before = scene.subject.pid().unwrap();
    let (program, kept) = (scene.path("mended"), scene.path("kept"));

    fs::rename(&program, &kept).unwrap();
    fs::write(&program, "no program").unwrap();
    scene.subject.kill(before);
    scene.event("restart_failed").await;
    fs::rename(&kept, &program).unwrap();

    scene.until_other_than(before).await;
    let slow = waits(&scene);
    assert!(slow[1..].iter().all(|wait| *wait >= Duration::from_secs(1)), "{slow:?}");
    assert_eq!(scene.status().await["isAuto"], true);
    scene.zero_list(1).await;
}
