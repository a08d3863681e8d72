//! The control plane's part of the traces of tasks: the submission, and the delivery of each target.

use std::time::Instant;

use proctor_model::{OperationId, Outcome, TaskId};
use proctor_traces::{Period, Span, Stage};

use super::{Caller, Control};

impl Control {
    /// The task is stored, and its call is about to be answered.
    pub(super) fn trace_submission(&self, caller: &Caller, task: TaskId, action: &str, targets: usize, begun: Instant) {
        self.inner.traces.record(|| Span {
            stage: Stage::Submit(task),
            name: format!("submit {action}"),
            time: Period::since(begun),
            attributes: vec![
                ("proctor.task", task.to_string()),
                ("proctor.targets", targets.to_string()),
                ("proctor.app", caller.app.clone()),
                ("proctor.user", caller.user.clone()),
                ("proctor.request", caller.origin.request_id.clone()),
            ],
            failed: None,
            caller: caller.origin.trace_parent,
        });
    }

    /// These outcomes are stored, and their targets still open here.
    pub(super) fn trace_outcomes(&self, batch: &[(OperationId, Outcome)]) {
        for (operation, outcome) in batch.iter().filter(|(operation, _)| self.inner.traces.cover(*operation)) {
            if let Some(span) = self.target_span(*operation, outcome) {
                self.inner.traces.record(|| span);
            }
        }
    }

    fn target_span(&self, operation: OperationId, outcome: &Outcome) -> Option<Span> {
        let dispatch = self.inner.dispatch.lock();
        let (added, agent, target) = dispatch.open_target(&operation)?;
        let code = outcome.code.number();
        Some(Span {
            stage: Stage::Deliver(operation),
            name: format!("deliver {}", target.kind),
            time: Period::since(added),
            attributes: vec![
                ("proctor.operation", operation.to_string()),
                ("proctor.agent", agent.to_string()),
                ("proctor.process", target.key.to_string()),
                ("proctor.code", code.to_string()),
            ],
            failed: (!outcome.code.is_success()).then_some(code),
            caller: None,
        })
    }
}
