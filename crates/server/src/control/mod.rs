//! The control plane behind every dialect: registrations, pools, tasks and connected agents.
//!
//! The order is always: commit to the store, then update memory, then wake the session. Memory is rebuilt from the
//! store at startup. A task's targets end here and nowhere else: by an outcome from the agent, or by the sweeper when
//! the agent is absent or the time is over.
//! Absent: HTTP, numbers of dialects, sockets.
//! Start at `submit` (a call becomes a task), `dispatch` (delivery) and `outcomes` (results).

mod access;
mod acknowledgements;
mod assignments;
mod audit;
mod audit_budget;
mod authorities;
mod budget;
mod change_plans;
mod clocks;
mod clones;
mod cordons;
mod dispatch;
mod event_budget;
mod events;
mod fleet;
mod identity;
mod job;
mod long_reads;
mod maintenance;
mod open_room;
mod outcomes;
mod presence;
mod processes;
mod questions;
mod records;
mod relays;
mod reports;
mod resync;
mod retention;
mod rollout;
mod round_trips;
mod rush;
mod sessions;
mod submit;
mod target_spec;
mod tasks;
mod traces;
mod types;
mod upgrades;
mod usage;
mod waits;
mod wakes;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{
    AgentId, Class, Code, HostKey, Message, Namespace, OperationId, Outcome, ProcessKey, Snapshot, TaskId, messages,
};
use proctor_runtime::{TaskFailed, Tasks, chain, clock};
use proctor_store::{
    App, HostLocation, HostQuery, HostRecord, Millis, Observation, SessionOpening, SessionRefusal, Store, StoreError,
};
use proctor_traces::Traces;
use tokio::sync::{mpsc, oneshot};

pub use access::{LiveCaller, Missing};
pub use audit::AuditAction;
pub(crate) use audit::audited_on;
pub(crate) use authorities::Believed;
pub use authorities::{Behind, FollowCount, RotationStatus, RotationStep, WhyBehind};
pub use budget::{PLANNED_MAX, STATUS_BYTES_MAX, STRANGER_BYTES_MAX};
pub use change_plans::{PlannedHost, PlannedUnregistration};
pub(crate) use clocks::Measured;
pub use dispatch::Delivery;
pub use events::{NewWebhook, WEBHOOKS_MAX};
pub use fleet::{SeenFleet, is_inside};
pub use identity::{REJOIN_TTL_MAX, rejoin_until};
pub use maintenance::{CORDON_SECS_MAX, cordon_reason, cordon_until};
pub use processes::POOLS_MAX;
pub use questions::{Asked, HostAnswer, HostsBusy, Question, Reply};
pub use relays::RelayState;
pub(crate) use relays::{ConnectedRelay, RelayConnection};
pub use retention::{LEFTOVERS_KEPT_MIN, Retention, STATUS_TASKS_KEPT_MIN, TASKS_KEPT_MIN};
pub use round_trips::RoundTrip;
pub use sessions::{ConnectionInfo, Greeting, Session};
pub use submit::Planned;
pub use types::{
    Before, Caller, ControlError, GivenSpec, HostRef, IdempotencyKey, JobScope, Omitted, Origin, PresentedCredentials,
    Rolling, Share, SpecSource, Submission, SubmitOptions, Submitted, SubmittedItem, SubmittedTarget,
};
pub use upgrades::UpgradeWish;

use crate::metrics::Metrics;
use crate::webhooks::TrialLimits;
use acknowledgements::Acknowledgements;
use cordons::Cordons;
use dispatch::Dispatch;
use outcomes::ReceivedOutcome;
use presence::Presence;
use sessions::Sessions;

type Result<T> = std::result::Result<T, ControlError>;

/// Outcomes on their way to the store; beyond this many, sessions wait.
const OUTCOMES_QUEUED_MAX: usize = 10_000;
const SWEEP_PERIOD: Duration = Duration::from_millis(200);

