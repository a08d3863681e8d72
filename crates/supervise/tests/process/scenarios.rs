//! Rows of docs/scenarios.md that need days, many hosts or a sleeping machine.

use std::collections::BTreeSet;
use std::time::Duration;

use proctor_model::{BootId, Code, CommandExit, CommandResult, Incarnation, Lifetime, Message, OperationKind, Probe};
use proctor_supervise::{Action, Event, Notice, Process, Time};

use super::world::{Habits, World, spec};
use super::{period, resident, running, secs};

fn relaunches(world: &World) -> Vec<Time> {
    world.launches.iter().filter(|(_, by_operation)| !by_operation).map(|(time, _)| *time).collect()
}

#[test]
fn b4_after_a_reboot_the_starts_are_spread() {
    let mut buckets = BTreeSet::new();
    for seed in 0..100 {
        let mut world = World::on_host(seed, spec(|_| {}), Habits::default());
        world.request(OperationKind::Start);
        world.pass(Duration::from_secs(20));

        world.crash_agent(false);
        let rebooted = world.now;
        world.pass(Duration::from_secs(10));

        let starts = relaunches(&world);
        assert_eq!(starts.len(), 1, "once, and soon");
        buckets.insert(starts[0].since(rebooted).as_millis() / 10);
    }

    assert!(buckets.len() > 10, "{buckets:?}");
}

#[test]
fn b4_the_processes_of_one_host_are_spread_too_and_an_operator_does_not_wait() {
    let mut buckets = BTreeSet::new();
    for number in 0..100 {
        let key = format!("ns/p{number}").parse().unwrap();
        let mut world = World::of_key(7, key, spec(|_| {}), Habits::default());
        world.request(OperationKind::Start);
        world.pass(Duration::from_secs(20));
        world.crash_agent(false);
        let rebooted = world.now;
        world.pass(Duration::from_secs(10));
        buckets.insert(relaunches(&world)[0].since(rebooted).as_millis() / 10);
    }
    let mut world = running(Habits::default());
    world.crash_agent(false);
    let rebooted = world.now;

    world.request(OperationKind::Start);
    world.pass(Duration::from_secs(1));

    assert!(buckets.len() > 10, "{buckets:?}");
    assert!(world.launches[1].0.since(rebooted) < Duration::from_millis(100));
}

#[test]
fn e3_a_run_during_which_the_agent_crashed_does_not_hold_up_the_next_ones() {
    let spec = spec(|spec| {
        spec.policy.lifetime = Lifetime::Periodic;
        spec.policy.cycle = Some(period(60));
    });
    let mut world = World::new(spec, Habits { appears_after_ms: None, start_takes_ms: 5000, ..Habits::default() });
    world.request(OperationKind::Manage);
    world.due();
    world.pass(Duration::from_secs(1));

    // The world itself fails on a second run beside the first.
    world.crash_agent(true);
    world.due();
    let mut rounds = 0;
    while world.launches.len() < 2 && rounds < 5 {
        world.pass(Duration::from_secs(60));
        world.due();
        rounds += 1;
        world.pass(Duration::from_millis(10));
    }

    assert_eq!((world.launches.len(), rounds), (2, 1), "the next run is the next that is due");
    let ends = world.notices.iter().filter(|(_, notice)| matches!(notice, Notice::RunEnded { .. })).count();
    assert_eq!(ends, 1, "the end of the interrupted run is told");
}

#[test]
fn e3_a_run_that_outlives_the_agent_is_not_doubled() {
    let spec = spec(|spec| {
        spec.policy.lifetime = Lifetime::Periodic;
        spec.policy.cycle = Some(period(60));
    });
    let mut world = World::new(spec, Habits { appears_after_ms: None, start_takes_ms: 600_000, ..Habits::default() });
    world.request(OperationKind::Manage);
    world.due();
    world.pass(Duration::from_secs(1));

    world.crash_agent(true);
    for _ in 0..9 {
        world.pass(Duration::from_secs(60));
        world.due();
    }
    assert_eq!(world.launches.len(), 1);
    world.pass(Duration::from_secs(120));
    world.due();
    world.pass(Duration::from_secs(1));

    assert_eq!(world.launches.len(), 2);
}

#[test]
fn e3_a_relaunch_during_which_the_agent_crashed_is_judged_when_its_command_is_over() {
    let mut world = World::new(
        spec(|spec| spec.policy.op_timeout = secs(3600)),
        Habits { start_takes_ms: 5000, appears_after_ms: None, ..Habits::default() },
    );
    world.request(OperationKind::Manage);
    world.pass(Duration::from_secs(1));

    world.crash_agent(true);
    world.pass(Duration::from_secs(14));

    assert_eq!(relaunches(&world).len(), 2, "not only when the hour is over");
}

