//! Counters and histograms in the Prometheus text format.
//!
//! Promised: counting takes no lock that a scrape holds for long, and never fails; a labelled instrument has at
//! most [`SERIES_MAX`] series, and the rest counts under the label `other`. Absent: names and meaning, which belong
//! to the program.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// Labels come from our own tables; this is a safeguard in case one does not.
const SERIES_MAX: usize = 2000;
const OTHER: &str = "other";

/// Upper bounds of the buckets, in seconds; the same everywhere, so that all latencies can be compared.
pub const LATENCY_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Only ever grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long something takes.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Those in each bucket, not cumulative; the last one is beyond all.
    buckets: [AtomicU64; LATENCY_BUCKETS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = LATENCY_BUCKETS.iter().position(|end| seconds <= *end).unwrap_or(LATENCY_BUCKETS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// One instrument for each set of label values.
#[derive(Debug)]
pub struct Labelled<T, const N: usize> {
    series: RwLock<HashMap<[String; N], Arc<T>>>,
}

impl<T, const N: usize> Default for Labelled<T, N> {
    fn default() -> Self {
        Self { series: RwLock::default() }
    }
}

impl<T: Default, const N: usize> Labelled<T, N> {
    pub fn of(&self, labels: [&str; N]) -> Arc<T> {
        let labels = labels.map(str::to_owned);
        if let Some(found) = self.series.read().get(&labels) {
            return found.clone();
        }
        let mut series = self.series.write();
        let labels =
            if series.len() < SERIES_MAX { labels } else { [const { String::new() }; N].map(|_| OTHER.into()) };
        series.entry(labels).or_default().clone()
    }

    /// In the order of their labels, so that two scrapes can be compared.
    fn sorted(&self) -> Vec<([String; N], Arc<T>)> {
        let mut all: Vec<_> = self.series.read().iter().map(|(labels, one)| (labels.clone(), one.clone())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

/// The text that Prometheus reads.
#[derive(Debug, Default)]
pub struct Exposition(String);

/// The Prometheus type of a family.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    pub fn into_text(self) -> String {
        self.0
    }

    /// The lines before the samples of `name`.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (number, (label, text)) in labels.iter().enumerate() {
            let begin = if number == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{begin}{label}=\"{}\"", escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, Kind::Gauge, help);
        self.sample(name, &[], value);
    }

    pub fn counter(&mut self, name: &str, help: &str, counter: &Counter) {
        self.family(name, Kind::Counter, help);
        self.sample(name, &[], as_number(counter.get()));
    }

    pub fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        counters: &Labelled<Counter, N>,
    ) {
        self.family(name, Kind::Counter, help);
        for (values, counter) in counters.sorted() {
            let pairs = std::array::from_fn::<_, N, _>(|at| (labels[at], values[at].as_str()));
            self.sample(name, &pairs, as_number(counter.get()));
        }
    }

    pub fn histograms<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        histograms: &Labelled<Histogram, N>,
    ) {
        self.family(name, Kind::Histogram, help);
        for (values, histogram) in histograms.sorted() {
            let pairs = std::array::from_fn::<_, N, _>(|at| (labels[at], values[at].as_str()));
            let buckets = histogram.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
            self.buckets(name, &pairs, &buckets, histogram.nanoseconds.load(Ordering::Relaxed));
        }
    }

    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, Kind::Histogram, help);
        let buckets = histogram.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        self.buckets(name, &[], &buckets, histogram.nanoseconds.load(Ordering::Relaxed));
    }

    /// What every program reports about itself; `started_at` is in Unix milliseconds.
    pub fn program(&mut self, started_at: i64) {
        let started = Duration::from_millis(started_at.unsigned_abs()).as_secs_f64();
        self.gauge("process_start_time_seconds", "When the program started, in Unix seconds.", started);
        let usage = ProcessUsage::read();
        self.family("process_cpu_seconds_total", Kind::Counter, "CPU time of the program.");
        self.sample("process_cpu_seconds_total", &[], usage.cpu_seconds);
        self.gauge("process_resident_memory_bytes", "Resident memory of the program.", usage.resident_bytes);
        self.gauge("process_open_fds", "Open descriptors of the program.", usage.descriptors);
    }

    /// One histogram, from the counts of each bucket of [`LATENCY_BUCKETS`] and beyond.
    pub fn buckets(&mut self, name: &str, labels: &[(&str, &str)], buckets: &[u64], nanoseconds: u64) {
        let ends = LATENCY_BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        let mut so_far = 0;
        for (end, count) in ends.zip(buckets) {
            so_far += count;
            let with_end: Vec<(&str, &str)> = labels.iter().copied().chain([("le", end.as_str())]).collect();
            self.sample(&format!("{name}_bucket"), &with_end, as_number(so_far));
        }
        self.sample(&format!("{name}_sum"), labels, Duration::from_nanos(nanoseconds).as_secs_f64());
        self.sample(&format!("{name}_count"), labels, as_number(so_far));
    }
}

