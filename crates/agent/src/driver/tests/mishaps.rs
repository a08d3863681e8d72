//! Late answers, failed writes, neighbouring processes, and concurrent requests.

use super::*;

/// Sleeps as `p`; each start adds a line to `pids`.
pub(super) fn sleeper(stage: &Stage, change: impl FnOnce(&mut Spec)) -> Arc<Spec> {
    stage.spec(|spec| {
        spec.identity.proc_name = "sleep".parse().unwrap();
        spec.control.start = Some("sleep 1000 > /dev/null 2>&1 & echo $! > p.pid; cat p.pid >> pids".parse().unwrap());
        spec.policy.start_check = 0.try_into().unwrap();
        change(spec);
    })
}

/// Two instances; each start adds a line to `pids`.
fn two_sleepers(stage: &Stage, change: impl FnOnce(&mut Spec)) -> Arc<Spec> {
    let line = "sleep 1000 > /dev/null 2>&1 & echo $! > p-$PROCTOR_INSTANCE.pid; cat p-$PROCTOR_INSTANCE.pid >> pids";
    let pid_path = stage.path("p-{instance}.pid");
    sleeper(stage, |spec| {
        spec.identity.pid_path = pid_path.to_str().unwrap().parse().unwrap();
        spec.control.start = Some(line.parse().unwrap());
        spec.policy.instances = 2;
        change(spec);
    })
}

pub(super) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(super) async fn unregister(stage: &mut Stage, name: &str) {
    stage.registered += 1;
    let (generation, key) = (stage.registered, key(name));
    let assign = Assign { generation, key, spec: None, managed: false, registered_at: 1 };
    stage.say(FromServer::Assign { assignments: vec![assign] }).await;
}

#[tokio::test]
async fn what_a_status_query_saw_before_a_restart_is_no_news_after_it() {
    let mut stage = Stage::new().await;
    let version = "echo $$ >> askers; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.01; done; echo 1";
    // By a command: a stop would end what asks for the version, as a leftover.
    let restart = "kill $(cat p.pid); sleep 1000 > /dev/null 2>&1 & echo $! > p.pid; cat p.pid >> pids";
    let spec = sleeper(&stage, |spec| {
        spec.control.version = Some(version.parse().unwrap());
        spec.control.restart = Some(restart.parse().unwrap());
    });
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let askers = stage.path("askers");
    eventually("the version is asked", || numbers(&askers).len() == 1).await;
    let status = stage.operate(1, "p", OperationKind::Status, &spec).await;
    eventually("the status query has looked", || numbers(&askers).len() == 2).await;

    let restart = stage.operate(2, "p", OperationKind::Restart, &spec).await;
    assert_eq!(stage.outcome(restart).await.code, Code::Success);
    std::fs::write(stage.path("go"), "").unwrap();
    stage.outcome(status).await;
    let stop = stage.operate(3, "p", OperationKind::Stop, &spec).await;
    stage.outcome(stop).await;

    let first = numbers(&stage.path("pids"))[0].to_string();
    let is_back = |event: &&Told| event.kind == EventKind::PidChanged && event.details["pid"] == first;
    assert!(!stage.events.iter().any(|event| is_back(&event)), "{:?}", stage.events);
}

#[tokio::test]
async fn what_a_status_query_saw_is_not_the_life_of_a_process_that_was_registered_since_elsewhere() {
    let mut stage = Stage::new().await;
    let version = "echo $$ >> askers; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.01; done; echo 1";
    let before = sleeper(&stage, |spec| spec.control.version = Some(version.parse().unwrap()));
    let pid_path = stage.path("elsewhere.pid");
    let after = stage.spec(|spec| spec.identity.pid_path = pid_path.to_str().unwrap().parse().unwrap());
    let start = stage.operate(0, "p", OperationKind::Start, &before).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let askers = stage.path("askers");
    eventually("the version is asked", || numbers(&askers).len() == 1).await;
    let status = stage.operate(1, "p", OperationKind::Status, &before).await;
    eventually("the status query has looked", || numbers(&askers).len() == 2).await;

    unregister(&mut stage, "p").await;
    stage.assign("p", &after).await;
    std::fs::write(stage.path("go"), "").unwrap();
    stage.outcome(status).await;
    let kill = stage.operate(2, "p", OperationKind::Kill, &after).await;

    assert_eq!(stage.outcome(kill).await.code, Code::NotRunning);
    assert!(!is_gone(numbers(&stage.path("pids"))[0]), "it is nobody's, and lives");
}

