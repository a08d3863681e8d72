//! The server's own keys, all derived from one secret in the store.
//!
//! Promised: what is stored of an app's or a user's secret is useless without that store secret (an HMAC, not a plain
//! hash); what has to be read back is sealed with AES-256-GCM and bound to its owner.
//! Absent: rotation of the key, which would need every secret anew.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use proctor_pki::{hash_secret, hex, random_bytes, secrets_match};
use proctor_store::{Result, Store};

/// Its name in the store.
const MASTER: &str = "border key";
const MASTER_BYTES: usize = 32;
/// How a keyed hash begins; one without it is of an older version.
const KEYED: &str = "hmac-sha256:";

/// Derived keys; Debug shows none of them.
pub struct Keys {
    secrets: hmac::Key,
    memory: hmac::Key,
    sealing: RandomizedNonceKey,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// The result of a comparison with a stored hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashMatch {
    Wrong,
    Right,
    /// Right, but the hash is of the old kind and should be replaced.
    RightOfOld,
}

impl Keys {
    /// Generated at the first call; the first writer wins, even from another process.
    pub async fn load(store: &dyn Store) -> Result<Self> {
        let fresh = random_bytes::<MASTER_BYTES>().to_vec();
        Ok(Self::from_master(&store.secret_or_insert(MASTER, fresh).await?))
    }

    pub(crate) fn from_master(master: &[u8]) -> Self {
        let master = hmac::Key::new(hmac::HMAC_SHA256, master);
        let derived = |purpose: &str| hmac::sign(&master, purpose.as_bytes());
        let key = |purpose| hmac::Key::new(hmac::HMAC_SHA256, derived(purpose).as_ref());
        let sealing = RandomizedNonceKey::new(&AES_256_GCM, derived("sealed secrets v1").as_ref());
        Self {
            secrets: key("hashed secrets v1"),
            memory: key("verified in memory v1"),
            sealing: sealing.expect("a SHA-256 is as long as a key of AES-256"),
        }
    }

    /// What is stored of a secret.
    pub fn hash(&self, secret: &str) -> String {
        let tag = hmac::sign(&self.secrets, secret.as_bytes());
        format!("{KEYED}{}", hex(tag.as_ref()))
    }

    /// In constant time; both hashes are computed whatever the stored one is.
    pub(crate) fn compare(&self, secret: &str, stored: &str) -> HashMatch {
        let is_keyed = secrets_match(&self.hash(secret), stored);
        let is_old = secrets_match(&hash_secret(secret), stored);
        match (is_keyed, is_old) {
            (true, _) => HashMatch::Right,
            (false, true) => HashMatch::RightOfOld,
            (false, false) => HashMatch::Wrong,
        }
    }

    /// An in-memory name that reveals nothing about what it stands for.
    pub(crate) fn fingerprint(&self, parts: &[&str]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.memory);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        context.sign().as_ref().try_into().expect("a SHA-256 has 32 bytes")
    }

    /// To be opened again for the same owner only.
    pub fn seal(&self, owner: &str, secret: &str) -> Vec<u8> {
        let mut sealed = secret.as_bytes().to_vec();
        let nonce = self.sealing.seal_in_place_append_tag(Aad::from(owner.as_bytes()), &mut sealed);
        let nonce = nonce.expect("a secret is far shorter than what AES-GCM can seal");
        [&nonce.as_ref()[..], &sealed].concat()
    }

    /// None if it was not sealed here for this owner.
    pub(crate) fn open(&self, owner: &str, sealed: &[u8]) -> Option<String> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let opened = self.sealing.open_in_place(nonce, Aad::from(owner.as_bytes()), &mut sealed).ok()?;
        String::from_utf8(opened.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_again_by_its_hash_and_by_that_of_an_older_version() {
        let keys = Keys::from_master(b"master");
        let stored = keys.hash("hush");

        assert_eq!(keys.compare("hush", &stored), HashMatch::Right);
        assert_eq!(keys.compare("hush", &hash_secret("hush")), HashMatch::RightOfOld);
        assert_eq!(keys.compare("guess", &stored), HashMatch::Wrong);
        assert_eq!(keys.compare("hush", ""), HashMatch::Wrong);
        assert_eq!(Keys::from_master(b"other").compare("hush", &stored), HashMatch::Wrong);
    }

    // python3: import hmac
    // k = hmac.digest(b"master", b"hashed secrets v1", "sha256"); hmac.digest(k, b"hush", "sha256").hex()
    #[test]
    fn the_hash_is_an_hmac_under_a_key_of_its_own() {
        let expected = "hmac-sha256:c5ee2b0270cc886a44e504ea5151de333a71dca15d3f2a6c5c1ffd08423b03da";

        assert_eq!(Keys::from_master(b"master").hash("hush"), expected);
    }

    // python3: AESGCM(hmac.digest(b"master", b"sealed secrets v1", "sha256")).encrypt(bytes(12), b"hush", b"app")
    #[test]
    fn what_another_program_sealed_under_the_same_key_is_opened() {
        let sealed: Vec<u8> = vec![
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 48, 119, 78, 16, 35, 46, 153, 79, 41, 37, 92, 252, 130, 24, 191, 174,
            64, 84, 175, 98,
        ];

        assert_eq!(Keys::from_master(b"master").open("app", &sealed).as_deref(), Some("hush"));
    }

    #[test]
    fn what_is_sealed_opens_for_its_owner_alone() {
        let keys = Keys::from_master(b"master");
        let sealed = keys.seal("app", "hush");
        let mut damaged = sealed.clone();
        damaged[20] ^= 1;

        assert_eq!(keys.open("app", &sealed).as_deref(), Some("hush"));
        assert_eq!(keys.open("other", &sealed), None);
        assert_eq!(keys.open("app", &damaged), None);
        assert_eq!(keys.open("app", b"short"), None);
        assert_ne!(keys.seal("app", "hush"), sealed);
        assert!(!sealed.windows(4).any(|window| window == b"hush"));
    }

    #[test]
    fn parts_of_a_fingerprint_do_not_run_into_each_other() {
        let keys = Keys::from_master(b"master");

        assert_ne!(keys.fingerprint(&["ab", "c"]), keys.fingerprint(&["a", "bc"]));
    }
}
