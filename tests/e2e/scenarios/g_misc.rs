//! G. Health, configuration and the rest.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use proctor_testkit::{Fleet, Program, Subject, eventually};
use serde_json::{Value, json};

use super::d_restarts::storm;
use super::zero::{Bystander, no_zombies};
use super::{IP, Scene, until};
use crate::{content, hosts, operate, row};

/// A health command that does what the file `mode` says, every second.
fn examined(_: &Subject, spec: &mut Value) {
    spec["control"]["health_cmd"] = json!(
        "echo + >> checks; case $(cat mode 2> /dev/null) in hang) sleep 1000;; signal) kill -9 $$;; \
         flap) test $(( $(grep -c . checks) % 2 )) = 0;; \
         flood) echo fever; head -c 20000000 /dev/zero; exit 1;; sick) exit 1;; esac"
    );
    spec["monitor_policy"]["health_check"] =
        json!({"interval_secs": 1, "timeout_secs": 1, "failures": 2, "grace_secs": 0});
    spec["monitor_policy"]["start_retries"] = json!(20);
}

#[tokio::test]
async fn g1_a_health_command_that_hangs_floods_or_dies_is_a_failure_and_one_that_flaps_is_not() {
    let scene = Scene::running("examined", examined).await;
    let checks = || fs::read_to_string(scene.path("checks")).unwrap_or_default().lines().count();
    let mut pid = scene.subject.pid().unwrap();
    let mode = |text: &str| fs::write(scene.path("mode"), text).unwrap();

    mode("flap");
    let begun = checks();
    until("it was asked a few times", || checks() >= begun + 5).await;
    assert_eq!(scene.subject.pid(), Some(pid));
    assert!(scene.events("health_changed").await.is_empty());

    for (how, words) in [("hang", "timed out"), ("flood", "fever"), ("signal", "signal 9")] {
        mode(how);
        let next = scene.until_other_than(pid).await;
        mode("well");
        eventually("the event says why", || async {
            let told = scene.events("health_changed").await;
            told.iter().any(|event| event.to_string().contains(words)).then_some(())
        })
        .await;
        eventually("it is healthy", || async { (scene.status().await["health"] == "healthy").then_some(()) }).await;
        pid = next;
    }
    assert_eq!(scene.subject.starts(), 4);
    scene.zero_list(1).await;
}

#[tokio::test]
async fn g2_failures_during_the_grace_after_a_start_are_not_even_asked_for() {
    let scene = Scene::running("young", |subject, spec| {
        examined(subject, spec);
        spec["control"]["health_cmd"] = json!("echo + >> checks; exit 1");
        spec["monitor_policy"]["health_check"] =
            json!({"interval_secs": 1, "timeout_secs": 1, "failures": 1, "grace_secs": 3});
    })
    .await;
    let pid = scene.subject.pid().unwrap();

    eventually("it is older than two seconds", || async {
        let seen = scene.status().await;
        (seen["elapsedTime"].as_u64()? >= 2).then_some(())
    })
    .await;

    assert!(!scene.path("checks").exists() || scene.subject.pid() != Some(pid), "asked during the grace");
    let next = scene.until_other_than(pid).await;
    assert_ne!(next, pid, "after the grace it counts");
    scene.zero_list(1).await;
}

#[tokio::test]
async fn g3_restarts_for_illness_stay_inside_the_retry_limits() {
    let scene = Scene::new("incurable", |subject, spec| {
        examined(subject, spec);
        spec["control"]["health_cmd"] = json!("exit 1");
        spec["control"]["start_cmd"] = json!(format!("date +%s%N >> times; {}", subject.start_cmd()));
        spec["monitor_policy"]["start_retries"] = json!(3);
        spec["monitor_policy"]["start_interval"] = json!(4);
    })
    .await;
    assert_eq!(scene.operate(0).await["error_code"], 0);

    scene.event("cancel_restart").await;

    scene.until_released().await;
    assert_eq!(scene.subject.starts(), 4, "one start and three retries");
    // The first retry is immediate; an unhealthy process takes two seconds to show, so the interval delays the others.
    // A command notes its time when it gets to run, which may be a moment after its launch.
    let times = fs::read_to_string(scene.path("times")).unwrap();
    let times: Vec<u64> = times.lines().map(|line| line.parse().unwrap()).collect();
    let waits: Vec<Duration> = times.windows(2).map(|pair| Duration::from_nanos(pair[1] - pair[0])).collect();
    assert!(waits[1..].iter().all(|wait| *wait >= Duration::from_secs(3)), "{waits:?}");
    assert_eq!(scene.events("cancel_restart").await.len(), 1);
    scene.zero_list(0).await;
}

