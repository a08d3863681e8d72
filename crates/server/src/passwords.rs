//! Passwords of users: argon2id, in PHC strings.
//!
//! Promised: an unknown user takes as long as a wrong password; hashing runs on the blocking pool, at most
//! [`HASHES_AT_ONCE`] at a time, so that guessing cannot exhaust the server's memory or its workers. One sender has
//! one hash in progress and [`WAITING_PER_SENDER_MAX`] queued, so that nobody waits for more than one hash of each
//! other sender.
//! Absent: who may set or try one; see `api::native::session`.

use proctor_model::{Message, messages};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Each needs 19 MiB and a few tens of milliseconds of a core.
const HASHES_AT_ONCE: usize = 2;
const WAITING_PER_SENDER_MAX: usize = 8;
/// A caller that waits longer is told to retry.
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

impl PasswordError {
    /// For the caller.
    pub(crate) fn message(self) -> Message {
        match self {
            Self::Length => messages::must_have_password_length(CHARS_MIN, BYTES_MAX),
            Self::Busy => messages::too_many_password_checks(),
        }
    }
}

/// Hashes and checks passwords, a few at a time. Clones share the limit.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    slots: Arc<Semaphore>,
    lines: Arc<Mutex<HashMap<String, Line>>>,
}

/// The hashes of one sender: those waiting, and the one in progress.
#[derive(Debug)]
struct Line {
    turn: Arc<Semaphore>,
    length: usize,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(HASHES_AT_ONCE)), lines: Arc::default() }
    }
}

impl Passwords {
    /// What is stored of a new password; `sender` is who sets it.
    pub(crate) async fn hash(&self, sender: &str, password: String) -> Result<String, PasswordError> {
        if password.chars().count() < CHARS_MIN || password.len() > BYTES_MAX {
            return Err(PasswordError::Length);
        }
        let hash = move || Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string());
        let hashed = self.blocking(sender, hash).await?;
        Ok(hashed.expect("argon2 takes every password of bounded length"))
    }

    /// Whether the password has this hash; None never matches. `sender` is who tries it.
    pub(crate) async fn is_right(
        &self,
        sender: &str,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, PasswordError> {
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
        self.blocking(sender, verify).await
    }

    /// Turn and slot are held until the work is done, even if the caller disconnects.
    async fn blocking<T, F>(&self, sender: &str, work: F) -> Result<T, PasswordError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let in_line = self.join(sender)?;
        let permits = async {
            let turn = in_line.turn.clone().acquire_owned().await.expect("the semaphore is never closed");
            (turn, self.slots.clone().acquire_owned().await.expect("the semaphore is never closed"))
        };
        let permits = tokio::time::timeout(WAIT_MAX, permits).await.map_err(|_| PasswordError::Busy)?;
        let work = move || {
            let done = work();
            drop((permits, in_line));
            done
        };
        Ok(tokio::task::spawn_blocking(work).await.expect("hashing does not panic"))
    }
}

impl Passwords {
    fn join(&self, sender: &str) -> Result<InLine, PasswordError> {
        let mut lines = self.lines.lock();
        let line =
            lines.entry(sender.to_owned()).or_insert_with(|| Line { turn: Arc::new(Semaphore::new(1)), length: 0 });
        if line.length > WAITING_PER_SENDER_MAX {
            return Err(PasswordError::Busy);
        }
        line.length += 1;
        Ok(InLine { turn: line.turn.clone(), sender: sender.to_owned(), lines: self.lines.clone() })
    }
}

/// A hash that waits or is being made.
#[derive(Debug)]
struct InLine {
    turn: Arc<Semaphore>,
    sender: String,
    lines: Arc<Mutex<HashMap<String, Line>>>,
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        let is_last = lines.get_mut(&self.sender).is_some_and(|line| {
            line.length -= 1;
            line.length == 0
        });
        if is_last {
            lines.remove(&self.sender);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_right() {
        let passwords = Passwords::default();
        let stored = passwords.hash("a", "correct horse battery".to_owned()).await.unwrap();

        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(passwords.is_right("a", "correct horse battery".to_owned(), Some(stored.clone())).await.unwrap());
        assert!(!passwords.is_right("a", "correct horse".to_owned(), Some(stored)).await.unwrap());
        assert!(!passwords.is_right("a", "correct horse battery".to_owned(), None).await.unwrap());
        assert!(
            !passwords.is_right("a", "correct horse battery".to_owned(), Some("not a hash".to_owned())).await.unwrap()
        );
    }

    #[tokio::test]
    async fn a_short_or_endless_password_is_refused() {
        let passwords = Passwords::default();

        for bad in ["eleven char".to_owned(), "x".repeat(BYTES_MAX + 1)] {
            assert_eq!(passwords.hash("a", bad).await, Err(PasswordError::Length));
        }
        assert!(!passwords.is_right("a", "x".repeat(BYTES_MAX + 1), None).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_too_long_for_a_slot_is_told_so() {
        let passwords = Passwords::default();
        let _slots = passwords.slots.acquire_many(HASHES_AT_ONCE as u32).await.unwrap();

        assert_eq!(passwords.is_right("a", "whatever".to_owned(), None).await, Err(PasswordError::Busy));
    }

    #[tokio::test(start_paused = true)]
    async fn one_sender_has_one_hash_at_a_time_and_a_bounded_line() {
        let passwords = Passwords::default();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let held = passwords.blocking("flood", move || receiver.recv());
        let mut held = std::pin::pin!(held);
        assert!(futures::poll!(held.as_mut()).is_pending());
        let mut waiting: Vec<_> =
            (0..WAITING_PER_SENDER_MAX).map(|_| Box::pin(passwords.blocking("flood", || ()))).collect();
        for hash in &mut waiting {
            assert!(futures::poll!(hash.as_mut()).is_pending());
        }

        assert_eq!(passwords.blocking("flood", || ()).await, Err(PasswordError::Busy));
        assert_eq!(passwords.blocking("victim", || ()).await, Ok(()));

        drop(waiting);
        sender.send(()).unwrap();
        assert!(held.await.is_ok());
        assert!(passwords.lines.lock().is_empty());
    }

    #[test]
    fn the_hash_for_unknown_users_costs_as_much_as_a_real_one() {
        let hash = PasswordHash::new(NO_HASH).unwrap();

        assert_eq!(hash.params.get_decimal("m"), Some(argon2::Params::DEFAULT_M_COST));
        assert_eq!(hash.params.get_decimal("t"), Some(argon2::Params::DEFAULT_T_COST));
        assert_eq!(hash.hash.unwrap().len(), argon2::Params::DEFAULT_OUTPUT_LEN);
    }
}
