//! What the owner of the host asks for on the control socket.
//!
//! Promised: an operation takes the way of one of the server: the policy, pid files, the machine, the ledger. It is
//! published as an event when it is taken and when it has ended, with the user who asked. Its outcome stays in the
//! ledger and is the answer; the server gets the events, and the state by the next observation. After a crash in
//! between, its outcome goes to the server, which has nothing to do with it. Absent: specs of processes that are not
//! registered here.

use std::time::Duration;

use proctor_model::{EventKind, OperationId, OperationKind, Outcome, ProcessKey, TaskId, Usage};
use proctor_supervise::{Process, Request};
use proctor_wire::FromAgent;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::Driver;
use crate::local::{LocalAnswer, LocalCall, LocalProcess, LocalRequest};
use crate::spool::Draft;

/// It must begin within this time.
const EXPIRES_IN: Duration = Duration::from_secs(60);
const EVENTS_MAX: usize = 1000;

/// An operation that somebody on the host waits for.
#[derive(Debug)]
pub(super) struct LocalOperation {
    key: ProcessKey,
    kind: OperationKind,
    uid: u32,
    answer: oneshot::Sender<LocalAnswer>,
}

impl Driver {
    pub(super) async fn local(&mut self, call: LocalCall) {
        let LocalCall { request, uid, answer } = call;
        let told = match request {
            LocalRequest::List => LocalAnswer::Processes { processes: self.list() },
            LocalRequest::Events { limit } => {
                let (events, waiting) = self.events.newest(limit.min(EVENTS_MAX));
                LocalAnswer::Events { events, waiting }
            }
            LocalRequest::About => LocalAnswer::Refused { reason: "the socket answers this".to_owned() },
            LocalRequest::Operate { process, operation } => {
                return self.operate_locally(LocalOperation { key: process, kind: operation, uid, answer }).await;
            }
        };
        let _ = answer.send(told); // who asked may be gone
    }

    fn list(&self) -> Vec<LocalProcess> {
        let shown = |process: &Process| LocalProcess {
            process: process.key().to_string(),
            snapshot: self.snapshot_of(process, Usage::default()),
        };
        let mut all: Vec<LocalProcess> = self.processes.all().map(shown).collect();
        all.sort_by(|one, other| one.process.cmp(&other.process));
        all
    }

    async fn operate_locally(&mut self, call: LocalOperation) {
        let (key, kind) = (call.key.clone(), call.kind);
        if !self.processes.contains(&key) && self.processes.instances_of(&key).next().is_none() {
            let reason = format!("process {key} is not registered on this host: see `proctor-agent ctl ps`");
            let _ = call.answer.send(LocalAnswer::Refused { reason });
            return;
        }
        let operation = OperationId::first(TaskId::from_uuid(Uuid::now_v7()), 0);
        if kind != OperationKind::Status {
            self.publish_local(&call, operation, None);
        }
        self.local_operations.insert(operation, call);
        if kind == OperationKind::Status {
            return self.inspect(operation, key, None);
        }
        let expires = self.now() + EXPIRES_IN;
        self.admit(key, Request { operation, kind, spec: None, expires }).await;
    }

    /// The outcome goes to who asked: the server, or somebody on this host.
    pub(super) fn answer(&mut self, operation: OperationId, outcome: Outcome) {
        let Some(call) = self.local_operations.remove(&operation) else {
            self.outcomes.insert(operation, outcome.clone());
            return self.send(FromAgent::Outcome { operation, outcome });
        };
        if call.kind != OperationKind::Status {
            self.publish_local(&call, operation, Some(&outcome));
            self.batch.acknowledged.push(operation);
        }
        let _ = call.answer.send(LocalAnswer::Outcome { outcome: Box::new(outcome) });
    }

    fn publish_local(&mut self, call: &LocalOperation, operation: OperationId, outcome: Option<&Outcome>) {
        let LocalOperation { key, kind, uid, .. } = call;
        tracing::info!(process = %key, %operation, %kind, uid, code = ?outcome.map(|it| it.code), "local operation");
        let content = match outcome {
            None => format!("uid {uid} on the host asked for a {kind} of {key}"),
            Some(outcome) => format!("the {kind} of {key} by uid {uid} on the host ended: {}", outcome.message),
        };
        let mut draft = Draft::new(EventKind::LocalOperation, content)
            .detail("operation", kind)
            .detail("uid", uid)
            .detail("operation_id", operation)
            .detail("state", if outcome.is_some() { "ended" } else { "begun" });
        if let Some(outcome) = outcome {
            draft = draft.detail("code", outcome.code.number());
        }
        let process = self.processes.get(key).or_else(|| self.processes.instances_of(key).next());
        if let Some(spec) = process.map(|process| process.spec().clone()) {
            draft = draft.of(key, &spec);
        }
        self.publish_event(draft);
    }
}
