//! The currently connected agents.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use proctor_model::{AgentId, AgentState, BootId, OperationId};
use proctor_store::SessionOpening;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::authorities::ToldAuthorities;
use super::questions::Questions;
use super::round_trips::Pings;
use super::usage::NewestUsage;

/// What was noticed when the agent connected, or since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// By how much its clock was ahead of ours; None if it did not report its time.
    pub clock_ahead_ms: Option<i64>,
    /// When its certificate ends, in Unix seconds.
    pub certificate_expires_at: Option<i64>,
}

/// How an agent opens a session.
#[derive(Clone, Debug)]
pub struct Greeting {
    pub opening: SessionOpening,
    pub boot: BootId,
    /// Differs between two runs of an agent that says its epoch.
    pub run: Vec<u8>,
    pub seen_generation: u64,
    /// Whether it keeps what processes use.
    pub answers_usage: bool,
    /// Whether it reads logs and answers pings.
    pub answers_logs: bool,
    /// Whether it can become another version.
    pub takes_upgrades: bool,
    /// Hashes of what it has; None from older agents.
    pub state: Option<AgentState>,
}

impl Greeting {
    pub fn new(opening: SessionOpening, boot: BootId) -> Self {
        Self {
            opening,
            boot,
            run: Vec::new(),
            seen_generation: 0,
            answers_usage: false,
            answers_logs: false,
            takes_upgrades: false,
            state: None,
        }
    }
}

/// One attachment of an agent. Its connection pulls: whoever has something for the agent leaves it here or in the
/// dispatch table and wakes it, so nothing queues up behind a slow socket.
#[derive(Debug)]
pub struct Session {
    agent: AgentId,
    epoch: u64,
    boot: BootId,
    run: Vec<u8>,
    key_fingerprint: String,
    /// The cloud area of the relay that it came through.
    relay_cloud: Option<u32>,
    /// Nothing is asked of the agent before.
    settled: AtomicBool,
    /// Why it was ended from here; nothing where a newer session took over.
    dismissal: Mutex<Option<String>>,
    connection_info: Mutex<ConnectionInfo>,
    /// When the agent itself was last known to be there: not a carrier that may repeat, hold back or invent what it
    /// says.
    proved: Mutex<Instant>,
    /// 0 before it is welcomed.
    beat_ms: AtomicU64,
    /// A heartbeat is overdue.
    is_suspect: AtomicBool,
    wake: Notify,
    /// It was woken for more than a heartbeat to answer.
    work: AtomicBool,
    fenced: CancellationToken,
    acknowledged: Mutex<Vec<OperationId>>,
    reassign: AtomicBool,
    /// Operations of the agent were cancelled since it was last told of such.
    cancels: AtomicBool,
    /// Everything that is registered has to be sent again, and what is not.
    resync: AtomicBool,
    /// The store has every process as the agent's greeting says.
    state_known: AtomicBool,
    sent_generation: AtomicU64,
    /// What the agent had on disk when it connected.
    seen_generation: u64,
    /// The last stored event that was not acknowledged to the agent yet; 0 is none.
    events_seen: AtomicU64,
    usage: NewestUsage,
    answers_usage: bool,
    answers_logs: bool,
    takes_upgrades: bool,
    arch: String,
    version: String,
    /// There may be an upgrade that the agent was not told about on this session.
    upgrade_order: AtomicBool,
    /// Of reports that wait to be written.
    pub(super) observations_waiting: AtomicUsize,
    /// What the agent was told of the authorities on this session.
    pub(super) told_authorities: Mutex<ToldAuthorities>,
    pub(super) questions: Mutex<Questions>,
    /// None before somebody has looked.
    pub(super) pings: Mutex<Option<Box<Pings>>>,
}

