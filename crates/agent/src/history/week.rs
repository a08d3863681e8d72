//! Steps of five minutes, as they are collected and as they are written.
//!
//! Promised: 16 bytes per step, none of which crosses a disk sector; bytes that were never written, or are damaged,
//! are not a step.
//! Absent: files (see `files`).

use proctor_model::{Spread, UsagePoint, UsageRange};

use super::Sample;
use super::percent::{FLAG, decode, encode};

pub(super) const STEP_SECS: u64 = UsageRange::Week.step_min() as u64;
pub(super) const SLOTS: u32 = UsageRange::Week.seconds() / UsageRange::Week.step_min();
pub(super) const SLOT_BYTES: usize = 16;

/// The usage within one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WeekStep {
    /// Its number since 1970.
    pub(super) number: u32,
    cpu: Extent,
    memory: Extent,
    restarted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Extent {
    min: f32,
    avg: f32,
    max: f32,
}

impl Extent {
    fn of(percent: f32) -> Self {
        Self { min: percent, avg: percent, max: percent }
    }

    /// `share` of the whole is the other's.
    fn with(self, other: Self, share: f32) -> Self {
        let (min, max) = (self.min.min(other.min), self.max.max(other.max));
        Self { min, avg: (self.avg + (other.avg - self.avg) * share).clamp(min, max), max }
    }

    fn spread(self) -> Spread {
        Spread { min: Some(self.min), avg: self.avg, max: self.max }
    }
}

/// A step that is not over.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenStep {
    so_far: WeekStep,
    samples: u16,
}

impl OpenStep {
    pub(super) fn new(now: u64, sample: Sample) -> Self {
        let so_far = WeekStep {
            number: number_at(now),
            cpu: Extent::of(sample.cpu),
            memory: Extent::of(sample.memory),
            restarted: sample.is_new_life,
        };
        Self { so_far, samples: 1 }
    }

    pub(super) fn number(&self) -> u32 {
        self.so_far.number
    }

    pub(super) fn add(&mut self, sample: Sample) {
        self.samples = self.samples.saturating_add(1);
        let share = 1.0 / f32::from(self.samples);
        let step = &mut self.so_far;
        step.cpu = step.cpu.with(Extent::of(sample.cpu), share);
        step.memory = step.memory.with(Extent::of(sample.memory), share);
        step.restarted |= sample.is_new_life;
    }

    pub(super) fn so_far(&self) -> WeekStep {
        self.so_far
    }
}

impl WeekStep {
    /// Two parts of one step: an agent that started again within it has recorded both. How many samples the first
    /// had is not written, so both count the same in the average.
    pub(super) fn merged(self, later: Self) -> Self {
        Self {
            number: later.number,
            cpu: self.cpu.with(later.cpu, 0.5),
            memory: self.memory.with(later.memory, 0.5),
            restarted: self.restarted || later.restarted,
        }
    }

    pub(super) fn point(&self) -> UsagePoint {
        UsagePoint {
            at: i64::from(self.number) * STEP_SECS.cast_signed(),
            cpu: self.cpu.spread(),
            memory: self.memory.spread(),
            restarted: self.restarted,
        }
    }

    /// Where it is written.
    pub(super) fn index(&self) -> u32 {
        self.number % SLOTS
    }

    pub(super) fn to_bytes(self) -> [u8; SLOT_BYTES] {
        let flag = if self.restarted { FLAG } else { 0 };
        let codes = [self.cpu.min, self.cpu.avg, self.cpu.max, self.memory.min, self.memory.avg, self.memory.max];
        let mut bytes = [0; SLOT_BYTES];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        for (index, percent) in codes.into_iter().enumerate() {
            let code = encode(percent) | if index == 0 { flag } else { 0 };
            bytes[4 + 2 * index..6 + 2 * index].copy_from_slice(&code.to_le_bytes());
        }
        bytes
    }

