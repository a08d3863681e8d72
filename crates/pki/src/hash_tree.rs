//! A hash tree: one signature covers many leaves, and each can be proved without the others.
//!
//! Leaves and inner nodes are hashed under different prefixes: no node can pass as a leaf. A level of odd length is
//! padded with a hash of zeros.

use aws_lc_rs::digest::{Context, SHA256};

pub(crate) type Hash = [u8; 32];

const LEAF: u8 = 0;
const NODE: u8 = 1;
const NOTHING: Hash = [0; 32];

/// The hash of length-prefixed parts, so that they cannot run into each other.
pub(crate) fn leaf<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    let mut context = Context::new(&SHA256);
    context.update(&[LEAF]);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    finish(context)
}

fn node(left: &Hash, right: &Hash) -> Hash {
    let mut context = Context::new(&SHA256);
    context.update(&[NODE]);
    context.update(left);
    context.update(right);
    finish(context)
}

fn finish(context: Context) -> Hash {
    context.finish().as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

/// All levels, the leaves first.
#[derive(Debug)]
pub(crate) struct HashTree(Vec<Vec<Hash>>);

impl HashTree {
    /// Of at least one leaf.
    pub(crate) fn new(leaves: Vec<Hash>) -> Self {
        let mut levels = vec![leaves];
        while let Some(level) = levels.last().filter(|level| level.len() > 1) {
            let above = level.chunks(2).map(|pair| node(&pair[0], pair.get(1).unwrap_or(&NOTHING))).collect::<Vec<_>>();
            levels.push(above);
        }
        Self(levels)
    }

    pub(crate) fn root(&self) -> Hash {
        self.0.last().and_then(|level| level.first()).copied().unwrap_or(NOTHING)
    }

    /// The siblings of a leaf on the way to the root.
    pub(crate) fn path(&self, leaf: usize) -> Vec<Hash> {
        let (_, below) = self.0.split_last().expect("there is a root");
        let neighbour =
            |(height, level): (usize, &Vec<Hash>)| level.get(leaf >> height ^ 1).copied().unwrap_or(NOTHING);
        below.iter().enumerate().map(neighbour).collect()
    }
}

/// The root computed from a leaf at this index; None if a path of this length has no such index.
pub(crate) fn root_of(leaf: Hash, index: u32, path: &[Hash]) -> Option<Hash> {
    let (mut hash, mut index) = (leaf, index);
    for neighbour in path {
        hash = if index & 1 == 0 { node(&hash, neighbour) } else { node(neighbour, &hash) };
        index >>= 1;
    }
    (index == 0).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(count: u8) -> Vec<Hash> {
        (0..count).map(|number| leaf([&[number][..]])).collect()
    }

    #[test]
    fn every_leaf_leads_to_the_root_from_its_own_index_only() {
        for count in 1..20 {
            let leaves = leaves(count);
            let tree = HashTree::new(leaves.clone());
            for (index, leaf) in leaves.iter().enumerate() {
                let path = tree.path(index);
                let index = u32::try_from(index).unwrap();

                assert_eq!(root_of(*leaf, index, &path), Some(tree.root()), "{index} of {count}");
                for other in (0..64).filter(|other| *other != index) {
                    assert_ne!(root_of(*leaf, other, &path), Some(tree.root()), "{index} at {other} of {count}");
                }
            }
        }
    }

    #[test]
    fn an_inner_node_is_no_leaf() {
        let leaves = leaves(4);
        let tree = HashTree::new(leaves.clone());
        let inner = node(&leaves[0], &leaves[1]);

        assert_eq!(root_of(inner, 0, &tree.path(0)[1..]), Some(tree.root()), "so a leaf must not be able to be one");
        assert_ne!(leaf([&leaves[0][..], &leaves[1][..]]), inner);
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(leaf([&b"ab"[..], b"c"]), leaf([&b"a"[..], b"bc"]));
        assert_ne!(leaf([&b"ab"[..]]), leaf([&b"ab"[..], b""]));
    }
}
