//! What processes may have left on the host: cgroups, processes that escaped them, and forgotten processes.
//!
//! Promised: what may exist stays known until it was found to be gone.
//! Absent: ending anything, and the host.

use std::collections::{BTreeMap, HashSet};

use proctor_model::ProcessKey;
use proctor_supervise::Elder;

use super::leaves::UsedLeaves;

#[derive(Debug, Default)]
pub(super) struct Remnants {
    /// Removed when they are empty and their processes rest.
    pub(super) leaves: UsedLeaves,
    /// Processes of which something may have left its cgroup: the newest life was not seen in it.
    strays: HashSet<ProcessKey>,
    /// What is known about forgotten processes.
    estates: BTreeMap<ProcessKey, Elder>,
}

impl Remnants {
    /// Whether something of the process may be outside its cgroup.
    pub(super) fn set_stray(&mut self, key: &ProcessKey, is_stray: bool) {
        if is_stray {
            self.strays.insert(key.clone());
        } else {
            self.strays.remove(key);
        }
    }

    pub(super) fn is_stray(&self, key: &ProcessKey) -> bool {
        self.strays.contains(key)
    }

    /// The process is forgotten, and this is what stays of it.
    pub(super) fn keep_estate(&mut self, key: ProcessKey, elder: Elder) {
        self.estates.insert(key, elder);
    }

    pub(super) fn estate(&self, key: &ProcessKey) -> Option<&Elder> {
        self.estates.get(key)
    }

    pub(super) fn estates(&self) -> impl Iterator<Item = (&ProcessKey, &Elder)> {
        self.estates.iter()
    }

    /// For the next process of that name.
    pub(super) fn take_estate(&mut self, key: &ProcessKey) -> Option<Elder> {
        self.estates.remove(key)
    }

    /// Nothing of `elder` is left. False: something else is known under that name by now.
    pub(super) fn settle_estate(&mut self, key: &ProcessKey, elder: &Elder) -> bool {
        let is_settled = self.estates.get(key) == Some(elder);
        if is_settled {
            self.estates.remove(key);
        }
        is_settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estate_is_settled_only_as_it_was_looked_at() {
        let key: ProcessKey = "ns/p".parse().unwrap();
        let elder =
            |since| Elder { life: None, since, launched: true, sessions: Vec::new(), until: None, before: Vec::new() };
        let mut remnants = Remnants::default();
        remnants.keep_estate(key.clone(), elder(1));
        remnants.keep_estate(key.clone(), elder(2));

        assert!(!remnants.settle_estate(&key, &elder(1)), "another one was forgotten meanwhile");
        assert!(remnants.estate(&key).is_some() && remnants.settle_estate(&key, &elder(2)));

        assert_eq!((remnants.estates().count(), remnants.take_estate(&key)), (0, None));
    }

    #[test]
    fn a_process_is_stray_until_it_is_seen_in_its_cgroup() {
        let (mut remnants, key) = (Remnants::default(), "ns/p".parse().unwrap());

        remnants.set_stray(&key, true);
        assert!(remnants.is_stray(&key));
        remnants.set_stray(&key, false);

        assert!(!remnants.is_stray(&key));
    }
}
