//! What people ask for: start, stop, restart, reload, kill, manage and release.

use std::time::Duration;

use proctor_model::{Code, Lifetime, OperationKind, Phase};

use super::world::{Habits, World, spec};
use super::{code_of, period, resident, running, secs};

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
fn the_check_of_a_kill_counts_from_its_signal() {
    let habits = Habits { dies_after_ms: None, kill_sent_after_ms: 30_000, killed_after_ms: 4000, ..Habits::default() };
    let mut world = running(habits);

    assert_eq!(code_of(&mut world, OperationKind::Kill), Code::Success);
    assert!(!world.is_alive());
}

#[test]
fn a_kill_whose_signal_cannot_be_sent_is_tried_again_and_says_so() {
    let mut world = running(Habits { dies_after_ms: None, kills_fail: 1, ..Habits::default() });
    assert_eq!(code_of(&mut world, OperationKind::Kill), Code::Success, "the second one is sent");

    let mut world = running(Habits { dies_after_ms: None, kills_fail: 2, ..Habits::default() });
    let kill = world.request(OperationKind::Kill);
    world.pass(Duration::from_secs(10));
    let outcome = world.outcome(kill).expect("nobody waits for the end of a life that was not signalled");
    let reason = format!("kill: SIGKILL could not be sent to process {}: too many open files", world.pid().unwrap());
    assert_eq!((outcome.code, outcome.message.as_str()), (Code::CheckFailed, reason.as_str()));
    assert!(world.is_alive());
}

#[test]
fn a_kill_that_never_gets_its_turn_does_not_claim_to_have_been_sent() {
    let habits = Habits { dies_after_ms: None, kill_sent_after_ms: 100_000, ..Habits::default() };
    let mut world = running(habits);

    let kill = world.request(OperationKind::Kill);
    world.pass(Duration::from_secs(90));

    let outcome = world.outcome(kill).expect("its time is over");
    assert!(outcome.message.contains("SIGKILL could not be sent"), "{outcome:?}");
}

#[test]
fn what_a_stop_or_kill_was_carried_out_on_is_not_started_again_however_late_it_dies() {
    let late = Duration::from_secs(200);
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        for crashes in [false, true] {
            let late_ms = u64::try_from(late.as_millis()).unwrap();
            let habits = Habits { dies_after_ms: Some(late_ms), killed_after_ms: late_ms, ..Habits::default() };
            let mut world = running(habits);

            assert_eq!(code_of(&mut world, kind), Code::CheckFailed);
            assert!(world.is_alive() && world.machine.managed(), "{kind}: it has not died yet");
            if crashes {
                world.crash_agent(true);
            }
            let launches = world.launches.len();
            world.pass(late * 3);

            assert!(!world.is_alive() && !world.machine.managed(), "{kind}, crashes: {crashes}");
            assert_eq!(world.launches.len(), launches, "{kind}, crashes: {crashes}");
        }
    }
}

#[test]
fn what_is_managed_again_after_a_failed_stop_is_kept_alive() {
    let mut world = running(Habits { dies_after_ms: None, ..Habits::default() });
    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::CheckFailed);

    assert_eq!(code_of(&mut world, OperationKind::Manage), Code::Success);
    world.kill_outside();
    world.pass(Duration::from_secs(60));

    assert!(world.is_alive() && world.machine.managed());
}

#[test]
fn a_start_that_finds_the_process_running_takes_a_failed_stop_back() {
    let mut world = running(Habits { dies_after_ms: None, ..Habits::default() });
    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::CheckFailed);

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::AlreadyRunning);
    world.kill_outside();
    world.pass(Duration::from_secs(60));

    assert!(world.is_alive() && world.machine.managed());
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
fn a_once_process_may_have_ended_and_is_not_relaunched() {
    let spec = spec(|spec| spec.policy.lifetime = Lifetime::Once);
    let mut world = World::new(spec, Habits { appears_after_ms: None, ..Habits::default() });

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::Success);
    world.pass(Duration::from_secs(600));

    assert_eq!(world.launches.len(), 1);
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
fn a_stop_or_kill_that_finds_nothing_running_still_ends_the_management() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        for lifetime in [Lifetime::Resident, Lifetime::Periodic] {
            let spec = spec(|spec| {
                spec.policy.lifetime = lifetime;
                spec.policy.cycle = Some(period(3600));
                spec.policy.start_retries = 1000;
            });
            let mut world = World::new(spec, Habits { appears_after_ms: None, ..Habits::default() });
            world.request(OperationKind::Manage);
            world.pass(Duration::from_secs(30));
            assert!(world.machine.managed());
            let stop = world.request(kind);

            world.pass(Duration::from_secs(30));

            let outcome = world.outcome(stop).unwrap();
            assert_eq!((outcome.code, outcome.managed), (Code::NotRunning, false), "{kind} {lifetime:?}");
            let launches = world.launches.len();
            world.pass(Duration::from_secs(600));
            assert_eq!((world.launches.len(), world.machine.managed()), (launches, false), "{kind} {lifetime:?}");
        }
    }
}

/// CaptureCheck at 5 s after the start command, and again at 10 s.
fn checked_twice(change: impl FnOnce(&mut proctor_model::Spec)) -> std::sync::Arc<proctor_model::Spec> {
    spec(|spec| {
        spec.policy.start_check = secs(5);
        spec.policy.start_check_end = Some(secs(10));
        change(spec);
    })
}

