//! Who is online: across a restart of the server, and while the store cannot be written.
//!
//! Promised: a server restart makes nobody offline. Hosts that were online before are shown as online and returning
//! until the grace period is over; those that did not come back are then offline, with an event. One that came and
//! was told to retry later gets more time from then on. The end of a session that the store cannot record is shown at
//! once and written, with its event, when there is space. An agent whose connection breaks without a goodbye is
//! suspect: it gets a heartbeat or two to return before it is reported offline, while operations on it fail as fast
//! as on any other that is not connected; one that says goodbye is offline at once, and so is one that is silent
//! until its session ends. An agent whose relay is gone gets time, as after a restart: it comes back through another
//! one. If all relays of its cloud area are gone it is unreachable, not offline: no event says that it is offline
//! until a relay has been back for a while and the agent has not; the store remembers which hosts have not been
//! reported, across restarts. An agent that keeps coming and going stores no more events than its budget allows (see
//! `event_budget`).
//! Absent: sessions themselves (see `sessions`).

mod moving;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::{AgentId, Class, Event, EventKind, HostFacts, Message, messages};
use proctor_runtime::{chain, clock};
use proctor_store::{EndedSession, HostQuery, HostRecord, StoreError};

use super::dispatch::{Absence, return_grace};
use super::outcomes::BATCH_MAX;
use super::{Caller, Control, Result, Session};
use moving::Moving;

/// After a write that failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// An agent whose relay is gone gets this long to come back through another one; and longer while others of its area
/// are coming back, up to the limit: relays admit agents at a limited rate, and the last of thousands wait for their
/// turn.
const MOVING_GRACE: Duration = Duration::from_secs(15);
const MOVING_GRACE_MAX: Duration = Duration::from_secs(120);
/// An agent whose own connection broke without a goodbye gets one heartbeat to come back, but no less than this: its
/// longest wait for a server that is down, and an attempt.
const SUSPECT_GRACE_MIN: Duration = Duration::from_secs(10);
/// Others are coming back if the last one did no longer ago.
const COMING_BACK: Duration = Duration::from_secs(5);
/// Of agents without a relay, so many must have come back within that time: in a large fleet there is always one that
/// comes and goes, and it must not keep the others from being called offline.
const DIRECT_CROWD: usize = 20;
/// For this long, agents that came and were deferred before authentication keep those of their area from being
/// reported offline. Only their relay says that they came.
const PUT_OFF_MAX: Duration = Duration::from_secs(300);

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
    /// Agents whose last session came through a relay of this cloud area.
    relayed: HashMap<AgentId, u32>,
    /// Agents whose relay is gone, and since when they are waited for.
    moving: Moving,
    /// When an agent that was moving last came back, by cloud area.
    came_back: HashMap<u32, Instant>,
    /// When the last agents without a relay came back, the oldest first, as many as make a crowd.
    came_back_directly: VecDeque<Instant>,
    /// Cloud areas whose agents are deferred before authentication.
    put_off: HashMap<u32, PutOff>,
    /// Agents that were not reported offline, because the relays of their area were gone. The store knows which.
    unreached: HashMap<AgentId, Away>,
}

/// An agent that went away, and has been waited for since then, or since it was told to retry.
#[derive(Clone, Copy, Debug)]
struct Away {
    epoch: u64,
    /// Of the relay that it came through.
    cloud: Option<u32>,
    since: Instant,
    grace: Duration,
    left: Left,
}

impl Away {
    /// Its own connection broke, and nothing else is involved.
    fn is_suspect(self) -> bool {
        self.left == Left::Alone && self.cloud.is_none()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    WithRelay,
    /// Its relay is there.
    Alone,
    /// Left with the server's earlier run; it came back, and was deferred.
    WithServer,
}

/// Since when agents of an area have been put off without a pause, and when the last of them should be back.
#[derive(Clone, Copy, Debug)]
struct PutOff {
    since: Instant,
    until: Instant,
}

impl PutOff {
    fn is_over(self, now: Instant) -> bool {
        now > self.until + COMING_BACK
    }
}

impl Presence {
    /// Of the hosts that the store has when the server starts. Without a grace they have as long as their number needs.
    pub(super) fn of_earlier_life(hosts: &[HostRecord], now: Instant, grace: Option<Duration>) -> Self {
        let online = hosts.iter().filter(|host| host.online);
        let returning: HashMap<_, _> = online.map(|host| (host.agent.clone(), host.epoch)).collect();
        let relayed = || hosts.iter().filter(|host| host.relayed && host.revoked_at.is_none());
        let away = |host: &HostRecord| Away {
            epoch: host.epoch,
            cloud: Some(host.key.cloud),
            since: now,
            grace: MOVING_GRACE,
            left: Left::WithRelay,
        };
        let untold = relayed().filter(|host| host.untold && !host.online);
        let unreached = untold.map(|host| (host.agent.clone(), away(host))).collect();
        let relayed = relayed().map(|host| (host.agent.clone(), host.key.cloud)).collect();
        let grace_ends = now + grace.unwrap_or_else(|| return_grace(returning.len()));
        Self { grace_ends, state: Mutex::new(State { returning, relayed, unreached, ..State::default() }) }
    }