/// Of this process; zero if `/proc` does not say.
#[derive(Debug, Default)]
struct ProcessUsage {
    cpu_seconds: f64,
    resident_bytes: f64,
    descriptors: f64,
}

impl ProcessUsage {
    fn read() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name in parentheses may hold anything; after it come state and numbers.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |number: usize| fields.get(number).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Self {
            cpu_seconds: as_number(field(11) + field(12)) / as_number(ticks),
            resident_bytes: as_number(field(21).saturating_mul(rustix::param::page_size() as u64)),
            descriptors: as_number(open_descriptors()),
        }
    }
}

/// Since Linux 6.2 the size of the directory is the count. Before, it is 0, and the entries have to be counted,
/// which takes milliseconds with a connection for each of ten thousand agents.
fn open_descriptors() -> u64 {
    const DIRECTORY: &str = "/proc/self/fd";
    match std::fs::metadata(DIRECTORY).map_or(0, |directory| directory.len()) {
        0 => std::fs::read_dir(DIRECTORY).map_or(0, |entries| entries.count() as u64),
        count => count,
    }
}

/// Numbers beyond 2^53 lose their last digits, as they do in Prometheus itself.
#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
pub fn as_number(count: u64) -> f64 {
    count as f64
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_adds_up_from_bucket_to_bucket() {
        let histograms: Labelled<Histogram, 1> = Labelled::default();
        for took in [1, 3, 30_000] {
            histograms.of(["GET"]).observe(Duration::from_millis(took));
        }

        let mut text = Exposition::default();
        text.histograms("took_seconds", "How long.", ["method"], &histograms);

        let text = text.into_text();
        assert!(text.starts_with("# HELP took_seconds How long.\n# TYPE took_seconds histogram\n"), "{text}");
        for line in [
            "took_seconds_bucket{method=\"GET\",le=\"0.001\"} 1",
            "took_seconds_bucket{method=\"GET\",le=\"0.005\"} 2",
            "took_seconds_bucket{method=\"GET\",le=\"10\"} 2",
            "took_seconds_bucket{method=\"GET\",le=\"+Inf\"} 3",
            "took_seconds_sum{method=\"GET\"} 30.004",
            "took_seconds_count{method=\"GET\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[test]
    fn open_descriptors_are_counted() {
        let before = open_descriptors();

        let opened: Vec<_> = (0..100).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();

        assert_eq!(open_descriptors(), before + opened.len() as u64);
    }

    #[test]
    fn labels_are_escaped_and_their_number_is_bounded() {
        let counters: Labelled<Counter, 1> = Labelled::default();
        counters.of(["a\"b\\c\nd"]).add(1);
        for number in 0..2 * SERIES_MAX {
            counters.of([&number.to_string()]).add(1);
        }

        let mut text = Exposition::default();
        text.counters("calls_total", "Calls.", ["route"], &counters);

        let text = text.into_text();
        assert!(text.contains(r#"calls_total{route="a\"b\\c\nd"} 1"#));
        assert_eq!(text.lines().count(), 2 + SERIES_MAX + 1);
        assert!(text.contains(&format!("calls_total{{route=\"other\"}} {}", SERIES_MAX + 1)));
    }
}
