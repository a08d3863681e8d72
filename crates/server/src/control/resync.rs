//! What an agent and the store have in common when a session opens.
//!
//! Promised: an agent that matches the store is sent nothing and sends nothing. Hashes of the store's current content
//! are compared, so nothing has to be invalidated, and a server restart changes nothing; whoever registers or
//! unregisters something from then on finds the session and marks it. An agent whose registrations do not match its
//! generation (it lost some, or could not read them) is sent everything again. What an agent says about itself counts
//! only for its own host.
//! Absent: usage, which follows with the next minute's report.

use proctor_model::AgentState;
use proctor_store::HostState;

use super::{Control, Session};

impl Control {
    /// Compares what the agent says it has with the store, and returns the epoch of the newest session known to the
    /// store. What cannot be read counts as different. The session must be visible to others before.
    pub(super) async fn compare_state(&self, session: &Session, said: Option<AgentState>) -> Option<u64> {
        let (store, agent) = (&self.inner.store, session.agent());
        let Some(said) = said else {
            let hosts = store.hosts_by_agent(std::slice::from_ref(agent)).await.ok()?;
            return Some(hosts.into_iter().flatten().next()?.epoch);
        };
        // Before the read: any change from now on sets it again.
        session.take_reassign();
        let known = store.host_state(agent).await;
        let verdict = Verdict::of(known.as_ref().ok().and_then(Option::as_ref), said, session.sent_generation());
        let Verdict { assigned, is_observed } = verdict;
        match assigned {
            Assigned::Equal => {}
            Assigned::Newer => session.want_assignments(),
            Assigned::Other => session.resync(),
        }
        if is_observed {
            session.knows_state();
        }
        self.inner.metrics.resync("assignments", assigned == Assigned::Equal);
        self.inner.metrics.resync("observations", is_observed);
        Some(known.ok()??.epoch)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    assigned: Assigned,
    /// The store has the same state of each process as the agent.
    is_observed: bool,
}

/// What the agent has of the registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assigned {
    Equal,
    /// Something has changed since the generation that it has seen.
    Newer,
    /// Nothing has, and still it has something else.
    Other,
}

impl Verdict {
    fn of(known: Option<&HostState>, said: AgentState, seen_generation: u64) -> Self {
        let Some(HostState { generation, state, .. }) = known else {
            return Self { assigned: Assigned::Newer, is_observed: false };
        };
        let assigned = if *generation > seen_generation {
            Assigned::Newer
        } else if state.assigned == said.assigned {
            Assigned::Equal
        } else {
            Assigned::Other
        };
        Self { assigned, is_observed: state.observed == said.observed }
    }
}

#[cfg(test)]
mod tests {
    use proctor_model::StateHash;

    use super::*;

    fn state(generation: u64, pid: u64) -> AgentState {
        AgentState {
            assigned: StateHash::of_assigned([("web", "a", generation)], []),
            observed: StateHash::of_observed([(("web", "a", pid), true)]),
        }
    }

    #[test]
    fn only_what_is_equal_is_not_told_and_only_what_is_older_is_told_in_part() {
        let known = HostState { epoch: 1, generation: 5, state: state(5, 7) };
        let verdict = |said, seen| Verdict::of(Some(&known), said, seen);

        assert_eq!(verdict(state(5, 7), 5), Verdict { assigned: Assigned::Equal, is_observed: true });
        assert_eq!(verdict(state(5, 7), 9), Verdict { assigned: Assigned::Equal, is_observed: true });
        assert_eq!(verdict(state(5, 7), 4), Verdict { assigned: Assigned::Newer, is_observed: true });
        assert_eq!(verdict(state(4, 7), 4), Verdict { assigned: Assigned::Newer, is_observed: true });
        assert_eq!(verdict(state(4, 7), 5), Verdict { assigned: Assigned::Other, is_observed: true });
        assert_eq!(verdict(state(5, 8), 5), Verdict { assigned: Assigned::Equal, is_observed: false });
        assert_eq!(Verdict::of(None, state(5, 7), 5), Verdict { assigned: Assigned::Newer, is_observed: false });
    }
}
