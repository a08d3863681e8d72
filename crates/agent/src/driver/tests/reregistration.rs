//! A process is registered with another pid file while an operation on the previous one is in progress.

use super::mishaps::{managed, sleeper, unregister, without_its_ledger};
use super::*;

/// A start is under way when its process is unregistered and another one gets its name, whose registration waits.
async fn registered_elsewhere_during_a_start() -> (Stage, OperationId, Arc<Spec>) {
    let mut stage = Stage::new().await;
    let line = "sleep 1000 > /dev/null 2>&1 & echo $! > p.pid; cat p.pid >> pids
                touch begun; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.01; done";
    let before = sleeper(&stage, |spec| spec.control.start = Some(line.parse().unwrap()));
    let after = elsewhere(&stage);
    let start = stage.operate(0, "p", OperationKind::Start, &before).await;
    stage.until("begun").await;

    unregister(&mut stage, "p").await;
    stage.registered += 1;
    let (generation, spec) = (stage.registered, Some(after.clone()));
    let assign = Assign { generation, key: key("p"), spec, managed: false, registered_at: 2 };
    stage.say(FromServer::Assign { assignments: vec![assign] }).await;
    (stage, start, after)
}

fn elsewhere(stage: &Stage) -> Arc<Spec> {
    let pid_path = stage.path("elsewhere.pid");
    sleeper(stage, |spec| {
        let line = "sleep 1000 > /dev/null 2>&1 & echo $! > elsewhere.pid; cat elsewhere.pid >> pids";
        spec.identity.pid_path = pid_path.to_str().unwrap().parse().unwrap();
        spec.control.start = Some(line.parse().unwrap());
    })
}

/// Without a spec: what is registered is meant.
async fn ask(stage: &Stage, index: u32, kind: OperationKind) -> OperationId {
    let operation = OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
    stage.say(FromServer::Operate { operation, key: key("p"), kind, spec: None, expires_in: PATIENCE }).await;
    operation
}

async fn takes_over_no_life(mut stage: Stage, start: OperationId) {
    std::fs::write(stage.path("go"), "").unwrap();
    stage.outcome(start).await;
    let mut codes = Vec::new();
    for (index, kind) in [(1, OperationKind::Kill), (2, OperationKind::Start), (3, OperationKind::Kill)] {
        let operation = ask(&stage, index, kind).await;
        codes.push(stage.outcome(operation).await.code);
    }

    assert_eq!(codes, [Code::NotRunning, Code::Success, Code::Success]);
    let gone: Vec<bool> = numbers(&stage.path("pids")).into_iter().map(is_gone).collect();
    assert_eq!(gone, [false, true], "what the start brought is nobody's, and lives");
}

#[tokio::test]
async fn a_process_that_is_registered_elsewhere_during_an_operation_does_not_take_over_its_life() {
    let (stage, start, _) = registered_elsewhere_during_a_start().await;

    takes_over_no_life(stage, start).await;
}

#[tokio::test]
async fn a_registration_that_waits_for_the_end_of_an_operation_outlives_the_agent() {
    let (stage, start, _) = registered_elsewhere_during_a_start().await;
    let stage = stage.restarted().await;

    takes_over_no_life(stage, start).await;
}

#[tokio::test]
async fn a_release_on_the_host_of_a_registration_that_waits_outlives_the_ledger() {
    let (stage, _, after) = registered_elsewhere_during_a_start().await;
    stage.ask_locally("p", OperationKind::Release).await.await.unwrap();

    let mut stage = without_its_ledger(stage, &after, 2).await;

    assert!(!managed(&mut stage).await);
}

#[tokio::test]
async fn an_operation_on_a_registration_that_waits_is_checked_against_the_pid_file_of_that() {
    let (mut stage, start, after) = registered_elsewhere_during_a_start().await;
    let once = Arc::new({
        let mut spec = (*after).clone();
        spec.policy.lifetime = proctor_model::Lifetime::Once;
        spec
    });
    let rival = stage.operate(1, "rival", OperationKind::Manage, &once).await;
    assert_eq!(stage.outcome(rival).await.code, Code::Success, "a registration that waits alone holds nothing");

    let refused = ask(&stage, 2, OperationKind::Start).await;
    let refused = stage.outcome(refused).await;

    assert_eq!(refused.code, Code::CommandFailed);
    assert!(refused.message.contains("ns/rival"), "{}", refused.message);
    assert!(!stage.outcomes.contains_key(&start), "it goes on");
}

#[tokio::test]
async fn the_pid_file_of_a_registration_that_waits_is_held_by_an_operation_on_it() {
    let (mut stage, start, after) = registered_elsewhere_during_a_start().await;
    let manage = ask(&stage, 1, OperationKind::Manage).await;

    let rival = stage.operate(2, "rival", OperationKind::Start, &after).await;
    let refused = stage.outcome(rival).await;
    std::fs::write(stage.path("go"), "").unwrap();
    let managed = stage.outcome(manage).await;

    assert_eq!(refused.code, Code::CommandFailed);
    assert!(refused.message.contains("ns/p "), "{}", refused.message);
    assert_eq!((managed.code, managed.managed), (Code::Success, true));
    assert_eq!(stage.outcome(start).await.code, Code::Success);
}

#[tokio::test]
async fn a_registration_elsewhere_leaves_a_scheduled_run_to_itself() {
    let mut stage = Stage::new().await;
    let run = "echo $$ >> pids; touch begun; until [ -e go ] || [ ! -d $PWD ]; do sleep 0.01; done; touch done";
    let before = sleeper(&stage, |spec| {
        spec.control.start = Some(run.parse().unwrap());
        spec.policy.lifetime = proctor_model::Lifetime::Periodic;
        spec.policy.cycle = Some(1.try_into().unwrap());
    });
    let manage = stage.operate(0, "p", OperationKind::Manage, &before).await;
    assert_eq!(stage.outcome(manage).await.code, Code::Success);
    stage.until("begun").await;

    let (spec, generation) = (Some(elsewhere(&stage)), stage.registered + 1);
    let assign = Assign { generation, key: key("p"), spec, managed: false, registered_at: 2 };
    stage.say(FromServer::Assign { assignments: vec![assign] }).await;
    let start = ask(&stage, 1, OperationKind::Start).await;
    let started = stage.outcome(start).await;
    let kill = ask(&stage, 2, OperationKind::Kill).await;
    let killed = stage.outcome(kill).await;
    std::fs::write(stage.path("go"), "").unwrap();

    assert_eq!((started.code, killed.code), (Code::Success, Code::Success), "{} {}", started.message, killed.message);
    stage.until("done").await;
}

#[tokio::test]
async fn b6_an_older_agent_that_does_not_know_of_registrations_that_wait_is_told_of_everything_again() {
    let (mut stage, start, _) = registered_elsewhere_during_a_start().await;
    let disk = rusqlite::Connection::open(stage.path("ledger.db")).unwrap();
    disk.busy_timeout(PATIENCE).unwrap();
    let generation = || -> String {
        disk.query_row("SELECT value FROM fact WHERE name = 'generation'", [], |row| row.get(0)).unwrap()
    };

    mishaps::eventually("the ledger does not say that it was seen", || generation() == "1").await;
    std::fs::write(stage.path("go"), "").unwrap();
    stage.outcome(start).await;

    let seen = stage.registered.to_string();
    mishaps::eventually("it has taken effect", || generation() == seen).await;
}
