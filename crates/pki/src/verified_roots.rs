//! Signatures that were already verified, shared by many ends in one process.
//!
//! The server signs once for all sessions that have something to send at the same moment. Every real agent verifies
//! that signature on its own host; simulated agents share a machine with the server, and would otherwise verify it
//! thousands of times there. Promised: whatever is known here was verified with the same key, for the same root.
//! Absent: anything that a real agent uses.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::hash_tree::{Hash, leaf};
use crate::signer::TrustedSigner;

/// More than a server has in progress at any moment; older ones are verified again.
const KEPT_MAX: usize = 256;

#[derive(Debug, Default)]
pub struct VerifiedRoots(Mutex<VecDeque<Hash>>);

impl VerifiedRoots {
    pub(crate) fn verifies(&self, signer: &TrustedSigner, root: &Hash, signature: &[u8]) -> bool {
        let name = leaf([signer.key(), root, signature]);
        if self.0.lock().contains(&name) {
            return true;
        }
        let is_good = signer.verifies(root, signature);
        if is_good {
            let mut known = self.0.lock();
            known.truncate(KEPT_MAX - 1);
            known.push_front(name);
        }
        is_good
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_tree::HashTree;
    use crate::{Authority, CommandSigner, SigningSecret};

    fn authority() -> Authority {
        Authority::load(&Authority::generate(now()).unwrap()).unwrap()
    }

    fn now() -> jiff::Timestamp {
        "2026-11-18T00:00:00Z".parse().unwrap()
    }

    fn signer_of(authority: &Authority) -> (CommandSigner, TrustedSigner) {
        let now = now();
        let signer = CommandSigner::issue(authority, &SigningSecret::generate().unwrap(), now).unwrap();
        let trusted = TrustedSigner::of(authority.certificate_pem(), signer.certificate_der(), now).unwrap();
        (signer, trusted)
    }

    #[test]
    fn only_what_was_verified_with_the_same_key_for_the_same_root_is_known() {
        let authority = authority();
        let ((signer, trusted), (_, other)) = (signer_of(&authority), signer_of(&authority));
        let roots = VerifiedRoots::default();
        let (tree, another) = (HashTree::new(vec![[1; 32]]), [2; 32]);
        let (root, signature) = (tree.root(), signer.sign_tree(&tree).unwrap());

        assert!(roots.verifies(&trusted, &root, &signature));
        assert!(roots.verifies(&trusted, &root, &signature), "known now");

        assert!(!roots.verifies(&trusted, &another, &signature));
        assert!(!roots.verifies(&other, &root, &signature));
        assert!(!roots.verifies(&trusted, &root, &[0; 64]));
        assert_eq!(roots.0.lock().len(), 1, "a refused one is not kept");
    }

    #[test]
    fn their_number_is_bounded() {
        let (signer, trusted) = signer_of(&authority());
        let roots = VerifiedRoots::default();

        for number in 0..KEPT_MAX + 10 {
            let tree = HashTree::new(vec![leaf([number.to_be_bytes().as_slice()])]);
            assert!(roots.verifies(&trusted, &tree.root(), &signer.sign_tree(&tree).unwrap()));
        }

        assert_eq!(roots.0.lock().len(), KEPT_MAX);
    }
}
