//! The control plane behind every dialect: registrations, pools, tasks and who is connected.
//!
//! Order is always: commit to the store, then remember, then wake the session. What memory holds
//! is rebuilt from the store at start. A task's targets end here and nowhere else: by an outcome
//! from the agent, or by the sweeper when the agent is not there or time is over.
//! Absent: HTTP, numbers of dialects, sockets.

mod dispatch;
mod events;
mod record;
mod sessions;
mod submit;
mod types;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{
    AgentId, BootId, Code, HostFacts, HostKey, Namespace, OperationId, Outcome, Pool, ProcessKey, Snapshot, Spec,
    TaskId,
};
use proctor_runtime::{Tasks, clock};
use proctor_store::{
    App, Assignments, HostRecord, Observation, PoolRecord, ProcessQuery, ProcessRecord, RegisterMode, Registered,
    Registration, Store, StoreError, TaskView,
};
use tokio::sync::{mpsc, oneshot};

pub use dispatch::Delivery;
pub use events::{NewWebhook, WEBHOOKS_MAX};
pub use sessions::Session;
pub use types::{Caller, ControlError, HostRef, Origin, SpecSource, Submission, SubmittedItem, SubmittedTarget};

use dispatch::Dispatch;
use record::Arrived;
use sessions::Sessions;

type Result<T> = std::result::Result<T, ControlError>;

/// Outcomes on their way to the store; beyond this many, sessions wait.
const OUTCOMES_QUEUED_MAX: usize = 10_000;
/// Finished tasks are readable for this long.
const TASKS_KEPT: Duration = Duration::from_secs(72 * 3600);
const PRUNE_PERIOD: Duration = Duration::from_secs(3600);
/// Two beats: a host that crashed and came back is quieter than this.
const CLONE_HEARD: Duration = Duration::from_secs(10);
const SWEEP_PERIOD: Duration = Duration::from_millis(200);

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
    outcomes: mpsc::Sender<Arrived>,
    bells: events::Bells,
    tasks: Tasks,
}