impl Session {
    pub(super) fn new(greeting: Greeting, epoch: u64) -> Self {
        let Greeting { opening, boot, run, seen_generation, answers_usage, answers_logs, takes_upgrades, state: _ } =
            greeting;
        Self {
            agent: opening.agent,
            epoch,
            boot,
            run,
            key_fingerprint: opening.key_fingerprint,
            relay_cloud: opening.relay_cloud,
            settled: AtomicBool::new(opening.seen_epoch.is_none()),
            dismissal: Mutex::default(),
            connection_info: Mutex::default(),
            proved: Mutex::new(Instant::now()),
            beat_ms: AtomicU64::new(0),
            is_suspect: AtomicBool::new(false),
            wake: Notify::new(),
            work: AtomicBool::new(true),
            fenced: CancellationToken::new(),
            acknowledged: Mutex::default(),
            reassign: AtomicBool::new(true),
            cancels: AtomicBool::new(true),
            resync: AtomicBool::new(false),
            state_known: AtomicBool::new(false),
            sent_generation: AtomicU64::new(seen_generation),
            seen_generation,
            events_seen: AtomicU64::new(0),
            usage: NewestUsage::default(),
            answers_usage,
            answers_logs,
            takes_upgrades,
            arch: opening.facts.arch,
            version: opening.facts.agent_version,
            upgrade_order: AtomicBool::new(true),
            observations_waiting: AtomicUsize::new(0),
            told_authorities: Mutex::default(),
            questions: Mutex::default(),
            pings: Mutex::default(),
        }
    }

    /// It ends with this token, too: one future for both, which is polled with every heartbeat.
    pub(super) fn ending_with(mut self, shutdown: &CancellationToken) -> Self {
        self.fenced = shutdown.child_token();
        self
    }

    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the greeting is by this very run of the agent, as far as older agents tell.
    pub(super) fn is_same_run(&self, greeting: &Greeting) -> bool {
        self.boot == greeting.boot && (greeting.opening.seen_epoch.is_none() || self.run == greeting.run)
    }

    /// Of the certificate that opened it.
    pub fn key_fingerprint(&self) -> &str {
        &self.key_fingerprint
    }

    /// The cloud area of the relay that it came through; None where the agent is connected directly.
    pub fn relay_cloud(&self) -> Option<u32> {
        self.relay_cloud
    }

