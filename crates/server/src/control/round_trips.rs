//! Round-trip times of agents' links.
//!
//! Promised: an agent is pinged only while somebody views its host, at most once per [`PERIOD`] however many view it,
//! and when its own proof of liveness is needed (see `gateway::proof`); a viewer waits at most [`WAIT_MAX`]. The
//! newest time is kept in memory as long as the session. It covers the whole path to the agent, including a relay.
//! Absent: a history, and figures for the whole fleet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proctor_model::AgentId;
use proctor_runtime::clock;
use tokio::sync::Notify;

use super::{Control, Session};

const PERIOD: Duration = Duration::from_secs(5);
/// A link that is slower is shown to the next who looks.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// One answer of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    pub time: Duration,
    /// Unix milliseconds.
    pub measured_at: i64,
}

/// Of one session, once somebody has looked or asked.
#[derive(Debug, Default)]
pub(super) struct Pings {
    number: u64,
    /// The ping in flight.
    awaited: Option<u64>,
    /// Not sent yet.
    is_wanted: bool,
    sent: Option<Instant>,
    /// The first ping since `answered_as_of` that was not answered, and when it was sent.
    unanswered: Option<(u64, Instant)>,
    /// The agent was there after this.
    answered_as_of: Option<Instant>,
    newest: Option<RoundTrip>,
    answered: Arc<Notify>,
}

impl Pings {
    /// Whether there is none in flight and none recent enough.
    fn is_due(&self, now: Instant) -> bool {
        !self.is_wanted && self.sent.is_none_or(|sent| now.duration_since(sent) >= PERIOD)
    }

    fn take(&mut self, now: Instant) -> Option<u64> {
        if !std::mem::take(&mut self.is_wanted) {
            return None;
        }
        self.number += 1;
        self.sent = Some(now);
        self.awaited = Some(self.number);
        self.unanswered.get_or_insert((self.number, now));
        self.awaited
    }

    /// A time counts once, and only of the newest ping. That the agent is there is proved by an answer to any that was
    /// sent since the last proof, as of when the first of them was sent.
    fn answered(&mut self, number: u64, now: Instant, measured_at: i64) {
        let is_of_these = |(first, _): &mut (u64, Instant)| (*first..=self.number).contains(&number);
        if let Some((_, sent)) = self.unanswered.take_if(is_of_these) {
            self.answered_as_of = Some(sent);
        }
        let Some(sent) = self.sent.filter(|_| self.awaited == Some(number)) else { return };
        self.awaited = None;
        self.newest = Some(RoundTrip { time: now.duration_since(sent), measured_at });
        self.answered.notify_waiters();
    }
}

impl Session {
    /// The ping to send now.
    pub fn take_ping(&self) -> Option<u64> {
        self.pings.lock().as_mut()?.take(Instant::now())
    }

    pub fn pong(&self, number: u64) {
        if let Some(pings) = self.pings.lock().as_mut() {
            pings.answered(number, Instant::now(), clock::unix_millis());
        }
    }

    /// The agent was there after this, by its own word: it has answered a ping that was sent then, or later.
    pub(crate) fn answered_as_of(&self) -> Option<Instant> {
        self.pings.lock().as_ref()?.answered_as_of
    }

    /// Has a ping sent, even if nobody views the host.
    pub(crate) fn ask_ping(&self) {
        self.pings.lock().get_or_insert_default().is_wanted = true;
        self.wake();
    }

    pub(super) fn round_trip(&self) -> Option<RoundTrip> {
        self.pings.lock().as_ref()?.newest
    }

    /// Whom to wait for, where a new ping is due.
    fn want_ping(&self) -> Option<Arc<Notify>> {
        let mut pings = self.pings.lock();
        let pings = pings.get_or_insert_default();
        pings.is_due(Instant::now()).then(|| {
            pings.is_wanted = true;
            pings.answered.clone()
        })
    }
}

impl Control {
    /// As known; asks nobody.
    pub fn round_trip(&self, agent: &AgentId) -> Option<RoundTrip> {
        self.inner.sessions.get(agent)?.round_trip()
    }

    /// Measures again if that is due.
    pub async fn measure_round_trip(&self, agent: &AgentId) {
        let Some(session) = self.inner.sessions.get(agent).filter(|session| session.answers_logs()) else { return };
        let Some(answered) = session.want_ping() else { return };
        let notified = answered.notified();
        tokio::pin!(notified);
        notified.as_mut().enable(); // before the agent can answer
        session.wake();
        let _ = tokio::time::timeout(WAIT_MAX, notified).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_sent_once_a_period_and_answered_once() {
        let (mut pings, begun) = (Pings::default(), Instant::now());
        let at = |millis| begun + Duration::from_millis(millis);
        pings.is_wanted = true;

        let (first, again) = (pings.take(at(0)), pings.take(at(1)));
        assert_eq!((first, again, pings.is_due(at(100))), (Some(1), None, false));

        pings.answered(7, at(10), 1); // nobody sent this
        assert_eq!(pings.newest, None);
        pings.answered(1, at(20), 2);
        pings.answered(1, at(900), 3); // said twice
        pings.answered(2, at(950), 4); // not sent yet
        assert_eq!(pings.newest, Some(RoundTrip { time: Duration::from_millis(20), measured_at: 2 }));
        assert!(!pings.is_due(at(4999)) && pings.is_due(at(5000)));
    }

    #[test]
    fn a_late_answer_to_an_older_ping_is_no_answer_to_the_newest() {
        let (mut pings, begun) = (Pings { is_wanted: true, ..Pings::default() }, Instant::now());
        let lost = pings.take(begun).unwrap();
        pings.is_wanted = true;
        let newest = pings.take(begun + PERIOD).unwrap();

        pings.answered(lost, begun + PERIOD + Duration::from_millis(1), 1);
        assert_eq!(pings.newest, None);
        pings.answered(newest, begun + PERIOD + Duration::from_millis(30), 2);

        assert_eq!(pings.newest.map(|newest| newest.time), Some(Duration::from_millis(30)));
    }

    #[test]
    fn an_agent_was_there_when_the_first_ping_was_sent_that_it_had_not_answered() {
        let (mut pings, begun) = (Pings::default(), Instant::now());
        let at = |secs| begun + Duration::from_secs(secs);
        let send = |pings: &mut Pings, secs| {
            pings.is_wanted = true;
            pings.take(at(secs)).unwrap()
        };
        let numbers: Vec<_> = [0, 5, 10].map(|secs| send(&mut pings, secs)).into();

        // Somebody looks all the time, and each answer is late for the newest.
        pings.answered(numbers[1], at(12), 1);
        assert_eq!(pings.answered_as_of, Some(at(0)));
        let next = send(&mut pings, 15);
        pings.answered(numbers[2], at(17), 2);
        assert_eq!(pings.answered_as_of, Some(at(0)), "an older answer proves nothing new");
        pings.answered(next + 1, at(18), 3);
        assert_eq!(pings.answered_as_of, Some(at(0)), "nobody sent this");
        pings.answered(next, at(19), 4);

        assert_eq!(pings.answered_as_of, Some(at(15)));
    }
}
