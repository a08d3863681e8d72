//! The process machine in virtual time: rules one by one, then under random events and crashes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cancel;
mod scenarios;
mod world;

use std::time::Duration;

use proctor_model::{Code, Lifetime, OperationKind, Phase, Seconds};
use proctor_supervise::{Notice, Time};
use proptest::prelude::*;
use world::{Habits, Mark, World, spec};

fn secs(secs: u32) -> Seconds {
    Seconds::try_from(secs).unwrap()
}

fn resident(habits: Habits) -> World {
    World::new(spec(|_| {}), habits)
}

fn running(habits: Habits) -> World {
    let mut world = resident(habits);
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
    world
}

fn code_of(world: &mut World, kind: OperationKind) -> Code {
    let operation = world.request(kind);
    world.pass(Duration::from_secs(80));
    world.outcome(operation).expect("every operation ends").code
}

#[test]
fn a_start_succeeds_when_the_process_has_lived_through_its_check() {
    let mut world = resident(Habits::default());
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_millis(4900));
    assert_eq!(world.outcome(start), None);
    assert_eq!(world.machine.phase(), Phase::Starting);
    world.pass(Duration::from_millis(300));

    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
    assert!(world.machine.managed());
    assert_eq!(world.machine.phase(), Phase::Running);
}

#[test]
fn a_start_without_a_check_succeeds_as_soon_as_the_process_is_found() {
    let mut world = World::new(spec(|spec| spec.policy.start_check = secs(0)), Habits::default());
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_millis(200));

    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
}

#[test]
fn a_start_of_a_running_process_runs_nothing() {
    let mut world = running(Habits::default());

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::AlreadyRunning);
    assert_eq!(world.launches.len(), 1);
}

#[test]
fn a_start_that_leaves_no_process_fails_its_check_and_is_not_managed() {
    let mut world = resident(Habits { appears_after_ms: None, ..Habits::default() });

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::CheckFailed);
    assert!(!world.machine.managed());
}

#[test]
fn a_process_that_dies_inside_its_check_fails_the_start_at_once() {
    let mut world = resident(Habits { lives_ms: Some(1000), ..Habits::default() });
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_millis(1200));

    assert_eq!(world.outcome(start).unwrap().code, Code::CheckFailed);
}

#[test]
fn a_failing_start_command_gives_its_output_and_adopts_what_it_left() {
    let habits = Habits { start_exit: 3, appears_after_ms: Some(0), ..Habits::default() };
    let mut world = resident(habits);
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_secs(1));

    let outcome = world.outcome(start).unwrap();
    assert_eq!((outcome.code, outcome.message.as_str()), (Code::CommandFailed, "exit 3"));
    assert_eq!(world.machine.life().map(|life| life.pid), world.pid());
}

#[test]
fn a_stop_ends_when_the_process_is_gone_and_is_never_undone() {
    let mut world = running(Habits::default());
    let stop = world.request(OperationKind::Stop);

    world.pass(Duration::from_millis(100));

    assert_eq!(world.outcome(stop).unwrap().code, Code::Success);
    world.pass(Duration::from_secs(600));
    assert!(!world.is_alive());
    assert!(!world.machine.managed());
}

#[test]
fn a_stop_of_a_process_that_does_not_care_fails_with_a_message_that_begins_with_stop() {
    let mut world = running(Habits { dies_after_ms: None, ..Habits::default() });
    let stop = world.request(OperationKind::Stop);

    world.pass(Duration::from_secs(10));

    let outcome = world.outcome(stop).unwrap();
    assert_eq!(outcome.code, Code::CheckFailed);
    assert!(outcome.message.starts_with("stop"), "{}", outcome.message);
    assert!(world.machine.managed());
}

#[test]
fn a_stop_command_that_fails_after_it_worked_is_a_success() {
    let habits = Habits { stop_exit: 1, dies_after_ms: Some(0), ..Habits::default() };
    let mut world = running(habits);

    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::Success);
}