#[test]
fn a_start_with_a_second_check_succeeds_when_the_same_life_is_there_at_both() {
    let mut world = World::new(checked_twice(|_| {}), Habits::default());
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_millis(9900));
    assert_eq!(world.outcome(start), None);
    world.pass(Duration::from_millis(300));

    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
    assert!(world.machine.managed());
}

#[test]
fn a_process_that_dies_between_its_two_checks_fails_the_start_at_once() {
    let mut world = World::new(checked_twice(|_| {}), Habits { lives_ms: Some(7000), ..Habits::default() });
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_millis(7200));

    let outcome = world.outcome(start).unwrap();
    assert_eq!(outcome.code, Code::CheckFailed);
    assert_eq!(outcome.message, "start: process 102 ended between its two start checks");
    assert!(!world.machine.managed());
}

#[test]
fn another_life_at_the_second_check_is_adopted_and_fails_the_start() {
    let mut world = World::new(checked_twice(|_| {}), Habits::default());
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(7));

    world.kill_outside();
    world.start_by_hand();
    world.pass(Duration::from_millis(100));

    assert_eq!(world.outcome(start).unwrap().code, Code::CheckFailed);
    assert_eq!(world.machine.life().map(|life| life.pid), world.pid());
}

#[test]
fn what_happens_before_the_first_of_two_checks_does_not_count() {
    let mut world = World::new(checked_twice(|_| {}), Habits { lives_ms: Some(1000), ..Habits::default() });
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.outcome(start), None);

    world.habits.lives_ms = None;
    world.start_by_hand();
    world.pass(Duration::from_secs(8));

    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
}

#[test]
fn nothing_at_the_first_of_two_checks_fails_the_start_then() {
    let mut world = World::new(checked_twice(|_| {}), Habits { lives_ms: Some(1000), ..Habits::default() });
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_millis(5500));

    assert_eq!(world.outcome(start).unwrap().code, Code::CheckFailed);
}

#[test]
fn an_end_that_is_no_later_than_the_begin_adds_no_check() {
    let mut world = World::new(checked_twice(|spec| spec.policy.start_check_end = Some(secs(1))), Habits::default());
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_millis(5200));

    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
}

#[test]
fn a_second_check_holds_for_a_start_command_that_is_the_process_itself() {
    let mut world = World::new(checked_twice(|_| {}), Habits { foreground: true, ..Habits::default() });
    let start = world.request(OperationKind::Start);

    world.pass(Duration::from_secs(9));
    assert_eq!(world.outcome(start), None);
    world.pass(Duration::from_secs(10));

    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
}

#[test]
fn one_instance_instead_of_several_is_told_with_the_success() {
    let mut world = World::new(spec(|spec| spec.policy.instances = 3), Habits::default());
    let start = world.request(OperationKind::Start);
    world.pass(Duration::from_secs(6));
    let stop = world.request(OperationKind::Stop);
    world.pass(Duration::from_secs(6));

    let message = |operation| world.outcome(operation).unwrap().message.as_str();
    let told = "success: 1 instance runs instead of 3: pid_path has no {instance} to tell them apart";
    assert_eq!((message(start), message(stop)), (told, "success"));
}

#[test]
fn where_nobody_can_tell_whether_it_runs_no_operation_starts_or_ends_anything() {
    for kind in [OperationKind::Start, OperationKind::Restart, OperationKind::Stop, OperationKind::Kill] {
        let mut world = World::new(spec(|_| {}), Habits::default());
        world.unreadable = true;
        assert_eq!(code_of(&mut world, OperationKind::Manage), Code::Success);

        let operation = world.request(kind);
        world.pass(Duration::from_secs(60));

        let outcome = world.outcome(operation).unwrap();
        assert_eq!(outcome.code, Code::CheckFailed, "{kind}: {}", outcome.message);
        assert!(outcome.message.contains("nothing was done") && outcome.message.contains("cannot be read"));
        assert!(world.ran.is_empty() && world.launches.is_empty(), "{kind}");
        assert_eq!(outcome.managed, !matches!(kind, OperationKind::Stop | OperationKind::Kill));
    }
}

#[test]
fn what_a_start_brought_lives_on_where_nobody_can_tell_whether_it_runs() {
    let mut world = World::new(spec(|_| {}), Habits::default());
    let operation = world.request(OperationKind::Start);
    world.pass(Duration::from_millis(5));
    world.unreadable = true;
    world.pass(Duration::from_secs(60));
    let outcome = world.outcome(operation).unwrap().clone();

    assert!(world.is_alive());
    assert_eq!(outcome.code, Code::CheckFailed);
    assert!(outcome.message.contains("cannot be told whether the process runs"), "{}", outcome.message);
    world.unreadable = false;
    assert_eq!(code_of(&mut world, OperationKind::Start), Code::AlreadyRunning);
    assert_eq!(world.launches.len(), 1);
}

#[test]
fn a_crowd_of_operations_does_not_keep_a_process_from_being_stopped() {
    let mut world = running(Habits { stop_takes_ms: 2000, ..Habits::default() });
    for _ in 0..65 {
        world.request(OperationKind::Restart);
    }
    let refused = world.request(OperationKind::Restart);
    let ends: Vec<_> = (0..9).map(|_| world.request(OperationKind::Stop)).collect();

    let outcome = world.outcome(refused).unwrap();
    assert_eq!(outcome.message, "64 operations are waiting for this process already");
    assert!(ends[..8].iter().all(|stop| world.outcome(*stop).is_none()), "they wait");
    assert_eq!(world.outcome(ends[8]).unwrap().code, Code::CommandFailed);
    world.pass(Duration::from_secs(4000));
    assert!(!world.is_alive() && !world.machine.managed());
}
