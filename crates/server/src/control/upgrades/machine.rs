//! Which hosts of an upgrade come next: rings, failures, and hosts that are not there.
//!
//! Promised: a ring begins when every host of those before is final; with more failures than allowed, no other host
//! begins; never more than [`UPGRADING_MAX`] at once. Time and what is known of the sessions are arguments. Absent: the
//! store, which has every change before it is applied here.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, Message, messages};
use proctor_store::{Upgrade, UpgradeBuild, UpgradeHost, UpgradeHostChange, UpgradeHostState, UpgradeState};

/// At once, in one ring: each fetches a whole program.
const UPGRADING_MAX: usize = 64;
/// A host that is not connected when its turn comes is waited for this long.
const ABSENT_MAX: Duration = Duration::from_secs(60);
/// A host that was told, and is gone for this much longer than its new version has to prove itself, has failed.
const LOST_MAX: Duration = Duration::from_secs(600);
/// An agent gives up by itself long before.
const UPGRADING_TIME_MAX: Duration = Duration::from_secs(3 * 3600);

/// What is known of a host's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Absent,
    /// It takes no upgrades.
    TooOld,
    Ready {
        arch: String,
        version: String,
    },
}

#[derive(Debug)]
pub(super) struct UpgradeMachine {
    pub(super) upgrade: Upgrade,
    hosts: Vec<Host>,
    places: HashMap<AgentId, usize>,
}

#[derive(Debug)]
struct Host {
    agent: AgentId,
    ring: u32,
    state: UpgradeHostState,
    /// Since when it has not been connected, while it is its turn.
    absent_since: Option<Instant>,
    upgrading_since: Option<Instant>,
}

/// What happens next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) changes: Vec<UpgradeHostChange>,
    pub(super) end: Option<(UpgradeState, String)>,
}

impl UpgradeMachine {
    pub(super) fn new(upgrade: Upgrade, hosts: Vec<UpgradeHost>) -> Self {
        let hosts: Vec<Host> = hosts
            .into_iter()
            .map(|host| Host {
                agent: host.agent,
                ring: host.ring,
                state: host.state,
                absent_since: None,
                upgrading_since: None,
            })
            .collect();
        let places = hosts.iter().enumerate().map(|(place, host)| (host.agent.clone(), place)).collect();
        Self { upgrade, hosts, places }
    }