#[test]
fn a_stop_of_a_stopped_process_says_so() {
    let mut world = resident(Habits::default());

    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::NotRunning);
}

#[test]
fn a_stop_between_two_relaunches_ends_them() {
    let mut world = running(Habits { lives_ms: Some(7000), ..Habits::default() });
    while world.machine.phase() != Phase::Waiting {
        world.pass(Duration::from_millis(100));
    }

    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::NotRunning);

    assert!(!world.machine.managed());
    assert!(!world.is_alive());
}

#[test]
fn a_kill_gets_the_tree_where_nothing_else_helps() {
    let mut world = running(Habits { dies_after_ms: None, ..Habits::default() });

    assert_eq!(code_of(&mut world, OperationKind::Kill), Code::Success);
    assert!(!world.is_alive());
    assert!(!world.machine.managed());
}

#[test]
fn a_restart_without_a_command_stops_and_starts() {
    let mut world = running(Habits::default());
    let before = world.pid();

    assert_eq!(code_of(&mut world, OperationKind::Restart), Code::Success);
    assert!(world.is_alive());
    assert_ne!(world.pid(), before);
}

#[test]
fn a_restart_needs_a_new_life() {
    let spec = spec(|spec| spec.control.restart = Some("restart".parse().unwrap()));
    let mut world = World::new(spec, Habits::default());

    assert_eq!(code_of(&mut world, OperationKind::Restart), Code::Success);
    let before = world.pid();
    assert_eq!(code_of(&mut world, OperationKind::Restart), Code::Success);
    assert_ne!(world.pid(), before);
}

#[test]
fn a_reload_keeps_the_life_and_the_management() {
    let spec = spec(|spec| spec.control.reload = Some("reload".parse().unwrap()));
    let mut world = World::new(spec, Habits::default());
    assert_eq!(code_of(&mut world, OperationKind::Reload), Code::NotRunning);
    code_of(&mut world, OperationKind::Start);
    let before = world.pid();

    assert_eq!(code_of(&mut world, OperationKind::Reload), Code::Success);
    assert_eq!(world.pid(), before);
    assert!(world.machine.managed());
}

#[test]
fn manage_of_a_dead_resident_process_starts_it_and_release_leaves_it_alone() {
    let mut world = resident(Habits::default());
    assert_eq!(code_of(&mut world, OperationKind::Manage), Code::Success);
    assert!(world.is_alive());

    assert_eq!(code_of(&mut world, OperationKind::Release), Code::Success);
    world.kill_outside();
    world.pass(Duration::from_secs(100));

    assert!(!world.is_alive());
}

#[test]
fn a_killed_process_is_back_at_once() {
    let mut world = running(Habits::default());
    world.pass(Duration::from_secs(100));
    let before = world.pid();

    world.kill_outside();
    world.pass(Duration::from_millis(200));

    assert!(world.is_alive());
    assert_ne!(world.pid(), before);
}

#[test]
fn a_crash_loop_ends_after_the_retries_with_one_notice() {
    let mut world = running(Habits { lives_ms: Some(6000), ..Habits::default() });

    world.pass(Duration::from_secs(600));

    let relaunches: Vec<_> = world.launches.iter().filter(|(_, by_operation)| !by_operation).collect();
    assert_eq!(relaunches.len(), 4);
    for pair in relaunches.windows(2) {
        assert!(pair[1].0.since(pair[0].0) >= Duration::from_secs(10));
    }
    let given_up = world.notices.iter().filter(|(_, notice)| matches!(notice, Notice::GaveUp { .. })).count();
    assert_eq!(given_up, 1);
    assert_eq!(world.machine.phase(), Phase::Failed);
    assert!(!world.machine.managed());
}

#[test]
fn a_stable_run_starts_the_count_anew() {
    let mut world = running(Habits { lives_ms: Some(100_000), ..Habits::default() });

    world.pass(Duration::from_secs(10_000));

    assert!(world.machine.managed());
    assert!(world.launches.len() > 50);
}

