//! What the driver reports about itself: counters, spans of operations, and a sign of progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::spans::OperationSpans;
use crate::metrics::AgentMetrics;

#[derive(Debug, Default)]
pub(super) struct Telemetry {
    pub(super) metrics: Arc<AgentMetrics>,
    pub(super) spans: OperationSpans,
    /// Changes with every turn.
    turns: Arc<AtomicU64>,
}

impl Telemetry {
    pub(super) fn turned(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn turns(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.turns)
    }
}
