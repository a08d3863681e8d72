//! Upgrades of agents: rings of hosts that get the order, one ring after the other, by [`machine::UpgradeMachine`].
//!
//! Promised: the state of a host is in the store before the order is sent or forgotten here, so that a server that
//! dies at any point resumes where it was: a host that has the order gets it again, periodically and on every
//! session, which changes nothing for it. One upgrade runs at a time. One that is paused, cancelled or has failed
//! sends no further orders. One that was cancelled or has failed stops handing out the build as well, so that only
//! hosts that have begun their trial continue; their results are kept. Whoever is responsible for an upgrade must
//! keep the permission for it (`permissions`).
//! Absent: the choice of hosts, which was fixed when the upgrade began, and the programs (`builds`).
//! Start at `machine`.

mod machine;
mod permissions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{AgentId, Message, UpgradeStep, messages};
use proctor_runtime::clock;
use proctor_store::{
    Upgrade, UpgradeBuild, UpgradeCount, UpgradeHost, UpgradeHostChange, UpgradeHostQuery, UpgradeHostState,
    UpgradeState, UpgradeTransition,
};
use proctor_wire::{BUILD_PART_BYTES_MAX, UpgradeOrder};
use tokio::sync::Notify;
use uuid::Uuid;

use super::{Caller, Control, Result, Session};
use crate::builds::{Build, Builds};
use machine::{Seen, Step, UpgradeMachine};

const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// After a write that failed.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
const SHOWN_MAX: u32 = 100;
/// What an agent says whose policy file forbids upgrades.
const BY_OWNER: &str = "upgrade_by_policy";

/// The upgrade in progress.
#[derive(Debug, Default)]
pub(super) struct Upgrades {
    current: Mutex<Option<UpgradeMachine>>,
    /// Held from the choice of a step until it is written and applied.
    turn: tokio::sync::Mutex<()>,
    wake: Notify,
    builds: Arc<Builds>,
    /// Of the upgrade that is under way, whatever becomes of their files.
    kept: Mutex<Vec<Arc<Build>>>,
}

impl Upgrades {
    fn keep_builds(&self) {
        let current = self.current.lock();
        let wanted = current.iter().flat_map(|machine| &machine.upgrade.plan.builds);
        *self.kept.lock() = wanted.filter_map(|build| self.builds.known(&build.sha256)).collect();
    }
}

/// What is requested of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeWish {
    Pause,
    Resume,
    Cancel,
}

/// How far an upgrade is.
#[derive(Clone, Debug)]
pub struct UpgradeProgress {
    pub upgrade: Upgrade,
    pub hosts: Vec<(u32, UpgradeHost)>,
    pub counts: Vec<UpgradeCount>,
}

impl Control {
    /// The directory that holds programs for agents.
    pub async fn hold_builds_in(&self, dir: std::path::PathBuf) {
        self.inner.upgrades.builds.hold_in(dir);
        if self.inner.upgrades.current.lock().is_some() {
            // Known by their digests before the first host asks.
            self.inner.upgrades.builds.list().await;
            self.inner.upgrades.keep_builds();
        }
    }

    /// Whether the agent can be upgraded over the link; unknown while it is not connected.
    pub fn takes_upgrades(&self, agent: &AgentId) -> Option<bool> {
        self.inner.sessions.get(agent).map(|session| session.takes_upgrades())
    }

    pub async fn builds(&self) -> Vec<Arc<Build>> {
        self.inner.upgrades.builds.list().await
    }

    pub async fn upgrades(&self) -> Result<Vec<Upgrade>> {
        Ok(self.inner.store.upgrades(SHOWN_MAX).await?)
    }

    pub async fn upgrade(&self, id: Uuid) -> Result<Option<(Upgrade, Vec<UpgradeHost>)>> {
        let Some(upgrade) = self.inner.store.upgrade(id).await? else { return Ok(None) };
        Ok(Some((upgrade, self.inner.store.upgrade_hosts(id).await?)))
    }