#[test]
fn a_once_process_may_have_ended_and_is_not_relaunched() {
    let spec = spec(|spec| spec.policy.lifetime = Lifetime::Once);
    let mut world = World::new(spec, Habits { appears_after_ms: None, ..Habits::default() });

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);
    world.pass(Duration::from_secs(600));

    assert_eq!(world.launches.len(), 1);
}

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
fn a_process_that_uses_too_much_is_ended_and_comes_back_later_each_time() {
    let mut world = running(Habits::default());
    let mut waits = Vec::new();

    for _ in 0..3 {
        let condemned = world.now;
        let before = world.pid();
        world.exceed();
        while world.pid().is_none() || world.pid() == before {
            world.pass(Duration::from_millis(100));
        }
        waits.push(world.now.since(condemned));
        world.pass(Duration::from_secs(10));
    }

    assert!(world.machine.managed(), "it stays managed");
    assert!(waits[0] >= Duration::from_secs(10) && waits[1] >= Duration::from_secs(20), "{waits:?}");
    assert!(waits[2] >= Duration::from_secs(40), "{waits:?}");
    let told = world.notices.iter().filter(|(_, notice)| matches!(notice, Notice::Exceeded(_))).count();
    assert_eq!(told, 3);
}

#[test]
fn a_process_over_its_limit_that_ignores_its_stop_command_is_killed() {
    let mut world = running(Habits { dies_after_ms: None, ..Habits::default() });
    let before = world.pid();

    world.exceed();
    world.pass(Duration::from_secs(15));

    assert_ne!(world.pid(), before);
}

#[test]
fn an_excess_of_an_earlier_life_condemns_nobody() {
    let mut world = running(Habits::default());
    let pid = world.pid();

    world.exceed_as(100);
    world.pass(Duration::from_secs(60));

    assert_eq!(world.pid(), pid);
}

#[test]
fn a_released_process_is_not_ended_for_its_use() {
    let mut world = running(Habits::default());
    code_of(&mut world, OperationKind::Release);

    world.exceed();
    world.pass(Duration::from_secs(60));

    assert!(world.is_alive());
}

fn checked_by_health(healthy: bool) -> World {
    let spec = spec(|spec| spec.control.health = Some("health".parse().unwrap()));
    let mut world = World::new(spec, Habits::default());
    world.request(OperationKind::Start);
    world.pass(Duration::from_secs(10));
    world.habits.healthy = healthy;
    world
}

#[test]
fn g3_an_unhealthy_process_is_restarted_inside_its_retry_limits() {
    let mut world = checked_by_health(false);

    world.pass(Duration::from_secs(3600));

    assert!(world.notices.iter().any(|(_, n)| matches!(n, Notice::HealthChanged { healthy: false, .. })));
    let relaunches = world.launches.iter().filter(|(_, by_operation)| !by_operation).count();
    assert!(relaunches >= 4, "{relaunches}");
}

#[test]
fn a_health_command_that_got_no_turn_says_nothing_of_the_process() {
    let mut world = checked_by_health(false);
    world.habits.health_postponed = true;
    let before = world.pid();

    world.pass(Duration::from_secs(3600));

    assert_eq!(world.pid(), before);
    assert_eq!(world.machine.health(), "");
}

#[test]
fn g2_health_is_not_asked_during_the_grace_after_a_start() {
    let spec = spec(|spec| {
        spec.control.health = Some("health".parse().unwrap());
        spec.policy.health.grace = secs(100);
    });
    let mut world = World::new(spec, Habits { healthy: false, ..Habits::default() });
    world.request(OperationKind::Start);

    world.pass(Duration::from_secs(99));

    assert_eq!(world.machine.health(), "");
    assert!(world.is_alive());
}

#[test]
fn g1_a_failed_check_or_two_change_nothing() {
    let mut world = checked_by_health(false);
    let before = world.pid();
    world.pass(Duration::from_secs(60));

    world.habits.healthy = true;
    world.pass(Duration::from_secs(600));

    assert_eq!(world.pid(), before);
    assert_eq!(world.machine.health(), "healthy");
}

