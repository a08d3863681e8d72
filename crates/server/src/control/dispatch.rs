//! Targets that have no outcome yet, by agent. Rebuilt from the store at start.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{AgentId, Code, OperationId, OperationKind, Outcome, ProcessKey, Spec};
use proctor_store::{Millis, OpenTarget};

/// How long a target waits for an agent that is not connected; a client is told within 3 s.
const ABSENCE_GRACE_MS: Millis = 2_000;
/// After the server's own start, agents that were connected before get this long to come back.
const RETURN_GRACE_MS: Millis = 10_000;
/// What is left for the answer to travel when an operation begins as late as it may.
const TRAVEL: Duration = Duration::from_secs(5);

/// An operation to be sent to its agent.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub operation: OperationId,
    pub key: ProcessKey,
    pub kind: OperationKind,
    pub spec: Option<Arc<Spec>>,
    /// It must not begin later than this after it arrives.
    pub expires_in: Duration,
}

#[derive(Debug)]
struct Pending {
    target: OpenTarget,
    /// On the present session.
    sent: bool,
    /// On any session: the agent may be at it.
    ever_sent: bool,
}

#[derive(Debug)]
pub(super) struct Dispatch {
    by_agent: HashMap<AgentId, BTreeMap<OperationId, Pending>>,
    connected: HashSet<AgentId>,
    /// Agents that were connected when the server went down.
    expected: HashSet<AgentId>,
    started_at: Millis,
}

impl Dispatch {
    pub(super) fn new(now: Millis, expected: HashSet<AgentId>, open: Vec<OpenTarget>) -> Self {
        let mut dispatch = Self { by_agent: HashMap::new(), connected: HashSet::new(), expected, started_at: now };
        // What was open before may have been delivered by the server's earlier life.
        dispatch.add(open, true);
        dispatch
    }

    pub(super) fn add(&mut self, targets: Vec<OpenTarget>, ever_sent: bool) {
        for target in targets {
            if let Some(agent) = target.agent.clone() {
                let pending = Pending { target, sent: false, ever_sent };
                self.by_agent.entry(agent).or_default().insert(pending.target.operation, pending);
            }
        }
    }

    pub(super) fn connected(&mut self, agent: &AgentId) {
        self.connected.insert(agent.clone());
        self.expected.remove(agent);
        self.unsend(agent);
    }

    pub(super) fn disconnected(&mut self, agent: &AgentId, now: Millis) {
        self.connected.remove(agent);
        self.unsend(agent);
        tracing::debug!(%agent, now, "agent disconnected");
    }

    /// The next session sends everything again; the agent's ledger tells what it knows.
    fn unsend(&mut self, agent: &AgentId) {
        for pending in self.by_agent.get_mut(agent).into_iter().flat_map(BTreeMap::values_mut) {
            pending.sent = false;
        }
    }

    pub(super) fn is_open(&self, agent: &AgentId, operation: &OperationId) -> bool {
        self.by_agent.get(agent).is_some_and(|pending| pending.contains_key(operation))
    }

    pub(super) fn take_deliveries(&mut self, agent: &AgentId, now: Millis, max: usize) -> Vec<Delivery> {
        let pending = self.by_agent.get_mut(agent).into_iter().flat_map(BTreeMap::values_mut);
        pending
            .filter(|pending| !pending.sent)
            .take(max)
            .map(|pending| {
                pending.sent = true;
                pending.ever_sent = true;
                let target = &pending.target;
                Delivery {
                    operation: target.operation,
                    key: target.key.clone(),
                    kind: target.kind,
                    spec: target.spec.clone(),
                    expires_in: time_left(target, now).saturating_sub(TRAVEL),
                }
            })
            .collect()
    }

    /// Removes what is final now and returns the agents concerned.
    pub(super) fn close(&mut self, operations: &HashSet<OperationId>) -> Vec<(AgentId, Vec<OperationId>)> {
        let mut closed = Vec::new();
        self.by_agent.retain(|agent, pending| {
            let mut of_agent = Vec::new();
            pending.retain(|operation, _| {
                let is_final = operations.contains(operation);
                if is_final {
                    of_agent.push(*operation);
                }
                !is_final
            });
            if !of_agent.is_empty() {
                closed.push((agent.clone(), of_agent));
            }
            !pending.is_empty()
        });
        closed
    }

    /// Targets that end without an answer from their agent.
    pub(super) fn overdue(&self, now: Millis) -> Vec<(OperationId, Outcome)> {
        let mut overdue = Vec::new();
        for (agent, pending) in &self.by_agent {
            let is_connected = self.connected.contains(agent);
            let may_return = self.expected.contains(agent) && now < self.started_at + RETURN_GRACE_MS;
            for pending in pending.values() {
                if let Some(outcome) = verdict(pending, agent, now, is_connected, may_return) {
                    overdue.push((pending.target.operation, outcome));
                }
            }
        }
        overdue
    }
}

fn time_left(target: &OpenTarget, now: Millis) -> Duration {
    let age = u64::try_from(now - target.created_at).unwrap_or(0);
    Duration::from_millis(target.time_limit_ms.saturating_sub(age))
}

fn verdict(pending: &Pending, agent: &AgentId, now: Millis, is_connected: bool, may_return: bool) -> Option<Outcome> {
    let is_late = time_left(&pending.target, now).is_zero();
    let waited = now - pending.target.created_at >= ABSENCE_GRACE_MS;
    if is_connected && is_late {
        let secs = pending.target.time_limit_ms / 1000;
        let message = format!("agent {agent} gave no outcome within {secs} s; the operation may still be under way");
        return Some(Outcome::new(Code::CommandFailed, message, false));
    }
    if is_connected || may_return {
        return None;
    }
    if !pending.ever_sent && waited {
        return Some(Outcome::new(Code::AgentAbsent, format!("agent {agent} is not connected"), false));
    }
    is_late.then(|| {
        let message = format!("agent {agent} was lost during the operation; its end is not known");
        Outcome::new(Code::AgentAbsent, message, false)
    })
}
