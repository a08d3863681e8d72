//! How far this agent has processed the server's registrations for its host.
//!
//! Promised: a generation counts as seen only when the ledger holds what came with it; a registration that waits for
//! work in progress is tracked.
//! Absent: the registrations themselves, which the machines hold.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proctor_model::ProcessKey;

use super::held::HeldGenerations;
use super::registered::ArrivingList;
use crate::ledger::Held;

#[derive(Debug)]
pub(super) struct Registrations {
    /// The newest one received.
    newest: u64,
    /// The newest that is on disk.
    written: Arc<AtomicU64>,
    /// Processes whose registration waits for work in progress.
    deferred: HashSet<ProcessKey>,
    /// Of everything that is registered.
    pub(super) arriving: ArrivingList,
    /// The generation of each.
    pub(super) held: HeldGenerations,
}

impl Registrations {
    pub(super) fn new(generation: u64, held: Held) -> Self {
        Self {
            newest: generation,
            written: Arc::new(generation.into()),
            deferred: HashSet::new(),
            arriving: ArrivingList::default(),
            held: HeldGenerations::new(held),
        }
    }

    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether it is newer than all before.
    pub(super) fn hear(&mut self, generation: u64) -> bool {
        let is_newer = generation > self.newest;
        self.newest = self.newest.max(generation);
        is_newer
    }

    /// What came up to this generation is on disk.
    pub(super) fn note_written(&self, generation: u64) {
        self.written.store(generation, Ordering::Release);
    }

    /// Follows what is on disk.
    pub(super) fn written(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.written)
    }

    /// Whether that is news.
    pub(super) fn set_deferred(&mut self, key: &ProcessKey, waits: bool) -> bool {
        if waits { self.deferred.insert(key.clone()) } else { self.deferred.remove(key) }
    }

    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_heard_once_and_seen_when_it_is_written() {
        let mut registrations = Registrations::new(3, Held::default());
        let written = registrations.written();

        let heard = [2, 3, 5, 5, 4].map(|generation| registrations.hear(generation));

        assert_eq!((heard, registrations.newest()), ([false, false, true, false, false], 5));
        assert_eq!(written.load(Ordering::Acquire), 3);
        registrations.note_written(5);
        assert_eq!(written.load(Ordering::Acquire), 5);
    }

    #[test]
    fn a_registration_that_waits_is_news_once() {
        let (mut registrations, key) = (Registrations::new(0, Held::default()), "ns/p".parse().unwrap());

        let news = [true, true, false, false].map(|waits| registrations.set_deferred(&key, waits));

        assert_eq!(news, [true, false, true, false]);
        assert!(!registrations.has_deferred());
    }
}
