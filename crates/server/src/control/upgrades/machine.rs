//! Which hosts of an upgrade come next: rings, failures, and absent hosts.
//!
//! Promised: a ring begins when every host of the previous rings is final, and the upgraded ones have kept a session
//! with the new version for a while; a host that does not keep it has failed after all. The upgrade is done when that
//! holds for all hosts. With more failures than allowed no further host begins. If no host of the previous rings was
//! upgraded, a human decides: the upgrade is paused. Never more than [`UPGRADING_MAX`] hosts at once. An order is
//! repeated until its host reports a result. Time and what is known about the sessions are arguments. An upgrade that
//! was cancelled or has failed skips hosts that have not begun their trial, including absent ones, so that another
//! upgrade can begin; an absent host that may be in its trial is waited for until that is over.
//! Absent: the store, which has every change before it is applied here.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, Message, UpgradeStep, messages};
use proctor_store::{
    Millis, Upgrade, UpgradeBuild, UpgradeHost, UpgradeHostChange, UpgradeHostState, UpgradePlan, UpgradeState,
};

/// At once, in one ring: each fetches a whole program.
const UPGRADING_MAX: usize = 64;
/// A host that is not connected when its turn comes is waited for this long.
const ABSENT_MAX: Duration = Duration::from_secs(60);
/// A host that has the order, and is gone for this much longer than its new version has to prove itself, has failed;
/// so has one that was upgraded and has not kept a session for as long.
const LOST_MAX: Duration = Duration::from_secs(600);
/// What a trial takes beyond its deadline, until the old version is back.
const TRIAL_ROOM: Duration = Duration::from_secs(60);
/// An agent gives up on its own long before.
const UPGRADING_TIME_MAX: Duration = Duration::from_secs(3 * 3600);
/// A host that was upgraded has to keep a session for this long before the next ring begins, or the upgrade is done. Longer than the watchdog of the
/// agent's unit (90 s), which the trial on the host does not show to the new version.
const SETTLE: Duration = Duration::from_secs(100);
/// An order, or the answer to it, may have been lost.
const ORDER_PERIOD: Duration = Duration::from_secs(60);
/// What is known about a host's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Absent,
    /// It was connected before the server's start, and may still come back.
    Returning,
    /// It takes no upgrades.
    TooOld,
    Ready {
        arch: String,
        version: String,
        /// Another one is another session.
        epoch: u64,
    },
}

#[derive(Debug)]
pub(super) struct UpgradeMachine {
    pub(super) upgrade: Upgrade,
    hosts: Vec<Host>,
    indices: HashMap<AgentId, usize>,
    /// A human resumed it in this ring.
    resumed_in: Option<u32>,
}

#[derive(Debug)]
struct Host {
    agent: AgentId,
    ring: u32,
    state: UpgradeHostState,
    /// Since when it has not been connected, while it is its turn.
    absent_since: Option<Instant>,
    upgrading_since: Option<Instant>,
    /// It said last that the new program is on trial.
    is_trying: bool,
    /// It was told before the server's start, which does not know how far it is.
    may_try: bool,
    /// When it was given the last part of the build: from then on it may become the new program, and what it says of
    /// that may be lost with its session.
    given_at: Option<Instant>,
    ordered_at: Option<Instant>,
    settling: Settling,
}

/// Whether a host that was upgraded keeps the new version.
#[derive(Debug, Default)]
struct Settling {
    is_over: bool,
    since: Option<Instant>,
    /// The session that it has with the new version, by its epoch, and since when.
    session: Option<(u64, Instant)>,
}

/// What happens next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) changes: Vec<UpgradeHostChange>,
    /// Hosts that get the order again.
    pub(super) again: Vec<AgentId>,
    /// The state that the upgrade gets.
    pub(super) end: Option<(UpgradeState, Message)>,
}

