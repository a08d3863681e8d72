//! Who is online: across a restart of the server, and while the store cannot be written.
//!
//! Promised: a restart of the server makes nobody offline. Hosts that were online before are shown as they
//! were, and as returning, until the grace is over; those that did not come back are offline then, with an
//! event. An end of a session that the store does not take is shown at once and written, with its event, when
//! there is space. Of an agent that comes and goes without end, no more events are stored than its budget allows
//! (see `event_budget`). Absent: sessions themselves (see `sessions`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{AgentId, Class, Event, EventKind, HostFacts, Message, messages};
use proctor_runtime::{chain, clock};
use proctor_store::{EndedSession, HostQuery, HostRecord, StoreError};

use super::dispatch::return_grace;
use super::outcomes::BATCH_MAX;
use super::{Caller, Control, Result, Session};

/// After a write that failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Presence {
    grace_ends: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Sessions that were open when the server went down, by agent with their epoch.
    returning: HashMap<AgentId, u64>,
    /// Ends that the store does not know yet.
    unwritten: HashMap<AgentId, EndedSession>,
    /// Those that are being written, with the epoch of the session that ended.
    writing: HashMap<AgentId, u64>,
    failed_at: Option<Instant>,
}

impl Presence {
    /// Of the hosts that the store calls online when the server starts.
    pub(super) fn of_earlier_life(hosts: &[HostRecord], grace_ends: Instant) -> Self {
        let returning: HashMap<_, _> = hosts.iter().map(|host| (host.agent.clone(), host.epoch)).collect();
        Self { grace_ends, state: Mutex::new(State { returning, ..State::default() }) }
    }

    /// Those that may still come back.
    fn is_returning(&self, agent: &AgentId, now: Instant) -> bool {
        now < self.grace_ends && self.state.lock().returning.contains_key(agent)
    }

    /// Those that are gone though the store calls them online. A sweeper that waits for space does not lose
    /// anybody: the time that has passed counts.
    fn gone(&self, now: Instant) -> HashSet<AgentId> {
        let state = self.state.lock();
        let late = state.returning.keys().filter(|_| now >= self.grace_ends);
        state.unwritten.keys().chain(state.writing.keys()).chain(late).cloned().collect()
    }

    fn returning_count(&self, now: Instant) -> usize {
        if now < self.grace_ends { self.state.lock().returning.len() } else { 0 }
    }

    pub(super) fn grace_ends(&self) -> Instant {
        self.grace_ends
    }

    pub(super) fn agents(&self) -> HashSet<AgentId> {
        self.state.lock().returning.keys().cloned().collect()
    }

    /// The agent has a session again. Whether its absence was not told to anybody yet.
    fn comes_back(&self, agent: &AgentId) -> bool {
        let mut state = self.state.lock();
        state.returning.remove(agent);
        state.writing.remove(agent);
        state.unwritten.remove(agent).is_some()
    }

    /// Those of the earlier life that did not come back.
    fn lose(&self, agents: Vec<AgentId>) {
        let mut state = self.state.lock();
        for agent in agents {
            let Some(epoch) = state.returning.remove(&agent) else { continue };
            let content = messages::agent_did_not_return(&agent);
            state.unwritten.insert(agent.clone(), ended(agent, epoch, content));
        }
    }

    /// Some that are due, to be written now.
    fn take_due(&self) -> Vec<EndedSession> {
        let mut state = self.state.lock();
        if state.failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER) {
            return Vec::new();
        }
        let agents: Vec<AgentId> = state.unwritten.keys().take(BATCH_MAX).cloned().collect();
        let due: Vec<EndedSession> = agents.iter().filter_map(|agent| state.unwritten.remove(agent)).collect();
        state.writing.extend(due.iter().map(|ended| (ended.agent.clone(), ended.epoch)));
        due
    }

    /// Shown as gone while the store is asked to record it.
    fn begin_writing(&self, ended: &EndedSession) {
        self.state.lock().writing.insert(ended.agent.clone(), ended.epoch);
    }

    fn written(&self, ended: &[EndedSession]) {
        self.state.lock().end_writing(ended);
    }

    fn put_back(&self, ended: Vec<EndedSession>) {
        let mut state = self.state.lock();
        state.failed_at = Some(Instant::now());
        state.end_writing(&ended);
        for ended in ended {
            state.unwritten.entry(ended.agent.clone()).or_insert(ended);
        }
    }
}

