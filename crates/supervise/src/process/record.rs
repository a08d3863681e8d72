//! The durable part of a process.

use std::sync::Arc;
use std::time::Duration;

use proctor_model::{Incarnation, Leftovers, ProcessName, ProcessSession, Spec};
use serde::{Deserialize, Serialize};

use super::CommandKind;
use crate::Time;

/// A run at least this long proves that the process can live.
const STABLE_RUN_MIN: Duration = Duration::from_secs(60);
/// Unregistered processes of one name that are known.
const ELDERS_MAX: usize = 16;

/// Durable: everything that decides what happens after the agent exits. Rebuilt by probing: whether the life is
/// still there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub spec: Arc<Spec>,
    /// Known to the control plane, as opposed to created for one operation.
    pub registered: bool,
    /// Unix seconds.
    pub registered_at: i64,
    pub managed: bool,
    /// Given up after the last retry.
    pub failed: bool,
    pub life: Option<Incarnation>,
    /// When the start command of the present life began, in ticks since boot; None: nobody here started it.
    #[serde(default)]
    pub since: Option<u64>,
    /// Sessions of the present life and of the start command that brought it, the oldest first.
    #[serde(default)]
    pub sessions: Vec<ProcessSession>,
    /// What the last life may have left behind: ended before the next one is started.
    #[serde(default)]
    pub remains: Option<Box<Leftovers>>,
    /// The process of this name before it was unregistered and registered again.
    #[serde(default)]
    pub elder: Option<Box<Elder>>,
    /// Replaces this one when nothing is in progress for it, and no operation on it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Box<Registration>>,
    /// The life that an operator's stop or kill was carried out on. Its end is wanted, however late it comes and
    /// whatever the operation's outcome was: nothing is started after it, and its leftovers are ended.
    #[serde(default)]
    pub unwanted: Option<Incarnation>,
    /// Starts by supervision since the last operation or stable run.
    pub attempts: u32,
    pub last_launch: Option<Time>,
    /// A start in progress: written before its command runs.
    pub launch: Option<Launch>,
    /// The running command: written before its first instruction.
    #[serde(default)]
    pub running: Option<RunningCommand>,
    /// Which of several instances of a process this is.
    #[serde(default)]
    pub instance: Option<Instance>,
    /// Ends for resources since the last stable run.
    #[serde(default)]
    pub evictions: u32,
    /// No start by supervision before this.
    #[serde(default)]
    pub not_before: Option<Time>,
    /// The planned time of the last run by schedule, in Unix seconds.
    #[serde(default)]
    pub planned_at: Option<i64>,
    /// The same in time since boot, for a cycle.
    #[serde(default)]
    pub planned: Option<Time>,
}

/// A record without specs, for when space is scarce.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RecordState<'a> {
    registered: bool,
    registered_at: i64,
    managed: bool,
    failed: bool,
    life: &'a Option<Incarnation>,
    since: Option<u64>,
    sessions: &'a [ProcessSession],
    remains: &'a Option<Box<Leftovers>>,
    elder: &'a Option<Box<Elder>>,
    unwanted: &'a Option<Incarnation>,
    attempts: u32,
    last_launch: Option<Time>,
    launch: &'a Option<Launch>,
    running: &'a Option<RunningCommand>,
    instance: &'a Option<Instance>,
    evictions: u32,
    not_before: Option<Time>,
    planned_at: Option<i64>,
    planned: Option<Time>,
}

/// A process that was unregistered. While it lives nobody touches what belongs to it; its leftovers are ended
/// before the next one of its name is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elder {
    /// None: it had ended before it was forgotten.
    pub life: Option<Incarnation>,
    /// As in [`Leftovers`].
    pub since: u64,
    pub launched: bool,
    #[serde(default)]
    pub sessions: Vec<ProcessSession>,
    /// When it was forgotten: all its commands had begun. Older ledgers do not say.
    #[serde(default)]
    pub until: Option<Time>,
    /// Those of its name before it, the latest first; they have none themselves.
    #[serde(default)]
    pub before: Vec<Self>,
}

