//! The agent's part of the traces of tasks: one span per operation, from its arrival to its outcome.

use std::collections::HashMap;
use std::time::Instant;

use proctor_model::{OperationId, OperationKind, Outcome, ProcessKey};
use proctor_traces::{Period, Span, Stage, Traces};

/// Traced operations in progress; more are not traced.
const UNDER_WAY_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct OperationSpans {
    traces: Traces,
    under_way: HashMap<OperationId, Begun>,
}

#[derive(Debug)]
struct Begun {
    at: Instant,
    key: ProcessKey,
    kind: OperationKind,
}

impl OperationSpans {
    pub(super) fn new(traces: Traces) -> Self {
        Self { traces, under_way: HashMap::new() }
    }

    /// However often an operation is delivered, its span begins with the first time.
    pub(super) fn arrived(&mut self, operation: OperationId, key: &ProcessKey, kind: OperationKind) {
        if self.traces.cover(operation) && self.under_way.len() < UNDER_WAY_MAX {
            let begun = || Begun { at: Instant::now(), key: key.clone(), kind };
            self.under_way.entry(operation).or_insert_with(begun);
        }
    }

    pub(super) fn ended(&mut self, operation: OperationId, outcome: &Outcome) {
        let Some(Begun { at, key, kind }) = self.under_way.remove(&operation) else { return };
        let code = outcome.code.number();
        self.traces.record(|| Span {
            stage: Stage::Run(operation),
            name: format!("run {kind}"),
            time: Period::since(at),
            attributes: vec![
                ("proctor.operation", operation.to_string()),
                ("proctor.process", key.to_string()),
                ("proctor.code", code.to_string()),
            ],
            failed: (!outcome.code.is_success()).then_some(code),
            caller: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use proctor_model::{Code, Message, TaskId};
    use proctor_traces::TraceSink;

    use super::*;

    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<Span>>);

    impl TraceSink for Recorder {
        fn record(&self, span: Span) {
            self.0.lock().push(span);
        }
    }

    fn operation(index: u32) -> OperationId {
        OperationId::first(TaskId::from_uuid(uuid::Uuid::from_u128(9)), index)
    }

    #[test]
    fn an_operation_is_one_span_however_often_it_is_delivered() {
        let recorder = Arc::new(Recorder::default());
        let mut spans = OperationSpans::new(Traces::to(recorder.clone()));
        let key: ProcessKey = "ns/p".parse().unwrap();
        let failure = Outcome::new(Code::CheckFailed, Message::foreign("still there"), true);

        spans.arrived(operation(1), &key, OperationKind::Kill);
        spans.arrived(operation(1), &key, OperationKind::Kill);
        spans.ended(operation(1), &failure);
        spans.ended(operation(1), &failure);
        spans.ended(operation(2), &Outcome::success(true));

        let recorded = recorder.0.lock();
        assert_eq!(recorded.len(), 1);
        assert_eq!((recorded[0].stage, recorded[0].failed), (Stage::Run(operation(1)), Some(failure.code.number())));
        assert_eq!(recorded[0].name, "run kill");
    }

    #[test]
    fn what_is_under_way_is_bounded() {
        let mut spans = OperationSpans::new(Traces::to(Arc::new(Recorder::default())));
        let key: ProcessKey = "ns/p".parse().unwrap();
        for attempt in 0..2 * u32::try_from(UNDER_WAY_MAX).unwrap() {
            spans.arrived(OperationId { attempt, ..operation(0) }, &key, OperationKind::Start);
        }
        assert_eq!(spans.under_way.len(), UNDER_WAY_MAX);
    }
}
