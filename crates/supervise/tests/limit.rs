//! The judge of a process's own limits, in virtual time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use proctor_model::{Limits, Percent};
use proctor_supervise::{Breach, LimitJudge, Resource, Sample, Time};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(secs: f64) -> Time {
    Time::since_boot(Duration::from_secs_f64(secs))
}

fn limits(cpu: f64, memory: f64) -> Limits {
    let percent = |value: f64| Some(Percent::try_from(value).unwrap());
    Limits { cpu: percent(cpu), memory: percent(memory), ..Limits::default() }
}

fn sample(secs: f64, cpu: f64, memory: f64) -> Sample {
    Sample { at: at(secs), cpu, memory, fds: None }
}

/// Samples as often as the judge asks, for a life that starts at 100 s; when and how it breaches.
fn live(limits: &Limits, secs: f64, usage: impl Fn(f64) -> (f64, f64)) -> Option<(f64, Breach)> {
    let mut judge = LimitJudge::new(at(100.0));
    let mut age = 0.5;
    while age <= secs {
        let (cpu, memory) = usage(age);
        if let Some(breach) = judge.judge(limits, sample(100.0 + age, cpu, memory)) {
            return Some((age, breach));
        }
        age += judge.next_sample(limits, at(100.0 + age)).as_secs_f64();
    }
    None
}

#[test]
fn f2_a_busy_thread_on_64_cores_breaks_a_limit_of_one_percent() {
    let (age, breach) = live(&limits(1.0, 0.0), 60.0, |_| (100.0 / 64.0, 0.1)).unwrap();

    assert_eq!((breach.resource, breach.limit), (Resource::Cpu, 1.0));
    assert!((breach.usage - 1.5625).abs() < 1e-9);
    assert!((18.0..=22.0).contains(&age), "after the start and one window, not at {age} s");
}

#[test]
fn f3_a_spike_of_two_seconds_at_the_start_is_forgiven() {
    let spike = |age: f64| if age <= 2.0 { (100.0, 1.0) } else { (1.0, 1.0) };

    assert_eq!(live(&limits(5.0, 10.0), 600.0, spike), None);
}

#[test]
fn f3_a_start_that_never_calms_down_is_not_forgiven() {
    let (age, _) = live(&limits(5.0, 0.0), 600.0, |_| (30.0, 0.0)).unwrap();

    assert!(age < 25.0, "{age}");
}

#[test]
fn f4_a_fast_leak_is_seen_long_before_the_host_is_full() {
    let leak = |age: f64| (10.0, if age < 60.0 { 1.0 } else { 1.0 + (age - 60.0) * 9.0 });

    let (age, breach) = live(&limits(0.0, 10.0), 600.0, leak).unwrap();

    assert_eq!(breach.resource, Resource::Memory);
    assert!(leak(age).1 < 100.0, "at {age} s");
}

#[test]
fn f4_memory_that_grows_fast_is_sampled_faster() {
    let limits = limits(0.0, 10.0);
    let mut judge = LimitJudge::new(at(0.0));
    judge.judge(&limits, sample(100.0, 0.0, 1.0));
    judge.judge(&limits, sample(101.0, 0.0, 8.0));

    assert!(judge.next_sample(&limits, at(101.0)) < SECOND);
}

#[test]
fn f15_noise_of_half_a_point_around_the_limits_never_kills() {
    for limit in [5.0, 10.0, 50.0] {
        for rhythm in [2.0, 3.0, 7.0, 20.0, 50.0] {
            let wave = |age: f64| (age / rhythm * std::f64::consts::TAU).sin().signum() * 0.5;
            let noisy = |age: f64| (limit + wave(age), limit + wave(age));

            assert_eq!(live(&limits(limit, limit), 600.0, noisy), None, "limit {limit}, rhythm {rhythm}");
        }
    }
}

