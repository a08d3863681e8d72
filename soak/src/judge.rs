//! What a scenario saw, and the verdict.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use proctor_testkit::{Fleet, History, MemorySample, Program, first_lines};

/// What is printed of a scenario that passed.
#[derive(Debug, Default)]
pub(crate) struct Seen(Vec<String>);

impl Seen {
    pub(crate) fn add(&mut self, what: impl Into<String>) {
        self.0.push(what.into());
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.join("; "))
    }
}

/// Fails with the breaches, or says how much was judged.
pub(crate) fn judge(history: &History, seen: &mut Seen) -> Result<()> {
    let breaches = history.breaches();
    ensure!(breaches.is_empty(), "{} breaches in {}:\n{}", breaches.len(), history.summary(), first_lines(&breaches));
    seen.add(history.summary());
    Ok(())
}

/// A figure that must not exceed its limit, both as people read them. A missing figure fails, too.
pub(crate) fn at_most<T: PartialOrd + fmt::Debug>(what: &str, seen: Option<T>, limit: T) -> Result<()> {
    let Some(seen) = seen else { bail!("{what}: nothing was measured") };
    ensure!(seen <= limit, "{what}: {seen:?}, and the limit is {limit:?}");
    Ok(())
}

/// The 99th percentile; None if there are no samples.
pub(crate) fn p99(took: &[Duration]) -> Option<Duration> {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * 99 / 100).copied()
}

/// Resident memory and descriptors of one program, sampled while a scenario goes on.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    samples: Vec<u64>,
    pub(crate) descriptors: Vec<usize>,
}

impl Usage {
    pub(crate) fn sample(&mut self, program: &Program) {
        self.samples.extend(program.resident_bytes());
        self.descriptors.extend(program.descriptors());
    }

    pub(crate) fn peak(&self) -> Option<u64> {
        self.samples.iter().copied().max()
    }

    pub(crate) fn last(&self) -> Option<u64> {
        self.samples.last().copied()
    }

    /// Into the record, with its bound.
    pub(crate) fn record(&self, history: &mut History, program: &str, bound: u64) {
        let sample = |bytes: &u64| MemorySample { program: program.to_owned(), bytes: *bytes };
        history.memory.extend(self.samples.iter().map(sample));
        history.memory_bounds.insert(program.to_owned(), bound);
    }
}

/// Samples the server every second for so long.
pub(crate) async fn watch_server(fleet: &Fleet, usage: &mut Usage, time: Duration) {
    let until = Instant::now() + time;
    loop {
        usage.sample(&fleet.server.program);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
    }
}

pub(crate) fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
}

#[cfg(test)]
mod tests {
    use proctor_testkit::{Answer, TargetRead, TaskRead};

    use super::*;

    #[test]
    fn a_figure_above_its_limit_or_without_a_value_fails() {
        let seconds = Duration::from_secs;

        assert!(at_most("return", Some(seconds(60)), seconds(60)).is_ok());
        let slow = at_most("return", Some(seconds(61)), seconds(60)).unwrap_err().to_string();
        assert!(slow.contains("return: 61s") && slow.contains("60s"), "{slow}");
        assert!(at_most("return", None, seconds(60)).is_err());
        assert!(at_most("cores", Some(0.6), 0.5).is_err());
        assert!(at_most("cores", Some(f64::NAN), 0.5).is_err(), "nothing is known of it");
    }

    #[test]
    fn the_ninety_ninth_percentile_is_that_of_the_slowest_hundredth() {
        let took: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();

        assert_eq!(p99(&took), Some(Duration::from_millis(199)));
        assert_eq!(p99(&took[..1]), Some(Duration::from_millis(200)));
        assert_eq!(p99(&[]), None);
    }

    #[test]
    fn a_breach_fails_its_scenario_and_is_told() {
        let read = TaskRead {
            at_ms: 1,
            task: "t".to_owned(),
            targets: Some(vec![TargetRead { index: 0, code: proctor_testkit::HANDLING, message_id: String::new() }]),
        };
        let answer = Answer { key: "k".to_owned(), task: "t".to_owned() };
        let history = History { answers: vec![answer], reads: vec![read], ..History::default() };

        let told = judge(&history, &mut Seen::default()).unwrap_err().to_string();

        assert!(told.contains("I1: target t/0 never ended"), "{told}");
    }
}
