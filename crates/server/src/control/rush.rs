//! Whether a call to many agents is in progress.
//!
//! Promised: it begins with more than [`RUSH_MIN`] open targets, and ends at the second sweep that finds no more than
//! that. So what follows an outcome (acknowledgements, reports) competes neither with the last outcomes of the same
//! call nor with the callers that ask for them; and a few targets that take their time do not prolong it.
//! Absent: how long anything waits for its end, which is up to whoever waits.

use std::sync::atomic::{AtomicU8, Ordering};

/// With more open targets than this a rush begins.
pub(super) const RUSH_MIN: usize = 256;

/// It ends with so many sweeps that find no more.
const SWEEPS: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct Rush {
    /// 0: there is none.
    sweeps_left: AtomicU8,
}

impl Rush {
    /// Whether it is on, with so many targets open.
    pub(super) fn is_on(&self, open_targets: usize) -> bool {
        if open_targets > RUSH_MIN {
            self.sweeps_left.store(SWEEPS, Ordering::Relaxed);
        }
        self.sweeps_left.load(Ordering::Relaxed) > 0
    }

    /// As [`Self::is_on`], for the sweeper.
    pub(super) fn is_on_after_sweep(&self, open_targets: usize) -> bool {
        if open_targets <= RUSH_MIN {
            let one_less = |left: u8| Some(left.saturating_sub(1));
            let _ = self.sweeps_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
        self.is_on(open_targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rush_begins_with_many_targets_and_outlasts_its_last_outcome() {
        let rush = Rush::default();

        let is_on = [0, RUSH_MIN, RUSH_MIN + 1, RUSH_MIN, 1, 0].map(|open| rush.is_on(open));

        assert_eq!(is_on, [false, false, true, true, true, true]);
    }

    #[test]
    fn it_ends_with_the_second_sweep_that_finds_few_targets() {
        let rush = Rush::default();
        assert!(!rush.is_on_after_sweep(RUSH_MIN), "there was none");

        let sweeps = [RUSH_MIN + 1, RUSH_MIN + 1, RUSH_MIN, RUSH_MIN + 1, 0, RUSH_MIN, 0];
        let is_on = sweeps.map(|open| rush.is_on_after_sweep(open));

        assert_eq!(is_on, [true, true, true, true, true, false, false]);
        assert!(!rush.is_on(RUSH_MIN));
    }
}
