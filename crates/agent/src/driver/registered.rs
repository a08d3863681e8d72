//! The full list of registrations, sent to an agent whose state directory is older than the server's memory of
//! unregistrations: a copy from a snapshot of the machine.
//!
//! Promised: only a complete list, received in order, counts; then what is not in it is unregistered, which releases
//! a process and leaves it alone, and pools that are not in it are no longer enforced.
//! Absent: who gets such a list, which the server decides (`store`, "pruned_generation").

use std::collections::HashSet;

use proctor_model::{Namespace, Percent, Pool, PoolId, PoolLimits, ProcessKey, Weight};
use proctor_wire::RegisteredPart;

use super::Driver;
use super::processes::whole_key;
use crate::ledger::HeldName;

/// Names of one list; a host has far fewer.
const NAMES_MAX: usize = 200_000;

/// The received part of a list.
#[derive(Debug, Default)]
pub(super) struct ArrivingList {
    processes: HashSet<ProcessKey>,
    pools: HashSet<(Namespace, PoolId)>,
    /// Names so far.
    count: usize,
}

impl ArrivingList {
    /// The whole list, with its last part. A part that does not follow is the end of the list that it is of.
    fn take(&mut self, part: RegisteredPart) -> Option<Self> {
        let RegisteredPart { offset, processes, pools, is_last } = part;
        let mut list = std::mem::take(self);
        if offset == 0 {
            list = Self::default();
        }
        if usize::try_from(offset) != Ok(list.count) {
            tracing::warn!(offset, have = list.count, "registration list has a gap, ignored");
            return None;
        }
        list.count += processes.len() + pools.len();
        if list.count > NAMES_MAX {
            tracing::warn!(names = list.count, "registration list too long, ignored");
            return None;
        }
        list.processes.extend(processes);
        list.pools.extend(pools);
        if is_last {
            return Some(list);
        }
        *self = list;
        None
    }
}

impl Driver {
    pub(super) fn handle_registered_part(&mut self, part: RegisteredPart) {
        let Some(list) = self.registrations.arriving.take(part) else { return };
        let registered = self.processes.all().filter(|process| process.is_registered());
        let gone: HashSet<ProcessKey> = registered.map(whole_key).filter(|key| !list.processes.contains(key)).collect();
        let pools = self.usage.limits.limiting_pools();
        let gone_pools: Vec<_> = pools.into_iter().filter(|name| !list.pools.contains(name)).collect();
        if gone.is_empty() && gone_pools.is_empty() {
            return;
        }
        tracing::warn!(
            processes = gone.len(),
            pools = gone_pools.len(),
            "state directory older than the server's records: dropping processes that are no longer registered"
        );
        for key in gone {
            tracing::info!(process = %key, "no longer registered");
            self.forget_others(&key, 0);
            self.hold(HeldName::Process(key), None);
        }
        for (namespace, id) in gone_pools {
            self.hold(HeldName::Pool(namespace.clone(), id.clone()), None);
            let pool = Pool { namespace, id, limits: no_limits() };
            self.usage.limits.set_pool(pool.clone(), self.now());
            self.ledger.batch.pools.push(pool);
        }
    }
}

fn no_limits() -> PoolLimits {
    let none = Percent::try_from(0.0).expect("0 is a percentage");
    PoolLimits { cpu: none, memory: none, cpu_weight: Weight::Usage, memory_weight: Weight::Usage, dry_run: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u32, names: &[&str], is_last: bool) -> RegisteredPart {
        let processes = names.iter().map(|name| format!("web/{name}").parse().unwrap()).collect();
        RegisteredPart { offset, processes, pools: Vec::new(), is_last }
    }

    #[test]
    fn only_a_list_that_has_come_whole_counts() {
        let mut list = ArrivingList::default();

        assert!(list.take(part(0, &["a", "b"], false)).is_none());
        assert!(list.take(part(3, &["d"], true)).is_none(), "c is missing");
        assert!(list.take(part(2, &["c"], true)).is_none(), "a list with a gap is over");
        assert!(list.take(part(0, &["a"], false)).is_none());
        // The session ended, and the next one begins anew.
        assert!(list.take(part(0, &["a"], false)).is_none());
        let whole = list.take(part(1, &["b"], true)).unwrap();

        assert_eq!(whole.processes, part(0, &["a", "b"], true).processes.into_iter().collect());
        assert!(list.take(part(0, &[], true)).is_some_and(|list| list.count == 0), "nothing may be registered");
    }

    #[test]
    fn a_list_without_an_end_takes_no_memory() {
        let mut list = ArrivingList::default();
        let names = vec!["a"; 10_000];
        for number in 0..20 {
            assert!(list.take(part(number * 10_000, &names, false)).is_none());
        }

        assert!(list.take(part(200_000, &["b"], false)).is_none());
        assert_eq!((list.count, list.processes.len()), (0, 0));
    }
}