    /// None: nothing was written there, or not this.
    pub(super) fn from_bytes(index: u32, bytes: &[u8; SLOT_BYTES]) -> Option<Self> {
        let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let code = |at: usize| u16::from_le_bytes([bytes[4 + 2 * at], bytes[5 + 2 * at]]);
        let extent = |at| Extent { min: decode(code(at)), avg: decode(code(at + 1)), max: decode(code(at + 2)) };
        let step = Self { number, cpu: extent(0), memory: extent(3), restarted: code(0) & FLAG != 0 };
        let is_sound = step.cpu.spread().is_sound() && step.memory.spread().is_sound();
        (number > 0 && step.index() == index && is_sound).then_some(step)
    }
}

pub(super) fn number_at(now: u64) -> u32 {
    u32::try_from(now / STEP_SECS).unwrap_or(u32::MAX)
}

/// The steps of the last week, in order; what is later than now comes from a wrong clock.
pub(super) fn of_last_week(steps: impl IntoIterator<Item = WeekStep>, now: u64) -> Vec<WeekStep> {
    let current = number_at(now);
    let is_recent = |step: &WeekStep| step.number <= current && current - step.number < SLOTS;
    let mut steps: Vec<WeekStep> = steps.into_iter().filter(is_recent).collect();
    steps.sort_by_key(|step| step.number);
    steps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> impl Strategy<Value = Sample> {
        (0.0_f32..=100.0, 0.0_f32..=100.0, any::<bool>()).prop_map(|(cpu, memory, is_new_life)| Sample {
            cpu,
            memory,
            is_new_life,
        })
    }

    fn collected(now: u64, samples: &[Sample]) -> WeekStep {
        let mut open = OpenStep::new(now, samples[0]);
        samples[1..].iter().for_each(|sample| open.add(*sample));
        open.so_far()
    }

    proptest! {
        #[test]
        fn a_step_has_the_extent_of_its_samples(samples in prop::collection::vec(sample(), 1..100)) {
            let step = collected(1_700_000_000, &samples);

            let cpu: Vec<f32> = samples.iter().map(|sample| sample.cpu).collect();
            let mean = cpu.iter().sum::<f32>() / cpu.len() as f32;
            prop_assert_eq!(step.cpu.min, cpu.iter().copied().fold(f32::INFINITY, f32::min));
            prop_assert_eq!(step.cpu.max, cpu.iter().copied().fold(0.0, f32::max));
            prop_assert!((step.cpu.avg - mean).abs() < 0.01, "{} {mean}", step.cpu.avg);
            prop_assert!(step.point().cpu.is_sound() && step.point().memory.is_sound());
        }

        #[test]
        fn a_step_is_read_as_it_was_written(now in 300_u64..5_000_000_000, samples in prop::collection::vec(sample(), 1..9)) {
            let step = collected(now, &samples);

            let read = WeekStep::from_bytes(step.index(), &step.to_bytes()).expect("it is one");

            let is_near = |one: f32, other: f32| (one - other).abs() <= 0.1;
            prop_assert_eq!((read.number, read.restarted), (step.number, step.restarted));
            prop_assert!(is_near(read.cpu.avg, step.cpu.avg) && is_near(read.memory.max, step.memory.max));
            prop_assert!(WeekStep::from_bytes((step.index() + 1) % SLOTS, &step.to_bytes()).is_none());
        }

        #[test]
        fn any_bytes_are_a_sound_step_or_none(index in 0..SLOTS, bytes in any::<[u8; SLOT_BYTES]>()) {
            if let Some(step) = WeekStep::from_bytes(index, &bytes) {
                prop_assert!(step.point().cpu.is_sound() && step.point().memory.is_sound());
            }
            prop_assert!(WeekStep::from_bytes(index, &[0; SLOT_BYTES]).is_none());
        }

        #[test]
        fn a_merged_step_covers_both(one in prop::collection::vec(sample(), 1..9), other in prop::collection::vec(sample(), 1..9)) {
            let (one, other) = (collected(3000, &one), collected(3000, &other));

            let both = one.merged(other);

            prop_assert!(both.cpu.min == one.cpu.min.min(other.cpu.min) && both.cpu.max == one.cpu.max.max(other.cpu.max));
            prop_assert!(both.point().cpu.is_sound());
        }
    }
}
