//! Bodies being read, by sender, and which are evicted.
//!
//! Promised: one payer (an app, whichever users it calls for, or an address) has no more than a share, one sender no
//! more than a share of that, all together no more than the total. A sender who exceeds its share loses its longest
//! idle body; if a payer's share or the total is reached, the sender with the most bodies of that payer, or of the
//! payer with the most, loses one. So a sender of many slow or unfinished bodies only gets in its own way.
//! Absent: reading anything; room for large bodies (`room`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::shares::payer_of;

#[derive(Debug)]
pub(super) struct UnderWay {
    total_max: usize,
    of_payer_max: usize,
    each_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    next: u64,
    by_payer: HashMap<String, OfPayer>,
}

#[derive(Debug, Default)]
struct OfPayer {
    total: usize,
    by_sender: HashMap<String, BTreeMap<u64, Body>>,
}

#[derive(Debug)]
struct Body {
    last_progress: Instant,
    gives_way: CancellationToken,
}

impl UnderWay {
    pub(super) fn new(total_max: usize, of_payer_max: usize, each_max: usize) -> Arc<Self> {
        Arc::new(Self { total_max, of_payer_max, each_max, state: Mutex::default() })
    }

    pub(super) fn enter(self: &Arc<Self>, sender: &str) -> Reading {
        let gives_way = CancellationToken::new();
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        let payer = payer_of(sender);
        if state.of_sender(sender) >= self.each_max {
            state.evict_quietest(sender);
        } else if state.of_payer(payer) >= self.of_payer_max {
            state.evict_of(payer);
        } else if state.total >= self.total_max {
            let with_most = state.by_payer.iter().max_by_key(|(_, own)| own.total);
            if let Some(payer) = with_most.map(|(payer, _)| payer.clone()) {
                state.evict_of(&payer);
            }
        }
        let body = Body { last_progress: Instant::now(), gives_way: gives_way.clone() };
        state.insert(sender, id, body);
        Reading { all: self.clone(), sender: sender.to_owned(), id, gives_way }
    }
}

impl State {
    fn of_payer(&self, payer: &str) -> usize {
        self.by_payer.get(payer).map_or(0, |own| own.total)
    }

    fn of_sender(&self, sender: &str) -> usize {
        let own = self.by_payer.get(payer_of(sender)).and_then(|own| own.by_sender.get(sender));
        own.map_or(0, BTreeMap::len)
    }

    /// Of the sender with the most of this payer.
    fn evict_of(&mut self, payer: &str) {
        let senders = self.by_payer.get(payer).into_iter().flat_map(|own| &own.by_sender);
        let with_most = senders.max_by_key(|(_, bodies)| bodies.len()).map(|(sender, _)| sender.clone());
        if let Some(sender) = with_most {
            self.evict_quietest(&sender);
        }
    }

    fn evict_quietest(&mut self, sender: &str) {
        let own = self.by_payer.get(payer_of(sender)).and_then(|own| own.by_sender.get(sender));
        let quietest = own.into_iter().flatten().min_by_key(|(_, body)| body.last_progress).map(|(id, _)| *id);
        if let Some(gone) = quietest.and_then(|id| self.remove(sender, id)) {
            gone.gives_way.cancel();
        }
    }

    fn insert(&mut self, sender: &str, id: u64, body: Body) {
        self.total += 1;
        let own = self.by_payer.entry(payer_of(sender).to_owned()).or_default();
        own.total += 1;
        own.by_sender.entry(sender.to_owned()).or_default().insert(id, body);
    }

    fn get_mut(&mut self, sender: &str, id: u64) -> Option<&mut Body> {
        self.by_payer.get_mut(payer_of(sender))?.by_sender.get_mut(sender)?.get_mut(&id)
    }

    fn remove(&mut self, sender: &str, id: u64) -> Option<Body> {
        let payer = payer_of(sender);
        let own = self.by_payer.get_mut(payer)?;
        let bodies = own.by_sender.get_mut(sender)?;
        let body = bodies.remove(&id)?;
        if bodies.is_empty() {
            own.by_sender.remove(sender);
        }
        own.total -= 1;
        if own.total == 0 {
            self.by_payer.remove(payer);
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
        if let Some(body) = self.all.state.lock().get_mut(&self.sender, self.id) {
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
        let all = UnderWay::new(8, 3, 3);
        let other = all.enter("b");
        let own: Vec<_> = (0..3).map(|_| all.enter("a")).collect();
        own[0].progress();

        let newest = all.enter("a");

        assert_eq!(gone(&own), [1]);
        assert!(gone(&[other, newest]).is_empty());
        drop(own);
        let state = all.state.lock();
        assert_eq!((state.total, state.by_payer.len()), (0, 0));
    }

    #[test]
    fn where_all_are_taken_the_sender_with_the_most_gives_way() {
        let all = UnderWay::new(4, 3, 3);
        let other = all.enter("b");
        let flood: Vec<_> = (0..3).map(|_| all.enter("a")).collect();
        flood.iter().for_each(Reading::progress);

        let newest = [all.enter("c"), all.enter("d")];

        assert_eq!(gone(&flood), [0, 1]);
        assert!(gone(std::slice::from_ref(&other)).is_empty() && gone(&newest).is_empty());
        assert_eq!(all.state.lock().total, 4);
    }

    #[test]
    fn an_app_has_one_part_whichever_users_it_names() {
        let all = UnderWay::new(8, 4, 2);
        let of_app: Vec<_> = ["app\0a", "app\0a", "app\0b", "app\0c"].map(|sender| all.enter(sender)).into();
        let other = all.enter("other\0a");

        let newest = all.enter("app\0d");

        assert_eq!(gone(&of_app), [0], "the user with the most of the app gives way");
        assert!(gone(&[other, newest]).is_empty());
        drop(of_app);
        let state = all.state.lock();
        assert_eq!((state.total, state.by_payer.len()), (0, 0));
    }

    #[test]
    fn where_all_are_taken_an_app_with_many_users_gives_way_before_one_user_with_fewer() {
        let all = UnderWay::new(6, 5, 3);
        let single = [all.enter("one\0a"), all.enter("one\0a")];
        let many: Vec<_> = ["a", "b", "c", "d"].map(|user| all.enter(&format!("many\0{user}"))).into();

        let _newest = all.enter("new\0a");

        assert_eq!((gone(&many).len(), gone(&single).len()), (1, 0));
    }
}
