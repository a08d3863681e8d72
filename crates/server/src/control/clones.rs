//! Copies of an agent's state directory: how they are detected, and reported.
//!
//! Promised: while a run of an agent is alive, no other run with the same identity gets a session, however rare the
//! fleet's heartbeats are. A refused copy raises the event `agent_cloned`, at most once per [`TELL_PERIOD`] and
//! agent; a run that has just died, and whose successor is refused for a moment, raises none: it is not heard again.
//! Absent: which of two states is older, which the store knows by the epoch that each has seen.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{AgentId, EventKind, messages};

use super::{Control, Greeting, Session};

/// A run heard more recently than this is alive; one that crashed is silent, and its successor waits for this long.
const HEARD_MIN: Duration = Duration::from_secs(10);
const TELL_PERIOD: Duration = Duration::from_secs(600);

/// For how long after its last word a run counts as there: a heartbeat may be late.
pub(super) fn heard_within(beat: Duration) -> Duration {
    (beat * 3 / 2).max(HEARD_MIN)
}

/// Agents of which a copy was refused recently.
#[derive(Debug, Default)]
pub(super) struct Clones(Mutex<HashMap<AgentId, Refusals>>);

#[derive(Debug)]
struct Refusals {
    /// Of the session that was there, and when its copy was refused first.
    epoch: u64,
    since: Instant,
    last: Instant,
    told: Option<Instant>,
}

impl Clones {
    /// A run was refused because the session of this epoch was there, last heard at `heard`. Returns whether to
    /// report it.
    fn refused(&self, agent: &AgentId, epoch: u64, heard: Instant, now: Instant) -> bool {
        let mut clones = self.0.lock();
        let refusals = Self::entry(&mut clones, agent, epoch, now);
        refusals.last = now;
        // Heard after another run had come: there are two.
        heard > refusals.since && refusals.tell(now)
    }

    /// A run came with an older state than the store has seen. Returns whether to report it.
    fn came_late(&self, agent: &AgentId, now: Instant) -> bool {
        let mut clones = self.0.lock();
        let refusals = Self::entry(&mut clones, agent, 0, now);
        refusals.last = now;
        refusals.tell(now)
    }

    fn entry<'c>(
        clones: &'c mut HashMap<AgentId, Refusals>,
        agent: &AgentId,
        epoch: u64,
        now: Instant,
    ) -> &'c mut Refusals {
        clones.retain(|_, refusals| now.saturating_duration_since(refusals.last) < TELL_PERIOD);
        let new = Refusals { epoch, since: now, last: now, told: None };
        let refusals = clones.entry(agent.clone()).or_insert(new);
        if refusals.epoch != epoch {
            (refusals.epoch, refusals.since) = (epoch, now);
        }
        refusals
    }
}

impl Refusals {
    fn tell(&mut self, now: Instant) -> bool {
        let is_due = self.told.is_none_or(|at| now.saturating_duration_since(at) >= TELL_PERIOD);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }
}

impl Control {
    /// The session of another run of the same agent that was there a moment ago: one of them uses a
    /// copy of the state directory. Behind a relay an agent is known to be there only when it comes; later, the epoch
    /// that each run has seen tells them apart.
    pub fn clone_of(&self, greeting: &Greeting) -> Option<Arc<Session>> {
        let present = self.inner.sessions.get(&greeting.opening.agent)?;
        let is_heard = present.proved_at().elapsed() < heard_within(present.beat());
        (!present.is_same_run(greeting) && is_heard).then_some(present)
    }

    /// A run of the agent was refused because another one is connected.
    pub(crate) async fn refused_clone(&self, agent: &AgentId, peer: SocketAddr) {
        let Some(present) = self.inner.sessions.get(agent) else { return };
        if self.inner.clones.refused(agent, present.epoch(), present.proved_at(), Instant::now()) {
            self.tell_cloned(agent, peer, "connected").await;
        }
    }

    /// A run of the agent was refused because its state is older than what the store has seen of it.
    pub(crate) async fn refused_old_copy(&self, agent: &AgentId, peer: SocketAddr) {
        if self.inner.clones.came_late(agent, Instant::now()) {
            self.tell_cloned(agent, peer, "old_state").await;
        }
    }

    async fn tell_cloned(&self, agent: &AgentId, peer: SocketAddr, reason: &str) {
        let address = peer.ip().to_string();
        let content = messages::agent_copy_refused(agent, &address);
        let details = [("address", address), ("reason", reason.to_owned())];
        let details: BTreeMap<_, _> = details.map(|(name, value)| (name.to_owned(), value)).into();
        self.tell_of_agent(agent, EventKind::AgentCloned, content, details).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentId {
        "a".parse().unwrap()
    }

    #[test]
    fn a_run_is_heard_between_two_beats_however_large_the_fleet() {
        for beat in [3, 5, 11, 20].map(Duration::from_secs) {
            assert!(heard_within(beat) > beat && heard_within(beat) >= HEARD_MIN, "{beat:?}");
        }
    }

    #[test]
    fn two_runs_that_are_both_heard_are_told_once_in_a_period() {
        let (clones, begun) = (Clones::default(), Instant::now());
        let at = |secs| begun + Duration::from_secs(secs);

        let told: Vec<_> = (0..2000).step_by(5).filter(|now| clones.refused(&agent(), 7, at(*now), at(*now))).collect();

        assert_eq!(told, [5, 605, 1205, 1805]);
    }

    #[test]
    fn the_successor_of_a_run_that_died_is_no_copy() {
        let (clones, died) = (Clones::default(), Instant::now());
        let at = |secs| died + Duration::from_secs(secs);

        assert!((1..30).all(|now| !clones.refused(&agent(), 7, died, at(now))));
        assert!(!clones.refused(&agent(), 8, at(31), at(32)), "the next session, and the first refusal beside it");
        assert!(clones.came_late(&agent(), at(33)));
    }
}
