//! Operations that are taken back.

use std::time::Duration;

use proctor_model::{Code, Lifetime, OperationKind, Phase};

use super::world::{Habits, World, spec};
use super::{code_of, period, resident, running};

#[test]
fn a_cancelled_operation_that_waits_never_runs() {
    let mut world = running(Habits::default());
    let restart = world.request(OperationKind::Restart);
    let stop = world.request(OperationKind::Stop);

    world.cancel(stop);

    assert_eq!(world.outcome(stop).unwrap().code, Code::Cancelled);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.outcome(restart).unwrap().code, Code::Success);
    assert!(world.is_alive() && world.machine.managed() && !world.ran.contains(&stop));
}

#[test]
fn a_cancelled_start_kills_its_command_and_leaves_nothing_behind() {
    let mut world = resident(Habits { start_takes_ms: 30_000, ..Habits::default() });
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(1));

    world.cancel(start);
    world.pass(Duration::from_secs(1));

    let outcome = world.outcome(start).unwrap();
    assert_eq!(outcome.code, Code::Cancelled);
    assert!(
        outcome.message.contains("start command") && outcome.message.contains("no process is running"),
        "{outcome:?}"
    );
    world.pass(Duration::from_secs(600));
    assert!(!world.is_alive() && !world.machine.managed());
}

#[test]
fn a_start_that_is_cancelled_while_it_settles_says_who_runs_and_manages_nothing() {
    let mut world = resident(Habits::default());
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(2));

    world.cancel(start);

    let outcome = world.outcome(start).unwrap();
    assert_eq!(outcome.code, Code::Cancelled);
    assert!(outcome.message.contains(&format!("process {} is running", world.pid().unwrap())), "{outcome:?}");
    assert!(!outcome.managed && !world.machine.managed());
}

#[test]
fn a_cancelled_stop_leaves_the_process_managed() {
    let mut world = running(Habits { stop_takes_ms: 30_000, ..Habits::default() });
    let before = world.pid();
    let stop = world.request(OperationKind::Stop);
    world.pass(Duration::from_secs(1));

    world.cancel(stop);
    world.pass(Duration::from_secs(100));

    assert_eq!(world.outcome(stop).unwrap().code, Code::Cancelled);
    assert_eq!((world.pid(), world.machine.managed(), world.machine.phase()), (before, true, Phase::Running));
}

#[test]
fn what_a_cancelled_stop_or_kill_has_touched_is_not_started_again_when_it_dies_late() {
    let slow = Habits { dies_after_ms: Some(3000), killed_after_ms: 3000, ..Habits::default() };
    for (kind, crash) in [(OperationKind::Kill, false), (OperationKind::Stop, false), (OperationKind::Kill, true)] {
        for by_command in [false, true] {
            let spec = spec(|spec| spec.control.stop = spec.control.stop.take().filter(|_| by_command));
            let mut world = World::new(spec, slow.clone());
            assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);
            let launches = world.launches.len();
            let operation = world.request(kind);
            world.pass(Duration::from_secs(1));

            world.cancel(operation);
            if crash {
                world.crash_agent(true);
            }
            world.pass(Duration::from_secs(600));

            assert_eq!(world.outcome(operation).unwrap().code, Code::Cancelled);
            assert_eq!((world.is_alive(), world.launches.len()), (false, launches), "{kind}");
            assert!(!world.machine.managed());
        }
    }
}

#[test]
fn a_reload_that_is_cancelled_or_refused_does_not_bring_back_what_a_stop_has_failed_on() {
    for (break_off, code) in
        [(World::cancel as fn(&mut World, _), Code::Cancelled), (World::refuse, Code::CommandFailed)]
    {
        let spec = spec(|spec| spec.control.reload = Some("reload".parse().unwrap()));
        let mut world = World::new(spec, Habits { dies_after_ms: Some(60_000), ..Habits::default() });
        code_of(&mut world, OperationKind::Start);
        let stop = world.request(OperationKind::Stop);
        world.pass(Duration::from_secs(30));
        assert_eq!(world.outcome(stop).unwrap().code, Code::CheckFailed);

        let reload = world.request(OperationKind::Reload);
        world.pass(Duration::from_millis(5));
        break_off(&mut world, reload);
        world.pass(Duration::from_secs(600));

        assert_eq!(world.outcome(reload).unwrap().code, code);
        assert!(!world.is_alive() && !world.machine.managed());
    }
}

