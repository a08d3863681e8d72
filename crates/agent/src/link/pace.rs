//! The heartbeat interval of a session, which the server may change at any time: it scales with the fleet.
//!
//! Promised: whatever a server says, heartbeats are neither too frequent nor too rare to notice that it is gone.
//! Absent: the heartbeats themselves, which the driver sends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

const BEAT_MIN: Duration = Duration::from_secs(1);
const BEAT_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct SessionPace {
    beat_ms: AtomicU64,
    changed: Notify,
}

impl SessionPace {
    /// As the welcome says.
    pub(super) fn new(beat: Duration) -> Self {
        Self { beat_ms: AtomicU64::new(millis(beat)), changed: Notify::new() }
    }

    pub(super) fn beat(&self) -> Duration {
        Duration::from_millis(self.beat_ms.load(Ordering::Relaxed))
    }

    /// As close as possible to what the server wants.
    pub(super) fn fitted(wanted: Duration) -> Duration {
        wanted.clamp(BEAT_MIN, BEAT_MAX)
    }

    pub(super) fn set(&self, beat: Duration) {
        self.beat_ms.store(millis(beat), Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Returns when there is another interval.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_interval_changes_within_bounds_and_whoever_waits_hears_of_it() {
        let pace = SessionPace::new(Duration::from_secs(5));
        pace.set(SessionPace::fitted(Duration::from_secs(11)));

        pace.changed().await;

        assert_eq!(pace.beat(), Duration::from_secs(11));
        assert_eq!([Duration::ZERO, Duration::MAX].map(SessionPace::fitted), [BEAT_MIN, BEAT_MAX]);
    }
}
