//! Hanging file systems, and what hangs with them.

use proctor_testkit::{HungFileSystem, MemoryTrap, skip};

use super::*;

/// More than the threads that one mount may hold.
const HUNG: u32 = 24;

#[tokio::test]
async fn a_mount_that_hangs_holds_up_no_process_whose_paths_lie_elsewhere() {
    let dir = TempDir::new().unwrap();
    let (root, policy) = (dir.path().to_owned(), dir.path().join("policy.toml"));
    // The root that hangs is named first, and one process after the other reaches it by a link.
    let roots = [root.join("hung"), root.clone(), root.join("elsewhere")];
    std::fs::write(&policy, format!("paths = {roots:?}")).unwrap();
    let mut stage = Stage::with_policy(dir, Some(&policy)).await;
    let Some(hung) = HungFileSystem::mount(root.join("hung")).await else { return skip("FUSE cannot be mounted") };
    let mut refused = Vec::new();
    for number in 0..HUNG {
        let directory = root.join(if number % 2 == 0 { format!("hung/{number}") } else { format!("link{number}") });
        if number % 2 == 1 {
            std::os::unix::fs::symlink(root.join("hung/behind"), &directory).unwrap();
        }
        let spec = stage.spec(|spec| spec.identity.setup_path = directory.to_str().unwrap().parse().unwrap());
        let name = format!("hung{number}");
        refused.push(stage.operate(number, &name, OperationKind::Start, &spec).await);
    }
    let beside = stage.spec(|spec| {
        spec.identity.proc_name = "sleep".parse().unwrap();
        spec.control.start = Some("sleep 1000 > /dev/null 2>&1 & echo $! | tee p.pid >> pids".parse().unwrap());
        spec.policy.start_check = 0.try_into().unwrap();
    });

    let start = stage.operate(HUNG, "beside", OperationKind::Start, &beside).await;
    let started = stage.outcome(start).await;
    let kill = stage.operate(HUNG + 1, "beside", OperationKind::Kill, &beside).await;
    let killed = stage.outcome(kill).await;

    assert_eq!((started.code, killed.code), (Code::Success, Code::Success), "{started:?} {killed:?}");
    for operation in refused {
        let outcome = stage.outcome(operation).await;
        assert!(outcome.message.contains("the file system does not answer"), "{outcome:?}");
    }
    drop(hung);
}

#[tokio::test]
async fn configuration_files_on_a_mount_that_hangs_hold_up_no_check_of_others() {
    let mut stage = Stage::new().await;
    let hung_dir = stage.path("hung");
    let Some(hung) = HungFileSystem::mount(hung_dir.clone()).await else { return skip("FUSE cannot be mounted") };
    let wrong = stage.path("wrong.conf");
    std::fs::write(&wrong, "other").unwrap();
    let with_config = |stage: &Stage, name: &str, path: &std::path::Path| {
        let pid_path = stage.path(&format!("{name}.pid")).to_str().unwrap().to_owned();
        let path = path.to_str().unwrap().parse().unwrap();
        stage.spec(|spec| {
            spec.identity.proc_name = "sleep".parse().unwrap();
            let line = format!("sleep 1000 > /dev/null 2>&1 & echo $! | tee {pid_path} >> pids");
            spec.control.start = Some(line.parse().unwrap());
            spec.identity.pid_path = pid_path.parse().unwrap();
            spec.policy.start_check = 0.try_into().unwrap();
            spec.configmap = vec![proctor_model::ConfigFile { path, md5: "0".repeat(32) }];
        })
    };
    for number in 0..HUNG {
        let name = format!("hung{number}");
        let spec = with_config(&stage, &name, &hung_dir.join(format!("{number}.conf")));
        let start = stage.operate(number, &name, OperationKind::Start, &spec).await;
        let started = stage.outcome(start).await;
        assert_eq!(started.code, Code::Success, "{started:?}");
    }

    let spec = with_config(&stage, "beside", &wrong);
    let start = stage.operate(HUNG, "beside", OperationKind::Start, &spec).await;
    let started = stage.outcome(start).await;
    assert_eq!(started.code, Code::Success, "{started:?}");
    let is_told = |told: &Told| told.kind == EventKind::ConfigChanged && told.process == Some(key("beside"));
    while !stage.events.iter().any(is_told) {
        stage.hear().await;
    }

    drop(hung);
}