#[test]
fn a_start_or_restart_that_is_cancelled_before_it_does_anything_does_not_bring_back_what_a_stop_has_failed_on() {
    for kind in [OperationKind::Start, OperationKind::Restart] {
        for wait in [Duration::ZERO, Duration::from_millis(1)] {
            let mut world = running(Habits { dies_after_ms: Some(60_000), ..Habits::default() });
            let stop = world.request(OperationKind::Stop);
            world.pass(Duration::from_secs(30));
            assert_eq!(world.outcome(stop).unwrap().code, Code::CheckFailed);

            let operation = world.request(kind);
            world.pass(wait);
            if world.outcome(operation).is_some() {
                continue; // it was answered before, and an answered start takes the stop back
            }
            world.cancel(operation);
            world.pass(Duration::from_secs(600));

            assert!(!world.ran.contains(&operation));
            assert!(!world.is_alive() && !world.machine.managed(), "{kind} after {wait:?}");
        }
    }
}

#[test]
fn a_start_that_is_cancelled_before_it_does_anything_does_not_hide_that_supervision_has_given_up() {
    let mut world = running(Habits::default());
    world.habits.appears_after_ms = None;
    world.kill_outside();
    world.pass(Duration::from_secs(600));
    assert_eq!(world.machine.phase(), Phase::Failed);

    let start = world.request(OperationKind::Start);
    world.cancel(start);

    assert_eq!(world.outcome(start).unwrap().code, Code::Cancelled);
    assert_eq!(world.machine.phase(), Phase::Failed);
}

#[test]
fn a_stop_of_a_scheduled_run_that_is_cancelled_does_not_speak_for_a_later_one() {
    let spec = spec(|spec| {
        spec.policy.lifetime = Lifetime::Periodic;
        spec.policy.cycle = Some(period(60));
    });
    let mut world = World::new(spec, Habits { start_takes_ms: 60_000, appears_after_ms: None, ..Habits::default() });
    code_of(&mut world, OperationKind::Manage);
    world.due();
    world.pass(Duration::from_secs(1));
    let stop = world.request(OperationKind::Stop);
    world.cancel(stop);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.outcome(stop).unwrap().code, Code::Cancelled);

    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::NotRunning);
}

#[test]
fn a_stop_that_is_cancelled_before_its_command_begins_has_touched_nothing() {
    let mut world = running(Habits::default());
    let stop = world.request(OperationKind::Stop);
    world.pass(Duration::from_millis(1));
    world.cancel(stop);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.outcome(stop).unwrap().code, Code::Cancelled);
    assert!(!world.ran.contains(&stop));

    world.kill_outside();
    world.pass(Duration::from_secs(60));

    assert!(world.is_alive() && world.machine.managed());
}

#[test]
fn a_cancelled_restart_between_its_halves_is_left_to_supervision() {
    let mut world = running(Habits { dies_after_ms: Some(3000), ..Habits::default() });
    let restart = world.request(OperationKind::Restart);
    world.pass(Duration::from_secs(1));

    world.cancel(restart);
    world.pass(Duration::from_secs(10));

    assert_eq!(world.outcome(restart).unwrap().code, Code::Cancelled);
    assert!(world.is_alive() && world.machine.managed(), "it was asked to end, died, and is kept alive");
}

#[test]
fn a_cancel_of_what_has_ended_or_never_was_changes_nothing() {
    let mut world = running(Habits::default());
    let stop = world.request(OperationKind::Stop);
    world.pass(Duration::from_secs(10));
    let before = world.outcome(stop).cloned();

    world.cancel(stop);
    world.cancel(proctor_model::OperationId::first(proctor_model::TaskId::from_uuid(uuid::Uuid::max()), 3));
    world.pass(Duration::from_secs(10));

    assert_eq!(world.outcome(stop).cloned(), before);
}

#[test]
fn a_start_that_is_cancelled_after_a_crash_of_the_agent_ends_too() {
    let mut world = World::new(spec(|_| {}), Habits { start_takes_ms: 30_000, ..Habits::default() });
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(1));
    world.crash_agent(true);

    world.cancel(start);
    world.pass(Duration::from_secs(1));

    assert_eq!(world.outcome(start).unwrap().code, Code::Cancelled);
    world.pass(Duration::from_secs(600));
    assert!(!world.is_alive());
}