/// How much is in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queues {
    pub(crate) open_targets: u64,
    pub(crate) outcomes: u64,
    pub(crate) sessions: u64,
    /// Relays that are connected; those that should be; hosts that cannot be reached without them.
    pub(crate) relays: u64,
    pub(crate) relays_away: u64,
    pub(crate) hosts_unreachable: u64,
    /// Hosts that may be gone, and connected ones whose clock is off.
    pub(crate) hosts_suspect: u64,
    pub(crate) clocks_off: u64,
    /// Hosts in maintenance, and those of them that are not connected.
    pub(crate) hosts_cordoned: u64,
    pub(crate) hosts_cordoned_away: u64,
}

#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    pub retention: Retention,
    /// How long those that were connected before the start have to come back; None: as long as their number needs.
    pub return_grace: Option<Duration>,
    pub traces: Traces,
}

/// A cheap handle; clones share one control plane.
#[derive(Clone, Debug)]
pub struct Control {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    sessions: Sessions,
    dispatch: Mutex<Dispatch>,
    outcomes: mpsc::Sender<ReceivedOutcome>,
    acknowledgements: Acknowledgements,
    assignments: mpsc::Sender<assignments::Wanted>,
    reports: reports::Reports,
    rush: rush::Rush,
    wakes: wakes::Wakes,
    rollouts: rollout::Rollouts,
    upgrades: upgrades::Upgrades,
    budgets: budget::Budgets,
    event_budgets: event_budget::EventBudgets,
    long_reads: long_reads::LongReads,
    fleet: fleet::FleetCache,
    host_queries: questions::HostQueries,
    notifiers: events::ChangeNotifiers,
    webhook_trials: TrialLimits,
    /// 0 before the link is served.
    link_expires_at: AtomicI64,
    signing_expires_at: AtomicI64,
    link_port: OnceLock<u16>,
    presence: Presence,
    clones: clones::Clones,
    clocks: clocks::Clocks,
    cordons: Cordons,
    retention: Mutex<Retention>,
    relays: relays::Relays,
    authorities: authorities::AuthorityBoard,
    tasks: Tasks,
    metrics: Metrics,
    traces: Traces,
    /// No more calls should come.
    is_leaving: AtomicBool,
}

impl Control {
    /// As [`Self::start_with`], with the defaults.
    pub async fn start(store: Arc<dyn Store>, tasks: &Tasks) -> Result<Self> {
        Self::start_with(store, tasks, StartOptions::default()).await
    }

    /// Reads what is open from the store and starts the recorder, the sweeper, the rollouts and retention.
    pub async fn start_with(store: Arc<dyn Store>, tasks: &Tasks, options: StartOptions) -> Result<Self> {
        let now = clock::unix_millis();
        let hosts = store.hosts(&HostQuery::default()).await?;
        let presence = Presence::of_earlier_life(&hosts, Instant::now(), options.return_grace);
        let cordons = Cordons::of_hosts(&hosts);
        let relays = relays::Relays::of_earlier_life(store.relays().await?);
        let authorities = authorities::AuthorityBoard::of_earlier_life(store.trusts().await?);
        let (sender, receiver) = mpsc::channel(OUTCOMES_QUEUED_MAX);
        let (assignments, wanted) = mpsc::channel(assignments::QUEUED_MAX);
        let control = Self {
            inner: Arc::new(Inner {
                store,
                sessions: Sessions::default(),
                dispatch: Mutex::new(Dispatch::new(presence.agents(), presence.grace_ends())),
                outcomes: sender,
                acknowledgements: Acknowledgements::default(),
                assignments,
                reports: reports::Reports::default(),
                rush: rush::Rush::default(),
                wakes: wakes::Wakes::default(),
                rollouts: rollout::Rollouts::default(),
                upgrades: upgrades::Upgrades::default(),
                budgets: budget::Budgets::default(),
                event_budgets: event_budget::EventBudgets::default(),
                long_reads: long_reads::LongReads::default(),
                fleet: fleet::FleetCache::default(),
                webhook_trials: TrialLimits::default(),
                host_queries: questions::HostQueries::default(),
                tasks: tasks.clone(),
                link_expires_at: AtomicI64::new(0),
                signing_expires_at: AtomicI64::new(0),
                link_port: OnceLock::new(),
                presence,
                clones: clones::Clones::default(),
                clocks: clocks::Clocks::default(),
                cordons,
                retention: Mutex::new(options.retention),
                relays,
                authorities,
                metrics: Metrics::default(),
                traces: options.traces,
                notifiers: events::ChangeNotifiers::new(tasks.shutdown().child_token()),
                is_leaving: AtomicBool::new(false),
            }),
        };
        control.take_up(now, &hosts).await?;
        tasks.spawn_critical("outcome recorder", control.clone().record_outcomes(receiver));
        tasks.spawn_critical("assignment reader", control.clone().read_assignments(wanted));
        tasks.spawn_critical("report writer", control.clone().write_reports());
        tasks.spawn_critical("session waker", control.clone().wake_sessions());
        tasks.spawn_critical("sweeper", control.clone().sweep());
        tasks.spawn_critical("retention", control.clone().retain());
        tasks.spawn_critical("rollouts", control.clone().run_rollouts());
        tasks.spawn_critical("waits", control.clone().watch_waits());
        tasks.spawn_critical("upgrades", control.clone().run_upgrades());
        Ok(control)
    }