#[test]
fn one_percent_over_a_limit_is_not_noise() {
    for (usage, within) in [(11.0, 25.0), (10.1, 45.0)] {
        let (age, breach) = live(&limits(10.0, 0.0), 600.0, |_| (usage, 0.0)).unwrap();
        assert!(breach.resource == Resource::Cpu && age <= within, "CPU {usage} at {age} s");

        let (age, breach) = live(&limits(0.0, 10.0), 600.0, |_| (0.0, usage)).unwrap();
        assert!(breach.resource == Resource::Memory && age <= within, "memory {usage} at {age} s");
    }
}

#[test]
fn a_few_thousandths_over_a_limit_are_noise_for_ever() {
    assert_eq!(live(&limits(10.0, 10.0), 600.0, |_| (10.04, 10.04)), None);
}

#[test]
fn memory_is_judged_from_the_start_on_two_consecutive_samples() {
    let limits = limits(0.0, 10.0);
    let mut judge = LimitJudge::new(at(100.0));

    assert_eq!(judge.judge(&limits, sample(100.5, 0.0, 11.0)), None);
    assert_eq!(judge.judge(&limits, sample(101.5, 0.0, 9.0)), None);
    assert_eq!(judge.judge(&limits, sample(102.5, 0.0, 11.0)), None);
    assert_eq!(
        judge.judge(&limits, sample(103.5, 0.0, 11.5)),
        Some(Breach { resource: Resource::Memory, usage: 11.5, limit: 10.0 })
    );
}

#[test]
fn memory_far_over_its_limit_is_a_breach_at_once() {
    let limits = limits(0.0, 10.0);

    assert!(LimitJudge::new(at(0.0)).judge(&limits, sample(1.0, 0.0, 12.6)).is_some());
}

#[test]
fn memory_comes_before_cpu() {
    let mut judge = LimitJudge::new(at(0.0));
    let limits = limits(1.0, 10.0);
    for second in 100..120 {
        judge.judge(&limits, sample(f64::from(second), 50.0, 1.0));
    }

    let breach = judge.judge(&limits, sample(120.0, 50.0, 20.0)).unwrap();

    assert_eq!(breach.resource, Resource::Memory);
}

#[test]
fn no_limit_and_zero_are_never_broken() {
    for limits in [Limits::default(), limits(0.0, 0.0)] {
        assert_eq!(live(&limits, 300.0, |_| (100.0, 100.0)), None);
    }
}

#[test]
fn samples_that_make_no_sense_change_nothing() {
    let limits = limits(10.0, 10.0);
    let mut judge = LimitJudge::new(at(0.0));
    for second in 20..60 {
        let second = f64::from(second);
        assert_eq!(judge.judge(&limits, sample(second, f64::NAN, f64::INFINITY)), None);
        assert_eq!(judge.judge(&limits, sample(second, 99.0, 99.0)), None, "the same time again");
        assert_eq!(judge.judge(&limits, sample(second - 5.0, 99.0, 99.0)), None, "an older time");
        assert_eq!(judge.judge(&limits, sample(second + 0.5, -1.0, -1.0)), None);
    }

    let usage = judge.usage().unwrap();
    assert_eq!((usage.cpu, usage.memory), (0.0, 0.0));
}

#[test]
fn a_broken_cpu_reading_does_not_hide_memory() {
    let limits = limits(10.0, 10.0);
    let mut judge = LimitJudge::new(at(0.0));
    judge.judge(&limits, sample(1.0, f64::NAN, 11.0));

    assert!(judge.judge(&limits, sample(2.0, f64::NAN, 11.0)).is_some());
}

#[test]
fn after_a_hole_the_windows_begin_anew() {
    let limits = limits(10.0, 10.0);
    let mut judge = LimitJudge::new(at(0.0));
    judge.judge(&limits, sample(99.0, 5.0, 11.0));

    assert_eq!(judge.judge(&limits, sample(199.0, 50.0, 11.0)), None, "memory: not consecutive");
    for second in 200..207 {
        assert_eq!(judge.judge(&limits, sample(f64::from(second), 50.0, 1.0)), None, "CPU: too little seen");
    }
    assert!(judge.judge(&limits, sample(207.0, 50.0, 1.0)).is_some());
}