impl State {
    fn end_writing(&mut self, ended: &[EndedSession]) {
        for ended in ended {
            // Another session of the agent may have ended meanwhile.
            if self.writing.get(&ended.agent) == Some(&ended.epoch) {
                self.writing.remove(&ended.agent);
            }
        }
    }
}

fn ended(agent: AgentId, epoch: u64, content: Message) -> EndedSession {
    EndedSession { agent, epoch, event: Some(presence_event(EventKind::AgentOffline, content, BTreeMap::new())) }
}

fn presence_event(kind: EventKind, content: Message, details: BTreeMap<String, String>) -> Event {
    let (at, proc_name) = (clock::unix_millis(), String::new());
    Event { sequence: 0, at, process: None, proc_name, report_id: None, kind, content, details }.fitted()
}

impl Control {
    /// Connected, or not away for longer than the server itself and the grace after its start.
    pub fn is_online(&self, agent: &AgentId) -> bool {
        self.is_connected(agent) || self.is_returning(agent)
    }

    /// Those that are connected, and those that may still come back.
    pub fn agents_expected(&self) -> usize {
        self.inner.sessions.len() + self.inner.presence.returning_count(Instant::now())
    }

    /// For how long the next server on this store would wait for the agents that are connected now.
    pub fn return_grace(&self) -> Duration {
        return_grace(self.session_count())
    }

    /// It was connected before the server's start, and may still come back.
    pub fn is_returning(&self, agent: &AgentId) -> bool {
        self.inner.presence.is_returning(agent, Instant::now())
    }

    /// Agents that are gone though the store calls them online: it cannot be written. Mostly nobody.
    pub(super) fn gone_unwritten(&self) -> HashSet<AgentId> {
        self.inner.presence.gone(Instant::now())
    }

    /// The matching hosts that the caller may see.
    pub async fn hosts(&self, caller: &Caller, query: HostQuery) -> Result<Vec<HostRecord>> {
        caller.require_anywhere(Class::Read)?;
        let places = Some(caller.permissions.places(Class::Read).clone());
        let gone = self.gone_unwritten();
        if gone.is_empty() {
            return Ok(self.inner.store.hosts(&HostQuery { places, ..query }).await?);
        }
        let (online, limit) = (query.online, query.limit);
        let all = HostQuery { places, online: None, limit: None, ..query };
        let mut hosts = self.inner.store.hosts(&all).await?;
        for host in &mut hosts {
            host.online &= !gone.contains(&host.agent);
        }
        hosts.retain(|host| online.is_none_or(|online| host.online == online));
        hosts.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        Ok(hosts)
    }

    /// The agent has a session; told where somebody was told that it had none.
    pub(super) async fn tell_online(&self, agent: &AgentId, facts: &HostFacts, was_away: bool) {
        let was_untold = self.inner.presence.comes_back(agent);
        if !was_away || was_untold {
            return;
        }
        let details = [("agent_version", &facts.agent_version), ("hostname", &facts.hostname)];
        let details = details.map(|(name, value)| (name.to_owned(), value.clone())).into();
        let event = presence_event(EventKind::AgentOnline, messages::agent_connected(agent), details);
        if !self.inner.event_budgets.admit_presence(agent, &event, Instant::now()) {
            return;
        }
        // A presence that cannot be told changes nothing about the presence.
        match self.inner.store.append_server_events(&[(agent.clone(), event)], clock::unix_millis()).await {
            Ok(_) => self.ring_events(),
            Err(error) => tracing::warn!(%agent, error = %chain(&error), "presence event not stored"),
        }
    }

