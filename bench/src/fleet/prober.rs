//! API calls at a fixed rate, whatever happens to earlier ones.
//!
//! Promised: a call is timed from the moment it was due, so that a stalled server does not get fewer calls. At most
//! [`UNDER_WAY_MAX`] calls are in progress; what is due beyond that counts as failed.

use std::time::{Duration, Instant};

use proctor_testkit::Api;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::figures::quantile;

const PERIOD: Duration = Duration::from_millis(50);
const UNDER_WAY_MAX: usize = 256;
/// A route that reads nothing of the fleet, and one that lists it.
pub(super) const ROUTES: [&str; 2] = ["/api/v1/whoami", "/api/v1/hosts?limit=100"];

/// One call.
#[derive(Clone, Copy, Debug)]
struct Sample {
    route: usize,
    due: Instant,
    /// None: no answer, or no success.
    took: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Prober {
    stop: oneshot::Sender<()>,
    running: JoinSet<Vec<Sample>>,
}

/// The calls of one route that were due in some period.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    pub(super) answered: Vec<Duration>,
    pub(super) failed: usize,
}

impl Prober {
    pub(super) fn start(api: Api) -> Self {
        let (stop, stopped) = oneshot::channel();
        let mut one = JoinSet::new();
        one.spawn(probe(api, stopped));
        Self { stop, running: one }
    }

    /// Ends it. Of each route, the calls that were due from `since` on.
    pub(super) async fn finish(mut self, since: Instant) -> [Probes; ROUTES.len()] {
        let _ = self.stop.send(());
        let samples = self.running.join_next().await.and_then(Result::ok).unwrap_or_default();
        of_routes(&samples, since)
    }
}

async fn probe(api: Api, mut stopped: oneshot::Receiver<()>) -> Vec<Sample> {
    let mut period = tokio::time::interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut under_way, mut samples) = (JoinSet::new(), Vec::new());
    loop {
        tokio::select! {
            tick = period.tick() => {
                for route in 0..ROUTES.len() {
                    let due = tick.into_std();
                    if under_way.len() < UNDER_WAY_MAX {
                        under_way.spawn(ask(api.clone(), route, due));
                    } else {
                        samples.push(Sample { route, due, took: None });
                    }
                }
            }
            Some(sample) = under_way.join_next() => samples.extend(sample),
            _ = &mut stopped => break,
        }
    }
    samples.extend(under_way.join_all().await);
    samples
}

async fn ask(api: Api, route: usize, due: Instant) -> Sample {
    let answer = api.get(ROUTES[route]).await;
    let is_success = answer.is_some_and(|(status, _)| status.is_success());
    Sample { route, due, took: is_success.then(|| due.elapsed()) }
}

fn of_routes(samples: &[Sample], since: Instant) -> [Probes; ROUTES.len()] {
    let mut probes: [Probes; ROUTES.len()] = Default::default();
    for sample in samples.iter().filter(|sample| sample.due >= since) {
        match sample.took {
            Some(took) => probes[sample.route].answered.push(took),
            None => probes[sample.route].failed += 1,
        }
    }
    probes
}

impl Probes {
    pub(super) fn p99(&self) -> Option<Duration> {
        (!self.answered.is_empty()).then(|| quantile(&self.answered, 0.99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_before_the_time_in_question_do_not_count() {
        let begun = Instant::now();
        let since = begun + Duration::from_secs(1);
        let sample = |route, due, took| Sample { route, due, took };
        let took = Some(Duration::from_millis(3));

        let probes = of_routes(
            &[sample(0, begun, None), sample(0, since, took), sample(1, since, None), sample(1, since, took)],
            since,
        );

        assert_eq!((probes[0].answered.len(), probes[0].failed), (1, 0));
        assert_eq!((probes[1].answered.len(), probes[1].failed), (1, 1));
        assert_eq!((probes[1].p99(), Probes::default().p99()), (took, None));
    }
}
