//! The heartbeat interval: short in a small fleet, long in a large one, so that heartbeats stay a small part of the
//! server's work. A session keeps the interval of its welcome until it gets a new one (see `gateway::pacing`), and
//! backs off by it when the server cannot readmit it at once.

use std::time::Duration;

/// Intervals at these sizes of a fleet; between them they grow evenly, beyond them they stay.
const STEPS: [(u64, Duration); 3] =
    [(1_000, Duration::from_secs(5)), (10_000, Duration::from_secs(10)), (50_000, Duration::from_secs(20))];

/// Agents that beat this seldom, or less often, are answered every second time. They give a server up after three
/// intervals, so an answer may be late by one of them: as long as those of a small fleet, which are all answered.
const ANSWERED_HALF_FROM: Duration = Duration::from_secs(10);
/// An interval that differs by less than this part of itself is left as it is.
const FAR_PART: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) beat: Duration,
}

impl Pace {
    pub(crate) fn of_fleet(agents: usize) -> Self {
        let agents = u64::try_from(agents).unwrap_or(u64::MAX);
        let (mut lower, mut beat) = STEPS[0];
        for (upper, at_upper) in STEPS {
            if agents < upper {
                let span = u32::try_from(upper - lower).expect("sizes of fleets are small numbers").max(1);
                let into = u32::try_from(agents.saturating_sub(lower)).expect("it is below the span");
                return Self { beat: whole_millis(beat + (at_upper - beat) * into / span) };
            }
            (lower, beat) = (upper, at_upper);
        }
        Self { beat }
    }

    /// Through a relay, which sends the heartbeats of its agents together: often, so that an agent notices within ten
    /// seconds that its relay hangs.
    pub(super) fn through_relay() -> Self {
        Self { beat: Duration::from_secs(3) }
    }

    /// So many heartbeats have one answer.
    pub(crate) fn answer_every(self) -> u32 {
        if self.beat < ANSWERED_HALF_FROM { 1 } else { 2 }
    }

    /// Whether an agent should get a new interval.
    pub(crate) fn is_far_from(self, wanted: Self) -> bool {
        self.beat.abs_diff(wanted.beat) > self.beat / FAR_PART
    }

    /// A peer from which no byte comes for so long is gone.
    pub(crate) fn silence_max(self) -> Duration {
        self.beat * 3 + Duration::from_secs(1)
    }

    /// The longest that its agents stay away between two attempts.
    pub(crate) fn stay_away_max(self) -> Duration {
        proctor_wire::stay_away_max(self.beat)
    }

    /// A live agent is back within this time, if it can be readmitted at once.
    pub(crate) fn return_max(self) -> Duration {
        proctor_wire::return_max(self.beat)
    }

    /// While a frame is in transit. Longer than a heartbeat, so that no timer fires while whole frames arrive.
    pub(crate) fn in_frame(self) -> Duration {
        self.beat + Duration::from_secs(2)
    }
}

/// As the link encodes intervals: an agent must be able to acknowledge exactly the one it got.
fn whole_millis(interval: Duration) -> Duration {
    interval - Duration::from_nanos(u64::from(interval.subsec_nanos() % 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interval_is_one_that_the_link_carries_whole() {
        let is_broken = |agents: &usize| !Pace::of_fleet(*agents).beat.subsec_nanos().is_multiple_of(1_000_000);

        assert_eq!((0..=50_000).find(is_broken), None);
    }

    #[test]
    fn the_interval_grows_with_the_fleet() {
        let beat = |agents| Pace::of_fleet(agents).beat.as_millis();
        let sizes = [0, 1, 1_000, 5_500, 10_000, 30_000, 50_000, 1_000_000];

        assert_eq!(sizes.map(beat), [5_000, 5_000, 5_000, 7_500, 10_000, 15_000, 20_000, 20_000]);
    }
}
