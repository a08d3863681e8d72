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
fn a_crash_between_intent_and_command_ends_the_start_without_running_it() {
    let mut world = resident(Habits::default());
    world.crash_after = Some(2); // the look, then the intent is on disk and the command is not run
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_secs(100));

    let outcome = world.outcome(start).unwrap();
    assert_eq!(outcome.code, Code::CommandFailed);
    assert_eq!(outcome.message, "the agent restarted before the start command was run");
    assert_eq!(world.launches.len(), 0);
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