impl UpgradeMachine {
    /// `unix_now` is the time of `now` by the clock that the store's times are of.
    pub(super) fn new(upgrade: Upgrade, hosts: Vec<UpgradeHost>, now: Instant, unix_now: Millis) -> Self {
        let since = |host: &UpgradeHost| {
            let age = u64::try_from(unix_now.saturating_sub(host.changed_at)).unwrap_or_default();
            now.checked_sub(Duration::from_millis(age)).unwrap_or(now)
        };
        // A ring that has begun shows that those before had settled.
        let begun = hosts.iter().filter(|host| was_told(host.state)).map(|host| host.ring).max();
        let hosts: Vec<Host> = hosts
            .into_iter()
            .map(|host| Host {
                ring: host.ring,
                state: host.state,
                absent_since: None,
                upgrading_since: (host.state == UpgradeHostState::Upgrading).then(|| since(&host)),
                is_trying: false,
                may_try: host.state == UpgradeHostState::Upgrading,
                given_at: None,
                ordered_at: None,
                settling: Settling { is_over: begun.is_some_and(|begun| host.ring < begun), ..Settling::default() },
                agent: host.agent,
            })
            .collect();
        let indices = hosts.iter().enumerate().map(|(index, host)| (host.agent.clone(), index)).collect();
        Self { upgrade, hosts, indices, resumed_in: None }
    }

    pub(super) fn is_upgrading(&self, agent: &AgentId) -> bool {
        self.indices.get(agent).is_some_and(|index| self.hosts[*index].state == UpgradeHostState::Upgrading)
    }

    /// Whether the host gets the order and the build: it does not once the upgrade was cancelled or has failed.
    pub(super) fn may_fetch(&self, agent: &AgentId) -> bool {
        self.upgrade.state.is_under_way() && self.is_upgrading(agent)
    }

    /// The progress of a host that has the order.
    pub(super) fn reported(&mut self, agent: &AgentId, step: UpgradeStep) {
        if let Some(index) = self.indices.get(agent) {
            let host = &mut self.hosts[*index];
            (host.is_trying, host.may_try) = (step == UpgradeStep::Trying, false);
        }
    }

    /// The host has all of the build now, or will have it in a moment.
    pub(super) fn build_delivered(&mut self, agent: &AgentId, now: Instant) {
        if let Some(index) = self.indices.get(agent) {
            self.hosts[*index].given_at = Some(now);
        }
    }

    /// Nothing will change any more.
    pub(super) fn is_over(&self) -> bool {
        !self.upgrade.state.is_under_way() && self.count(UpgradeHostState::Upgrading) == 0
    }

    pub(super) fn build(&self, arch: &str) -> Option<&UpgradeBuild> {
        self.upgrade.plan.builds.iter().find(|build| build.arch == arch)
    }

    fn count(&self, state: UpgradeHostState) -> usize {
        self.hosts.iter().filter(|host| host.state == state).count()
    }

    /// The first one with a host that is not final.
    fn ring(&self) -> Option<u32> {
        self.hosts.iter().filter(|host| !host.state.is_final()).map(|host| host.ring).min()
    }

    pub(super) fn apply(&mut self, changes: &[UpgradeHostChange], now: Instant) {
        for change in changes {
            let Some(index) = self.indices.get(&change.agent) else { continue };
            let host = &mut self.hosts[*index];
            if change.is_allowed_from(host.state) {
                host.state = change.state;
                (host.is_trying, host.may_try, host.given_at) = (false, false, None);
                (host.upgrading_since, host.ordered_at, host.absent_since) = (Some(now), Some(now), None);
            }
        }
    }

    /// A human has seen its progress, and resumes it.
    pub(super) fn resumed(&mut self) {
        self.resumed_in = self.ring();
        for host in &mut self.hosts {
            host.settling.since = None;
            if host.state == UpgradeHostState::Waiting {
                host.absent_since = None;
            }
        }
    }