#[test]
fn sampling_slows_down_far_from_the_limits() {
    let limits = limits(10.0, 10.0);
    let period = |cpu: f64, memory: f64| {
        let mut judge = LimitJudge::new(at(0.0));
        judge.judge(&limits, sample(100.0, cpu, memory));
        judge.next_sample(&limits, at(100.0))
    };

    assert_eq!(period(0.0, 0.0), Duration::from_secs(10));
    assert_eq!(period(3.5, 0.0), Duration::from_millis(5500));
    assert_eq!(period(7.0, 0.0), SECOND);
    assert_eq!(period(0.0, 9.0), SECOND);
    let young = LimitJudge::new(at(0.0));
    assert_eq!(young.next_sample(&limits, at(5.0)), SECOND);
    assert_eq!(young.next_sample(&Limits::default(), at(5.0)), Duration::from_secs(10));
}

#[test]
fn too_many_descriptors_are_warned_of_once_until_they_have_been_few() {
    let limits = Limits { fd: Some(100), ..Limits::default() };
    let mut judge = LimitJudge::new(at(0.0));
    let mut warned = Vec::new();
    for (second, fds) in (1..).zip([100, 101, 150, 99, 101, 89, 101]) {
        judge.judge(&limits, Sample { fds: Some(fds), ..sample(f64::from(second), 0.0, 0.0) });
        warned.push(judge.fd_warning(&limits));
    }

    assert_eq!(warned, [false, true, false, false, false, false, true]);
    assert!(!judge.fd_warning(&Limits { fd: Some(0), ..Limits::default() }));
}

proptest! {
    #[test]
    fn usage_that_stays_inside_its_limits_is_never_a_breach(
        limit in 0.1..100.0f64, parts in prop::collection::vec((0.0..=1.0f64, 1u64..15_000), 1..200),
    ) {
        let limits = limits(limit, limit);
        let (mut judge, mut now) = (LimitJudge::new(at(0.0)), at(0.0));
        for (part, wait) in parts {
            now = now + Duration::from_millis(wait);
            let sample = Sample { at: now, cpu: limit * part, memory: limit * part, fds: None };
            prop_assert_eq!(judge.judge(&limits, sample), None);
        }
    }

    #[test]
    fn usage_clearly_over_a_limit_is_a_breach_within_half_a_minute(
        limit in 0.1..90.0f64, over in 0.001..10.0f64, memory in any::<bool>(),
    ) {
        let usage = limit + (limit * 0.2).min(0.5) + over;
        let (limits, usage) = match memory {
            true => (limits(0.0, limit), (0.0, usage)),
            false => (limits(limit, 0.0), (usage, 0.0)),
        };

        let (age, _) = live(&limits, 30.0, |_| usage).expect("a breach");

        let longest = if memory { 2.0 } else { 25.0 };
        prop_assert!(age <= longest);
    }

    #[test]
    fn usage_barely_over_a_limit_is_a_breach_in_the_end(limit in 0.1..90.0f64, part in 1.006..1.2f64) {
        prop_assert!(live(&limits(limit, 0.0), 60.0, |_| (limit * part, 0.0)).is_some());
        prop_assert!(live(&limits(0.0, limit), 60.0, |_| (0.0, limit * part)).is_some());
    }

    #[test]
    fn no_sample_whatever_it_says_upsets_the_judge(
        samples in prop::collection::vec((any::<u32>(), any::<f64>(), any::<f64>(), any::<Option<u64>>()), 0..100),
        limit in 0.0..100.0f64, fd in any::<Option<u64>>(),
    ) {
        let limits = Limits { fd, ..limits(limit, limit) };
        let mut judge = LimitJudge::new(at(10.0));
        for (millis, cpu, memory, fds) in samples {
            let now = Time::since_boot(Duration::from_millis(millis.into()));
            judge.judge(&limits, Sample { at: now, cpu, memory, fds });
            judge.fd_warning(&limits);
            let wait = judge.next_sample(&limits, now);
            prop_assert!((Duration::from_millis(250)..=Duration::from_secs(10)).contains(&wait));
        }
    }
}
