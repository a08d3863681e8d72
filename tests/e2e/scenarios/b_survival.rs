//! B. Survival of the agent.

use std::fs;
use std::path::{Path, PathBuf};

use proctor_testkit::{Fleet, Program, Subject, eventually, skip};
use serde_json::{Value, json};

use super::{IP, Scene, until};
use crate::disk::SmallDisk;

/// A resident process whose restarts are counted over long times.
fn patient(_: &Subject, spec: &mut Value) {
    spec["monitor_policy"]["start_interval"] = json!(1);
    spec["monitor_policy"]["start_retries"] = json!(10);
}

#[tokio::test]
async fn b1_after_a_sigkill_of_the_agent_everything_goes_on_as_it_was() {
    let mut scene = Scene::running("survivor", patient).await;
    // One restart, so that there is something to remember.
    let first = scene.subject.pid().unwrap();
    scene.subject.kill(first);
    let pid = scene.until_other_than(first).await;
    eventually("the restart is counted", || async { (scene.shown().await["restarts"] == 1).then_some(()) }).await;
    let before = scene.status().await;

    for _ in 0..3 {
        scene.kill_agent().await;
        assert_eq!(scene.subject.pid(), Some(pid));
        scene.restart_agent().await;
    }

    let after = scene.status().await;
    assert_eq!((&after["pid"], &after["isAuto"]), (&json!(pid), &json!(true)));
    assert_eq!(after["startTime"], before["startTime"]);
    assert!(after["elapsedTime"].as_u64() >= before["elapsedTime"].as_u64(), "{before} {after}");
    eventually("the server hears of the counter", || async { (scene.shown().await["restarts"] == 1).then_some(()) })
        .await;
    assert_eq!(scene.subject.starts(), 2);
    // And it is watched again.
    scene.subject.kill(pid);
    scene.until_other_than(pid).await;
    scene.zero_list(1).await;
}

#[tokio::test]
async fn b2_a_process_that_died_while_the_agent_was_down_is_restarted_by_its_policy() {
    let mut scene = Scene::running("orphan", patient).await;
    let released = Subject::new(scene.fleet.dir(), "released").unwrap();
    scene.register(&released, patient).await;
    assert_eq!(scene.operate_on(&released, 0).await["error_code"], 0);
    assert_eq!(scene.operate_on(&released, 4).await["error_code"], 0);
    let (pid, other) = (scene.subject.pid().unwrap(), released.pid().unwrap());

    scene.kill_agent().await;
    scene.subject.kill(pid);
    released.kill(other);
    scene.restart_agent().await;

    scene.until_other_than(pid).await;
    assert_eq!(scene.subject.starts(), 2);
    scene.event("exited").await;
    assert!(released.copies().is_empty(), "who is not managed stays dead");
    scene.zero_list(1).await;
}

/// The agent again, on a machine that seems to have rebooted.
fn start_agent_in_another_boot(scene: &mut Scene) {
    let boot = scene.fleet.dir().join("boot_id");
    fs::write(&boot, "11111111-2222-4333-8444-555555555555\n").unwrap();
    let line = format!("mount --bind {} /proc/sys/kernel/random/boot_id && exec \"$@\"", boot.display());
    scene.start_agent_by(&format!("exec unshare -m sh -c '{line}' sh \"$@\""));
}

#[tokio::test]
async fn b4_after_a_reboot_nothing_of_before_is_believed_and_residents_start_once() {
    let mut scene = Scene::running("rebooted", patient).await;
    let once = Subject::new(scene.fleet.dir(), "oneshot").unwrap();
    scene.register(&once, |_, spec| spec["monitor_policy"]["auto_type"] = json!(2)).await;
    assert_eq!(scene.operate_on(&once, 0).await["error_code"], 0);
    scene.kill_agent().await;
    for subject in [&scene.subject, &once] {
        subject.kill(subject.pid().unwrap());
    }
    // After a reboot the earlier pids belong to others.
    scene.write_pid(scene.bystander.pid());

    start_agent_in_another_boot(&mut scene);
    scene.until_back().await;

    let pid = scene.until_pid().await;
    eventually("it is known", || async { (scene.status().await["pid"] == pid).then_some(()) }).await;
    assert_eq!(scene.subject.starts(), 2, "started once");
    assert_eq!(once.starts(), 1, "who runs once has run");
    assert!(scene.status().await["isAuto"] == true);
    scene.zero_list(1).await;
}

