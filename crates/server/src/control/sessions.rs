//! The agents that are connected now.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use proctor_model::{AgentId, BootId, OperationId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What was noticed when the agent connected, or since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meeting {
    /// By how much its clock went before ours; None where it did not tell its time.
    pub clock_ahead_ms: Option<i64>,
    /// When its certificate ends, in Unix seconds.
    pub certificate_expires_at: Option<i64>,
}

/// One attachment of an agent. Its connection pulls: whoever has something for the agent leaves it
/// here or in the dispatch table and wakes it, so nothing queues up behind a slow socket.
#[derive(Debug)]
pub struct Session {
    agent: AgentId,
    epoch: u64,
    boot: BootId,
    meeting: Mutex<Meeting>,
    heard: Mutex<Instant>,
    wake: Notify,
    fenced: CancellationToken,
    acknowledged: Mutex<Vec<OperationId>>,
    reassign: AtomicBool,
    sent_generation: AtomicU64,
    /// The last stored event that the agent has not been told of; 0 is none.
    events_seen: AtomicU64,
}

impl Session {
    pub(super) fn new(agent: AgentId, epoch: u64, boot: BootId, seen_generation: u64) -> Self {
        Self {
            agent,
            epoch,
            boot,
            meeting: Mutex::default(),
            heard: Mutex::new(Instant::now()),
            wake: Notify::new(),
            fenced: CancellationToken::new(),
            acknowledged: Mutex::default(),
            reassign: AtomicBool::new(true),
            sent_generation: AtomicU64::new(seen_generation),
            events_seen: AtomicU64::new(0),
        }
    }

    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn boot(&self) -> &BootId {
        &self.boot
    }

    pub fn met(&self, meeting: Meeting) {
        *self.meeting.lock() = meeting;
    }

    /// The agent was given a new certificate.
    pub fn renewed(&self, certificate_expires_at: i64) {
        self.meeting.lock().certificate_expires_at = Some(certificate_expires_at);
    }

    pub(super) fn meeting(&self) -> Meeting {
        *self.meeting.lock()
    }

    /// The agent has said something.
    pub fn hear(&self) {
        *self.heard.lock() = Instant::now();
    }

    pub(super) fn heard_within(&self, duration: Duration) -> bool {
        self.heard.lock().elapsed() < duration
    }

    /// Returns when there may be something to send.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Returns when a newer session of the same agent has taken over.
    pub async fn fenced(&self) {
        self.fenced.cancelled().await;
    }

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) fn acknowledge(&self, operations: impl IntoIterator<Item = OperationId>) {
        self.acknowledged.lock().extend(operations);
        self.wake();
    }

    pub fn take_acknowledged(&self) -> Vec<OperationId> {
        std::mem::take(&mut self.acknowledged.lock())
    }

    /// Every event of the agent up to this sequence is stored.
    pub(super) fn saw_events(&self, up_to: u64) {
        self.events_seen.fetch_max(up_to, Ordering::AcqRel);
        self.wake();
    }

    pub fn take_events_seen(&self) -> Option<u64> {
        Some(self.events_seen.swap(0, Ordering::AcqRel)).filter(|up_to| *up_to > 0)
    }

    /// The agent's registrations or pools changed.
    pub(super) fn reassign(&self) {
        self.reassign.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether assignments must be read and sent; true at first.
    pub fn take_reassign(&self) -> bool {
        self.reassign.swap(false, Ordering::AcqRel)
    }

    pub fn sent_generation(&self) -> u64 {
        self.sent_generation.load(Ordering::Acquire)
    }

    pub fn set_sent_generation(&self, generation: u64) {
        self.sent_generation.fetch_max(generation, Ordering::AcqRel);
    }
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_agent: RwLock<HashMap<AgentId, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn get(&self, agent: &AgentId) -> Option<Arc<Session>> {
        self.by_agent.read().get(agent).cloned()
    }

    /// The newest epoch stays; the other is fenced.
    pub(super) fn insert(&self, session: Arc<Session>) {
        let mut sessions = self.by_agent.write();
        match sessions.get(&session.agent) {
            Some(other) if other.epoch > session.epoch => session.fenced.cancel(),
            _ => {
                if let Some(older) = sessions.insert(session.agent.clone(), session) {
                    older.fenced.cancel();
                }
            }
        }
    }

    /// False if a newer session has taken its place.
    pub(super) fn remove(&self, session: &Session) -> bool {
        let mut sessions = self.by_agent.write();
        let is_current = sessions.get(&session.agent).is_some_and(|current| current.epoch == session.epoch);
        if is_current {
            sessions.remove(&session.agent);
        }
        is_current
    }
}