    /// What an earlier run of the server left open.
    async fn take_up(&self, now: Millis, hosts: &[HostRecord]) -> Result<()> {
        let mut open = self.inner.store.open_targets().await?;
        let tasks: BTreeSet<TaskId> = open.iter().map(|target| target.operation.task).collect();
        tracing::info!(open = open.len(), tasks = tasks.len(), "control plane starting");
        self.resume_upgrade().await?;
        let mut ended = self.resume_rollouts(&mut open).await?;
        let away = hosts.iter().filter(|host| !host.online);
        let away: HashMap<&AgentId, Millis> = away.map(|host| (&host.agent, host.presence_changed_at)).collect();
        let is_away_since = |agent: &AgentId, at: Millis| away.get(agent).is_some_and(|since| *since <= at);
        self.inner.dispatch.lock().take_up(open, now, Instant::now(), is_away_since);
        for task in tasks {
            if self.inner.store.task_summary(task).await?.is_some_and(|task| task.cancelled_at.is_some()) {
                ended.extend(self.mark_cancelled(task));
            }
        }
        // Recording waits for space; the start must not.
        let control = self.clone();
        self.inner.tasks.spawn("ended before the start", async move { control.record_all(&ended).await });
        Ok(())
    }

    /// From now on `/readyz` says that no more calls should come.
    pub(crate) fn stop_being_ready(&self) {
        self.inner.is_leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.inner.is_leaving.load(Ordering::Relaxed)
    }

    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// How much is in progress.
    pub(crate) fn queues(&self) -> Queues {
        let outcomes = &self.inner.outcomes;
        let cordoned = self.inner.cordons.agents(clock::unix_millis());
        Queues {
            open_targets: self.inner.dispatch.lock().open_count() as u64,
            outcomes: (outcomes.max_capacity() - outcomes.capacity()) as u64,
            sessions: self.inner.sessions.count() as u64,
            relays: self.inner.relays.count() as u64,
            relays_away: self.inner.relays.away() as u64,
            hosts_unreachable: self.unreachable_count(&cordoned) as u64,
            hosts_suspect: self.suspect_count() as u64,
            clocks_off: self.clocks_off() as u64,
            hosts_cordoned: cordoned.len() as u64,
            hosts_cordoned_away: cordoned.iter().filter(|agent| !self.is_connected(agent)).count() as u64,
        }
    }

    /// How long things are kept from now on.
    pub(crate) fn set_retention(&self, retention: Retention) {
        *self.inner.retention.lock() = retention;
    }

    /// Agents that are connected.
    pub fn session_count(&self) -> usize {
        self.inner.sessions.count()
    }

    /// When the first certificate of a connected agent ends, in Unix seconds.
    pub(crate) fn first_agent_expiry(&self) -> Option<i64> {
        self.inner.sessions.first_expiry()
    }

    pub async fn app(&self, code: &str) -> Result<Option<App>> {
        Ok(self.inner.store.app(code).await?)
    }

    /// None for a host that is unknown, or that the caller may not read: the two look alike.
    pub async fn host(&self, caller: &Caller, host: &HostRef) -> Result<Option<HostRecord>> {
        Ok(self.hosts_named(caller, std::slice::from_ref(host)).await?.pop())
    }

