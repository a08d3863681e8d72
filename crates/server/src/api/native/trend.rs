//! The numbers of the overview over the last hour, in memory.
//!
//! Promised: a caller sees the change of what it may read now. Sampled every few minutes, even while nobody asks.
//! Absent: anything from before the server's start.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_api::{EarlierCounts, HostStatus};
use proctor_model::{AccessTarget, Namespace, Phase, ScopeSet};
use proctor_runtime::chain;
use proctor_store::Millis;
use tokio::time::{Instant, Interval};

use super::ApiState;
use super::visible::Visible;
use crate::control::Caller;

const EVERY: Duration = Duration::from_secs(300);
/// After the start: until then agents are on their way back, and their hosts look away.
const FIRST_AFTER: Duration = Duration::from_secs(60);
const HOUR_MS: Millis = 3_600_000;
/// The sample of an hour ago is at most so much older.
const OLDER_MS: Millis = 300_000;
/// More namespaces, businesses and areas with trouble than this are not kept.
const PLACES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(in crate::api) struct Trend {
    /// The oldest first, of an hour.
    samples: Mutex<VecDeque<Sample>>,
}

/// Business and cloud area of a host.
type Site = (Option<u64>, u32);

/// What was wrong at a moment, by who may see it. Where nothing is wrong, nothing is kept.
#[derive(Debug, Default)]
struct Sample {
    at: Millis,
    away: HashMap<Site, u64>,
    processes: HashMap<(Namespace, Site), Troubles>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Troubles {
    failed: u64,
    crash_looping: u64,
    evicted: u64,
}

impl Trend {
    fn record(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        let oldest = sample.at - HOUR_MS - OLDER_MS;
        samples.retain(|earlier| earlier.at >= oldest && earlier.at < sample.at);
        if sample.away.len() + sample.processes.len() <= PLACES_MAX {
            samples.push_back(sample);
        }
    }

    /// In these scopes, an hour before that time, or as long before it as the server has run.
    pub(super) fn earlier(&self, scopes: &ScopeSet, now: Millis) -> Option<EarlierCounts> {
        let samples = self.samples.lock();
        let oldest = now - HOUR_MS - OLDER_MS;
        samples.iter().find(|sample| sample.at >= oldest && sample.at < now).map(|sample| sample.within(scopes))
    }
}

impl Sample {
    fn of(seen: &Visible<'_>) -> Self {
        let mut sample = Self { at: seen.at, ..Self::default() };
        for host in seen.hosts().filter(|host| seen.status(host) == HostStatus::Away) {
            *sample.away.entry((host.site.business, host.site.key.cloud)).or_default() += 1;
        }
        for process in seen.processes() {
            let host = seen.fleet.host(process);
            let is_failed = process.phase == Phase::Failed;
            let is_wrong = is_failed || process.is_crash_looping() || process.evicted;
            if !is_wrong || seen.is_cordoned(host) {
                continue;
            }
            let target = (seen.fleet.key(process).namespace.clone(), (host.site.business, host.site.key.cloud));
            let troubles = sample.processes.entry(target).or_default();
            troubles.failed += u64::from(is_failed);
            troubles.crash_looping += u64::from(process.is_crash_looping());
            troubles.evicted += u64::from(process.evicted);
        }
        sample
    }

    fn within(&self, scopes: &ScopeSet) -> EarlierCounts {
        let mut counts = EarlierCounts { at_ms: self.at, ..EarlierCounts::default() };
        for ((business, cloud), away) in &self.away {
            let target = AccessTarget { business: *business, cloud: Some(*cloud), namespace: None };
            counts.away += if scopes.contains(&target) { *away } else { 0 };
        }
        for ((namespace, (business, cloud)), troubles) in &self.processes {
            let target = AccessTarget { business: *business, cloud: Some(*cloud), namespace: Some(namespace) };
            if scopes.contains(&target) {
                counts.failed += troubles.failed;
                counts.crash_looping += troubles.crash_looping;
                counts.evicted += troubles.evicted;
            }
        }
        counts
    }
}

fn period() -> Interval {
    tokio::time::interval_at(Instant::now() + FIRST_AFTER, EVERY)
}

/// Takes samples for as long as the server runs.
pub(in crate::api) async fn watch(state: ApiState) {
    let caller = Caller::local("overview");
    let mut period = period();
    loop {
        period.tick().await;
        let seen = match state.control.fleet_unheld().await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot sample the overview");
                continue;
            }
        };
        let (control, who) = (state.control.clone(), caller.clone());
        let sample = move || Sample::of(&Visible::new(&seen, &who, &control));
        if let Ok(sample) = tokio::task::spawn_blocking(sample).await {
            state.border.trend.record(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Millis, failed: u64) -> Sample {
        let of = |name: &str| (name.parse().unwrap(), (Some(3), 5));
        let troubles = Troubles { failed, ..Troubles::default() };
        Sample {
            at,
            away: [((None, 0), 2), ((Some(3), 5), 1)].into(),
            processes: [(of("web"), troubles), (of("db"), troubles)].into(),
        }
    }

    fn everywhere() -> ScopeSet {
        ScopeSet { everywhere: true, ..ScopeSet::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_sample_is_taken_a_minute_after_the_start() {
        let (begun, mut period) = (Instant::now(), period());

        period.tick().await;
        assert_eq!(begun.elapsed().as_secs(), 60);
        period.tick().await;
        assert_eq!(begun.elapsed().as_secs(), 60 + EVERY.as_secs());
    }

    #[test]
    fn a_change_is_that_since_an_hour_ago_or_since_the_start() {
        let trend = Trend::default();
        assert_eq!(trend.earlier(&everywhere(), 1), None);

        for (minute, failed) in (0..30).map(|step| step * 5).zip(1..) {
            trend.record(sample(minute * 60_000, failed));
        }

        let at = |minute: Millis| trend.earlier(&everywhere(), minute * 60_000).map(|counts| counts.at_ms / 60_000);
        assert_eq!((at(145), at(149), at(300)), (Some(80), Some(85), None));
        assert!(trend.samples.lock().len() <= 14, "an hour is kept");
    }

    #[test]
    fn a_caller_sees_the_change_of_what_they_may_read() {
        let trend = Trend::default();
        trend.record(sample(1, 4));
        let seen = |scopes: ScopeSet| trend.earlier(&scopes, 2).map(|counts| (counts.away, counts.failed)).unwrap();

        assert_eq!(seen(everywhere()), (3, 8));
        assert_eq!(seen(ScopeSet { clouds: [5].into(), ..ScopeSet::default() }), (1, 8));
        assert_eq!(seen(ScopeSet { namespaces: ["web".parse().unwrap()].into(), ..ScopeSet::default() }), (0, 4));
        assert_eq!(seen(ScopeSet::default()), (0, 0));
    }
}