    /// An upgrade with some of its hosts, each with its place in the order, and how many of each ring are in which state.
    pub async fn upgrade_progress(&self, id: Uuid, query: UpgradeHostQuery) -> Result<Option<UpgradeProgress>> {
        let store = &self.inner.store;
        let Some(upgrade) = store.upgrade(id).await? else { return Ok(None) };
        let hosts = store.upgrade_host_page(id, query).await?;
        Ok(Some(UpgradeProgress { upgrade, hosts, counts: store.upgrade_counts(id).await? }))
    }

    /// Begins it; refused with the id of one that is not over.
    pub async fn begin_upgrade(
        &self,
        upgrade: Upgrade,
        hosts: Vec<UpgradeHost>,
    ) -> Result<std::result::Result<(), Uuid>> {
        let _turn = self.inner.upgrades.turn.lock().await;
        if let Err(other) = self.inner.store.begin_upgrade(upgrade.clone(), hosts.clone()).await? {
            return Ok(Err(other));
        }
        *self.inner.upgrades.current.lock() =
            Some(UpgradeMachine::new(upgrade, hosts, Instant::now(), clock::unix_millis()));
        self.inner.upgrades.keep_builds();
        self.inner.upgrades.wake.notify_one();
        Ok(Ok(()))
    }

    /// False if its state does not allow that. Whoever resumes it is responsible for it from then on.
    pub async fn steer_upgrade(&self, id: Uuid, wish: UpgradeWish, by: &Caller) -> Result<bool> {
        use UpgradeState::{Cancelled, Paused, Running};
        let name = by.name();
        let (from, to, reason) = match wish {
            UpgradeWish::Pause => (vec![Running], Paused, messages::upgrade_paused_by(name)),
            UpgradeWish::Resume => (vec![Paused], Running, Message::default()),
            UpgradeWish::Cancel => (vec![Running, Paused], Cancelled, messages::upgrade_cancelled_by(name)),
        };
        let makers = (wish == UpgradeWish::Resume).then(|| by.subjects.clone());
        let _turn = self.inner.upgrades.turn.lock().await;
        self.set_upgrade_state(id, UpgradeTransition { from, to, reason, makers }).await
    }

    /// In the turn.
    async fn set_upgrade_state(&self, id: Uuid, transition: UpgradeTransition) -> Result<bool> {
        if !self.inner.store.set_upgrade_state(id, transition.clone(), clock::unix_millis()).await? {
            return Ok(false);
        }
        let UpgradeTransition { to, reason, makers, .. } = transition;
        tracing::info!(upgrade = %id, state = to.as_str(), %reason, "agent upgrade changed state");
        let mut current = self.inner.upgrades.current.lock();
        if let Some(machine) = current.as_mut().filter(|machine| machine.upgrade.id == id) {
            machine.upgrade.state = to;
            machine.upgrade.reason = reason;
            if let Some(makers) = makers {
                machine.upgrade.makers = makers;
            }
            if to == UpgradeState::Running {
                machine.resumed();
            }
        }
        drop(current);
        self.inner.upgrades.wake.notify_one();
        Ok(true)
    }

    /// What an earlier run of the server left.
    pub(super) async fn resume_upgrade(&self) -> Result<()> {
        let Some(newest) = self.inner.store.upgrades(1).await?.pop() else { return Ok(()) };
        let hosts = self.inner.store.upgrade_hosts(newest.id).await?;
        let machine = UpgradeMachine::new(newest, hosts, Instant::now(), clock::unix_millis());
        if !machine.is_over() {
            *self.inner.upgrades.current.lock() = Some(machine);
        }
        Ok(())
    }

