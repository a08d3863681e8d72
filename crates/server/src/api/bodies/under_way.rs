//! Bodies that are being read, by whom, and which give way.
//!
//! Promised: of one sender no more than a part, of all together no more than the total. Who sends one more than that
//! loses the one of theirs that has been quiet for longest; where the total is reached, it is the sender with the most
//! who does. So whoever sends many bodies slowly, or none of them to its end, is in nobody's way but their own.
//! Absent: reading anything; room for what is large (`room`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct UnderWay {
    total_max: usize,
    each_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    next: u64,
    by_sender: HashMap<String, BTreeMap<u64, Body>>,
}

#[derive(Debug)]
struct Body {
    last_progress: Instant,
    gives_way: CancellationToken,
}

impl UnderWay {
    pub(super) fn new(total_max: usize, each_max: usize) -> Arc<Self> {
        Arc::new(Self { total_max, each_max, state: Mutex::default() })
    }

    pub(super) fn enter(self: &Arc<Self>, sender: &str) -> Reading {
        let gives_way = CancellationToken::new();
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        if state.of(sender) >= self.each_max {
            state.evict_quietest(sender);
        } else if state.total >= self.total_max {
            let with_most = state.by_sender.iter().max_by_key(|(_, bodies)| bodies.len());
            if let Some(sender) = with_most.map(|(sender, _)| sender.clone()) {
                state.evict_quietest(&sender);
            }
        }
        state.total += 1;
        let body = Body { last_progress: Instant::now(), gives_way: gives_way.clone() };
        state.by_sender.entry(sender.to_owned()).or_default().insert(id, body);
        Reading { all: self.clone(), sender: sender.to_owned(), id, gives_way }
    }
}

impl State {
    fn of(&self, sender: &str) -> usize {
        self.by_sender.get(sender).map_or(0, BTreeMap::len)
    }

    fn evict_quietest(&mut self, sender: &str) {
        let bodies = self.by_sender.get(sender).into_iter().flatten();
        let quietest = bodies.min_by_key(|(_, body)| body.last_progress).map(|(id, _)| *id);
        if let Some(gone) = quietest.and_then(|id| self.remove(sender, id)) {
            gone.gives_way.cancel();
        }
    }

    fn remove(&mut self, sender: &str, id: u64) -> Option<Body> {
        let bodies = self.by_sender.get_mut(sender)?;
        let body = bodies.remove(&id)?;
        if bodies.is_empty() {
            self.by_sender.remove(sender);
        }
        self.total -= 1;
        Some(body)
    }
}

/// A body that is being read; dropped at its end.
#[derive(Debug)]
pub(super) struct Reading {
    all: Arc<UnderWay>,
    sender: String,
    id: u64,
    pub(super) gives_way: CancellationToken,
}

impl Reading {
    pub(super) fn progress(&self) {
        let mut state = self.all.state.lock();
        if let Some(body) = state.by_sender.get_mut(&self.sender).and_then(|bodies| bodies.get_mut(&self.id)) {
            body.last_progress = Instant::now();
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.all.state.lock().remove(&self.sender, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(readings: &[Reading]) -> Vec<usize> {
        (0..).zip(readings).filter(|(_, reading)| reading.gives_way.is_cancelled()).map(|(index, _)| index).collect()
    }

    #[test]
    fn beyond_its_part_a_sender_loses_the_quietest_of_its_own() {
        let all = UnderWay::new(8, 3);
        let other = all.enter("b");
        let own: Vec<_> = (0..3).map(|_| all.enter("a")).collect();
        own[0].progress();

        let newest = all.enter("a");

        assert_eq!(gone(&own), [1]);
        assert!(gone(&[other, newest]).is_empty());
        drop(own);
        let state = all.state.lock();
        assert_eq!((state.total, state.by_sender.len()), (0, 0));
    }

    #[test]
    fn where_all_are_taken_the_sender_with_the_most_gives_way() {
        let all = UnderWay::new(4, 3);
        let other = all.enter("b");
        let flood: Vec<_> = (0..3).map(|_| all.enter("a")).collect();
        flood.iter().for_each(Reading::progress);

        let newest = [all.enter("c"), all.enter("d")];

        assert_eq!(gone(&flood), [0, 1]);
        assert!(gone(std::slice::from_ref(&other)).is_empty() && gone(&newest).is_empty());
        assert_eq!(all.state.lock().total, 4);
    }
}