    /// The agent's state directory has recorded the session: from now on it gets work.
    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Release);
        self.wake();
    }

    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Ends it, and tells the agent why.
    pub(super) fn dismiss(&self, reason: &str) {
        self.dismissal.lock().get_or_insert_with(|| reason.to_owned());
        self.fenced.cancel();
    }

    pub(super) fn fence(&self) {
        self.fenced.cancel();
    }

    pub fn dismissal(&self) -> Option<String> {
        self.dismissal.lock().clone()
    }

    pub fn set_connection_info(&self, connection_info: ConnectionInfo) {
        *self.connection_info.lock() = connection_info;
    }

    pub(super) fn set_clock_ahead(&self, ahead_ms: i64) {
        self.connection_info.lock().clock_ahead_ms = Some(ahead_ms);
    }

    /// The agent was given a new certificate.
    pub fn renewed(&self, certificate_expires_at: i64) {
        self.connection_info.lock().certificate_expires_at = Some(certificate_expires_at);
    }

    pub(super) fn connection_info(&self) -> ConnectionInfo {
        *self.connection_info.lock()
    }

    /// Something has come on its connection. Through a relay that proves nothing about this moment: the relay invents
    /// heartbeats, and chooses when a signed report arrives. There only the opening counts here, which is signed for a nonce
    /// (see `gateway::proof` for how long the session lasts).
    pub fn hear(&self) {
        self.is_suspect.store(false, Ordering::Relaxed);
        if self.relay_cloud.is_none() {
            *self.proved.lock() = Instant::now();
        }
    }

    /// A heartbeat is overdue: the agent may be gone.
    pub fn suspect(&self) {
        self.is_suspect.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    pub(super) fn proved_at(&self) -> Instant {
        *self.proved.lock()
    }

    /// The agent's heartbeat interval.
    pub fn beat(&self) -> Duration {
        Duration::from_millis(self.beat_ms.load(Ordering::Relaxed))
    }

    pub fn set_beat(&self, beat: Duration) {
        self.beat_ms.store(u64::try_from(beat.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns when there may be something to send.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Returns when a newer session of the same agent has taken over, this one was dismissed, or the server ends.
    pub async fn fenced(&self) {
        self.fenced.cancelled().await;
    }

    pub fn wake(&self) {
        self.work.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether it was woken since the last time; true at first.
    pub fn take_work(&self) -> bool {
        self.work.swap(false, Ordering::AcqRel)
    }

    /// The agent gets these with whatever is sent next.
    pub(super) fn owe(&self, acknowledged: impl IntoIterator<Item = OperationId>) {
        self.acknowledged.lock().extend(acknowledged);
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
        self.mark_reassign();
        self.wake();
    }

    /// As [`Self::reassign`], if somebody wakes it anyway.
    pub(super) fn mark_reassign(&self) {
        self.usage.forget_all();
        self.reassign.store(true, Ordering::Release);
    }

    /// There are operations that the agent must be told to cancel.
    pub(super) fn cancel_some(&self) {
        self.cancels.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether there may be such operations; true at first.
    pub(super) fn take_cancels_due(&self) -> bool {
        self.cancels.swap(false, Ordering::AcqRel)
    }

    pub(super) fn usage(&self) -> &NewestUsage {
        &self.usage
    }

    pub(super) fn answers_usage(&self) -> bool {
        self.answers_usage
    }

    pub(super) fn answers_logs(&self) -> bool {
        self.answers_logs
    }

    /// An agent that reads logs does.
    pub fn answers_pings(&self) -> bool {
        self.answers_logs
    }

    pub(super) fn takes_upgrades(&self) -> bool {
        self.takes_upgrades
    }

    /// For which machine the agent is, and its version.
    pub(super) fn program(&self) -> (&str, &str) {
        (&self.arch, &self.version)
    }

    pub(super) fn order_upgrade(&self) {
        self.upgrade_order.store(true, Ordering::Release);
        self.wake();
    }

    /// True at first.
    pub(super) fn take_upgrade_order(&self) -> bool {
        self.upgrade_order.swap(false, Ordering::AcqRel)
    }

    /// Whether registrations have changed since they were last read for the agent.
    pub fn is_reassign_due(&self) -> bool {
        self.reassign.load(Ordering::Acquire)
    }

    /// Whether assignments must be read and sent; true at first.
    pub fn take_reassign(&self) -> bool {
        self.reassign.swap(false, Ordering::AcqRel)
    }

    /// Assignments must be read and sent, though nobody has changed anything since the session is there.
    pub(super) fn want_assignments(&self) {
        self.reassign.store(true, Ordering::Release);
    }

    /// The agent has other registrations than its generation says.
    pub(super) fn resync(&self) {
        self.resync.store(true, Ordering::Release);
        self.want_assignments();
    }

    /// True once: everything must be told, and what is no longer registered.
    pub fn take_resync(&self) -> bool {
        self.resync.swap(false, Ordering::AcqRel)
    }

    pub(super) fn knows_state(&self) {
        self.state_known.store(true, Ordering::Release);
    }

    /// Whether the agent has nothing to report.
    pub fn is_state_known(&self) -> bool {
        self.state_known.load(Ordering::Acquire)
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
    pub(super) fn count(&self) -> usize {
        self.by_agent.read().len()
    }

    pub(super) fn first_expiry(&self) -> Option<i64> {
        let sessions = self.by_agent.read();
        sessions.values().filter_map(|session| session.connection_info().certificate_expires_at).min()
    }

    pub(super) fn suspect_count(&self) -> usize {
        self.by_agent.read().values().filter(|session| session.is_suspect()).count()
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.by_agent.read().values().cloned().collect()
    }

    pub(super) fn get(&self, agent: &AgentId) -> Option<Arc<Session>> {
        self.by_agent.read().get(agent).cloned()
    }

    /// Those of them that are connected.
    pub(super) fn get_all(&self, agents: &[AgentId]) -> Vec<Arc<Session>> {
        let sessions = self.by_agent.read();
        agents.iter().filter_map(|agent| sessions.get(agent).cloned()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_agent.read().len()
    }

    /// What the connected agents had on disk when they connected.
    pub(super) fn seen_generations(&self) -> Vec<(AgentId, u64)> {
        self.by_agent.read().values().map(|session| (session.agent.clone(), session.seen_generation)).collect()
    }

    /// The newest epoch stays; the other is fenced. False if that is this one.
    pub(super) fn insert(&self, session: Arc<Session>) -> bool {
        let mut sessions = self.by_agent.write();
        if sessions.get(&session.agent).is_some_and(|other| other.epoch > session.epoch) {
            session.fenced.cancel();
            return false;
        }
        if let Some(older) = sessions.insert(session.agent.clone(), session) {
            older.fenced.cancel();
        }
        true
    }

    /// False if a newer session has replaced it.
    pub(super) fn remove(&self, session: &Session) -> bool {
        let mut sessions = self.by_agent.write();
        let is_current = sessions.get(&session.agent).is_some_and(|current| current.epoch == session.epoch);
        if is_current {
            sessions.remove(&session.agent);
        }
        is_current
    }
}
