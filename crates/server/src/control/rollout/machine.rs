//! When the targets of a rolling task are let go: events and time in, steps out.
//!
//! Promised: targets are released in the order of their index and never taken back; at most
//! `max_parallel` of them are open at once; after more than `max_failures` failures nothing further
//! is released; with a canary, nothing beyond it is released before somebody resumes. A step must be
//! written to the store before it is acted on. Absent: IO and clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proctor_store::{Rollout, RolloutState};

/// How long a process may take to become well after its operation succeeded.
pub(super) const SETTLE_MAX: Duration = Duration::from_secs(300);

/// What must be done next; the rollout that [`Roll::rollout`] shows is written first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Let go of the targets below this index.
    Release { below: u32 },
    /// Wait for somebody to resume.
    Pause,
    /// Too many failures: what was not released never will be.
    Stop,
    /// Everything was released and has ended.
    Finish,
}

#[derive(Debug)]
pub(super) struct Roll {
    rollout: Rollout,
    total: u32,
    /// Released, without an outcome.
    open: BTreeSet<u32>,
    /// Ended well, not seen healthy yet, with the end of our patience.
    settling: BTreeMap<u32, Instant>,
    /// Ended before they were released, with whether that was a success.
    known: BTreeMap<u32, bool>,
    failures: u32,
}

