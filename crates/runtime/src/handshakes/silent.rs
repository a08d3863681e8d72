//! Connections on which nothing was heard yet.
//!
//! Promised: they keep nobody out who speaks, however many they are: they hold none of the greetings, and where all of
//! their own places are taken, a new one is let in and the oldest of the address that has most of them is closed. So
//! whoever speaks at once is heard. Those of known addresses are apart. Absent: who is known, and what follows the first
//! word (see the module above).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Silent connections of addresses that are not known, and as many of those that are.
pub(super) const SILENT_MAX: usize = 512;

/// Those of the unknown, or of the known.
#[derive(Debug, Default)]
pub(super) struct Silent(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    open: BTreeMap<u64, (IpAddr, CancellationToken)>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
    next: u64,
}

impl Silent {
    pub(super) fn count_of(&self, address: IpAddr) -> usize {
        self.0.lock().by_address.get(&address).map_or(0, BTreeSet::len)
    }

    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> SilentPlace {
        let mut places = self.0.lock();
        while places.open.len() >= SILENT_MAX {
            let Some(oldest) = places.oldest_of_most() else { break };
            if let Some(gives_way) = places.remove(oldest) {
                gives_way.cancel();
            }
        }
        let (id, gives_way) = (places.next, CancellationToken::new());
        places.next += 1;
        places.open.insert(id, (address, gives_way.clone()));
        places.by_address.entry(address).or_default().insert(id);
        SilentPlace { silent: self.clone(), id, gives_way }
    }
}

impl Places {
    fn oldest_of_most(&self) -> Option<u64> {
        let most = self.by_address.values().max_by_key(|ids| (ids.len(), ids.first().map(Reverse)))?;
        most.first().copied()
    }

    fn remove(&mut self, id: u64) -> Option<CancellationToken> {
        let (address, gives_way) = self.open.remove(&id)?;
        if let Some(ids) = self.by_address.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_address.remove(&address);
            }
        }
        Some(gives_way)
    }
}

/// A connection that has said nothing yet; dropped when it has, or is gone.
#[derive(Debug)]
pub struct SilentPlace {
    silent: Arc<Silent>,
    id: u64,
    pub(super) gives_way: CancellationToken,
}

impl Drop for SilentPlace {
    fn drop(&mut self) {
        self.silent.0.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        let [.., high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    fn gone(places: &[SilentPlace]) -> Vec<usize> {
        (0..).zip(places).filter(|(_, place)| place.gives_way.is_cancelled()).map(|(index, _)| index).collect()
    }

    #[test]
    fn the_oldest_of_one_address_give_way_to_its_newest() {
        let silent = Arc::new(Silent::default());
        let flood: Vec<_> = (0..SILENT_MAX + 10).map(|_| silent.enter(address(1))).collect();

        assert_eq!(gone(&flood), (0..10).collect::<Vec<_>>());
        assert_eq!(silent.count_of(address(1)), SILENT_MAX);
    }

    #[test]
    fn the_address_that_has_most_gives_way_to_one_that_has_fewer() {
        let silent = Arc::new(Silent::default());
        let few: Vec<_> = (0..10).map(|_| silent.enter(address(2))).collect();
        let flood: Vec<_> = (0..SILENT_MAX).map(|_| silent.enter(address(1))).collect();

        let newest: Vec<_> = (3..23).map(|number| silent.enter(address(number))).collect();

        assert!(gone(&few).is_empty() && gone(&newest).is_empty());
        assert_eq!(gone(&flood), (0..30).collect::<Vec<_>>());
    }

    #[test]
    fn where_all_have_one_the_oldest_gives_way() {
        let silent = Arc::new(Silent::default());
        let flood: Vec<_> = (0..SILENT_MAX).map(|number| silent.enter(address(number))).collect();

        let _newest = silent.enter(address(SILENT_MAX));

        assert_eq!(gone(&flood), [0]);
    }

    #[test]
    fn nothing_is_kept_of_who_is_gone() {
        let silent = Arc::new(Silent::default());
        drop((0..2 * SILENT_MAX).map(|number| silent.enter(address(number % 7))).collect::<Vec<_>>());

        let places = silent.0.lock();
        assert!(places.open.is_empty() && places.by_address.is_empty());
    }
}