#[test]
fn a_start_command_that_is_the_process_itself_is_not_killed_at_its_timeout() {
    let mut world = resident(Habits { foreground: true, ..Habits::default() });

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);
    let before = world.pid();
    world.pass(Duration::from_secs(600));

    assert_eq!(world.pid(), before);
    world.kill_outside();
    world.pass(Duration::from_secs(1));
    assert!(world.is_alive(), "it is kept alive like any other");
}

#[test]
fn a_periodic_process_runs_when_due_and_not_while_it_runs() {
    let spec = spec(|spec| {
        spec.policy.lifetime = Lifetime::Periodic;
        spec.policy.cycle = Some(secs(60));
    });
    let mut world = World::new(spec, Habits { appears_after_ms: None, start_takes_ms: 5000, ..Habits::default() });
    code_of(&mut world, OperationKind::Manage);
    assert_eq!(world.launches.len(), 0, "managing does not run it");

    world.due();
    assert!(world.machine.is_busy());
    world.due();
    world.pass(Duration::from_secs(60));
    world.due();
    world.pass(Duration::from_secs(60));

    assert_eq!(world.launches.len(), 2);
    let ends = world.notices.iter().filter(|(_, notice)| matches!(notice, Notice::RunEnded { .. })).count();
    assert_eq!(ends, 2);
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
fn an_operation_that_waits_does_not_bring_an_older_spec_back() {
    let mut world = running(Habits::default());
    world.request(OperationKind::Restart);
    let newer = spec(|spec| spec.policy.start_retries = 9);
    world.assign(1, newer);

    world.pass(Duration::from_secs(60));

    assert_eq!(world.machine.spec().policy.start_retries, 9);
}

#[test]
fn who_is_unregistered_during_its_start_is_not_managed() {
    let mut world = resident(Habits::default());
    world.request(OperationKind::Start);
    world.pass(Duration::from_secs(1));

    world.forget();
    world.pass(Duration::from_secs(60));
    world.kill_outside();
    world.pass(Duration::from_secs(60));

    assert!(!world.is_alive());
}

#[test]
fn who_was_unregistered_and_registered_again_is_released() {
    let mut world = running(Habits::default());

    world.assign(2, spec(|_| {}));

    assert!(!world.machine.managed());
}

#[test]
fn a_stop_does_not_wait_for_a_long_search_of_supervision() {
    let spec = spec(|spec| spec.policy.start_check = secs(600));
    let mut world = World::new(spec, Habits { appears_after_ms: None, ..Habits::default() });
    world.request(OperationKind::Manage);
    world.pass(Duration::from_secs(10));
    let stop = world.request(OperationKind::Stop);

    world.pass(Duration::from_secs(10));

    assert_eq!(world.outcome(stop).unwrap().code, Code::NotRunning);
    assert!(!world.machine.managed());
}

#[test]
fn a_once_process_is_not_judged_by_the_end_of_an_earlier_run() {
    let spec = spec(|spec| spec.policy.lifetime = Lifetime::Once);
    let mut world = World::new(spec, Habits { lives_ms: Some(1000), ..Habits::default() });
    code_of(&mut world, OperationKind::Start);

    world.habits = Habits { appears_after_ms: None, ..Habits::default() };

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);
}

#[test]
fn managing_a_process_without_a_start_command_keeps_its_intervals_and_ends() {
    let mut world = World::new(spec(|spec| spec.control.start = None), Habits::default());
    world.request(OperationKind::Manage);

    world.pass(Duration::from_secs(1));
    assert_eq!(world.machine.phase(), Phase::Waiting);
    world.pass(Duration::from_secs(100));

    assert_eq!(world.machine.phase(), Phase::Failed);
}

#[derive(Clone, Debug)]
enum Step {
    Request(OperationKind),
    /// The operation of that place among those so far, counted from the last.
    Cancel(usize),
    KillOutside,
    Crash,
    CrashAfter(usize),
    Reboot,
    Pass(u64),
    Habits(Habits),
    Exceed,
}

