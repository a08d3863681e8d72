//! Caches recent verifications, so that a busy caller is not looked up for every call.
//!
//! Promised: an entry is valid for at most [`FRESH`], so a change made outside this server takes effect within that
//! time, and one made through it at once, even if a lookup is in progress at that moment; the number of entries is
//! bounded; keys are keyed hashes, so memory holds no secrets.
//! Absent: refusals, which are looked up every time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(super) const FRESH: Duration = Duration::from_secs(3);
const ENTRIES_MAX: usize = 10_000;

/// By a fingerprint of what was shown as proof.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    entries: Mutex<HashMap<[u8; 32], (V, Instant)>>,
    /// How often it was emptied.
    age: AtomicU64,
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Self { entries: Mutex::default(), age: AtomicU64::new(0) }
    }
}

impl<V: Clone> Cache<V> {
    pub(super) fn get(&self, key: &[u8; 32], now: Instant) -> Option<V> {
        let entries = self.entries.lock();
        entries
            .get(key)
            .filter(|(_, since)| now.saturating_duration_since(*since) < FRESH)
            .map(|(value, _)| value.clone())
    }

    pub(super) fn forget(&self) {
        let mut entries = self.entries.lock();
        self.age.fetch_add(1, Ordering::AcqRel);
        entries.clear();
    }

    /// Must be read before the store is queried.
    pub(super) fn age(&self) -> u64 {
        self.age.load(Ordering::Acquire)
    }

    /// Nothing is kept that was read from the store before the cache was last emptied.
    pub(super) fn put(&self, key: [u8; 32], value: V, now: Instant, age: u64) {
        let mut entries = self.entries.lock();
        if self.age() != age {
            return;
        }
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, (_, since)| now.saturating_duration_since(*since) < FRESH);
        }
        if entries.len() >= ENTRIES_MAX {
            entries.clear();
        }
        entries.insert(key, (value, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_forgotten_after_its_time() {
        let (cache, now) = (Cache::default(), Instant::now());

        cache.put([1; 32], "app", now, cache.age());

        assert_eq!(cache.get(&[1; 32], now), Some("app"));
        assert_eq!(cache.get(&[2; 32], now), None);
        assert_eq!(cache.get(&[1; 32], now + FRESH), None);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let (cache, now) = (Cache::default(), Instant::now());
        let age = cache.age();

        cache.forget();
        cache.put([1; 32], "app", now, age);

        assert_eq!(cache.get(&[1; 32], now), None);
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let (cache, now) = (Cache::default(), Instant::now());

        for number in 0..2 * ENTRIES_MAX as u64 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            cache.put(key, (), now, cache.age());
        }

        assert!(cache.entries.lock().len() <= ENTRIES_MAX);
    }
}
