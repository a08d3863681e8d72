//! What the swarm measures and what it checks, shared by all agents.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// Longer than any measured wait; what takes longer counts as this.
const LONGEST: Duration = Duration::from_secs(3600);

/// A latency with its distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Latency {
    /// From the first SYN to the certificate.
    Enrol,
    /// From the first SYN to the server's Welcome.
    Connect,
    /// From the loss of a session to the server's next Welcome, failed attempts and waits included.
    Return,
    /// From the creation of a task on the server to its arrival at the agent.
    FanOut,
    /// From sending an outcome to its acknowledgement, which follows the server's commit.
    Acknowledge,
}

impl Latency {
    fn as_str(self) -> &'static str {
        match self {
            Self::Enrol => "enrol",
            Self::Connect => "connect",
            Self::Return => "return",
            Self::FanOut => "fan-out",
            Self::Acknowledge => "outcome acknowledged",
        }
    }
}

/// A promise of the server that an agent can see broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// An operation was delivered again after its outcome was acknowledged.
    DeliveredAfterAcknowledgement,
    /// A session got an epoch that is not above the one before it.
    EpochWentBack,
    /// A process was assigned in a generation that is not above what the agent had seen.
    GenerationWentBack,
    /// An operation was delivered with no time left to run it.
    DeliveredTooLate,
    /// A message was not signed by the control plane for this session.
    Unsigned,
}

impl Violation {
    const ALL: [Self; 5] = [
        Self::DeliveredAfterAcknowledgement,
        Self::EpochWentBack,
        Self::GenerationWentBack,
        Self::DeliveredTooLate,
        Self::Unsigned,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::DeliveredAfterAcknowledgement => "operation delivered after its outcome was acknowledged",
            Self::EpochWentBack => "session epoch did not rise",
            Self::GenerationWentBack => "assigned generation did not rise",
            Self::DeliveredTooLate => "operation delivered after its deadline",
            Self::Unsigned => "message without a valid signature",
        }
    }
}

/// Counts of a run so far.
#[derive(Debug, Default, Serialize)]
pub struct Counters {
    pub enrolled: AtomicU64,
    pub connected: AtomicU64,
    pub sessions: AtomicU64,
    /// TLS handshakes that used a ticket of an earlier session.
    pub resumed: AtomicU64,
    /// Sessions whose agent had nothing to report.
    pub state_known: AtomicU64,
    pub connect_failures: AtomicU64,
    /// Times that the server told an agent when to come back.
    pub told_busy: AtomicU64,
    /// Agents that the server told not to come back.
    pub turned_away: AtomicU64,
    pub operations: AtomicU64,
    pub repeated_deliveries: AtomicU64,
    pub acknowledged: AtomicU64,
}

/// The report at the end of a run, for programs. Every check is listed, even without a violation.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    latencies: BTreeMap<Latency, Quantiles>,
    counters: &'a Counters,
    violations: BTreeMap<Violation, u64>,
}

#[derive(Debug, Serialize)]
struct Quantiles {
    count: u64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Quantiles {
    #[allow(clippy::cast_precision_loss, reason = "at most an hour in microseconds")]
    fn of(histogram: &Histogram<u64>) -> Self {
        let millis = |micros: u64| micros as f64 / 1000.0;
        let at = |quantile| millis(histogram.value_at_quantile(quantile));
        Self {
            count: histogram.len(),
            p50_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            max_ms: millis(histogram.max()),
        }
    }
}

/// Everything that is measured.
#[derive(Debug, Default)]
pub struct Stats {
    pub counters: Counters,
    latencies: Mutex<BTreeMap<Latency, Histogram<u64>>>,
    violations: Mutex<BTreeMap<Violation, u64>>,
}

impl Stats {
    pub(crate) fn took(&self, what: Latency, time: Duration) {
        let micros = u64::try_from(time.min(LONGEST).as_micros()).expect("an hour fits");
        let mut latencies = self.latencies.lock();
        let histogram = latencies.entry(what).or_insert_with(|| {
            let highest = u64::try_from(LONGEST.as_micros()).expect("an hour fits");
            Histogram::new_with_bounds(1, highest, 3).expect("the bounds are constants that are in order")
        });
        histogram.saturating_record(micros.max(1));
    }

    pub(crate) fn violated(&self, what: Violation) {
        *self.violations.lock().entry(what).or_default() += 1;
    }

    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn has_violations(&self) -> bool {
        !self.violations.lock().is_empty()
    }

