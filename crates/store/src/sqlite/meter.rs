//! Counts calls and their latency.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::{LATENCY_BUCKETS, Latency, OperationStats, Result};

#[derive(Debug, Default)]
pub(super) struct Meter {
    buckets: [AtomicU64; LATENCY_BUCKETS.len() + 1],
    nanoseconds: AtomicU64,
    operations: Mutex<BTreeMap<&'static str, OperationStats>>,
}

impl Meter {
    /// Counts a call that began at this time.
    pub(super) fn count<T>(&self, what: &'static str, begun: Instant, result: Result<T>) -> Result<T> {
        let took = begun.elapsed();
        let seconds = took.as_secs_f64();
        let bucket = LATENCY_BUCKETS.iter().position(|end| seconds <= *end).unwrap_or(LATENCY_BUCKETS.len());
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        let new = OperationStats { what, count: 0, failures: 0, nanoseconds: 0 };
        let operation = operations.entry(what).or_insert(new);
        operation.count += 1;
        operation.failures += u64::from(result.is_err());
        operation.nanoseconds = operation.nanoseconds.saturating_add(nanoseconds);
        result
    }

    pub(super) fn latency(&self) -> Latency {
        Latency {
            buckets: self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed)),
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
        }
    }

    pub(super) fn operations(&self) -> Vec<OperationStats> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }
}
