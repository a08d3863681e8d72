//! Logs, as the driver returns them.

use proctor_model::{LogQuery, LogState, LogTail};
use proctor_testkit::{HungFileSystem, skip};

use super::*;
use crate::log_file::tests::us;

impl Stage {
    async fn log(&mut self, request: u64, name: &str) -> LogTail {
        self.say(FromServer::QueryLog { request, key: key(name), query: LogQuery::default() }).await;
        while !self.logs.contains_key(&request) {
            self.hear().await;
        }
        self.logs.remove(&request).unwrap()
    }
}

#[tokio::test]
async fn a_registered_process_has_the_log_that_its_spec_names() {
    let mut stage = Stage::new().await;
    std::fs::write(stage.path("p.log"), "words\n").unwrap();
    let with_log = stage.spec(|spec| {
        spec.identity.user = us().parse().unwrap();
        spec.identity.log_path = Some("p.log".parse().unwrap());
    });
    let without = stage.spec(|spec| {
        spec.identity.pid_path = stage.path("q.pid").to_str().unwrap().parse().unwrap();
        spec.identity.log_path = None;
    });
    stage.assign("p", &with_log).await;
    stage.assign("q", &without).await;

    let read = stage.log(1, "p").await;
    let states = [stage.log(2, "q").await.state, stage.log(3, "unknown").await.state];

    assert_eq!((read.state, &read.bytes[..]), (LogState::Read, &b"words\n"[..]), "{read:?}");
    assert_eq!(states, [LogState::NoPath, LogState::NotRegistered]);
}

#[tokio::test]
async fn the_owner_of_the_host_may_keep_its_logs_to_itself() {
    for policy in ["logs = false\n", "operations = [\"status\"]\n"] {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("policy.toml");
        std::fs::write(&file, policy).unwrap();
        std::fs::write(dir.path().join("p.log"), "hush\n").unwrap();
        let mut stage = Stage::with_policy(dir, Some(&file)).await;
        let spec = stage.spec(|spec| spec.identity.log_path = Some("p.log".parse().unwrap()));
        stage.assign("p", &spec).await;

        let tail = stage.log(1, "p").await;

        assert_eq!((tail.state, tail.bytes.len()), (LogState::Forbidden, 0), "{tail:?}");
        assert!(tail.problem.contains(file.to_str().unwrap()), "{}", tail.problem);
    }
}

#[tokio::test]
async fn logs_that_hang_cost_neither_other_logs_nor_supervision() {
    let mut stage = Stage::new().await;
    let Some(hung) = HungFileSystem::mount(stage.path("hung")).await else { return skip("FUSE cannot be mounted") };
    std::fs::write(stage.path("p.log"), "words\n").unwrap();
    let spec = stage.spec(|spec| {
        spec.identity.proc_name = "sleep".parse().unwrap();
        spec.identity.log_path = Some("p.log".parse().unwrap());
        spec.control.start = Some("sleep 1000 > /dev/null 2>&1 & echo $! | tee p.pid >> pids".parse().unwrap());
        spec.policy.start_check = 0.try_into().unwrap();
    });
    stage.assign("p", &spec).await;
    let before = stage.log(99, "p").await;
    for number in 0..4 {
        let name = format!("hung{number}");
        // By a link: the log counts for a mount that answers.
        std::os::unix::fs::symlink(stage.path("hung"), stage.path(&name)).unwrap();
        let spec = stage.spec(|spec| {
            spec.identity.pid_path = stage.path(&format!("{name}.pid")).to_str().unwrap().parse().unwrap();
            spec.identity.log_path = Some(format!("{name}/p.log").parse().unwrap());
        });
        stage.assign(&name, &spec).await;
        stage.say(FromServer::QueryLog { request: number, key: key(&name), query: LogQuery::default() }).await;
    }

    let start = stage.operate(0, "p", OperationKind::Start, &spec).await;
    let started = stage.outcome(start).await;
    let mut beside = stage.log(100, "p").await;
    // On a slow machine the others are answered just now, and one answer at a time waits for the link.
    while beside.state == LogState::Busy {
        beside = stage.log(100, "p").await;
    }
    while stage.logs.len() < 4 {
        stage.hear().await;
    }
    assert_eq!(before.bytes, beside.bytes);
    let again = stage.log(101, "hung0").await;

    assert_eq!((started.code, &beside.bytes[..]), (Code::Success, &b"words\n"[..]), "{started:?} {beside:?}");
    for tail in stage.logs.values().chain([&again]) {
        assert_eq!((tail.state, tail.problem.as_str()), (LogState::Unreadable, "the file system does not answer"));
    }
    drop(hung);
}
