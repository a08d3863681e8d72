//! When the targets of a rolling task are released: events and time in, steps out.
//!
//! Promised: targets are released in the order of their index and never taken back; at most `max_parallel` of them
//! are open or settling at once; after more than `max_failures` failures nothing further is released; with a canary,
//! nothing beyond it is released before somebody resumes; while it is paused, nothing is. [`RolloutMachine::next`],
//! [`RolloutMachine::pause`] and [`RolloutMachine::resume`] only say what should follow. The caller writes the
//! rollout of [`RolloutMachine::after`] to the store and then calls [`RolloutMachine::apply`]: a step that could not
//! be written has not been taken. A rollout is rebuilt by [`RolloutMachine::new`] from what the store holds, with
//! nothing forgotten but how long settling targets have been waited for.
//! Absent: IO and clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proctor_model::{Message, ProcessKey, Subject, messages};
use proctor_store::{Millis, Rollout, RolloutState};

/// How long a process may take to become healthy after its operation succeeded. Starts over after a server restart:
/// while it was down nobody could report.
pub(super) const SETTLE_MAX: Duration = Duration::from_secs(300);

/// A transition of a rolling task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Release the targets below this index.
    Release { below: u32 },
    /// These targets became healthy, or did not in time.
    Judge(Vec<(u32, bool)>),
    /// Wait for somebody to resume.
    Pause,
    /// Continue after the canary.
    Resume,
    /// What was not released never will be.
    Stop(StopReason),
    /// Everything was released and has ended.
    Finish,
}

/// Why a rolling task ends before all of its targets were released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    TooManyFailures,
    /// Its creator may no longer operate all of the rest; in words.
    RightsWithdrawn(Message),
    /// What a waiting target would be operated with is no longer registered.
    SpecChanged(ProcessKey),
}

impl StopReason {
    /// The message of the targets that are skipped.
    pub(super) fn message(&self) -> Message {
        match self {
            Self::TooManyFailures => messages::skipped_after_failures(),
            Self::RightsWithdrawn(why) if why.phrase().is_none() => messages::skipped_because(why),
            Self::RightsWithdrawn(why) => messages::skipped_for(why.clone()),
            Self::SpecChanged(process) => messages::skipped_for(messages::registration_changed(process)),
        }
    }
}

/// A target that has its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetEnd {
    Failed,
    Succeeded,
    /// Succeeded at that time and has yet to become healthy.
    Settling(Millis),
}

#[derive(Debug)]
pub(super) struct RolloutMachine {
    rollout: Rollout,
    total: u32,
    /// Released, without an outcome.
    open: BTreeSet<u32>,
    settling: BTreeMap<u32, Settling>,
    /// TargetEnd before they were released, with whether that was a success.
    known: BTreeMap<u32, bool>,
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
struct Settling {
    since: Millis,
    until: Instant,
}

impl RolloutMachine {
    pub(super) fn new(rollout: Rollout, total: u32, ended: &BTreeMap<u32, TargetEnd>, now: Instant) -> Self {
        let released = rollout.released;
        let mut roll = Self {
            rollout,
            total,
            open: (0..released).collect(),
            settling: BTreeMap::new(),
            known: ended.range(released..).map(|(index, ended)| (*index, *ended != TargetEnd::Failed)).collect(),
            failures: 0,
        };
        for (index, ended) in ended.range(..released) {
            roll.ended(*index, *ended, now);
        }
        roll
    }

    /// A target has its outcome.
    pub(super) fn ended(&mut self, index: u32, ended: TargetEnd, now: Instant) {
        if !self.open.remove(&index) {
            return;
        }
        match ended {
            TargetEnd::Failed => self.failures += 1,
            TargetEnd::Succeeded => {}
            TargetEnd::Settling(since) => {
                self.settling.insert(index, Settling { since, until: now + SETTLE_MAX });
            }
        }
    }

    pub(super) fn released(&self) -> u32 {
        self.rollout.released
    }