    pub(super) fn step(&mut self, now: Instant, look: impl Fn(&AgentId) -> Seen) -> Step {
        let mut step = self.told(now, &look);
        if self.upgrade.state != UpgradeState::Running {
            return step;
        }
        let ring = self.ring();
        let is_settled = self.settle(ring, now, &look, &mut step.changes);
        let failed = self.count(UpgradeHostState::Failed)
            + step.changes.iter().filter(|change| change.state == UpgradeHostState::Failed).count();
        if failed > self.upgrade.plan.failures_max as usize {
            let reason = messages::upgrade_failed_too_often(failed, self.upgrade.plan.failures_max);
            step.end = Some((UpgradeState::Failed, reason));
            return step;
        }
        if !is_settled || !step.changes.is_empty() {
            return step; // those that have just failed count from the next step on
        }
        let Some(ring) = ring else {
            step.end = Some((UpgradeState::Done, Message::default()));
            return step;
        };
        if self.is_unproved(ring) {
            step.end = Some((UpgradeState::Paused, messages::upgrade_of_nobody()));
            return step;
        }
        self.begin(ring, now, &look, &mut step.changes);
        step
    }

    /// Whether the ring is about to begin, nothing shows that the version is any good, and nobody said to go on all the same.
    fn is_unproved(&self, ring: u32) -> bool {
        let mut of_ring = self.hosts.iter().filter(|host| host.ring == ring);
        let has_begun = of_ring.any(|host| was_told(host.state));
        let is_done = |host: &Host| host.ring < ring && host.state == UpgradeHostState::Done;
        ring > 0 && self.resumed_in != Some(ring) && !has_begun && !self.hosts.iter().any(is_done)
    }

    /// What becomes of the hosts whose turn it is.
    fn begin(
        &mut self,
        ring: u32,
        now: Instant,
        look: &impl Fn(&AgentId) -> Seen,
        changes: &mut Vec<UpgradeHostChange>,
    ) {
        let mut room = UPGRADING_MAX.saturating_sub(self.count(UpgradeHostState::Upgrading));
        let plan = &self.upgrade.plan;
        for host in &mut self.hosts {
            if host.ring != ring || host.state != UpgradeHostState::Waiting {
                continue;
            }
            let seen = look(&host.agent);
            if seen != Seen::Absent {
                host.absent_since = None;
            }
            let decided = match seen {
                Seen::Absent => {
                    let since = *host.absent_since.get_or_insert(now);
                    let is_long = now.saturating_duration_since(since) >= ABSENT_MAX;
                    is_long.then(|| (UpgradeHostState::Skipped, messages::upgrade_host_absent()))
                }
                Seen::Returning => None,
                Seen::TooOld => Some((UpgradeHostState::Skipped, messages::upgrade_agent_too_old())),
                Seen::Ready { version, .. } if version == plan.version => {
                    Some((UpgradeHostState::Done, messages::upgrade_runs_already(version)))
                }
                Seen::Ready { arch, .. } if !plan.builds.iter().any(|build| build.arch == arch) => {
                    Some((UpgradeHostState::Skipped, messages::upgrade_no_build(arch)))
                }
                Seen::Ready { .. } if room > 0 => {
                    room -= 1;
                    Some((UpgradeHostState::Upgrading, Message::default()))
                }
                Seen::Ready { .. } => None,
            };
            let change = |(state, reason)| UpgradeHostChange { agent: host.agent.clone(), state, reason };
            changes.extend(decided.map(change));
        }
    }

    /// Whether all hosts before the ring, or all of them, that were upgraded have kept the new version for long enough; adds
    /// those that did not keep it, whatever their ring.
    fn settle(
        &mut self,
        ring: Option<u32>,
        now: Instant,
        look: &impl Fn(&AgentId) -> Seen,
        changes: &mut Vec<UpgradeHostChange>,
    ) -> bool {
        let mut is_settled = true;
        let is_unsettled = |host: &&mut Host| host.state == UpgradeHostState::Done && !host.settling.is_over;
        for host in self.hosts.iter_mut().filter(is_unsettled) {
            if let Some(reason) = host.settling.look(look(&host.agent), &self.upgrade.plan, now) {
                let (agent, state) = (host.agent.clone(), UpgradeHostState::Failed);
                changes.push(UpgradeHostChange { agent, state, reason });
            }
            is_settled &= host.settling.is_over || ring.is_some_and(|ring| host.ring >= ring);
        }
        is_settled
    }

