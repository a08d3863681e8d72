//! Health commands that change, come late, or cannot be run.

use std::time::Duration;

use proctor_model::{OperationKind, Spec};
use proctor_supervise::{HealthState, Notice};

use super::secs;
use super::world::{Habits, World, spec};

fn with_health(change: impl FnOnce(&mut Spec)) -> std::sync::Arc<Spec> {
    spec(|spec| {
        spec.control.health = Some("health".parse().unwrap());
        change(spec);
    })
}

fn started(spec: std::sync::Arc<Spec>, habits: Habits) -> World {
    let mut world = World::new(spec, habits);
    world.request(OperationKind::Start);
    world.pass(Duration::from_secs(10));
    assert!(world.is_alive());
    world
}

fn states(world: &World) -> Vec<HealthState> {
    let mut states = Vec::new();
    for (_, notice) in &world.notices {
        if let Notice::HealthChanged { state, .. } = notice {
            states.push(*state);
        }
    }
    states
}

#[test]
fn a_health_command_that_is_removed_is_not_asked_again_and_wakes_nobody() {
    let mut world = started(with_health(|_| {}), Habits { health_exit: Some(1), ..Habits::default() });
    world.pass(Duration::from_secs(60));
    let asked = world.checks.len();
    assert!(asked > 0);

    world.assign(1, spec(|_| {}));
    world.pass(Duration::from_secs(3600));

    assert_eq!(world.checks.len(), asked);
    assert_eq!(world.machine.health(), "");
    assert_eq!(world.machine.poll_timeout(), None);
}

#[test]
fn a_health_command_that_is_added_is_asked_in_the_present_life() {
    let mut world = started(spec(|_| {}), Habits { health_exit: Some(1), ..Habits::default() });
    world.pass(Duration::from_secs(3600));
    let before = world.pid();

    world.assign(1, with_health(|_| {}));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.checks.len(), 1, "its grace is over");
    world.pass(Duration::from_secs(120));

    assert_eq!(states(&world), [HealthState::Unhealthy]);
    assert_ne!(world.pid(), before);
}

#[test]
fn a_changed_health_command_begins_anew_and_the_answer_of_the_old_one_does_not_count() {
    let slow = Habits { health_exit: Some(1), health_takes_ms: 5000, ..Habits::default() };
    let mut world = started(with_health(|spec| spec.policy.health.failures = 1), slow);
    world.pass(Duration::from_secs(22));
    assert_eq!(world.checks.len(), 1, "the first check is under way");
    let before = world.pid();

    world.habits.health_exit = Some(0);
    world.assign(1, with_health(|spec| spec.control.health = Some("other".parse().unwrap())));
    world.pass(Duration::from_secs(600));

    assert_eq!(world.pid(), before);
    assert_eq!((world.machine.health(), states(&world)), ("healthy", vec![]));
}

#[test]
fn a_late_answer_about_an_earlier_life_does_not_condemn_the_next() {
    let quick = with_health(|spec| {
        spec.policy.start_check = secs(0);
        spec.policy.health.grace = secs(1);
        spec.policy.health.failures = 1;
    });
    let mut world = World::new(quick, Habits { health_exit: Some(1), health_takes_ms: 8000, ..Habits::default() });
    world.request(OperationKind::Start);
    while world.checks.is_empty() {
        world.pass(Duration::from_millis(100));
    }

    // The first life dies while its first check is under way, which will say that it is ill.
    world.kill_outside();
    world.habits.health_exit = Some(0);
    world.pass(Duration::from_secs(1));
    let next = world.pid();
    world.pass(Duration::from_secs(60));

    assert!(next.is_some());
    assert_eq!(world.pid(), next);
    assert_eq!(states(&world), []);
}

#[test]
fn a_health_command_that_cannot_be_run_is_a_state_of_its_own_and_no_illness() {
    for exit in [126, 127] {
        let mut world = started(with_health(|_| {}), Habits { health_exit: Some(exit), ..Habits::default() });
        let before = world.pid();

        world.pass(Duration::from_secs(3600));

        assert_eq!(world.pid(), before, "exit {exit}");
        assert_eq!(world.machine.health(), "cannot_run");
        assert_eq!(states(&world), [HealthState::CannotRun]);
        world.habits.health_exit = Some(0);
        world.pass(Duration::from_secs(60));
        assert_eq!(states(&world), [HealthState::CannotRun, HealthState::Healthy]);
    }
}
