//! F. Limits and pools. Judging and choosing are tested in virtual time, in crates/supervise, and measuring on real
//! processes in crates/host; here is what needs the whole agent. F1 and F8 are in `crate::supervision`.

use std::fs;

use serde_json::json;

use super::{Scene, perl, until};

/// So many percent of the machine's memory.
pub(super) fn memory_bytes(percent: f64) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("MemTotal:")).unwrap();
    let total: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (total * 1024.0 * percent / 100.0) as u64
}

#[tokio::test]
async fn f4_a_process_that_leaks_as_fast_as_it_can_is_dead_long_before_the_host_is_full() {
    // It stops on its own at a fifth of the machine, so that a failure harms nobody.
    let (step, steps) = (memory_bytes(0.2), 100);
    let scene = Scene::new("leaks", |subject, spec| {
        let code = format!(
            "sleep 1 until -e q(leak); $n = {step}; push @x, q(a) x $n for 1..{steps}; \
                            open F, q(>), q(full); close F; sleep 1000 while 1"
        );
        spec["control"]["start_cmd"] = perl(subject, &code);
        spec["resource"] = json!({"cpu": 0, "mem": 2.0});
    })
    .await;
    assert_eq!(scene.operate(0).await["error_code"], 0);

    fs::write(scene.path("leak"), "").unwrap();

    let told = scene.event("limit_exceeded").await;
    assert!(told.to_string().contains("memory"), "{told}");
    until("it is dead", || scene.subject.copies().is_empty()).await;
    assert!(!scene.path("full").exists(), "it had its way");
    let usage: f64 = told["details"]["usage"].as_str().unwrap().parse().unwrap();
    assert!(usage < 20.0, "{told}");
    assert_eq!(scene.operate(4).await["error_code"], 0);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn f4_a_fast_leak_that_ignores_requests_to_end_is_killed_before_the_host_is_full() {
    // It stops on its own at a fifth of the machine, so that a failure harms nobody.
    let (step, steps) = (memory_bytes(0.2), 100);
    let scene = Scene::new("deafleak", |subject, spec| {
        let code = format!(
            "$SIG{{TERM}} = q(IGNORE); sleep 1 until -e q(leak); $n = {step}; push @x, q(a) x $n for 1..{steps}; \
             open F, q(>), q(full); close F; sleep 1000 while 1"
        );
        spec["control"]["start_cmd"] = perl(subject, &code);
        spec["control"]["stop_cmd"] = json!("");
        spec["resource"] = json!({"cpu": 0, "mem": 2.0});
    })
    .await;
    assert_eq!(scene.operate(0).await["error_code"], 0);

    fs::write(scene.path("leak"), "").unwrap();
    scene.event("limit_exceeded").await;
    until("it is dead", || scene.subject.copies().is_empty()).await;

    assert!(!scene.path("full").exists(), "it had its way");
    assert_eq!(scene.operate(4).await["error_code"], 0);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn f17_percentages_are_of_the_host_whatever_the_agent_itself_may_use() {
    let mut scene = Scene::new("busy", |subject, spec| {
        spec["control"]["start_cmd"] = perl(subject, "1 while 1");
        spec["resource"] = json!({"cpu": 0, "mem": 0});
    })
    .await;
    let cpus = std::thread::available_parallelism().unwrap().get();
    scene.start_agent_by("exec taskset -c 0 \"$@\"");
    scene.until_back().await;
    assert_eq!(scene.operate(0).await["error_code"], 0);

    let usage = proctor_testkit::eventually("it has used the CPU for a while", || async {
        let seen = scene.status().await;
        (seen["elapsedTime"].as_u64()? >= 2).then(|| seen["cpuUsageAve"].as_f64().unwrap())
    })
    .await;

    let one_cpu = 100.0 / cpus as f64;
    assert!(usage > 0.0 && usage < one_cpu * 1.2, "{usage} % with {cpus} CPUs");
    assert_eq!(scene.operate(9).await["error_code"], 0);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn f19_without_a_usable_cgroup_limits_and_kills_go_on_by_descent() {
    let bytes = memory_bytes(0.6);
    let mut scene = Scene::new("ungrouped", |subject, spec| {
        let code = format!(
            "unless (fork) {{ sleep 1 until -e q(grow); $n = {bytes}; $x = q(a) x $n; sleep 1000 while 1 }} \
                            sleep 1000 while 1"
        );
        spec["control"]["start_cmd"] = perl(subject, &code);
        spec["control"]["stop_cmd"] = json!("true");
        spec["resource"] = json!({"cpu": 0, "mem": 0.3});
    })
    .await;
    // Read-only, and nothing in it: no hierarchy can be used.
    let hide = "mount -t tmpfs -o ro none /sys/fs/cgroup && exec \"$@\"";
    scene.start_agent_by(&format!("exec unshare -m sh -c '{hide}' sh \"$@\""));
    scene.until_back().await;
    assert_eq!(scene.operate(0).await["error_code"], 0);
    until("both run", || scene.subject.copies().len() == 2).await;

    let kill = scene.operate(9).await;
    assert_eq!(kill["error_code"], 0, "{kill}");
    until("the whole tree is dead", || scene.subject.copies().is_empty()).await;
    assert_eq!(scene.operate(0).await["error_code"], 0);
    fs::write(scene.path("grow"), "").unwrap();

    assert!(scene.event("limit_exceeded").await.to_string().contains("memory"));
    until("the whole tree is dead again", || scene.subject.copies().is_empty()).await;
    assert_eq!(scene.operate(4).await["error_code"], 0);
    scene.zero_list(0).await;
}