#[tokio::test]
async fn the_health_of_an_earlier_registration_does_not_condemn_the_next() {
    let mut stage = Stage::new().await;
    let asking = |stage: &Stage, name: &str, exit: u32| {
        sleeper(stage, |spec| {
            let line = format!("echo $$ > {name}.asked; until [ -e {name}.go ]; do sleep 0.01; done; exit {exit}");
            spec.control.health = Some(line.parse().unwrap());
            spec.policy.health.grace = 0.try_into().unwrap();
            spec.policy.health.failures = 1;
            spec.policy.health.timeout = 1000.try_into().unwrap();
        })
    };
    let (before, after) = (asking(&stage, "before", 1), asking(&stage, "after", 0));
    let start = stage.operate(0, "p", OperationKind::Start, &before).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let (first, second) = (stage.path("before.asked"), stage.path("after.asked"));
    eventually("it is asked", || numbers(&first).len() == 1).await;

    unregister(&mut stage, "p").await;
    stage.assign("p", &after).await;
    eventually("the next is asked", || numbers(&second).len() == 1).await;
    std::fs::write(stage.path("before.go"), "").unwrap();
    eventually("the answer is there", || is_gone(numbers(&first)[0])).await;
    std::fs::write(stage.path("after.go"), "").unwrap();
    let mut index = 1;
    let health = loop {
        let status = stage.operate(index, "p", OperationKind::Status, &after).await;
        let snapshot = stage.outcome(status).await.snapshot.unwrap();
        if !snapshot.health.is_empty() {
            break snapshot.health;
        }
        index += 1;
    };

    assert_eq!(health, "healthy");
}

#[tokio::test]
async fn the_first_good_answer_of_a_health_command_is_reported_at_once() {
    let mut stage = Stage::new().await;
    let spec = sleeper(&stage, |spec| {
        spec.control.health = Some("true".parse().unwrap());
        spec.policy.health.grace = 0.try_into().unwrap();
    });
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);

    // Nothing else changes from now on, and the next report of everything is a minute away.
    let is_told = async {
        while !stage.observed.iter().any(|(_, snapshot)| snapshot.health == "healthy") {
            stage.hear().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), is_told).await.expect("at once");
}