/// The agent as its next version: a copy that reports another version everywhere.
fn next_version(old: &Path, new: &Path) -> String {
    const NOW: &str = env!("CARGO_PKG_VERSION");
    let next = NOW.replace(|digit: char| digit.is_ascii_digit(), "9");
    let mut program = fs::read(old).unwrap();
    let places: Vec<usize> =
        program.windows(NOW.len()).enumerate().filter(|(_, text)| *text == NOW.as_bytes()).map(|(at, _)| at).collect();
    for at in places {
        program[at..at + NOW.len()].copy_from_slice(next.as_bytes());
    }
    fs::write(new, program).unwrap();
    fs::set_permissions(new, fs::metadata(old).unwrap().permissions()).unwrap();
    let said = std::process::Command::new(new).arg("--version").output().unwrap().stdout;
    assert_eq!(String::from_utf8(said).unwrap().trim(), format!("proctor-agent {next}"));
    next
}

/// The ledger as an agent of the first schema would have left it.
const OF_THE_FIRST: &str = "
    UPDATE process SET record = json_remove(record, '$.since', '$.remains', '$.elder', '$.unwanted', '$.running',
        '$.instance', '$.evictions', '$.not_before', '$.planned_at', '$.planned');
    DROP TABLE estate;
    DROP TABLE event;
    DROP TABLE held;
    PRAGMA user_version = 1;";
/// As a later agent would leave it: with tables, columns and fields unknown to this one.
const OF_A_LATER: &str = "
    ALTER TABLE process ADD COLUMN novelty TEXT;
    CREATE TABLE novelty (name TEXT PRIMARY KEY) STRICT;
    UPDATE process SET record = json_set(record, '$.novelty', 'x', '$.spec.novelty', 1);
    PRAGMA user_version = 99;";

fn rewrite_ledger(scene: &Scene, statements: &str) {
    let ledger = rusqlite::Connection::open(scene.agent.state_dir().join("ledger.db")).unwrap();
    ledger.execute_batch(statements).unwrap();
}

#[tokio::test]
async fn b6_an_upgrade_in_place_and_back_touches_no_process_and_keeps_the_state() {
    let mut scene = Scene::running("upgraded", patient).await;
    let pid = scene.subject.pid().unwrap();
    let old = proctor_testkit::binary("proctor-agent");
    let new = scene.fleet.dir().join("proctor-agent-next");
    let (now, next) = (env!("CARGO_PKG_VERSION").to_owned(), next_version(&old, &new));
    let log = scene.fleet.dir().join(format!("agent-{IP}.log"));

    for (binary, version, ledger) in [(&new, &next, OF_THE_FIRST), (&old, &now, OF_A_LATER), (&new, &next, "")] {
        assert!(scene.agent.program.terminate().unwrap().success(), "a SIGTERM is a clean end");
        rewrite_ledger(&scene, ledger);
        scene.agent.program = Program::start(binary.to_str().unwrap(), &scene.arguments(), &log).unwrap();
        eventually("the server hears of the version", || async {
            let hosts = scene.fleet.get("/api/v1/hosts").await.ok()?;
            let host = &hosts["hosts"][0];
            (host["online"] == true && host["facts"]["agent_version"] == version.as_str()).then_some(())
        })
        .await;

        let seen = scene.status().await;
        assert_eq!((&seen["pid"], &seen["isAuto"]), (&json!(pid), &json!(true)), "version {version}");
    }
    // The next version takes over: it restarts what dies under it.
    scene.subject.kill(pid);
    scene.until_other_than(pid).await;
    assert_eq!(scene.subject.starts(), 2);
    assert!(!scene.agent.state_dir().join("ledger.db.damaged").exists());
    scene.zero_list(1).await;
}

/// A cgroup in the hierarchy by which systemd knows its services, as one of them.
fn service_cgroup() -> Option<PathBuf> {
    let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd"];
    let root = roots.iter().map(Path::new).find(|root| root.join("cgroup.procs").exists())?;
    let directory = root.join(format!("proctor-e2e-{}", std::process::id()));
    fs::create_dir(&directory).ok()?;
    Some(directory)
}

/// Everything in a cgroup and below it.
fn members(directory: &Path) -> Vec<i32> {
    let mut found = super::numbers(&directory.join("cgroup.procs"));
    let below = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    found.extend(below.filter(|path| path.is_dir()).flat_map(|path| members(&path)));
    found
}

