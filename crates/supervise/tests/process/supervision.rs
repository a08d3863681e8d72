//! What happens to a process between operations: relaunches, limits, health, runs by schedule.

use std::time::Duration;

use proctor_model::{Code, EVICTED_REASON, Lifetime, OperationKind, Phase};
use proctor_supervise::{HealthState, Notice};

use super::world::{Habits, World, spec};
use super::{code_of, period, running, secs};

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
fn an_eviction_by_a_pool_names_the_pool_and_who_is_next() {
    for (next, told) in [(Some("web/api-2"), "web/api-2"), (None, "nobody")] {
        let mut world = running(Habits::default());

        world.exceed_pool(next);
        world.pass(Duration::from_secs(4));

        let reason = format!("{EVICTED_REASON}memory: pool web uses 31.2 %, limit 25.0 %; next in line: {told}");
        assert_eq!(world.machine.reason(), reason);
        assert!(world.machine.reason().chinese().is_some());
    }
}

#[test]
fn a_process_that_waits_after_an_eviction_says_why_it_was_ended() {
    for exceed in [World::exceed, World::exceed_cpu] {
        let mut world = running(Habits::default());

        exceed(&mut world);
        world.pass(Duration::from_secs(4));

        assert_eq!(world.machine.phase(), Phase::Waiting);
        assert!(world.machine.reason().starts_with(EVICTED_REASON), "{}", world.machine.reason());
        world.pass(Duration::from_secs(20));
        assert_eq!((world.is_alive(), world.machine.reason().as_str()), (true, ""));
        world.kill_outside();
        assert!(!world.machine.reason().starts_with(EVICTED_REASON), "that was another end");
    }
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
fn what_waits_for_a_process_that_cannot_be_killed_is_answered_however_much_that_uses() {
    let mut world = running(Habits { killed_after_ms: 10_000_000, ..Habits::default() });
    world.exceed();
    let kill = world.request(OperationKind::Kill);

    for _ in 0..180 {
        world.pass(Duration::from_secs(1));
        world.exceed();
    }

    assert_eq!(world.outcome(kill).expect("it waits no longer than a kill takes").code, Code::CheckFailed);
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
    world.habits.health_exit = Some(i32::from(!healthy));
    world
}

#[test]
fn g3_an_unhealthy_process_is_restarted_inside_its_retry_limits() {
    let mut world = checked_by_health(false);

    world.pass(Duration::from_secs(3600));

    assert!(
        world.notices.iter().any(|(_, n)| matches!(n, Notice::HealthChanged { state: HealthState::Unhealthy, .. }))
    );
    let relaunches = world.launches.iter().filter(|(_, by_operation)| !by_operation).count();
    assert_eq!(relaunches, 4, "as many as its retries, and then none");
}

#[test]
fn a_health_command_that_got_no_turn_says_nothing_of_the_process() {
    let mut world = checked_by_health(false);
    world.habits.health_exit = None;
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
    let mut world = World::new(spec, Habits { health_exit: Some(1), ..Habits::default() });
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

    world.habits.health_exit = Some(0);
    world.pass(Duration::from_secs(600));

    assert_eq!(world.pid(), before);
    assert_eq!(world.machine.health(), "healthy");
}

#[test]
fn a_periodic_process_runs_when_due_and_not_while_it_runs() {
    let spec = spec(|spec| {
        spec.policy.lifetime = Lifetime::Periodic;
        spec.policy.cycle = Some(period(60));
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
fn managing_a_process_without_a_start_command_keeps_its_intervals_and_ends() {
    let mut world = World::new(spec(|spec| spec.control.start = None), Habits::default());
    world.request(OperationKind::Manage);

    world.pass(Duration::from_secs(1));
    assert_eq!(world.machine.phase(), Phase::Waiting);
    world.pass(Duration::from_secs(100));

    assert_eq!(world.machine.phase(), Phase::Failed);
}

#[test]
fn nothing_is_started_while_nobody_can_tell_whether_it_runs() {
    let mut world = running(Habits::default());
    world.pass(Duration::from_secs(100));
    let launched = world.launches.len();

    world.unreadable = true;
    world.kill_outside();
    world.pass(Duration::from_secs(600));
    assert_eq!(world.launches.len(), launched);
    assert!(world.machine.managed() && world.machine.reason().contains("cannot be read"), "{}", world.machine.reason());
    world.unreadable = false;
    world.pass(Duration::from_secs(10));

    assert!(world.is_alive());
    assert_eq!(world.machine.restarts(), 1, "what was not tried does not count");
}

#[test]
fn whether_a_released_process_runs_is_unknown_until_a_look_can_tell() {
    let mut world = running(Habits::default());
    code_of(&mut world, OperationKind::Release);
    world.unreadable = true;
    world.kill_outside_unheard();
    world.crash_agent(true);
    world.pass(Duration::from_secs(10));
    let while_unreadable = world.machine.phase();
    let stop = world.request(OperationKind::Stop);
    world.pass(Duration::from_secs(10));
    let after_stop = world.machine.phase();

    world.unreadable = false;
    world.start_by_hand();
    world.pass(Duration::from_secs(70));

    assert_eq!((while_unreadable, after_stop), (Phase::Unknown, Phase::Unknown));
    assert_eq!(world.outcome(stop).map(|outcome| outcome.code), Some(Code::CheckFailed));
    assert_eq!(world.machine.phase(), Phase::Running, "it is looked at again");
    world.kill_outside();
    world.pass(Duration::from_secs(70));
    assert_eq!((world.machine.phase(), world.is_alive()), (Phase::Stopped, false), "nobody starts it");
}

#[test]
fn whether_a_managed_process_runs_is_unknown_while_supervision_waits_for_a_look_that_can_tell() {
    let mut world = running(Habits::default());
    world.unreadable = true;

    world.kill_outside();
    world.pass(Duration::from_secs(30));

    assert_eq!((world.machine.phase(), world.is_alive()), (Phase::Unknown, false));
}
