//! Seals the secrets of a backup.
//!
//! Promised: the secrets of a sealed backup (the authority's key, the keys that app secrets are hashed and sealed
//! with) are useless without its passphrase: argon2id derives a key from it, and AES-256-GCM binds each secret to its
//! name.
//! Absent: the rest of a backup. Specs, events and the audit log are readable.

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use proctor_pki::random_bytes;
use serde::{Deserialize, Serialize};

/// The name under which a [`Seal`] is kept among the secrets of a backup.
pub const SEAL: &str = "backup seal";
pub const PASSPHRASE_CHARS_MIN: usize = 12;

/// argon2id: the cost of a guess.
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;
/// What a file from elsewhere may demand.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;
const PASSES_MAX: u32 = 64;

/// What can be wrong with a seal. It repeats nothing of the passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("the seal of the backup cannot be read, or is of a newer version")]
    Unknown,
    #[error("the key of the passphrase cannot be made")]
    Key,
}

/// How the key of a backup is derived from its passphrase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seal {
    version: u32,
    salt: [u8; 16],
    memory_kib: u32,
    passes: u32,
}

/// Seals and opens secrets.
#[derive(Debug)]
pub struct SealKey(RandomizedNonceKey);

impl Seal {
    /// A new seal, as it is kept in the backup, with its key.
    pub fn make(passphrase: &str) -> Result<(Vec<u8>, SealKey), SealError> {
        Self { version: 1, salt: random_bytes(), memory_kib: MEMORY_KIB, passes: PASSES }.with_key(passphrase)
    }

    fn with_key(self, passphrase: &str) -> Result<(Vec<u8>, SealKey), SealError> {
        let key = self.key(passphrase)?;
        Ok((serde_json::to_vec(&self).expect("its fields become JSON"), key))
    }

    /// The key of a seal that is kept in a backup.
    pub fn open(kept: &[u8], passphrase: &str) -> Result<SealKey, SealError> {
        let seal: Self = serde_json::from_slice(kept).map_err(|_| SealError::Unknown)?;
        if seal.version != 1 || seal.memory_kib > MEMORY_KIB_MAX || seal.passes > PASSES_MAX {
            return Err(SealError::Unknown);
        }
        seal.key(passphrase)
    }

    fn key(&self, passphrase: &str) -> Result<SealKey, SealError> {
        let params = Params::new(self.memory_kib, self.passes, 1, Some(32)).map_err(|_| SealError::Unknown)?;
        let mut key = [0; 32];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(passphrase.as_bytes(), &self.salt, &mut key)
            .map_err(|_| SealError::Key)?;
        RandomizedNonceKey::new(&AES_256_GCM, &key).map(SealKey).map_err(|_| SealError::Key)
    }
}

impl SealKey {
    pub fn seal(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, String> {
        let mut text = value.to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(name.as_bytes()), &mut text);
        let nonce = nonce.map_err(|_| format!("cannot seal the secret '{name}'"))?;
        Ok([&nonce.as_ref()[..], &text].concat())
    }

    pub fn open(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, String> {
        let wrong = || "the passphrase is wrong, or the backup is damaged".to_owned();
        let (nonce, text) = value.split_at_checked(NONCE_LEN).ok_or_else(wrong)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong())?;
        let mut text = text.to_vec();
        let opened = self.0.open_in_place(nonce, Aad::from(name.as_bytes()), &mut text).map_err(|_| wrong())?;
        Ok(opened.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cheap() -> Seal {
        Seal { version: 1, salt: [7; 16], memory_kib: 64, passes: 1 }
    }

    #[test]
    fn a_secret_opens_with_its_passphrase_under_its_name_alone() {
        let (kept, key) = cheap().with_key("correct horse battery").unwrap();
        let other = Seal::open(&kept, "wrong").unwrap();

        let text = key.seal("authority", b"hush").unwrap();

        let again = Seal::open(&kept, "correct horse battery").unwrap();
        assert_eq!(again.open("authority", &text).unwrap(), b"hush");
        assert!(again.open("border key", &text).is_err());
        assert!(other.open("authority", &text).is_err());
        assert!(key.open("authority", b"short").is_err());
        assert!(!text.windows(4).any(|window| window == b"hush"));
    }

    #[test]
    fn a_seal_that_would_take_all_memory_is_refused() {
        let greedy = serde_json::to_vec(&Seal { memory_kib: u32::MAX, ..cheap() }).unwrap();

        assert_eq!(Seal::open(&greedy, "x").unwrap_err(), SealError::Unknown);
        assert_eq!(Seal::open(b"{}", "x").unwrap_err(), SealError::Unknown);
    }
}
