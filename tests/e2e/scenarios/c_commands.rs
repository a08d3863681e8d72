//! C. Commands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use proctor_testkit::Subject;
use serde_json::{Value, json};

use super::zero::stat;
use super::{Scene, numbers, perl, until};
use crate::content;

fn message(row: &Value) -> &str {
    row["error_msg"].as_str().unwrap()
}

/// What the command printed, as the row shows it.
fn printed(row: &Value) -> String {
    content(row)["value"][0]["result"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn c1_a_stop_command_that_hangs_is_killed_with_its_tree_and_the_process_is_asked_to_end() {
    let scene = Scene::running("hangs", |_, spec| {
        spec["control"]["stop_cmd"] = json!(
            "echo $$ >> stoppers; sleep 1000 & echo $! >> stoppers; setsid sleep 1000 & echo $! >> stoppers; wait"
        );
        spec["monitor_policy"]["op_timeout"] = json!(1);
        spec["monitor_policy"]["stop_check_secs"] = json!(3);
    })
    .await;

    let row = scene.operate(1).await;

    assert_eq!(row["error_code"], 0, "{row}");
    let stoppers = numbers(&scene.path("stoppers"));
    assert_eq!(stoppers.len(), 3);
    until("the stop command's tree is dead", || stoppers.iter().all(|pid| stat(*pid).is_none())).await;
    assert_eq!(scene.status().await["isAuto"], false);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn c2_a_stop_that_says_it_worked_and_did_not_fails_and_leaves_the_process_managed() {
    let scene = Scene::running("stays", |_, spec| {
        spec["control"]["stop_cmd"] = json!("echo all done");
        spec["monitor_policy"]["stop_check_secs"] = json!(1);
    })
    .await;
    let pid = scene.subject.pid().unwrap();

    let row = scene.operate(1).await;

    assert_eq!(row["error_code"], 836, "{row}");
    assert!(message(&row).starts_with("stop"), "{row}");
    let seen = scene.status().await;
    assert_eq!((&seen["pid"], &seen["isAuto"]), (&json!(pid), &json!(true)));
    scene.zero_list(1).await;
}

#[tokio::test]
async fn c3_a_stop_that_says_it_failed_and_worked_is_a_success_that_shows_what_it_said() {
    let scene = Scene::running("modest", |_, spec| {
        spec["control"]["stop_cmd"] = json!("kill -9 $(cat modest.pid); echo could not remove the lock; exit 1");
    })
    .await;

    let row = scene.operate(1).await;

    assert_eq!(row["error_code"], 0, "{row}");
    assert!(printed(&row).contains("could not remove the lock"), "{row}");
    assert_eq!(scene.status().await["isAuto"], false);
    scene.zero_list(0).await;
}

fn resident_kilobytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn disk_bytes(directory: &Path) -> u64 {
    fs::read_dir(directory).unwrap().flatten().map(|entry| entry.metadata().map_or(0, |data| data.len())).sum()
}

#[tokio::test]
async fn c6_a_gigabyte_of_output_without_a_newline_is_bounded() {
    let scene = Scene::running("talks", |_, spec| {
        // At a pace that leaves time to look at it.
        let gigabyte = "for _ in $(seq 64); do head -c 16777216 /dev/zero; sleep 0.05; done";
        spec["control"]["reload_cmd"] = json!(format!("printf first; {gigabyte}; printf last"));
        spec["monitor_policy"]["op_timeout"] = json!(50);
    })
    .await;
    let agent = scene.agent.program.pid();
    let before = resident_kilobytes(agent);
    let output = scene.agent.state_dir().join("output");

    let mut largest = 0;
    let row = {
        let reload = scene.operate(8);
        tokio::pin!(reload);
        loop {
            tokio::select! {
                row = &mut reload => break row,
                () = tokio::time::sleep(Duration::from_millis(5)) => largest = largest.max(disk_bytes(&output)),
            }
        }
    };

    assert_eq!(row["error_code"], 0, "{row}");
    // An agent that gets no CPU for a while truncates late; without truncation it would be all of it.
    assert!(largest < 512 * 1024 * 1024, "{largest} bytes at one time");
    let said = printed(&row);
    assert!(said.starts_with("first") && said.ends_with("last"), "{}", said.len());
    assert!(said.len() < 64 * 1024, "{}", said.len());
    let grown = resident_kilobytes(agent).saturating_sub(before);
    assert!(grown < 32 * 1024, "the agent has grown by {grown} kB");
    // The file is truncated while it grows, and again when its command ends: at most 1 MiB, and those of others.
    let kept = disk_bytes(&output);
    assert!(kept < 2 * 1024 * 1024, "{kept} bytes are kept");
    scene.zero_list(1).await;
}

#[tokio::test]
async fn c7_a_user_that_does_not_exist_is_an_error_at_once_and_no_storm() {
    let scene = Scene::new("nameless", |subject, spec| {
        spec["identity"]["user"] = json!("no-such-user");
        spec["monitor_policy"]["start_retries"] = json!(2);
        spec["control"]["start_cmd"] = json!(subject.start_cmd());
    })
    .await;

    let row = scene.operate(0).await;
    assert_eq!(row["error_code"], 65535, "{row}");
    assert!(message(&row).contains("user 'no-such-user' does not exist"), "{row}");

    // Managed, it is tried as often as its policy allows, and given up.
    assert_eq!(scene.operate(3).await["error_code"], 0);
    scene.event("cancel_restart").await;
    assert_eq!(scene.events("restart_failed").await.len(), 2);
    assert_eq!(scene.subject.starts(), 0);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn c7_an_account_without_a_login_shell_runs_services_as_any_other() {
    let scene = Scene::new("service", |subject, spec| {
        fs::set_permissions(&subject.dir, fs::Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(subject.dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        spec["identity"]["user"] = json!("nobody");
    })
    .await;

    let row = scene.operate(0).await;

    assert_eq!(row["error_code"], 0, "{row}");
    let pid = scene.subject.pid().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let owner = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    assert!(!owner.contains("\t0"), "{owner}");
    scene.zero_list(1).await;
}

#[tokio::test]
async fn c8_a_setup_path_that_cannot_be_entered_is_named() {
    let scene = Scene::new("homeless", |_, _| {}).await;
    let (missing, file, closed) = (scene.path("missing"), scene.path("file"), scene.path("closed"));
    fs::write(&file, "").unwrap();
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let cases = [
        (missing, "root", "does not exist"),
        (file, "root", "is not a directory"),
        (closed, "nobody", "may not enter"),
    ];

    for (directory, user, words) in cases {
        scene
            .register(&scene.subject, |_, spec| {
                spec["identity"]["setup_path"] = json!(directory);
                spec["identity"]["user"] = json!(user);
            })
            .await;
        let row = scene.operate(0).await;

        assert_eq!(row["error_code"], 65535, "{row}");
        assert!(message(&row).contains("setup_path") && message(&row).contains(words), "{row}");
    }
    scene.zero_list(0).await;
}

#[tokio::test]
async fn c9_commands_that_cannot_be_executed_say_why_and_each_in_its_own_words() {
    let scene = Scene::new("broken", |_, _| {}).await;
    let script = |name: &str, text: &str, mode: u32| {
        fs::write(scene.path(name), text).unwrap();
        fs::set_permissions(scene.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    script("closed.sh", "#!/bin/sh\n", 0o644);
    script("lost.sh", "#!/no/such/interpreter\n", 0o755);
    fs::copy("/bin/sleep", scene.path("busy")).unwrap();
    let _writer = fs::OpenOptions::new().write(true).open(scene.path("busy")).unwrap();
    script("garbage", "\u{7f}ELF and nothing else\n", 0o755);
    let cases = ["./absent.sh", "./closed.sh", "./lost.sh", "./busy 100000", "./garbage", "exit 7"];
    let mut messages = Vec::new();

    for line in cases {
        scene.register(&scene.subject, |_, spec| spec["control"]["start_cmd"] = json!(line)).await;
        let row = scene.operate(0).await;

        assert_eq!(row["error_code"], 65535, "{line}: {row}");
        messages.push(message(&row).to_owned());
    }
    let words = ["absent.sh: not found", "Permission denied", "lost.sh", "Text file busy", "garbage", "exit code 7"];
    for (message, words) in messages.iter().zip(words) {
        assert!(message.contains(words), "{words}: {messages:#?}");
    }
    assert_eq!(scene.status().await["isAuto"], false);
    scene.zero_list(0).await;
}

fn limit(pid: u32, resource: &str, soft: &str) {
    let set = Command::new("prlimit").args([&format!("--pid={pid}"), &format!("--{resource}={soft}:")]).status();
    assert!(set.unwrap().success());
}

#[tokio::test]
async fn c10_without_descriptors_or_processes_starts_are_tried_again_and_the_agent_lives() {
    let scene = Scene::running("starved", |subject, spec| {
        fs::set_permissions(&subject.dir, fs::Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(subject.dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        spec["identity"]["user"] = json!("nobody");
        spec["monitor_policy"]["start_retries"] = json!(60);
    })
    .await;
    let agent = scene.agent.program.pid();

    // Whatever fails for lack of them is reported and retried.
    let cases = [
        ("nofile", "3", ["Too many open files", "no more file descriptors"]),
        ("nproc", "0", ["no more processes", "Cannot fork"]),
    ];
    for (resource, low, words) in cases {
        let pid = scene.until_pid().await;
        limit(agent, resource, low);
        scene.subject.kill(pid);
        until("the lack is said", || words.iter().any(|words| scene.agent.program.log().contains(words))).await;
        limit(agent, resource, "10000");
        scene.until_other_than(pid).await;
    }
    assert_eq!(scene.agent.program.pid(), agent);
    assert_eq!(scene.status().await["isAuto"], true);
    scene.zero_list(1).await;
}

#[tokio::test]
async fn c12_a_line_reaches_the_shell_as_it_is_and_nothing_else_does() {
    let odd = "odd $(touch pwned) `touch pwned`; 'quoted' \"ü\"";
    let scene = Scene::new("quoted", |subject, spec| {
        let home = subject.dir.join(odd);
        fs::create_dir(&home).unwrap();
        // Nothing from the API except the line itself ever becomes part of a shell line.
        spec["identity"]["setup_path"] = json!(home);
        spec["identity"]["log_path"] = json!("/$(touch pwned)");
        spec["identity"]["index_key"] = json!("; touch pwned");
        let padding = "x".repeat(100_000);
        spec["control"]["reload_cmd"] =
            json!(format!(": '{padding}'; echo \"a  b\" 'c;$(d)' $((1+1)) $(echo sub) ünïcödé; pwd"));
        spec["control"]["start_cmd"] = json!("../quoted 100000 > /dev/null 2>&1 & echo $! > ../quoted.pid");
    })
    .await;
    assert_eq!(scene.operate(0).await["error_code"], 0);

    let row = scene.operate(8).await;

    assert_eq!(row["error_code"], 0, "{row}");
    assert!(printed(&row).starts_with("a  b c;$(d) 2 sub ünïcödé\n"), "{row}");
    assert!(printed(&row).contains(odd), "{row}");
    let strange = Subject::new(scene.fleet.dir(), "$(touch pwned) ; touch pwned").unwrap();
    scene
        .register(&strange, |_, spec| {
            spec["control"]["start_cmd"] = json!("echo hello; exit 3");
        })
        .await;
    assert_eq!(scene.operate_on(&strange, 0).await["error_code"], 65535);
    let found = Command::new("find").arg(scene.fleet.dir()).args(["-name", "pwned"]).output().unwrap();
    assert!(found.stdout.is_empty(), "{found:?}");
    scene.zero_list(1).await;
}

#[tokio::test]
async fn c13_operations_that_find_nothing_to_do_have_a_defined_result() {
    let scene = Scene::new("idle", |_, _| {}).await;

    let codes = [(8, 829), (1, 829), (9, 829), (7, 0), (0, 828), (8, 0), (9, 0), (9, 829), (8, 829)];
    for (step, (op_type, code)) in codes.into_iter().enumerate() {
        let row = scene.operate(op_type).await;
        assert_eq!(row["error_code"], code, "step {step}: {row}");
    }

    assert_eq!(scene.subject.starts(), 1);
    assert_eq!(scene.status().await["isAuto"], false);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn c14_a_restart_without_a_command_is_a_stop_and_a_start() {
    let scene = Scene::running("restarts", |_, spec| spec["control"]["restart_cmd"] = json!("")).await;
    let before = scene.subject.pid().unwrap();

    let row = scene.operate(7).await;

    assert_eq!(row["error_code"], 0, "{row}");
    assert_ne!(scene.subject.pid(), Some(before));
    assert_eq!(fs::read_to_string(scene.path("commands.log")).unwrap(), "start\nstop\nstart\n");
    assert_eq!(scene.status().await["isAuto"], true);
    scene.zero_list(1).await;
}

#[tokio::test]
async fn c15_of_fifty_operations_at_once_each_ends_and_the_last_one_wins() {
    for (last, copies) in [(0, 1), (1, 0)] {
        let scene = Scene::new("crowded", |_, _| {}).await;
        let mut tasks = Vec::new();

        for round in 0..50 {
            let op_type = if round == 49 { last } else { [0, 1, 7, 9][round % 4] };
            tasks.push(scene.submit(op_type).await);
            assert!(scene.subject.copies().len() <= 1);
        }
        for task in &tasks {
            let row = scene.row_of(task).await;
            assert!([0, 828, 829].contains(&row["error_code"].as_i64().unwrap()), "{row}");
            assert!(scene.subject.copies().len() <= 1);
        }

        assert_eq!(scene.subject.copies().len(), copies);
        assert_eq!(scene.status().await["isAuto"], last == 0);
        scene.zero_list(copies).await;
    }
}

#[tokio::test]
async fn c1_a_process_that_does_not_care_for_the_request_either_fails_the_stop() {
    let scene = Scene::running("stubborn", |subject, spec| {
        spec["control"]["start_cmd"] = perl(subject, "$SIG{TERM} = q(IGNORE); sleep 1000 while 1");
        spec["control"]["stop_cmd"] = json!("sleep 1000");
        spec["monitor_policy"]["op_timeout"] = json!(1);
        spec["monitor_policy"]["stop_check_secs"] = json!(1);
    })
    .await;

    let row = scene.operate(1).await;

    assert_eq!(row["error_code"], 836, "{row}");
    assert!(message(&row).starts_with("stop"), "{row}");
    assert_eq!(scene.status().await["isAuto"], true);
    assert_eq!(scene.operate(9).await["error_code"], 0);
    scene.zero_list(0).await;
}