    /// Who must have the permission for what is released.
    pub(super) fn makers(&self) -> &[Subject] {
        &self.rollout.makers
    }

    pub(super) fn waits_healthy(&self) -> bool {
        self.rollout.wait_healthy
    }

    /// What has succeeded and is not healthy yet, with the time of its outcome.
    pub(super) fn settling(&self) -> impl Iterator<Item = (u32, Millis)> {
        self.settling.iter().map(|(index, settling)| (*index, settling.since))
    }

    /// None if it is not running, or nothing is left to release.
    pub(super) fn pause(&self) -> Option<Step> {
        let has_more = self.rollout.released < self.total;
        (self.rollout.state == RolloutState::Running && has_more).then_some(Step::Pause)
    }

    /// None if there is nothing to resume.
    pub(super) fn resume(&self) -> Option<Step> {
        (self.rollout.state == RolloutState::Paused).then_some(Step::Resume)
    }

    /// The step that is due.
    pub(super) fn next(&self, now: Instant) -> Option<Step> {
        if self.rollout.state != RolloutState::Running {
            return None;
        }
        let late: Vec<_> =
            self.settling.iter().filter(|(_, it)| it.until <= now).map(|(index, _)| (*index, false)).collect();
        if !late.is_empty() {
            return Some(Step::Judge(late));
        }
        if self.failures > self.rollout.max_failures {
            return Some(Step::Stop(StopReason::TooManyFailures));
        }
        let below = self.releasable();
        if below > self.rollout.released {
            return Some(Step::Release { below });
        }
        if !self.open.is_empty() || !self.settling.is_empty() {
            return None;
        }
        Some(if self.rollout.released < self.total { Step::Pause } else { Step::Finish })
    }

    /// The rollout with the step taken, to be written before [`Self::apply`].
    pub(super) fn after(&self, step: &Step, now: Millis) -> Rollout {
        let rollout = self.rollout.clone();
        match step {
            Step::Release { below } => {
                Rollout { released: *below, released_at: now, earlier: self.open_releases(), ..rollout }
            }
            Step::Judge(_) => rollout,
            Step::Pause => Rollout { state: RolloutState::Paused, ..rollout },
            Step::Resume => {
                let canary = if self.awaits_canary() { rollout.canary } else { 0 };
                Rollout { state: RolloutState::Running, canary, ..rollout }
            }
            Step::Stop(reason) => rollout.ended(RolloutState::Failed, reason.message()),
            Step::Finish => Rollout { state: RolloutState::Done, ..rollout },
        }
    }

    /// The releases so far of which targets are open.
    fn open_releases(&self) -> Vec<(u32, Millis)> {
        let last = (self.rollout.released, self.rollout.released_at);
        let (mut from, mut open) = (0, Vec::new());
        for (below, at) in self.rollout.earlier.iter().copied().chain([last]) {
            if self.open.range(from..below).next().is_some() {
                open.push((below, at));
            }
            from = below;
        }
        open
    }

    /// Somebody paused it before its canary was judged: resuming is not a decision about the canary.
    fn awaits_canary(&self) -> bool {
        self.rollout.released < self.rollout.canary || !self.open.is_empty() || !self.settling.is_empty()
    }

    /// The step is in the store, and `after` is what was written.
    pub(super) fn apply(&mut self, step: &Step, after: Rollout) {
        match step {
            Step::Release { below } => {
                for index in self.rollout.released..*below {
                    match self.known.remove(&index) {
                        Some(success) => self.failures += u32::from(!success),
                        None => _ = self.open.insert(index),
                    }
                }
            }
            Step::Judge(judged) => {
                for (index, healthy) in judged {
                    let was_settling = self.settling.remove(index).is_some();
                    self.failures += u32::from(was_settling && !healthy);
                }
            }
            Step::Pause | Step::Resume | Step::Stop(_) | Step::Finish => {}
        }
        self.rollout = after;
    }

