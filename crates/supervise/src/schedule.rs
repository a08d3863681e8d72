//! When a periodic process runs next.
//!
//! Promised, whatever the wall clock does:
//! - no planned time is run twice, also when the clock is set back over it;
//! - planned times that went by (the agent was down, the clock jumped ahead) are caught up by one
//!   run, planned for the newest of them, that tells how many it stands for. The newest is never
//!   older than one period, so a late run is never out of its season;
//! - a run that would overlap the one before is skipped and counted, never queued;
//! - a cycle is counted from planned time to planned time, so it does not drift;
//! - a clock that was wrongly far ahead and comes back does not hold the schedule up.
//!
//! Daylight saving as croner defines it: a rule with fixed times runs once a day, in a gap at its
//! end, in an overlap at the first pass; a rule with wildcards or steps follows the wall clock.
//! A crontab rule is asked by the wall clock; a cycle by the time since boot, which nobody sets, as a time
//! stamp counted from zero. Absent: reading the clock and the zone, and waiting. The caller asks [`ScheduleMachine::due`]
//! at [`ScheduleMachine::next_run`], after the clock was set, and at least every minute.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::time::Duration;

use croner::Cron;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use proctor_model::{Lifetime, Policy, ProcessKey};

/// Many jobs of the same minute begin within this time.
const SPREAD_MS: u64 = 5000;
/// Missed times are counted one by one; nobody needs to know of more.
const MISSED_MAX: u32 = 1000;
/// Stretches of planned times that are remembered as dealt with; then the nearest are joined.
const STRETCHES_MAX: usize = 8;
/// After the agent's own restart only the newest planned time is known; those of this time before
/// it count as dealt with.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// A crontab rule or a cycle.
#[derive(Clone, Debug)]
pub struct Schedule(Rule);

#[derive(Clone, Debug)]
enum Rule {
    Cron(Box<Cron>),
    Cycle(Duration),
}

/// Whether to run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Not,
    /// `missed` planned times before `planned` went by without a run (counted up to 1,000).
    Run {
        planned: Timestamp,
        missed: u32,
    },
    /// The run before is still there.
    Skipped {
        planned: Timestamp,
    },
}

/// The schedule of one process. See the module's documentation.
#[derive(Debug)]
pub struct ScheduleMachine {
    schedule: Schedule,
    /// What cycles are counted from: a planned time, or when the machine began.
    anchor: Option<Timestamp>,
    last_planned: Option<Timestamp>,
    last_run: Option<Timestamp>,
    /// Planned times that are dealt with and must not come again.
    stretches: Vec<Stretch>,
    next: Option<Timestamp>,
    /// The newest wall time and zone: `next` holds while both go on as they were.
    clock: Option<(Timestamp, TimeZone)>,
    skipped: u64,
}

/// Planned times without a hole between them, both ends included.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: Timestamp,
    until: Timestamp,
}

impl Schedule {
    /// None for a process that is not periodic or does not say when. A rule wins over a cycle.
    pub fn of(policy: &Policy) -> Option<Self> {
        if policy.lifetime != Lifetime::Periodic {
            return None;
        }
        match (&policy.crontab_rule, policy.cycle) {
            // The model has parsed it once already; it keeps the text, not the rule.
            (Some(rule), _) => Cron::from_str(rule.as_str().trim()).ok().map(|cron| Self(Rule::Cron(Box::new(cron)))),
            (None, Some(cycle)) => (cycle.get() > 0).then(|| Self(Rule::Cycle(cycle.duration()))),
            (None, None) => None,
        }
    }

    /// How long a cycle is; None for a crontab rule.
    pub fn cycle(&self) -> Option<Duration> {
        match &self.0 {
            Rule::Cron(_) => None,
            Rule::Cycle(cycle) => Some(*cycle),
        }
    }

    /// The first planned time after `after`, in its zone; a cycle is counted from `after`. None if
    /// there is none, as for the 30th of February.
    pub fn next_after(&self, after: &Zoned) -> Option<Zoned> {
        let next = self.planned_after(after.timestamp(), after)?;
        Some(next.to_zoned(after.time_zone().clone()))
    }

    fn planned_after(&self, anchor: Timestamp, after: &Zoned) -> Option<Timestamp> {
        match &self.0 {
            Rule::Cron(cron) => {
                let next = cron.find_next_occurrence(after, false).ok()?.timestamp();
                // The machine goes on from what it gets here, so it must get ahead.
                (next > after.timestamp()).then_some(next)
            }
            Rule::Cycle(cycle) => on_grid(anchor, *cycle, after.timestamp(), 1),
        }
    }

    /// The newest planned time that is not after `at`.
    fn planned_until(&self, anchor: Timestamp, at: &Zoned) -> Option<Timestamp> {
        match &self.0 {
            Rule::Cron(cron) => Some(cron.find_previous_occurrence(at, true).ok()?.timestamp()),
            Rule::Cycle(cycle) => on_grid(anchor, *cycle, at.timestamp(), 0),
        }
    }
}

/// The anchor plus whole cycles: the newest not after `at`, and `steps` further.
fn on_grid(anchor: Timestamp, cycle: Duration, at: Timestamp, steps: i128) -> Option<Timestamp> {
    let cycle = i128::try_from(cycle.as_nanos()).ok()?;
    let cycles = (at.as_nanosecond() - anchor.as_nanosecond()).div_euclid(cycle) + steps;
    Timestamp::from_nanosecond(anchor.as_nanosecond() + cycles * cycle).ok()
}