#[tokio::test]
async fn g4_a_config_file_that_differs_is_missing_or_huge_is_told_and_restarts_nothing() {
    let scene = Scene::new("configured", |subject, spec| {
        let file = |name: &str| subject.dir.join(name);
        fs::write(file("good.conf"), "hello\n").unwrap();
        fs::write(file("bad.conf"), "changed\n").unwrap();
        fs::File::create(file("huge.conf")).unwrap().set_len(1 << 40).unwrap();
        let md5 = "b1946ac92492d2347c6235b4d2611184"; // of hello
        let entry = |name: &str| json!({"path": file(name), "md5": md5});
        spec["configmap"] = json!([entry("good.conf"), entry("bad.conf"), entry("absent.conf"), entry("huge.conf")]);
    })
    .await;
    assert_eq!(scene.operate(0).await["error_code"], 0);
    let pid = scene.subject.pid().unwrap();

    for name in ["bad.conf", "absent.conf", "huge.conf"] {
        eventually("the event is there", || async {
            scene.events("config_changed").await.iter().any(|event| event.to_string().contains(name)).then_some(())
        })
        .await;
    }
    let told = serde_json::to_string(&scene.events("config_changed").await).unwrap();
    assert!(!told.contains("good.conf"), "{told}");
    assert_eq!(scene.subject.pid(), Some(pid), "nothing is restarted");
    scene.zero_list(1).await;
}

#[tokio::test]
async fn g5_a_version_is_a_short_line_whatever_its_command_prints() {
    let scene = Scene::new("versioned", |_, _| {}).await;
    let cases = [("head -c 10000000 /dev/zero | tr '\\0' v", 256), ("true", 0), ("echo 1.2.3", 5), ("sleep 1000", 0)];
    for (line, length) in cases {
        scene.register(&scene.subject, |_, spec| spec["control"]["version_cmd"] = json!(line)).await;
        assert_eq!(scene.operate(7).await["error_code"], 0);

        let version = scene.status().await["version"].as_str().unwrap().to_owned();

        assert_eq!(version.chars().count(), length, "{line}: {version}");
    }
    scene.zero_list(1).await;
}

#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn g7_without_inotify_late_pid_files_are_found_and_captures_are_cut() {
    let mut scene = Scene::new("watched", |_, spec| {
        // A daemon keeps writing to the output of the start command that it came from.
        let daemon = "(head -c 3000000 /dev/zero; touch written; exec sleep 1000) &";
        let late = "(./watched 100000 & pid=$!; sleep 1; echo $pid > watched.pid) > /dev/null 2>&1 &";
        spec["control"]["start_cmd"] = json!(format!("{daemon} {late}"));
        spec["monitor_policy"]["start_check_secs"] = json!(3);
    })
    .await;
    scene.start_agent_by(&without_call(INOTIFY_INIT1));
    scene.until_back().await;

    assert_eq!(scene.operate(0).await["error_code"], 0);

    until("the daemon has written", || scene.path("written").exists()).await;
    let captures = scene.agent.state_dir().join("output");
    let size = || fs::read_dir(&captures).unwrap().flatten().map(|entry| entry.metadata().map_or(0, |it| it.len()));
    until("its capture is cut", || size().sum::<u64>() <= 1024 * 1024).await;
    assert_eq!(scene.operate(9).await["error_code"], 0);
    scene.zero_list(0).await;
}

fn resident_megabytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn g8_thousands_of_registered_processes_are_taken_up_again_by_a_new_agent() {
    const COUNT: usize = 10_000;
    let mut scene = Scene::running("one", |_, _| {}).await;
    let pid = scene.subject.pid().unwrap();
    // Managed and not running, so that nothing is started: a run-once process waits for its start.
    let item = |index: usize| {
        let mut spec = scene.subject.spec();
        spec["identity"]["pid_path"] = json!(format!("{}/{index}.pid", scene.subject.dir.display()));
        spec["monitor_policy"]["auto_type"] = json!(2);
        json!({"meta": {"namespace": "many", "name": format!("p{index}")}, "op_type": 3, "hosts": hosts(&[IP]), "spec": spec})
    };
    for batch in (0..COUNT).collect::<Vec<_>>().chunks(500) {
        let body = json!({"proc_operate_req": batch.iter().map(|index| item(*index)).collect::<Vec<_>>()});
        let rows = scene.fleet.operate("operate_proc_multi", &body).await.unwrap();
        assert_eq!(rows.as_object().unwrap().values().find(|row| row["error_code"] != 0), None);
    }

    scene.kill_agent().await;
    scene.restart_agent().await;

    let seen = scene.status().await;
    assert_eq!((&seen["pid"], &seen["isAuto"]), (&json!(pid), &json!(true)));
    let page = json!({"meta": {"namespace": "many"}, "page": {"start": 0, "limit": 1}});
    assert_eq!(scene.fleet.gse("sync_proc_status", &page).await.unwrap()["data"]["count"], COUNT);
    let megabytes = resident_megabytes(scene.agent.program.pid());
    assert!(megabytes < 200, "{megabytes} MB, not optimised");
    let before = scene.subject.pid().unwrap();
    scene.subject.kill(before);
    scene.until_other_than(before).await;
    scene.zero_list(1).await;
}

