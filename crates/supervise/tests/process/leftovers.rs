//! What a life forks and leaves behind: nothing of it is left after a stop, a kill or an eviction, nor when the
//! next one starts.

use std::time::Duration;

use proctor_model::{Code, OperationKind};

use super::world::{Habits, World, spec};
use super::{code_of, running};

fn forking() -> Habits {
    Habits { children: 2, ..Habits::default() }
}

#[test]
fn a_stop_and_a_kill_leave_nothing_of_the_life() {
    for kind in [OperationKind::Stop, OperationKind::Kill] {
        let mut world = running(forking());
        assert_eq!(world.descendants(), 2);

        assert_eq!(code_of(&mut world, kind), Code::Success);

        assert_eq!(world.descendants(), 0, "{kind}");
    }
}

#[test]
fn an_eviction_leaves_nothing_of_the_life_long_before_the_next_one() {
    let mut world = running(forking());

    world.exceed();
    world.pass(Duration::from_secs(3));

    assert!(!world.is_alive());
    assert_eq!(world.descendants(), 0);
    world.pass(Duration::from_secs(20));
    assert!(world.is_alive(), "it comes back");
}

#[test]
fn what_a_killed_life_left_behind_is_ended_before_it_is_started_again() {
    let mut world = running(forking());
    let launches = world.launches.len();

    world.kill_outside();
    world.pass(Duration::from_secs(1));

    // The world asserts that nothing was left when the start command ran.
    assert_eq!(world.launches.len(), launches + 1);
    assert_eq!(world.descendants(), 2, "those of the new life");
}

#[test]
fn what_a_life_left_behind_that_died_while_the_agent_was_down_is_ended_too() {
    let mut world = running(forking());

    world.kill_outside_unheard();
    world.crash_agent(true);
    world.pass(Duration::from_secs(10));

    assert!(world.is_alive());
    assert_eq!(world.descendants(), 2);
}

#[test]
fn a_stop_of_a_process_that_is_not_running_ends_what_it_left_behind() {
    let mut world = running(forking());
    code_of(&mut world, OperationKind::Release);
    world.kill_outside();
    world.pass(Duration::from_secs(10));
    assert_eq!(world.descendants(), 2);

    assert_eq!(code_of(&mut world, OperationKind::Stop), Code::NotRunning);

    assert_eq!(world.descendants(), 0);
}

#[test]
fn a_stop_says_so_if_something_of_the_life_resists() {
    let mut world = running(Habits { children_resist: true, ..forking() });
    let stop = world.request(OperationKind::Stop);

    world.pass(Duration::from_secs(60));

    let outcome = world.outcome(stop).unwrap();
    assert_eq!(outcome.code, Code::CheckFailed);
    assert_eq!(outcome.message, "stop: the process ended, but 2 that it left behind are there after SIGKILL");
    assert!(!outcome.managed, "an operator's stop is not undone");
}

#[test]
fn a_failed_start_does_not_touch_what_is_older_than_it() {
    let mut world = World::new(spec(|_| {}), Habits { appears_after_ms: None, ..Habits::default() });
    world.add_elder();

    assert_eq!(code_of(&mut world, OperationKind::Start), Code::CheckFailed);

    assert!(world.has_elder());
}

#[test]
fn a_release_while_leftovers_are_ended_is_followed_by_no_start() {
    let mut world = running(forking());
    let launches = world.launches.len();
    world.kill_outside();
    while world.descendants() > 0 {
        world.pass(Duration::from_millis(1));
    }

    let release = world.request(OperationKind::Release);
    world.pass(Duration::from_secs(60));

    assert_eq!(world.outcome(release).map(|outcome| outcome.code), Some(Code::Success));

    assert_eq!((world.launches.len(), world.is_alive()), (launches, false));
}
