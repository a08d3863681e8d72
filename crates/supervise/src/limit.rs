//! Judges one life: is it over its own limits?
//!
//! Promised: CPU is judged by what it used after its first ten seconds, memory from the start; the table in
//! [`crate::threshold`] says what "over" means; a limit of none or 0 is never exceeded; late, repeated and invalid
//! samples change nothing; after a gap in the samples the windows start over. A breach is reported with every
//! sample while it lasts; the process machine acts on it once. Absent: measuring. The driver samples when
//! [`LimitJudge::next_sample`] says, because a longer wait is a gap.

use std::time::Duration;

use proctor_model::{Limits, Percent};

use crate::Time;
use crate::threshold::{Level, Mean, Resource, effective, far_over, sound};

/// A start may use as much CPU as it wants.
const START_GRACE: Duration = Duration::from_secs(10);
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(10);
/// For memory that grows so fast that the next sample would come too late for the host.
const PERIOD_URGENT: Duration = Duration::from_millis(250);
/// From this part of a limit on, every second counts.
const NEAR: f64 = 0.7;
/// A wait longer than this many periods is a gap.
const GAP_PERIODS: u32 = 3;
/// A warning about descriptors is due again after their number has been below this part.
const FD_CALM: f64 = 0.9;

/// One measurement of a process and its descendants, in % of the whole machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub at: Time,
    /// Since the previous sample.
    pub cpu: f64,
    pub memory: f64,
    pub fds: Option<u64>,
}

/// A limit that is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breach {
    pub resource: Resource,
    pub usage: f64,
    pub limit: f64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct LimitJudge {
    started: Time,
    newest: Option<Sample>,
    memory: Level,
    cpu: Mean,
    /// By how many points a second memory grew between the last two samples.
    growth: f64,
    /// When the next sample was expected, counted from the newest.
    period: Duration,
    fd_warned: bool,
}

impl LimitJudge {
    /// For the life that started at `started`.
    pub fn new(started: Time) -> Self {
        Self {
            started,
            newest: None,
            memory: Level::default(),
            cpu: Mean::default(),
            growth: 0.0,
            period: PERIOD_MIN,
            fd_warned: false,
        }
    }

    /// Takes the next sample. Memory comes first where both limits are broken.
    pub fn judge(&mut self, limits: &Limits, sample: Sample) -> Option<Breach> {
        if self.newest.is_some_and(|newest| sample.at <= newest.at) {
            return None;
        }
        self.take(limits, sample);
        self.breach(limits)
    }

    /// Whether to warn about open descriptors now: once when they exceed their limit, again only after they have
    /// been well below it.
    pub fn fd_warning(&mut self, limits: &Limits) -> bool {
        let Some(limit) = limits.fd.filter(|limit| *limit > 0) else {
            self.fd_warned = false;
            return false;
        };
        let Some(fds) = self.newest.and_then(|newest| newest.fds) else { return false };
        if fds > limit {
            return !std::mem::replace(&mut self.fd_warned, true);
        }
        if (fds as f64) < limit as f64 * FD_CALM {
            self.fd_warned = false;
        }
        false
    }

    /// How long to wait for the next sample: a second near a limit and after the start, up to ten far from it or if
    /// only the status needs it.
    pub fn next_sample(&self, limits: &Limits, now: Time) -> Duration {
        let (cpu, memory) = (limit_of(limits.cpu), limit_of(limits.memory));
        if cpu.is_none() && memory.is_none() {
            return PERIOD_MAX;
        }
        let Some(newest) = self.newest.filter(|_| now.since(self.started) >= START_GRACE) else {
            return self.urgency(memory).unwrap_or(PERIOD_MIN);
        };
        let part = |usage: f64, limit: Option<f64>| limit.map_or(0.0, |limit| usage / limit);
        let near = part(newest.cpu, cpu).max(part(newest.memory, memory)) / NEAR;
        let calm = PERIOD_MAX - (PERIOD_MAX - PERIOD_MIN).mul_f64(near.clamp(0.0, 1.0));
        self.urgency(memory).unwrap_or(calm)
    }

    /// The newest sample.
    pub fn usage(&self) -> Option<Sample> {
        self.newest
    }

    fn take(&mut self, limits: &Limits, sample: Sample) {
        let since_newest = self.newest.map(|newest| sample.at.since(newest.at));
        if since_newest.is_some_and(|wait| wait > self.period.max(PERIOD_MIN) * GAP_PERIODS) {
            self.memory.restart();
            self.cpu.restart();
        }
        let (cpu, memory) = (sound(sample.cpu), sound(sample.memory));
        match limit_of(limits.memory) {
            Some(limit) => self.memory.observe(sample.at, memory, limit),
            None => self.memory.restart(),
        }
        match limit_of(limits.cpu) {
            Some(limit) if sample.at.since(self.started) >= START_GRACE => self.cpu.observe(sample.at, cpu, limit),
            Some(_) | None => self.cpu.restart(),
        }
        self.growth = match (self.newest, since_newest, memory) {
            (Some(newest), Some(wait), Some(memory)) => (memory - newest.memory) / wait.as_secs_f64(),
            // A new life has used everything since its start.
            (None, _, Some(memory)) => memory / sample.at.since(self.started).as_secs_f64().max(0.001),
            (Some(_), None, _) | (_, _, None) => 0.0,
        };
        self.newest = Some(Sample { cpu: cpu.unwrap_or(0.0), memory: memory.unwrap_or(0.0), ..sample });
        self.period = self.next_sample(limits, sample.at);
    }

    fn breach(&self, limits: &Limits) -> Option<Breach> {
        let broken = |resource, limit: Option<f64>, over: &dyn Fn(f64) -> Option<f64>| {
            limit.and_then(|limit| Some(Breach { resource, usage: over(limit)?, limit }))
        };
        broken(Resource::Memory, limit_of(limits.memory), &|limit| self.memory.over(limit))
            .or_else(|| broken(Resource::Cpu, limit_of(limits.cpu), &|limit| self.cpu.over(limit)))
    }

    /// Half the time until memory is far over its limit at its current growth, if that is soon.
    fn urgency(&self, memory: Option<f64>) -> Option<Duration> {
        let room = far_over(memory?) - self.newest?.memory;
        (self.growth > 0.0 && room < self.growth * 2.0 * PERIOD_MIN.as_secs_f64())
            .then(|| Duration::from_secs_f64((room / self.growth / 2.0).max(0.0)).max(PERIOD_URGENT))
    }
}

fn limit_of(limit: Option<Percent>) -> Option<f64> {
    effective(limit.map(Percent::get))
}