#[tokio::test]
async fn supervision_starts_nothing_that_neither_ledger_nor_reserve_can_remember() {
    let dir = TempDir::new().unwrap();
    // There is no reserve where a directory has its name.
    std::fs::create_dir(dir.path().join("ledger.reserve")).unwrap();
    let mut stage = Stage::in_dir(dir).await;
    let spec = sleeper(&stage, |_| {});
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let disk = rusqlite::Connection::open(stage.path("ledger.db")).unwrap();
    let refuse = "SELECT RAISE(FAIL, 'database or disk is full'); END;";
    disk.execute_batch(&format!("CREATE TRIGGER full BEFORE INSERT ON process BEGIN {refuse}")).unwrap();
    let pids = stage.path("pids");

    let first = numbers(&pids)[0];
    rustix::process::kill_process(rustix::process::Pid::from_raw(first).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    while !stage.observed.iter().any(|(_, snapshot)| snapshot.phase == Phase::Waiting) && numbers(&pids).len() == 1 {
        stage.hear().await;
    }

    assert_eq!(numbers(&pids), [first], "a start that an agent after this one would not know of");
    disk.execute_batch("DROP TRIGGER full").unwrap();
    eventually("it is started when there is room again", || numbers(&pids).len() == 2).await;
    let status = stage.operate(1, "p", OperationKind::Status, &spec).await;
    let snapshot = stage.outcome(status).await.snapshot.unwrap();
    assert!(snapshot.managed, "it was not given up: {snapshot:?}");
}

#[tokio::test]
async fn a_local_start_of_instances_does_not_share_a_pid_file_with_a_managed_process() {
    let mut stage = Stage::new().await;
    let of = |stage: &Stage, file: &str, instances: u32| {
        let pid_path = stage.path(file);
        stage.spec(|spec| {
            spec.policy.lifetime = proctor_model::Lifetime::Once;
            spec.policy.instances = instances;
            spec.identity.pid_path = pid_path.to_str().unwrap().parse().unwrap();
            spec.control.start = Some("echo x >> runs".parse().unwrap());
        })
    };
    let (single, several) = (of(&stage, "a-2.pid", 1), of(&stage, "a-{instance}.pid", 2));
    let manage = stage.operate(0, "single", OperationKind::Manage, &single).await;
    assert_eq!(stage.outcome(manage).await.code, Code::Success);
    stage.assign("several", &several).await;
    let ask = async |kind: OperationKind| {
        let answered = stage.ask_locally("several", kind).await;
        let answer = tokio::time::timeout(PATIENCE, answered).await.expect("in time").unwrap();
        let LocalAnswer::Outcome { outcome } = answer else { panic!("{answer:?}") };
        *outcome
    };

    let refused = ask(OperationKind::Start).await;
    let released = ask(OperationKind::Release).await;

    assert_eq!(refused.code, Code::CommandFailed);
    assert!(refused.message.contains("ns/single"), "{}", refused.message);
    assert!(!stage.path("runs").exists(), "nothing was run");
    assert_eq!(released.code, Code::Success);
}

/// Starts `outer`, whose start command also starts `inner`, which is registered and known.
async fn nested() -> (Stage, Arc<Spec>) {
    let mut stage = Stage::new().await;
    let outer = sleeper(&stage, |spec| {
        let line = "sleep 1000 > /dev/null 2>&1 & echo $! > inner.pid; cat inner.pid >> pids
                    sleep 1000 > /dev/null 2>&1 & echo $! > p.pid; cat p.pid >> pids";
        spec.control.start = Some(line.parse().unwrap());
    });
    let pid_path = stage.path("inner.pid");
    let inner = sleeper(&stage, |spec| spec.identity.pid_path = pid_path.to_str().unwrap().parse().unwrap());
    let start = stage.operate(0, "outer", OperationKind::Start, &outer).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    stage.assign("inner", &inner).await;
    let is_adopted = |(of, snapshot): &(ProcessKey, Snapshot)| *of == key("inner") && snapshot.phase == Phase::Running;
    while !stage.observed.iter().any(is_adopted) {
        stage.hear().await;
    }
    (stage, outer)
}

async fn assert_only_outer_is_killed(mut stage: Stage, outer: Arc<Spec>) {
    let kill = stage.operate(1, "outer", OperationKind::Kill, &outer).await;
    let killed = stage.outcome(kill).await;

    assert_eq!(killed.code, Code::Success, "{}", killed.message);
    let gone: Vec<bool> = numbers(&stage.path("pids")).into_iter().map(is_gone).collect();
    assert_eq!(gone, [false, true]);
}

#[tokio::test]
async fn a_known_process_that_another_one_has_started_outlives_the_kill_of_that() {
    let (stage, outer) = nested().await;

    assert_only_outer_is_killed(stage, outer).await;
}

#[tokio::test]
async fn an_unregistered_process_that_another_one_has_started_outlives_the_kill_of_that() {
    let (mut stage, outer) = nested().await;
    unregister(&mut stage, "inner").await;

    assert_only_outer_is_killed(stage, outer).await;
}

#[tokio::test]
async fn a_local_status_query_is_refused_where_the_owner_of_the_host_forbids_it() {
    let dir = TempDir::new().unwrap();
    let policy = dir.path().join("policy.toml");
    std::fs::write(&policy, "operations = ['start', 'stop']").unwrap();
    let mut stage = Stage::with_policy(dir, Some(&policy)).await;
    let spec = sleeper(&stage, |spec| spec.control.version = Some("touch asked".parse().unwrap()));
    stage.assign("p", &spec).await;

    let answer = stage.ask_locally("p", OperationKind::Status).await.await.unwrap();

    let LocalAnswer::Refused { reason } = answer else { panic!("{answer:?}") };
    assert!(reason.ends_with("operation 'status' is not allowed"), "{reason}");
}

#[tokio::test]
async fn a_local_operation_on_instances_that_an_agent_before_had_begun_is_told_and_settled() {
    let mut stage = Stage::new().await;
    let spec = two_sleepers(&stage, |spec| {
        // The first ends at once, the other one only when the next agent is there.
        let stop =
            "[ $PROCTOR_INSTANCE = 1 ] || { touch stopping; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.01; done; }
                    kill $(cat p-$PROCTOR_INSTANCE.pid)";
        spec.control.stop = Some(stop.parse().unwrap());
    });
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let disk = rusqlite::Connection::open(stage.path("ledger.db")).unwrap();
    disk.busy_timeout(PATIENCE).unwrap();
    let open = |condition: &str| -> u32 {
        let query = format!("SELECT count(*) FROM operation WHERE NOT acknowledged AND kind = 'stop' AND {condition}");
        disk.query_row(&query, [], |row| row.get(0)).unwrap()
    };
    let answered = stage.ask_locally("p", OperationKind::Stop).await;
    stage.until("stopping").await;
    eventually("one of two has ended", || open("outcome IS NOT NULL") == 1).await;

    let mut stage = stage.restarted().await;
    drop(answered);
    std::fs::write(stage.path("go"), "").unwrap();
    let is_end = |event: &&Told| {
        event.kind == EventKind::LocalOperation && event.details.get("state").is_some_and(|state| state == "ended")
    };
    while !stage.events.iter().any(|event| is_end(&event)) {
        stage.hear().await;
    }

    let ended = stage.events.iter().find(is_end).unwrap();
    assert_eq!((ended.details["code"].as_str(), ended.details["operation"].as_str()), ("0", "stop"), "{ended:?}");
    eventually("nothing of it is open", || open("true") == 0).await;
    assert!(stage.outcomes.keys().all(|operation| *operation == start), "the server never asked for it");
}

#[tokio::test]
async fn a_relaunch_ends_what_the_life_before_left_behind_outside_its_cgroup() {
    let mut stage = Stage::new().await;
    // As a login by PAM does, the command leaves its cgroup before it starts anything.
    let leave = stage.above.as_ref().map(|above| format!("echo $$ > {}/cgroup.procs;", above.display()));
    let line = "sleep 1000 > /dev/null 2>&1 & echo $! >> workers; echo $! >> pids
                sleep 1000 > /dev/null 2>&1 & echo $! > p.pid; cat p.pid >> pids; cat p.pid >> lives";
    let line = format!("{} {line}", leave.unwrap_or_default());
    let spec = sleeper(&stage, |spec| spec.control.start = Some(line.parse().unwrap()));
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let (lives, workers) = (stage.path("lives"), stage.path("workers"));
    let (life, worker) = (numbers(&lives)[0], numbers(&workers)[0]);

    rustix::process::kill_process(rustix::process::Pid::from_raw(life).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    eventually("it is started again", || numbers(&lives).len() == 2).await;

    assert!(is_gone(worker), "it would keep what the next life needs");
}

/// The agent ends, and its ledger is lost; the next one is told to manage the process, as the server last knew it.
pub(super) async fn without_its_ledger(stage: Stage, spec: &Arc<Spec>, registered_at: i64) -> Stage {
    let stage = {
        let lost = ["ledger.db", "ledger.db-wal", "ledger.db-shm"].map(|file| stage.path(file));
        stage.restarted_after(|| lost.iter().for_each(|file| drop(std::fs::remove_file(file)))).await
    };
    let assign = Assign { generation: 1, key: key("p"), spec: Some(spec.clone()), managed: true, registered_at };
    stage.say(FromServer::Assign { assignments: vec![assign] }).await;
    stage
}

pub(super) async fn managed(stage: &mut Stage) -> bool {
    let LocalAnswer::Outcome { outcome } = stage.ask_locally("p", OperationKind::Status).await.await.unwrap() else {
        panic!("a status query is answered");
    };
    outcome.snapshot.unwrap().managed
}

#[tokio::test]
async fn what_was_stopped_on_the_host_stays_so_if_the_ledger_is_lost_before_the_server_has_heard_of_it() {
    let mut stage = Stage::new().await;
    let spec = sleeper(&stage, |_| {});
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let mut stage = without_its_ledger(stage, &spec, 1).await;
    assert!(managed(&mut stage).await, "nobody has stopped it");
    stage.ask_locally("p", OperationKind::Stop).await.await.unwrap();

    let mut stage = without_its_ledger(stage, &spec, 1).await;
    let after_stop = managed(&mut stage).await;
    let start = stage.operate(1, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let mut stage = without_its_ledger(stage, &spec, 1).await;

    assert!(!after_stop, "it was stopped");
    assert!(managed(&mut stage).await, "it was started since");
}

#[tokio::test]
async fn an_operation_without_a_spec_that_is_delivered_again_does_not_repeat_the_instances_that_it_ended_for() {
    let mut stage = Stage::new().await;
    let spec = two_sleepers(&stage, |spec| {
        let reload = "echo $PROCTOR_INSTANCE >> reloads
                      [ $PROCTOR_INSTANCE = 1 ] || until [ -e go ] || [ ! -d $PWD ]; do sleep 0.01; done";
        spec.control.reload = Some(reload.parse().unwrap());
    });
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), 1);
    let (of, kind) = (key("p"), OperationKind::Reload);
    let reload = FromServer::Operate { operation, key: of, kind, spec: None, expires_in: PATIENCE };
    stage.say(reload.clone()).await;
    let disk = rusqlite::Connection::open(stage.path("ledger.db")).unwrap();
    disk.busy_timeout(PATIENCE).unwrap();
    let ended = || -> u32 {
        let query = "SELECT count(*) FROM operation WHERE kind = 'reload' AND outcome IS NOT NULL";
        disk.query_row(query, [], |row| row.get(0)).unwrap()
    };
    eventually("it has ended for one", || ended() == 1 && numbers(&stage.path("reloads")).len() == 2).await;

    let mut stage = stage.restarted().await;
    stage.say(reload).await;
    std::fs::write(stage.path("go"), "").unwrap();
    stage.outcome(operation).await;

    let mut reloads = numbers(&stage.path("reloads"));
    reloads.sort_unstable();
    assert_eq!(reloads, [1, 2]);
}

#[tokio::test]
async fn an_operation_on_instances_that_is_delivered_again_while_it_is_under_way_runs_once() {
    let mut stage = Stage::new().await;
    let line = "echo $PROCTOR_INSTANCE >> starts; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.01; done
                sleep 1000 > /dev/null 2>&1 & echo $! > p-$PROCTOR_INSTANCE.pid; cat p-$PROCTOR_INSTANCE.pid >> pids";
    let spec = two_sleepers(&stage, |spec| spec.control.start = Some(line.parse().unwrap()));
    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    let starts = stage.path("starts");
    eventually("both are being started", || numbers(&starts).len() == 2).await;

    stage.operate(0, "p", OperationKind::Start, &spec).await;
    // The one after it in the queue is answered when it has been handled.
    let status = stage.operate(1, "q", OperationKind::Status, &spec).await;
    stage.outcome(status).await;
    std::fs::write(stage.path("go"), "").unwrap();
    let started = stage.outcome(start).await;

    assert_eq!(started.code, Code::Success, "{}", started.message);
    let mut numbers = numbers(&starts);
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test]
async fn a_process_that_is_forgotten_in_the_turn_of_its_adoption_is_not_watched() {
    const STRANGERS: u32 = 20;
    let mut stage = Stage::new().await;
    let spec = sleeper(&stage, |spec| spec.control.reload = None);
    let mut running = std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
    for file in ["p.pid", "pids"] {
        std::fs::write(stage.path(file), running.id().to_string()).unwrap();
    }
    let watched = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.to_string_lossy().contains("pidfd")).count()
    };
    let reload = async |stage: &mut Stage, index: u32| {
        let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
        let (key, kind, spec) = (key(&format!("p{index}")), OperationKind::Reload, Some(spec.clone()));
        stage.say(FromServer::Operate { operation, key, kind, spec, expires_in: PATIENCE }).await;
        stage.outcome(operation).await
    };
    reload(&mut stage, 0).await;
    let before = watched();

    for index in 1..=STRANGERS {
        let outcome = reload(&mut stage, index).await;
        assert_eq!(outcome.code, Code::CommandFailed, "there is no reload command: {outcome:?}");
        assert!(!outcome.message.contains("not running"), "{outcome:?}");
    }

    eventually("no descriptor of theirs is left", || watched() <= before).await;
    running.kill().unwrap();
    running.wait().unwrap();
}

