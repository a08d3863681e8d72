//! What the agent does on its own: limits, pools, schedules, health, and the events about it.

use proctor_testkit::{Agent, Fleet, Subject, eventually};
use serde_json::{Value, json};

use crate::scenarios::zero_list;
use crate::{IP, hosts, instance, operate, register};

async fn fleet() -> (Fleet, Agent) {
    let fleet = Fleet::start().await.unwrap();
    let agent = fleet.agent(IP).await.unwrap();
    (fleet, agent)
}

/// A start command that runs perl code under the subject's name, with its pid file.
fn perl(subject: &Subject, code: &str) -> Value {
    let name = &subject.name;
    json!(format!("cp /usr/bin/perl ./{name}; ./{name} -e '{code}' > /dev/null 2>&1 & echo $! > {name}.pid"))
}

fn memory_bytes(percent: f64) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("MemTotal:")).unwrap();
    let total: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (total * 1024.0 * percent / 100.0) as u64
}

/// The first event of this type about the process.
async fn event(fleet: &Fleet, subject: &Subject, kind: &str) -> Value {
    let path = format!("/api/v1/events?namespace=e2e&name={}&type={kind}", subject.name);
    eventually("the event is there", || async {
        let answer = fleet.get(&path).await.ok()?;
        answer["events"].as_array()?.first().cloned()
    })
    .await
}

#[tokio::test]
async fn f1_memory_of_a_child_of_a_child_counts_and_the_tree_is_killed() {
    let (fleet, agent) = fleet().await;
    // The stop command of the second one ends only its root: what it has forked outlives it, and must not.
    for (name, stop) in [("greedy", "true"), ("orphans", "kill -9 $(cat orphans.pid)")] {
        let subject = Subject::new(fleet.dir(), name).unwrap();
        let bytes = memory_bytes(0.6);
        let hog = format!(
            "$SIG{{TERM}} = q(IGNORE); unless (fork) {{ unless (fork) {{ $x = \"a\" x {bytes}; sleep 1000 }} sleep 1000 }} \
             sleep 1000"
        );
        register(&fleet, &subject, |spec| {
            spec["control"]["start_cmd"] = perl(&subject, &hog);
            spec["control"]["stop_cmd"] = json!(stop);
            spec["resource"] = json!({"cpu": 0, "mem": 0.3});
            spec["monitor_policy"]["start_check_secs"] = json!(0);
        })
        .await;

        assert_eq!(operate(&fleet, &subject, 0).await["error_code"], 0);

        let told = event(&fleet, &subject, "limit_exceeded").await;
        assert!(told.to_string().contains("memory"), "{told}");
        eventually("the whole tree is dead", || async { subject.copies().is_empty().then_some(()) }).await;
        assert_eq!(instance(&fleet, IP, name).await["isAuto"], true, "it stays managed");
        assert_eq!(operate(&fleet, &subject, 4).await["error_code"], 0);
        zero_list(&fleet, &agent, &subject, 0).await;
    }
}

#[tokio::test]
async fn f8_of_a_pool_over_its_limit_exactly_the_largest_is_killed() {
    let (fleet, agent) = fleet().await;
    let sizes = [("ten", 0.50), ("eight", 0.40), ("five", 0.25)];
    let mut subjects = Vec::new();
    for (name, percent) in sizes {
        let subject = Subject::new(fleet.dir(), name).unwrap();
        let hog = format!("$x = \"a\" x {}; open F, \">grown\"; close F; sleep 1000", memory_bytes(percent));
        register(&fleet, &subject, |spec| {
            spec["control"]["start_cmd"] = perl(&subject, &hog);
            spec["resource"] = json!({"cpu": 0, "mem": 0});
            spec["monitor_policy"]["start_check_secs"] = json!(0);
        })
        .await;
        assert_eq!(operate(&fleet, &subject, 0).await["error_code"], 0);
        subjects.push(subject);
    }
    let before: Vec<_> = subjects.iter().map(|subject| subject.pid().unwrap()).collect();
    eventually("all have their memory", || async {
        subjects.iter().all(|subject| subject.dir.join("grown").exists()).then_some(())
    })
    .await;

    // The largest counts with perl itself: two copies of the string, so half of the sum is enough.
    let resource = json!({"cpu_pool_limit": 0, "mem_pool_limit": 1.6, "cpu_pool_weight": 0, "mem_pool_weight": 0});
    let set = json!({"meta": {"namespace": "e2e"}, "hosts": hosts(&[IP]),
                     "spec": {"process_group": [{"id": "e2e", "resource": resource}]}});
    assert_eq!(fleet.gse("set_process_group_info", &set).await.unwrap()["code"], 0);

    let told = event(&fleet, &subjects[0], "pool_limit_exceeded").await;
    assert!(told.to_string().contains("ranking"), "{told}");
    eventually("the largest is gone", || async { (subjects[0].pid() != Some(before[0])).then_some(()) }).await;
    assert_eq!(subjects[1].pid(), Some(before[1]));
    assert_eq!(subjects[2].pid(), Some(before[2]));
    assert_eq!(operate(&fleet, &subjects[0], 4).await["error_code"], 0);
    for (subject, copies) in subjects.iter().zip([0, 1, 1]) {
        zero_list(&fleet, &agent, subject, copies).await;
    }
}