    pub(super) async fn run_upgrades(self) {
        let mut access = self.access_changes();
        loop {
            let wait = match self.step_upgrade().await {
                Ok(()) => LOOK_PERIOD,
                Err(error) => {
                    tracing::warn!(%error, "cannot store agent upgrade, retrying");
                    RETRY_PERIOD
                }
            };
            let is_idle = self.inner.upgrades.current.lock().is_none();
            tokio::select! {
                () = self.inner.upgrades.wake.notified() => {}
                Ok(()) = access.changed(), if !is_idle => {}
                () = tokio::time::sleep(wait), if !is_idle => {}
            }
        }
    }

    async fn step_upgrade(&self) -> Result<()> {
        let upgrades = &self.inner.upgrades;
        let _turn = upgrades.turn.lock().await;
        let (upgrade, mut step) = {
            let mut current = upgrades.current.lock();
            let Some(machine) = current.as_mut() else { return Ok(()) };
            if machine.is_over() {
                *current = None;
                upgrades.kept.lock().clear();
                return Ok(());
            }
            let step = machine.step(Instant::now(), |agent| self.seen_for_upgrade(agent));
            (machine.upgrade.clone(), step)
        };
        if let Some(reason) = self.hindrance(&upgrade, &step).await? {
            step.changes.retain(|change| !begins(change));
            step.end.get_or_insert((UpgradeState::Paused, reason));
        }
        for session in step.again.iter().filter_map(|agent| self.inner.sessions.get(agent)) {
            session.order_upgrade();
        }
        self.change_upgrade_hosts(upgrade.id, step.changes).await?;
        if let Some((to, reason)) = step.end {
            let transition = UpgradeTransition { from: vec![UpgradeState::Running], to, reason, makers: None };
            self.set_upgrade_state(upgrade.id, transition).await?;
        }
        Ok(())
    }

    /// Why no host may begin now.
    async fn hindrance(&self, upgrade: &Upgrade, step: &Step) -> Result<Option<Message>> {
        if upgrade.state != UpgradeState::Running {
            return Ok(None);
        }
        if let Some(withdrawn) = self.upgrade_withdrawn(&upgrade.makers).await? {
            return Ok(Some(withdrawn));
        }
        if !step.changes.iter().any(begins) {
            return Ok(None);
        }
        let gone = self.missing_build(&upgrade.plan.builds).await;
        Ok(gone.map(messages::upgrade_build_is_gone))
    }

    async fn build_of(&self, sha256: &str) -> Option<Arc<Build>> {
        let upgrades = &self.inner.upgrades;
        if let Some(known) = upgrades.builds.known(sha256) {
            return Some(known);
        }
        // It may have been put back.
        upgrades.builds.list().await;
        upgrades.keep_builds();
        upgrades.builds.known(sha256)
    }

    /// The name of a build that the server has no more.
    async fn missing_build(&self, builds: &[UpgradeBuild]) -> Option<String> {
        for build in builds {
            if self.build_of(&build.sha256).await.is_none() {
                return Some(build.name.clone());
            }
        }
        None
    }

    /// In the turn: writes, then remembers, then wakes.
    async fn change_upgrade_hosts(&self, id: Uuid, changes: Vec<UpgradeHostChange>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.inner.store.change_upgrade_hosts(id, changes.clone(), clock::unix_millis()).await?;
        if let Some(machine) = self.inner.upgrades.current.lock().as_mut().filter(|machine| machine.upgrade.id == id) {
            machine.apply(&changes, Instant::now());
        }
        let told = changes.iter().filter(|change| change.state == UpgradeHostState::Upgrading);
        for session in told.filter_map(|change| self.inner.sessions.get(&change.agent)) {
            session.order_upgrade();
        }
        Ok(())
    }

    fn seen_for_upgrade(&self, agent: &AgentId) -> Seen {
        match self.inner.sessions.get(agent) {
            None if self.is_returning(agent) || self.unreachable_area(agent).is_some() => Seen::Returning,
            None => Seen::Absent,
            Some(session) if !session.takes_upgrades() => Seen::TooOld,
            Some(session) => {
                let (arch, version) = session.program();
                Seen::Ready { arch: arch.to_owned(), version: version.to_owned(), epoch: session.epoch() }
            }
        }
    }

