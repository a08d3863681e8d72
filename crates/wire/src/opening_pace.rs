//! How fast a relay opens streams: the relay obeys it, and the server checks.

use std::time::{Duration, Instant};

/// Agents on one connection of a relay.
pub const RELAY_STREAMS_MAX: usize = 10_000;
/// New agents on one connection: this many at once, and then this many per second.
pub const OPENINGS_AT_ONCE: u32 = 2_000;
pub const OPENINGS_PER_SECOND: u32 = 200;

/// How many streams may be opened now.
#[derive(Debug)]
pub struct OpeningPace {
    left: f64,
    at: Instant,
}

impl OpeningPace {
    pub fn new(now: Instant) -> Self {
        Self { left: OPENINGS_AT_ONCE.into(), at: now }
    }

    /// Takes one, or says how long to wait for it.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let grown = now.saturating_duration_since(self.at).as_secs_f64() * f64::from(OPENINGS_PER_SECOND);
        self.at = now.max(self.at);
        self.left = (self.left + grown).min(OPENINGS_AT_ONCE.into());
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / f64::from(OPENINGS_PER_SECOND)));
        }
        self.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_opens_many_at_once_and_then_at_a_pace() {
        let begun = Instant::now();
        let mut pace = OpeningPace::new(begun);
        let taken = |pace: &mut OpeningPace, at| (0..5_000).filter(|_| pace.take(at).is_ok()).count();

        assert_eq!(taken(&mut pace, begun), OPENINGS_AT_ONCE as usize);
        assert_eq!(taken(&mut pace, begun), 0);
        assert_eq!(taken(&mut pace, begun + Duration::from_secs(1)), OPENINGS_PER_SECOND as usize);
        assert_eq!(taken(&mut pace, begun + Duration::from_secs(3600)), OPENINGS_AT_ONCE as usize);
    }

    #[test]
    fn whoever_waits_as_long_as_it_is_told_gets_one() {
        let (begun, mut waited) = (Instant::now(), Duration::ZERO);
        let mut pace = OpeningPace::new(begun);
        while pace.take(begun).is_ok() {}

        while let Err(wait) = pace.take(begun + waited) {
            assert!(wait > Duration::ZERO);
            waited += wait.max(Duration::from_millis(1));
        }

        assert!(waited <= Duration::from_millis(10), "{waited:?}");
    }
}
