//! Operations cancelled by the server.
//!
//! Promised: an operation that waits, here or in its machine, ends as cancelled and never runs; for one that has
//! begun, the machine ends what is running; a status query ends. A finished one reports its outcome again.
//! Absent: memory of a cancel. Only outcomes are kept; the server repeats the cancel until it has one.

use std::collections::HashSet;

use proctor_model::{Code, OperationId, Outcome, ProcessKey, messages};
use proctor_supervise::{Event, Process};

use super::Driver;

impl Driver {
    pub(super) fn cancel(&mut self, operations: Vec<OperationId>) {
        let mut wanted: HashSet<OperationId> = operations.into_iter().collect();
        self.outbox.send_again(&wanted);
        wanted.retain(|operation| self.outbox.outcome(operation).is_none());
        for (key, operation) in self.admission.arrivals.take_all(&wanted) {
            self.end_unbegun(Some(&key), operation);
        }
        for operation in self.operations.take_status(&wanted) {
            self.end_unbegun(None, operation);
        }
        let is_wanted = |operation: &OperationId| wanted.contains(&operation.whole());
        let mut found: Vec<(ProcessKey, OperationId)> = Vec::new();
        for process in self.processes.all() {
            found.extend(process.operations().filter(is_wanted).map(|operation| (process.key().clone(), operation)));
        }
        for (key, operation) in found {
            tracing::info!(process = %key, %operation, "operation cancelled");
            self.dispatch_event(&key, Event::Cancelled { operation });
        }
    }

    fn end_unbegun(&mut self, key: Option<&ProcessKey>, operation: OperationId) {
        let managed = key.and_then(|key| self.processes.get(key)).is_some_and(Process::managed);
        self.finish(operation, Outcome::new(Code::Cancelled, messages::cancelled_before(), managed));
    }
}
