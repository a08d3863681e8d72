//! H. What a life leaves behind, with cgroups and by descent.

use std::fs;

use proctor_testkit::Subject;
use serde_json::json;

use super::e_schedules::{cyclic, operate, runs};
use super::zero::stat;
use super::{IP, Scene, numbers, perl, until};
use crate::hosts;

/// How the agent knows what belongs to a process.
const TRACKING: [&str; 2] = ["best", "descent"];

async fn with_tracking(scene: &mut Scene, tracking: &str) {
    scene.kill_agent().await;
    scene.start_agent_by(&format!("exec \"$@\" --tracking {tracking}"));
    scene.until_back().await;
}

/// A main process with a child that has left its session; its stop command ends the main process only.
fn forking(name: &str) -> String {
    format!("use POSIX; unless (fork) {{ POSIX::setsid(); sleep 1 while 1 }} $0 = q({name}); sleep 1 while 1")
}

#[tokio::test]
async fn h1_a_stop_a_kill_and_an_eviction_leave_nothing_of_that_life() {
    for tracking in TRACKING {
        let mut scene = Scene::new("forks", |subject, spec| {
            let code = format!("$x = q(a) x 30_000_000; {}", forking(&subject.name));
            spec["control"]["start_cmd"] = perl(subject, &code);
        })
        .await;
        with_tracking(&mut scene, tracking).await;

        for op_type in [1, 9] {
            assert_eq!(scene.operate(0).await["error_code"], 0);
            until("both run", || scene.subject.copies().len() == 2).await;
            let row = scene.operate(op_type).await;
            assert_eq!(row["error_code"], 0, "{tracking}: {row}");
            assert_eq!(scene.subject.copies(), Vec::<i32>::new(), "{tracking}: op_type {op_type}");
        }
        assert_eq!(scene.operate(0).await["error_code"], 0);
        until("both run", || scene.subject.copies().len() == 2).await;
        scene
            .register(&scene.subject, |subject, spec| {
                spec["control"]["start_cmd"] = json!(format!("echo start >> commands.log; ./{} -e 0", subject.name));
                spec["resource"] = json!({"cpu": 0, "mem": 0.1});
            })
            .await;
        scene.event("limit_exceeded").await;
        until("nothing of it is left", || scene.subject.copies().is_empty()).await;

        assert_eq!(scene.operate(4).await["error_code"], 0);
        scene.zero_list(0).await;
    }
}

#[tokio::test]
async fn h2_the_workers_of_a_killed_master_do_not_keep_its_port_from_the_next_one() {
    for tracking in TRACKING {
        let mut scene = Scene::new("listens", |subject, spec| {
            let code = "use IO::Socket::INET; open F, q(port); $p = <F> || 0; close F; \
                 $s = IO::Socket::INET->new(LocalAddr => q(127.0.0.1), LocalPort => $p, Listen => 5) or exit 1; \
                 open F, q(>), q(port); print F $s->sockport; close F; \
                 for (1..2) { fork or last } sleep 1 while 1";
            spec["control"]["start_cmd"] = perl(subject, code);
            spec["monitor_policy"]["start_check_secs"] = json!(1);
        })
        .await;
        with_tracking(&mut scene, tracking).await;
        assert_eq!(scene.operate(0).await["error_code"], 0);
        until("master and workers run", || scene.subject.copies().len() == 3).await;
        let master = scene.until_pid().await;
        let workers: Vec<i32> = scene.subject.copies().into_iter().filter(|pid| *pid != master).collect();
        assert!(fs::read_to_string(scene.path("port")).is_ok_and(|port| !port.is_empty()));

        scene.subject.kill(master);
        scene.until_other_than(master).await;
        scene.event("restart_succeeded").await;

        assert_eq!(scene.subject.starts(), 2, "{tracking}: the first restart had the port");
        assert_eq!(scene.events("restart_failed").await, Vec::<serde_json::Value>::new(), "{tracking}");
        assert!(workers.iter().all(|pid| !scene.subject.copies().contains(pid)), "{tracking}");
        assert_eq!(scene.operate(9).await["error_code"], 0);
        scene.zero_list(0).await;
    }
}

#[tokio::test]
async fn h3_a_failed_start_does_not_touch_an_earlier_life_of_the_same_name() {
    for tracking in TRACKING {
        let mut scene = Scene::new("elder", |_, _| {}).await;
        with_tracking(&mut scene, tracking).await;
        assert_eq!(scene.operate(0).await["error_code"], 0);
        let elder = scene.until_pid().await;
        let body = json!({"meta": scene.subject.meta(), "hosts": hosts(&[IP])});
        scene.fleet.gse("unregister_proc_info", &body).await.unwrap();

        let answer = scene
            .register(&scene.subject, |subject, spec| {
                spec["identity"]["pid_path"] = json!(subject.dir.join("mistyped.pid"));
                spec["control"]["start_cmd"] = json!(format!("./{} 100000 > /dev/null 2>&1 &", subject.name));
                spec["monitor_policy"]["start_check_secs"] = json!(1);
            })
            .await;
        assert_eq!(answer["code"], 0, "{answer}");
        let row = scene.operate(0).await;

        assert_eq!(row["error_code"], 836, "{row}");
        assert_eq!(scene.subject.copies(), [elder], "{tracking}: what the start left behind is ended, and only that");
        scene.zero_list(1).await;
    }
}

