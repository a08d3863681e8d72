//! Usage, as the driver records and returns it.

use proctor_model::{UsageHistory, UsageKept, UsageRange};

use super::*;

impl Stage {
    async fn ask(&mut self, request: u64, name: &str, range: UsageRange) -> UsageHistory {
        self.say(FromServer::QueryUsage { request, key: key(name), range }).await;
        while !self.usage.contains_key(&request) {
            self.hear().await;
        }
        self.usage.remove(&request).unwrap()
    }

    /// Asks until there are points.
    async fn points(&mut self, name: &str, range: UsageRange) -> UsageHistory {
        let begun = Instant::now();
        for request in 1_000.. {
            let history = self.ask(request, name, range).await;
            if !history.points.is_empty() {
                return history;
            }
            assert!(begun.elapsed() < PATIENCE, "no points: {history:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        unreachable!("numbers do not end")
    }

    async fn start_limited(&mut self) {
        let spec = self.spec(|spec| {
            spec.identity.proc_name = "sleep".parse().unwrap();
            spec.control.start = Some("sleep 1000 > /dev/null 2>&1 & echo $! | tee p.pid >> pids".parse().unwrap());
            spec.policy.start_check = 0.try_into().unwrap();
            spec.limits.cpu = Some(Percent::try_from(90.0).unwrap());
        });
        let start = self.operate(0, "p", OperationKind::Start, &spec).await;
        assert_eq!(self.outcome(start).await.code, Code::Success);
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.path("usage")).map_or(0, Iterator::count)
    }
}

#[tokio::test]
async fn a_process_with_limits_has_its_hour_and_the_week_outlives_the_agent() {
    let mut stage = Stage::new().await;
    stage.start_limited().await;

    let hour = stage.points("p", UsageRange::Hour).await;
    let week = stage.points("p", UsageRange::Week).await;
    let unknown = stage.ask(7, "q", UsageRange::Week).await;

    assert_eq!((hour.kept, hour.step_secs), (UsageKept::Kept, 10));
    assert_eq!((week.kept, week.step_secs), (UsageKept::Kept, 300));
    assert!(week.points[0].memory.is_sound() && week.points[0].cpu.min.is_some(), "{week:?}");
    assert_eq!(unknown, UsageHistory::empty(UsageKept::NotRegistered, 300));

    // In order: what was not written yet is.
    assert!(stage.tasks.end(PATIENCE).await);
    assert_eq!(stage.files(), 1);
    let dir = std::mem::replace(&mut stage.dir, TempDir::new().unwrap());
    let mut again = Stage::in_dir(dir).await;
    let kept = again.points("p", UsageRange::Week).await;
    assert!(kept.points.iter().any(|point| point.at == week.points[0].at), "{kept:?} {week:?}");

    let assign = Assign { generation: 9, key: key("p"), spec: None, managed: false, registered_at: 1 };
    again.say(FromServer::Assign { assignments: vec![assign] }).await;
    let begun = Instant::now();
    while again.files() > 0 {
        assert!(begun.elapsed() < PATIENCE, "the file of a forgotten process stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn b17_the_week_of_a_process_outlives_the_loss_of_the_ledger() {
    let mut stage = Stage::new().await;
    stage.start_limited().await;
    let before = stage.points("p", UsageRange::Week).await;
    let spec = stage.spec(|_| {});

    let mut stage = mishaps::without_its_ledger(stage, &spec, 1).await;
    let after = stage.points("p", UsageRange::Week).await;

    assert!(after.points.iter().any(|point| point.at == before.points[0].at), "{after:?} {before:?}");
}

#[tokio::test]
async fn a_status_query_during_a_start_does_not_charge_it_for_an_earlier_process_of_its_name() {
    let mut stage = Stage::new().await;
    if stage.above.is_none() {
        return proctor_testkit::skip("without cgroups an earlier process is no part of the next one's tree");
    }
    let line = "/usr/bin/perl -e '$x = q(x) x 200_000_000; mkdir q(full); sleep 1000 while 1' > /dev/null 2>&1 &
                pid=$!; while [ ! -d full ]; do sleep 0.01; done; echo $pid > p.pid; echo $pid >> pids";
    let elder = stage.spec(|spec| {
        spec.identity.proc_name = "perl".parse().unwrap();
        spec.policy.start_check = 0.try_into().unwrap();
        spec.control.start = Some(line.parse().unwrap());
    });
    let pid_path = stage.path("next.pid");
    let next = stage.spec(|spec| {
        spec.identity.proc_name = "sleep".parse().unwrap();
        spec.identity.pid_path = pid_path.to_str().unwrap().parse().unwrap();
        spec.policy.start_check = 0.try_into().unwrap();
        let line = "sleep 1000 > /dev/null 2>&1 & echo $! >> pids; echo $! > next; mv next next.pid
                    until [ -e go ]; do sleep 0.01; done";
        spec.control.start = Some(line.parse().unwrap());
    });
    let start = stage.operate(0, "p", OperationKind::Start, &elder).await;
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    mishaps::unregister(&mut stage, "p").await;

    let start = stage.operate(1, "p", OperationKind::Start, &next).await;
    stage.until("next.pid").await;
    let status = stage.operate(2, "p", OperationKind::Status, &next).await;
    let during = stage.outcome(status).await.snapshot.unwrap();
    std::fs::write(stage.path("go"), "").unwrap();
    assert_eq!(stage.outcome(start).await.code, Code::Success);
    let status = stage.operate(3, "p", OperationKind::Status, &next).await;
    let after = stage.outcome(status).await.snapshot.unwrap();

    for snapshot in [during, after] {
        assert_eq!(snapshot.pid, numbers(&stage.path("next.pid")).first().copied());
        assert!(snapshot.usage.memory_bytes < 100_000_000, "{:?}", snapshot.usage);
    }
}
