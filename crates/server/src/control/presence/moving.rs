//! Agents that are away and may still come back.
//!
//! Promised: the number of those that left with the server's earlier run is counted as they come and go. Every hello
//! asks for it while a whole fleet reconnects, so it must not scan them all.
//! Absent: when they are given up.

use std::collections::HashMap;
use std::time::Instant;

use proctor_model::AgentId;

use super::{Away, Left};

#[derive(Debug, Default)]
pub(super) struct Moving {
    by_agent: HashMap<AgentId, Away>,
    left_with_server: usize,
}

impl Moving {
    /// Of those that came back after a restart of the server and were put off.
    pub(super) fn left_with_server(&self) -> usize {
        self.left_with_server
    }

    pub(super) fn contains(&self, agent: &AgentId) -> bool {
        self.by_agent.contains_key(agent)
    }

    pub(super) fn get(&self, agent: &AgentId) -> Option<&Away> {
        self.by_agent.get(agent)
    }

    pub(super) fn suspect_count(&self) -> usize {
        self.by_agent.values().filter(|away| away.is_suspect()).count()
    }

    pub(super) fn insert(&mut self, agent: AgentId, away: Away) {
        self.left_with_server += counted(&away);
        if let Some(before) = self.by_agent.insert(agent, away) {
            self.left_with_server -= counted(&before);
        }
    }

    pub(super) fn remove(&mut self, agent: &AgentId) -> Option<Away> {
        let away = self.by_agent.remove(agent)?;
        self.left_with_server -= counted(&away);
        Some(away)
    }

    /// Waits for it at least until then; false where it is not waited for.
    pub(super) fn wait_until(&mut self, agent: &AgentId, until: Instant) -> bool {
        let away = self.by_agent.get_mut(agent);
        away.map(|away| away.since = away.since.max(until)).is_some()
    }

    /// Removes those.
    pub(super) fn extract(&mut self, mut which: impl FnMut(&Away) -> bool) -> Vec<(AgentId, Away)> {
        let extracted: Vec<_> = self.by_agent.extract_if(|_, away| which(away)).collect();
        self.left_with_server -= extracted.iter().map(|(_, away)| counted(away)).sum::<usize>();
        extracted
    }
}

fn counted(away: &Away) -> usize {
    match away.left {
        Left::WithServer => 1,
        Left::WithRelay | Left::Alone => 0,
    }
}
