//! Targets without an outcome, by agent. Rebuilt from the store at startup.
//!
//! The age of a target is taken from the wall clock once, when it arrives here; from then on only the monotonic clock
//! counts, so that setting the clock neither ends a target nor keeps it open. For targets that wait for an offline
//! host, see [`waiting`].

mod waiting;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, Code, OperationId, OperationKind, Outcome, ProcessKey, Spec, TaskId, messages};
use proctor_store::{Millis, OpenTarget};

use super::Result;
use super::open_room::{OpenRooms, Opens};
use crate::pace::Pace;

/// How long a target waits for an agent that is not connected and not expected back; a client gets its result within
/// 3 s.
const ABSENCE_GRACE: Duration = Duration::from_secs(2);
/// How long an operation may take to reach its agent, and its outcome to come back. The way back is what is left when
/// an operation begins as late as it may.
pub(super) const TRAVEL: Duration = Duration::from_secs(5);

/// What the handshake of one agent may take, on a slow machine.
const HANDSHAKE_MAX: Duration = Duration::from_millis(5);
/// However large the fleet.
const RETURN_GRACE_MAX: Duration = Duration::from_secs(300);

/// After the server's own start, this many agents that were connected before get this long to come back: for what may
/// keep a live agent away, and for its turn among all others.
pub(super) fn return_grace(agents: usize) -> Duration {
    let handshakes = HANDSHAKE_MAX.saturating_mul(u32::try_from(agents).unwrap_or(u32::MAX));
    (Pace::of_fleet(agents).return_max() + handshakes).min(RETURN_GRACE_MAX)
}

/// An operation to be sent to its agent.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub operation: OperationId,
    pub key: ProcessKey,
    pub kind: OperationKind,
    pub spec: Option<Arc<Spec>>,
    /// It must not begin later, with the time for its way. What is left of it is told when it is sent.
    pub expires_at: Instant,
}

/// Why an agent is not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    Plain,
    /// Its relay is gone, and it is expected through another one in some seconds.
    Moving,
    /// No relay of its cloud area is connected.
    AreaCutOff {
        cloud: u32,
    },
}

#[derive(Debug)]
struct Pending {
    agent: AgentId,
    /// Without its agent.
    target: OpenTarget,
    added: Instant,
    /// Of an agent that is not connected, from then on nothing is expected that was not sent to it.
    give_up: Instant,
    deadline: Instant,
    /// On the present session.
    sent: bool,
    /// On any session: the agent may be at it.
    ever_sent: bool,
    cancelled: Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancelled {
    No,
    /// The agent has to be notified; not done on the current session.
    Untold,
    Told,
}

#[derive(Debug)]
pub(super) struct Dispatch {
    open: BTreeMap<OperationId, Pending>,
    /// The operations of each agent, in order.
    by_agent: HashMap<AgentId, Vec<OperationId>>,
    /// The agents that are connected, with the epoch of their session.
    connected: HashMap<AgentId, u64>,
    /// Agents that were connected when the server went down.
    expected: HashSet<AgentId>,
    /// Until then they may come back.
    return_until: Instant,
    /// Nothing that is open ends before; None where nothing is.
    quiet_until: Option<Instant>,
    /// How many open targets wait for offline hosts and were never delivered.
    undelivered_waits: usize,
    pub(super) rooms: OpenRooms,
}

impl Dispatch {
    /// Those that are expected may come back until then.
    pub(super) fn new(expected: HashSet<AgentId>, return_until: Instant) -> Self {
        Self {
            open: BTreeMap::new(),
            by_agent: HashMap::new(),
            connected: HashMap::new(),
            return_until,
            expected,
            quiet_until: None,
            undelivered_waits: 0,
            rooms: OpenRooms::default(),
        }
    }

    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// As [`Self::open_count`], without what waits for hosts that are offline.
    pub(super) fn rush_count(&self) -> usize {
        self.open.len().saturating_sub(self.undelivered_waits)
    }

    /// What is known of a target that has no outcome yet: since when it is open here, and the agent that it waits for.
    pub(super) fn open_target(&self, operation: &OperationId) -> Option<(Instant, &AgentId, &OpenTarget)> {
        self.open.get(operation).map(|pending| (pending.added, &pending.agent, &pending.target))
    }

