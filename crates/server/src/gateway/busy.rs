//! When an agent is told to retry later, and how much later.
//!
//! Promised: few enough sessions open at the same time for the store to answer them within a moment, and no more if
//! it stalls and peers give up waiting for it. The others get a random time in a window that grows with the number
//! already deferred; so do agents behind relays that have waited too long for their turn. A server that shuts down
//! spreads its agents over the time it needs to readmit them all.
//! Absent: peers before TLS, to whom nothing can be said that they could trust (see `admission`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_runtime::Dice;
use proctor_wire::STAY_AWAY_MAX;

/// Sessions that open at the same time. The store commits so many together.
const OPENINGS_MAX: u32 = 256;
/// The least window, so that a burst is spread at all.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// The newest opening counts for one part in so many.
const MEMORY: u32 = 16;
/// The minimum assumed cost of a hello when the return of a fleet is planned: recent measurements may have been a few
/// resumed sessions on an idle machine.
const INTERVAL_MIN: Duration = Duration::from_micros(500);
/// The assumed duration of an opening before the first one was measured.
const TOOK_FIRST: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Busy(Mutex<State>);

#[derive(Debug)]
struct State {
    openings: u32,
    took: Duration,
    /// Those that were told to retry could have been served by then.
    booked_until: Option<Instant>,
    dice: Dice,
}

impl Default for State {
    fn default() -> Self {
        Self { openings: 0, took: TOOK_FIRST, booked_until: None, dice: Dice::default() }
    }
}

impl State {
    /// When one more that cannot be served now, and takes this long then, should retry; no later than after
    /// `longest`.
    fn book(&mut self, now: Instant, interval: Duration, longest: Duration) -> Duration {
        let window_max = (longest * 2 / 3).max(WINDOW_MIN);
        let booked_until = self.booked_until.map_or(now, |until| until.max(now)) + interval;
        let booked_until = booked_until.min(now + window_max);
        self.booked_until = Some(booked_until);
        let window = (booked_until - now).max(WINDOW_MIN);
        self.dice.between(window / 2, window * 3 / 2)
    }
}

impl Busy {
    /// The right to open a session; else how long to wait for the next attempt, at most `stay_away_max`.
    pub(super) fn open(self: &Arc<Self>, now: Instant, stay_away_max: Duration) -> Result<Opening, Duration> {
        let mut state = self.0.lock();
        if state.openings >= OPENINGS_MAX {
            // This many at a time, each of which takes this long.
            let interval = state.took / OPENINGS_MAX;
            return Err(state.book(now, interval, stay_away_max));
        }
        state.openings += 1;
        Ok(Opening { busy: self.clone(), begun: now })
    }

    /// When one whose turn did not come should retry; each turn takes `interval`.
    pub(super) fn put_off(&self, now: Instant, interval: Duration, stay_away_max: Duration) -> Duration {
        self.0.lock().book(now, interval, stay_away_max)
    }

    /// For one of so many sessions of a server that ends, which takes each of them back in `interval` and counts those
    /// as lost that are not back within `grace`.
    pub(super) fn after_restart(&self, sessions: usize, interval: Duration, grace: Duration) -> Duration {
        let sessions = u32::try_from(sessions).unwrap_or(u32::MAX);
        let window_max = (grace / 2).clamp(WINDOW_MIN, STAY_AWAY_MAX);
        let window = interval.max(INTERVAL_MIN).saturating_mul(sessions).clamp(WINDOW_MIN, window_max);
        self.0.lock().dice.between(Duration::ZERO, window)
    }
}

/// A session that is being opened.
#[derive(Debug)]
pub(super) struct Opening {
    busy: Arc<Busy>,
    begun: Instant,
}

impl Drop for Opening {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        let mut state = self.busy.0.lock();
        state.openings -= 1;
        state.took = (state.took * (MEMORY - 1) + took) / MEMORY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(busy: &Arc<Busy>, now: Instant) -> Vec<Opening> {
        (0..OPENINGS_MAX).map(|_| busy.open(now, STAY_AWAY_MAX).unwrap()).collect()
    }