    /// Those that may still come back.
    fn is_returning(&self, agent: &AgentId, now: Instant) -> bool {
        let state = self.state.lock();
        now < self.grace_ends && state.returning.contains_key(agent) || state.moving.contains(agent)
    }

    /// The agent has a session, through a relay of this cloud area or without one.
    pub(super) fn came_through(&self, agent: &AgentId, relay_cloud: Option<u32>) {
        let mut state = self.state.lock();
        match relay_cloud {
            Some(cloud) => state.relayed.insert(agent.clone(), cloud),
            None => state.relayed.remove(agent),
        };
    }

    /// The cloud area of the relay that its last session came through.
    fn relayed_by(&self, agent: &AgentId) -> Option<u32> {
        self.state.lock().relayed.get(agent).copied()
    }

    /// All whose last session came through a relay.
    fn relayed_agents(&self) -> Vec<AgentId> {
        self.state.lock().relayed.keys().cloned().collect()
    }

    /// An agent that was away has come, and was told to retry later.
    fn puts_off(&self, agent: &AgentId, until: Instant) {
        let mut state = self.state.lock();
        let State { moving, unreached, returning, relayed, .. } = &mut *state;
        if moving.wait_until(agent, until) {
            return;
        }
        if let Some(away) = unreached.get_mut(agent) {
            away.since = away.since.max(until);
        } else if let Some(epoch) = returning.remove(agent) {
            let (cloud, since) = (relayed.get(agent).copied(), until.max(self.grace_ends));
            moving.insert(agent.clone(), Away { epoch, cloud, since, grace: MOVING_GRACE, left: Left::WithServer });
        }
    }

    /// A relay of this area brought an agent that was told to retry later before it was authenticated.
    fn puts_off_unknown(&self, cloud: u32, now: Instant, until: Instant) {
        let mut state = self.state.lock();
        let put_off = state.put_off.entry(cloud).or_insert(PutOff { since: now, until });
        if put_off.is_over(now) {
            put_off.since = now;
        }
        put_off.until = put_off.until.max(until);
    }

    /// Whether its relay is gone and it may still come back through another one.
    fn is_moving(&self, agent: &AgentId) -> bool {
        self.state.lock().moving.get(agent).is_some_and(|away| !away.is_suspect())
    }

    /// Whether its own connection broke, and it may still come back.
    fn is_suspect(&self, agent: &AgentId) -> bool {
        self.state.lock().moving.get(agent).is_some_and(|away| away.is_suspect())
    }

    /// The host has no session any more that anybody waits for.
    pub(super) fn forget(&self, agent: &AgentId) {
        let mut state = self.state.lock();
        state.returning.remove(agent);
        state.unwritten.remove(agent);
        state.writing.remove(agent);
        state.relayed.remove(agent);
        state.moving.remove(agent);
        state.unreached.remove(agent);
    }

    /// Its session has ended with its relay, or in silence behind it.
    fn moves(&self, agent: &AgentId, epoch: u64, cloud: u32, now: Instant, is_relay_gone: bool) {
        let left = if is_relay_gone { Left::WithRelay } else { Left::Alone };
        self.waits_for(agent, Away { epoch, cloud: Some(cloud), since: now, grace: MOVING_GRACE, left });
    }

    /// Its own connection has ended without a goodbye.
    fn suspects(&self, agent: &AgentId, epoch: u64, now: Instant, beat: Duration) {
        let grace = beat.max(SUSPECT_GRACE_MIN);
        self.waits_for(agent, Away { epoch, cloud: None, since: now, grace, left: Left::Alone });
    }

