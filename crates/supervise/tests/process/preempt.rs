//! Operators against supervision's own commands: a relaunch or a scheduled run that takes long.

use std::time::Duration;

use proctor_model::{Code, Lifetime, OperationKind, Phase};

use super::world::{Habits, World, spec};
use super::{code_of, period, running};

/// A managed process that has died, and whose start command takes ten minutes.
fn relaunching() -> World {
    let mut world = running(Habits::default());
    world.habits.start_takes_ms = 600_000;
    world.kill_outside();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.machine.phase(), Phase::Starting);
    world
}

/// A periodic process whose run takes ten minutes.
fn on_schedule() -> World {
    let spec = spec(|spec| {
        spec.policy.lifetime = Lifetime::Periodic;
        spec.policy.cycle = Some(period(60));
    });
    let mut world = World::new(spec, Habits { appears_after_ms: None, start_takes_ms: 600_000, ..Habits::default() });
    code_of(&mut world, OperationKind::Manage);
    world.due();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.machine.phase(), Phase::Running);
    assert!(world.machine.shown().is_some(), "a run under way shows its pid");
    world
}

#[test]
fn a_stop_or_kill_during_a_relaunch_ends_its_command_and_releases() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        let mut world = relaunching();
        let operation = world.request(kind);

        world.pass(Duration::from_secs(3));

        let outcome = world.outcome(operation).expect("it does not wait for the start command");
        assert_eq!(outcome.code, Code::NotRunning);
        assert!(!outcome.managed);
        world.pass(Duration::from_secs(3600));
        assert!(!world.is_alive(), "nothing is started after it");
    }
}

#[test]
fn a_stop_or_kill_does_not_wait_for_supervision_behind_another_operation() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        for mut world in [relaunching(), on_schedule()] {
            world.request(OperationKind::Reload);
            world.pass(Duration::from_secs(1));
            let operation = world.request(kind);

            world.pass(Duration::from_secs(5));

            let outcome = world.outcome(operation).expect("it does not wait for supervision's command");
            assert!(matches!(outcome.code, Code::NotRunning | Code::Success), "{outcome:?}");
            assert!(!world.machine.managed());
        }
    }
}

#[test]
fn a_reload_of_a_run_without_a_known_process_is_answered_at_once() {
    let mut world = on_schedule();

    let operation = world.request(OperationKind::Reload);

    let outcome = world.outcome(operation).expect("it does not wait for the end of the run");
    assert_eq!(outcome.code, Code::CommandFailed);
    assert_eq!(outcome.message.to_string(), "reload: nothing was done: a scheduled run is in progress");
}

#[test]
fn operations_do_not_wait_for_supervision_after_a_restart_of_the_agent() {
    for kind in [OperationKind::Stop, OperationKind::Kill, OperationKind::Start, OperationKind::Reload] {
        let mut world = on_schedule();
        world.crash_agent(true);
        let operation = world.request(kind);

        world.pass(Duration::from_secs(5));

        assert!(world.outcome(operation).is_some(), "a {kind} waits for the end of the run");
    }
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        let mut world = relaunching();
        world.crash_agent(true);
        let operation = world.request(kind);

        world.pass(Duration::from_secs(5));

        assert!(world.outcome(operation).is_some(), "a {kind} waits for the start command");
        world.pass(Duration::from_secs(3600));
        assert!(!world.is_alive(), "nothing is started after it");
    }
}

#[test]
fn a_release_behind_another_operation_waits_for_no_relaunch() {
    for before in [OperationKind::Reload, OperationKind::Start] {
        let mut world = relaunching();
        world.habits.start_takes_ms = 20;
        let first = world.request(before);
        let release = world.request(OperationKind::Release);

        world.pass(Duration::from_secs(30));

        assert!(world.outcome(first).is_some());
        assert_eq!(world.outcome(release).expect("it does not wait for the start command").code, Code::Success);
        assert!(!world.machine.managed(), "what was asked for last counts");
    }
}

#[test]
fn a_restart_during_a_relaunch_does_not_wait_for_its_command() {
    let mut world = relaunching();
    world.habits.start_takes_ms = 20;
    let restart = world.request(OperationKind::Restart);

    world.pass(Duration::from_secs(20));

    assert_eq!(world.outcome(restart).unwrap().code, Code::Success);
    assert!(world.is_alive());
}

#[test]
fn a_release_takes_effect_at_once_during_a_relaunch_and_a_run() {
    for mut world in [relaunching(), on_schedule()] {
        let operation = world.request(OperationKind::Release);

        let outcome = world.outcome(operation).expect("at once");
        assert_eq!(outcome.code, Code::Success);
        assert!(!world.machine.managed());
        world.pass(Duration::from_secs(700));
        assert!(!world.machine.managed(), "what was under way has ended and changes nothing");
    }
}

#[test]
fn a_stop_or_kill_of_a_scheduled_run_ends_it() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        let mut world = on_schedule();
        let operation = world.request(kind);

        world.pass(Duration::from_secs(3));

        assert_eq!(world.outcome(operation).expect("it does not wait for the run").code, Code::Success);
        assert!(!world.machine.managed() && !world.machine.is_busy());
        assert!(world.machine.shown().is_none());
    }
}

#[test]
fn a_start_during_a_scheduled_run_is_told_that_it_runs() {
    let mut world = on_schedule();

    let start = world.request(OperationKind::Start);

    assert_eq!(world.outcome(start).expect("at once").code, Code::AlreadyRunning);
}

#[test]
fn an_unregistered_run_goes_on_to_its_end_and_none_follows() {
    let mut world = on_schedule();

    world.forget();
    world.pass(Duration::from_secs(300));
    assert!(world.machine.is_busy(), "it goes on");
    world.pass(Duration::from_secs(400));

    assert!(world.machine.can_be_dropped());
}