#[tokio::test]
async fn a_periodic_process_runs_every_cycle_and_shows_its_next_run() {
    let (fleet, _agent) = fleet().await;
    let subject = Subject::new(fleet.dir(), "cyclic").unwrap();
    let info = json!({
        "setup_path": subject.dir, "proc_name": subject.name, "pid_path": subject.pid_file(), "account": "root",
        "type": 0, "cycle_time": 2, "start_cmd": "echo ran >> runs.log", "value_key": "cyclic",
        "ip_list": [{"bk_cloud_id": 0, "ip": IP}]
    });
    let body = json!({"bk_biz_id": 1, "op_type": 3, "process_infos": [info]});

    assert_eq!(fleet.job("operate_process", &body).await.unwrap()["code"], 0);

    eventually("it ran three times", || async {
        let runs = std::fs::read_to_string(subject.dir.join("runs.log")).unwrap_or_default();
        (runs.lines().count() >= 3).then_some(())
    })
    .await;
    let shown = fleet.get("/api/v1/processes/job/cyclic").await.unwrap();
    assert!(shown.to_string().contains("next_run_at"), "{shown}");
}

#[tokio::test]
async fn an_unhealthy_process_is_restarted_and_the_event_says_why() {
    let (fleet, _agent) = fleet().await;
    let subject = Subject::new(fleet.dir(), "sickly").unwrap();
    register(&fleet, &subject, |spec| {
        spec["control"]["health_cmd"] = json!("test ! -e sick || { echo fever; exit 1; }");
        let health = json!({"interval_secs": 1, "timeout_secs": 5, "failures": 2, "grace_secs": 0});
        spec["monitor_policy"]["health_check"] = health;
    })
    .await;
    operate(&fleet, &subject, 0).await;
    let before = subject.pid().unwrap();
    eventually("it is seen healthy", || async {
        (instance(&fleet, IP, "sickly").await["health"] == "healthy").then_some(())
    })
    .await;

    std::fs::write(subject.dir.join("sick"), "").unwrap();

    let told = event(&fleet, &subject, "health_changed").await;
    assert!(told.to_string().contains("fever"), "{told}");
    eventually("it has a new life", || async { subject.pid().filter(|pid| *pid != before) }).await;
    std::fs::remove_file(subject.dir.join("sick")).unwrap();
    event(&fleet, &subject, "restart_succeeded").await;
    eventually("its status shows the new life", || async {
        let seen = fleet.get("/api/v1/processes/e2e/sickly").await.ok()?.to_string();
        let is_new = seen.contains(&format!("\"pid\":{}", subject.pid()?)) && !seen.contains("\"restarts\":0");
        (is_new && seen.contains("\"health\":\"healthy\"")).then_some(())
    })
    .await;
    assert_eq!(subject.copies().len(), 1);
}

#[tokio::test]
async fn the_open_files_of_a_process_are_counted_in_its_status() {
    const FILES: u64 = 60;
    let (fleet, _agent) = fleet().await;
    let subject = Subject::new(fleet.dir(), "opener").unwrap();
    let open =
        format!("for (1..{FILES}) {{ open my $f, \"<\", \"/dev/null\"; push @f, $f }} open F, \">opened\"; sleep 1000");
    register(&fleet, &subject, |spec| spec["control"]["start_cmd"] = perl(&subject, &open)).await;

    assert_eq!(operate(&fleet, &subject, 0).await["error_code"], 0);
    eventually("all files are open", || async { subject.dir.join("opened").exists().then_some(()) }).await;

    let counted = eventually("they are counted", || async {
        let body = json!({"meta": {"namespace": "e2e", "name": "opener"}, "hosts": hosts(&[IP])});
        let status = fleet.gse("get_proc_status", &body).await.unwrap();
        status["data"]["proc_infos"][0]["fd"].as_u64().filter(|fd| *fd >= FILES)
    })
    .await;
    let real = std::fs::read_dir(format!("/proc/{}/fd", subject.pid().unwrap())).unwrap().count() as u64;
    assert_eq!(counted, real);
}

#[tokio::test]
async fn a_start_command_in_the_foreground_is_the_process() {
    let (fleet, mut agent) = fleet().await;
    let subject = Subject::new(fleet.dir(), "foreground").unwrap();
    register(&fleet, &subject, |spec| {
        spec["control"]["start_cmd"] =
            json!("echo start >> commands.log; echo $$ > foreground.pid; exec ./foreground 100000");
        spec["monitor_policy"]["op_timeout"] = json!(4);
        spec["monitor_policy"]["start_check_secs"] = json!(1);
    })
    .await;

    let row = operate(&fleet, &subject, 0).await;

    assert_eq!(row["error_code"], 0, "{row}");
    let pid = subject.pid().unwrap();
    agent.restart().unwrap();
    fleet.until_online(IP, true).await;
    let seen = instance(&fleet, IP, "foreground").await;
    assert_eq!((&seen["pid"], &seen["isAuto"]), (&json!(pid), &json!(true)));
    assert_eq!(subject.starts(), 1);
}

#[tokio::test]
async fn the_events_of_a_restart_reach_the_server_in_their_gse_shape() {
    let (fleet, _agent) = fleet().await;
    let subject = Subject::new(fleet.dir(), "eventful").unwrap();
    register(&fleet, &subject, |spec| spec["monitor_policy"]["start_check_secs"] = json!(0)).await;
    operate(&fleet, &subject, 0).await;

    subject.kill(subject.pid().unwrap());

    let told = event(&fleet, &subject, "restart_succeeded").await;
    let text = told.to_string();
    assert!(text.contains("check eventful not running, and restart it success"), "{text}");
    event(&fleet, &subject, "started").await;
    let ended = event(&fleet, &subject, "exited").await;
    assert!(ended.to_string().contains("signal 9"), "{ended}");
}