impl ScheduleMachine {
    /// `last_planned` is what [`ScheduleMachine::last_planned`] said before the agent's restart.
    /// Without it nothing is caught up, and a cycle first ends one period after the first look at
    /// the clock: so also after the rule has changed.
    pub fn new(schedule: Schedule, last_planned: Option<Timestamp>) -> Self {
        let remembered = |until: Timestamp| Stretch { from: until.checked_sub(REMEMBERED).unwrap_or(until), until };
        Self {
            schedule,
            anchor: last_planned,
            last_planned,
            last_run: None,
            stretches: last_planned.map(remembered).into_iter().collect(),
            next: None,
            clock: None,
            skipped: 0,
        }
    }

    /// Whether a planned time has come. Each is reported once; what is reported is dealt with.
    pub fn due(&mut self, now: &Zoned, running: bool) -> Due {
        self.follow(now);
        let Some(first) = self.next.filter(|next| *next <= now.timestamp()) else { return Due::Not };
        let (planned, missed) = self.newest_due(first, now);
        self.deal_with(planned, now);
        self.next = self.open_after(planned.max(now.timestamp()), now);
        if running {
            self.skipped += u64::from(missed) + 1;
            return Due::Skipped { planned };
        }
        self.last_run = Some(planned);
        Due::Run { planned, missed }
    }

    /// When to ask again; known once [`ScheduleMachine::due`] has seen the clock.
    pub fn next_run(&self) -> Option<Timestamp> {
        self.next
    }

    /// For which planned time it ran last, in the life of this machine.
    pub fn last_run(&self) -> Option<Timestamp> {
        self.last_run
    }

    /// The last planned time that was run or skipped: to be kept for the next machine.
    pub fn last_planned(&self) -> Option<Timestamp> {
        self.last_planned
    }

    /// A run that was due could not begin; how many were skipped with it.
    pub fn count_missed(&mut self) -> u64 {
        self.skipped += 1;
        self.skipped
    }

    /// Planned times that found the run before still there, or whose run could not begin.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Finds the next planned time at the first look, and anew when the clock went back or the
    /// host has moved to another zone.
    fn follow(&mut self, now: &Zoned) {
        let at = now.timestamp();
        let after = match &self.clock {
            None => Some(self.last_planned.map_or(at, |planned| planned.min(at))),
            Some((seen, zone)) if at < *seen || zone != now.time_zone() => Some(at.min(*seen)),
            Some(_) => None,
        };
        self.anchor = self.anchor.or(Some(at));
        if let Some(after) = after {
            self.next = self.open_after(after, now);
        }
        self.clock = Some((at, now.time_zone().clone()));
    }

    /// The newest planned time that has come, from `first` on, and how many there were before it.
    fn newest_due(&self, first: Timestamp, now: &Zoned) -> (Timestamp, u32) {
        let at = now.timestamp();
        let (mut planned, mut missed) = (first, 0);
        while let Some(next) = self.open_after(planned, now).filter(|next| *next <= at) {
            planned = next;
            missed += 1;
            if missed == MISSED_MAX {
                let newest = self.schedule.planned_until(self.anchor.unwrap_or(at), now);
                let open = newest.filter(|newest| *newest <= at && !self.is_dealt_with(*newest));
                return (open.map_or(planned, |newest| newest.max(planned)), missed);
            }
        }
        (planned, missed)
    }

    /// Remembers a planned time, in the stretch that it continues if there is one. What was missed
    /// was not run, so it opens a new one: if the clock comes back, it is run in its time.
    fn deal_with(&mut self, planned: Timestamp, now: &Zoned) {
        self.last_planned = Some(planned);
        let continued = |stretch: &Stretch| self.planned_after(stretch.until, now) == Some(planned);
        if let Some(index) = self.stretches.iter().position(continued) {
            self.stretches[index].until = planned;
            return;
        }
        self.stretches.push(Stretch { from: planned, until: planned });
        self.stretches.sort_by_key(|stretch| stretch.from);
        if self.stretches.len() > STRETCHES_MAX {
            self.join_nearest();
        }
    }

    /// Closes the smallest hole: rather is a missed time never made up for than another run twice.
    fn join_nearest(&mut self) {
        let hole = |index: &usize| self.stretches[*index].from.duration_since(self.stretches[*index - 1].until);
        if let Some(index) = (1..self.stretches.len()).min_by_key(hole) {
            let later = self.stretches.remove(index);
            self.stretches[index - 1].until = later.until.max(self.stretches[index - 1].until);
        }
    }

    /// The first planned time after `after` that is not dealt with.
    fn open_after(&self, mut after: Timestamp, now: &Zoned) -> Option<Timestamp> {
        loop {
            let planned = self.planned_after(after, now)?;
            match self.stretches.iter().find(|stretch| stretch.contains(planned)) {
                Some(stretch) => after = stretch.until, // each is left behind once
                None => return Some(planned),
            }
        }
    }

    fn is_dealt_with(&self, planned: Timestamp) -> bool {
        self.stretches.iter().any(|stretch| stretch.contains(planned))
    }

    fn planned_after(&self, after: Timestamp, now: &Zoned) -> Option<Timestamp> {
        self.schedule.planned_after(self.anchor.unwrap_or(after), &after.to_zoned(now.time_zone().clone()))
    }
}

impl Stretch {
    fn contains(&self, planned: Timestamp) -> bool {
        self.from <= planned && planned <= self.until
    }
}

/// How long a process waits after its planned time so that the jobs of one minute do not begin all
/// at once: under five seconds, always the same for one process on one host (`seed`). A caller with
/// a short cycle takes less.
pub fn spread(key: &ProcessKey, seed: u64) -> Duration {
    let mut hasher = DefaultHasher::new();
    (seed, key).hash(&mut hasher);
    Duration::from_millis(hasher.finish() % SPREAD_MS)
}