impl Roll {
    /// `ended` are the targets that have an outcome, with whether it is a success.
    pub(super) fn new(rollout: Rollout, total: u32, ended: &BTreeMap<u32, bool>) -> Self {
        let released = rollout.released;
        let failures = ended.range(..released).filter(|(_, success)| !**success).count();
        Self {
            rollout,
            total,
            open: (0..released).filter(|index| !ended.contains_key(index)).collect(),
            settling: BTreeMap::new(),
            known: ended.range(released..).map(|(index, success)| (*index, *success)).collect(),
            failures: u32::try_from(failures).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn rollout(&self) -> &Rollout {
        &self.rollout
    }

    /// A target has its outcome; true where it is waited for until it is healthy.
    pub(super) fn ended(&mut self, index: u32, success: bool, can_settle: bool, now: Instant) -> bool {
        if !self.open.remove(&index) {
            return false;
        }
        if !success {
            self.failures += 1;
        } else if self.rollout.wait_healthy && can_settle {
            self.settling.insert(index, now + SETTLE_MAX);
            return true;
        }
        false
    }

    pub(super) fn healthy(&mut self, index: u32) {
        self.settling.remove(&index);
    }

    /// False where there is nothing to resume.
    pub(super) fn resume(&mut self) -> bool {
        let is_paused = self.rollout.state == RolloutState::Paused;
        if is_paused {
            self.rollout.state = RolloutState::Running;
            self.rollout.canary = 0;
        }
        is_paused
    }

    /// False where it is over already.
    pub(super) fn cancel(&mut self) -> bool {
        let is_under_way = matches!(self.rollout.state, RolloutState::Running | RolloutState::Paused);
        if is_under_way {
            self.rollout.state = RolloutState::Cancelled;
        }
        is_under_way
    }

    pub(super) fn next(&mut self, now: Instant) -> Option<Step> {
        self.give_up_settling(now);
        if self.rollout.state != RolloutState::Running {
            return None;
        }
        if self.failures > self.rollout.max_failures {
            self.rollout.state = RolloutState::Failed;
            return Some(Step::Stop);
        }
        let limit = if self.rollout.canary == 0 { self.total } else { self.rollout.canary.min(self.total) };
        if self.release(limit) {
            return Some(Step::Release { below: self.rollout.released });
        }
        if !self.open.is_empty() || !self.settling.is_empty() {
            return None;
        }
        if self.rollout.released < self.total {
            self.rollout.state = RolloutState::Paused;
            return Some(Step::Pause);
        }
        self.rollout.state = RolloutState::Done;
        Some(Step::Finish)
    }

    /// Takes up to the free places, counting what had ended beforehand when its turn comes.
    fn release(&mut self, limit: u32) -> bool {
        let before = self.rollout.released;
        while self.rollout.released < limit && self.failures <= self.rollout.max_failures {
            let index = self.rollout.released;
            if let Some(success) = self.known.remove(&index) {
                self.failures += u32::from(!success);
            } else if self.open.len() + self.settling.len() < self.rollout.max_parallel as usize {
                self.open.insert(index);
            } else {
                break;
            }
            self.rollout.released += 1;
        }
        self.rollout.released > before
    }

    /// What does not become well in time has failed.
    fn give_up_settling(&mut self, now: Instant) {
        let before = self.settling.len();
        self.settling.retain(|_, until| *until > now);
        self.failures += u32::try_from(before - self.settling.len()).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rollout(max_parallel: u32, max_failures: u32, canary: u32) -> Rollout {
        Rollout { max_parallel, max_failures, canary, wait_healthy: false, released: 0, state: RolloutState::Running }
    }

    #[test]
    fn a_place_is_given_again_when_its_target_ends() {
        let now = Instant::now();
        let mut roll = Roll::new(rollout(2, 0, 0), 3, &BTreeMap::new());

        assert_eq!(roll.next(now), Some(Step::Release { below: 2 }));
        assert_eq!(roll.next(now), None);
        roll.ended(1, true, true, now);
        assert_eq!(roll.next(now), Some(Step::Release { below: 3 }));
        roll.ended(0, true, true, now);
        roll.ended(2, true, true, now);
        assert_eq!(roll.next(now), Some(Step::Finish));
        assert_eq!(roll.next(now), None);
    }

    #[test]
    fn a_canary_waits_for_somebody_to_resume() {
        let now = Instant::now();
        let mut roll = Roll::new(rollout(10, 0, 1), 5, &BTreeMap::new());

        assert_eq!(roll.next(now), Some(Step::Release { below: 1 }));
        roll.ended(0, true, true, now);
        assert_eq!(roll.next(now), Some(Step::Pause));
        assert_eq!(roll.next(now), None);
        assert!(roll.resume());
        assert_eq!(roll.next(now), Some(Step::Release { below: 5 }));
        assert!(!roll.resume());
    }

    #[test]
    fn a_failed_canary_stops_everything() {
        let now = Instant::now();
        let mut roll = Roll::new(rollout(10, 0, 1), 5, &BTreeMap::new());

        roll.next(now);
        roll.ended(0, false, true, now);

        assert_eq!(roll.next(now), Some(Step::Stop));
        assert_eq!(roll.rollout().state, RolloutState::Failed);
    }

    #[test]
    fn the_next_waits_until_the_one_before_is_well_and_not_for_ever() {
        let now = Instant::now();
        let mut roll = Roll::new(Rollout { wait_healthy: true, ..rollout(1, 0, 0) }, 3, &BTreeMap::new());

        roll.next(now);
        assert!(roll.ended(0, true, true, now));
        assert_eq!(roll.next(now), None);
        roll.healthy(0);
        assert_eq!(roll.next(now), Some(Step::Release { below: 2 }));
        roll.ended(1, true, true, now);
        assert_eq!(roll.next(now + SETTLE_MAX), Some(Step::Stop));
    }

    #[test]
    fn a_roll_that_is_taken_up_again_knows_what_was_released() {
        let now = Instant::now();
        let kept = Rollout { released: 3, ..rollout(3, 1, 0) };
        let mut roll = Roll::new(kept, 6, &BTreeMap::from([(0, true), (1, false), (5, false)]));

        // The last one was known to fail beforehand: it takes no place, and is the second failure.
        assert_eq!(roll.next(now), Some(Step::Release { below: 6 }));
        assert_eq!(roll.next(now), Some(Step::Stop));
    }

    proptest! {
        #[test]
        fn never_more_than_allowed_and_always_an_end(
            total in 1..40u32,
            max_parallel in 1..10u32,
            max_failures in 0..5u32,
            canary in 0..8u32,
            successes in prop::collection::vec(any::<bool>(), 40),
        ) {
            let now = Instant::now();
            let mut roll = Roll::new(rollout(max_parallel, max_failures, canary), total, &BTreeMap::new());
            let (mut open, mut released, mut failures) = (Vec::new(), 0, 0);
            loop {
                match roll.next(now) {
                    Some(Step::Release { below }) => {
                        prop_assert!(failures <= max_failures, "released after too many failures");
                        prop_assert!(below > released && below <= total);
                        open.extend(released..below);
                        released = below;
                    }
                    Some(Step::Pause) => prop_assert!(canary > 0 && released == canary && roll.resume()),
                    Some(Step::Stop) => break prop_assert!(failures > max_failures),
                    Some(Step::Finish) => break prop_assert_eq!(released, total),
                    None => {
                        let index = open.remove(0);
                        let success = successes[index as usize];
                        failures += u32::from(!success);
                        roll.ended(index, success, true, now);
                    }
                }
                prop_assert!(open.len() <= max_parallel as usize);
            }
        }
    }
}
