//! Traces of tasks: from the call that created one, through the delivery to each host, to the agent's work there.
//!
//! Promised: a task is one trace, and its id is the trace's. The id of every span is derived from its [`Stage`], so
//! the agent's span finds its parent without anything extra on the link, even after a restart of either side.
//! Recording never blocks and never fails; without a sink it costs a comparison. Of a large task only the first
//! [`TRACED_TARGETS_MAX`] targets are traced. Absent: commands, output and messages, which may contain secrets.
//!
//! Start at [`Traces`]; `otlp` (a cargo feature) sends spans to an OpenTelemetry collector.

mod arguments;
mod caller;
#[cfg(feature = "otlp")]
pub mod otlp;

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use proctor_model::{OperationId, TaskId};

pub use arguments::{TraceArguments, Tracing};
pub use caller::TraceParent;

/// Per task; the rest looks the same.
pub const TRACED_TARGETS_MAX: u32 = 100;

/// Takes spans that have ended.
pub trait TraceSink: fmt::Debug + Send + Sync {
    /// Neither blocks nor fails; what cannot be taken is dropped.
    fn record(&self, span: Span);
}

/// Where spans go; nowhere by default. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Arc<dyn TraceSink>>);

impl Traces {
    pub fn to(sink: Arc<dyn TraceSink>) -> Self {
        Self(Some(sink))
    }

    /// Whether this operation is traced here.
    pub fn cover(&self, operation: OperationId) -> bool {
        self.0.is_some() && operation.part == 0 && operation.index < TRACED_TARGETS_MAX
    }

    /// The span is only made if there is a sink.
    pub fn record(&self, span: impl FnOnce() -> Span) {
        if let Some(sink) = &self.0 {
            sink.record(span());
        }
    }
}

/// The address of the collector, or another setting of the exporter, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("'{0}' is not the address of a collector: write http://HOST:4318 or https://HOST:4318")]
    Address(String),
    #[error("traces cannot be sent: {0}")]
    Exporter(String),
}

/// A stage in the life of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The call that made the task, until it was stored.
    Submit(TaskId),
    /// One target on the server, until its outcome was stored.
    Deliver(OperationId),
    /// The same on its host, until there was an outcome.
    Run(OperationId),
}

impl Stage {
    /// The id of the trace.
    pub fn task(self) -> TaskId {
        match self {
            Self::Submit(task) => task,
            Self::Deliver(operation) | Self::Run(operation) => operation.task,
        }
    }

    /// Unique in its trace, and the same whoever computes it.
    pub fn span_id(self) -> u64 {
        let of_target = |operation: OperationId, stage: u64| {
            let attempt = u64::from(operation.attempt) & 0xff_ffff;
            (u64::from(operation.index) + 1) << 32 | attempt << 8 | stage
        };
        match self {
            Self::Submit(_) => 1,
            Self::Deliver(operation) => of_target(operation, 1),
            Self::Run(operation) => of_target(operation, 2),
        }
    }

    pub fn parent(self) -> Option<Self> {
        match self {
            Self::Submit(_) => None,
            Self::Deliver(operation) => Some(Self::Submit(operation.task)),
            Self::Run(operation) => Some(Self::Deliver(operation)),
        }
    }
}

/// A stage that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub stage: Stage,
    pub name: String,
    pub time: Period,
    pub attributes: Vec<(&'static str, String)>,
    /// The code of a failure, which is not 0.
    pub failed: Option<u32>,
    /// The caller's span that caused it, in their own trace.
    pub caller: Option<TraceParent>,
}

/// A start and an end. The wall clock is read once, so setting it makes no span longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub began: SystemTime,
    pub ended: SystemTime,
}

impl Period {
    /// From `began` until now.
    #[allow(clippy::disallowed_methods, reason = "a span tells when it was, on the clock of the collector")]
    pub fn since(began: Instant) -> Self {
        let ended = SystemTime::now();
        Self { began: ended.checked_sub(began.elapsed()).unwrap_or(ended), ended }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::Uuid;

    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl TraceSink for Nowhere {
        fn record(&self, _span: Span) {}
    }

    fn operation(index: u32, attempt: u32) -> OperationId {
        OperationId { attempt, ..OperationId::first(TaskId::from_uuid(Uuid::from_u128(7)), index) }
    }

    #[test]
    fn every_span_of_a_task_has_an_id_of_its_own() {
        let task = operation(0, 1).task;
        let operations =
            (0..TRACED_TARGETS_MAX).flat_map(|index| (1..=300).map(move |attempt| operation(index, attempt)));
        let of_targets = operations.flat_map(|operation| [Stage::Deliver(operation), Stage::Run(operation)]);
        let stages: Vec<Stage> = of_targets.chain([Stage::Submit(task)]).collect();

        let ids: HashSet<u64> = stages.iter().map(|stage| stage.span_id()).collect();

        assert_eq!((ids.len(), ids.contains(&0)), (stages.len(), false));
    }

    #[test]
    fn the_first_targets_of_a_task_are_traced_and_only_where_spans_go_somewhere() {
        let (on, off) = (Traces::to(Arc::new(Nowhere)), Traces::default());
        let (last, beyond) = (operation(TRACED_TARGETS_MAX - 1, 2), operation(TRACED_TARGETS_MAX, 1));

        assert!(on.cover(last) && !on.cover(beyond) && !on.cover(last.part(1)) && !off.cover(last));
        off.record(|| unreachable!("no span is made for nobody"));
    }
}