    /// Room for targets that are to be added; released if they are not.
    pub(super) fn take_room(&mut self, account: &str, targets: usize, opens: Opens) -> Result<()> {
        self.rooms.take(self.open.len(), account, targets, opens)
    }

    /// What the server's earlier life left open; `now_ms` and `now` are the same moment on both clocks. `is_away_since` says
    /// whether an agent is known to have had no session from a time on.
    pub(super) fn take_up(
        &mut self,
        open: Vec<OpenTarget>,
        now_ms: Millis,
        now: Instant,
        is_away_since: impl Fn(&AgentId, Millis) -> bool,
    ) {
        let left = |target: OpenTarget| {
            let age = Duration::from_millis(u64::try_from(now_ms - target.created_at).unwrap_or(0));
            let wait = waiting::wait_of(&target);
            let left = (Duration::from_millis(target.time_limit_ms) + wait).saturating_sub(age);
            // It may have been delivered by that life or one before it, whether or not its agent was still connected
            // when the server died; unless it waits, and its agent has not been there since it was made.
            let is_away = |agent: &AgentId| is_away_since(agent, target.created_at);
            let is_unsent = !wait.is_zero() && target.agent.as_ref().is_some_and(is_away);
            Pending::new(target, now, now + left, wait.saturating_sub(age), !is_unsent)
        };
        let open = open.into_iter().filter_map(left).collect();
        self.insert(open);
    }

    /// Targets of a task that was just created. Returns those of their agents that are connected; one that connects
    /// later asks on its own.
    pub(super) fn add(&mut self, targets: Vec<OpenTarget>, now: Instant) -> Vec<AgentId> {
        let agents = targets.iter().filter_map(|target| target.agent.as_ref());
        let connected = agents.filter(|agent| self.connected.contains_key(agent)).cloned().collect();
        let new = |target: OpenTarget| {
            let wait = waiting::wait_of(&target);
            let deadline = now + wait + Duration::from_millis(target.time_limit_ms);
            Pending::new(target, now, deadline, wait, false)
        };
        self.insert(targets.into_iter().filter_map(new).collect());
        connected
    }

    fn insert(&mut self, new: Vec<Pending>) {
        self.quiet_until = new.iter().map(Pending::quiet_until).chain(self.quiet_until).min();
        self.undelivered_waits += new.iter().filter(|pending| pending.is_undelivered_wait()).count();
        for Pending { agent, target, .. } in &new {
            // Most agents have one at a time.
            let operations = self.by_agent.entry(agent.clone()).or_insert_with(|| Vec::with_capacity(1));
            if let Err(index) = operations.binary_search(&target.operation) {
                operations.insert(index, target.operation);
            }
        }
        let new = new.into_iter().map(|pending| (pending.target.operation, pending));
        if new.len() < self.open.len() {
            self.open.extend(new);
        } else {
            // Faster than one by one, as long as there is not much else to scan.
            self.open.append(&mut new.collect());
        }
    }

    /// Whether it was away before, as far as was reported.
    pub(super) fn connected(&mut self, agent: &AgentId, epoch: u64) -> bool {
        let was_expected = self.expected.remove(agent);
        let before = self.connected.get(agent).copied();
        if before.is_none_or(|newest| newest <= epoch) {
            self.connected.insert(agent.clone(), epoch);
            self.unsend(agent);
        }
        before.is_none() && !was_expected
    }

    /// Agents that were connected before the server's start and have not come back in time; reported once.
    pub(super) fn take_lost(&mut self, now: Instant) -> Vec<AgentId> {
        if now < self.return_until {
            return Vec::new();
        }
        self.expected.drain().collect()
    }

    pub(super) fn disconnected(&mut self, agent: &AgentId, epoch: u64) {
        if self.connected.get(agent) == Some(&epoch) {
            self.connected.remove(agent);
            self.unsend(agent);
        }
    }

    /// As [`Self::disconnected`], for an agent that is still on its way back.
    pub(super) fn still_returns(&mut self, agent: &AgentId, epoch: u64) {
        self.disconnected(agent, epoch);
        self.expected.insert(agent.clone());
    }

    /// The next session sends everything again; the agent's ledger tells what is already done.
    fn unsend(&mut self, agent: &AgentId) {
        for operation in self.by_agent.get(agent).into_iter().flatten() {
            let Some(pending) = self.open.get_mut(operation) else { continue };
            pending.sent = false;
            if pending.cancelled == Cancelled::Told {
                pending.cancelled = Cancelled::Untold;
            }
        }
    }

