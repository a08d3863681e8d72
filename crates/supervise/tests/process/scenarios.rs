//! Rows of docs/scenarios.md that need days, many hosts or a sleeping machine.

use std::time::Duration;

use proctor_model::{Code, OperationKind};
use proctor_supervise::{Notice, Time};

use super::world::{Habits, World, spec};
use super::{resident, running};

fn relaunches(world: &World) -> Vec<Time> {
    world.launches.iter().filter(|(_, by_operation)| !by_operation).map(|(time, _)| *time).collect()
}

#[test]
fn d3_the_restarts_of_a_fleet_that_crashes_in_step_are_spread() {
    const HOSTS: usize = 10_000;
    let mut per_slot = [0_usize; 10];
    for seed in 0..HOSTS {
        let habits = Habits { lives_ms: Some(1000), ..Habits::default() };
        let mut world = World::on_host(seed as u64, spec(|_| {}), habits);
        world.request(OperationKind::Manage);
        world.pass(Duration::from_secs(15));

        let times = relaunches(&world);
        assert_eq!(times.len(), 2, "at once, and after the interval");
        let late = times[1].since(times[0]) - Duration::from_secs(10);
        per_slot[usize::try_from(late.as_millis() / 100).unwrap().min(9)] += 1;
    }

    // A tenth of the interval, evenly: no slot has much more than its share.
    assert_eq!(per_slot.iter().sum::<usize>(), HOSTS);
    assert!(per_slot.iter().all(|count| (HOSTS / 20..HOSTS / 5).contains(count)), "{per_slot:?}");
}

#[test]
fn d5_one_crash_a_day_is_always_the_first() {
    const DAY: u64 = 24 * 3600;
    let mut world = running(Habits { lives_ms: Some(DAY * 1000), ..Habits::default() });

    for day in 1..=30 {
        world.pass(Duration::from_secs(DAY));
        assert!(world.is_alive(), "day {day}");
    }

    let ends: Vec<Time> = world
        .notices
        .iter()
        .filter_map(|(time, notice)| matches!(notice, Notice::Exited { .. }).then_some(*time))
        .collect();
    let starts = relaunches(&world);
    assert_eq!((ends.len(), starts.len()), (30, 30));
    for (end, start) in ends.iter().zip(&starts) {
        assert!(start.since(*end) < Duration::from_secs(1), "restarted at once");
    }
    assert!(world.machine.managed());
}

#[test]
fn e4_a_host_that_slept_through_a_wait_starts_once_and_at_once() {
    let mut world = running(Habits { lives_ms: Some(6000), ..Habits::default() });
    while relaunches(&world).len() < 2 || world.is_alive() {
        world.pass(Duration::from_millis(100));
    }
    let before = relaunches(&world).len();

    world.suspend(Duration::from_secs(8 * 3600));
    let awake = world.now;
    world.pass(Duration::from_secs(1));

    let after = relaunches(&world);
    assert_eq!(after.len(), before + 1, "not once for each interval that was slept through");
    assert!(after[before].since(awake) < Duration::from_secs(1));
}

#[test]
fn g9_an_operation_that_is_delivered_again_and_again_runs_and_ends_once() {
    let mut world = resident(Habits { start_takes_ms: 500, ..Habits::default() });
    let start = world.request(OperationKind::Start);
    let stop = world.request(OperationKind::Stop);

    // The world itself fails on a second start command or a second end.
    for _ in 0..20 {
        for operation in [stop, start, start] {
            if world.outcome(operation).is_none() {
                world.deliver_again(operation);
            }
        }
        world.pass(Duration::from_millis(400));
    }
    world.pass(Duration::from_secs(60));

    assert_eq!(world.launches.len(), 1);
    assert_eq!(world.outcome(start).unwrap().code, Code::Success);
    assert_eq!(world.outcome(stop).unwrap().code, Code::Success);
    assert!(!world.is_alive() && !world.machine.managed());
}
