//! Under random operations, cancels, crashes and reboots.

use std::time::Duration;

use proctor_model::{Lifetime, OperationKind};
use proctor_supervise::Time;
use proptest::prelude::*;

use super::period;
use super::world::{Habits, Mark, World, spec};

#[derive(Clone, Debug)]
enum Step {
    Request(OperationKind),
    /// The operation of that index among those so far, counted from the last.
    Cancel(usize),
    KillOutside,
    Crash,
    CrashAfter(usize),
    Reboot,
    Pass(u64),
    Habits(Habits),
    Exceed,
    /// A run by schedule is due.
    Due,
    /// Unregistered and registered again.
    Replace,
    /// Whether its pid file can be read.
    Unreadable(bool),
    /// Whether kills are stuck.
    KillerStuck(bool),
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
        (0..20_000u64, 0..8000u64, 0..3u32, prop_oneof![6 => Just(0), 1 => 1..4u32]),
        (0..3u32, prop_oneof![6 => Just(false), 1 => Just(true)]),
        (prop::bool::weighted(0.15), prop::bool::weighted(0.15), prop::bool::weighted(0.2)),
        (prop_oneof![4 => Just(Some(0)), 2 => Just(Some(1)), 1 => Just(None)], 0..10_000u64),
    )
        .prop_map(
            |(
                start_takes_ms,
                start_exit,
                appears,
                lives_ms,
                stop_takes_ms,
                stop_exit,
                dies_after_ms,
                kills,
                starts,
                (children_resist, cannot_clear, foreground),
                (health_exit, health_takes_ms),
            )| {
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
                    kill_sent_after_ms: kills.0,
                    killed_after_ms: kills.1,
                    children: kills.2,
                    kills_fail: kills.3,
                    start_forks: starts.0,
                    no_slot: starts.1,
                    children_resist,
                    cannot_clear,
                    foreground,
                    health_exit,
                    health_takes_ms,
                }
            },
        )
}

/// A status query never reaches the machine.
fn operations() -> Vec<OperationKind> {
    OperationKind::ALL.into_iter().filter(|kind| *kind != OperationKind::Status).collect()
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::sample::select(operations()).prop_map(Step::Request),
        2 => (0..4usize).prop_map(Step::Cancel),
        3 => Just(Step::KillOutside),
        1 => Just(Step::Crash),
        2 => (0..6usize).prop_map(Step::CrashAfter),
        1 => Just(Step::Reboot),
        6 => (0..30_000u64).prop_map(Step::Pass),
        2 => any_habits().prop_map(Step::Habits),
        1 => Just(Step::Exceed),
        1 => Just(Step::Due),
        1 => Just(Step::Replace),
        1 => any::<bool>().prop_map(Step::Unreadable),
        1 => prop::bool::weighted(0.3).prop_map(Step::KillerStuck),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// The world itself asserts: never two start commands in flight, never a second copy, no
    /// signal to a life that was not looked up, no operation that ends or begins twice, no command
    /// of an operation that was cancelled before it began; no start beside what an earlier life has left
    /// behind, also if that outlives SIGKILL, and no stop or kill that succeeds while something of that life is
    /// there; no start by supervision after a life that an operator's stop or kill was carried out on.
    #[test]
    fn whatever_happens_every_operation_ends_once_and_retries_stay_inside_policy(
        first in any_habits(),
        restart_cmd in any::<bool>(),
        periodic in prop::bool::weighted(0.3),
        is_checked in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        let spec = spec(|spec| {
            if restart_cmd {
                spec.control.restart = Some("restart".parse().unwrap());
            }
            if is_checked {
                spec.control.health = Some("health".parse().unwrap());
            }
            if periodic {
                spec.policy.lifetime = Lifetime::Periodic;
                spec.policy.cycle = Some(period(60));
            }
        });
        let mut world = World::new(spec, first);
        world.add_elder();
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
                Step::Due => world.due(),
                Step::Replace => { disturbed = true; world.replace(); }
                Step::Unreadable(is_unreadable) => world.unreadable = is_unreadable,
                Step::KillerStuck(is_stuck) => world.killer_stuck = is_stuck,
            }
        }
        world.crash_after = None;
        world.pass(Duration::from_secs(4000));

        for operation in operations {
            prop_assert!(world.outcome(operation).is_some(), "an operation never ended");
        }
        prop_assert!(world.has_elder(), "what is older than every launch was ended");
        if !disturbed && !periodic {
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
