//! Backoff: decorrelated jitter between a floor and a ceiling.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Every wait is drawn between `floor` and three times the last one, never above `ceiling`.
#[derive(Debug)]
pub struct Backoff {
    floor: Duration,
    ceiling: Duration,
    last: Duration,
    dice: Dice,
}

impl Backoff {
    /// `floor` must not be above `ceiling`.
    pub fn new(floor: Duration, ceiling: Duration) -> Self {
        debug_assert!(floor <= ceiling);
        Self { floor, ceiling, last: floor, dice: Dice::default() }
    }

    pub fn next_wait(&mut self) -> Duration {
        let top = (self.last * 3).clamp(self.floor, self.ceiling);
        self.last = self.dice.between(self.floor, top);
        self.last
    }

    /// Back to the floor, after a success.
    pub fn reset(&mut self) {
        self.last = self.floor;
    }
}

/// Uses the randomness that seeds the standard hash maps: good for spreading, not for secrets.
#[derive(Debug, Default)]
pub struct Dice {
    seed: RandomState,
    throws: u64,
}

impl Dice {
    /// Evenly; `low` must not be above `high`.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        debug_assert!(low <= high);
        low + high.saturating_sub(low).mul_f64(self.throw())
    }

    /// A number in 0..=1.
    fn throw(&mut self) -> f64 {
        self.throws += 1;
        let mut hasher = self.seed.build_hasher();
        hasher.write_u64(self.throws);
        f64::from(u32::try_from(hasher.finish() >> 32).expect("32 bits")) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_between_floor_and_ceiling() {
        let (floor, ceiling) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut backoff = Backoff::new(floor, ceiling);

        for _ in 0..1000 {
            let wait = backoff.next_wait();
            assert!(wait >= floor && wait <= ceiling, "{wait:?}");
        }
    }

    #[test]
    fn draws_use_the_whole_span() {
        let (low, high) = (Duration::from_secs(10), Duration::from_secs(20));
        let mut dice = Dice::default();

        let drawn: Vec<_> = std::iter::repeat_with(|| dice.between(low, high)).take(1000).collect();

        assert!(drawn.iter().all(|wait| (low..=high).contains(wait)));
        assert!(drawn.iter().any(|wait| *wait < Duration::from_secs(12)));
        assert!(drawn.iter().any(|wait| *wait > Duration::from_secs(18)));
    }
}
