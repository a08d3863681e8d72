//! The schedules of periodic processes: which run is due. Crontab rules follow the host's wall clock and time zone;
//! cycles follow the time since boot, so that setting the clock neither loses nor adds a run.

use std::collections::HashMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use proctor_host::Host;
use proctor_model::{Policy, ProcessKey};
use proctor_runtime::clock;
use proctor_supervise::{Due, Process, Schedule, ScheduleMachine, Time, spread};

/// A clock that is set, or a zone that changes, is noticed within this.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

/// One moment, by both clocks.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    pub(super) boot: Duration,
    pub(super) wall: Zoned,
}

impl Clocks {
    pub(super) fn read(host: &Host) -> Self {
        let wall = Timestamp::from_millisecond(clock::unix_millis()).unwrap_or_default();
        Self { boot: host.now(), wall: wall.to_zoned(TimeZone::system()) }
    }

    /// The time that a schedule is evaluated by.
    fn of(&self, rule: ScheduleClock) -> Zoned {
        match rule {
            ScheduleClock::Wall => self.wall.clone(),
            ScheduleClock::Boot => since_boot(self.boot).to_zoned(TimeZone::UTC),
        }
    }

    /// A planned time in Unix seconds.
    fn unix(&self, rule: ScheduleClock, planned: Timestamp) -> i64 {
        match rule {
            ScheduleClock::Wall => planned.as_second(),
            ScheduleClock::Boot => {
                let ahead = planned.duration_since(since_boot(self.boot));
                self.wall.timestamp().checked_add(ahead).unwrap_or_default().as_second()
            }
        }
    }
}

/// The clock of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScheduleClock {
    Wall,
    Boot,
}

#[derive(Debug, Default)]
pub(super) struct Schedules {
    of: HashMap<ProcessKey, ScheduledProcess>,
    /// When to ask the machines again, in time since boot: the wall clock may be set meanwhile.
    next: Duration,
}

#[derive(Debug)]
struct ScheduledProcess {
    /// What the machine was built from.
    policy: Policy,
    follows: ScheduleClock,
    machine: ScheduleMachine,
    /// Spreads what is planned for the same moment on many hosts and processes.
    delay: SignedDuration,
}

/// What a planned time means for a process.
#[derive(Debug)]
pub(super) enum Plan {
    Run { key: ProcessKey, planned: i64, since_boot: Option<Time> },
    Skipped { key: ProcessKey, planned: i64, skipped: u64 },
}

impl Schedules {
    /// Follows a change of a process: its schedule counts while it is managed.
    pub(super) fn follow(&mut self, process: &Process, seed: u64, now: &Clocks) {
        let key = process.key();
        let schedule = Schedule::of(&process.spec().policy).filter(|_| process.managed());
        let Some(schedule) = schedule else {
            self.of.remove(key);
            return;
        };
        if self.of.get(key).is_some_and(|planned| planned.policy == process.spec().policy) {
            return;
        }
        let cycle = schedule.cycle();
        let follows = if cycle.is_some() { ScheduleClock::Boot } else { ScheduleClock::Wall };
        let spread = spread(key, seed);
        // Of a short cycle only a part, or its first run would be late by more than a cycle.
        let delay = cycle.map_or(spread, |cycle| spread.min(cycle / 2));
        // A changed rule starts over; one that comes back with the agent continues.
        let is_new = !self.of.contains_key(key);
        let last = match cycle.filter(|_| is_new) {
            Some(cycle) => last_of_cycle(process, cycle, now),
            None => process.planned_at().filter(|_| is_new).and_then(|secs| Timestamp::from_second(secs).ok()),
        };
        let mut machine = ScheduleMachine::new(schedule, last);
        let delay = SignedDuration::try_from(delay).unwrap_or_default();
        // As it is evaluated later on: a machine whose time went back would run at once.
        if let (None, Ok(shifted)) = (last, now.of(follows).checked_sub(delay)) {
            machine.due(&shifted, false);
        }
        let policy = process.spec().policy.clone();
        self.of.insert(key.clone(), ScheduledProcess { policy, follows, machine, delay });
    }

    pub(super) fn forget(&mut self, key: &ProcessKey) {
        self.of.remove(key);
    }

    /// When [`Schedules::turn`] may have something to do, in time since boot.
    pub(super) fn next(&self) -> Option<Duration> {
        (!self.of.is_empty()).then_some(self.next)
    }

    fn wait(&self, now: &Clocks) -> Duration {
        let of_one = |planned: &ScheduledProcess| {
            let next = planned.machine.next_run()?;
            let wait = next.duration_since(now.of(planned.follows).timestamp()) + planned.delay;
            Some(Duration::try_from(wait).unwrap_or_default()) // negative: it is late
        };
        self.of.values().filter_map(of_one).min().unwrap_or(CLOCK_CHECK).min(CLOCK_CHECK)
    }

    /// Asks every machine, if it is time.
    pub(super) fn turn(&mut self, now: &Clocks, is_busy: impl Fn(&ProcessKey) -> bool) -> Vec<Plan> {
        if self.next().is_none_or(|next| next > now.boot) {
            return Vec::new();
        }
        let mut plans = Vec::new();
        for (key, planned) in &mut self.of {
            let Ok(shifted) = now.of(planned.follows).checked_sub(planned.delay) else { continue };
            match planned.machine.due(&shifted, is_busy(key)) {
                Due::Not => {}
                Due::Run { planned: at, .. } => {
                    let since_boot = (planned.follows == ScheduleClock::Boot).then(|| time_of(at));
                    plans.push(Plan::Run { key: key.clone(), planned: now.unix(planned.follows, at), since_boot });
                }
                Due::Skipped { planned: at } => plans.push(Plan::Skipped {
                    key: key.clone(),
                    planned: now.unix(planned.follows, at),
                    skipped: planned.machine.skipped(),
                }),
            }
        }
        self.next = now.boot + self.wait(now);
        plans
    }