impl Control {
    /// Reads what is open from the store and starts the recorder, the sweeper and the pruner.
    pub async fn start(store: Arc<dyn Store>, tasks: &Tasks) -> Result<Self> {
        let now = clock::unix_millis();
        let expected: HashSet<AgentId> = store.reset_presence(now).await?.into_iter().collect();
        let open = store.open_targets().await?;
        tracing::info!(expected = expected.len(), open = open.len(), "the control plane starts");
        let (sender, receiver) = mpsc::channel(OUTCOMES_QUEUED_MAX);
        let control = Self {
            inner: Arc::new(Inner {
                store,
                sessions: Sessions::default(),
                dispatch: Mutex::new(Dispatch::new(now, Instant::now(), expected, open)),
                outcomes: sender,
                tasks: tasks.clone(),
                bells: events::Bells::new(tasks.shutdown()),
            }),
        };
        tasks.spawn("outcome recorder", control.clone().record_outcomes(receiver));
        tasks.spawn("sweeper", control.clone().sweep());
        tasks.spawn("pruner", control.clone().prune());
        Ok(control)
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub async fn app(&self, code: &str) -> Result<Option<App>> {
        Ok(self.inner.store.app(code).await?)
    }

    pub async fn hosts(&self) -> Result<Vec<HostRecord>> {
        Ok(self.inner.store.hosts().await?)
    }

    /// The session of another machine that uses the same identity and was heard a moment ago: a
    /// copy of the agent's state directory.
    pub fn clone_of(&self, agent: &AgentId, boot: &BootId) -> Option<Arc<Session>> {
        let present = self.inner.sessions.get(agent)?;
        (present.boot() != boot && present.heard_within(CLONE_HEARD)).then_some(present)
    }

    pub fn is_connected(&self, agent: &AgentId) -> bool {
        self.inner.sessions.get(agent).is_some()
    }

    /// The hosts that callers name, in order; None for one that has never enrolled.
    pub async fn resolve(&self, hosts: &[HostRef]) -> Result<Vec<Option<HostRecord>>> {
        let keys: Vec<HostKey> = hosts.iter().filter_map(HostRef::key).collect();
        let agents: Vec<AgentId> = hosts.iter().filter_map(HostRef::agent).collect();
        let mut by_key = self.inner.store.hosts_by_key(&keys).await?.into_iter();
        let mut by_agent = self.inner.store.hosts_by_agent(&agents).await?.into_iter();
        Ok(hosts
            .iter()
            .map(|host| match host {
                HostRef::Key(_) => by_key.next().flatten(),
                HostRef::Agent(_) => by_agent.next().flatten(),
            })
            .collect())
    }

    /// One outcome for each host, in order.
    pub async fn register(
        &self,
        key: &ProcessKey,
        spec: &Arc<Spec>,
        hosts: &[HostRef],
        mode: RegisterMode,
    ) -> Result<Vec<Outcome>> {
        let records = self.resolve(hosts).await?;
        let registrations: Vec<Registration> = records
            .iter()
            .flatten()
            .map(|host| Registration { agent: host.agent.clone(), key: key.clone(), spec: spec.clone() })
            .collect();
        let answers = self
            .to_end("register", |control| async move {
                let answers = control.inner.store.register(&registrations, mode, clock::unix_millis()).await?;
                control.wake(registrations.iter().map(|registration| &registration.agent));
                Ok(answers)
            })
            .await?;
        let mut answers = answers.into_iter();
        Ok(self.per_known_host(hosts, &records, |_| match answers.next() {
            Some(Registered::Stored { .. }) => Outcome::success(false),
            Some(Registered::Exists) => {
                Outcome::new(Code::AlreadyRegistered, "Fail to register, for the process info already exists.", false)
            }
            Some(Registered::NoHost) | None => Outcome::new(Code::AgentAbsent, "the host is no longer enrolled", false),
        }))
    }

    /// One outcome for each host, in order. A managed process is released and lives on.
    pub async fn unregister(&self, key: &ProcessKey, hosts: &[HostRef]) -> Result<Vec<Outcome>> {
        let records = self.resolve(hosts).await?;
        let processes: Vec<(AgentId, ProcessKey)> =
            records.iter().flatten().map(|host| (host.agent.clone(), key.clone())).collect();
        let answers = self
            .to_end("unregister", |control| async move {
                let answers = control.inner.store.unregister(&processes, clock::unix_millis()).await?;
                control.wake(processes.iter().map(|(agent, _)| agent));
                Ok(answers)
            })
            .await?;
        let mut answers = answers.into_iter();
        Ok(self.per_known_host(hosts, &records, |host| {
            if answers.next() == Some(true) {
                Outcome::success(false)
            } else {
                Outcome::new(Code::NotRunning, format!("process {key} is not registered on host {}", host.key), false)
            }
        }))
    }

    /// One outcome for each host, in order.
    pub async fn set_pools(&self, hosts: &[HostRef], pools: &[Pool]) -> Result<Vec<Outcome>> {
        let records = self.resolve(hosts).await?;
        let agents: Vec<AgentId> = records.iter().flatten().map(|host| host.agent.clone()).collect();
        let pools = pools.to_vec();
        let answers = self
            .to_end("set pools", |control| async move {
                let answers = control.inner.store.set_pools(&agents, &pools, clock::unix_millis()).await?;
                control.wake(agents.iter());
                Ok(answers)
            })
            .await?;
        let mut answers = answers.into_iter();
        Ok(self.per_known_host(hosts, &records, |_| {
            if answers.next() == Some(true) {
                Outcome::success(false)
            } else {
                Outcome::new(Code::AgentAbsent, "the host is no longer enrolled", false)
            }
        }))
    }

    pub async fn pools(&self, namespace: Option<&Namespace>, hosts: Option<&[HostRef]>) -> Result<Vec<PoolRecord>> {
        let agents = match hosts {
            Some(hosts) => Some(self.agents_of(hosts).await?),
            None => None,
        };
        Ok(self.inner.store.pools(namespace, agents.as_deref()).await?)
    }

    /// Registered processes with their last observation, and their number before paging.
    pub async fn processes(
        &self,
        mut query: ProcessQuery,
        hosts: Option<&[HostRef]>,
    ) -> Result<(u64, Vec<ProcessRecord>)> {
        if let Some(hosts) = hosts {
            query.agents = Some(self.agents_of(hosts).await?);
        }
        Ok(self.inner.store.processes(&query).await?)
    }

    pub async fn task(&self, id: TaskId) -> Result<Option<TaskView>> {
        Ok(self.inner.store.task(id).await?)
    }

    // What sessions call.

    /// Opens a session, fences an older one and returns it with its epoch; None for an agent that
    /// is bound to no host.
    pub async fn open_session(
        &self,
        agent: &AgentId,
        boot: BootId,
        facts: &HostFacts,
        seen_generation: u64,
    ) -> Result<Option<Arc<Session>>> {
        let Some(epoch) = self.inner.store.open_session(agent, facts, clock::unix_millis()).await? else {
            return Ok(None);
        };
        let session = Arc::new(Session::new(agent.clone(), epoch, boot, seen_generation));
        self.inner.sessions.insert(session.clone());
        let was_away = self.inner.dispatch.lock().connected(agent, epoch);
        if was_away {
            self.tell_online(agent, facts).await;
        }
        Ok(Some(session))
    }

    pub async fn close_session(&self, session: &Session) -> Result<()> {
        if self.inner.sessions.remove(session) {
            self.inner.dispatch.lock().disconnected(session.agent(), session.epoch());
            self.tell_offline(session.agent()).await;
        }
        Ok(self.inner.store.close_session(session.agent(), session.epoch(), clock::unix_millis()).await?)
    }

    /// Operations for the agent that its session has not sent yet, at most `max`.
    pub fn take_deliveries(&self, session: &Session, max: usize) -> Vec<Delivery> {
        self.inner.dispatch.lock().take_deliveries(session.agent(), session.epoch(), Instant::now(), max)
    }

    /// What the agent does not know yet.
    pub async fn assignments(&self, session: &Session) -> Result<Assignments> {
        Ok(self.inner.store.assignments(session.agent(), session.sent_generation()).await?)
    }

    /// An agent's outcome; acknowledged to it once it is in the store. Waits when the store is slow.
    pub async fn arrived(&self, session: &Session, operation: OperationId, outcome: Outcome) -> Result<()> {
        let Some(key) = self.inner.dispatch.lock().process_of(session.agent(), &operation) else {
            session.acknowledge([operation]); // final already: the agent may forget it
            return Ok(());
        };
        let arrived = Arrived { operation, outcome, agent: session.agent().clone(), epoch: session.epoch(), key };
        self.inner.outcomes.send(arrived).await.map_err(|_| ControlError::ShuttingDown)
    }

    pub async fn observed(&self, session: &Session, observations: Vec<(ProcessKey, Snapshot)>) -> Result<()> {
        let observations: Vec<Observation> =
            observations.into_iter().map(|(key, snapshot)| Observation { key, snapshot }).collect();
        Ok(self.inner.store.observe(session.agent(), session.epoch(), &observations).await?)
    }

    // Helpers.

    /// Runs `work` to its end even if the caller goes away: what is in the store must also be known
    /// to the sessions.
    async fn to_end<T, F, Fut>(&self, name: &'static str, work: F) -> Result<T>
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

    async fn agents_of(&self, hosts: &[HostRef]) -> Result<Vec<AgentId>> {
        Ok(self.resolve(hosts).await?.into_iter().flatten().map(|host| host.agent).collect())
    }

    /// Tells the sessions of these agents that there is something new for them.
    fn wake<'a>(&self, agents: impl Iterator<Item = &'a AgentId>) {
        for agent in agents {
            if let Some(session) = self.inner.sessions.get(agent) {
                session.reassign();
            }
        }
    }

    /// `known` for the hosts that exist, 117 for the others.
    fn per_known_host(
        &self,
        hosts: &[HostRef],
        records: &[Option<HostRecord>],
        mut known: impl FnMut(&HostRecord) -> Outcome,
    ) -> Vec<Outcome> {
        let rows = hosts.iter().zip(records);
        rows.map(|(host, record)| record.as_ref().map_or_else(|| never_enrolled(host), &mut known)).collect()
    }
}

fn never_enrolled(host: &HostRef) -> Outcome {
    Outcome::new(Code::AgentAbsent, format!("host {host} has never enrolled an agent"), false)
}

fn is_full(error: &StoreError) -> bool {
    matches!(error, StoreError::Full { .. })
}