    // What sessions call.

    /// The upgrade that the agent has to hear of: on every session until it is over, and now and then.
    pub fn take_upgrade(&self, session: &Session) -> Option<UpgradeOrder> {
        if !session.take_upgrade_order() {
            return None;
        }
        let current = self.inner.upgrades.current.lock();
        let machine = current.as_ref().filter(|machine| machine.may_fetch(session.agent()))?;
        let plan = &machine.upgrade.plan;
        let build = machine.build(session.program().0)?;
        Some(UpgradeOrder {
            upgrade: machine.upgrade.id,
            version: plan.version.clone(),
            arch: build.arch.clone(),
            sha256: proctor_pki::parse_hex(&build.sha256)?.try_into().ok()?,
            size: build.size,
            allow_downgrade: plan.allow_downgrade,
            health_deadline: Duration::from_secs(plan.health_deadline_secs),
        })
    }

    /// A part of the build that the agent was told of; empty where it was told of none, or the server has it no more. None where
    /// it cannot be read just now: the agent asks again.
    pub async fn build_part(&self, session: &Session, upgrade: Uuid, offset: u64, length: u32) -> Option<Vec<u8>> {
        let build = {
            let current = self.inner.upgrades.current.lock();
            let machine = current.as_ref().filter(|machine| machine.upgrade.id == upgrade);
            let machine = machine.filter(|machine| machine.may_fetch(session.agent()));
            let build = machine.and_then(|machine| machine.build(session.program().0));
            build.map(|build| (build.sha256.clone(), build.size))
        };
        let Some((sha256, size)) = build else { return Some(Vec::new()) };
        let Some(build) = self.build_of(&sha256).await else { return Some(Vec::new()) };
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(BUILD_PART_BYTES_MAX);
        let read = tokio::task::spawn_blocking(move || build.part(offset, length)).await;
        let read = read.map_err(std::io::Error::other).flatten();
        let part = read.inspect_err(|error| tracing::error!(%error, %upgrade, "cannot read a build")).ok()?;
        if offset.saturating_add(part.len() as u64) >= size {
            let mut current = self.inner.upgrades.current.lock();
            // Cancelled while it was read: then the host has no whole build.
            let machine = current.as_mut().filter(|machine| machine.upgrade.id == upgrade);
            let machine = machine.filter(|machine| machine.may_fetch(session.agent()));
            let Some(machine) = machine else { return Some(Vec::new()) };
            machine.build_delivered(session.agent(), Instant::now());
        }
        Some(part)
    }

    /// How far the agent is.
    pub async fn upgrade_reported(
        &self,
        session: &Session,
        upgrade: Uuid,
        step: UpgradeStep,
        reason: Message,
    ) -> Result<()> {
        let state = match step {
            UpgradeStep::Fetching | UpgradeStep::Trying => {
                let mut current = self.inner.upgrades.current.lock();
                if let Some(machine) = current.as_mut().filter(|machine| machine.upgrade.id == upgrade) {
                    machine.reported(session.agent(), step);
                }
                return Ok(());
            }
            UpgradeStep::Done => UpgradeHostState::Done,
            // The owner of the host has decided; that says nothing about the new version.
            UpgradeStep::Failed if is_by_owner(&reason) => UpgradeHostState::Skipped,
            UpgradeStep::Failed => UpgradeHostState::Failed,
        };
        let concerns = |machine: &UpgradeMachine| {
            machine.upgrade.id == upgrade
                && machine.is_upgrading(session.agent())
                && (state != UpgradeHostState::Done || session.program().1 == machine.upgrade.plan.version)
        };
        let is_news = || self.inner.upgrades.current.lock().as_ref().is_some_and(concerns);
        // Every agent reports its last upgrade on every session: that must not wait for the store.
        if !is_news() {
            return Ok(());
        }
        let _turn = self.inner.upgrades.turn.lock().await;
        if !is_news() {
            return Ok(());
        }
        let agent = session.agent().clone();
        tracing::info!(%agent, %upgrade, state = state.as_str(), %reason, "agent upgrade finished");
        self.change_upgrade_hosts(upgrade, vec![UpgradeHostChange { agent, state, reason }]).await?;
        self.inner.upgrades.wake.notify_one();
        Ok(())
    }
}

