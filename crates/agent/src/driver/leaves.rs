//! The cgroups of processes that may exist.
//!
//! Promised: one that is reused while it is being removed stays known.
//! Absent: the host.

use std::collections::HashMap;

use proctor_model::ProcessKey;

#[derive(Debug, Default)]
pub(super) struct UsedLeaves {
    /// When each was last used, counted in uses of all.
    last_use: HashMap<ProcessKey, u64>,
    uses: u64,
}

/// The leaf of a process at the time of the request.
#[derive(Debug)]
pub(crate) struct UsedLeaf {
    pub(super) key: ProcessKey,
    last_use: u64,
}

impl UsedLeaves {
    /// A command begins there, or something may be left there.
    pub(super) fn used(&mut self, key: ProcessKey) {
        self.uses += 1;
        self.last_use.insert(key, self.uses);
    }

    pub(super) fn of(&self, is_meant: impl Fn(&ProcessKey) -> bool) -> Vec<UsedLeaf> {
        let meant = self.last_use.iter().filter(|(key, _)| is_meant(key));
        meant.map(|(key, last_use)| UsedLeaf { key: key.clone(), last_use: *last_use }).collect()
    }

    /// It was removed, and may have been made again since.
    pub(super) fn released(&mut self, leaf: &UsedLeaf) {
        if self.last_use.get(&leaf.key) == Some(&leaf.last_use) {
            self.last_use.remove(&leaf.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_that_is_used_again_while_it_is_removed_is_removed_another_time() {
        let (p, q): (ProcessKey, ProcessKey) = ("ns/p".parse().unwrap(), "ns/q".parse().unwrap());
        let mut leaves = UsedLeaves::default();
        leaves.used(p.clone());
        leaves.used(q);
        let resting = leaves.of(|_| true);

        leaves.used(p.clone());
        resting.iter().for_each(|leaf| leaves.released(leaf));
        let left = leaves.of(|_| true);
        left.iter().for_each(|leaf| leaves.released(leaf));

        assert_eq!(left.into_iter().map(|leaf| leaf.key).collect::<Vec<_>>(), [p]);
        assert!(leaves.of(|_| true).is_empty());
    }
}
