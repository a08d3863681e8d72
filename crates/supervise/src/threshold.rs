//! When usage counts as over its limit: what the limits of one process and of a pool share.
//!
//! | | memory | CPU |
//! |---|---|---|
//! | far over: above 1.25 × the limit | at once | by the mean |
//! | clearly over: more than half a point of the machine, or a fifth of a small limit | two consecutive samples | mean of 10 s |
//! | barely over: more than 0.5 % of the limit | every sample for 30 s | every sample for 30 s |
//!
//! The middle row keeps noise of half a point around a limit from killing, whatever its rhythm;
//! the last row keeps that tolerance from becoming a second, higher limit.
//!
//! Promised: usage that stays at or below its limit is never over it. A measurement that cannot be
//! one (not finite, negative) is no evidence. Memory is bounded, however often samples come.
//! Absent: who is measured, and what follows.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Time;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    Cpu,
    Memory,
}

impl Resource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

const FAR_OVER: f64 = 1.25;
const BAND_POINTS: f64 = 0.5;
/// Half a point is most of a limit of 1 %, so the band of a small limit is a part of it.
const BAND_PART: f64 = 0.2;
const BARELY_OVER: f64 = 1.005;
const BARELY_OVER_FOR: Duration = Duration::from_secs(30);

/// Over which the mean of CPU usage is taken.
const WINDOW: Duration = Duration::from_secs(10);
/// A mean of less than this speaks of a moment, not of the window.
const COVERED_MIN: Duration = Duration::from_secs(8);
/// Samples may come faster than anybody planned; the oldest spans are joined then.
const SPANS_MAX: usize = 64;

/// A limit that limits; 0 is a way to write that there is none.
pub(crate) fn effective(limit: Option<f64>) -> Option<f64> {
    limit.filter(|limit| limit.is_finite() && *limit > 0.0)
}

