//! How long agents stay away from a server that is gone, or cannot take them now.
//!
//! Both ends must agree on it: a server that has started counts those agents as lost that could have come back and did
//! not. Absent: how an agent draws its waits, and how a server draws those that it asks for.

use std::time::Duration;

/// Unanswered heartbeats after which the server is taken for gone.
pub const SILENT_BEATS_MAX: u32 = 3;
/// The longest wait for a server that is not there: looking for it costs it nothing.
pub const ABSENT_WAIT_MAX: Duration = Duration::from_secs(5);
/// For one attempt of an agent, from the first packet to the welcome.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The longest wait for a server that has more agents than it can take now, where the interval of its heartbeats is not
/// known.
pub const STAY_AWAY_MAX: Duration = Duration::from_secs(30);
/// A large fleet must not come back all at once; in a small one nobody has to wait for long.
const STAY_AWAY_BEATS: u32 = 2;
const STAY_AWAY_MIN: Duration = Duration::from_secs(1);

/// As [`STAY_AWAY_MAX`], by the heartbeat interval of the last session, which grows with the fleet.
pub fn stay_away_max(beat: Duration) -> Duration {
    beat.saturating_mul(STAY_AWAY_BEATS).clamp(STAY_AWAY_MIN, STAY_AWAY_MAX)
}

/// An agent that lives is back within this where the server can take it at once. Either it had to notice that the
/// server was gone (nothing but silence tells it where the server's host lost power), or its longest wait had begun.
pub fn return_max(beat: Duration) -> Duration {
    let unnoticed = beat.saturating_mul(SILENT_BEATS_MAX).saturating_add(ABSENT_WAIT_MAX);
    unnoticed.max(stay_away_max(beat)).saturating_add(CONNECT_LIMIT)
}

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
}
