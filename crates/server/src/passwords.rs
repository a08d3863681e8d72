//! Passwords of users: argon2id, in PHC strings.
//!
//! Promised: an unknown user takes as long as a wrong password; hashing runs on threads for blocking
//! work, at most [`HASHES_AT_ONCE`] at a time, so that guessing cannot take the server's memory or its
//! workers. Absent: who may set or try one; see `api::native::session`.

use std::sync::Arc;
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;

/// Each needs 19 MiB and some tens of milliseconds of a core.
const HASHES_AT_ONCE: usize = 2;
/// Who waits longer is told to come again.
const WAIT_MAX: Duration = Duration::from_secs(5);
const CHARS_MIN: usize = 12;
const BYTES_MAX: usize = 1024;
/// A hash that no password has: what the password of an unknown user is compared with.
const NO_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGtub3dz$\
                       AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PasswordError {
    #[error("must have at least {CHARS_MIN} characters and at most {BYTES_MAX} bytes")]
    Length,
    #[error("too many passwords are being checked: try again in a moment")]
    Busy,
}

/// Hashes and checks passwords, a few at a time. Clones share the limit.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    slots: Arc<Semaphore>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(HASHES_AT_ONCE)) }
    }
}

impl Passwords {
    /// What is stored of a new password.
    pub(crate) async fn hash(&self, password: String) -> Result<String, PasswordError> {
        if password.chars().count() < CHARS_MIN || password.len() > BYTES_MAX {
            return Err(PasswordError::Length);
        }
        let hash = move || Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string());
        let hashed = self.blocking(hash).await?;
        Ok(hashed.expect("argon2 takes every password of bounded length"))
    }

    /// Whether the password has this hash; None never matches.
    pub(crate) async fn is_right(&self, password: String, stored: Option<String>) -> Result<bool, PasswordError> {
        if password.len() > BYTES_MAX {
            return Ok(false);
        }
        let verify = move || {
            let is_known = stored.is_some();
            let stored = stored.unwrap_or_else(|| NO_HASH.to_owned());
            let is_equal = PasswordHash::new(&stored)
                .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
            is_known && is_equal
        };
        self.blocking(verify).await
    }

    /// The slot is held until the work is done, also where the caller goes away.
    async fn blocking<T, F>(&self, work: F) -> Result<T, PasswordError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let slot = tokio::time::timeout(WAIT_MAX, self.slots.clone().acquire_owned()).await;
        let slot = slot.map_err(|_| PasswordError::Busy)?.expect("the semaphore is never closed");
        let work = move || {
            let done = work();
            drop(slot);
            done
        };
        Ok(tokio::task::spawn_blocking(work).await.expect("hashing does not panic"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_right() {
        let passwords = Passwords::default();
        let stored = passwords.hash("correct horse battery".to_owned()).await.unwrap();

        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(passwords.is_right("correct horse battery".to_owned(), Some(stored.clone())).await.unwrap());
        assert!(!passwords.is_right("correct horse".to_owned(), Some(stored)).await.unwrap());
        assert!(!passwords.is_right("correct horse battery".to_owned(), None).await.unwrap());
        assert!(!passwords.is_right("correct horse battery".to_owned(), Some("not a hash".to_owned())).await.unwrap());
    }

    #[tokio::test]
    async fn a_short_or_endless_password_is_refused() {
        let passwords = Passwords::default();

        for bad in ["eleven char".to_owned(), "x".repeat(BYTES_MAX + 1)] {
            assert_eq!(passwords.hash(bad).await, Err(PasswordError::Length));
        }
        assert!(!passwords.is_right("x".repeat(BYTES_MAX + 1), None).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_too_long_for_a_slot_is_told_so() {
        let passwords = Passwords::default();
        let _slots = passwords.slots.acquire_many(HASHES_AT_ONCE as u32).await.unwrap();

        assert_eq!(passwords.is_right("whatever".to_owned(), None).await, Err(PasswordError::Busy));
    }

    #[test]
    fn the_hash_for_unknown_users_costs_as_much_as_a_real_one() {
        let hash = PasswordHash::new(NO_HASH).unwrap();

        assert_eq!(hash.params.get_decimal("m"), Some(argon2::Params::DEFAULT_M_COST));
        assert_eq!(hash.params.get_decimal("t"), Some(argon2::Params::DEFAULT_T_COST));
        assert_eq!(hash.hash.unwrap().len(), argon2::Params::DEFAULT_OUTPUT_LEN);
    }
}