#[tokio::test]
async fn b7_the_end_of_the_agents_own_cgroup_spares_its_processes() {
    let mut scene = Scene::new("grouped", patient).await;
    let Some(service) = service_cgroup() else { return skip("no cgroup can be made beside the agent's") };
    scene.start_agent_by(&format!("echo $$ > {}/cgroup.procs; exec \"$@\"", service.display()));
    scene.until_back().await;
    assert_eq!(scene.operate(0).await["error_code"], 0);
    let pid = scene.subject.pid().unwrap();

    // What KillMode=control-group does.
    let condemned = members(&service);
    assert!(condemned.contains(&i32::try_from(scene.agent.program.pid()).unwrap()), "{condemned:?}");
    assert!(!condemned.contains(&pid), "the process is in a cgroup of its own");
    for member in condemned {
        scene.subject.kill(member);
    }
    scene.kill_agent().await;
    assert_eq!(scene.subject.pid(), Some(pid));
    scene.restart_agent().await;

    assert_eq!(scene.status().await["pid"], pid);
    assert_eq!(scene.subject.starts(), 1);
    scene.zero_list(1).await;
    until("the cgroup of the service is empty", || fs::remove_dir(&service).is_ok()).await;
}

#[tokio::test]
async fn b8_a_ledger_that_is_damaged_torn_or_empty_is_survived() {
    let mut scene = Scene::running("remembered", patient).await;
    let pid = scene.subject.pid().unwrap();
    let ledger = scene.agent.state_dir().join("ledger.db");
    let part = |suffix: &str| PathBuf::from(format!("{}{suffix}", ledger.display()));

    for damage in ["garbage", "torn", "empty"] {
        // What the ledger loses the server must know.
        eventually("the server knows that it is managed", || async {
            (scene.shown().await["managed"] == true).then_some(())
        })
        .await;
        scene.kill_agent().await;
        let _ = fs::remove_file(part("-shm"));
        let (mut file, mut log) = (fs::read(&ledger).unwrap(), fs::read(part("-wal")).unwrap());
        match damage {
            "garbage" => (file, log) = (b"no database at all ".repeat(1000), Vec::new()),
            "torn" => log.truncate(log.len() / 2),
            _ => (file, log) = (Vec::new(), Vec::new()),
        }
        fs::write(&ledger, file).unwrap();
        fs::write(part("-wal"), log).unwrap();
        scene.restart_agent().await;

        eventually("it is known again", || async {
            let seen = scene.status().await;
            (seen["pid"] == pid && seen["isAuto"] == true).then_some(())
        })
        .await;
        assert_eq!(scene.subject.starts(), 1, "{damage}");
        if damage == "garbage" {
            assert!(part(".damaged").exists(), "it is put aside");
            assert!(scene.agent.program.log().contains("moved aside"), "and that is said");
        }
    }
    scene.subject.kill(pid);
    scene.until_other_than(pid).await;
    scene.zero_list(1).await;
}

#[tokio::test]
async fn b10_of_two_agents_on_one_state_directory_the_second_refuses() {
    let mut scene = Scene::running("alone", patient).await;
    let pid = scene.subject.pid().unwrap();
    let log = scene.fleet.dir().join("second.log");
    let mut second = Program::start("proctor-agent", &scene.arguments(), &log).unwrap();

    let status = eventually("the second agent ends", || {
        let ended = second.has_ended();
        async move { ended }
    })
    .await;

    assert!(!status.success());
    assert!(second.log().contains("another agent"), "{}", second.log());
    assert_eq!(scene.status().await["pid"], pid);
    // The lock is the kernel's: whatever the file says, it is free when its holder is dead.
    scene.kill_agent().await;
    fs::write(scene.agent.state_dir().join("lock"), "1\n").unwrap();
    scene.restart_agent().await;
    assert_eq!(scene.status().await["pid"], pid);
    scene.zero_list(1).await;
}