    pub(super) fn is_upgrading(&self, agent: &AgentId) -> bool {
        self.places.get(agent).is_some_and(|place| self.hosts[*place].state == UpgradeHostState::Upgrading)
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

    pub(super) fn apply(&mut self, changes: &[UpgradeHostChange], now: Instant) {
        for change in changes {
            let Some(place) = self.places.get(&change.agent) else { continue };
            let host = &mut self.hosts[*place];
            if !host.state.is_final() {
                host.state = change.state;
                (host.upgrading_since, host.absent_since) = (Some(now), None);
            }
        }
    }

    pub(super) fn step(&mut self, now: Instant, look: impl Fn(&AgentId) -> Seen) -> Step {
        let mut changes = self.lost(now, &look);
        if self.upgrade.state != UpgradeState::Running {
            return Step { changes, end: None };
        }
        let failed = self.count(UpgradeHostState::Failed)
            + changes.iter().filter(|change| change.state == UpgradeHostState::Failed).count();
        if failed > self.upgrade.plan.failures_max as usize {
            let reason = format!("{failed} hosts failed, and at most {} may", self.upgrade.plan.failures_max);
            return Step { changes, end: Some((UpgradeState::Failed, reason)) };
        }
        let Some(ring) = self.hosts.iter().filter(|host| !host.state.is_final()).map(|host| host.ring).min() else {
            return Step { changes, end: Some((UpgradeState::Done, String::new())) };
        };
        let mut room = UPGRADING_MAX.saturating_sub(self.count(UpgradeHostState::Upgrading));
        let plan = self.upgrade.plan.clone();
        for host in &mut self.hosts {
            if host.ring != ring || host.state != UpgradeHostState::Waiting {
                continue;
            }
            let decided = match look(&host.agent) {
                Seen::Absent => {
                    let since = *host.absent_since.get_or_insert(now);
                    let is_long = now.saturating_duration_since(since) >= ABSENT_MAX;
                    is_long.then(|| (UpgradeHostState::Skipped, messages::upgrade_host_absent()))
                }
                Seen::TooOld => Some((UpgradeHostState::Skipped, messages::upgrade_agent_too_old())),
                Seen::Ready { version, .. } if version == plan.version => {
                    Some((UpgradeHostState::Done, messages::upgrade_runs_already(version)))
                }
                Seen::Ready { arch, .. } if !plan.builds.iter().any(|build| build.arch == arch) => {
                    Some((UpgradeHostState::Skipped, messages::upgrade_no_build(arch)))
                }
                Seen::Ready { .. } if room > 0 => {
                    room -= 1;
                    Some((UpgradeHostState::Upgrading, Message::plain("")))
                }
                Seen::Ready { .. } => None,
            };
            let change = |(state, reason)| UpgradeHostChange { agent: host.agent.clone(), state, reason };
            changes.extend(decided.map(change));
        }
        Step { changes, end: None }
    }

    /// Hosts that were told and will say nothing more.
    fn lost(&mut self, now: Instant, look: &impl Fn(&AgentId) -> Seen) -> Vec<UpgradeHostChange> {
        let absent_max = LOST_MAX + Duration::from_secs(self.upgrade.plan.health_deadline_secs);
        let mut lost = Vec::new();
        for host in self.hosts.iter_mut().filter(|host| host.state == UpgradeHostState::Upgrading) {
            let since = *host.upgrading_since.get_or_insert(now);
            if look(&host.agent) == Seen::Absent {
                host.absent_since.get_or_insert(now);
            } else {
                host.absent_since = None;
            }
            let is_gone = host.absent_since.is_some_and(|at| now.saturating_duration_since(at) >= absent_max);
            if is_gone || now.saturating_duration_since(since) >= UPGRADING_TIME_MAX {
                let (agent, reason) = (host.agent.clone(), messages::upgrade_host_lost());
                lost.push(UpgradeHostChange { agent, state: UpgradeHostState::Failed, reason });
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use proctor_store::UpgradePlan;
    use uuid::Uuid;

    use super::*;

    fn agent(number: u32) -> AgentId {
        format!("a-{number}").parse().unwrap()
    }

    fn machine(rings: &[u32], failures_max: u32) -> UpgradeMachine {
        let build = UpgradeBuild { arch: "x86_64".into(), name: "b".into(), sha256: "ab".into(), size: 1 };
        let plan = UpgradePlan {
            version: "2.0.0".into(),
            builds: vec![build],
            rings: rings.to_vec(),
            health_deadline_secs: 60,
            failures_max,
            allow_downgrade: false,
        };
        let upgrade = Upgrade {
            id: Uuid::nil(),
            plan,
            state: UpgradeState::Running,
            reason: String::new(),
            created_by: String::new(),
            created_at: 0,
            changed_at: 0,
        };
        let ring_of = rings.iter().zip(0..).flat_map(|(count, ring)| std::iter::repeat_n(ring, *count as usize));
        let hosts = ring_of.zip(0..).map(|(ring, number)| UpgradeHost {
            agent: agent(number),
            host: format!("0:10.0.0.{number}").parse().unwrap(),
            ring,
            state: UpgradeHostState::Waiting,
            reason: Message::plain(""),
            version_before: "1.0.0".into(),
            changed_at: 0,
        });
        UpgradeMachine::new(upgrade, hosts.collect())
    }

    fn ready(_: &AgentId) -> Seen {
        Seen::Ready { arch: "x86_64".into(), version: "1.0.0".into() }
    }

    fn told(step: &Step) -> Vec<(String, UpgradeHostState)> {
        step.changes.iter().map(|change| (change.agent.to_string(), change.state)).collect()
    }

    fn ended(machine: &mut UpgradeMachine, number: u32, state: UpgradeHostState) {
        let change = UpgradeHostChange { agent: agent(number), state, reason: Message::plain("") };
        machine.apply(&[change], Instant::now());
    }

    #[test]
    fn a_ring_begins_when_the_one_before_is_over_and_failures_stop_everything() {
        use UpgradeHostState::{Done, Failed, Upgrading};
        let (mut machine, now) = (machine(&[1, 2, 1], 1), Instant::now());
        let first = machine.step(now, ready);
        assert_eq!(told(&first), [("a-0".to_owned(), Upgrading)]);
        machine.apply(&first.changes, now);
        assert_eq!(machine.step(now, ready), Step::default(), "the first ring is under way");
        ended(&mut machine, 0, Failed);
        let second = machine.step(now, ready);
        assert_eq!(told(&second), [("a-1".to_owned(), Upgrading), ("a-2".to_owned(), Upgrading)], "one may fail");
        machine.apply(&second.changes, now);
        ended(&mut machine, 1, Done);
        assert_eq!(machine.step(now, ready), Step::default());

        ended(&mut machine, 2, Failed);

        let (state, reason) = machine.step(now, ready).end.unwrap();
        assert_eq!((state, reason.as_str()), (UpgradeState::Failed, "2 hosts failed, and at most 1 may"));
    }

    #[test]
    fn hosts_that_cannot_be_upgraded_are_skipped_and_the_others_go_on() {
        use UpgradeHostState::{Done, Skipped, Upgrading};
        let (mut machine, now) = (machine(&[5], 0), Instant::now());
        let look = |agent: &AgentId| match agent.as_str() {
            "a-0" => Seen::Absent,
            "a-1" => Seen::TooOld,
            "a-2" => Seen::Ready { arch: "riscv64".into(), version: "1.0.0".into() },
            "a-3" => Seen::Ready { arch: "x86_64".into(), version: "2.0.0".into() },
            _ => ready(agent),
        };

        let first = machine.step(now, look);
        machine.apply(&first.changes, now);
        let later = machine.step(now + ABSENT_MAX, look);
        machine.apply(&later.changes, now);

        let name = |number: u32| format!("a-{number}");
        assert_eq!(told(&first), [(name(1), Skipped), (name(2), Skipped), (name(3), Done), (name(4), Upgrading)]);
        assert_eq!(told(&later), [(name(0), Skipped)]);
        ended(&mut machine, 4, Done);
        assert_eq!(machine.step(now, look).end.unwrap().0, UpgradeState::Done);
    }

    #[test]
    fn a_host_that_was_told_and_never_comes_back_has_failed_also_while_paused() {
        let (mut machine, now) = (machine(&[2], 5), Instant::now());
        let first = machine.step(now, ready);
        machine.apply(&first.changes, now);
        machine.upgrade.state = UpgradeState::Paused;
        let gone = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { ready(agent) };

        assert_eq!(machine.step(now, gone), Step::default());
        assert_eq!(machine.step(now + ABSENT_MAX, gone), Step::default(), "longer than one that was not told");
        let later = machine.step(now + LOST_MAX + Duration::from_secs(61), gone);

        assert_eq!(told(&later), [("a-0".to_owned(), UpgradeHostState::Failed)]);
        let last = machine.step(now + UPGRADING_TIME_MAX, ready);
        assert_eq!(told(&last).len(), 2, "nor one that is connected and says nothing");
    }

    #[test]
    fn only_so_many_hosts_fetch_at_once() {
        let (mut machine, now) = (machine(&[200], 0), Instant::now());

        let first = machine.step(now, ready);
        machine.apply(&first.changes, now);
        let second = machine.step(now, ready);

        assert_eq!((first.changes.len(), second.changes.len()), (UPGRADING_MAX, 0));
    }
}