impl Elder {
    /// None: there are none. If there are too many, the latest are kept.
    pub fn of(latest_first: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut all = latest_first.into_iter().map(|elder| Self { before: Vec::new(), ..elder }).take(ELDERS_MAX);
        let latest = all.next()?;
        Some(Self { before: all.collect(), ..latest })
    }

    /// It and those before it, the latest first.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.before)
    }

    /// Whether one of them is or was this life.
    pub fn had(&self, life: &Incarnation) -> bool {
        self.all().any(|elder| elder.life.as_ref() == Some(life))
    }
}

/// A registration of this name that arrived while something was in progress for the previous one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    pub spec: Arc<Spec>,
    pub managed: bool,
    pub registered_at: i64,
}

impl Registration {
    pub(super) fn is_other_process(&self, than: &Spec) -> bool {
        self.spec.identity.is_other_process(&than.identity)
    }
}

/// One of several processes of one spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub of: ProcessName,
    /// From 1.
    pub number: u32,
}

/// A start in progress. After a crash of the agent the process may still be about to appear: nothing else is
/// started before `until`, unless the command is known never to have run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    pub until: Time,
    /// The life that it replaces.
    pub old: Option<Incarnation>,
    /// Whether its command has run. Older ledgers do not say: it may have.
    #[serde(default = "yes")]
    pub begun: bool,
    /// When its command began, in ticks since boot.
    #[serde(default)]
    pub since: Option<u64>,
}

fn yes() -> bool {
    true
}

/// A command in progress. An agent that comes back waits for its exit, as the previous one would have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningCommand {
    pub command: Incarnation,
    pub kind: CommandKind,
    /// When its time is over.
    pub until: Time,
    /// Whether it is a run by schedule.
    pub scheduled: bool,
}

impl Record {
    pub(super) fn new(spec: Arc<Spec>) -> Self {
        Self {
            spec,
            registered: false,
            registered_at: 0,
            managed: false,
            failed: false,
            life: None,
            since: None,
            sessions: Vec::new(),
            remains: None,
            elder: None,
            next: None,
            unwanted: None,
            attempts: 0,
            last_launch: None,
            launch: None,
            running: None,
            instance: None,
            evictions: 0,
            not_before: None,
            planned_at: None,
            planned: None,
        }
    }

    /// Named as in the record itself, so that a record can take it over.
    pub fn state(&self) -> RecordState<'_> {
        let Self {
            spec: _,
            registered,
            registered_at,
            managed,
            failed,
            life,
            since,
            sessions,
            remains,
            elder,
            next: _,
            unwanted,
            attempts,
            last_launch,
            launch,
            running,
            instance,
            evictions,
            not_before,
            planned_at,
            planned,
        } = self;
        RecordState {
            registered: *registered,
            registered_at: *registered_at,
            managed: *managed,
            failed: *failed,
            life,
            since: *since,
            sessions,
            remains,
            elder,
            unwanted,
            attempts: *attempts,
            last_launch: *last_launch,
            launch,
            running,
            instance,
            evictions: *evictions,
            not_before: *not_before,
            planned_at: *planned_at,
            planned: *planned,
        }
    }

    /// After a reboot no earlier process lives, and earlier times mean nothing. A life that an operator's stop or
    /// kill was carried out on is not restarted, whoever has ended it.
    pub fn forget_boot(&mut self) {
        if self.life.is_some() && self.life == self.unwanted {
            self.managed = false;
        }
        self.life = None;
        self.since = None;
        self.sessions = Vec::new();
        self.remains = None;
        self.elder = None;
        self.unwanted = None;
        self.launch = None;
        self.running = None;
        self.last_launch = None;
        self.attempts = 0;
        self.evictions = 0;
        self.not_before = None;
        self.planned = None;
    }

    pub(super) fn stable_run(&self) -> Duration {
        STABLE_RUN_MIN.max(self.spec.policy.start_interval.duration() * 2)
    }
}
