//! Statistics of a store, for metrics.

/// Upper bounds of the buckets of a [`Latency`], in seconds.
pub const LATENCY_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Latencies of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Calls in each of [`LATENCY_BUCKETS`], not cumulative; the last one is beyond all.
    pub buckets: [u64; LATENCY_BUCKETS.len() + 1],
    pub nanoseconds: u64,
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationStats {
    /// As the store's errors name it.
    pub what: &'static str,
    pub count: u64,
    pub failures: u64,
    pub nanoseconds: u64,
}

impl OperationStats {
    /// Counts further calls of the same kind.
    pub(crate) fn add(&mut self, more: &Self) {
        self.count += more.count;
        self.failures += more.failures;
        self.nanoseconds = self.nanoseconds.saturating_add(more.nanoseconds);
    }
}

/// Since the store was opened. Made from counters in memory and file sizes, so its cost does not depend on how much
/// is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    pub reads: Latency,
    pub writes: Latency,
    /// Sorted by name.
    pub operations: Vec<OperationStats>,
    pub writes_queued: u64,
    pub file_bytes: u64,
    /// The write-ahead log.
    pub log_bytes: u64,
    /// None if the file system does not say.
    pub free_bytes: Option<u64>,
}
