//! Crontab rules: one byte for the zone, four for the time, the rest is the rule.

#![no_main]

use std::sync::LazyLock;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use libfuzzer_sys::fuzz_target;
use proctor_model::{CronRule, Lifetime, Policy};
use proctor_supervise::Schedule;

const STEPS: usize = 5;
/// A rule that never comes is searched for up to the year 5000, which takes seconds under a sanitizer. The calendar
/// repeats every 400 years to the day, so most rules are tried from 4770 on instead of 1970.
const LATER: i64 = 7 * 146_097 * 86_400;
/// In the byte for the zone: a time between 1970 and 2106 all the same.
const OUR_ERA: u8 = 255;

/// Whole hours, half hours of daylight saving, midnight that does not exist, far from UTC.
static ZONES: LazyLock<Vec<TimeZone>> = LazyLock::new(|| {
    let rules = [
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
        "EET-2EEST,M4.5.5/0,M10.5.4/24",
        "<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45",
        "NST3:30NDT,M3.2.0,M11.1.0",
        "IST-1GMT0,M10.5.0,M3.5.0/1",
    ];
    let zones = rules.iter().map(|rule| TimeZone::posix(rule).expect("a rule of POSIX"));
    [TimeZone::UTC].into_iter().chain(zones).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_first_chunk::<5>() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let Ok(rule) = text.parse::<CronRule>() else { return };
    assert_eq!(rule.as_str(), text);

    let policy = Policy { crontab_rule: Some(rule), ..Policy::new(Lifetime::Periodic) };
    let schedule = Schedule::of(&policy).expect("a rule that the model accepts is a schedule");
    let zone = ZONES[usize::from(head[0]) % ZONES.len()].clone();
    let seconds = i64::from(u32::from_le_bytes([head[1], head[2], head[3], head[4]]));
    let era = if head[0] == OUR_ERA { 0 } else { LATER };
    let mut at = Timestamp::from_second(seconds + era).expect("a time of our era").to_zoned(zone);
    for _ in 0..STEPS {
        let Some(next) = schedule.next_after(&at) else {
            is_over(&schedule, &at);
            return;
        };
        assert!(next > at, "'{text}': {next} comes after {at}");
        assert_eq!(next.time_zone(), at.time_zone());
        at = next;
    }
});

/// What has no next time now has none later.
fn is_over(schedule: &Schedule, at: &Zoned) {
    for days in [1, 200] {
        let later = at.checked_add(Span::new().days(days)).expect("a time of our era");
        let next = schedule.next_after(&later);
        assert!(next.is_none(), "nothing is planned after {at}, but {next:?} after {later}");
    }
}
