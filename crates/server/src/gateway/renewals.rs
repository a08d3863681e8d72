//! How often a peer gets another certificate on one connection.

use std::time::{Duration, Instant};

/// Not more often than this, unless the authority changes: each certificate costs a signature.
const PERIOD_MIN: Duration = Duration::from_secs(60);

/// When the peer of a connection got its last certificate.
#[derive(Debug, Default)]
pub(super) struct RenewalPace {
    /// Of which generation of the authorities, and when.
    last: Option<(u64, Instant)>,
}

impl RenewalPace {
    /// Whether it may have one now. A request that comes too early is dropped.
    pub(super) fn take(&mut self, generation: u64, now: Instant) -> bool {
        let is_due = |(of, at): (u64, Instant)| of != generation || now.saturating_duration_since(at) >= PERIOD_MIN;
        if !self.last.is_none_or(is_due) {
            return false;
        }
        self.last = Some((generation, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gets_one_certificate_a_minute_and_one_of_each_new_authority() {
        let (mut pace, now) = (RenewalPace::default(), Instant::now());

        let first = (0..1000).filter(|_| pace.take(1, now)).count();
        let of_another = (0..1000).filter(|_| pace.take(2, now)).count();
        let early = pace.take(2, now + PERIOD_MIN - Duration::from_millis(1));
        let later = pace.take(2, now + PERIOD_MIN);

        assert_eq!((first, of_another, early, later), (1, 1, false, true));
    }
}