    /// Those that exist and that the caller may read, in the same order.
    pub async fn hosts_named(&self, caller: &Caller, hosts: &[HostRef]) -> Result<Vec<HostRecord>> {
        caller.require_anywhere(Class::Read)?;
        let found = self.resolve(hosts).await?;
        let gone = self.offline_not_stored();
        let seen = |host: HostRecord| HostRecord { online: host.online && !gone.contains(&host.agent), ..host };
        let readable = found.into_iter().flatten().filter(|host| caller.is_allowed(Class::Read, host, None));
        Ok(readable.map(seen).collect())
    }

    /// What was noticed when the agent connected; nothing of one that is not connected.
    pub fn connection_info(&self, agent: &AgentId) -> ConnectionInfo {
        self.inner.sessions.get(agent).map(|session| session.connection_info()).unwrap_or_default()
    }

    /// The link is served with a certificate that ends then, in Unix seconds.
    pub fn serves_link_until(&self, expires_at: i64) {
        self.inner.link_expires_at.store(expires_at, Ordering::Relaxed);
    }

    /// Commands are signed by a key whose certificate ends then, in Unix seconds.
    pub fn signs_until(&self, expires_at: i64) {
        self.inner.signing_expires_at.store(expires_at, Ordering::Relaxed);
    }

