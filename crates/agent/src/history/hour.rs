//! The last hour of one process, in memory: a ring of steps with the average and the maximum of each.
//!
//! Promised: points are within the last hour, in order, and each value is in the step in which it was recorded. A
//! clock that goes back discards what is later than now; one that goes forward leaves a gap.
//! Absent: clocks (`now` is an argument, in Unix seconds) and how often samples come.

use proctor_model::{Spread, UsagePoint, UsageRange};

use super::percent::{EMPTY, FLAG, decode, encode};
use super::{Sample, Step};

/// 0xFFFF in `cpu` is a step without a sample; its flag says that a new life began.
#[derive(Clone, Copy, Debug)]
struct Slot {
    cpu: u16,
    cpu_max: u16,
    memory: u16,
    memory_max: u16,
}

const NO_SAMPLE: Slot = Slot { cpu: EMPTY, cpu_max: 0, memory: 0, memory_max: 0 };

#[derive(Debug)]
pub(super) struct HourRing {
    step: Step,
    /// The number of the newest step since 1970.
    newest: u64,
    /// Of the newest step.
    sum: Sum,
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    samples: u16,
    cpu: f32,
    cpu_max: f32,
    memory: f32,
    memory_max: f32,
    restarted: bool,
}

impl HourRing {
    pub(super) fn new(step: Step) -> Self {
        Self { step, newest: 0, sum: Sum::default(), slots: vec![NO_SAMPLE; step.slots()].into() }
    }

    pub(super) fn step(&self) -> Step {
        self.step
    }

    /// The heap size of a ring with this step.
    pub(super) const fn bytes(step: Step) -> usize {
        step.slots() * size_of::<Slot>()
    }

    pub(super) fn record(&mut self, now: u64, sample: Sample) {
        self.add(now, sample, sample.cpu, sample.memory);
    }

    fn add(&mut self, now: u64, sample: Sample, cpu_max: f32, memory_max: f32) {
        let number = now / self.step.seconds();
        self.move_to(number);
        let sum = &mut self.sum;
        sum.samples = sum.samples.saturating_add(1);
        sum.cpu += sample.cpu;
        sum.cpu_max = sum.cpu_max.max(cpu_max);
        sum.memory += sample.memory;
        sum.memory_max = sum.memory_max.max(memory_max);
        sum.restarted |= sample.is_new_life;
        let (count, flag) = (f32::from(sum.samples), if sum.restarted { FLAG } else { 0 });
        let (cpu, memory) = (encode(sum.cpu / count), encode(sum.memory / count));
        // An average of equal numbers may be rounded above them.
        let (cpu_max, memory_max) = (encode(sum.cpu_max).max(cpu), encode(sum.memory_max).max(memory));
        let slot = Slot { cpu: cpu | flag, cpu_max, memory, memory_max };
        let index = self.index(number);
        self.slots[index] = slot;
    }

    fn move_to(&mut self, number: u64) {
        if number == self.newest {
            return;
        }
        let (from, to) = if number > self.newest { (self.newest + 1, number) } else { (number, self.newest) };
        let stale = (to - from + 1).min(self.slots.len() as u64);
        for number in from..from + stale {
            let index = self.index(number);
            self.slots[index] = NO_SAMPLE;
        }
        self.newest = number;
        self.sum = Sum::default();
    }

    /// The same hour in another step. A coarse point counts for every finer step that it covers.
    pub(super) fn in_step(&self, step: Step, now: u64) -> Self {
        let mut ring = Self::new(step);
        for point in self.points(now) {
            let at = u64::try_from(point.at).unwrap_or(0);
            for part in 0..(self.step.seconds() / step.seconds()).max(1) {
                let is_new_life = point.restarted && part == 0;
                let sample = Sample { cpu: point.cpu.avg, memory: point.memory.avg, is_new_life };
                ring.add(at + part * step.seconds(), sample, point.cpu.max, point.memory.max);
            }
        }
        ring
    }

    pub(super) fn points(&self, now: u64) -> Vec<UsagePoint> {
        let current = now / self.step.seconds();
        let slots = self.slots.len() as u64;
        let first = (self.newest + 1).saturating_sub(slots).max((current + 1).saturating_sub(slots));
        (first..=self.newest.min(current)).filter_map(|number| self.point(number)).collect()
    }

    /// The newest point, if it is not older than two steps.
    pub(super) fn newest(&self, now: u64) -> Option<UsagePoint> {
        let age = (now / self.step.seconds()).checked_sub(self.newest)?;
        if age <= 2 { self.point(self.newest) } else { None }
    }

    fn point(&self, number: u64) -> Option<UsagePoint> {
        let slot = self.slots[self.index(number)];
        let point = UsagePoint {
            at: i64::try_from(number * self.step.seconds()).unwrap_or(i64::MAX),
            cpu: Spread { min: None, avg: decode(slot.cpu), max: decode(slot.cpu_max) },
            memory: Spread { min: None, avg: decode(slot.memory), max: decode(slot.memory_max) },
            restarted: slot.cpu & FLAG != 0,
        };
        (slot.cpu != EMPTY).then_some(point)
    }