    fn waits_for(&self, agent: &AgentId, away: Away) {
        let mut state = self.state.lock();
        // Sessions of one agent may end in any order, and the store knows the newest.
        if state.moving.get(agent).is_none_or(|other| other.epoch <= away.epoch) {
            state.moving.insert(agent.clone(), away);
        }
    }

    /// Those that were waited for long enough are offline where their area is served, and else only out of reach; those
    /// out of reach are offline when their area has been served for a while and they have not come back. A relay that has
    /// just come back does not serve yet: its agents are on their way.
    fn settle_away(&self, now: Instant, is_served: impl Fn(u32) -> bool) {
        let mut state = self.state.lock();
        let is_crowd_coming = state.is_crowd_coming(now);
        let State { moving, came_back, put_off, unreached, unwritten, returning, relayed, .. } = &mut *state;
        came_back.retain(|_, at| now.saturating_duration_since(*at) < COMING_BACK);
        put_off.retain(|_, put_off| !put_off.is_over(now));
        let is_put_off = |cloud: u32| {
            put_off.get(&cloud).is_some_and(|put_off| now.saturating_duration_since(put_off.since) < PUT_OFF_MAX)
        };
        let is_due = |away: &Away| {
            let is_coming_back = match away.cloud {
                Some(cloud) => came_back.contains_key(&cloud) || is_put_off(cloud),
                None => is_crowd_coming,
            };
            let grace = if is_coming_back { MOVING_GRACE_MAX } else { away.grace };
            now.saturating_duration_since(away.since) >= grace
        };
        for (agent, away) in moving.extract(is_due) {
            if away.cloud.is_none_or(&is_served) {
                let content = match away.left {
                    Left::WithRelay => messages::agent_did_not_move(&agent),
                    Left::Alone => messages::agent_disconnected(&agent),
                    Left::WithServer => messages::agent_did_not_return(&agent),
                };
                unwritten.insert(agent.clone(), ended(agent, away.epoch, content));
            } else {
                unwritten.insert(agent.clone(), untold(agent.clone(), away.epoch));
                unreached.insert(agent, away);
            }
        }
        let is_late = |away: &Away| now.saturating_duration_since(away.since) >= MOVING_GRACE;
        let is_told = |away: &Away| away.cloud.is_none_or(|cloud| is_served(cloud) && !is_put_off(cloud));
        for (agent, away) in unreached.extract_if(|_, away| is_told(away) && is_late(away)) {
            let content = messages::agent_did_not_return_with_relays(&agent);
            unwritten.insert(agent.clone(), ended(agent, away.epoch, content));
        }
        if now < self.grace_ends {
            return;
        }
        let is_out_of_reach =
            |agent: &AgentId| relayed.get(agent).is_some_and(|cloud| !is_served(*cloud) || is_put_off(*cloud));
        for (agent, epoch) in returning.extract_if(|agent, _| is_out_of_reach(agent)) {
            let cloud = relayed.get(&agent).copied();
            unwritten.insert(agent.clone(), untold(agent.clone(), epoch));
            unreached.insert(agent, Away { epoch, cloud, since: now, grace: MOVING_GRACE, left: Left::WithRelay });
        }
    }

    /// Those that are gone though the store calls them online. A sweeper that waits for space does not lose
    /// anybody: the time that has passed counts.
    fn gone(&self, now: Instant) -> HashSet<AgentId> {
        let state = self.state.lock();
        let late = state.returning.keys().filter(|_| now >= self.grace_ends);
        state.unwritten.keys().chain(state.writing.keys()).chain(late).cloned().collect()
    }

    fn suspect_count(&self) -> usize {
        self.state.lock().moving.suspect_count()
    }

    /// Those of the server's earlier run that may still come back, including those that came and were deferred.
    fn returning_count(&self, now: Instant) -> usize {
        let state = self.state.lock();
        let not_seen = if now < self.grace_ends { state.returning.len() } else { 0 };
        not_seen + state.moving.left_with_server()
    }

    pub(super) fn grace_ends(&self) -> Instant {
        self.grace_ends
    }

    pub(super) fn agents(&self) -> HashSet<AgentId> {
        self.state.lock().returning.keys().cloned().collect()
    }

    /// The agent has a session again. Returns whether its absence was not reported yet.
    fn comes_back(&self, agent: &AgentId, now: Instant) -> bool {
        let mut state = self.state.lock();
        state.returning.remove(agent);
        state.writing.remove(agent);
        let moved = state.moving.remove(agent);
        if let Some(away) = moved {
            state.note_return(away.cloud, now);
        }
        let was_untold = state.unreached.remove(agent).is_some() || moved.is_some();
        state.unwritten.remove(agent).is_some() || was_untold
    }

