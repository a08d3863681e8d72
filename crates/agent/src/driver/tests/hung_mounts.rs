//! The owner of the host restricts paths, and the file system of some of them hangs.

use proctor_testkit::{HungFileSystem, skip};

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