#[tokio::test]
async fn a_process_whose_own_mount_hangs_is_killed_and_stopped_with_restricted_paths_and_without() {
    for (restricted, kind) in [(true, OperationKind::Kill), (true, OperationKind::Stop), (false, OperationKind::Kill)] {
        let dir = TempDir::new().unwrap();
        let (home, policy) = (dir.path().join("home"), dir.path().join("policy.toml"));
        std::fs::write(&policy, format!("paths = {:?}", [dir.path()])).unwrap();
        let mut stage = Stage::with_policy(dir, restricted.then_some(policy.as_path())).await;
        std::fs::create_dir(&home).unwrap();
        let spec = stage.spec(|spec| {
            spec.identity.proc_name = "sleep".parse().unwrap();
            spec.identity.setup_path = home.to_str().unwrap().parse().unwrap();
            spec.identity.pid_path = home.join("p.pid").to_str().unwrap().parse().unwrap();
            spec.control.start = Some("sleep 1000 > /dev/null 2>&1 & echo $! | tee p.pid >> ../pids".parse().unwrap());
            spec.control.stop = None;
            spec.policy.start_check = 0.try_into().unwrap();
        });
        let start = stage.operate(1, "p", OperationKind::Start, &spec).await;
        let started = stage.outcome(start).await;
        assert_eq!(started.code, Code::Success, "{started:?}");
        std::fs::rename(&home, home.with_extension("before")).unwrap();
        let Some(hung) = HungFileSystem::mount(home).await else { return skip("FUSE cannot be mounted") };

        let end = stage.operate(2, "p", kind, &spec).await;
        let ended = stage.outcome(end).await;

        assert_eq!(ended.code, Code::Success, "{kind}: {ended:?}");
        drop(hung);
    }
}

#[tokio::test]
async fn a_process_whose_memory_cannot_be_read_is_shown_and_holds_up_no_other() {
    let mut stage = Stage::new().await;
    let Some(trap) = MemoryTrap::mount(stage.path("trap")).await else { return skip("FUSE cannot be mounted") };
    let line = |name: &str, command: &str| {
        format!("sh -c '{command}' > /dev/null 2>&1 & echo $! | tee {name}.pid >> pids").parse().unwrap()
    };
    let of = |name: &str, program: &str, command: &str| {
        stage.spec(|spec| {
            spec.identity.proc_name = program.parse().unwrap();
            spec.identity.pid_path = stage.path(&format!("{name}.pid")).to_str().unwrap().parse().unwrap();
            spec.control.start = Some(line(name, command));
            spec.policy.start_check = 0.try_into().unwrap();
        })
    };
    let silent = of("silent", &trap.name(), &trap.command());
    let beside = of("beside", "sleep", "exec sleep 1000");
    let start = stage.operate(1, "silent", OperationKind::Start, &silent).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let pid = std::fs::read_to_string(stage.path("silent.pid")).unwrap().trim().parse().unwrap();
    trap.holds(pid).await;

    let mut codes = Vec::new();
    for (number, name, kind, spec) in [
        (2, "silent", OperationKind::Status, &silent),
        (3, "silent", OperationKind::Release, &silent),
        (4, "silent", OperationKind::Manage, &silent),
        (5, "beside", OperationKind::Start, &beside),
        (6, "beside", OperationKind::Kill, &beside),
    ] {
        let operation = stage.operate(number, name, kind, spec).await;
        let outcome = stage.outcome(operation).await;
        codes.push(outcome.code);
        if kind == OperationKind::Status {
            assert_eq!(outcome.snapshot.unwrap().pid, Some(pid));
        }
    }

    assert_eq!(codes, [Code::Success; 5]);
    drop(trap);
}