    /// Whether all its points are older than an hour.
    pub(super) fn is_stale(&self, now: u64) -> bool {
        self.newest + self.slots.len() as u64 <= now / self.step.seconds()
    }

    fn index(&self, number: u64) -> usize {
        usize::try_from(number % self.slots.len() as u64).expect("it is below a length")
    }
}

impl Step {
    const fn slots(self) -> usize {
        (UsageRange::Hour.seconds() as u64 / self.seconds()) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(cpu: f32) -> Sample {
        Sample { cpu, memory: cpu / 2.0, is_new_life: false }
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![Just(Step::Fine), Just(Step::Coarse)]
    }

    proptest! {
        /// Whatever the clock does.
        #[test]
        fn points_are_of_the_last_hour_in_order_and_sound(
            step in step(),
            records in prop::collection::vec((-5000_i64..9000, 0.0_f32..=100.0), 1..200),
            later in 0_u64..5000,
        ) {
            let (mut ring, mut now) = (HourRing::new(step), 1_700_000_000_u64);
            for (moved, cpu) in records {
                now = now.saturating_add_signed(moved);
                ring.record(now, sample(cpu));
            }
            let now = now + later;

            let points = ring.points(now);

            prop_assert!(points.len() <= step.slots());
            prop_assert!(points.is_sorted_by(|one, other| one.at < other.at));
            let oldest = i64::try_from(now - 3600 - step.seconds()).unwrap();
            prop_assert!(points.iter().all(|point| point.at > oldest && point.at <= i64::try_from(now).unwrap()));
            prop_assert!(points.iter().all(|point| point.cpu.is_sound() && point.memory.is_sound()));
        }

        /// As long as the clock goes forth.
        #[test]
        fn each_step_has_the_average_and_maximum_of_its_samples(
            step in step(),
            records in prop::collection::vec((0_u64..200, 0.0_f32..=100.0), 1..300),
        ) {
            let (mut ring, mut now) = (HourRing::new(step), 1_700_000_000_u64);
            let mut expected: std::collections::BTreeMap<u64, Vec<f32>> = Default::default();
            for (moved, cpu) in records {
                now += moved;
                ring.record(now, sample(cpu));
                expected.entry(now / step.seconds()).or_default().push(cpu);
            }
            let first = (now / step.seconds() + 1).saturating_sub(step.slots() as u64);
            let expected: Vec<_> = expected.into_iter().filter(|(number, _)| *number >= first).collect();

            let points = ring.points(now);

            prop_assert_eq!(points.len(), expected.len());
            for (point, (number, samples)) in points.iter().zip(expected) {
                prop_assert_eq!(point.at, i64::try_from(number * step.seconds()).unwrap());
                let mean = samples.iter().sum::<f32>() / samples.len() as f32;
                let max = samples.iter().copied().fold(0.0, f32::max);
                prop_assert!((point.cpu.avg - mean).abs() <= 0.1 && (point.cpu.max - max).abs() <= 0.1, "{point:?}");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_takes_the_later_points_with_it() {
        let mut ring = HourRing::new(Step::Fine);
        for now in (10_000..10_100).step_by(10) {
            ring.record(now, sample(1.0));
        }

        ring.record(10_050, sample(9.0));

        let points = ring.points(10_099);
        assert_eq!(
            points.iter().map(|point| point.at).collect::<Vec<_>>(),
            [10_000, 10_010, 10_020, 10_030, 10_040, 10_050]
        );
        assert!((points[5].cpu.avg - 9.0).abs() < 0.1, "{points:?}");
    }

    #[test]
    fn a_new_life_marks_its_step_alone() {
        let mut ring = HourRing::new(Step::Fine);
        ring.record(10_000, sample(1.0));
        ring.record(10_010, Sample { is_new_life: true, ..sample(0.0) });
        ring.record(10_012, sample(1.0));
        ring.record(10_020, sample(1.0));

        let marks: Vec<bool> = ring.points(10_025).iter().map(|point| point.restarted).collect();

        assert_eq!(marks, [false, true, false]);
    }

    #[test]
    fn another_step_keeps_the_hour() {
        let mut coarse = HourRing::new(Step::Coarse);
        coarse.record(60_000, sample(4.0));
        coarse.record(60_060, Sample { is_new_life: true, ..sample(8.0) });

        let fine = coarse.in_step(Step::Fine, 60_100);
        let back = fine.in_step(Step::Coarse, 60_100);

        // The last minute is not over: its later steps are not known yet.
        assert_eq!(fine.points(60_100).iter().filter(|point| point.restarted).count(), 1);
        assert_eq!(fine.points(60_100).len(), 11);
        assert_eq!(back.points(60_100), coarse.points(60_100));
    }
}
