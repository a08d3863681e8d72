//! Nonces of signed requests, so that none is accepted twice.
//!
//! Promised: a nonce is remembered as long as its signature would be valid, here and in the store, so that a restart
//! forgets none. The memory is bounded, in total and per app: while it is full, no further signed request is
//! accepted, so none can be replayed, and an app that sends too many only blocks itself. Expired nonces are dropped
//! without scanning the rest.
//! Absent: who an app is; only requests with a valid signature get here.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;

/// Of one app: about 330 requests in every second of `AGE_MAX`.
const OF_APP_MAX: usize = 100_000;
/// Of all apps. With about 100 bytes each, 40 MB.
const TOTAL_MAX: usize = 4 * OF_APP_MAX;

/// Of app and nonce.
pub(super) type Fingerprint = [u8; 32];

#[derive(Debug)]
pub(super) struct Nonces {
    of_app_max: usize,
    total_max: usize,
    state: Mutex<State>,
}

impl Default for Nonces {
    fn default() -> Self {
        Self::bounded(OF_APP_MAX, TOTAL_MAX)
    }
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    by_app: HashMap<String, OfApp>,
}

/// Until when each counts, in Unix seconds, and those that end in a second.
#[derive(Debug, Default)]
struct OfApp {
    seen: HashMap<Fingerprint, i64>,
    by_end: BTreeMap<i64, Vec<Fingerprint>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    New,
    Seen,
    /// Of the app or of all, and for how long.
    NoRoom {
        is_own: bool,
        wait: Duration,
    },
}

impl Nonces {
    fn bounded(of_app_max: usize, total_max: usize) -> Self {
        Self { of_app_max, total_max, state: Mutex::default() }
    }

    pub(super) fn is_seen(&self, app: &str, fingerprint: &Fingerprint, now_secs: i64) -> bool {
        let state = self.state.lock();
        state.by_app.get(app).and_then(|of_app| of_app.seen.get(fingerprint)).is_some_and(|until| *until >= now_secs)
    }

    /// To be called only for a signature that is right: others must not fill the memory.
    pub(super) fn note(&self, app: &str, fingerprint: Fingerprint, until: i64, now_secs: i64) -> Noted {
        let mut state = self.state.lock();
        state.forget_old(app, now_secs);
        if state.total >= self.total_max {
            let apps: Vec<String> = state.by_app.keys().cloned().collect();
            apps.iter().for_each(|app| state.forget_old(app, now_secs));
        }
        if state.by_app.get(app).is_some_and(|of_app| of_app.seen.contains_key(&fingerprint)) {
            return Noted::Seen;
        }
        let own = state.by_app.get(app);
        if own.is_some_and(|own| own.seen.len() >= self.of_app_max) {
            return Noted::NoRoom { is_own: true, wait: wait_for(own, now_secs) };
        }
        if state.total >= self.total_max {
            return Noted::NoRoom { is_own: false, wait: wait_for(state.by_app.values(), now_secs) };
        }
        let of_app = state.by_app.entry(app.to_owned()).or_default();
        of_app.seen.insert(fingerprint, until);
        of_app.by_end.entry(until).or_default().push(fingerprint);
        state.total += 1;
        Noted::New
    }

    /// For one whose request was not done, because the store could not take it.
    pub(super) fn forget(&self, app: &str, fingerprint: &Fingerprint) {
        let mut state = self.state.lock();
        let Some(of_app) = state.by_app.get_mut(app) else { return };
        let Some(until) = of_app.seen.remove(fingerprint) else { return };
        if let Some(ending) = of_app.by_end.get_mut(&until) {
            ending.retain(|noted| noted != fingerprint);
            if ending.is_empty() {
                of_app.by_end.remove(&until);
            }
        }
        if of_app.seen.is_empty() {
            state.by_app.remove(app);
        }
        state.total -= 1;
    }
}