    pub async fn close_session(&self, session: &Session) {
        session.drop_questions();
        if !self.inner.sessions.remove(session) {
            return; // a newer one is there
        }
        self.inner.metrics.session("closed");
        let agent = session.agent();
        self.inner.dispatch.lock().disconnected(agent, session.epoch());
        let content = messages::agent_disconnected(agent);
        let mut ended = ended(agent.clone(), session.epoch(), content);
        ended.event.take_if(|event| !self.inner.event_budgets.admit_presence(agent, event, Instant::now()));
        self.inner.presence.begin_writing(&ended);
        self.write_ended(vec![ended]).await;
    }

    /// Those that went away while the server was away, and what a full store did not take; in few writes:
    /// it may be all of them.
    pub(super) async fn tell_lost(&self) {
        let presence = &self.inner.presence;
        let lost = self.inner.dispatch.lock().take_lost(Instant::now());
        presence.lose(lost);
        loop {
            let due = presence.take_due();
            if due.is_empty() {
                return;
            }
            self.write_ended(due).await;
        }
    }

    async fn write_ended(&self, ended: Vec<EndedSession>) {
        match self.inner.store.end_sessions(&ended, clock::unix_millis()).await {
            Ok(()) => {
                self.inner.presence.written(&ended);
                self.ring_events();
            }
            Err(StoreError::Closed) => {}
            Err(error) => {
                tracing::warn!(agents = ended.len(), error = %chain(&error), "ends of sessions not recorded; trying again");
                let (back, gone): (Vec<_>, Vec<_>) =
                    ended.into_iter().partition(|ended| self.is_connected(&ended.agent));
                self.inner.presence.put_back(gone);
                self.inner.presence.written(&back);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentId {
        name.parse().unwrap()
    }

    fn presence(names: &[&str]) -> Presence {
        let presence = Presence::of_earlier_life(&[], Instant::now() + return_grace(names.len()));
        presence.state.lock().returning = names.iter().map(|name| (agent(name), 7)).collect();
        presence
    }

    #[test]
    fn who_is_lost_is_written_until_the_store_takes_it() {
        let presence = presence(&["a", "b"]);

        presence.lose(vec![agent("a"), agent("unknown")]);
        let due = presence.take_due();
        assert_eq!(presence.gone(Instant::now()), HashSet::from([agent("a")]), "also while it is being written");
        presence.put_back(due.clone());

        assert_eq!(due.iter().map(|ended| (&ended.agent, ended.epoch)).collect::<Vec<_>>(), [(&agent("a"), 7)]);
        assert!(presence.take_due().is_empty(), "not at once");
        presence.state.lock().failed_at = Instant::now().checked_sub(RETRY_AFTER);
        assert_eq!(presence.take_due(), due);
        presence.written(&due);
        assert!(presence.gone(Instant::now()).is_empty(), "the store knows it");
        assert_eq!(presence.agents(), HashSet::from([agent("b")]));
    }

    #[test]
    fn after_the_grace_those_who_did_not_return_are_gone_whoever_sweeps() {
        let (presence, begun) = (presence(&["a"]), Instant::now());
        let in_grace = begun + return_grace(1) / 2;

        assert!(presence.is_returning(&agent("a"), in_grace) && presence.gone(in_grace).is_empty());
        let later = begun + 2 * return_grace(1);
        assert!(!presence.is_returning(&agent("a"), later));
        assert_eq!(presence.gone(later), HashSet::from([agent("a")]));
    }

    #[test]
    fn who_comes_back_before_anybody_was_told_was_never_away() {
        let presence = presence(&["a", "b"]);
        presence.lose(vec![agent("a")]);

        assert!(presence.comes_back(&agent("a")));
        assert!(!presence.comes_back(&agent("b")));
        assert!(presence.take_due().is_empty() && presence.agents().is_empty());
    }
}