#[tokio::test]
async fn g8_a_thousand_running_processes_are_adopted_by_a_new_agent() {
    const COUNT: usize = 1000;
    let mut scene = Scene::new("stormy", |_, _| {}).await;
    let managed = scene.fleet.operate("operate_proc_multi", &storm(&scene.subject, COUNT, 3)).await.unwrap();
    assert_eq!(managed.as_object().unwrap().values().find(|row| row["error_code"] != 0), None);
    until("all of them run", || scene.subject.copies().len() == COUNT).await;
    let mut before = scene.subject.copies();
    before.sort_unstable();

    scene.kill_agent().await;
    scene.restart_agent().await;

    let status = scene.fleet.operate("operate_proc_multi", &storm(&scene.subject, COUNT, 2)).await.unwrap();
    let mut adopted: Vec<i32> = (0..COUNT)
        .map(|index| {
            let instance = content(row(&status, IP, &format!("stormy-{index}")))["process"][0]["instance"][0].clone();
            assert_eq!(instance["isAuto"], true, "{index}: {instance}");
            i32::try_from(instance["pid"].as_i64().unwrap()).unwrap()
        })
        .collect();
    adopted.sort_unstable();
    assert_eq!(adopted, before, "every life is known by its pid");
    let mut copies = scene.subject.copies();
    copies.sort_unstable();
    assert_eq!(copies, before, "nobody was started again");
    scene.fleet.operate("operate_proc_multi", &storm(&scene.subject, COUNT, 4)).await.unwrap();
    scene.zero_list(COUNT).await;
}

#[tokio::test]
async fn g9_garbage_on_the_link_disturbs_nobody() {
    let scene = Scene::running("undisturbed", |_, _| {}).await;
    let pid = scene.subject.pid().unwrap();
    let link = ("127.0.0.1", scene.fleet.server.link);
    let garbage: [Vec<u8>; 4] =
        [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 100_000], vec![0xff; 100_000], b"\x16\x03\x01\xff\xff".to_vec()];

    for bytes in &garbage {
        let mut stream = TcpStream::connect(link).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let _idle: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(link).unwrap()).collect();

    assert_eq!(scene.status().await["pid"], pid);
    assert_eq!(scene.operate(7).await["error_code"], 0);
    assert_eq!(scene.subject.starts(), 2);
    scene.zero_list(1).await;
}

#[tokio::test]
async fn g9_operations_that_are_delivered_again_take_effect_once() {
    let mut scene = Scene::new("repeated", |subject, spec| {
        spec["control"]["start_cmd"] = json!(format!("touch begun; sleep 1; {}", subject.start_cmd()));
    })
    .await;
    let task = scene.submit(0).await;
    until("the start command runs", || scene.path("begun").exists()).await;

    // Every new session delivers everything without an outcome.
    for _ in 0..3 {
        scene.fleet.restart_server().await.unwrap();
        scene.until_back().await;
    }

    let row = scene.row_of(&task).await;
    assert_eq!(row["error_code"], 0, "{row}");
    assert_eq!(scene.subject.starts(), 1);
    scene.zero_list(1).await;
}

/// A directory that anybody may enter, with a copy of the agent.
fn open_house() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let agent = dir.path().join("proctor-agent");
    fs::copy(proctor_testkit::binary("proctor-agent"), &agent).unwrap();
    let agent = agent.display().to_string();
    (dir, agent)
}

/// Enrols an agent that is started by a shell line; `$@` is its command.
async fn odd_agent(fleet: &Fleet, house: &Path, agent: &str, line: &str) -> Program {
    let data = fleet.dir().join("data").display().to_string();
    let token = proctor_testkit::run_proctor(&["token", "create", "--data-dir", &data]).unwrap();
    let (state, server) = (house.join("state").display().to_string(), format!("127.0.0.1:{}", fleet.server.link));
    let arguments =
        ["-c", line, "sh", agent, "--server", &server, "--state-dir", &state, "--ip", IP, "--token", &token];
    Program::start("/bin/sh", &arguments.map(String::from), &house.join("agent.log")).unwrap()
}

async fn register(fleet: &Fleet, subject: &Subject, user: &str) {
    fs::set_permissions(&subject.dir, fs::Permissions::from_mode(0o777)).unwrap();
    let mut spec = subject.spec();
    spec["identity"]["user"] = json!(user);
    spec["monitor_policy"]["start_check_secs"] = json!(0);
    let body = json!({"meta": subject.meta(), "hosts": hosts(&[IP]), "spec": spec});
    assert_eq!(fleet.gse("register_proc_info", &body).await.unwrap()["code"], 0);
}

