//! What the reading half of a session leaves for the writing half: beats and renewals to be answered, parts of builds.
//!
//! Promised: at most [`REPLIES_MAX`] wait, and a session at rest holds no memory for them. Absent: waking the writer, which
//! is the session's, and saying again what found no room: agents ask again.

use parking_lot::Mutex;
use proctor_wire::FromServer;

const REPLIES_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Replies {
    waiting: Mutex<Vec<FromServer>>,
}

impl Replies {
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

    #[test]
    fn what_finds_no_room_is_dropped() {
        let replies = Replies::default();
        let number = |number| FromServer::Ping { number };
        (0..10).for_each(|n| replies.offer(number(n)));

        assert_eq!(replies.take(), [0, 1, 2, 3].map(number));
        assert_eq!(replies.take(), []);
    }
}
