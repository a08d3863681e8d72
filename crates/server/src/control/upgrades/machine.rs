//! Which hosts of an upgrade come next: rings, failures, and hosts that are not there.
//!
//! Promised: a ring begins when every host of those before is final, and those that were upgraded have kept a session with
//! the new version for a while; a host that does not keep it has failed after all. With more failures than allowed no other
//! host begins. Where no host of the rings before was upgraded, a person decides: the upgrade is paused. Never more than
//! [`UPGRADING_MAX`] hosts at once. A host that was told is told again until it says what came of it. Time and what is known
//! of the sessions are arguments. Absent: the store, which has every change before it is applied here.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, Message, messages};
use proctor_store::{
    Upgrade, UpgradeBuild, UpgradeHost, UpgradeHostChange, UpgradeHostState, UpgradePlan, UpgradeState,
};

/// At once, in one ring: each fetches a whole program.
const UPGRADING_MAX: usize = 64;
/// A host that is not connected when its turn comes is waited for this long.
const ABSENT_MAX: Duration = Duration::from_secs(60);
/// A host that was told, and is gone for this much longer than its new version has to prove itself, has failed; and one
/// that was upgraded and has not kept a session for as long.
const LOST_MAX: Duration = Duration::from_secs(600);
/// An agent gives up by itself long before.
const UPGRADING_TIME_MAX: Duration = Duration::from_secs(3 * 3600);
/// A host that was upgraded has to keep a session for this long before the next ring begins. Longer than the watchdog of the
/// agent's unit (90 s), which the trial on the host does not show to the new version.
const SETTLE: Duration = Duration::from_secs(100);
/// An order, or the answer to it, may have been lost.
const ORDER_PERIOD: Duration = Duration::from_secs(60);
const NOBODY_UPGRADED: &str = "no host of the rings before was upgraded: see why, then resume or cancel";

/// What is known of a host's session.
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
    places: HashMap<AgentId, usize>,
    /// A person let it go on in this ring.
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
    /// Hosts to be told again.
    pub(super) again: Vec<AgentId>,
    /// The state that the upgrade gets.
    pub(super) end: Option<(UpgradeState, String)>,
}