#[tokio::test]
async fn what_a_list_of_everything_lacks_is_released_and_lives() {
    let mut stage = Stage::new().await;
    let (running, other, several) = (sleeper(&stage, |_| {}), stage.spec(|_| {}), two_sleepers(&stage, |_| {}));
    let start = stage.operate(0, "p", OperationKind::Start, &running).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    stage.assign("q", &other).await;
    stage.assign("several", &several).await;
    let disk = rusqlite::Connection::open(stage.path("ledger.db")).unwrap();
    disk.busy_timeout(PATIENCE).unwrap();
    let names = || -> Vec<String> {
        let mut statement = disk.prepare("SELECT name FROM process ORDER BY name").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    eventually("all are in the ledger", || names().len() == 4).await;
    let list = |offset: u32, names: &[&str], is_last| {
        let processes = names.iter().map(|name| key(name)).collect();
        FromServer::Registered(proctor_wire::RegisteredPart { offset, processes, pools: Vec::new(), is_last })
    };

    // The first list has a gap, and counts for nothing.
    stage.say(list(1, &[], true)).await;
    stage.say(list(0, &["q"], false)).await;
    stage.say(list(1, &["several"], true)).await;
    eventually("one is gone", || names().len() == 3).await;
    assert!(!names().contains(&"p".to_owned()), "{:?}", names());
    assert!(!is_gone(numbers(&stage.path("pids"))[0]), "it is nobody's, and lives");

    stage.say(list(0, &[], true)).await;
    eventually("nothing is registered", || names().is_empty()).await;
}

#[tokio::test]
async fn an_agent_that_no_longer_hears_of_ends_is_of_no_use() {
    let stage = Stage::new().await;

    let tasks = stage.tasks.clone();
    eventually("the task that hears of ends is critical", || tasks.critical().contains(&"ends")).await;
}