/// A measurement that can be one.
pub(crate) fn sound(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

pub(crate) fn far_over(limit: f64) -> f64 {
    limit * FAR_OVER
}

/// How far from a limit usage may stray by noise.
pub(crate) fn band(limit: f64) -> f64 {
    BAND_POINTS.min(limit * BAND_PART)
}

fn is_clearly_over(value: f64, limit: f64) -> bool {
    value > limit + band(limit)
}

/// For how long no sample has been inside the limit.
#[derive(Debug, Default)]
struct Streak {
    since: Option<Time>,
    limit: Option<f64>,
}

impl Streak {
    fn observe(&mut self, at: Time, value: f64, limit: f64) {
        let above = value > limit * BARELY_OVER;
        let known = self.since.filter(|_| self.limit == Some(limit));
        self.since = above.then(|| known.unwrap_or(at));
        self.limit = Some(limit);
    }

    fn is_long(&self, at: Time) -> bool {
        self.since.is_some_and(|since| at.since(since) >= BARELY_OVER_FOR)
    }
}

/// Memory: what counts is the amount now, and that it was not a moment's.
#[derive(Debug, Default)]
pub(crate) struct Level {
    /// The newest sample, and the value of the one before it.
    newest: Option<(Time, f64)>,
    previous: Option<f64>,
    streak: Streak,
}

impl Level {
    pub(crate) fn observe(&mut self, at: Time, value: Option<f64>, limit: f64) {
        let Some(value) = value else { return };
        self.previous = self.newest.map(|(_, value)| value);
        self.newest = Some((at, value));
        self.streak.observe(at, value, limit);
    }

    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// The usage, where it is over the limit.
    pub(crate) fn over(&self, limit: f64) -> Option<f64> {
        let (at, value) = self.newest?;
        let twice = is_clearly_over(value, limit) && self.previous.is_some_and(|value| is_clearly_over(value, limit));
        (value > far_over(limit) || twice || self.streak.is_long(at)).then_some(value)
    }
}

/// CPU: what counts is the mean over a while, each sample weighing as much as the time it covers.
#[derive(Debug, Default)]
pub(crate) struct Mean {
    spans: VecDeque<Span>,
    newest: Option<(Time, f64)>,
    streak: Streak,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: Time,
    until: Time,
    value: f64,
}

impl Span {
    fn join(self, later: Self) -> Self {
        let (a, b) = (self.until.since(self.from).as_secs_f64(), later.until.since(later.from).as_secs_f64());
        let value = if a + b > 0.0 { (self.value * a + later.value * b) / (a + b) } else { later.value };
        Self { from: self.from, until: later.until, value }
    }

    /// How much of it lies in the window that ends at `at`.
    fn inside(self, at: Time) -> Duration {
        at.since(self.from).min(WINDOW).saturating_sub(at.since(self.until))
    }
}

impl Mean {
    /// `value` is the mean since the previous sample; the first sample only says from where on.
    pub(crate) fn observe(&mut self, at: Time, value: Option<f64>, limit: f64) {
        let from = self.newest.map(|(at, _)| at);
        let Some(value) = value else {
            self.newest = self.newest.map(|(_, value)| (at, value)); // this time is not covered
            return;
        };
        if let Some(from) = from {
            self.spans.push_back(Span { from, until: at, value });
        }
        self.spans.retain(|span| !span.inside(at).is_zero());
        if self.spans.len() > SPANS_MAX
            && let (Some(oldest), Some(next)) = (self.spans.pop_front(), self.spans.pop_front())
        {
            self.spans.push_front(oldest.join(next));
        }
        self.newest = Some((at, value));
        self.streak.observe(at, value, limit);
    }

    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// The usage, where it is over the limit.
    pub(crate) fn over(&self, limit: f64) -> Option<f64> {
        let (at, newest) = self.newest?;
        let mean = self.mean(at);
        mean.filter(|mean| is_clearly_over(*mean, limit))
            .or_else(|| self.streak.is_long(at).then(|| mean.unwrap_or(newest)))
    }

    fn mean(&self, at: Time) -> Option<f64> {
        let covered: Duration = self.spans.iter().map(|span| span.inside(at)).sum();
        let used: f64 = self.spans.iter().map(|span| span.value * span.inside(at).as_secs_f64()).sum();
        (covered >= COVERED_MIN).then(|| used / covered.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::since_boot(Duration::from_millis(millis))
    }

    #[test]
    fn a_sample_weighs_as_much_as_the_time_it_covers() {
        let mut mean = Mean::default();
        for (millis, value) in [(0, 99.0), (2000, 50.0), (10_000, 0.0)] {
            mean.observe(at(millis), Some(value), 1.0);
        }

        assert_eq!(mean.over(9.0), Some(10.0));
        assert_eq!(mean.over(10.0), None);
    }

    #[test]
    fn a_window_with_holes_says_nothing() {
        let mut mean = Mean::default();
        mean.observe(at(0), Some(50.0), 1.0);
        mean.observe(at(7000), Some(50.0), 1.0);
        mean.observe(at(10_000), None, 1.0);
        mean.observe(at(10_500), Some(50.0), 1.0);

        assert_eq!(mean.over(1.0), None);
    }

    #[test]
    fn the_window_stays_small_and_right_however_often_samples_come() {
        let mut mean = Mean::default();
        for tick in 0..20_000 {
            mean.observe(at(tick * 5), Some(if tick % 2 == 0 { 10.0 } else { 20.0 }), 1.0);
        }

        assert!(mean.spans.len() <= SPANS_MAX);
        let usage = mean.over(1.0).unwrap();
        assert!((14.9..15.1).contains(&usage), "{usage}");
    }

    #[test]
    fn a_changed_limit_counts_its_own_half_minute() {
        let mut level = Level::default();
        for second in 0..40 {
            level.observe(at(second * 1000), Some(10.2), if second < 25 { 10.0 } else { 10.1 });
        }

        assert_eq!(level.over(10.1), None);
    }
}
