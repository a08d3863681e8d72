//! How long an agent waits before its next attempt, by how the last one ended.
//!
//! Promised: a server that is down is retried within seconds, an overloaded one is left alone for longer, and one
//! that refused the agent permanently for up to 75 s. Nothing else keeps an agent away for longer than
//! [`BUSY_WAIT_MAX`], and nothing at all keeps it from its other endpoints. Reads no clock.
//! Absent: the order of endpoints (see `endpoints`).

use std::io::ErrorKind;
use std::time::Duration;

use proctor_runtime::Backoff;
use proctor_wire::{ABSENT_WAIT_MAX, NoSession, REFUSED_WAIT_MAX, REFUSED_WAIT_MIN, STAY_AWAY_MAX, stay_away_max};

use super::SessionEnd;
use crate::endpoints::{Endpoints, return_wait};

/// The first wait after a server has closed a connection without a message: it has more of them than it can handle.
const CROWDED_WAIT: Duration = Duration::from_millis(500);
/// However short or long a server says that it is busy: that is not signed.
const BUSY_WAIT_MIN: Duration = Duration::from_millis(100);
const BUSY_WAIT_MAX: Duration = Duration::from_secs(120);
/// After a server that cannot be trusted, about this long: a fleet must not reconnect all at once.
const UNTRUSTED_WAIT: Duration = Duration::from_secs(30);

/// How long to wait for the next attempt.
pub(super) struct Waits {
    pub(super) short: Backoff,
    crowded: Backoff,
    refused: Backoff,
    untrusted: Backoff,
    /// The longest that an endpoint of this round asks for.
    of_round: Duration,
    /// Some endpoint answered in this round, and said when to retry.
    is_answered: bool,
    /// Everybody in this round has refused the agent for good.
    is_refused_by_all: bool,
    /// The last session came through a relay, as those of the whole area did.
    is_relayed: bool,
}

/// How far an attempt had come when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Nothing,
    Session,
}

impl Waits {
    pub(super) fn new() -> Self {
        Self {
            short: Backoff::new(Duration::from_millis(100), ABSENT_WAIT_MAX),
            crowded: Backoff::new(CROWDED_WAIT, STAY_AWAY_MAX),
            refused: Backoff::new(REFUSED_WAIT_MIN, REFUSED_WAIT_MAX),
            untrusted: Backoff::new(UNTRUSTED_WAIT * 2 / 3, UNTRUSTED_WAIT * 4 / 3),
            of_round: Duration::ZERO,
            is_answered: false,
            is_refused_by_all: true,
            is_relayed: false,
        }
    }

    /// There is a session, with a server that wants a heartbeat that often: the more agents it has, the longer.
    pub(super) fn opened(&mut self, beat: Duration, is_relayed: bool) {
        self.crowded = Backoff::new(CROWDED_WAIT, stay_away_max(beat));
        self.is_relayed = is_relayed;
        self.refused.reset();
        (self.of_round, self.is_answered, self.is_refused_by_all) = (Duration::ZERO, false, true);
    }

    /// After an attempt without a session, `outage` after the last one: none as long as others are left to try.
    pub(super) fn after_failure(&mut self, ended: &SessionEnd, endpoints: &Endpoints, outage: Duration) -> Duration {
        let wait = self.after(Reached::Nothing, ended);
        self.of_round = self.of_round.max(wait);
        self.is_answered |= ended.is_answer();
        self.is_refused_by_all &= is_refused(ended);
        if endpoints.has_more() {
            return Duration::ZERO;
        }
        let mut wait = std::mem::take(&mut self.of_round);
        if endpoints.are_several() && !std::mem::replace(&mut self.is_refused_by_all, true) {
            // What one of them says, perhaps a revoked relay, must not keep the agent from the others.
            wait = wait.min(UNTRUSTED_WAIT * 4 / 3);
        }
        let is_answered = std::mem::take(&mut self.is_answered);
        if self.is_relayed && !is_answered { wait.max(return_wait(outage)) } else { wait }
    }

