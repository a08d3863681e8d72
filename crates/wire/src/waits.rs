//! How long agents stay away from a server that is gone, or cannot take them now.
//!
//! Both ends must agree on it: a server that has started counts as lost the agents that could have come back and
//! did not, and so does one whose relays are back. Absent: how an agent draws its waits, and how a server draws
//! those that it requests.

use std::time::Duration;

use crate::opening_pace::{OPENINGS_PER_SECOND, RELAY_STREAMS_MAX};

/// Unanswered heartbeats after which the server counts as gone.
pub const SILENT_BEATS_MAX: u32 = 3;
/// The longest wait for a server that is not there: looking for it costs it nothing.
pub const ABSENT_WAIT_MAX: Duration = Duration::from_secs(5);
/// For one attempt of an agent, from the first packet to the welcome.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long a server lets a peer wait before its part of the TLS handshake; then the peer is closed.
pub const BEFORE_TLS_MAX: Duration = Duration::from_millis(4_500);
/// Time for the handshake itself.
const HANDSHAKE_ROOM: Duration = Duration::from_millis(1_500);
/// As [`CONNECT_LIMIT`], for TCP and TLS if there are other endpoints to try: no longer than the server may need.
pub const CONNECT_LIMIT_OF_SEVERAL: Duration = BEFORE_TLS_MAX.saturating_add(HANDSHAKE_ROOM);
/// Endpoints of an agent; each that does not answer takes its time in a round.
pub const ENDPOINTS_MAX: u32 = 16;
/// The longest wait of an agent behind relays between two rounds, reached after some minutes without a session.
pub const RETURN_SPREAD_MAX: Duration = Duration::from_secs(60);
/// The longest wait for a server that has more agents than it can take now, if its heartbeat interval is not known.
pub const STAY_AWAY_MAX: Duration = Duration::from_secs(30);
/// After a refusal that only people can undo (`retry: false`), an agent comes back after a time between these,
/// longer each time: nobody should have to visit its host, whoever allows it again should not wait long, and a
/// refused fleet must not keep the server busy: of 15,000 agents some 300 a second ask, which the handshake pace
/// bounds in any case.
pub const REFUSED_WAIT_MIN: Duration = Duration::from_secs(13);
pub const REFUSED_WAIT_MAX: Duration = Duration::from_secs(75);
/// A large fleet must not come back all at once; in a small one nobody has to wait for long.
const STAY_AWAY_BEATS: u32 = 2;
const STAY_AWAY_MIN: Duration = Duration::from_secs(1);

/// As [`STAY_AWAY_MAX`], by the heartbeat interval of the last session, which grows with the fleet.
pub fn stay_away_max(beat: Duration) -> Duration {
    beat.saturating_mul(STAY_AWAY_BEATS).clamp(STAY_AWAY_MIN, STAY_AWAY_MAX)
}

/// A live agent is back within this time if the server can take it at once. Either it had to notice that the server
/// was gone (if the server's host lost power, only silence tells), or its longest wait had begun.
pub fn return_max(beat: Duration) -> Duration {
    let unnoticed = beat.saturating_mul(SILENT_BEATS_MAX).saturating_add(ABSENT_WAIT_MAX);
    unnoticed.max(stay_away_max(beat)).saturating_add(CONNECT_LIMIT)
}

/// A live agent is back within this time after a relay of its area: its longest wait had begun, its next round ends
/// with that relay, and all others of the relay's connection were admitted before it.
pub const AREA_RETURN_MAX: Duration = RETURN_SPREAD_MAX
    .saturating_add(CONNECT_LIMIT_OF_SEVERAL.saturating_mul(ENDPOINTS_MAX))
    .saturating_add(Duration::from_secs(RELAY_STREAMS_MAX as u64 / OPENINGS_PER_SECOND as u64))
    .saturating_add(CONNECT_LIMIT);

#[cfg(test)]
mod tests {
    use super::*;

    const BEATS: [Duration; 4] =
        [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(10), Duration::from_secs(20)];

    #[test]
    fn agents_of_a_large_fleet_stay_away_longer_within_bounds() {
        assert_eq!(BEATS.map(|beat| stay_away_max(beat).as_secs()), [1, 10, 20, 30]);
        assert_eq!(stay_away_max(Duration::MAX), STAY_AWAY_MAX);
    }

    #[test]
    fn an_agent_that_has_to_notice_or_to_wait_is_back_in_time() {
        // Three beats, a wait and an attempt.
        assert_eq!(BEATS.map(|beat| return_max(beat).as_secs()), [15, 30, 45, 75]);
        assert!(BEATS.iter().all(|beat| return_max(*beat) >= stay_away_max(*beat) + CONNECT_LIMIT));
        assert_eq!(return_max(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn whoever_has_other_endpoints_still_waits_for_as_long_as_a_server_may_need() {
        assert!(CONNECT_LIMIT_OF_SEVERAL > BEFORE_TLS_MAX && CONNECT_LIMIT_OF_SEVERAL < CONNECT_LIMIT);
    }
}
