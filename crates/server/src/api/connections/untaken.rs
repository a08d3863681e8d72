//! Memory held by responses until their peers have read them.
//!
//! Promised: together they hold at most [`UNTAKEN_BYTES_MAX`]; beyond that, the connection that holds most of it is
//! evicted, slow readers first. A response whose text others hold, too, is counted once.
//! Absent: responses below [`UNTAKEN_BYTES_MIN`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Connection, Connections, SLOW_AFTER, millis};

/// Answers that are rendered and not yet taken, of all connections.
pub(super) const UNTAKEN_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Smaller answers do not count for that.
pub(super) const UNTAKEN_BYTES_MIN: u64 = 64 * 1024;

/// An answer whose text others may hold, too, with its length. Put into the extensions of a response.
#[derive(Clone, Debug)]
pub(in crate::api) struct SharedAnswer(Arc<u64>);

impl SharedAnswer {
    pub(in crate::api) fn new(bytes: usize) -> Self {
        Self(Arc::new(bytes as u64))
    }

    pub(in crate::api) fn bytes(&self) -> u64 {
        *self.0
    }

    fn identity(&self) -> *const u64 {
        Arc::as_ptr(&self.0)
    }
}

/// How many connections hold each shared answer, with its length.
type Holders = HashMap<*const u64, (u64, u64)>;

impl Connection {
    /// With its part of what it shares.
    fn held(&self, holders: &Holders) -> u64 {
        let part = |answer: &SharedAnswer| {
            let holders = holders.get(&answer.identity()).map_or(1, |(_, count)| *count);
            answer.bytes() / holders.max(1)
        };
        self.untaken_bytes.load(Ordering::Relaxed) + self.shared.lock().values().map(part).sum::<u64>()
    }

    fn is_slow_to_take(&self) -> bool {
        self.now().saturating_sub(self.last_progress.load(Ordering::Relaxed)) >= millis(SLOW_AFTER)
    }
}

impl Connections {
    /// After an answer of this size was rendered.
    pub(in crate::api) fn bound_untaken(&self, added: u64) {
        if added < UNTAKEN_BYTES_MIN {
            return;
        }
        let mut open = self.open.lock();
        loop {
            let holders = shared_of(&open);
            let own = open.values().map(|connection| connection.untaken_bytes.load(Ordering::Relaxed)).sum::<u64>();
            if own + holders.values().map(|(bytes, _)| bytes).sum::<u64>() <= UNTAKEN_BYTES_MAX {
                return;
            }
            let held = open.values().map(|connection| (connection.held(&holders), connection));
            let holding = held.filter(|(held, _)| *held > 0);
            let largest = holding.max_by_key(|(held, connection)| (connection.is_slow_to_take(), *held));
            let Some(victim) = largest.map(|(_, connection)| connection.id) else { return };
            if let Some(connection) = open.remove(&victim) {
                connection.gives_way.cancel();
            }
        }
    }
}

fn shared_of(open: &BTreeMap<u64, Arc<Connection>>) -> Holders {
    let mut holders = Holders::new();
    for connection in open.values() {
        for answer in connection.shared.lock().values() {
            holders.entry(answer.identity()).or_insert_with(|| (answer.bytes(), 0)).1 += 1;
        }
    }
    holders
}