    pub(super) fn after(&mut self, reached: Reached, ended: &SessionEnd) -> Duration {
        match ended {
            SessionEnd::Link(NoSession::Busy(wait)) => (*wait).clamp(BUSY_WAIT_MIN, BUSY_WAIT_MAX),
            SessionEnd::Link(NoSession::Refused { retry: false, .. }) => self.refused.next_wait(),
            // Each attempt opens a session on the server: of a whole fleet, that would be a flood.
            SessionEnd::Untrusted(_) => self.untrusted.next_wait(),
            SessionEnd::Link(no_session) if reached == Reached::Nothing && is_crowded(no_session) => {
                self.crowded.next_wait()
            }
            SessionEnd::Link(_) | SessionEnd::Pki(_) | SessionEnd::Driver(_) | SessionEnd::Shutdown => {
                self.short.next_wait()
            }
        }
    }
}

/// Only a human can undo it.
fn is_refused(ended: &SessionEnd) -> bool {
    matches!(ended, SessionEnd::Link(NoSession::Refused { retry: false, .. }))
}

/// Somebody accepts connections, but did not get to answer.
pub(super) fn is_crowded(no_session: &NoSession) -> bool {
    match no_session {
        NoSession::Silent | NoSession::Closed => true,
        NoSession::Connect(error) => {
            matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
        }
        NoSession::Stuck | NoSession::Busy(_) | NoSession::Refused { .. } | NoSession::Broken(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proctor_pki::Untrusted;

    use super::*;

    fn refused() -> SessionEnd {
        SessionEnd::Link(NoSession::Refused { reason: String::new(), retry: false })
    }

    #[test]
    fn an_agent_that_does_not_believe_its_server_comes_back_slowly_and_not_with_the_others() {
        let mut waits = Waits::new();
        let untrusted = SessionEnd::Untrusted(Untrusted::Unsigned);

        let taken: Vec<_> = (0..20).map(|_| waits.after(Reached::Session, &untrusted)).collect();

        assert!(taken.iter().all(|wait| (UNTRUSTED_WAIT * 2 / 3..=UNTRUSTED_WAIT * 4 / 3).contains(wait)), "{taken:?}");
        assert!(taken.iter().any(|wait| wait != &taken[0]));
        assert!(waits.after(Reached::Session, &SessionEnd::Link(NoSession::Closed)) <= Duration::from_secs(5));
    }

    #[test]
    fn an_agent_that_was_refused_for_good_comes_back_slowly_but_within_75_seconds_until_it_gets_a_session() {
        let mut waits = Waits::new();

        let taken: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &refused())).collect();
        waits.opened(Duration::from_secs(5), false);
        let again = waits.after(Reached::Session, &refused());

        assert!(taken.iter().all(|wait| (REFUSED_WAIT_MIN..=REFUSED_WAIT_MAX).contains(wait)), "{taken:?}");
        assert!(
            taken.iter().all(|wait| *wait <= Duration::from_secs(75)),
            "who is allowed again is soon back: {taken:?}"
        );
        let mean = taken.iter().skip(20).sum::<Duration>() / 180;
        assert!(mean > REFUSED_WAIT_MAX / 5, "a fleet that was revoked is quiet: {mean:?}");
        assert!(again <= 3 * REFUSED_WAIT_MIN, "{again:?}");
    }

    #[test]
    fn a_refusal_by_one_of_several_keeps_nobody_from_the_others() {
        let mut endpoints = Endpoints::new("a:1,b:1");
        let mut longest = |waits: &mut Waits, ends: [&SessionEnd; 2]| {
            let mut wait = |ended| {
                endpoints.next();
                waits.after_failure(ended, &endpoints, Duration::ZERO)
            };
            (0..50).map(|_| ends.map(&mut wait)[1]).max().unwrap()
        };
        let absent = SessionEnd::Link(NoSession::Connect(ErrorKind::ConnectionRefused.into()));

        assert!(longest(&mut Waits::new(), [&refused(), &absent]) <= UNTRUSTED_WAIT * 4 / 3);
        assert!(longest(&mut Waits::new(), [&absent, &refused()]) <= UNTRUSTED_WAIT * 4 / 3);
        assert!(longest(&mut Waits::new(), [&refused(), &refused()]) > UNTRUSTED_WAIT * 4 / 3);
    }

    #[test]
    fn an_agent_whose_server_closes_before_a_word_stays_away_longer_each_time() {
        let mut waits = Waits::new();
        let eof = || SessionEnd::Link(NoSession::Connect(ErrorKind::UnexpectedEof.into()));

        let crowded: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &eof())).collect();
        waits.opened(Duration::from_secs(20), false);
        let again = waits.after(Reached::Nothing, &eof());
        let refused = SessionEnd::Link(NoSession::Connect(ErrorKind::ConnectionRefused.into()));
        let absent: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &refused)).collect();

        assert!(crowded.iter().all(|wait| (CROWDED_WAIT..=STAY_AWAY_MAX).contains(wait)), "{crowded:?}");
        assert!(crowded.iter().any(|wait| *wait > Duration::from_secs(10)));
        assert!(again <= CROWDED_WAIT * 3);
        assert!(absent.iter().all(|wait| *wait <= Duration::from_secs(5)), "a server that starts is found soon");
    }

    #[test]
    fn an_agent_of_a_small_fleet_stays_away_for_a_shorter_time() {
        let mut waits = Waits::new();
        waits.opened(Duration::from_secs(5), false);
        let closed = SessionEnd::Link(NoSession::Closed);

        let crowded: Vec<_> = (0..200).map(|_| waits.after(Reached::Nothing, &closed)).collect();

        assert!(crowded.iter().all(|wait| *wait <= Duration::from_secs(10)), "{crowded:?}");
    }

    #[test]
    fn an_agent_comes_back_when_a_busy_server_says_and_not_later_than_that_may_be() {
        let mut waits = Waits::new();
        let mut busy = |wait| waits.after(Reached::Nothing, &SessionEnd::Link(NoSession::Busy(wait)));

        assert_eq!(busy(Duration::from_secs(17)), Duration::from_secs(17));
        assert_eq!([Duration::ZERO, Duration::MAX].map(busy), [BUSY_WAIT_MIN, BUSY_WAIT_MAX]);
    }

    #[test]
    fn nobody_puts_an_agent_to_sleep_by_saying_that_it_is_busy() {
        let busy = SessionEnd::Link(NoSession::Busy(Duration::MAX));
        let (mut waits, mut one) = (Waits::new(), Endpoints::new("a:1"));
        one.next();

        assert_eq!(waits.after_failure(&busy, &one, Duration::ZERO), BUSY_WAIT_MAX);
        let mut several = Endpoints::new("a:1,b:1");
        several.next();
        assert_eq!(waits.after_failure(&busy, &several, Duration::ZERO), Duration::ZERO, "the other one is tried");
        several.next();
        let closed = SessionEnd::Link(NoSession::Closed);
        assert!(waits.after_failure(&closed, &several, Duration::ZERO) <= UNTRUSTED_WAIT * 4 / 3);
    }

    #[test]
    fn an_agent_that_was_answered_comes_back_when_it_was_told() {
        let (mut waits, mut endpoints) = (Waits::new(), Endpoints::new("a:1"));
        waits.opened(Duration::from_secs(5), true);
        let busy = SessionEnd::Link(NoSession::Busy(Duration::from_secs(2)));

        let mut wait = || {
            endpoints.next();
            waits.after_failure(&busy, &endpoints, Duration::from_secs(3600))
        };

        assert!((0..100).all(|_| wait() == Duration::from_secs(2)), "however long the outage was");
    }

    #[test]
    fn only_agents_that_came_through_a_relay_spread_their_return() {
        let absent = SessionEnd::Link(NoSession::Connect(ErrorKind::ConnectionRefused.into()));
        let mut endpoints = Endpoints::new("a:1,b:1");
        let mut longest = |waits: &mut Waits| {
            let mut wait = || {
                endpoints.next();
                waits.after_failure(&absent, &endpoints, Duration::from_secs(3600))
            };
            (0..200).map(|_| wait()).max().unwrap()
        };
        let (mut waits, beat) = (Waits::new(), Duration::from_secs(5));

        assert!(longest(&mut waits) <= Duration::from_secs(5), "before the first session");
        waits.opened(beat, true);
        assert!(longest(&mut waits) > Duration::from_secs(5));
        waits.opened(beat, false);
        assert!(longest(&mut waits) <= Duration::from_secs(5));
    }
}