    #[test]
    fn the_window_grows_with_those_that_were_told_and_shrinks_with_time() {
        let (busy, now) = (Arc::new(Busy::default()), Instant::now());
        let _openings = full(&busy, now);
        busy.0.lock().took = Duration::from_secs(1);
        let told = |count: u32, at| (0..count).map(|_| busy.open(at, STAY_AWAY_MAX).unwrap_err()).collect::<Vec<_>>();

        let (first, last) = (told(100, now), told(5_000, now).split_off(4_900));
        let later = told(100, now + Duration::from_secs(60));

        let within = |waits: &[Duration], low: u64, high: u64| {
            let limits = Duration::from_millis(low)..=Duration::from_millis(high);
            assert!(waits.iter().all(|wait| limits.contains(wait)), "{waits:?}");
        };
        // 256 in a second: 5,100 need 19.9 s, and the longest window is 20 s.
        within(&first, 500, 1_500);
        within(&last, 9_700, 30_000);
        within(&later, 500, 1_500);
        assert!(last.iter().max().unwrap() > &Duration::from_secs(20) && last.iter().min() < last.iter().max());
    }

    #[test]
    fn nobody_is_told_to_stay_away_for_longer_than_the_next_server_would_wait() {
        let (busy, now) = (Arc::new(Busy::default()), Instant::now());
        let _openings = full(&busy, now);
        busy.0.lock().took = Duration::from_secs(3600);

        for longest in [Duration::from_secs(10), STAY_AWAY_MAX] {
            let told: Vec<_> = (0..10_000).map(|_| busy.open(now, longest).unwrap_err()).collect();
            assert!(told.iter().all(|wait| *wait <= longest), "{longest:?}");
        }
    }

    #[test]
    fn those_whose_turn_did_not_come_are_spread_over_the_turns_that_they_need() {
        let (busy, now) = (Busy::default(), Instant::now());
        let told: Vec<_> = (0..10_000).map(|_| busy.put_off(now, Duration::from_millis(1), STAY_AWAY_MAX)).collect();

        assert!(told[..100].iter().all(|wait| *wait <= Duration::from_millis(1_500)));
        assert!(told[9_900..].iter().all(|wait| (Duration::from_secs(4)..Duration::from_secs(16)).contains(wait)));
    }

    #[test]
    fn what_is_over_makes_room() {
        let (busy, now) = (Arc::new(Busy::default()), Instant::now());
        let mut openings = full(&busy, now);
        assert!(busy.open(now, STAY_AWAY_MAX).is_err());

        openings.pop();

        assert!(busy.open(now, STAY_AWAY_MAX).is_ok());
    }

    #[test]
    fn a_restart_spreads_a_fleet_over_the_time_that_its_handshakes_take() {
        let (busy, interval, grace) = (Busy::default(), Duration::from_millis(1), Duration::from_secs(85));
        let drawn = |sessions, interval, grace| -> Vec<_> {
            (0..1000).map(|_| busy.after_restart(sessions, interval, grace)).collect()
        };

        let (fleet, few) = (drawn(15_000, interval, grace), drawn(3, interval, grace));
        let slow = drawn(1_000, Duration::from_millis(40), Duration::from_secs(15));

        assert!(fleet.iter().all(|wait| *wait <= Duration::from_secs(15)));
        assert!(fleet.iter().any(|wait| *wait > Duration::from_secs(13)));
        assert!(few.iter().all(|wait| *wait <= WINDOW_MIN));
        let cheap = drawn(15_000, Duration::from_micros(10), grace);
        assert!(
            cheap.iter().any(|wait| *wait > Duration::from_secs(6)),
            "however cheap it seems: {:?}",
            cheap.iter().max()
        );
        assert!(slow.iter().all(|wait| *wait <= Duration::from_millis(7_500)), "nobody is lost for having waited");
        assert!(drawn(usize::MAX, interval, grace).iter().all(|wait| *wait <= STAY_AWAY_MAX));
    }
}