/// Start, restart by supervision and stop, as its own user; another user is refused. Then the
/// zero-list.
async fn works_as_nobody(fleet: &Fleet, agent: &Program, house: &Path, name: &str) {
    let bystander = Bystander::start(fleet.dir()).await;
    let (own, other) = (Subject::new(house, name).unwrap(), Subject::new(house, "foreign").unwrap());
    register(fleet, &own, "nobody").await;
    register(fleet, &other, "daemon").await;

    assert_eq!(operate(fleet, &own, 0).await["error_code"], 0);
    let pid = own.pid().unwrap();
    own.kill(pid);
    eventually("it is back", || async { own.pid().filter(|next| *next != pid) }).await;
    let refused = operate(fleet, &other, 0).await;

    assert_eq!(refused["error_code"], 65535, "{refused}");
    assert!(refused["error_msg"].as_str().unwrap().contains("daemon"), "{refused}");
    assert!(other.copies().is_empty());
    assert_eq!(operate(fleet, &own, 1).await["error_code"], 0);
    assert!(own.copies().is_empty());
    no_zombies(agent).await;
    bystander.is_untouched();
}

#[tokio::test]
async fn g11_an_agent_that_is_not_root_runs_processes_of_its_own_user_only() {
    let fleet = Fleet::start().await.unwrap();
    let (house, binary) = open_house();
    let line = "exec setpriv --reuid nobody --regid nogroup --clear-groups \"$@\"";
    let agent = odd_agent(&fleet, house.path(), &binary, line).await;
    fleet.until_online(IP, true).await;

    works_as_nobody(&fleet, &agent, house.path(), "unprivileged").await;
}

#[tokio::test]
async fn g12_an_agent_that_sees_only_its_own_processes_works() {
    let fleet = Fleet::start().await.unwrap();
    let (house, binary) = open_house();
    let nobody = "exec setpriv --reuid nobody --regid nogroup --clear-groups \"$@\"";
    let line = format!("exec unshare -m sh -c 'mount -t proc -o hidepid=2 proc /proc && {nobody}' sh \"$@\"");
    let agent = odd_agent(&fleet, house.path(), &binary, &line).await;
    fleet.until_online(IP, true).await;

    works_as_nobody(&fleet, &agent, house.path(), "hidden").await;
}

/// Perl code that forbids a system call, as seccomp profiles of containers do, and then executes `$@`.
#[cfg(target_arch = "x86_64")]
fn without_call(number: u32) -> String {
    // Load the number; if it is the one, ENOSYS (38), else allow.
    let filter =
        format!("pack(q(SCCL) x 4, 0x20, 0, 0, 0, 0x15, 0, 1, {number}, 0x06, 0, 0, 0x50026, 0x06, 0, 0, 0x7fff0000)");
    let program = format!("$f = {filter}; $p = pack(q(SxxxxxxP), 4, $f)");
    let enter = "syscall(157, 38, 1, 0, 0, 0) == 0 or die; syscall(157, 22, 2, $p, 0, 0) == 0 or die";
    format!("exec perl -e '{program}; {enter}; exec @ARGV' -- \"$@\"")
}

#[cfg(target_arch = "x86_64")]
const PIDFD_OPEN: u32 = 434;
#[cfg(target_arch = "x86_64")]
const CLONE3: u32 = 435;
#[cfg(target_arch = "x86_64")]
const INOTIFY_INIT1: u32 = 294;

#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn g12_without_clone3_commands_are_started_in_the_older_way() {
    let mut scene = Scene::new("forked", |_, _| {}).await;
    scene.start_agent_by(&without_call(CLONE3));
    scene.until_back().await;

    let row = scene.operate(0).await;

    assert_eq!(row["error_code"], 0, "{row}");
    let pid = scene.subject.pid().unwrap();
    scene.subject.kill(pid);
    scene.until_other_than(pid).await;
    assert_eq!(scene.operate(9).await["error_code"], 0);
    scene.zero_list(0).await;
}

#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn g12_without_pidfds_the_agent_refuses_and_says_why() {
    let mut scene = Scene::running("unwatched", |_, _| {}).await;
    let pid = scene.subject.pid().unwrap();

    scene.start_agent_by(&without_call(PIDFD_OPEN));
    let status = eventually("the agent ends", || {
        let ended = scene.agent.program.has_ended();
        async move { ended }
    })
    .await;

    assert!(!status.success());
    assert!(scene.agent.program.log().contains("pidfd"), "{}", scene.agent.program.log());
    assert_eq!(scene.subject.pid(), Some(pid), "what runs goes on");
    scene.restart_agent().await;
    assert_eq!(scene.status().await["pid"], pid);
    scene.zero_list(1).await;
}
