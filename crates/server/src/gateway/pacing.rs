//! Which heartbeats of one agent are answered, and when it gets a new interval.
//!
//! Promised: an agent hears from us before it would give the server up; one whose interval no longer fits the fleet's
//! size is sent the new one, which takes effect once the agent has acknowledged it. Agents that do not are older:
//! they get it twice, and both sides keep the interval of the welcome. Reads no clock, and sends nothing.
//! Absent: agents behind relays, whose heartbeats the relays answer.

use std::time::{Duration, Instant};

use crate::pace::Pace;

/// How often an interval is compared with the fleet.
const COMPARE_PERIOD: Duration = Duration::from_secs(15);
/// An agent that has ignored this many new intervals does not know what they are.
const IGNORED_MAX: u8 = 2;

#[derive(Debug)]
pub(super) struct Pacing {
    compare_at: Instant,
    /// Sent, and not acknowledged.
    offered: Option<Duration>,
    ignored: u8,
    /// Heartbeats since the last answer.
    unanswered: u32,
}

/// What a heartbeat is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Nothing,
    Beat,
    Pace(Duration),
}

impl Pacing {
    pub(super) fn new(now: Instant) -> Self {
        Self { compare_at: now + COMPARE_PERIOD, offered: None, ignored: 0, unanswered: 0 }
    }

    /// Of an agent whose interval is `present`; `wanted` is asked now and then.
    pub(super) fn beat(&mut self, now: Instant, present: Pace, wanted: impl FnOnce() -> Pace) -> Answer {
        if now >= self.compare_at {
            self.compare_at = now + COMPARE_PERIOD;
            self.ignored += u8::from(self.offered.take().is_some());
            if self.ignored < IGNORED_MAX
                && let wanted = wanted()
                && present.is_far_from(wanted)
            {
                self.offered = Some(wanted.beat);
                self.unanswered = 0;
                return Answer::Pace(wanted.beat);
            }
        }
        self.unanswered += 1;
        if self.unanswered < present.answer_every() {
            return Answer::Nothing;
        }
        self.unanswered = 0;
        Answer::Beat
    }

    /// The agent says that its heartbeats come at this interval now. Whether that is the one that it was told.
    pub(super) fn paced(&mut self, beat: Duration) -> bool {
        let is_offered = self.offered.take_if(|offered| *offered == beat).is_some();
        if is_offered {
            self.ignored = 0;
        }
        is_offered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 100;
    const LARGE: usize = 15_000;

    /// An agent that was welcomed to a fleet of the first size and beats for ten minutes in one of the second.
    struct Run {
        /// Each with the time that it came at.
        answers: Vec<(Duration, Answer)>,
        beat: Duration,
    }

    fn run(welcomed: usize, fleet: impl Fn(Duration) -> usize, answers_pace: bool) -> Run {
        let (begun, mut at) = (Instant::now(), Duration::ZERO);
        let (mut pacing, mut pace, mut answers) = (Pacing::new(begun), Pace::of_fleet(welcomed), Vec::new());
        while at < Duration::from_secs(600) {
            at += pace.beat;
            let answer = pacing.beat(begun + at, pace, || Pace::of_fleet(fleet(at)));
            answers.push((at, answer));
            if let Answer::Pace(beat) = answer
                && answers_pace
            {
                assert!(pacing.paced(beat) && !pacing.paced(beat), "it counts once");
                pace = Pace { beat };
            }
        }
        Run { answers, beat: pace.beat }
    }

    fn told(run: &Run) -> usize {
        run.answers.iter().filter(|(_, answer)| matches!(answer, Answer::Pace(_))).count()
    }

    #[test]
    fn an_agent_that_joined_early_learns_the_interval_of_the_fleet_that_grew() {
        // Two minutes until all have come, and some leave in the end.
        let grows = |at: Duration| usize::try_from(at.as_secs()).unwrap().min(120) * LARGE / 120;
        let run = run(1, grows, true);

        assert!(!Pace { beat: run.beat }.is_far_from(Pace::of_fleet(LARGE)), "{:?}", run.beat);
        assert!((2..=8).contains(&told(&run)), "{}", told(&run));
    }

    #[test]
    fn an_older_agent_is_told_twice_and_keeps_its_interval() {
        let run = run(SMALL, |_| LARGE, false);

        assert_eq!((run.beat, told(&run)), (Pace::of_fleet(SMALL).beat, 2));
    }

    #[test]
    fn every_agent_hears_from_the_server_long_before_it_gives_it_up() {
        for (welcomed, fleet, answers_pace) in
            [(1, 1, true), (LARGE, LARGE, true), (LARGE, LARGE, false), (50_000, SMALL, true), (SMALL, 50_000, false)]
        {
            let run = run(welcomed, |_| fleet, answers_pace);
            let (mut heard_at, mut beat) = (Duration::ZERO, Pace::of_fleet(welcomed).beat);
            for (at, answer) in &run.answers {
                assert!(*at - heard_at <= beat * 2, "{welcomed} of {fleet}: {heard_at:?} to {at:?}");
                match answer {
                    Answer::Nothing => continue,
                    Answer::Beat => {}
                    Answer::Pace(new) if answers_pace => beat = *new,
                    Answer::Pace(_) => {}
                }
                heard_at = *at;
            }
        }
    }

    #[test]
    fn in_a_large_fleet_every_second_heartbeat_is_answered() {
        let answered = |fleet| {
            let run = run(fleet, |_| fleet, true);
            let count = run.answers.iter().filter(|(_, answer)| *answer == Answer::Beat).count();
            (count, run.answers.len())
        };
        let (of_small, beats) = answered(SMALL);
        assert_eq!(of_small, beats);
        let (of_large, beats) = answered(LARGE);
        assert_eq!(of_large, beats / 2);
    }

    #[test]
    fn an_interval_counts_after_it_has_crossed_the_link_whatever_the_size_of_the_fleet() {
        for fleet in [3_500, 5_000, 7_777, 33_333] {
            let now = Instant::now();
            let mut pacing = Pacing::new(now);
            let answer = pacing.beat(now + COMPARE_PERIOD, Pace::of_fleet(SMALL), || Pace::of_fleet(fleet));
            let Answer::Pace(told) = answer else { panic!("a fleet of {fleet} has another interval: {answer:?}") };
            // Both ways it is a number of milliseconds.
            let echoed = Duration::from_millis(u64::try_from(told.as_millis()).unwrap());

            assert!(pacing.paced(echoed), "{fleet}: {told:?}");
        }
    }

    #[test]
    fn an_interval_that_nobody_told_does_not_count() {
        let now = Instant::now();
        let mut pacing = Pacing::new(now);
        let answer = pacing.beat(now + COMPARE_PERIOD, Pace::of_fleet(SMALL), || Pace::of_fleet(LARGE));

        assert_eq!(answer, Answer::Pace(Pace::of_fleet(LARGE).beat));
        assert!(!pacing.paced(Duration::from_secs(3600)));
        assert!(pacing.paced(Pace::of_fleet(LARGE).beat));
    }
}