impl UpgradeMachine {
    pub(super) fn new(upgrade: Upgrade, hosts: Vec<UpgradeHost>) -> Self {
        // A ring that has begun shows that those before had settled.
        let begun = hosts.iter().filter(|host| was_told(host.state)).map(|host| host.ring).max();
        let hosts: Vec<Host> = hosts
            .into_iter()
            .map(|host| Host {
                agent: host.agent,
                ring: host.ring,
                state: host.state,
                absent_since: None,
                upgrading_since: None,
                ordered_at: None,
                settling: Settling { is_over: begun.is_some_and(|begun| host.ring < begun), ..Settling::default() },
            })
            .collect();
        let places = hosts.iter().enumerate().map(|(place, host)| (host.agent.clone(), place)).collect();
        Self { upgrade, hosts, places, resumed_in: None }
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

    /// The first one with a host that is not final.
    fn ring(&self) -> Option<u32> {
        self.hosts.iter().filter(|host| !host.state.is_final()).map(|host| host.ring).min()
    }

    pub(super) fn apply(&mut self, changes: &[UpgradeHostChange], now: Instant) {
        for change in changes {
            let Some(place) = self.places.get(&change.agent) else { continue };
            let host = &mut self.hosts[*place];
            if change.is_allowed_from(host.state) {
                host.state = change.state;
                (host.upgrading_since, host.ordered_at, host.absent_since) = (Some(now), Some(now), None);
            }
        }
    }

    /// A person has seen how far it is, and lets it go on.
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
        let is_settled = ring.is_none_or(|ring| self.settle(ring, now, &look, &mut step.changes));
        let failed = self.count(UpgradeHostState::Failed)
            + step.changes.iter().filter(|change| change.state == UpgradeHostState::Failed).count();
        if failed > self.upgrade.plan.failures_max as usize {
            let reason = format!("{failed} hosts failed, and at most {} may", self.upgrade.plan.failures_max);
            step.end = Some((UpgradeState::Failed, reason));
            return step;
        }
        let Some(ring) = ring else {
            step.end = Some((UpgradeState::Done, String::new()));
            return step;
        };
        if !is_settled || !step.changes.is_empty() {
            return step; // those that have just failed count from the next step on
        }
        if self.is_unproved(ring) {
            step.end = Some((UpgradeState::Paused, NOBODY_UPGRADED.to_owned()));
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
                    Some((UpgradeHostState::Upgrading, Message::plain("")))
                }
                Seen::Ready { .. } => None,
            };
            let change = |(state, reason)| UpgradeHostChange { agent: host.agent.clone(), state, reason };
            changes.extend(decided.map(change));
        }
    }

    /// Whether all hosts before the ring that were upgraded have kept the new version for long enough; adds those that
    /// did not keep it.
    fn settle(
        &mut self,
        ring: u32,
        now: Instant,
        look: &impl Fn(&AgentId) -> Seen,
        changes: &mut Vec<UpgradeHostChange>,
    ) -> bool {
        let mut is_settled = true;
        for host in self.hosts.iter_mut().filter(|host| host.ring < ring && host.state == UpgradeHostState::Done) {
            if host.settling.is_over {
                continue;
            }
            if let Some(reason) = host.settling.look(look(&host.agent), &self.upgrade.plan, now) {
                let (agent, state) = (host.agent.clone(), UpgradeHostState::Failed);
                changes.push(UpgradeHostChange { agent, state, reason });
            }
            is_settled &= host.settling.is_over;
        }
        is_settled
    }

    /// Of the hosts that were told: those that will say nothing more, and those to be told again.
    fn told(&mut self, now: Instant, look: &impl Fn(&AgentId) -> Seen) -> Step {
        let absent_max = LOST_MAX + Duration::from_secs(self.upgrade.plan.health_deadline_secs);
        let mut step = Step::default();
        for host in self.hosts.iter_mut().filter(|host| host.state == UpgradeHostState::Upgrading) {
            let since = *host.upgrading_since.get_or_insert(now);
            let ordered_at = *host.ordered_at.get_or_insert(now);
            let seen = look(&host.agent);
            if seen == Seen::Absent {
                host.absent_since.get_or_insert(now);
            } else {
                host.absent_since = None;
            }
            let is_gone = host.absent_since.is_some_and(|at| now.saturating_duration_since(at) >= absent_max);
            if is_gone || now.saturating_duration_since(since) >= UPGRADING_TIME_MAX {
                let (agent, reason) = (host.agent.clone(), messages::upgrade_host_lost());
                step.changes.push(UpgradeHostChange { agent, state: UpgradeHostState::Failed, reason });
            } else if matches!(seen, Seen::Ready { .. }) && now.saturating_duration_since(ordered_at) >= ORDER_PERIOD {
                host.ordered_at = Some(now);
                step.again.push(host.agent.clone());
            }
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
mod tests {
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
        version("1.0.0", 1)
    }

    fn version(version: &str, epoch: u64) -> Seen {
        Seen::Ready { arch: "x86_64".into(), version: version.into(), epoch }
    }

    /// Those of the first ring have the new version.
    fn first_is_new(agent: &AgentId) -> Seen {
        if agent.as_str() == "a-0" { version("2.0.0", 7) } else { ready(agent) }
    }

    fn told(step: &Step) -> Vec<(String, UpgradeHostState)> {
        step.changes.iter().map(|change| (change.agent.to_string(), change.state)).collect()
    }

    fn ended(machine: &mut UpgradeMachine, number: u32, state: UpgradeHostState) {
        let change = UpgradeHostChange { agent: agent(number), state, reason: Message::plain("") };
        machine.apply(&[change], Instant::now());
    }

    /// The machine after its first ring was upgraded.
    fn first_ring_done(rings: &[u32], failures_max: u32, now: Instant) -> UpgradeMachine {
        let mut machine = machine(rings, failures_max);
        let first = machine.step(now, ready);
        machine.apply(&first.changes, now);
        for number in 0..rings[0] {
            ended(&mut machine, number, UpgradeHostState::Done);
        }
        machine
    }

    #[test]
    fn a_ring_begins_when_the_one_before_is_over_and_failures_stop_everything() {
        use UpgradeHostState::{Done, Failed, Upgrading};
        let (mut machine, now) = (machine(&[2, 2, 1], 1), Instant::now());
        let look = |agent: &AgentId| if agent.as_str() == "a-1" { version("2.0.0", 7) } else { ready(agent) };
        let first = machine.step(now, ready);
        assert_eq!(told(&first), [("a-0".to_owned(), Upgrading), ("a-1".to_owned(), Upgrading)]);
        machine.apply(&first.changes, now);
        ended(&mut machine, 0, Failed);
        assert_eq!(machine.step(now, ready), Step::default(), "the first ring is under way");
        ended(&mut machine, 1, Done);
        assert_eq!(machine.step(now, look), Step::default(), "it has to settle");
        let later = now + SETTLE;
        let second = machine.step(later, look);
        assert_eq!(told(&second), [("a-2".to_owned(), Upgrading), ("a-3".to_owned(), Upgrading)], "one may fail");
        machine.apply(&second.changes, later);
        ended(&mut machine, 2, Done);
        assert_eq!(machine.step(later, look), Step::default());

        ended(&mut machine, 3, Failed);

        let (state, reason) = machine.step(later, |_: &AgentId| version("2.0.0", 7)).end.unwrap();
        assert_eq!((state, reason.as_str()), (UpgradeState::Failed, "2 hosts failed, and at most 1 may"));
    }

    #[test]
    fn the_next_ring_waits_for_one_session_that_lasts() {
        let now = Instant::now();
        let mut machine = first_ring_done(&[1, 1], 0, now);
        let second = Duration::from_secs(1);
        let session = |epoch| {
            move |agent: &AgentId| {
                if agent.as_str() == "a-0" { version("2.0.0", epoch) } else { ready(agent) }
            }
        };

        assert_eq!(machine.step(now, session(1)), Step::default());
        assert_eq!(machine.step(now + SETTLE - second, session(1)), Step::default());
        // It crashed and came back between two looks.
        assert_eq!(machine.step(now + SETTLE, session(2)), Step::default());
        assert_eq!(machine.step(now + 2 * SETTLE - second, session(2)), Step::default());
        let begun = machine.step(now + 2 * SETTLE, session(2));

        assert_eq!(told(&begun), [("a-1".to_owned(), UpgradeHostState::Upgrading)]);
        machine.apply(&begun.changes, now);
        let gone = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { ready(agent) };
        let late = machine.step(now + 2 * SETTLE + second, gone);
        assert!(late.changes.is_empty() && late.end.is_none(), "what settled has settled");
    }

    #[test]
    fn a_host_that_does_not_keep_the_new_version_has_failed_after_all() {
        let now = Instant::now();
        let patience = LOST_MAX + Duration::from_secs(60);
        let absent = |_: &AgentId| Seen::Absent;
        let mut gone = first_ring_done(&[1, 1], 0, now);
        assert_eq!(gone.step(now, absent), Step::default());
        assert_eq!(gone.step(now + patience / 2, absent), Step::default());
        let mut back = first_ring_done(&[1, 1], 0, now);

        for step in [gone.step(now + patience, absent), back.step(now, ready)] {
            assert_eq!(told(&step), [("a-0".to_owned(), UpgradeHostState::Failed)]);
            assert_eq!(step.end.unwrap().0, UpgradeState::Failed);
        }
        let failed = UpgradeHostChange {
            agent: agent(0),
            state: UpgradeHostState::Failed,
            reason: messages::upgrade_gone_back("1.0.0"),
        };
        back.apply(&[failed], now);
        assert_eq!(back.count(UpgradeHostState::Failed), 1);
    }

    #[test]
    fn where_nobody_was_upgraded_a_person_decides_about_the_next_ring() {
        use UpgradeHostState::{Failed, Skipped, Upgrading};
        for of_first in [Skipped, Failed] {
            let (mut machine, now) = (machine(&[1, 1], 1), Instant::now());
            let first = machine.step(now, ready);
            machine.apply(&first.changes, now);
            ended(&mut machine, 0, of_first);

            let paused = machine.step(now, ready);

            assert_eq!((told(&paused), paused.end), (vec![], Some((UpgradeState::Paused, NOBODY_UPGRADED.to_owned()))));
            machine.upgrade.state = UpgradeState::Paused;
            assert_eq!(machine.step(now, ready), Step::default());
            machine.upgrade.state = UpgradeState::Running;
            machine.resumed();
            assert_eq!(told(&machine.step(now, ready)), [("a-1".to_owned(), Upgrading)]);
        }
    }

    #[test]
    fn a_server_that_starts_gives_hosts_time_to_come_back_and_knows_what_had_settled() {
        use UpgradeHostState::{Done, Upgrading};
        let (fresh, now) = (machine(&[1, 1, 1], 0), Instant::now());
        let restarted = |states: [UpgradeHostState; 3]| {
            let host = |(host, state): (&Host, UpgradeHostState)| UpgradeHost {
                agent: host.agent.clone(),
                host: "0:10.0.0.1".parse().unwrap(),
                ring: host.ring,
                state,
                reason: Message::plain(""),
                version_before: "1.0.0".into(),
                changed_at: 0,
            };
            UpgradeMachine::new(fresh.upgrade.clone(), fresh.hosts.iter().zip(states).map(host).collect())
        };
        let returning = |_: &AgentId| Seen::Returning;
        let waiting = UpgradeHostState::Waiting;

        let mut early = restarted([waiting, waiting, waiting]);
        assert_eq!(early.step(now, returning), Step::default());
        assert_eq!(early.step(now + 2 * ABSENT_MAX, returning), Step::default(), "nobody is skipped");
        assert_eq!(told(&early.step(now + 2 * ABSENT_MAX, ready)), [("a-0".to_owned(), Upgrading)]);
        let mut unsettled = restarted([Done, waiting, waiting]);
        assert_eq!(unsettled.step(now, first_is_new), Step::default());
        // The first ring had settled, or the second would not have begun.
        let mut later = restarted([Done, Upgrading, waiting]);
        let gone = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { version("2.0.0", 1) };
        ended(&mut later, 1, Done);
        assert_eq!(later.step(now, gone), Step::default());
        assert_eq!(told(&later.step(now + SETTLE, gone)), [("a-2".to_owned(), Done)]);
    }

    #[test]
    fn a_host_that_was_told_is_told_again_until_it_answers() {
        let (mut machine, now) = (machine(&[2], 0), Instant::now());
        let first = machine.step(now, ready);
        machine.apply(&first.changes, now);
        let look = |agent: &AgentId| if agent.as_str() == "a-0" { Seen::Absent } else { ready(agent) };
        // Also where no further host may begin.
        machine.upgrade.state = UpgradeState::Cancelled;
        let again = |number| Step { again: vec![agent(number)], ..Step::default() };

        assert_eq!(machine.step(now + ORDER_PERIOD / 2, look), Step::default());
        assert_eq!(machine.step(now + ORDER_PERIOD, look), again(1));
        assert_eq!(machine.step(now + ORDER_PERIOD, look), Step::default());
        ended(&mut machine, 1, UpgradeHostState::Done);
        assert_eq!(machine.step(now + 2 * ORDER_PERIOD, ready), again(0));
    }

    #[test]
    fn a_host_that_comes_and_goes_while_others_fetch_is_not_skipped() {
        let (mut machine, now) = (machine(&[200], 0), Instant::now());
        let first = machine.step(now, ready);
        machine.apply(&first.changes, now);
        let gone = |agent: &AgentId| if agent.as_str() == "a-199" { Seen::Absent } else { ready(agent) };

        machine.step(now, gone);
        machine.step(now + ABSENT_MAX / 2, ready);
        let step = machine.step(now + ABSENT_MAX, gone);

        assert!(step.changes.is_empty(), "{step:?}");
    }

    #[test]
    fn hosts_that_cannot_be_upgraded_are_skipped_and_the_others_go_on() {
        use UpgradeHostState::{Done, Skipped, Upgrading};
        let (mut machine, now) = (machine(&[5], 0), Instant::now());
        let look = |agent: &AgentId| match agent.as_str() {
            "a-0" => Seen::Absent,
            "a-1" => Seen::TooOld,
            "a-2" => Seen::Ready { arch: "riscv64".into(), version: "1.0.0".into(), epoch: 1 },
            "a-3" => version("2.0.0", 1),
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
        assert!(machine.step(now + ABSENT_MAX, gone).changes.is_empty(), "longer than one that was not told");
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