    /// Of the hosts that were told: those that will say nothing more, and those to be told again.
    fn told(&mut self, now: Instant, look: &impl Fn(&AgentId) -> Seen) -> Step {
        let upgrade = &self.upgrade;
        let is_under_way = upgrade.state.is_under_way();
        let absent_max = LOST_MAX + Duration::from_secs(upgrade.plan.health_deadline_secs);
        let mut step = Step::default();
        for host in self.hosts.iter_mut().filter(|host| host.state == UpgradeHostState::Upgrading) {
            let since = *host.upgrading_since.get_or_insert(now);
            let ordered_at = *host.ordered_at.get_or_insert(now);
            let seen = look(&host.agent);
            // Of an upgrade that is over, a host that may come back some day keeps the next one waiting no longer than
            // one of which nothing is known.
            let is_away = seen == Seen::Absent || seen == Seen::Returning && !is_under_way;
            if is_away {
                host.absent_since.get_or_insert(now);
            } else {
                host.absent_since = None;
            }
            let trial_max = Duration::from_secs(upgrade.plan.health_deadline_secs) + TRIAL_ROOM;
            let absent_max = if is_under_way { absent_max } else { trial_max };
            let is_gone = host.absent_since.is_some_and(|at| now.saturating_duration_since(at) >= absent_max);
            let is_late = now.saturating_duration_since(since) >= UPGRADING_TIME_MAX;
            let may_begin = host.given_at.is_some_and(|at| now.saturating_duration_since(at) < trial_max);
            let has_begun = host.is_trying || host.may_try || host.given_at.is_some();
            let decided = match seen {
                // It took upgrades when it was told.
                Seen::TooOld => Some((UpgradeHostState::Failed, messages::upgrade_agent_too_old())),
                Seen::Absent | Seen::Returning if !is_under_way && !has_begun => {
                    Some((UpgradeHostState::Skipped, upgrade.reason.clone()))
                }
                _ if is_gone || is_late => Some((UpgradeHostState::Failed, messages::upgrade_host_lost())),
                // A program on trial has a session with the new version.
                Seen::Ready { version, .. }
                    if !is_under_way && !host.is_trying && !may_begin && version != upgrade.plan.version =>
                {
                    Some((UpgradeHostState::Skipped, upgrade.reason.clone()))
                }
                Seen::Ready { .. } if is_under_way && now.saturating_duration_since(ordered_at) >= ORDER_PERIOD => {
                    host.ordered_at = Some(now);
                    step.again.push(host.agent.clone());
                    None
                }
                Seen::Ready { .. } | Seen::Absent | Seen::Returning => None,
            };
            let change = |(state, reason)| UpgradeHostChange { agent: host.agent.clone(), state, reason };
            step.changes.extend(decided.map(change));
        }
        step
    }
}

fn was_told(state: UpgradeHostState) -> bool {
    use UpgradeHostState::{Done, Failed, Skipped, Upgrading, Waiting};
    match state {
        Upgrading | Done | Failed => true,
        Waiting | Skipped => false,
    }
}

impl Settling {
    /// Why the host has failed after all, if it has.
    fn look(&mut self, seen: Seen, plan: &UpgradePlan, now: Instant) -> Option<Message> {
        match seen {
            Seen::Returning => return None,
            Seen::Ready { version, .. } if version != plan.version => {
                return Some(messages::upgrade_gone_back(version));
            }
            Seen::Ready { epoch, .. } => {
                let known = self.session.filter(|(known, _)| *known == epoch);
                let (_, since) = *self.session.insert(known.unwrap_or((epoch, now)));
                self.is_over = now.saturating_duration_since(since) >= SETTLE;
            }
            Seen::Absent | Seen::TooOld => self.session = None,
        }
        let since = *self.since.get_or_insert(now);
        let unsettled_max = LOST_MAX + Duration::from_secs(plan.health_deadline_secs);
        let is_late = !self.is_over && now.saturating_duration_since(since) >= unsettled_max;
        is_late.then(messages::upgrade_not_held)
    }
}

#[cfg(test)]
mod tests;