fn begins(change: &UpgradeHostChange) -> bool {
    change.state == UpgradeHostState::Upgrading
}

fn is_by_owner(reason: &Message) -> bool {
    reason.phrase().is_some_and(|phrase| phrase.id() == BY_OWNER)
}

#[cfg(test)]
mod tests {
    use proctor_model::BootId;
    use proctor_runtime::Tasks;
    use proctor_store::sqlite::SqliteStore;
    use proctor_store::{SessionOpening, UpgradePlan};

    use super::*;
    use crate::control::Greeting;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// With the sessions of agents that take no upgrades.
    async fn control(dir: &std::path::Path, agents: &[&AgentId]) -> Control {
        let store = SqliteStore::open(&dir.join("test.db")).await.unwrap();
        let control = Control::start(Arc::new(store), &Tasks::default()).await.unwrap();
        for agent in agents {
            control.inner.sessions.insert(Arc::new(session(agent)));
        }
        control
    }

    fn session(agent: &AgentId) -> Session {
        Session::new(Greeting::new(SessionOpening::new(agent.clone(), "key"), BootId::from("boot")), 1)
    }

    /// Of an agent that takes upgrades.
    fn ready(agent: &AgentId) -> Session {
        let mut greeting = Greeting::new(SessionOpening::new(agent.clone(), "key"), BootId::from("boot"));
        greeting.takes_upgrades = true;
        greeting.opening.facts.arch = "x86_64".into();
        Session::new(greeting, 1)
    }

    fn upgrade() -> Upgrade {
        let plan = UpgradePlan {
            version: "2.0.0".into(),
            builds: Vec::new(),
            rings: vec![1, 1],
            health_deadline_secs: 60,
            failures_max: 0,
            allow_downgrade: false,
        };
        Upgrade {
            id: Uuid::from_u128(1),
            plan,
            state: UpgradeState::Running,
            reason: Message::default(),
            created_by: "somebody".into(),
            makers: Vec::new(),
            created_at: 0,
            changed_at: 0,
        }
    }

    fn host(agent: &AgentId, ring: u32) -> UpgradeHost {
        UpgradeHost {
            agent: agent.clone(),
            host: format!("0:10.0.0.{ring}").parse().unwrap(),
            ring,
            state: UpgradeHostState::Waiting,
            reason: Message::default(),
            version_before: "1.0.0".into(),
            changed_at: 0,
        }
    }

    /// The upgrade with a build that the server holds.
    async fn with_build(mut upgrade: Upgrade, dir: &std::path::Path, control: &Control) -> Upgrade {
        let downloads = dir.join("downloads");
        std::fs::create_dir(&downloads).unwrap();
        std::fs::write(downloads.join("agent"), crate::builds::sample(62, "2.0.0")).unwrap();
        control.hold_builds_in(downloads).await;
        let build = &control.builds().await[0];
        let (arch, name) = (build.arch.to_owned(), build.name.clone());
        upgrade.plan.builds = vec![UpgradeBuild { arch, name, sha256: build.sha256.clone(), size: build.size }];
        upgrade
    }

