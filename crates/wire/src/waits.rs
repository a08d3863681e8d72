//! How long agents stay away from a server that cannot take them now.
//!
//! Both ends must agree on it: a server that has started counts those agents as lost that could have come back and did
//! not. Absent: how an agent draws its waits, and how a server draws those that it asks for.

use std::time::Duration;

/// For one attempt of an agent, from the first packet to the welcome.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A large fleet must not come back all at once; in a small one nobody has to wait for long.
const STAY_AWAY_BEATS: u32 = 2;
const STAY_AWAY_MIN: Duration = Duration::from_secs(1);
/// Also where the interval of the heartbeats is not known yet.
pub const STAY_AWAY_MAX: Duration = Duration::from_secs(30);

/// The longest wait of an agent between two attempts, by the heartbeat interval that it was welcomed with, which
/// grows with the fleet.
pub fn stay_away_max(beat: Duration) -> Duration {
    beat.saturating_mul(STAY_AWAY_BEATS).clamp(STAY_AWAY_MIN, STAY_AWAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_of_a_large_fleet_stay_away_longer_within_bounds() {
        let beats = [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(10), Duration::MAX];

        assert_eq!(beats.map(|beat| stay_away_max(beat).as_secs()), [1, 10, 20, 30]);
    }
}
