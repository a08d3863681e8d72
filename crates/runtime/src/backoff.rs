//! Waiting times between attempts: decorrelated jitter between a floor and a ceiling.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Every wait is drawn between `floor` and three times the last one, never above `ceiling`.
#[derive(Debug)]
pub struct Backoff {
    floor: Duration,
    ceiling: Duration,
    last: Duration,
    dice: RandomState,
    throws: u64,
}

impl Backoff {
    /// `floor` must not be above `ceiling`.
    pub fn new(floor: Duration, ceiling: Duration) -> Self {
        debug_assert!(floor <= ceiling);
        Self { floor, ceiling, last: floor, dice: RandomState::new(), throws: 0 }
    }

    pub fn next_wait(&mut self) -> Duration {
        let top = (self.last * 3).clamp(self.floor, self.ceiling);
        self.last = self.floor + (top - self.floor).mul_f64(self.throw());
        self.last
    }

    /// Back to the floor, after a success.
    pub fn reset(&mut self) {
        self.last = self.floor;
    }

    /// A number in 0..1 from the randomness that seeds the standard hash maps.
    fn throw(&mut self) -> f64 {
        self.throws += 1;
        let mut hasher = self.dice.build_hasher();
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
}