    /// Up to which index targets may be released now. What had ended beforehand takes no slot and is
    /// counted when its turn comes.
    fn releasable(&self) -> u32 {
        let mut below = self.rollout.released;
        let (mut failures, mut busy) = (self.failures, self.open.len() + self.settling.len());
        let limit = self.limit();
        while below < limit && failures <= self.rollout.max_failures {
            match self.known.get(&below) {
                Some(success) => failures += u32::from(!success),
                None if busy < self.rollout.max_parallel as usize => busy += 1,
                None => break,
            }
            below += 1;
        }
        below
    }

    /// The canary, unless nothing beyond it is left to decide about.
    fn limit(&self) -> u32 {
        let canary = self.rollout.canary;
        let is_rest_known = (self.total - self.rollout.released) as usize == self.known.len();
        if canary == 0 || is_rest_known { self.total } else { canary.min(self.total) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rollout(max_parallel: u32, max_failures: u32, canary: u32) -> Rollout {
        Rollout {
            max_parallel,
            max_failures,
            canary,
            wait_healthy: true,
            released: 0,
            released_at: 0,
            earlier: Vec::new(),
            state: RolloutState::Running,
            reason: None,
            reason_phrase: None,
            makers: Vec::new(),
        }
    }

    fn roll(rollout: Rollout, total: u32) -> RolloutMachine {
        RolloutMachine::new(rollout, total, &BTreeMap::new(), Instant::now())
    }

    /// Takes the step that is due.
    fn take(roll: &mut RolloutMachine, now: Instant) -> Option<Step> {
        let step = roll.next(now)?;
        let after = roll.after(&step, 0);
        roll.apply(&step, after);
        Some(step)
    }

    fn resume(roll: &mut RolloutMachine) -> bool {
        let step = roll.resume();
        step.is_some_and(|step| asked(roll, &step))
    }

    fn pause(roll: &mut RolloutMachine) -> bool {
        let step = roll.pause();
        step.is_some_and(|step| asked(roll, &step))
    }

    fn asked(roll: &mut RolloutMachine, step: &Step) -> bool {
        let after = roll.after(step, 0);
        roll.apply(step, after);
        true
    }

    #[test]
    fn a_slot_is_given_again_when_its_target_ends() {
        let now = Instant::now();
        let mut roll = roll(rollout(2, 0, 0), 3);

        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 2 }));
        assert_eq!(take(&mut roll, now), None);
        roll.ended(1, TargetEnd::Succeeded, now);
        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 3 }));
        roll.ended(0, TargetEnd::Succeeded, now);
        roll.ended(2, TargetEnd::Succeeded, now);
        assert_eq!(take(&mut roll, now), Some(Step::Finish));
        assert_eq!(take(&mut roll, now), None);
    }

    #[test]
    fn a_step_that_is_not_applied_is_due_again() {
        let now = Instant::now();
        let roll = roll(rollout(2, 0, 0), 3);

        assert_eq!(roll.next(now), Some(Step::Release { below: 2 }));
        assert_eq!(roll.next(now), Some(Step::Release { below: 2 }));
    }

    #[test]
    fn a_canary_waits_for_somebody_to_resume() {
        let now = Instant::now();
        let mut roll = roll(rollout(10, 0, 1), 5);

        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 1 }));
        roll.ended(0, TargetEnd::Succeeded, now);
        assert_eq!(take(&mut roll, now), Some(Step::Pause));
        assert_eq!(take(&mut roll, now), None);
        assert!(resume(&mut roll));
        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 5 }));
        assert!(!resume(&mut roll));
    }

    #[test]
    fn a_pause_holds_what_is_not_released_until_somebody_resumes() {
        let now = Instant::now();
        let mut roll = roll(rollout(1, 0, 0), 3);

        take(&mut roll, now);
        assert!(pause(&mut roll));
        roll.ended(0, TargetEnd::Succeeded, now);
        assert_eq!((take(&mut roll, now), pause(&mut roll)), (None, false));
        assert!(resume(&mut roll));
        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 2 }));
    }

    #[test]
    fn a_pause_while_the_canary_runs_does_not_skip_its_verdict() {
        let now = Instant::now();
        let mut roll = roll(rollout(10, 0, 1), 5);

        take(&mut roll, now);
        pause(&mut roll);
        assert!(resume(&mut roll));
        assert_eq!(take(&mut roll, now), None);
        roll.ended(0, TargetEnd::Succeeded, now);
        assert_eq!(take(&mut roll, now), Some(Step::Pause));
    }

    #[test]
    fn nobody_has_to_resume_where_the_rest_has_ended_already() {
        let now = Instant::now();
        let known = BTreeMap::from([(1, TargetEnd::Failed), (2, TargetEnd::Failed)]);
        let mut roll = RolloutMachine::new(rollout(10, 5, 1), 3, &known, now);

        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 1 }));
        roll.ended(0, TargetEnd::Succeeded, now);
        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 3 }));
        assert_eq!(take(&mut roll, now), Some(Step::Finish));
    }

    #[test]
    fn a_failed_canary_stops_everything() {
        let now = Instant::now();
        let mut roll = roll(rollout(10, 0, 1), 5);

        take(&mut roll, now);
        roll.ended(0, TargetEnd::Failed, now);

        assert_eq!(take(&mut roll, now), Some(Step::Stop(StopReason::TooManyFailures)));
        assert_eq!(roll.rollout.state, RolloutState::Failed);
        assert_eq!(roll.rollout.reason.as_deref(), Some(&*StopReason::TooManyFailures.message()));
    }

    #[test]
    fn the_next_waits_until_the_one_before_is_healthy_and_not_for_ever() {
        let now = Instant::now();
        let mut roll = roll(rollout(1, 0, 0), 3);

        take(&mut roll, now);
        roll.ended(0, TargetEnd::Settling(7), now);
        assert_eq!(take(&mut roll, now), None);
        assert_eq!(roll.settling().collect::<Vec<_>>(), [(0, 7)]);
        roll.apply(&Step::Judge(vec![(0, true)]), roll.rollout.clone());
        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 2 }));
        roll.ended(1, TargetEnd::Settling(8), now);
        assert_eq!(take(&mut roll, now + SETTLE_MAX), Some(Step::Judge(vec![(1, false)])));
        assert_eq!(take(&mut roll, now + SETTLE_MAX), Some(Step::Stop(StopReason::TooManyFailures)));
    }

    #[test]
    fn a_roll_that_is_rebuilt_knows_what_was_released() {
        let now = Instant::now();
        let kept = Rollout { released: 3, ..rollout(3, 1, 0) };
        let ended = BTreeMap::from([(0, TargetEnd::Succeeded), (1, TargetEnd::Failed), (5, TargetEnd::Failed)]);
        let mut roll = RolloutMachine::new(kept, 6, &ended, now);

        // The last one was known to fail beforehand: it takes no slot, and is the second failure.
        assert_eq!(take(&mut roll, now), Some(Step::Release { below: 6 }));
        assert_eq!(take(&mut roll, now), Some(Step::Stop(StopReason::TooManyFailures)));
    }

    #[test]
    fn a_roll_that_is_rebuilt_still_waits_for_what_was_never_healthy() {
        let now = Instant::now();
        let kept = Rollout { released: 1, ..rollout(1, 0, 0) };
        let mut roll = RolloutMachine::new(kept, 2, &BTreeMap::from([(0, TargetEnd::Settling(3))]), now);

        assert_eq!(take(&mut roll, now), None);
    }

    proptest! {
        /// After every write, and before some, the machine dies and is rebuilt from what was stored.
        #[test]
        fn never_more_than_allowed_and_always_an_end_whenever_it_dies(
            total in 1..40u32,
            max_parallel in 1..10u32,
            max_failures in 0..5u32,
            canary in 0..8u32,
            ends in prop::collection::vec(prop::sample::select(vec![Some(true), Some(false), None]), 40),
            deaths in prop::collection::vec(any::<bool>(), 400),
        ) {
            let mut now = Instant::now();
            let mut deaths = deaths.into_iter().cycle();
            // What the store holds: the rollout, outcomes (None: succeeded, never becomes healthy), verdicts.
            let mut stored = rollout(max_parallel, max_failures, canary);
            let mut outcomes: BTreeMap<u32, Option<bool>> = BTreeMap::new();
            let mut verdicts: BTreeMap<u32, bool> = BTreeMap::new();
            let rebuild = |stored: &Rollout, outcomes: &BTreeMap<u32, Option<bool>>, verdicts: &BTreeMap<u32, bool>, now| {
                let ended = outcomes.iter().map(|(index, end)| (*index, match (end, verdicts.get(index)) {
                    (Some(false), _) | (_, Some(false)) => TargetEnd::Failed,
                    (_, Some(true)) => TargetEnd::Succeeded,
                    (_, None) => TargetEnd::Settling(0),
                }));
                RolloutMachine::new(stored.clone(), total, &ended.collect(), now)
            };
            let mut roll = roll(stored.clone(), total);
            let mut failures = 0;
            loop {
                let step = roll.next(now).or_else(|| roll.resume());
                if let Some(step) = step {
                    // A restart gives what settles its time again, so a verdict may not be due any more.
                    if !matches!(step, Step::Judge(_)) && deaths.next() == Some(true) {
                        roll = rebuild(&stored, &outcomes, &verdicts, now);
                        prop_assert_eq!(roll.next(now).or_else(|| roll.resume()), Some(step.clone()), "not yet written");
                    }
                    let after = roll.after(&step, 0);
                    match &step {
                        Step::Release { below } => {
                            prop_assert!(failures <= max_failures, "released after too many failures");
                            prop_assert!(*below > stored.released && *below <= total);
                        }
                        Step::Judge(judged) => {
                            failures += judged.iter().filter(|(_, healthy)| !healthy).count() as u32;
                            verdicts.extend(judged.iter().copied());
                        }
                        Step::Pause => prop_assert!(canary > 0 && stored.released == canary),
                        Step::Resume => {}
                        Step::Stop(StopReason::TooManyFailures) => break prop_assert!(failures > max_failures),
                        Step::Stop(StopReason::RightsWithdrawn(_) | StopReason::SpecChanged(_)) => unreachable!("the machine knows no rights"),
                        Step::Finish => break prop_assert_eq!((stored.released, outcomes.len() as u32), (total, total)),
                    }
                    stored = after.clone();
                    roll.apply(&step, after);
                } else if let Some(index) = (0..stored.released).find(|index| !outcomes.contains_key(index)) {
                    let end = ends[index as usize];
                    failures += u32::from(end == Some(false));
                    outcomes.insert(index, end);
                    roll.ended(index, if end == Some(false) { TargetEnd::Failed } else { TargetEnd::Settling(0) }, now);
                } else {
                    let healthy: Vec<_> =
                        roll.settling().filter(|(index, _)| ends[*index as usize] == Some(true)).map(|(index, _)| (index, true)).collect();
                    if healthy.is_empty() {
                        now += SETTLE_MAX;
                        continue;
                    } else {
                        verdicts.extend(healthy.iter().copied());
                        roll.apply(&Step::Judge(healthy), stored.clone());
                    }
                }
                if deaths.next() == Some(true) {
                    roll = rebuild(&stored, &outcomes, &verdicts, now);
                }
                let busy = (0..stored.released).filter(|index| match outcomes.get(index) {
                    None => true,
                    Some(Some(false)) => false,
                    Some(_) => !verdicts.contains_key(index),
                });
                prop_assert!(busy.count() <= max_parallel as usize);
            }
        }
    }
}