#[test]
fn e3_a_start_during_which_the_agent_crashed_ends_with_its_real_outcome() {
    for (appears_after_ms, code) in [(Some(1000), Code::Success), (None, Code::CheckFailed)] {
        let habits = Habits { start_takes_ms: 5000, appears_after_ms, ..Habits::default() };
        let mut world = World::new(spec(|spec| spec.policy.op_timeout = secs(3600)), habits);
        let start = world.request(OperationKind::Start);
        world.pass(Duration::from_secs(1));

        world.crash_agent(true);
        world.pass(Duration::from_secs(20));

        assert_eq!(world.outcome(start).map(|outcome| outcome.code), Some(code));
        assert_eq!(world.launches.len(), 1);
    }
}

#[test]
fn g3_an_illness_that_shows_late_still_ends_after_the_retries() {
    let spec = spec(|spec| spec.control.health = Some("health".parse().unwrap()));
    let mut world = World::new(spec, Habits { health_exit: Some(1), ..Habits::default() });
    world.request(OperationKind::Start);

    world.pass(Duration::from_secs(24 * 3600));

    let given_up = world.notices.iter().filter(|(_, notice)| matches!(notice, Notice::GaveUp { .. })).count();
    assert_eq!((relaunches(&world).len(), given_up), (4, 1));
    assert!(!world.machine.managed());
}

#[test]
fn g3_one_illness_a_day_is_always_the_first() {
    let spec = spec(|spec| spec.control.health = Some("health".parse().unwrap()));
    let mut world = World::new(spec, Habits::default());
    world.request(OperationKind::Start);

    for _ in 0..10 {
        world.pass(Duration::from_secs(12 * 3600));
        world.habits.health_exit = Some(1);
        let ill = world.pid();
        while world.pid() == ill {
            world.pass(Duration::from_secs(1));
        }
        world.habits.health_exit = Some(0);
        world.pass(Duration::from_secs(12 * 3600));
    }

    assert!(world.machine.managed(), "what was well for half a day begins anew");
    assert_eq!(relaunches(&world).len(), 10);
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

/// A run whose command was held back after it had begun, as where it cannot be recorded.
#[test]
fn e8_a_run_that_cannot_be_recorded_is_tried_again_and_then_told_as_missed() {
    let spec = spec(|spec| {
        spec.policy.lifetime = Lifetime::Periodic;
        spec.policy.cycle = Some(period(60));
    });
    let at = |secs: u64| Time::since_boot(Duration::from_secs(secs));
    let mut machine = Process::new("ns/p".parse().unwrap(), spec.clone(), 1);
    machine.handle(at(1), Event::Assigned { spec, managed: true, registered_at: 1 });
    let look = Probe::Absent(Message::foreign("no pid file"));
    machine.handle(at(1), Event::Probed { ticket: 1, look });
    let command = Incarnation { boot: BootId::from("b"), pid: 7, start_ticks: 7, pidfd_inode: None };
    let withdraw = |machine: &mut Process, now: Time| {
        let actions: Vec<Action> = std::iter::from_fn(|| machine.poll_action()).collect();
        let run = |action: &Action| if let Action::Run { ticket, .. } = action { Some(*ticket) } else { None };
        let ticket = actions.iter().find_map(run).expect("the run begins");
        machine.handle(now, Event::CommandBegun { ticket, command: command.clone() });
        let end = CommandExit { result: CommandResult::NoSlot, output: String::new() };
        machine.handle(now, Event::CommandEnded { ticket, end, alive_at: None });
    };

    machine.handle(at(60), Event::RunDue { planned: 60, since_boot: Some(at(60)) });
    withdraw(&mut machine, at(60));
    assert_eq!(machine.poll_timeout(), Some(at(61)), "it is tried again");
    machine.handle(at(61), Event::Tick);
    withdraw(&mut machine, at(61));
    machine.handle(at(120), Event::RunDue { planned: 120, since_boot: Some(at(120)) });

    let notices: Vec<Action> = std::iter::from_fn(|| machine.poll_action()).collect();
    let is_missed = |action: &Action| matches!(action, Action::Notify(Notice::RunMissed { planned: 60, .. }));
    assert_eq!(notices.iter().filter(|action| is_missed(action)).count(), 1, "{notices:?}");
    assert!(notices.iter().any(|action| matches!(action, Action::Run { .. })), "the next one begins");
}