    /// A run of this process could not begin; how many were skipped with it.
    pub(super) fn count_missed(&mut self, key: &ProcessKey) -> u64 {
        self.of.get_mut(key).map_or(1, |planned| planned.machine.count_missed())
    }

    /// Unix seconds.
    pub(super) fn next_run(&self, key: &ProcessKey, host: &Host) -> Option<i64> {
        let planned = self.of.get(key)?;
        Some(Clocks::read(host).unix(planned.follows, planned.machine.next_run()?))
    }
}

/// The last planned time of a cycle, in time since boot. After a reboot the wall clock tells how long ago that was;
/// more than a cycle is one missed run.
fn last_of_cycle(process: &Process, cycle: Duration, now: &Clocks) -> Option<Timestamp> {
    if let Some(planned) = process.planned_since_boot() {
        return Some(since_boot(planned.since(Time::default())));
    }
    let ago = now.wall.timestamp().as_second().checked_sub(process.planned_at()?)?;
    let ago = Duration::from_secs(u64::try_from(ago).ok()?).min(cycle);
    since_boot(now.boot).checked_sub(SignedDuration::try_from(ago).ok()?).ok()
}

fn since_boot(time: Duration) -> Timestamp {
    let nanos = i128::try_from(time.as_nanos()).unwrap_or_default();
    Timestamp::from_nanosecond(nanos).unwrap_or_default()
}

fn time_of(planned: Timestamp) -> Time {
    Time::since_boot(Duration::try_from(planned.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proctor_model::{Lifetime, Period};
    use proctor_supervise::Event;

    use super::*;
    use proctor_model::samples::spec;

    const HOSTS: u64 = 20;

    fn managed(cycle: u32) -> Process {
        let spec = spec(|spec| {
            spec.policy.lifetime = Lifetime::Periodic;
            spec.policy.cycle = Some(Period::try_from(cycle).unwrap());
        });
        let mut process = Process::new("ns/p".parse().unwrap(), spec.clone(), 1);
        process.handle(Time::default(), Event::Assigned { spec, managed: true, registered_at: 1 });
        process
    }

    fn at(boot: Duration, wall: i64) -> Clocks {
        Clocks { boot, wall: Timestamp::from_second(wall).unwrap().to_zoned(TimeZone::UTC) }
    }

    /// The planned times of so many runs, in milliseconds since boot. Every look is late by up to 400 ms.
    fn runs(schedules: &mut Schedules, mut boot: Duration, count: usize, wall: impl Fn(Duration) -> i64) -> Vec<u64> {
        let mut found = Vec::new();
        while found.len() < count {
            let late = Duration::from_millis(u64::from(boot.subsec_nanos()) % 400);
            boot = schedules.next().unwrap().max(boot) + late + Duration::from_millis(1);
            for plan in schedules.turn(&at(boot, wall(boot)), |_| false) {
                if let Plan::Run { since_boot: Some(time), .. } = plan {
                    found.push(u64::try_from(time.since(Time::default()).as_millis()).unwrap());
                }
            }
        }
        found
    }

    #[test]
    fn a_cycle_of_three_seconds_holds_its_period_over_a_hundred_runs_on_every_host() {
        for seed in 0..HOSTS {
            let mut schedules = Schedules::default();
            let start = Duration::from_millis(1_000_123);
            schedules.follow(&managed(3), seed, &at(start, 1_700_000_000));

            let found = runs(&mut schedules, start, 100, |boot| 1_700_000_000 + boot.as_secs() as i64);

            assert!((1_001_623..=1_003_123).contains(&found[0]), "a cycle from now, less the delay: {}", found[0]);
            assert!(found.windows(2).all(|pair| pair[1] - pair[0] == 3000), "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_or_ahead_neither_loses_nor_adds_a_run_of_a_cycle() {
        let mut schedules = Schedules::default();
        let start = Duration::from_secs(1000);
        schedules.follow(&managed(3), 7, &at(start, 1_700_000_000));
        let jumping = |boot: Duration| 1_700_000_000 + (boot.as_secs() as i64 / 10 % 3 - 1) * 86_400;

        let found = runs(&mut schedules, start, 100, jumping);

        assert!(found.windows(2).all(|pair| pair[1] - pair[0] == 3000), "{found:?}");
    }

    #[test]
    fn a_cycle_goes_on_from_its_last_planned_time_when_the_agent_comes_back() {
        let mut process = managed(60);
        let last = Some(Time::since_boot(Duration::from_secs(1000)));
        process.handle(Time::default(), Event::RunDue { planned: 1_700_000_000, since_boot: last });
        let mut schedules = Schedules::default();
        let back = Duration::from_secs(1130);

        schedules.follow(&process, 7, &at(back, 1_700_000_000));
        let found = runs(&mut schedules, back, 3, |_| 1_700_000_000);

        assert_eq!(found, [1_120_000, 1_180_000, 1_240_000], "one run for what was missed, then as planned");
    }
}