    pub fn signing_expires_at(&self) -> Option<i64> {
        Some(self.inner.signing_expires_at.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Agents connect to this port.
    pub fn serves_link_at(&self, port: u16) {
        let _ = self.inner.link_port.set(port);
    }

    pub fn link_port(&self) -> Option<u16> {
        self.inner.link_port.get().copied()
    }

    pub fn link_expires_at(&self) -> Option<i64> {
        Some(self.inner.link_expires_at.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// The critical task that has failed, if any: the program is about to end.
    pub(crate) fn failure(&self) -> Option<&TaskFailed> {
        self.inner.tasks.failure()
    }

    pub fn is_connected(&self, agent: &AgentId) -> bool {
        self.inner.sessions.get(agent).is_some()
    }

    /// As [`Self::resolve`], for a call that answers about the hosts as a whole. A host that the caller may not read
    /// looks like one that has never enrolled; a caller who may read nothing at all is refused.
    pub async fn readable_hosts(
        &self,
        caller: &Caller,
        hosts: &[HostRef],
        namespace: Option<&Namespace>,
    ) -> Result<Vec<Option<HostRecord>>> {
        caller.must_read_some(hosts)?;
        let records = self.resolve(hosts).await?.into_iter();
        Ok(records.map(|host| host.filter(|host| caller.is_allowed(Class::Read, &host.site, namespace))).collect())
    }

    /// As [`Self::readable_hosts`], only where they are.
    pub async fn readable_sites(
        &self,
        caller: &Caller,
        hosts: &[HostRef],
        namespace: Option<&Namespace>,
    ) -> Result<Vec<Option<HostLocation>>> {
        caller.must_read_some(hosts)?;
        self.visible_sites(caller, hosts, namespace).await
    }

    /// As [`Self::readable_sites`], even for a caller who may read nothing: then no host is known.
    pub async fn visible_sites(
        &self,
        caller: &Caller,
        hosts: &[HostRef],
        namespace: Option<&Namespace>,
    ) -> Result<Vec<Option<HostLocation>>> {
        let sites = self.sites(hosts).await?.into_iter();
        Ok(sites.map(|site| site.filter(|site| caller.is_allowed(Class::Read, site, namespace))).collect())
    }

    /// The hosts that callers name, in order; None for one that has never enrolled.
    pub async fn resolve(&self, hosts: &[HostRef]) -> Result<Vec<Option<HostRecord>>> {
        let (keys, agents) = parted(hosts);
        let by_key = self.inner.store.hosts_by_key(&keys).await?;
        let by_agent = self.inner.store.hosts_by_agent(&agents).await?;
        Ok(in_order(hosts, by_key, by_agent))
    }

    /// As [`Self::resolve`], only where they are: much less to read, for thousands of hosts.
    pub async fn sites(&self, hosts: &[HostRef]) -> Result<Vec<Option<HostLocation>>> {
        let (keys, agents) = parted(hosts);
        let by_key = self.inner.store.sites_by_key(&keys).await?;
        let by_agent = self.inner.store.sites_by_agent(&agents).await?;
        Ok(in_order(hosts, by_key, by_agent))
    }

    // What sessions call.

    /// Opens a session and fences an older one. Refused are keys that do not serve the agent's host and
    /// old copies of its state. Where the caller goes away meanwhile, the session is closed again.
    pub async fn open_session(&self, greeting: Greeting) -> Result<std::result::Result<Arc<Session>, SessionRefusal>> {
        self.open_session_with(greeting, ()).await
    }

    /// As [`Self::open_session`]. The permit is kept until the store has answered, not only for as long as the caller
    /// waits for it.
    pub async fn open_session_with<P: Send + 'static>(
        &self,
        greeting: Greeting,
        permit: P,
    ) -> Result<std::result::Result<Arc<Session>, SessionRefusal>> {
        let opened = self.run_to_completion("session opening", |control| async move {
            let was_returning = control.inner.presence.awaits(&greeting.opening.agent, Instant::now());
            let opened = control.open(greeting).await;
            drop(permit);
            Ok(opened?.map(|session| Opened { control, session: Some(session), was_returning }))
        });
        Ok(opened.await?.map(Opened::take))
    }

    async fn open(&self, greeting: Greeting) -> Result<std::result::Result<Arc<Session>, SessionRefusal>> {
        let SessionOpening { agent, facts, relay_cloud, .. } = greeting.opening.clone();
        let state = greeting.state;
        let epoch = match self.inner.store.open_session(&greeting.opening, clock::unix_millis()).await? {
            Ok(epoch) => epoch,
            Err(refusal) => {
                self.inner.metrics.session("refused");
                return Ok(Err(refusal));
            }
        };
        self.inner.metrics.session("opened");
        let session = Arc::new(Session::new(greeting, epoch).ending_with(&self.inner.tasks.shutdown()));
        if !self.inner.sessions.insert(session.clone()) {
            return Ok(Ok(session)); // a newer one is there: it says who the agent is, and when it is gone
        }
        self.inner.presence.came_through(&agent, relay_cloud);
        let was_away = self.inner.dispatch.lock().connected(&agent, epoch);
        // A key that was revoked or replaced since the epoch was issued found no session to end.
        if self.compare_state(&session, state).await == Some(epoch) {
            self.tell_online(&agent, &facts, was_away).await;
        } else {
            session.fence();
        }
        Ok(Ok(session))
    }

    /// Operations for the agent that its session has not sent yet, at most `max`.
    pub fn take_deliveries(&self, session: &Session, max: usize) -> Vec<Delivery> {
        self.inner.dispatch.lock().take_deliveries(session.agent(), session.epoch(), Instant::now(), max)
    }

    /// Why a target has no outcome yet, where it waits for a host that is offline.
    pub fn waits_for(&self, operation: &OperationId) -> Option<Message> {
        let (agent, left) = self.inner.dispatch.lock().wait_left(operation, Instant::now())?;
        Some(messages::target_waits_for_agent(agent, left.as_secs()))
    }

    /// Cancelled operations that the agent has to be notified of.
    pub fn take_cancels(&self, session: &Session) -> Vec<OperationId> {
        if !session.take_cancels_due() {
            return Vec::new();
        }
        self.inner.dispatch.lock().take_cancels(session.agent(), session.epoch())
    }

    /// An agent's outcome; acknowledged to it once it is in the store. Waits when the store is slow.
    pub async fn arrived(&self, session: &Session, operation: OperationId, outcome: Outcome) -> Result<()> {
        let Some((operation, outcome)) = self.arrived_now(session, operation, outcome) else { return Ok(()) };
        let Some(arrived) = self.received(session, operation, outcome) else { return Ok(()) };
        self.inner.outcomes.send(arrived).await.map_err(|_| ControlError::ShuttingDown)
    }

    /// As [`Self::arrived`]; returns it if it would have to wait.
    pub fn arrived_now(
        &self,
        session: &Session,
        operation: OperationId,
        outcome: Outcome,
    ) -> Option<(OperationId, Outcome)> {
        let Ok(permit) = self.inner.outcomes.try_reserve() else { return Some((operation, outcome)) };
        if let Some(arrived) = self.received(session, operation, outcome) {
            permit.send(arrived);
        }
        None
    }

    /// None if it is final already: then the agent may forget it.
    fn received(&self, session: &Session, operation: OperationId, outcome: Outcome) -> Option<ReceivedOutcome> {
        let Some(key) = self.inner.dispatch.lock().process_of(session.agent(), &operation) else {
            session.owe([operation]);
            session.wake();
            return None;
        };
        Some(ReceivedOutcome { operation, outcome, agent: session.agent().clone(), epoch: session.epoch(), key })
    }

    /// Usage is kept in memory; the store learns of changes.
    pub async fn observed(&self, session: &Session, observations: Vec<(ProcessKey, Snapshot)>) {
        if let Some(to_read) = session.usage().begin_reading() {
            // What is not known is written.
            match self.inner.store.observations(session.agent()).await {
                Ok(stored) => session.usage().read(to_read, stored),
                Err(error) => {
                    tracing::debug!(agent = %session.agent(), error = %chain(&error), "observations not read")
                }
            }
        }
        let observations = observations.into_iter().map(|(key, snapshot)| Observation { key, snapshot }).collect();
        // While a report of the session waits, the store will have something else than it is known to have.
        let is_waiting = session.observations_waiting.load(Ordering::Relaxed) > 0;
        let observations = if is_waiting { observations } else { session.usage().sift(observations).observations };
        if observations.is_empty() {
            return;
        }
        self.leave_report(session, observations).await;
    }

    /// Every session checks whether there is something to send.
    pub fn wake_all(&self) {
        self.inner.wakes.wake(self.inner.sessions.all());
    }

    // Helpers.

    /// Runs `work` to its end even if the caller disconnects: what is in the store must also be known to the
    /// sessions.
    async fn run_to_completion<T, F, Fut>(&self, name: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Self) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let work = work(self.clone());
        self.inner.tasks.spawn_to_end(name, async move {
            let _ = answer.send(work.await);
        });
        answered.await.map_err(|_| ControlError::ShuttingDown)?
    }

    /// Notifies the sessions of these agents that there is something new for them.
    fn wake<'a>(&self, agents: impl Iterator<Item = &'a AgentId>) {
        for agent in agents {
            if let Some(session) = self.inner.sessions.get(agent) {
                session.reassign();
            }
        }
    }
}

/// A session on its way to its connection, which may be gone by now: then it has nobody else to end it.
struct Opened {
    control: Control,
    session: Option<Arc<Session>>,
    was_returning: bool,
}

impl Opened {
    fn take(mut self) -> Arc<Session> {
        self.session.take().expect("it is taken once")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let (control, was_returning) = (self.control.clone(), self.was_returning);
        self.control.inner.tasks.spawn_to_end("session closing", async move {
            match was_returning {
                true => control.take_back_session(&session).await,
                false => control.lose_session(&session, false).await,
            }
        });
    }
}

fn parted(hosts: &[HostRef]) -> (Vec<HostKey>, Vec<AgentId>) {
    (hosts.iter().filter_map(HostRef::key).collect(), hosts.iter().filter_map(HostRef::agent).collect())
}

/// What was found of each part, in the order of the question.
fn in_order<T>(hosts: &[HostRef], by_key: Vec<Option<T>>, by_agent: Vec<Option<T>>) -> Vec<Option<T>> {
    let (mut by_key, mut by_agent) = (by_key.into_iter(), by_agent.into_iter());
    let next = |host: &HostRef| match host {
        HostRef::Key(_) => by_key.next().flatten(),
        HostRef::Agent(_) => by_agent.next().flatten(),
        HostRef::Unusable(_) => None,
    };
    hosts.iter().map(next).collect()
}

/// The row of a host that is not known.
pub(crate) fn never_enrolled(host: &HostRef) -> Outcome {
    let message = match host {
        HostRef::Key(_) | HostRef::Agent(_) => messages::never_enrolled(host),
        HostRef::Unusable(_) => messages::not_a_host(host),
    };
    Outcome::new(Code::AgentAbsent, message, false)
}

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Full { .. })
}
