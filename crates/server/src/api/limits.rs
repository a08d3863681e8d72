//! How much one caller may ask at once: calls in a second, and calls at the same time.
//!
//! Promised: every refusal says when to come again and is written in the family's own shape. A rate
//! counts for an app (for a user who comes without one, for the user) over all dialects. The places for
//! calls at the same time are the whole server's: they bound the memory that bodies take before anybody
//! has proved anything. Absent: rates of addresses; a proxy in front knows those better.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proctor_model::FieldError;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Calls at the same time where nothing else is said.
pub(super) const CONCURRENCY: NonZeroU32 = NonZeroU32::new(512).expect("it is not zero");
/// Callers whose rate is remembered; those who were quiet for a second are forgotten first.
const CALLERS_MAX: usize = 10_000;

/// Calls of one app in a second, on average; a second's worth may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit(NonZeroU32);

impl FromStr for RateLimit {
    type Err = FieldError;

    /// `100/s` or `100`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().strip_suffix("/s").unwrap_or_else(|| text.trim());
        number.parse().map(Self).map_err(|_| {
            FieldError::new("rate_limit", format!("'{text}' is not a number of calls per second such as 100/s"))
        })
    }
}

/// The rates of all callers.
#[derive(Debug)]
pub(super) struct Rates {
    limit: Option<RateLimit>,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn refilled(self, per_second: f64, now: Instant) -> Self {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * per_second;
        Self { tokens: (self.tokens + gained).min(per_second), at: now }
    }
}

impl Rates {
    pub(super) fn new(limit: Option<RateLimit>) -> Self {
        Self { limit, buckets: Mutex::default() }
    }

    /// Takes one call off the caller's account; without one left, how long until there is.
    pub(super) fn take(&self, caller: &str, now: Instant) -> Result<(), Duration> {
        let Some(RateLimit(limit)) = self.limit else { return Ok(()) };
        let per_second = f64::from(limit.get());
        let mut buckets = self.buckets.lock();
        if buckets.len() >= CALLERS_MAX && !buckets.contains_key(caller) {
            make_room(&mut buckets, per_second, now);
        }
        let full = Bucket { tokens: per_second, at: now };
        let bucket = buckets.entry(caller.to_owned()).or_insert(full);
        *bucket = bucket.refilled(per_second, now);
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

/// Those that are full again need not be remembered; if there are none, everybody begins anew.
fn make_room(buckets: &mut HashMap<String, Bucket>, per_second: f64, now: Instant) {
    buckets.retain(|_, bucket| bucket.refilled(per_second, now).tokens < per_second);
    if buckets.len() >= CALLERS_MAX {
        buckets.clear();
    }
}

/// Places for calls at the same time.
#[derive(Debug)]
pub(super) struct Places {
    free: Semaphore,
    pub(super) max: u32,
}

impl Places {
    pub(super) fn new(max: NonZeroU32) -> Self {
        Self { free: Semaphore::new(max.get() as usize), max: max.get() }
    }

    /// None where all are taken.
    pub(super) fn take(&self) -> Option<SemaphorePermit<'_>> {
        self.free.try_acquire().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(text: &str) -> Rates {
        Rates::new(Some(text.parse().unwrap()))
    }

    #[test]
    fn a_second_of_calls_may_come_at_once_and_then_at_their_pace() {
        let (rates, now) = (rates("4/s"), Instant::now());

        for _ in 0..4 {
            assert_eq!(rates.take("a", now), Ok(()));
        }
        assert_eq!(rates.take("a", now), Err(Duration::from_millis(250)));
        assert_eq!(rates.take("b", now), Ok(()), "another app has an account of its own");
        assert_eq!(rates.take("a", now + Duration::from_millis(250)), Ok(()));
        assert!(rates.take("a", now + Duration::from_millis(300)).is_err());
    }

    #[test]
    fn over_any_time_no_more_than_the_rate_and_one_second_gets_through() {
        let (rates, now) = (rates("10"), Instant::now());

        let let_through = (0..5000).filter(|step| rates.take("a", now + Duration::from_millis(*step)).is_ok()).count();

        assert!((50..=60).contains(&let_through), "{let_through}");
    }

    #[test]
    fn quiet_callers_are_forgotten() {
        let (rates, now) = (rates("1"), Instant::now());
        for number in 0..CALLERS_MAX {
            rates.take(&number.to_string(), now).unwrap();
        }

        rates.take("new", now + Duration::from_secs(1)).unwrap();

        assert_eq!(rates.buckets.lock().len(), 1);
    }

    #[test]
    fn a_rate_is_a_number_per_second() {
        assert!("100/s".parse::<RateLimit>().is_ok() && " 7 ".parse::<RateLimit>().is_ok());
        for bad in ["0", "-1", "x", "", "5/m", "1.5/s"] {
            assert!(bad.parse::<RateLimit>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_that_is_given_back_can_be_taken_again() {
        let places = Places::new(NonZeroU32::MIN);

        let first = places.take();
        let second = places.take();

        assert!(first.is_some() && second.is_none());
        drop(first);
        assert!(places.take().is_some());
    }
}