#[tokio::test]
async fn b11_without_the_control_plane_supervision_schedules_and_limits_go_on() {
    let mut scene = Scene::running("autonomous", patient).await;
    let cyclic = Subject::new(scene.fleet.dir(), "cyclic").unwrap();
    let info = json!({
        "setup_path": cyclic.dir, "proc_name": "cyclic", "pid_path": cyclic.pid_file(), "account": "root",
        "type": 0, "cycle_time": 1, "start_cmd": "echo ran >> runs.log", "value_key": "cyclic",
        "ip_list": [{"bk_cloud_id": 0, "ip": IP}]
    });
    let body = json!({"bk_biz_id": 1, "op_type": 3, "process_infos": [info]});
    assert_eq!(scene.fleet.job("operate_process", &body).await.unwrap()["code"], 0);
    let greedy = Subject::new(scene.fleet.dir(), "greedy").unwrap();
    let bytes = super::f_limits::memory_bytes(0.6);
    let hog = format!("sleep 1 until -e q(grow); $n = {bytes}; $x = q(a) x $n; sleep 100000");
    scene
        .register(&greedy, |greedy, spec| {
            spec["control"]["start_cmd"] = super::perl(greedy, &hog);
            spec["resource"]["mem"] = json!(0.3);
        })
        .await;
    assert_eq!(scene.operate_on(&greedy, 0).await["error_code"], 0);
    let runs = || fs::read_to_string(cyclic.dir.join("runs.log")).unwrap_or_default().lines().count();
    until("the schedule has begun", || runs() > 0).await;
    let pid = scene.subject.pid().unwrap();

    scene.fleet.server.program.kill();
    let ran = runs();
    scene.subject.kill(pid);
    let next = scene.until_other_than(pid).await;
    fs::write(greedy.dir.join("grow"), "").unwrap();
    until("the one over its limit is gone", || greedy.copies().is_empty()).await;
    until("the schedule goes on", || runs() >= ran + 2).await;
    scene.fleet.restart_server().await.unwrap();
    scene.until_back().await;

    assert_eq!(scene.status().await["pid"], next);
    assert!(scene.event("exited").await.to_string().contains(&format!("({pid})")));
    scene.event("restart_succeeded").await;
    let path = "/api/v1/events?namespace=e2e&name=greedy&type=limit_exceeded";
    eventually("the excess is told", || async {
        scene.fleet.get(path).await.ok()?["events"].as_array()?.first().cloned()
    })
    .await;
    scene.zero_list(1).await;
}

#[tokio::test]
async fn b11_an_outcome_that_could_not_be_delivered_waits_for_the_control_plane() {
    let mut scene = Scene::new("awaited", |subject, spec| {
        let wait = "until [ -e go ] || [ ! -d $PWD ]; do sleep 0.05; done";
        spec["control"]["start_cmd"] = json!(format!("touch begun; {wait}; {}", subject.start_cmd()));
    })
    .await;
    let task = scene.submit(0).await;
    until("the start command runs", || scene.path("begun").exists()).await;

    scene.fleet.server.program.kill();
    fs::write(scene.path("go"), "").unwrap();
    scene.until_pid().await;
    scene.restart_agent_without_server();
    scene.fleet.restart_server().await.unwrap();
    scene.until_back().await;

    let row = scene.row_of(&task).await;
    assert_eq!(row["error_code"], 0, "{row}");
    assert_eq!(scene.subject.starts(), 1);
    scene.zero_list(1).await;
}

#[tokio::test]
async fn b12_what_was_stopped_or_released_on_a_full_disk_stays_so_when_the_agent_restarts() {
    let fleet = Fleet::start().await.unwrap();
    let disk = SmallDisk::mount(fleet.dir().join(format!("agent-{IP}")));
    let Some(disk) = disk else { return skip("tmpfs cannot be mounted") };
    let agent = fleet.agent(IP).await.unwrap();
    let mut scene = Scene::with(fleet, agent, "stopped", patient).await;
    let [killed, released, kept] =
        ["killed", "released", "kept"].map(|name| Subject::new(scene.fleet.dir(), name).unwrap());
    for subject in [&killed, &released, &kept] {
        scene.register(subject, patient).await;
        assert_eq!(scene.operate_on(subject, 0).await["error_code"], 0);
    }
    assert_eq!(scene.operate(0).await["error_code"], 0);

    disk.fill();
    assert_eq!(scene.operate(1).await["error_code"], 0);
    assert_eq!(scene.operate_on(&killed, 9).await["error_code"], 0);
    assert_eq!(scene.operate_on(&released, 4).await["error_code"], 0);
    assert_eq!(scene.operate(0).await["error_code"], 65535, "it cannot be remembered");
    for round in 0..2 {
        scene.kill_agent().await;
        for subject in [&released, &kept] {
            subject.pid().into_iter().for_each(|pid| subject.kill(pid));
        }
        disk.fill(); // what the end of the agent has freed
        scene.restart_agent().await;

        until("supervision goes on", || kept.copies().len() == 1).await;
        let starts = [&scene.subject, &killed, &released].map(Subject::starts);
        assert_eq!(starts, [1, 1, 1], "round {round}");
        assert_eq!(scene.status().await["isAuto"], false, "round {round}");
    }

    disk.free();
    eventually("operations are taken again", || async { (scene.operate(0).await["error_code"] == 0).then_some(()) })
        .await;
    scene.kill_agent().await;
    scene.restart_agent().await;
    assert_eq!(scene.status().await["isAuto"], true, "the ledger has it");
    assert_eq!([&killed, &released].map(Subject::starts), [1, 1]);
    assert_eq!(scene.operate_on(&kept, 9).await["error_code"], 0);
    scene.zero_list(1).await;
}

