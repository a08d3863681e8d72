//! What the reading half of a session leaves for the writing half: beats and renewals to be answered, parts of builds.
//!
//! Promised: at most [`REPLIES_MAX`] wait, and a session at rest holds no memory for them; a beat takes none at all, and
//! needs no wake-up: both halves are one task, and the writer looks after the reader. Absent: waking the writer for the
//! others, which is the session's, and saying again what found no room: agents ask again.

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

    pub(super) fn take(&self) -> Vec<FromServer> {
        std::mem::take(&mut self.waiting.lock())
    }
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

        assert_eq!(replies.take(), [0, 1, 2, 3].map(number));
        assert_eq!(replies.take(), []);
    }

    #[test]
    fn beats_are_answered_once() {
        let replies = Replies::default();
        replies.offer_beat();
        replies.offer_beat();

        assert!(replies.is_beat_due() && replies.take_beat() && !replies.take_beat());
    }
}