fn is_alive(pid: &i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn h5_nothing_of_a_scheduled_run_is_left_after_a_stop_nor_when_the_next_one_starts() {
    for tracking in TRACKING {
        let mut scene = Scene::new("unrelated", |_, _| {}).await;
        with_tracking(&mut scene, tracking).await;
        // Every run leaves a process behind that has left its session and its parent, and runs until released.
        let line = "(setsid sleep 100000 > /dev/null 2>&1 & echo $! >> left); date +%s%N >> runs; \
                    until [ -e go ] || [ ! -d $PWD ]; do sleep 0.05; done";
        let job = cyclic(&scene, "leaving", 1, line).await;
        let left = || numbers(&job.dir.join("left"));
        let alive = || left().iter().filter(|pid| is_alive(pid)).count();

        for op_type in [1, 9] {
            let before = left().len();
            until("it runs", || left().len() > before).await;
            operate(&scene, &job, 1, line, op_type).await;
            until("nothing of it is left", || alive() == 0).await;
            operate(&scene, &job, 1, line, 3).await;
        }
        fs::write(job.dir.join("go"), "").unwrap();
        let before = runs(&job).len();
        until("several runs have ended", || runs(&job).len() >= before + 4).await;
        assert!(alive() <= 1, "{tracking}: what runs leave behind does not pile up");
        operate(&scene, &job, 1, line, 1).await;
        until("nothing is left", || alive() == 0).await;
        scene.zero_list(0).await;
    }
}

#[tokio::test]
async fn h6_workers_of_an_unregistered_process_do_not_stay_beside_those_of_the_next_one() {
    for (tracking, restarts) in [("best", false), ("best", true), ("descent", false), ("descent", true)] {
        let mut start = json!(null);
        let mut scene = Scene::new("again", |subject, spec| {
            start = perl(subject, &forking(&subject.name));
            spec["control"]["start_cmd"] = start.clone();
        })
        .await;
        with_tracking(&mut scene, tracking).await;
        let other = Subject::new(scene.fleet.dir(), "other").unwrap();
        scene.register(&other, |_, _| {}).await;
        assert_eq!(scene.operate(0).await["error_code"], 0);
        until("both run", || scene.subject.copies().len() == 2).await;
        let first = scene.subject.copies();

        let body = json!({"meta": scene.subject.meta(), "hosts": hosts(&[IP])});
        scene.fleet.gse("unregister_proc_info", &body).await.unwrap();
        // Assignments come before operations: the agent has dropped the process.
        assert_eq!(scene.operate_on(&other, 4).await["error_code"], 0);
        scene.subject.kill(scene.subject.pid().unwrap());
        until("its worker is left", || scene.subject.copies().len() == 1).await;
        if restarts {
            scene.kill_agent().await;
            scene.start_agent_by(&format!("exec \"$@\" --tracking {tracking}"));
            scene.until_back().await;
        }
        scene.register(&scene.subject, |_, spec| spec["control"]["start_cmd"] = start).await;
        assert_eq!(scene.operate(0).await["error_code"], 0);

        until("both run", || scene.subject.copies().len() == 2).await;
        assert!(!first.iter().any(is_alive), "{tracking}: {first:?} {:?}", scene.subject.copies());
        assert_eq!(scene.operate(9).await["error_code"], 0);
        scene.zero_list(0).await;
    }
}

#[tokio::test]
async fn h7_the_late_end_of_a_stopped_process_leaves_no_workers() {
    for tracking in TRACKING {
        let mut scene = Scene::new("frozen", |subject, spec| {
            spec["control"]["start_cmd"] = perl(subject, &forking(&subject.name));
            spec["control"]["stop_cmd"] = json!("");
            spec["monitor_policy"]["stop_check_secs"] = json!(1);
        })
        .await;
        with_tracking(&mut scene, tracking).await;
        assert_eq!(scene.operate(0).await["error_code"], 0);
        until("both run", || scene.subject.copies().len() == 2).await;
        let main = scene.until_pid().await;
        let signal = |name: &str| {
            let done = std::process::Command::new("kill").args([name, &main.to_string()]).status();
            assert!(done.unwrap().success());
        };

        signal("-STOP");
        // Until it has stopped, a SIGTERM would overtake the SIGSTOP.
        until("it has stopped", || stat(main).is_some_and(|(state, _)| state == 'T')).await;
        assert_eq!(scene.operate(1).await["error_code"], 836);
        signal("-CONT");

        until("nothing of it is left", || scene.subject.copies().is_empty()).await;
        scene.until_released().await;
        scene.zero_list(0).await;
    }
}