    async fn until_host(control: &Control, id: Uuid, state: UpgradeHostState) {
        let reached = async {
            while control.upgrade(id).await.unwrap().unwrap().1[0].state != state {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("in time");
    }

    async fn until_state(control: &Control, state: UpgradeState) -> Upgrade {
        let reached = async {
            loop {
                let (upgrade, _) = control.upgrade(Uuid::from_u128(1)).await.unwrap().unwrap();
                if upgrade.state == state {
                    return upgrade;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("in time")
    }

    #[tokio::test]
    async fn an_upgrade_that_nobody_took_is_paused_until_somebody_resumes_it() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second): (AgentId, AgentId) = ("a-1".parse().unwrap(), "a-2".parse().unwrap());
        let control = control(dir.path(), &[&first, &second]).await;
        control.begin_upgrade(upgrade(), vec![host(&first, 0), host(&second, 1)]).await.unwrap().unwrap();

        let paused = until_state(&control, UpgradeState::Paused).await;
        assert!(paused.reason.as_str().contains("no host of the earlier rings was upgraded"), "{}", paused.reason);
        assert!(control.steer_upgrade(paused.id, UpgradeWish::Resume, &Caller::local("somebody")).await.unwrap());

        until_state(&control, UpgradeState::Done).await;
    }

    #[tokio::test]
    async fn a_build_that_is_gone_is_ordered_to_nobody_until_it_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let agent: AgentId = "a-1".parse().unwrap();
        let control = control(dir.path(), &[]).await;
        let upgrade = with_build(upgrade(), dir.path(), &control).await;
        let file = dir.path().join("downloads/agent");
        let content = std::fs::read(&file).unwrap();
        std::fs::write(&file, "something else").unwrap();
        control.begin_upgrade(upgrade.clone(), vec![host(&agent, 0)]).await.unwrap().unwrap();
        control.inner.sessions.insert(Arc::new(ready(&agent)));

        let paused = until_state(&control, UpgradeState::Paused).await;

        assert!(paused.reason.as_str().contains("the build agent is gone"), "{}", paused.reason);
        until_host(&control, upgrade.id, UpgradeHostState::Waiting).await;
        std::fs::write(&file, content).unwrap();
        assert!(control.steer_upgrade(paused.id, UpgradeWish::Resume, &Caller::local("somebody")).await.unwrap());
        until_host(&control, upgrade.id, UpgradeHostState::Upgrading).await;
        let session = ready(&agent);
        assert!(!control.build_part(&session, upgrade.id, 0, 10).await.unwrap().is_empty());
        assert_eq!(control.build_part(&session, Uuid::nil(), 0, 10).await, Some(Vec::new()));
    }

    #[tokio::test]
    async fn a_cancelled_upgrade_lets_another_one_begin_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let agent: AgentId = "a-1".parse().unwrap();
        let control = control(dir.path(), &[]).await;
        control.inner.sessions.insert(Arc::new(ready(&agent)));
        let first = with_build(upgrade(), dir.path(), &control).await;
        control.begin_upgrade(first.clone(), vec![host(&agent, 0)]).await.unwrap().unwrap();
        until_host(&control, first.id, UpgradeHostState::Upgrading).await;
        let second = Upgrade { id: Uuid::from_u128(2), ..first.clone() };
        assert_eq!(control.begin_upgrade(second.clone(), vec![host(&agent, 0)]).await.unwrap(), Err(first.id));

        assert!(control.steer_upgrade(first.id, UpgradeWish::Cancel, &Caller::local("somebody")).await.unwrap());

        until_host(&control, first.id, UpgradeHostState::Skipped).await;
        control.begin_upgrade(second, vec![host(&agent, 0)]).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_report_about_an_earlier_upgrade_does_not_wait_for_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let agent: AgentId = "a-1".parse().unwrap();
        let control = control(dir.path(), &[]).await;
        let turn = control.inner.upgrades.turn.lock().await;

        let session = session(&agent);
        let told = control.upgrade_reported(&session, Uuid::nil(), UpgradeStep::Done, Message::default());
        tokio::time::timeout(PATIENCE, told).await.expect("in time").unwrap();

        drop(turn);
    }
}