    pub fn report(&self) -> Report<'_> {
        let latencies =
            self.latencies.lock().iter().map(|(what, histogram)| (*what, Quantiles::of(histogram))).collect();
        let violations = self.violations.lock();
        let violations = Violation::ALL.map(|what| (what, violations.get(&what).copied().unwrap_or(0)));
        Report { latencies, counters: &self.counters, violations: violations.into() }
    }

    /// One line for people, while the swarm runs.
    pub fn progress(&self, agents: u32) -> String {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        format!(
            "enrolled {}/{agents}, connected {}, connect failures {}, operations {}, acknowledged {}",
            now(&counters.enrolled),
            now(&counters.connected),
            now(&counters.connect_failures),
            now(&counters.operations),
            now(&counters.acknowledged),
        )
    }
}

/// The report at the end of a run, for people.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        writeln!(f, "{:<22} {:>9} {:>10} {:>10} {:>10} {:>10}", "latency", "count", "p50", "p95", "p99", "max")?;
        for (what, histogram) in &*self.latencies.lock() {
            let at = |quantile| Millis(histogram.value_at_quantile(quantile));
            let (count, max) = (histogram.len(), Millis(histogram.max()));
            let (p50, p95, p99) = (at(0.5), at(0.95), at(0.99));
            writeln!(f, "{:<22} {count:>9} {p50:>10} {p95:>10} {p99:>10} {max:>10}", what.as_str())?;
        }
        writeln!(f)?;
        for (name, value) in [
            ("sessions opened", now(&counters.sessions)),
            ("handshakes resumed", now(&counters.resumed)),
            ("sessions with nothing to report", now(&counters.state_known)),
            ("connect failures", now(&counters.connect_failures)),
            ("told to come later", now(&counters.told_busy)),
            ("agents turned away", now(&counters.turned_away)),
            ("operations run", now(&counters.operations)),
            ("repeated deliveries", now(&counters.repeated_deliveries)),
            ("outcomes acknowledged", now(&counters.acknowledged)),
        ] {
            writeln!(f, "{name:<22} {value:>9}")?;
        }
        writeln!(f, "\nchecked, with the number of violations:")?;
        let violations = self.violations.lock();
        for what in Violation::ALL {
            writeln!(f, "{:>9}  {}", violations.get(&what).copied().unwrap_or(0), what.as_str())?;
        }
        Ok(())
    }
}

/// Microseconds, shown in milliseconds.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:01} ms", self.0 / 1000, self.0 % 1000 / 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_shows_latencies_and_every_check() {
        let figures = Stats::default();
        for millis in 1..=100 {
            figures.took(Latency::Connect, Duration::from_millis(millis));
        }
        figures.violated(Violation::EpochWentBack);

        let report = figures.to_string();

        let connect = report.lines().find(|line| line.starts_with("connect ")).unwrap();
        assert!(connect.contains(" 100 ") && connect.contains("50.0 ms") && connect.contains("99.0 ms"), "{connect}");
        assert!(report.contains("1  session epoch did not rise"), "{report}");
        assert!(report.contains("0  operation delivered after its deadline"), "{report}");
        assert!(figures.has_violations());
    }

    #[test]
    fn the_report_for_programs_has_the_same_figures() {
        let figures = Stats::default();
        figures.took(Latency::FanOut, Duration::from_millis(250));
        Stats::count(&figures.counters.operations);
        figures.violated(Violation::Unsigned);

        let report = serde_json::to_value(figures.report()).unwrap();

        assert_eq!(report["latencies"]["fan_out"]["count"], 1);
        let p95 = report["latencies"]["fan_out"]["p95_ms"].as_f64().unwrap();
        assert!((249.0..=251.0).contains(&p95), "{report}");
        assert_eq!(report["counters"]["operations"], 1);
        assert_eq!(
            (&report["violations"]["unsigned"], &report["violations"]["epoch_went_back"]),
            (&1.into(), &0.into())
        );
    }

    #[test]
    fn a_latency_beyond_the_scale_counts_as_the_longest() {
        let figures = Stats::default();

        figures.took(Latency::FanOut, Duration::from_secs(1_000_000));
        figures.took(Latency::FanOut, Duration::ZERO);

        assert_eq!(figures.latencies.lock()[&Latency::FanOut].len(), 2);
    }
}
