//! Schedules in virtual wall time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use proctor_model::{CronRule, Lifetime, Period, Policy, ProcessKey};
use proctor_supervise::{Due, Schedule, ScheduleMachine, spread};
use proptest::prelude::*;

fn cron(rule: &str) -> Schedule {
    let mut policy = Policy::new(Lifetime::Periodic);
    policy.crontab_rule = Some(rule.parse().unwrap());
    Schedule::of(&policy).unwrap()
}

fn cycle(secs: u32) -> Schedule {
    let mut policy = Policy::new(Lifetime::Periodic);
    policy.cycle = Some(Period::try_from(secs).unwrap());
    Schedule::of(&policy).unwrap()
}

fn utc(text: &str) -> Zoned {
    text.parse::<Timestamp>().unwrap().to_zoned(TimeZone::UTC)
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn berlin(text: &str) -> Zoned {
    text.parse::<Timestamp>().unwrap().in_tz("Europe/Berlin").unwrap()
}

/// The planned times from `from` on, as UTC.
fn planned(schedule: &Schedule, from: &Zoned, count: usize) -> Vec<String> {
    let next = |after: &Zoned| schedule.next_after(after);
    std::iter::successors(next(from), |after| next(after)).take(count).map(|at| at.timestamp().to_string()).collect()
}

#[test]
fn a_rule_wins_over_a_cycle_and_only_periodic_processes_have_either() {
    let mut policy = Policy::new(Lifetime::Periodic);
    assert!(Schedule::of(&policy).is_none());
    policy.cycle = Some(Period::try_from(0).unwrap());
    assert!(Schedule::of(&policy).is_none());
    policy.cycle = Some(Period::try_from(7).unwrap());
    policy.crontab_rule = Some("0 3 * * *".parse().unwrap());

    assert_eq!(planned(&Schedule::of(&policy).unwrap(), &utc("2026-01-01T00:00:00Z"), 1), ["2026-01-01T03:00:00Z"]);
    policy.lifetime = Lifetime::Resident;
    assert!(Schedule::of(&policy).is_none());
}

#[test]
fn the_next_time_is_strictly_later() {
    let every_minute = cron("* * * * *");

    for (after, next) in [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
        ("2026-01-01T00:00:59.999Z", "2026-01-01T00:01:00Z"),
        ("2026-01-01T00:01:00.001Z", "2026-01-01T00:02:00Z"),
    ] {
        assert_eq!(planned(&every_minute, &utc(after), 1), [next]);
    }
}

#[test]
fn e1_a_run_of_90_seconds_every_60_skips_every_second_time_and_counts() {
    let mut machine = ScheduleMachine::new(cycle(60), None);
    let begin = utc("2026-01-01T00:00:00Z");
    let (mut busy_until, mut runs) = (None, 0);
    for second in 0..=3600 {
        let now = &begin + SignedDuration::from_secs(second);
        let running = busy_until.is_some_and(|until| second < until);
        if let Due::Run { missed, .. } = machine.due(&now, running) {
            assert!(!running && missed == 0);
            runs += 1;
            busy_until = Some(second + 90);
        }
    }

    assert_eq!((runs, machine.skipped()), (30, 30));
}

#[test]
fn e3_what_came_due_while_the_agent_was_down_is_caught_up_once() {
    let mut machine = ScheduleMachine::new(cron("0 * * * *"), Some(time("2026-01-01T00:00:00Z")));
    let now = utc("2026-01-01T05:30:00Z");

    assert_eq!(machine.due(&now, false), Due::Run { planned: time("2026-01-01T05:00:00Z"), missed: 4 });
    assert_eq!(machine.due(&now, false), Due::Not);
    assert_eq!(machine.next_run(), Some(time("2026-01-01T06:00:00Z")));
}

#[test]
fn e3_a_new_process_has_nothing_to_catch_up() {
    let mut machine = ScheduleMachine::new(cron("0 * * * *"), None);

    assert_eq!(machine.due(&utc("2026-01-01T05:30:00Z"), false), Due::Not);
    assert_eq!(machine.next_run(), Some(time("2026-01-01T06:00:00Z")));
}

#[test]
fn e3_years_of_downtime_are_one_run_of_the_newest_time() {
    for schedule in [cron("* * * * *"), cycle(60)] {
        let mut machine = ScheduleMachine::new(schedule, Some(time("2016-01-01T00:00:00Z")));

        let due = machine.due(&utc("2026-01-01T05:30:30Z"), false);

        assert_eq!(due, Due::Run { planned: time("2026-01-01T05:30:00Z"), missed: 1000 });
    }
}

#[test]
fn e3_a_skipped_time_is_not_caught_up_after_a_restart() {
    let mut machine = ScheduleMachine::new(cron("0 0 * * *"), Some(time("2026-01-01T00:00:00Z")));
    assert_eq!(machine.due(&utc("2026-01-02T00:00:00Z"), true), Due::Skipped { planned: time("2026-01-02T00:00:00Z") });

    let mut restarted = ScheduleMachine::new(cron("0 0 * * *"), machine.last_planned());

    assert_eq!(restarted.due(&utc("2026-01-02T08:00:00Z"), false), Due::Not);
}

#[test]
fn e5_bad_rules_never_become_a_schedule() {
    let long = "1,".repeat(5000);
    for bad in ["60 * * * *", "*/0 * * * *", "31 2", "", "* * * * * *", "@never", "a b c d e", long.as_str()] {
        assert!(bad.parse::<CronRule>().is_err(), "{bad}");
    }
}

#[test]
fn e5_a_rule_for_a_day_that_never_comes_is_refused_and_one_for_a_rare_day_is_not() {
    let mut rare = ScheduleMachine::new(cron("0 0 29 2 *"), Some(time("2026-01-01T00:00:00Z")));

    assert!("0 0 31 2 *".parse::<CronRule>().is_err());
    assert_eq!(rare.due(&utc("2026-06-01T00:00:00Z"), false), Due::Not);
    assert_eq!(rare.next_run(), Some(time("2028-02-29T00:00:00Z")));
}

#[test]
fn e6_the_jobs_of_one_minute_are_spread_over_five_seconds() {
    let delays: Vec<Duration> =
        (0..10_000).map(|n| spread(&format!("gse/job-{n}").parse::<ProcessKey>().unwrap(), 7)).collect();

    for second in 0..5 {
        let begun = delays.iter().filter(|delay| delay.as_secs() == second).count();
        assert!((1700..2300).contains(&begun), "{begun} in second {second}");
    }
    let key: ProcessKey = "gse/job-1".parse().unwrap();
    assert_eq!(spread(&key, 7), delays[1]);
    assert_ne!(spread(&key, 8), delays[1]);
}

#[test]
fn a_cycle_does_not_drift_with_late_looks() {
    let mut machine = ScheduleMachine::new(cycle(10), Some(time("2026-01-01T00:00:00Z")));

    for (now, due) in [("00:00:13", "00:00:10"), ("00:00:29.9", "00:00:20"), ("00:00:30", "00:00:30")] {
        let due = Due::Run { planned: time(&format!("2026-01-01T{due}Z")), missed: 0 };
        assert_eq!(machine.due(&utc(&format!("2026-01-01T{now}Z")), false), due);
    }
}

#[test]
fn a_clock_set_back_does_not_run_a_planned_time_again() {
    let mut machine = ScheduleMachine::new(cron("* * * * *"), None);
    let begin = utc("2026-01-01T12:00:00Z");
    let mut planned = HashSet::new();
    let mut look = |minute: i64| match machine.due(&(&begin + SignedDuration::from_mins(minute)), false) {
        Due::Run { planned: at, .. } => assert!(planned.insert(at), "{at} again"),
        Due::Not | Due::Skipped { .. } => {}
    };
    (0..=30).for_each(&mut look);
    (10..=40).for_each(&mut look);

    assert_eq!(planned.len(), 40);
}

#[test]
fn a_clock_set_back_over_a_restart_does_not_run_a_planned_time_again() {
    let mut machine = ScheduleMachine::new(cron("* * * * *"), Some(time("2026-01-01T12:30:00Z")));

    assert_eq!(machine.due(&utc("2026-01-01T12:10:00Z"), false), Due::Not);

    assert_eq!(machine.next_run(), Some(time("2026-01-01T12:31:00Z")));
}

#[test]
fn a_clock_that_was_far_ahead_for_a_while_does_not_hold_the_schedule_up() {
    let mut machine = ScheduleMachine::new(cron("* * * * *"), Some(time("2026-01-01T12:00:00Z")));
    assert!(matches!(machine.due(&utc("2038-01-01T00:00:30Z"), false), Due::Run { missed: 1000, .. }));

    assert_eq!(machine.due(&utc("2026-01-01T12:01:30Z"), false), Due::Not);

    assert_eq!(machine.next_run(), Some(time("2026-01-01T12:02:00Z")));
    let mut restarted = ScheduleMachine::new(cron("* * * * *"), machine.last_planned());
    restarted.due(&utc("2026-01-01T12:01:30Z"), false);
    assert_eq!(restarted.next_run(), Some(time("2026-01-01T12:02:00Z")));
}

#[test]
fn a_fixed_time_in_the_gap_of_spring_runs_at_its_end() {
    let times = planned(&cron("30 2 * * *"), &berlin("2026-03-28T12:00:00Z"), 2);

    assert_eq!(times, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
}

#[test]
fn a_fixed_time_in_the_overlap_of_autumn_runs_once() {
    let times = planned(&cron("30 2 * * *"), &berlin("2026-10-24T12:00:00Z"), 2);

    assert_eq!(times, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
}

#[test]
fn a_rule_with_steps_runs_in_both_passes_of_the_overlap_and_not_in_the_gap() {
    let times = planned(&cron("*/30 * * * *"), &berlin("2026-10-25T00:00:00Z"), 5);
    assert_eq!(
        times,
        [
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
            "2026-10-25T02:30:00Z"
        ]
    );

    let times = planned(&cron("*/30 * * * *"), &berlin("2026-03-29T00:30:00Z"), 2);
    assert_eq!(times, ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
}

#[test]
fn a_host_that_moves_to_another_zone_follows_its_wall_clock() {
    let mut machine = ScheduleMachine::new(cron("0 12 * * *"), None);
    machine.due(&utc("2026-01-01T09:00:00Z"), false);
    assert_eq!(machine.next_run(), Some(time("2026-01-01T12:00:00Z")));

    machine.due(&berlin("2026-01-01T09:01:00Z"), false);

    assert_eq!(machine.next_run(), Some(time("2026-01-01T11:00:00Z")));
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        prop::sample::select(vec!["* * * * *", "*/7 * * * *", "30 2 * * *", "0 * * * mon-fri", "15 1-4 * * *"])
            .prop_map(cron),
        prop_oneof![1u32..100_000, 31_000_000u32..=31_622_400].prop_map(cycle),
    ]
}

fn any_zone() -> impl Strategy<Value = TimeZone> {
    prop::sample::select(vec!["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Asia/Kathmandu"])
        .prop_map(|name| TimeZone::get(name).unwrap())
}

/// Looks at the clock after each of these moves, in seconds; what was reported.
fn looks(
    machine: &mut ScheduleMachine,
    zone: &TimeZone,
    begin: Timestamp,
    moves: &[(i64, bool)],
) -> Vec<(Timestamp, Due)> {
    let mut at = begin;
    let look = |(secs, running): &(i64, bool)| {
        at += SignedDuration::from_secs(*secs);
        (at, machine.due(&at.to_zoned(zone.clone()), *running))
    };
    moves.iter().map(look).collect()
}

fn planned_of(due: Due) -> Option<Timestamp> {
    match due {
        Due::Not => None,
        Due::Run { planned, .. } | Due::Skipped { planned } => Some(planned),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn planned_times_increase_while_the_clock_goes_forward(
        schedule in any_schedule(), zone in any_zone(), begin in 1_700_000_000i64..1_800_000_000,
        moves in prop::collection::vec((0i64..20_000, any::<bool>()), 1..100),
    ) {
        let mut machine = ScheduleMachine::new(schedule, None);
        let begin = Timestamp::from_second(begin).unwrap();

        let looks = looks(&mut machine, &zone, begin, &moves);

        let planned: Vec<Timestamp> = looks.iter().filter_map(|(_, due)| planned_of(*due)).collect();
        prop_assert!(planned.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(looks.iter().all(|(at, due)| planned_of(*due).is_none_or(|planned| planned <= *at)));
        prop_assert!(machine.next_run().unwrap() > looks.last().unwrap().0);
    }

    #[test]
    fn no_planned_time_comes_twice_whatever_the_clock_does(
        schedule in any_schedule(), zone in any_zone(), begin in 1_700_000_000i64..1_800_000_000,
        moves in prop::collection::vec((-5_000i64..6_000, any::<bool>()), 1..100),
        jump in -10_000_000i64..10_000_000,
    ) {
        let mut machine = ScheduleMachine::new(schedule, None);
        let begin = Timestamp::from_second(begin).unwrap();
        // There and back: the jumps that a wrong clock makes.
        let mut moves = moves;
        moves.insert(moves.len() / 2, (jump, false));
        moves.push((-jump, false));

        let looks = looks(&mut machine, &zone, begin, &moves);

        let planned: Vec<Timestamp> = looks.iter().filter_map(|(_, due)| planned_of(*due)).collect();
        prop_assert_eq!(planned.iter().collect::<HashSet<_>>().len(), planned.len());
    }

    #[test]
    fn a_jump_ahead_is_caught_up_at_most_once(
        schedule in any_schedule(), zone in any_zone(), begin in 1_700_000_000i64..1_800_000_000,
        jump in 0i64..100_000_000,
    ) {
        let begin = Timestamp::from_second(begin).unwrap();
        let mut machine = ScheduleMachine::new(schedule, Some(begin));

        let looks = looks(&mut machine, &zone, begin, &[(jump, false), (0, false), (0, false)]);

        prop_assert!(looks.iter().filter(|(_, due)| *due != Due::Not).count() <= 1);
        prop_assert_eq!(looks[1].1, Due::Not);
    }

    #[test]
    fn a_restart_at_any_moment_neither_repeats_nor_loses_the_newest_time(
        schedule in any_schedule(), begin in 1_700_000_000i64..1_800_000_000,
        moves in prop::collection::vec((0i64..20_000, any::<bool>()), 1..50),
    ) {
        let begin = Timestamp::from_second(begin).unwrap();
        let mut lasting = ScheduleMachine::new(schedule.clone(), Some(begin));
        let mut restarted = ScheduleMachine::new(schedule.clone(), Some(begin));
        let mut at = begin;
        for (secs, running) in moves {
            at += SignedDuration::from_secs(secs);
            let now = at.to_zoned(TimeZone::UTC);
            restarted = ScheduleMachine::new(schedule.clone(), restarted.last_planned());
            prop_assert_eq!(restarted.due(&now, running), lasting.due(&now, running));
        }
    }
}
