//! Requests of the host's owner on the control socket.
//!
//! Promised: an operation goes through the same steps as one from the server: policy, pid files, machine, ledger. An
//! event is published when it is accepted and when it has finished, with the user who asked. Its outcome stays in the
//! ledger and is the reply; the server gets the events, and the state with the next observation, but never the
//! outcome. After a crash in between, the final event lacks the user, who is no longer known.
//! Absent: specs of processes that are not registered here.

use std::collections::HashMap;
use std::time::Duration;

use proctor_model::{EventKind, OperationId, OperationKind, Outcome, ProcessKey, TaskId, Usage, messages};
use proctor_supervise::{Instance, Process, Request};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::Driver;
use crate::ledger::LedgerState;
use crate::local::{LocalAnswer, LocalCall, LocalProcess, LocalRequest};
use crate::spool::Draft;

/// It must begin within this time.
const EXPIRES_IN: Duration = Duration::from_secs(60);
const EVENTS_MAX: usize = 1000;
/// Random ids.
const LOCAL_ID_VERSION: usize = 4;

/// An operation that somebody on the host waits for.
#[derive(Debug)]
pub(super) struct LocalOperation {
    key: ProcessKey,
    kind: OperationKind,
    /// None: an agent before this one knew.
    uid: Option<u32>,
    answer: oneshot::Sender<LocalAnswer>,
}

/// Whether an operation is of this host: tasks of a server have ids with a time in them.
pub(super) fn is_local(operation: OperationId) -> bool {
    operation.task.as_uuid().get_version_num() == LOCAL_ID_VERSION
}

impl Driver {
    pub(super) fn local(&mut self, call: LocalCall) {
        let LocalCall { request, uid, answer } = call;
        let told = match request {
            LocalRequest::List => LocalAnswer::Processes { processes: self.list() },
            LocalRequest::Events { limit } => {
                let (events, waiting) = self.outbox.events.newest(limit.min(EVENTS_MAX));
                LocalAnswer::Events { events, waiting }
            }
            LocalRequest::Metrics { processes } => LocalAnswer::Metrics { text: self.metrics_text(processes) },
            LocalRequest::About => LocalAnswer::Refused { reason: "the socket answers this".to_owned() },
            LocalRequest::Operate { process, operation } => {
                return self.operate_locally(LocalOperation { key: process, kind: operation, uid: Some(uid), answer });
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

    fn operate_locally(&mut self, call: LocalOperation) {
        let (key, kind) = (call.key.clone(), call.kind);
        if !self.processes.contains(&key) && self.processes.instances_of(&key).next().is_none() {
            let reason = format!("process {key} is not registered on this host: see `proctor-agent ctl ps`");
            let _ = call.answer.send(LocalAnswer::Refused { reason });
            return;
        }
        if kind == OperationKind::Status
            && let Some(reason) = self.refusal(&key, kind, None)
        {
            let _ = call.answer.send(LocalAnswer::Refused { reason: reason.into_text() });
            return;
        }
        let operation = OperationId::first(TaskId::from_uuid(Uuid::new_v4()), 0);
        if kind != OperationKind::Status {
            self.publish_local(&call, operation, None);
        }
        self.operations.local.insert(operation, call);
        if kind == OperationKind::Status {
            return self.inspect(operation, key, None);
        }
        let expires = self.now() + EXPIRES_IN;
        self.admit(key, Request { operation, kind, spec: None, expires });
    }

    /// The outcome goes to the requester: the server, or somebody on this host.
    pub(super) fn answer(&mut self, operation: OperationId, outcome: Outcome) {
        self.telemetry.metrics.outcome(outcome.code);
        self.telemetry.spans.ended(operation, &outcome);
        let Some(call) = self.operations.local.remove(&operation) else {
            return self.outbox.put(operation, outcome);
        };
        if call.kind != OperationKind::Status {
            self.publish_local(&call, operation, Some(&outcome));
            self.ledger.batch.acknowledged.push(operation);
            self.keep_released(&call);
        }
        let _ = call.answer.send(LocalAnswer::Outcome { outcome: Box::new(outcome) });
    }

    /// A process stopped here is meant to stay stopped, whatever happens to the ledger.
    fn keep_released(&mut self, call: &LocalOperation) {
        if !matches!(call.kind, OperationKind::Stop | OperationKind::Kill | OperationKind::Release) {
            return;
        }
        let of = self.processes.get(&call.key).into_iter().chain(self.processes.instances_of(&call.key));
        let released = of.filter_map(|process| Some((process.key().clone(), process.released_registration()?)));
        let released: Vec<_> = released.collect();
        self.ledger.released().add(released);
    }

    /// Whether a process that is new to this agent is managed because the server says so.
    pub(super) fn is_managed_on_assign(&mut self, key: &ProcessKey, managed: bool, registered_at: i64) -> bool {
        let released = self.ledger.released();
        if !managed {
            released.remove(key); // the server knows
        }
        let is_released = released.holds(key, registered_at);
        if is_released && managed {
            tracing::warn!(process = %key, "released: it was stopped on this host before the ledger was lost");
        }
        managed && !is_released
    }

    /// Local operations whose end was not reported continue: their parts are gathered again.
    pub(super) fn resume_local(&mut self, memory: &mut LedgerState) {
        let ended = memory.outcomes.extract_if(.., |(operation, _)| is_local(*operation));
        let ended: Vec<(OperationId, Outcome)> = ended.collect();
        let instances: HashMap<&ProcessKey, &Instance> =
            memory.processes.iter().filter_map(|(key, record)| Some((key, record.instance.as_ref()?))).collect();
        for (operation, key, kind) in memory.unfinished.iter().filter(|(operation, ..)| is_local(*operation)) {
            let instance = instances.get(key).filter(|_| operation.part > 0);
            let of = instance.map(|instance| ProcessKey::new(key.namespace.clone(), instance.of.clone()));
            let call = || LocalOperation {
                key: of.unwrap_or_else(|| key.clone()),
                kind: *kind,
                uid: None,
                answer: oneshot::channel().0,
            };
            self.operations.local.entry(operation.whole()).or_insert_with(call);
            self.operations.resume_part(*operation, None);
        }
        for (operation, outcome) in ended {
            if self.operations.local.contains_key(&operation.whole()) {
                self.operations.resume_part(operation, Some(outcome));
            } else {
                self.ledger.batch.acknowledged.push(operation.whole());
            }
        }
    }

    fn publish_local(&mut self, call: &LocalOperation, operation: OperationId, outcome: Option<&Outcome>) {
        let LocalOperation { key, kind, uid, .. } = call;
        tracing::info!(process = %key, %operation, %kind, uid, code = ?outcome.map(|it| it.code), "local operation");
        let who = uid.map_or_else(messages::somebody, messages::user_id);
        let content = match outcome {
            None => messages::local_operation_asked(who, kind.message(), key),
            Some(outcome) => messages::local_operation_ended(kind.message(), key, who, outcome.message.clone()),
        };
        let mut draft = Draft::new(EventKind::LocalOperation, content)
            .detail("operation", kind)
            .detail("operation_id", operation)
            .detail("state", if outcome.is_some() { "ended" } else { "begun" });
        if let Some(uid) = uid {
            draft = draft.detail("uid", uid);
        }
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
