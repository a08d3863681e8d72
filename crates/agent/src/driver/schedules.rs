//! The schedules of periodic processes: which run is due, by the host's wall clock and time zone.

use std::collections::HashMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use proctor_model::{Policy, ProcessKey};
use proctor_runtime::clock;
use proctor_supervise::{Due, Process, Schedule, ScheduleMachine, spread};

/// A clock that is set, or a zone that changes, is noticed within this.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Schedules {
    of: HashMap<ProcessKey, Planned>,
    /// When to ask the machines again, in time since boot: the wall clock may be set meanwhile.
    next: Duration,
}

#[derive(Debug)]
struct Planned {
    /// What the machine was made of.
    policy: Policy,
    machine: ScheduleMachine,
    /// Spreads what is planned for the same minute.
    delay: Duration,
}

/// What a planned time means for a process.
#[derive(Debug)]
pub(super) enum Plan {
    Run { key: ProcessKey, planned: i64 },
    Skipped { key: ProcessKey, planned: i64, skipped: u64 },
}

impl Schedules {
    /// Follows a change of a process: its schedule counts while it is managed.
    pub(super) fn follow(&mut self, process: &Process, seed: u64) {
        let key = process.key();
        let schedule = Schedule::of(&process.spec().policy).filter(|_| process.managed());
        let Some(schedule) = schedule else {
            self.of.remove(key);
            return;
        };
        if self.of.get(key).is_some_and(|planned| planned.policy == process.spec().policy) {
            return;
        }
        // A rule that changed begins anew; one that comes back with the agent goes on.
        let last = process.planned_at().filter(|_| !self.of.contains_key(key));
        let last = last.and_then(|secs| Timestamp::from_second(secs).ok());
        let mut machine = ScheduleMachine::new(schedule, last);
        let delay = spread(key, seed);
        if last.is_none() {
            machine.due(&now(), false);
        }
        self.of.insert(key.clone(), Planned { policy: process.spec().policy.clone(), machine, delay });
    }

    pub(super) fn forget(&mut self, key: &ProcessKey) {
        self.of.remove(key);
    }

    /// When [`Schedules::turn`] may have something to do, in time since boot.
    pub(super) fn next(&self) -> Option<Duration> {
        (!self.of.is_empty()).then_some(self.next)
    }

    fn wait(&self) -> Duration {
        let now = Timestamp::from_millisecond(clock::unix_millis()).unwrap_or_default();
        let of_one = |planned: &Planned| match planned.machine.next_run() {
            Some(next) => Duration::try_from(now.duration_until(next)).unwrap_or_default() + planned.delay,
            None => CLOCK_CHECK,
        };
        self.of.values().map(of_one).min().unwrap_or(CLOCK_CHECK).min(CLOCK_CHECK)
    }

    /// Asks every machine, if it is time.
    pub(super) fn turn(&mut self, boot_time: Duration, is_busy: impl Fn(&ProcessKey) -> bool) -> Vec<Plan> {
        if self.next().is_none_or(|next| next > boot_time) {
            return Vec::new();
        }
        let now = now();
        let mut plans = Vec::new();
        for (key, planned) in &mut self.of {
            let late = jiff::SignedDuration::try_from(planned.delay).unwrap_or_default();
            let Ok(shifted) = now.checked_sub(late) else { continue };
            match planned.machine.due(&shifted, is_busy(key)) {
                Due::Not => {}
                Due::Run { planned, .. } => plans.push(Plan::Run { key: key.clone(), planned: planned.as_second() }),
                Due::Skipped { planned: at } => plans.push(Plan::Skipped {
                    key: key.clone(),
                    planned: at.as_second(),
                    skipped: planned.machine.skipped(),
                }),
            }
        }
        self.next = boot_time + self.wait();
        plans
    }

    /// Unix seconds.
    pub(super) fn next_run(&self, key: &ProcessKey) -> Option<i64> {
        self.of.get(key)?.machine.next_run().map(|time| time.as_second())
    }
}

fn now() -> Zoned {
    let now = Timestamp::from_millisecond(clock::unix_millis()).unwrap_or_default();
    now.to_zoned(TimeZone::system())
}
