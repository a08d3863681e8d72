//! What the reading half of a session leaves for the writing half: heartbeats and renewals to answer, chunks of
//! builds.
//!
//! Promised: at most [`REPLIES_MAX`] wait, and an idle session uses no memory for them; a heartbeat takes none at
//! all, and needs no wake-up: both halves are one task, and the writer runs after the reader.
//! Absent: waking the writer for the others, which is up to the session, and repeating what found no room: agents ask
//! again.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use proctor_wire::FromServer;

const REPLIES_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Replies {
    beat: AtomicBool,
    waiting: Mutex<Vec<FromServer>>,
}

impl Replies {
    /// Several beats have one answer.
    pub(super) fn offer_beat(&self) {
        self.beat.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_beat_due(&self) -> bool {
        self.beat.load(Ordering::Relaxed)
    }

    pub(super) fn take_beat(&self) -> bool {
        self.beat.swap(false, Ordering::Relaxed)
    }

    /// Drops it where too many wait.
    pub(super) fn offer(&self, message: FromServer) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < REPLIES_MAX {
            waiting.push(message);
        }
    }

    /// All that are small.
    pub(super) fn take_small(&self) -> Vec<FromServer> {
        let mut waiting = self.waiting.lock();
        match waiting.iter().any(is_large) {
            false => std::mem::take(&mut waiting),
            true => waiting.extract_if(.., |message| !is_large(message)).collect(),
        }
    }

    /// The next one that is large.
    pub(super) fn take_large(&self) -> Option<FromServer> {
        let mut waiting = self.waiting.lock();
        let at = waiting.iter().position(is_large)?;
        let large = waiting.remove(at);
        if waiting.is_empty() {
            *waiting = Vec::new();
        }
        Some(large)
    }
}

/// Whatever is more urgent goes before it.
fn is_large(message: &FromServer) -> bool {
    matches!(message, FromServer::BuildPart { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> FromServer {
        FromServer::Ping { number }
    }

    #[test]
    fn what_finds_no_room_is_dropped() {
        let replies = Replies::default();
        (0..10).for_each(|n| replies.offer(number(n)));

        assert_eq!(replies.take_small(), [0, 1, 2, 3].map(number));
        assert_eq!(replies.take_small(), []);
    }

    #[test]
    fn parts_of_builds_wait_for_all_else() {
        let part = FromServer::BuildPart { upgrade: uuid::Uuid::nil(), offset: 0, bytes: vec![0; 10] };
        let replies = Replies::default();
        [part.clone(), number(1), part.clone(), number(2)].into_iter().for_each(|reply| replies.offer(reply));

        assert_eq!(replies.take_small(), [1, 2].map(number));
        assert_eq!(
            [replies.take_large(), replies.take_large(), replies.take_large()],
            [Some(part.clone()), Some(part), None]
        );
    }

    #[test]
    fn beats_are_answered_once() {
        let replies = Replies::default();
        replies.offer_beat();
        replies.offer_beat();

        assert!(replies.is_beat_due() && replies.take_beat() && !replies.take_beat());
    }
}
