//! Targets that wait for an offline host, for as long as their call said.
//!
//! Promised: such a target is delivered when its host connects, and ends as absent when its wait is over; from
//! delivery on it has the time that any operation has. It operates on what is registered when it is delivered: its
//! spec may have been replaced while it waited. A restart of the server changes nothing: the wait counts from the
//! task's creation (or the target's release), and what no agent can have received is still undelivered, so a cancel
//! ends it at once. An agent that had a session meanwhile may have it: that target is waited for until its time is
//! over, like any other.
//! Absent: permissions of the creator (see `waits`), and maintenance (see `outcomes`, which ends what waits on a host that was cordoned since).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proctor_model::{AgentId, OperationId, TaskId};
use proctor_store::OpenTarget;

use super::super::maintenance;
use super::{Cancelled, Dispatch, Pending};

pub(super) fn wait_of(target: &OpenTarget) -> Duration {
    Duration::from_millis(target.wait_ms)
}

impl Dispatch {
    /// Starts that wait for these agents, and were never delivered.
    pub(in super::super) fn waiting_for(&self, agents: &[AgentId]) -> Vec<OpenTarget> {
        let operations = agents.iter().filter_map(|agent| self.by_agent.get(agent)).flatten();
        let brings_up = |pending: &&Pending| pending.is_waiting() && maintenance::brings_up(pending.target.kind);
        let waiting = operations.filter_map(|operation| self.open.get(operation)).filter(brings_up);
        waiting.map(|pending| OpenTarget { agent: Some(pending.agent.clone()), ..pending.target.clone() }).collect()
    }

    /// Everything that waits and was never delivered, by task.
    pub(in super::super) fn all_waiting(&self) -> BTreeMap<TaskId, Vec<OpenTarget>> {
        let mut by_task: BTreeMap<TaskId, Vec<OpenTarget>> = BTreeMap::new();
        if self.undelivered_waits == 0 {
            return by_task;
        }
        for (operation, pending) in self.open.iter().filter(|(_, pending)| pending.is_waiting()) {
            let target = OpenTarget { agent: Some(pending.agent.clone()), ..pending.target.clone() };
            by_task.entry(operation.task).or_default().push(target);
        }
        by_task
    }

    /// Marks what still waits, so that it is not delivered any more; whether it did.
    pub(in super::super) fn end_waiting(&mut self, operation: &OperationId) -> bool {
        let Some(pending) = self.open.get_mut(operation).filter(|pending| pending.is_waiting()) else { return false };
        pending.cancelled = Cancelled::Untold;
        true
    }

    /// As [`Self::end_waiting`], of everything that waits for these agents.
    pub(in super::super) fn end_all_waiting(&mut self, agents: &[AgentId]) -> Vec<OperationId> {
        let operations = agents.iter().filter_map(|agent| self.by_agent.get(agent)).flatten().copied();
        let operations: Vec<_> = operations.collect();
        operations.into_iter().filter(|operation| self.end_waiting(operation)).collect()
    }

    /// The agent that a target waits for, and how long it still does; None of one that does not wait.
    pub(in super::super) fn wait_left(&self, operation: &OperationId, now: Instant) -> Option<(AgentId, Duration)> {
        let pending = self.open.get(operation).filter(|pending| pending.is_waiting())?;
        let is_away = !self.connected.contains_key(&pending.agent);
        is_away.then(|| (pending.agent.clone(), pending.give_up.saturating_duration_since(now)))
    }
}

impl Pending {
    pub(super) fn is_undelivered_wait(&self) -> bool {
        self.target.wait_ms > 0 && !self.ever_sent
    }

    fn is_waiting(&self) -> bool {
        self.is_undelivered_wait() && self.cancelled == Cancelled::No
    }