#[tokio::test]
async fn b12_a_relaunch_under_way_on_a_full_disk_is_not_repeated_when_the_agent_restarts() {
    let fleet = Fleet::start().await.unwrap();
    let disk = SmallDisk::mount(fleet.dir().join(format!("agent-{IP}")));
    let Some(disk) = disk else { return skip("tmpfs cannot be mounted") };
    let agent = fleet.agent(IP).await.unwrap();
    let mut scene = Scene::with(fleet, agent, "relaunched", |subject, spec| {
        patient(subject, spec);
        let slow = "if [ -e slow ]; then touch begun; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.05; done; fi";
        spec["control"]["start_cmd"] = json!(format!("echo >> ran; {slow}; {}", subject.start_cmd()));
    })
    .await;
    assert_eq!(scene.operate(0).await["error_code"], 0);
    let first = scene.subject.pid().unwrap();

    fs::write(scene.path("slow"), "").unwrap();
    disk.fill();
    scene.subject.kill(first);
    until("the start command runs", || scene.path("begun").exists()).await;
    for _ in 0..2 {
        scene.kill_agent().await;
        disk.fill(); // what the end of the agent has freed
        scene.restart_agent().await;
    }
    fs::write(scene.path("go"), "").unwrap();
    let pid = scene.until_other_than(first).await;
    eventually("it is adopted", || async { (scene.status().await["pid"] == pid).then_some(()) }).await;

    let ran = fs::read_to_string(scene.path("ran")).unwrap().lines().count();
    assert_eq!((ran, scene.subject.copies().len()), (2, 1));
    disk.free();
    scene.zero_list(1).await;
}

/// Stops one thread of a program, as a write to a hanging disk would; dropping this resumes it.
struct HeldThread(std::process::Child);

impl HeldThread {
    /// None: tracing is not permitted here.
    async fn of(pid: u32, name: &str) -> Option<Self> {
        let is_it = |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name);
        let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|entry| entry.path());
        let task = tasks.find(is_it).unwrap_or_else(|| panic!("the agent has no thread {name}"));
        let thread = task.file_name().unwrap().to_str().unwrap();
        let ptrace = if cfg!(target_arch = "x86_64") { 101 } else { 117 };
        // PTRACE_SEIZE and PTRACE_INTERRUPT; the end of the tracer ends the hold. It waits for the thread with __WALL,
        // or nobody could wait for the end of the agent.
        let code = format!(
            "for my $request (0x4206, 0x4207) {{ syscall({ptrace}, $request, {thread}, 0, 0) == 0 or exit 1 }} \
             1 while waitpid(-1, 0x40000000) > 0"
        );
        let mut held = Self(std::process::Command::new("perl").args(["-e", &code]).spawn().unwrap());
        let is_held = eventually("the thread is held", || {
            let stat = fs::read_to_string(task.join("stat")).unwrap();
            let is_held = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('t'));
            let has_failed = held.0.try_wait().unwrap().is_some();
            async move { (is_held || has_failed).then_some(is_held) }
        })
        .await;
        is_held.then_some(held)
    }
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn b18_an_agent_whose_driver_hangs_goes_offline_and_ends_and_the_next_one_resumes() {
    let mut scene = Scene::running("driven", patient).await;
    let pid = scene.subject.pid().unwrap();
    scene.until_known(pid).await;

    let Some(held) = HeldThread::of(scene.agent.program.pid(), "driver").await else {
        return skip("a thread of another program cannot be held");
    };
    scene.fleet.until_online(IP, false).await;
    let agent = &mut scene.agent.program;
    let status = eventually("the agent ends", || {
        let ended = agent.has_ended();
        async move { ended }
    })
    .await;
    drop(held);

    assert!(status.code().is_some_and(|code| code != 0), "it says that it has failed: {status}");
    assert!(scene.agent.program.log().contains("driver"), "and why");
    assert_eq!(scene.subject.pid(), Some(pid), "the process is not touched");
    scene.restart_agent().await;
    assert_eq!(scene.status().await["pid"], pid);
    scene.subject.kill(pid);
    let next = scene.until_other_than(pid).await;
    scene.until_known(next).await;
    assert_eq!(scene.subject.starts(), 2);
    scene.zero_list(1).await;
}