    /// Whether it was connected to an earlier run of the server, and may still come back.
    pub(super) fn awaits(&self, agent: &AgentId, now: Instant) -> bool {
        now < self.grace_ends && self.state.lock().returning.contains_key(agent)
    }

    /// It was taken for one that has come back.
    fn still_returns(&self, agent: &AgentId, epoch: u64) {
        self.state.lock().returning.insert(agent.clone(), epoch);
    }

    /// Those of the earlier run that did not come back.
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

    /// Shown as gone while the store records it.
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
    /// An agent that was waited for has come back.
    fn note_return(&mut self, cloud: Option<u32>, now: Instant) {
        let Some(cloud) = cloud else {
            if self.came_back_directly.len() >= DIRECT_CROWD {
                self.came_back_directly.pop_front();
            }
            self.came_back_directly.push_back(now);
            return;
        };
        self.came_back.insert(cloud, now);
    }

    /// Whether many agents without a relay are coming back.
    fn is_crowd_coming(&self, now: Instant) -> bool {
        let first = self.came_back_directly.front().filter(|_| self.came_back_directly.len() >= DIRECT_CROWD);
        first.is_some_and(|at| now.saturating_duration_since(*at) < COMING_BACK)
    }

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
    let event = Some(presence_event(EventKind::AgentOffline, content, BTreeMap::new()));
    EndedSession { agent, epoch, event, untold: false }
}

/// Nothing is reported as long as the agent is unreachable.
fn untold(agent: AgentId, epoch: u64) -> EndedSession {
    EndedSession { agent, epoch, event: None, untold: true }
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

    /// The agent has authenticated, and was told to retry later: it is waited for from then on.
    pub(crate) fn put_off(&self, agent: &AgentId, retry_after: Duration) {
        self.inner.presence.puts_off(agent, Instant::now() + retry_after);
    }

    /// A relay of this area brought an agent whose turn did not come. It was not authenticated, so its relay could
    /// have invented it: for a while no host of the area is reported offline.
    pub(crate) fn put_off_unknown(&self, cloud: u32, retry_after: Duration) {
        let now = Instant::now();
        self.inner.presence.puts_off_unknown(cloud, now, now + retry_after);
    }

    /// The cloud area of an agent that cannot be reached because no relay of it is connected. Whether the agent is well
    /// is not known.
    pub fn unreachable_area(&self, agent: &AgentId) -> Option<u32> {
        let cloud = self.inner.presence.relayed_by(agent)?;
        let is_away = !self.is_connected(agent) && !self.is_returning(agent);
        (is_away && !self.inner.relays.is_served(cloud, Instant::now())).then_some(cloud)
    }

    /// Its heartbeat is overdue, or its connection just broke: it may be gone.
    pub fn is_suspect(&self, agent: &AgentId) -> bool {
        match self.inner.sessions.get(agent) {
            Some(session) => session.is_suspect(),
            None => self.inner.presence.is_suspect(agent),
        }
    }

    pub(super) fn suspect_count(&self) -> usize {
        self.inner.sessions.suspect_count() + self.inner.presence.suspect_count()
    }

    /// Without those that are cordoned: it is for alarms.
    pub(super) fn unreachable_count(&self, cordoned: &[AgentId]) -> usize {
        let cordoned: HashSet<&AgentId> = cordoned.iter().collect();
        let relayed = self.inner.presence.relayed_agents();
        let is_told = |agent: &&AgentId| !cordoned.contains(agent) && self.unreachable_area(agent).is_some();
        relayed.iter().filter(is_told).count()
    }

    /// What an operation reports about an agent that is not connected.
    pub(super) fn absence(&self, agent: &AgentId) -> Absence {
        let presence = &self.inner.presence;
        if presence.is_moving(agent) {
            return Absence::Moving;
        }
        let without_relay = presence.relayed_by(agent).filter(|cloud| !self.inner.relays.has_relay(*cloud));
        without_relay.map_or(Absence::Plain, |cloud| Absence::AreaCutOff { cloud })
    }

    /// Agents that are gone although the store calls them online: it cannot be written. Usually none.
    pub(super) fn offline_not_stored(&self) -> HashSet<AgentId> {
        self.inner.presence.gone(Instant::now())
    }

    /// The matching hosts that the caller may see.
    pub async fn hosts(&self, caller: &Caller, query: HostQuery) -> Result<Vec<HostRecord>> {
        caller.require_anywhere(Class::Read)?;
        let scopes = Some(caller.permissions.scopes(Class::Read).clone());
        let gone = self.offline_not_stored();
        if gone.is_empty() {
            return Ok(self.inner.store.hosts(&HostQuery { scopes, ..query }).await?);
        }
        let (online, limit) = (query.online, query.limit);
        let all = HostQuery { scopes, online: None, limit: None, ..query };
        let mut hosts = self.inner.store.hosts(&all).await?;
        for host in &mut hosts {
            host.online &= !gone.contains(&host.agent);
        }
        hosts.retain(|host| online.is_none_or(|online| host.online == online));
        hosts.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        Ok(hosts)
    }

    /// The agent has a session; reported if it was reported to have none.
    pub(super) async fn tell_online(&self, agent: &AgentId, facts: &HostFacts, was_away: bool) {
        let was_untold = self.inner.presence.comes_back(agent, Instant::now());
        if !was_away || was_untold {
            return;
        }
        let details = [("agent_version", &facts.agent_version), ("hostname", &facts.hostname)];
        let details = details.map(|(name, value)| (name.to_owned(), value.clone())).into();
        self.tell_of_agent(agent, EventKind::AgentOnline, messages::agent_connected(agent), details).await;
    }

    /// Stores an event about the agent itself, within the budget for such.
    pub(super) async fn tell_of_agent(
        &self,
        agent: &AgentId,
        kind: EventKind,
        content: Message,
        details: BTreeMap<String, String>,
    ) {
        let event = presence_event(kind, content, details);
        if !self.inner.event_budgets.admit_presence(agent, &event, Instant::now()) {
            return;
        }
        // What cannot be reported changes nothing about the agent.
        match self.inner.store.append_server_events(&[(agent.clone(), event)], clock::unix_millis()).await {
            Ok(_) => self.ring_events(),
            Err(error) => {
                tracing::warn!(%agent, error = %chain(&error), event = kind.as_str(), "cannot store agent event")
            }
        }
    }

    /// As [`Self::close_session`], of a session that ended neither from here nor by the agent's word: its connection broke.
    /// Through a relay it may be the relay that is gone, stops, or is too busy. The agent may come back, also through another
    /// relay, and nobody is told before it had the time to.
    pub async fn lose_session(&self, session: &Session, is_relay_gone: bool) {
        session.drop_questions();
        if !self.inner.sessions.remove(session) {
            return; // a newer one is there
        }
        self.inner.metrics.session("closed");
        self.inner.dispatch.lock().disconnected(session.agent(), session.epoch());
        let (presence, agent, epoch, now) = (&self.inner.presence, session.agent(), session.epoch(), Instant::now());
        match session.relay_cloud() {
            Some(cloud) => presence.moves(agent, epoch, cloud, now, is_relay_gone),
            None => presence.suspects(agent, epoch, now, session.beat()),
        }
        // It may have come back meanwhile.
        if self.is_connected(session.agent()) {
            self.inner.presence.comes_back(session.agent(), Instant::now());
        }
    }

    /// Of an agent that was on its way back after a restart of the server, and whose connection was gone before it was
    /// welcomed: it still is.
    pub(super) async fn take_back_session(&self, session: &Session) {
        if Instant::now() >= self.inner.presence.grace_ends() {
            return self.lose_session(session, false).await;
        }
        if !self.inner.sessions.remove(session) {
            return; // a newer one is there
        }
        self.inner.metrics.session("closed");
        self.inner.presence.still_returns(session.agent(), session.epoch());
        self.inner.dispatch.lock().still_returns(session.agent(), session.epoch());
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
        let (presence, relays, now) = (&self.inner.presence, &self.inner.relays, Instant::now());
        presence.settle_away(now, |cloud| relays.is_served(cloud, now));
        let lost = self.inner.dispatch.lock().take_lost(now);
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
                tracing::warn!(agents = ended.len(), error = %chain(&error), "cannot record closed sessions, retrying");
                let (back, gone): (Vec<_>, Vec<_>) =
                    ended.into_iter().partition(|ended| self.is_connected(&ended.agent));
                self.inner.presence.put_back(gone);
                self.inner.presence.written(&back);
            }
        }
    }
}

#[cfg(test)]
mod tests;