    /// Marks the open targets of a task, so that they are no longer delivered. Returns those that no agent has
    /// received, to be ended at once, and the agents that must be notified.
    pub(super) fn cancel(&mut self, task: TaskId) -> (Vec<OperationId>, HashSet<AgentId>) {
        let (mut unsent, mut told) = (Vec::new(), HashSet::new());
        for (operation, pending) in self.open.range_mut(OperationId::all_of(task)) {
            if pending.cancelled == Cancelled::No {
                pending.cancelled = Cancelled::Untold;
                if pending.ever_sent {
                    told.insert(pending.agent.clone());
                } else {
                    unsent.push(*operation);
                }
            }
        }
        (unsent, told)
    }

    /// Cancelled operations that the agent may be running and was not notified of on this session.
    pub(super) fn take_cancels(&mut self, agent: &AgentId, epoch: u64) -> Vec<OperationId> {
        let mut untold = Vec::new();
        if self.connected.get(agent) != Some(&epoch) {
            return untold;
        }
        for operation in self.by_agent.get(agent).into_iter().flatten() {
            let Some(pending) = self.open.get_mut(operation) else { continue };
            if pending.ever_sent && pending.cancelled == Cancelled::Untold {
                pending.cancelled = Cancelled::Told;
                untold.push(*operation);
            }
        }
        untold
    }

    /// The process of an operation of that agent that has no outcome yet.
    pub(super) fn process_of(&self, agent: &AgentId, operation: &OperationId) -> Option<ProcessKey> {
        let pending = self.open.get(operation).filter(|pending| pending.agent == *agent)?;
        Some(pending.target.key.clone())
    }

    /// What the session of this epoch has not sent yet; nothing for a session that is no longer
    /// the newest, and nothing that could not be answered in time.
    pub(super) fn take_deliveries(&mut self, agent: &AgentId, epoch: u64, now: Instant, max: usize) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        if self.connected.get(agent) != Some(&epoch) {
            return deliveries;
        }
        for operation in self.by_agent.get(agent).into_iter().flatten() {
            if deliveries.len() == max {
                break;
            }
            let unsent = self.open.get_mut(operation).filter(|pending| pending.is_deliverable(now));
            let Some(pending) = unsent else { continue };
            self.undelivered_waits -= usize::from(pending.is_undelivered_wait());
            deliveries.push(pending.deliver(now));
            // Of one that waited the time counts from now.
            self.quiet_until = self.quiet_until.into_iter().chain([pending.quiet_until()]).min();
        }
        deliveries
    }

    /// The agent does not come back; returns its open targets.
    pub(super) fn forget(&mut self, agent: &AgentId) -> Vec<OperationId> {
        self.expected.remove(agent);
        self.by_agent.get(agent).cloned().unwrap_or_default()
    }

    /// Removes what is final now and returns the agents concerned.
    pub(super) fn close<'o>(
        &mut self,
        operations: impl IntoIterator<Item = &'o OperationId>,
    ) -> HashMap<AgentId, Vec<OperationId>> {
        let mut closed: HashMap<AgentId, Vec<OperationId>> = HashMap::new();
        for operation in operations {
            let Some(pending) = self.open.remove(operation) else { continue };
            self.undelivered_waits -= usize::from(pending.is_undelivered_wait());
            let agent = pending.agent;
            self.rooms.closed(operation.task);
            closed.entry(agent).or_default().push(*operation);
        }
        for (agent, gone) in &mut closed {
            let Some(left) = self.by_agent.get_mut(agent) else { continue };
            gone.sort_unstable();
            left.retain(|operation| gone.binary_search(operation).is_err());
            if left.is_empty() {
                self.by_agent.remove(agent);
            }
        }
        closed
    }

    /// Targets that end without an answer from their agent. Looks at what is open only when something
    /// of it may end. `absence` is asked of agents that are not connected.
    pub(super) fn overdue(
        &mut self,
        now: Instant,
        absence: impl Fn(&AgentId) -> Absence,
    ) -> Vec<(OperationId, Outcome)> {
        if self.quiet_until.is_none_or(|until| now < until) {
            return Vec::new();
        }
        self.quiet_until = self.open.values().map(Pending::quiet_until).min();
        let may_return = now < self.return_until;
        let ends = |pending: &Pending| {
            if now < pending.quiet_until() {
                return None;
            }
            let agent = &pending.agent;
            let is_expected = may_return && self.expected.contains(agent);
            verdict(pending, now, self.connected.contains_key(agent), is_expected, &absence)
        };
        let ended: Vec<_> =
            self.open.iter().filter_map(|(operation, pending)| Some((*operation, ends(pending)?))).collect();
        // An agent that connects before this is recorded does not get it any more.
        for (operation, _) in &ended {
            if let Some(pending) = self.open.get_mut(operation).filter(|pending| !pending.ever_sent) {
                pending.cancelled = Cancelled::Untold;
            }
        }
        ended
    }
}

