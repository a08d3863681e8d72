//! What a scenario saw, and the last word on it.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
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

    pub(crate) fn peak(&self) -> u64 {
        self.samples.iter().copied().max().unwrap_or_default()
    }

    pub(crate) fn last(&self) -> u64 {
        self.samples.last().copied().unwrap_or_default()
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

pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