#[test]
fn a_kill_during_an_eviction_does_not_wait_for_its_stop_command() {
    let mut world = running(Habits { stop_takes_ms: 9000, dies_after_ms: None, ..Habits::default() });
    world.exceed_cpu();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.machine.phase(), Phase::Stopping);
    let kill = world.request(OperationKind::Kill);

    world.pass(Duration::from_secs(2));

    assert_eq!(world.outcome(kill).expect("it does not wait").code, Code::NotRunning);
    assert!(!world.is_alive() && !world.machine.managed());
}

#[test]
fn a_release_before_the_stop_command_of_an_eviction_has_begun_spares_the_process() {
    let mut world = running(Habits::default());
    world.exceed_cpu();
    let pid = world.pid();

    let release = world.request(OperationKind::Release);
    world.pass(Duration::from_secs(60));

    assert_eq!(world.outcome(release).unwrap().message, "success");
    assert_eq!(world.pid(), pid, "nothing had been done to it");
}

#[test]
fn a_release_during_an_eviction_says_that_the_process_is_being_ended() {
    for stop_takes_ms in [20, 9000] {
        let mut world = running(Habits { stop_takes_ms, dies_after_ms: Some(5000), ..Habits::default() });
        world.exceed_cpu();
        world.pass(Duration::from_secs(1));

        let release = world.request(OperationKind::Release);
        let outcome = world.outcome(release).expect("at once").clone();
        world.pass(Duration::from_secs(600));

        assert_eq!(outcome.code, Code::Success);
        assert!(outcome.message.contains("already being ended for its use of resources"), "{}", outcome.message);
        assert!(!world.is_alive() && !world.machine.managed());
    }
}

#[test]
fn a_released_process_is_not_brought_up_by_a_relaunch_whose_start_command_hangs() {
    for unregistered in [false, true] {
        let mut world = relaunching();
        match unregistered {
            true => world.forget(),
            false => drop(world.request(OperationKind::Release)),
        }

        world.pass(Duration::from_secs(3600));

        assert!(!world.is_alive() && !world.machine.managed());
    }
}

#[test]
fn a_stop_or_kill_does_not_wait_for_a_start_that_hangs() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        for waits in [0, 30] {
            let hanging = Habits { start_takes_ms: 600_000, start_forks: 2, ..Habits::default() };
            let mut world = World::new(spec(|spec| spec.policy.op_timeout = super::secs(600)), hanging);
            let start = world.request(OperationKind::Start);
            world.pass(Duration::from_secs(waits));

            let later = world.request(kind);
            world.pass(Duration::from_secs(8));

            let outcome = world.outcome(start).expect("it gives way");
            assert_eq!(outcome.code, Code::CommandFailed);
            let expected =
                format!("the start was interrupted by a later {kind} while its start command was in progress");
            assert!(outcome.message.starts_with(&expected), "{}", outcome.message);
            assert_eq!(world.outcome(later).expect("it does not wait").code, Code::NotRunning);
            assert_eq!((world.descendants(), world.is_alive(), world.machine.managed()), (0, false, false));
        }
    }
}

#[test]
fn a_kill_does_not_wait_for_a_stop_that_hangs_nor_for_a_long_check() {
    let mut stopping = running(Habits { stop_takes_ms: 50_000, ..Habits::default() });
    let stop = stopping.request(OperationKind::Stop);
    let mut checked = World::new(spec(|spec| spec.policy.start_check = super::secs(300)), Habits::default());
    let start = checked.request(OperationKind::Start);
    for (mut world, earlier) in [(stopping, stop), (checked, start)] {
        world.pass(Duration::from_secs(1));

        let kill = world.request(OperationKind::Kill);
        world.pass(Duration::from_secs(20));

        let message = &world.outcome(earlier).expect("it gives way").message;
        assert!(message.contains("was interrupted by a later kill"), "{message}");
        assert_eq!(world.outcome(kill).expect("it does not wait").code, Code::Success);
        assert!(!world.is_alive() && !world.machine.managed());
    }
}

#[test]
fn a_start_in_the_foreground_that_gives_way_to_a_stop_is_stopped_by_its_command() {
    let foreground = Habits { foreground: true, ..Habits::default() };
    let mut world = World::new(spec(|spec| spec.policy.start_check = super::secs(300)), foreground);
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(10));
    assert!(world.is_alive());

    let stop = world.request(OperationKind::Stop);
    world.pass(Duration::from_secs(5));

    assert_eq!(world.outcome(start).unwrap().code, Code::CommandFailed);
    assert_eq!(world.outcome(stop).unwrap().code, Code::Success);
    assert!(world.ran.contains(&stop), "by its stop command");
}

#[test]
fn nobody_gives_way_to_a_stop_whose_time_is_over_first() {
    let mut world = World::new(spec(|_| {}), Habits { start_takes_ms: 20_000, ..Habits::default() });
    let start = world.request(OperationKind::Start);

    let stop = world.request_until(OperationKind::Stop, Duration::from_secs(2));
    world.pass(Duration::from_secs(60));

    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
    assert_eq!(world.outcome(stop).unwrap().code, Code::CommandFailed);
}

#[test]
fn a_stop_that_waits_for_an_eviction_is_answered_when_the_process_is_unregistered() {
    let mut world = running(Habits::default());
    world.exceed_cpu();
    let stop = world.request(OperationKind::Stop);

    world.forget();
    world.pass(Duration::from_secs(60));

    assert_eq!(world.outcome(stop).expect("it does not wait for ever").code, Code::Success);
    assert!(world.machine.can_be_dropped());
}