impl Pending {
    /// None for a target without an agent.
    fn new(mut target: OpenTarget, added: Instant, deadline: Instant, wait: Duration, ever_sent: bool) -> Option<Self> {
        let agent = target.agent.take()?;
        let give_up = added + wait.max(ABSENCE_GRACE);
        Some(Self { agent, target, added, give_up, deadline, sent: false, ever_sent, cancelled: Cancelled::No })
    }

    /// It does not end before, whether its agent is there or not. Only ever moves on, but for a delivery.
    fn quiet_until(&self) -> Instant {
        if self.ever_sent { self.deadline } else { self.deadline.min(self.give_up) }
    }

    fn is_deliverable(&self, now: Instant) -> bool {
        !self.sent && self.cancelled == Cancelled::No && self.deadline > now + TRAVEL
    }

    /// Only of one that is deliverable.
    fn deliver(&mut self, now: Instant) -> Delivery {
        self.begin_running(now);
        self.sent = true;
        self.ever_sent = true;
        Delivery {
            operation: self.target.operation,
            key: self.target.key.clone(),
            kind: self.target.kind,
            spec: self.target.spec.clone().filter(|_| self.target.wait_ms == 0),
            expires_at: self.deadline - TRAVEL,
        }
    }
}

fn verdict(
    pending: &Pending,
    now: Instant,
    is_connected: bool,
    may_return: bool,
    absence: impl Fn(&AgentId) -> Absence,
) -> Option<Outcome> {
    let agent = &pending.agent;
    let absent = |message| Some(Outcome::new(Code::AgentAbsent, message, false));
    let is_late = pending.deadline <= now;
    let is_given_up = !may_return && now >= pending.give_up;
    match (is_connected, pending.ever_sent) {
        (true, _) if is_late => {
            let secs = pending.target.time_limit_ms / 1000;
            let message = messages::agent_gave_no_outcome(agent, secs);
            Some(Outcome::new(Code::CommandFailed, message, false))
        }
        (true, _) => None,
        (false, false) if is_late || is_given_up => match absence(agent) {
            Absence::Moving if !is_late => None,
            Absence::Moving | Absence::Plain => absent(messages::agent_not_connected(agent)),
            Absence::AreaCutOff { cloud } => absent(messages::area_unreachable(agent, cloud)),
        },
        (false, false) => None,
        (false, true) if is_late && !may_return => absent(messages::agent_lost(agent)),
        (false, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::TaskId;
    use uuid::Uuid;

    use super::*;

    /// Of a server that starts now.
    fn dispatch(now: Instant, expected: HashSet<AgentId>) -> Dispatch {
        let return_until = now + return_grace(expected.len());
        Dispatch::new(expected, return_until)
    }

    fn agent() -> AgentId {
        "a".parse().unwrap()
    }

    fn target(index: u32, created_at: Millis) -> OpenTarget {
        OpenTarget {
            operation: OperationId::first(TaskId::from_uuid(Uuid::nil()), index),
            agent: Some(agent()),
            key: "ns/p".parse().unwrap(),
            kind: OperationKind::Stop,
            spec: None,
            created_at,
            time_limit_ms: 80_000,
            wait_ms: 0,
        }
    }

    #[test]
    fn what_is_overdue_is_not_delivered_any_more() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::from([agent()]));
        dispatch.take_up(vec![target(0, 0)], 300_000, now, |_, _| true);
        dispatch.connected(&agent(), 1);

        assert!(dispatch.take_deliveries(&agent(), 1, now, 10).is_empty());
        assert_eq!(dispatch.overdue(now, |_| Absence::Plain).len(), 1);
    }

    #[test]
    fn a_fenced_session_takes_nothing_from_the_newer_one() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::new());
        dispatch.connected(&agent(), 1);
        dispatch.add(vec![target(0, 0)], now);
        dispatch.connected(&agent(), 2);

        assert!(dispatch.take_deliveries(&agent(), 1, now, 10).is_empty());
        dispatch.disconnected(&agent(), 1);
        assert_eq!(dispatch.take_deliveries(&agent(), 2, now, 10).len(), 1);
    }

    #[test]
    fn an_agent_that_was_away_before_the_start_is_waited_for_no_longer_than_at_any_other_time() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::from(["b".parse().unwrap()]));
        dispatch.add(vec![target(0, 0)], now);

        assert!(dispatch.overdue(now + Duration::from_millis(1900), |_| Absence::Plain).is_empty());
        assert_eq!(dispatch.overdue(now + ABSENCE_GRACE, |_| Absence::Plain)[0].1.code, Code::AgentAbsent);
    }

    #[test]
    fn an_operation_waits_for_an_agent_that_moves_to_another_relay() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::new());
        dispatch.add(vec![target(0, 0)], now);
        let at = |seconds| now + Duration::from_secs(seconds);

        assert!(dispatch.overdue(at(10), |_| Absence::Moving).is_empty());
        let ended = dispatch.overdue(at(15), |_| Absence::AreaCutOff { cloud: 3 });
        assert_eq!(ended[0].1.message, messages::area_unreachable(agent(), 3));
        let ended = dispatch.overdue(at(80), |_| Absence::Moving);
        assert_eq!(ended[0].1.message, messages::agent_not_connected(agent()), "its time is over");
        dispatch.connected(&agent(), 1);
        assert!(dispatch.take_deliveries(&agent(), 1, at(12), 10).is_empty(), "it has ended");

        let mut dispatch = self::dispatch(now, HashSet::new());
        dispatch.add(vec![target(0, 0)], now);
        assert!(dispatch.overdue(at(10), |_| Absence::Moving).is_empty());
        dispatch.connected(&agent(), 1);
        assert_eq!(dispatch.take_deliveries(&agent(), 1, at(12), 10).len(), 1);
    }

    #[test]
    fn what_was_not_sent_waits_for_an_agent_that_is_expected_back() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::from([agent()]));
        dispatch.add(vec![target(0, 0)], now);
        let almost = now + return_grace(1) - Duration::from_millis(1);

        assert!(dispatch.overdue(now + ABSENCE_GRACE, |_| Absence::Plain).is_empty());
        assert!(dispatch.overdue(almost, |_| Absence::Plain).is_empty());
        dispatch.connected(&agent(), 1);
        assert_eq!(dispatch.take_deliveries(&agent(), 1, almost, 10).len(), 1);
    }

    #[test]
    fn who_did_not_come_back_in_the_grace_is_absent_within_moments_from_then_on() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::from([agent()]));
        dispatch.add(vec![target(0, 0)], now);
        let over = now + return_grace(1);

        let first = dispatch.overdue(over, |_| Absence::Plain);
        dispatch.close(first.iter().map(|(operation, _)| operation));
        dispatch.add(vec![target(1, 0)], over);

        assert_eq!(first[0].1.message, messages::agent_not_connected(agent()));
        assert!(dispatch.overdue(over + Duration::from_millis(1900), |_| Absence::Plain).is_empty());
        assert_eq!(dispatch.overdue(over + ABSENCE_GRACE, |_| Absence::Plain)[0].1.code, Code::AgentAbsent);
    }

    #[test]
    fn what_was_not_sent_ends_in_its_own_time_whoever_is_expected() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::from([agent()]));
        dispatch.add(vec![OpenTarget { time_limit_ms: 5_000, ..target(0, 0) }], now);

        assert!(dispatch.overdue(now + Duration::from_millis(4_900), |_| Absence::Plain).is_empty());
        assert_eq!(dispatch.overdue(now + Duration::from_secs(5), |_| Absence::Plain)[0].1.code, Code::AgentAbsent);
    }

    #[test]
    fn the_grace_covers_what_may_keep_an_agent_away_that_lives() {
        for agents in [1, 100, 1_000, 10_000, 50_000] {
            let away = Pace::of_fleet(agents).return_max();
            assert!(return_grace(agents) >= away && return_grace(agents) <= RETURN_GRACE_MAX, "{agents} agents");
        }
        assert!(return_grace(10) < Duration::from_secs(31), "a small fleet is soon certain");
        assert_eq!(return_grace(usize::MAX), RETURN_GRACE_MAX);
    }

    #[test]
    fn a_look_that_found_nothing_misses_nothing_later() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::new());
        dispatch.connected(&agent(), 1);
        dispatch.add(vec![target(0, 0)], now);
        dispatch.take_deliveries(&agent(), 1, now, 10);
        assert!(dispatch.overdue(now + Duration::from_secs(5), |_| Absence::Plain).is_empty());
        dispatch.disconnected(&agent(), 1);
        dispatch.add(vec![target(1, 0)], now + Duration::from_secs(5));

        let soon = dispatch.overdue(now + Duration::from_secs(7), |_| Absence::Plain);
        let in_the_end = dispatch.overdue(now + Duration::from_secs(80), |_| Absence::Plain);

        assert_eq!(soon.iter().map(|(operation, _)| operation.index).collect::<Vec<_>>(), [1]);
        assert_eq!(in_the_end.iter().map(|(operation, _)| operation.index).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn what_an_expected_agent_may_be_at_waits_for_its_return() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::from([agent()]));
        dispatch.take_up(vec![target(0, 0)], 79_000, now, |_, _| true);

        assert!(dispatch.overdue(now + Duration::from_secs(5), |_| Absence::Plain).is_empty());
        assert_eq!(dispatch.overdue(now + return_grace(1), |_| Absence::Plain).len(), 1);
    }

    #[test]
    fn what_an_earlier_life_may_have_delivered_is_not_called_undelivered_although_its_agent_was_away() {
        let now = Instant::now();
        let mut dispatch = dispatch(now, HashSet::new());
        dispatch.take_up(vec![target(0, 0)], 1_000, now, |_, _| true);

        assert!(dispatch.overdue(now + ABSENCE_GRACE, |_| Absence::Plain).is_empty());
        let ended = dispatch.overdue(now + Duration::from_secs(79), |_| Absence::Plain);
        assert_eq!(ended[0].1.message, messages::agent_lost(agent()));
    }

    #[test]
    fn what_is_closed_is_named_by_agent_and_the_rest_stays_open() {
        let now = Instant::now();
        let other: AgentId = "b".parse().unwrap();
        let mut dispatch = dispatch(now, HashSet::new());
        dispatch.connected(&agent(), 1);
        dispatch.add(vec![target(1, 0), target(0, 0), target(2, 0)], now);
        dispatch.add(vec![OpenTarget { agent: Some(other.clone()), ..target(3, 0) }], now);
        let operation = |index| target(index, 0).operation;

        let closed = dispatch.close(&[operation(3), operation(1), operation(7)]);

        assert_eq!(closed, HashMap::from([(agent(), vec![operation(1)]), (other.clone(), vec![operation(3)])]));
        assert!(dispatch.process_of(&other, &operation(3)).is_none());
        assert!(dispatch.process_of(&other, &operation(2)).is_none());
        assert!(dispatch.process_of(&agent(), &operation(2)).is_some());
        let left: Vec<_> = dispatch.take_deliveries(&agent(), 1, now, 10).into_iter().map(|it| it.operation).collect();
        assert_eq!(left, [operation(0), operation(2)]);
    }

    #[test]
    fn a_cancelled_target_is_not_delivered_and_an_agent_that_may_be_at_it_is_told_on_each_session() {
        let now = Instant::now();
        let task = TaskId::from_uuid(Uuid::nil());
        let mut dispatch = dispatch(now, HashSet::new());
        dispatch.connected(&agent(), 1);
        dispatch.add(vec![target(0, 0)], now);
        dispatch.take_deliveries(&agent(), 1, now, 10);
        dispatch.add(vec![target(1, 0)], now);

        let (unsent, told) = dispatch.cancel(task);

        assert_eq!(unsent, [OperationId::first(task, 1)]);
        assert_eq!(told, HashSet::from([agent()]));
        assert_eq!(dispatch.take_cancels(&agent(), 1), [OperationId::first(task, 0)]);
        assert!(dispatch.take_cancels(&agent(), 1).is_empty());
        dispatch.connected(&agent(), 2);
        assert!(dispatch.take_deliveries(&agent(), 2, now, 10).is_empty());
        assert_eq!(dispatch.take_cancels(&agent(), 2), [OperationId::first(task, 0)]);
    }
}
