//! The agent's own end, and that of the host.

use std::time::Duration;

use proctor_model::{Code, OperationKind};

use super::world::Habits;
use super::{resident, running};

#[test]
fn after_an_agent_crash_the_process_is_adopted_untouched() {
    let mut world = running(Habits::default());
    let before = world.pid();

    world.crash_agent(true);
    world.pass(Duration::from_secs(100));

    assert_eq!(world.pid(), before);
    assert_eq!(world.launches.len(), 1);
    assert!(world.machine.managed());
}

#[test]
fn a_process_that_died_while_the_agent_was_down_is_relaunched() {
    let mut world = running(Habits::default());
    world.crash_agent(true);
    world.kill_outside();

    world.pass(Duration::from_secs(1));

    assert!(world.is_alive());
}

#[test]
fn after_a_reboot_a_managed_process_is_started_once() {
    let mut world = running(Habits::default());

    world.crash_agent(false);
    world.pass(Duration::from_secs(100));

    assert!(world.is_alive());
    assert_eq!(world.launches.len(), 2);
}

#[test]
fn a_start_whose_command_has_not_run_when_the_agent_crashes_goes_on_with_it() {
    let mut world = resident(Habits::default());
    world.crash_after = Some(2); // the look, then the intent is on disk and the command is not run
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_secs(100));

    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
    assert_eq!(world.launches.len(), 1);
}

#[test]
fn what_a_stop_was_to_end_when_the_agent_crashed_stays_down_when_it_dies_late() {
    let mut world = running(Habits::default());
    world.crash_after = Some(2); // the look, then the intent is on disk and the command is not run
    let stop = world.request(OperationKind::Stop);
    world.pass(Duration::from_secs(100));
    assert_eq!(world.outcome(stop).unwrap().code, Code::CheckFailed);
    assert!(world.is_alive());

    world.kill_outside();
    world.pass(Duration::from_secs(600));

    assert!(!world.is_alive() && !world.machine.managed());
}

#[test]
fn a_restart_that_is_cut_by_a_crash_anywhere_is_carried_on_and_says_so() {
    let mut failed = Vec::new();
    for crash_after in 0..24 {
        let mut world = running(Habits { children: 1, ..Habits::default() });
        world.crash_after = Some(crash_after);
        let before = world.pid();
        let restart = world.request(OperationKind::Restart);

        world.pass(Duration::from_secs(60));

        let outcome = world.outcome(restart).unwrap();
        let by_supervision = world.launches.iter().any(|(_, by_operation)| !by_operation);
        if outcome.code == Code::Success {
            assert!(world.pid() != before && !by_supervision, "after {crash_after} actions");
        } else {
            failed.push((outcome.code, outcome.message.to_string()));
        }
        assert!(world.is_alive() && world.machine.managed(), "after {crash_after} actions");
    }
    failed.dedup();
    // The command may have run, and is not run again.
    let of_stop = (Code::CheckFailed, "stop: process 102 is still alive after 5 s".to_owned());
    let of_start =
        (Code::CheckFailed, "restart: the process is not alive: pid 102 of /run/p.pid does not run".to_owned());
    assert_eq!(failed, [of_stop, of_start]);
}

#[test]
fn a_restart_whose_time_was_over_while_the_agent_was_down_says_who_starts_the_process() {
    let mut world = running(Habits::default());
    let restart = world.request(OperationKind::Restart);
    while world.is_alive() {
        world.pass(Duration::from_millis(1));
    }
    world.suspend(Duration::from_secs(3600));

    world.crash_agent(true);
    world.pass(Duration::from_secs(20));

    let outcome = world.outcome(restart).unwrap();
    assert_eq!(outcome.code, Code::CommandFailed);
    assert!(outcome.message.ends_with("it is managed, so it is started now by supervision"), "{}", outcome.message);
    assert!(world.is_alive());
}

#[test]
fn a_kill_interrupted_by_a_crash_spares_a_life_that_somebody_started_meanwhile() {
    let mut world = running(Habits::default());
    world.crash_after = Some(2); // the look, then the intent is on disk and nothing is killed
    let kill = world.request(OperationKind::Kill);
    world.pass(Duration::from_millis(2));
    world.kill_outside();
    world.start_by_hand();
    world.crash_agent(true);
    let by_hand = world.pid();

    world.pass(Duration::from_secs(60));

    assert_eq!(world.outcome(kill).unwrap().code, Code::Success);
    assert_eq!(world.pid(), by_hand);
}

#[test]
fn a_life_that_a_stop_was_carried_out_on_is_not_started_again_after_a_reboot() {
    for patience in [Duration::from_millis(100), Duration::from_secs(30)] {
        let mut world = running(Habits { dies_after_ms: None, ..Habits::default() });
        let stop = world.request(OperationKind::Stop);
        world.pass(patience); // the stop is under way, or has failed
        assert!(world.is_alive() && world.machine.managed());

        world.crash_agent(false);
        world.pass(Duration::from_secs(100));

        assert!(!world.outcome(stop).unwrap().code.is_success());
        assert!(!world.is_alive() && !world.machine.managed(), "after {patience:?}");
        assert_eq!(world.launches.len(), 1);
    }
}

#[test]
fn a_kill_that_only_clears_leftovers_spares_a_life_that_somebody_starts_while_the_agent_is_down() {
    let mut world = running(Habits { children: 2, killed_after_ms: 10, ..Habits::default() });
    world.habits.children = 0;
    let kill = world.request(OperationKind::Kill);
    while world.is_alive() {
        world.pass(Duration::from_millis(1));
    }
    world.pass(Duration::from_millis(1)); // its leftovers are being cleared
    assert!(world.outcome(kill).is_none() && world.machine.life().is_none());
    world.start_by_hand();
    let by_hand = world.pid();
    world.crash_agent(true);

    world.pass(Duration::from_secs(60));

    assert_eq!(world.outcome(kill).unwrap().code, Code::Success);
    assert!(by_hand.is_some() && world.pid() == by_hand);
}

#[test]
fn a_start_command_that_is_the_process_itself_outlives_an_agent_that_was_away_for_longer_than_its_time() {
    let mut world = resident(Habits { foreground: true, ..Habits::default() });
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(1));
    let before = world.pid();
    assert!(before.is_some() && world.outcome(start).is_none(), "it is being checked");

    world.suspend(Duration::from_secs(3600));
    world.crash_agent(true);
    world.pass(Duration::from_secs(60));

    assert_eq!(world.pid(), before);
    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
}