fn any_habits() -> impl Strategy<Value = Habits> {
    (
        0..3000u64,
        prop_oneof![8 => Just(0), 1 => Just(1)],
        prop_oneof![6 => (0..4000u64).prop_map(Some), 1 => Just(None)],
        prop_oneof![2 => Just(None), 1 => (1..90_000u64).prop_map(Some)],
        0..3000u64,
        prop_oneof![4 => Just(0), 1 => Just(1)],
        prop_oneof![4 => (0..8000u64).prop_map(Some), 1 => Just(None)],
    )
        .prop_map(|(start_takes_ms, start_exit, appears, lives_ms, stop_takes_ms, stop_exit, dies_after_ms)| {
            Habits {
                start_takes_ms,
                start_exit,
                // What a failing start command leaves behind is there when it ends, or never comes:
                // nobody can know of a process that such a command starts later.
                appears_after_ms: if start_exit == 0 { appears } else { appears.filter(|after| *after == 0) },
                lives_ms,
                stop_takes_ms,
                stop_exit,
                dies_after_ms,
                foreground: false,
                healthy: true,
                health_postponed: false,
            }
        })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::sample::select(OperationKind::ALL.to_vec())
            .prop_filter("status never reaches the machine", |kind| *kind != OperationKind::Status)
            .prop_map(Step::Request),
        2 => (0..4usize).prop_map(Step::Cancel),
        3 => Just(Step::KillOutside),
        1 => Just(Step::Crash),
        2 => (0..6usize).prop_map(Step::CrashAfter),
        1 => Just(Step::Reboot),
        6 => (0..30_000u64).prop_map(Step::Pass),
        2 => any_habits().prop_map(Step::Habits),
        1 => Just(Step::Exceed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// The world itself asserts: never two start commands in flight, never a second copy, no
    /// signal to a life that was not looked up, no operation that ends or begins twice, no command
    /// of an operation that was cancelled before it began.
    #[test]
    fn whatever_happens_every_operation_ends_once_and_retries_stay_inside_policy(
        first in any_habits(),
        restart_cmd in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        let spec = spec(|spec| {
            if restart_cmd {
                spec.control.restart = Some("restart".parse().unwrap());
            }
        });
        let mut world = World::new(spec, first);
        let mut operations = Vec::new();
        let mut disturbed = false;
        for step in steps {
            match step {
                Step::Request(kind) => operations.push(world.request(kind)),
                Step::Cancel(back) => {
                    if let Some(operation) = operations.iter().rev().nth(back) {
                        world.cancel(*operation);
                    }
                }
                Step::KillOutside => world.kill_outside(),
                Step::Crash => { disturbed = true; world.crash_agent(true) },
                Step::CrashAfter(actions) => { disturbed = true; world.crash_after = Some(actions) },
                Step::Reboot => { disturbed = true; world.crash_agent(false) },
                Step::Pass(millis) => world.pass(Duration::from_millis(millis)),
                Step::Habits(habits) => world.habits = habits,
                Step::Exceed => world.exceed(),
            }
        }
        world.crash_after = None;
        world.pass(Duration::from_secs(4000));

        for operation in operations {
            prop_assert!(world.outcome(operation).is_some(), "an operation never ended");
        }
        if !disturbed {
            check_retries(&world)?;
        }
    }
}

/// Between two operations, and without a stable run, there are at most `start_retries` relaunches,
/// and all but the first are at least `start_interval` after the one before.
fn check_retries(world: &World) -> Result<(), TestCaseError> {
    let mut streak: Vec<Time> = Vec::new();
    for mark in &world.history {
        match mark {
            Mark::Anew => streak.clear(),
            Mark::Relaunch(time) => {
                if let Some(last) = streak.last() {
                    prop_assert!(time.since(*last) >= Duration::from_secs(10), "relaunches are too close");
                }
                streak.push(*time);
                prop_assert!(streak.len() <= 4, "{} relaunches in a row", streak.len());
            }
        }
    }
    Ok(())
}
