//! When the machine of each process wants to be woken. One time per process; reads no clock.

use std::collections::{BTreeSet, HashMap};

use proctor_model::ProcessKey;
use proctor_supervise::Time;

#[derive(Debug, Default)]
pub(super) struct Timers {
    by_time: BTreeSet<(Time, ProcessKey)>,
    of: HashMap<ProcessKey, Time>,
}

impl Timers {
    /// Replaces the previous one; None: it wants nothing.
    pub(super) fn set(&mut self, key: &ProcessKey, at: Option<Time>) {
        if let Some(before) = self.of.remove(key) {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.by_time.insert((at, key.clone()));
            self.of.insert(key.clone(), at);
        }
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// The first whose time has come.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<ProcessKey> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.of.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(secs: u64) -> Time {
        Time::since_boot(Duration::from_secs(secs))
    }

    fn key(name: &str) -> ProcessKey {
        format!("ns/{name}").parse().unwrap()
    }

    #[test]
    fn who_is_due_comes_once_and_in_order() {
        let mut timers = Timers::default();
        for (name, secs) in [("b", 2), ("a", 1), ("c", 9)] {
            timers.set(&key(name), Some(at(secs)));
        }

        let due: Vec<ProcessKey> = std::iter::from_fn(|| timers.pop_due(at(2))).collect();

        assert_eq!(due, [key("a"), key("b")]);
        assert_eq!((timers.next(), timers.pop_due(at(8))), (Some(at(9)), None));
    }

    #[test]
    fn a_later_word_replaces_the_one_before() {
        let mut timers = Timers::default();
        timers.set(&key("a"), Some(at(1)));
        timers.set(&key("b"), Some(at(1)));

        timers.set(&key("a"), Some(at(5)));
        timers.set(&key("b"), None);

        assert_eq!((timers.pop_due(at(4)), timers.pop_due(at(5)), timers.next()), (None, Some(key("a")), None));
    }
}