/// Until the first of theirs ends.
fn wait_for<'a>(apps: impl IntoIterator<Item = &'a OfApp>, now_secs: i64) -> Duration {
    let first = apps.into_iter().filter_map(|of_app| of_app.by_end.keys().next()).min();
    let secs = first.map_or(0, |until| until.saturating_sub(now_secs));
    Duration::from_secs(u64::try_from(secs).unwrap_or(0) + 1)
}

impl State {
    fn forget_old(&mut self, app: &str, now_secs: i64) {
        let Some(of_app) = self.by_app.get_mut(app) else { return };
        while let Some(first) = of_app.by_end.first_entry().filter(|first| *first.key() < now_secs) {
            for fingerprint in first.remove() {
                of_app.seen.remove(&fingerprint);
                self.total -= 1;
            }
        }
        if of_app.seen.is_empty() {
            self.by_app.remove(app);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> Fingerprint {
        let mut fingerprint = [0; 32];
        fingerprint[..8].copy_from_slice(&number.to_be_bytes());
        fingerprint
    }

    #[test]
    fn a_nonce_counts_once_while_its_signature_would_count() {
        let nonces = Nonces::default();

        assert_eq!(nonces.note("a", [1; 32], 1300, 1000), Noted::New);
        assert!(nonces.is_seen("a", &[1; 32], 1300) && !nonces.is_seen("a", &[1; 32], 1301));
        assert_eq!(nonces.note("a", [1; 32], 1500, 1300), Noted::Seen);
        assert_eq!(nonces.note("a", [2; 32], 1300, 1300), Noted::New);
        assert_eq!(nonces.note("a", [1; 32], 1601, 1301), Noted::New);
        assert_eq!(nonces.state.lock().total, 1, "what is old is forgotten");
    }

    #[test]
    fn one_that_is_forgotten_is_new_again_and_takes_no_room() {
        let nonces = Nonces::bounded(2, 2);
        nonces.note("a", [1; 32], 1300, 1000);
        nonces.note("a", [2; 32], 1300, 1000);

        nonces.forget("a", &[1; 32]);
        nonces.forget("a", &[9; 32]);

        assert!(!nonces.is_seen("a", &[1; 32], 1000) && nonces.is_seen("a", &[2; 32], 1000));
        assert_eq!(nonces.note("a", [1; 32], 1300, 1000), Noted::New);
        nonces.forget("a", &[1; 32]);
        nonces.forget("a", &[2; 32]);
        let state = nonces.state.lock();
        assert_eq!((state.total, state.by_app.len()), (0, 0));
    }

    #[test]
    fn an_app_with_too_many_nonces_is_refused_and_others_are_not() {
        let nonces = Nonces::bounded(3, 8);
        for nonce in 0..3 {
            assert_eq!(nonces.note("flood", number(nonce), 1300, 1000), Noted::New);
        }

        let wait = Duration::from_secs(101);
        assert_eq!(nonces.note("flood", number(3), 1500, 1200), Noted::NoRoom { is_own: true, wait });
        assert_eq!(nonces.note("flood", number(1), 1500, 1200), Noted::Seen, "it tells a replay still");
        assert_eq!(nonces.note("other", number(10), 1500, 1200), Noted::New);
        assert_eq!(nonces.note("flood", number(3), 1601, 1301), Noted::New);
    }

    #[test]
    fn a_memory_that_is_full_takes_nothing_new_until_something_is_old() {
        let nonces = Nonces::bounded(2, 4);
        for (index, app) in (0..).zip(["a", "a", "b", "b"]) {
            assert_eq!(nonces.note(app, number(index), 1300 + index.cast_signed(), 1000), Noted::New);
        }

        let wait = Duration::from_secs(1);
        assert_eq!(nonces.note("c", [9; 32], 1600, 1300), Noted::NoRoom { is_own: false, wait });
        assert_eq!(nonces.note("c", [9; 32], 1601, 1301), Noted::New);
        assert_eq!(nonces.state.lock().total, 4);
    }
}