    /// From its delivery on, what has waited has the time that any operation has.
    pub(super) fn begin_running(&mut self, now: Instant) {
        if self.is_waiting() {
            self.deadline = now + Duration::from_millis(self.target.time_limit_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proctor_model::{Code, OperationKind, messages};
    use uuid::Uuid;

    use super::super::{Absence, TRAVEL};
    use super::*;

    const WAIT: Duration = Duration::from_secs(600);
    const LIMIT: Duration = Duration::from_secs(80);

    fn agent() -> AgentId {
        "a".parse().unwrap()
    }

    fn target(index: u32) -> OpenTarget {
        OpenTarget {
            operation: OperationId::first(TaskId::from_uuid(Uuid::nil()), index),
            agent: Some(agent()),
            key: "ns/p".parse().unwrap(),
            kind: OperationKind::Start,
            spec: Some(proctor_store::conformance::spec("one")),
            created_at: 0,
            time_limit_ms: 80_000,
            wait_ms: 600_000,
        }
    }

    fn dispatch(now: Instant) -> Dispatch {
        Dispatch::new(HashSet::new(), now)
    }

    #[test]
    fn what_has_ended_is_not_delivered_to_a_host_that_connects_before_it_is_recorded() {
        let now = Instant::now();
        let mut dispatch = dispatch(now);
        dispatch.add(vec![target(0), target(1)], now);
        let [first, second] = [0, 1].map(|index| target(index).operation);
        assert_eq!(dispatch.rush_count(), 0, "who waits is in no hurry");

        assert!(dispatch.end_waiting(&first));
        assert!(!dispatch.end_waiting(&first), "once");
        let late = now + WAIT;
        let ended = dispatch.overdue(late, |_| Absence::Plain);
        assert!(ended.iter().any(|(operation, _)| *operation == second));
        dispatch.connected(&agent(), 1);

        assert!(dispatch.take_deliveries(&agent(), 1, late, 10).is_empty());
        dispatch.close([&first, &second]);
        assert_eq!((dispatch.rush_count(), dispatch.open_count()), (0, 0));
    }

    #[test]
    fn what_waits_for_an_agent_that_lost_its_host_ends_and_the_rest_goes_on() {
        let now = Instant::now();
        let mut dispatch = dispatch(now);
        let other: AgentId = "b".parse().unwrap();
        dispatch.add(vec![target(0), OpenTarget { agent: Some(other.clone()), ..target(1) }], now);

        let ended = dispatch.end_all_waiting(&[agent()]);

        assert_eq!(ended, [target(0).operation]);
        dispatch.connected(&other, 1);
        assert_eq!(dispatch.take_deliveries(&other, 1, now, 10).len(), 1);
        assert_eq!(dispatch.rush_count(), 1, "the one that was delivered");
    }

    #[test]
    fn a_target_waits_for_its_host_and_then_has_the_time_of_any_other() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut dispatch = dispatch(now);
        dispatch.add(vec![target(0)], now);

        assert!(dispatch.overdue(at(599), |_| Absence::Plain).is_empty());
        assert_eq!(dispatch.wait_left(&target(0).operation, at(500)), Some((agent(), Duration::from_secs(100))));
        dispatch.connected(&agent(), 1);
        assert_eq!(dispatch.wait_left(&target(0).operation, at(500)), None);
        let delivered = dispatch.take_deliveries(&agent(), 1, at(500), 10);

        assert_eq!(delivered.len(), 1);
        assert_eq!(delivered[0].expires_at, at(500) + LIMIT - TRAVEL);
        assert_eq!(delivered[0].spec, None, "what is registered then");
        assert!(dispatch.overdue(at(579), |_| Absence::Plain).is_empty());
        let late = dispatch.overdue(at(580), |_| Absence::Plain);
        assert_eq!(late[0].1.message, messages::agent_gave_no_outcome(agent(), 80));
    }

    #[test]
    fn a_host_that_comes_at_once_is_no_reason_to_look_later_than_its_time() {
        let now = Instant::now();
        let mut dispatch = dispatch(now);
        dispatch.connected(&agent(), 1);
        dispatch.add(vec![target(0)], now);
        dispatch.take_deliveries(&agent(), 1, now, 10);

        assert!(dispatch.overdue(now + LIMIT - Duration::from_secs(1), |_| Absence::Plain).is_empty());
        assert_eq!(dispatch.overdue(now + LIMIT, |_| Absence::Plain).len(), 1);
    }

    #[test]
    fn when_the_wait_is_over_the_agent_is_absent_or_its_area_unreachable() {
        let now = Instant::now();
        let mut dispatch = dispatch(now);
        dispatch.add(vec![target(0), OpenTarget { wait_ms: 0, ..target(1) }], now);

        let soon = dispatch.overdue(now + Duration::from_secs(2), |_| Absence::Plain);
        let ended = dispatch.overdue(now + WAIT, |_| Absence::AreaCutOff { cloud: 3 });

        assert_eq!(soon.iter().map(|(operation, _)| operation.index).collect::<Vec<_>>(), [1], "the other fails fast");
        assert_eq!(ended[0].1.message, messages::area_unreachable(agent(), 3));
        assert_eq!(ended[0].1.code, Code::AgentAbsent);
    }

    #[test]
    fn a_restart_of_the_server_goes_on_with_the_wait_and_knows_what_nobody_can_have_heard() {
        let now = Instant::now();
        let task = TaskId::from_uuid(Uuid::nil());
        let taken_up = |is_away: bool| {
            let mut dispatch = dispatch(now);
            dispatch.take_up(vec![target(0)], 400_000, now, |of, since| is_away && *of == agent() && since == 0);
            dispatch
        };
        let secs = Duration::from_secs;

        let mut away = taken_up(true);
        assert!(away.overdue(now + secs(199), |_| Absence::Plain).is_empty());
        assert_eq!(away.wait_left(&target(0).operation, now), Some((agent(), secs(200))));
        let ended = away.overdue(now + secs(200), |_| Absence::Plain);
        assert_eq!(ended[0].1.message, messages::agent_not_connected(agent()));
        assert_eq!(taken_up(true).cancel(task).0, [target(0).operation], "nobody has to be told");

        // It had a session since: it may be at it.
        let mut seen = taken_up(false);
        assert!(seen.overdue(now + secs(279), |_| Absence::Plain).is_empty());
        assert_eq!(seen.overdue(now + secs(280), |_| Absence::Plain)[0].1.message, messages::agent_lost(agent()));
        assert!(taken_up(false).cancel(task).0.is_empty());
    }

    #[test]
    fn what_waits_for_an_agent_is_known_until_it_is_delivered_or_cancelled() {
        let now = Instant::now();
        let mut dispatch = dispatch(now);
        dispatch.add(vec![target(0), OpenTarget { wait_ms: 0, ..target(1) }], now);
        let other: AgentId = "b".parse().unwrap();

        assert_eq!(dispatch.waiting_for(&[other.clone(), agent()]), [target(0)]);
        assert!(dispatch.waiting_for(&[other]).is_empty());
        dispatch.connected(&agent(), 1);
        dispatch.take_deliveries(&agent(), 1, now, 10);
        assert!(dispatch.waiting_for(&[agent()]).is_empty());
    }
}
