//! How an agent that has proved its key gets a stream to the server.
//!
//! Promised: an agent whose turn does not come in time is told when to come back, spread over the time in which
//! those that wait can be admitted, and at most [`STAY_AWAY_MAX`]. Absent: the turns (see `greetings`), and whether
//! there is a connection (see `upstream`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::SinkExt;
use parking_lot::Mutex;
use proctor_runtime::Dice;
use proctor_wire::{FromServer, OPENINGS_PER_SECOND, STAY_AWAY_MAX, ServerCodec, framed, hang_up};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::upstream::{Passage, Upstreams};

/// How long an agent waits for its turn to greet: less than an agent waits for its welcome.
const TURN_LIMIT: Duration = Duration::from_secs(4);
/// The shortest period over which turned-away agents come back.
const WINDOW_MIN: Duration = Duration::from_secs(2);
/// Time limit for the message that tells them.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Boarding {
    waiting: AtomicU32,
    dice: Mutex<Dice>,
}

/// Why an agent gets no stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotBoarded {
    /// It may come back after this.
    Busy(Duration),
    /// No connection has room, or its key has too many greetings in progress.
    NoRoom,
}

impl Boarding {
    pub(crate) async fn board(
        &self,
        upstreams: &Upstreams,
        key: &str,
        certificate_der: Vec<u8>,
    ) -> Result<Passage, NotBoarded> {
        let _waiting = Waiting::new(&self.waiting);
        match tokio::time::timeout(TURN_LIMIT, upstreams.board(key, certificate_der)).await {
            Ok(passage) => passage.ok_or(NotBoarded::NoRoom),
            Err(_) => Err(NotBoarded::Busy(self.retry_after())),
        }
    }

    fn retry_after(&self) -> Duration {
        let needed = Duration::from_secs(1) * self.waiting.load(Ordering::Relaxed) / OPENINGS_PER_SECOND;
        let window = needed.clamp(WINDOW_MIN, STAY_AWAY_MAX);
        self.dice.lock().between(window / 2, (window * 3 / 2).min(STAY_AWAY_MAX))
    }
}

/// Counted until it is dropped.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tells an agent that has sent nothing yet when to come back.
pub(crate) async fn tell_busy(agent: impl AsyncRead + AsyncWrite + Unpin, retry_after: Duration) {
    let mut frames = framed(agent, ServerCodec::enrolment());
    let said = tokio::time::timeout(BUSY_LIMIT, frames.send(FromServer::Busy { retry_after })).await;
    if matches!(said, Ok(Ok(()))) {
        hang_up(frames.into_inner()).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use proctor_wire::AgentCodec;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_agent_whose_turn_does_not_come_is_told_when_to_come_back() {
        let (upstreams, boarding) = (Upstreams::with_one_connection(), Boarding::default());
        let mut under_way = Vec::new();
        while let Ok(passage) = boarding.board(&upstreams, &format!("key-{}", under_way.len()), Vec::new()).await {
            under_way.push(passage);
        }

        let late = boarding.board(&upstreams, "late", Vec::new()).await.map(|_| ()).unwrap_err();

        let NotBoarded::Busy(retry_after) = late else { panic!("{late:?}") };
        assert!((WINDOW_MIN / 2..=WINDOW_MIN * 3 / 2).contains(&retry_after), "{retry_after:?}");
    }

    #[test]
    fn agents_come_back_over_the_time_that_those_who_wait_need() {
        let boarding = Boarding::default();
        let drawn = |waiting| {
            boarding.waiting.store(waiting, Ordering::Relaxed);
            (0..100).map(|_| boarding.retry_after()).max().unwrap()
        };

        assert!(drawn(0) <= WINDOW_MIN * 3 / 2);
        assert!(drawn(2_000) > Duration::from_secs(10), "200 a second");
        assert!(drawn(u32::MAX) <= STAY_AWAY_MAX);
    }

    #[tokio::test]
    async fn what_it_is_told_is_what_a_server_would_say() {
        let (agent, ours) = tokio::io::duplex(1024);
        let retry_after = Duration::from_secs(7);
        let read = async {
            let mut agent = framed(agent, AgentCodec::new());
            (agent.next().await.unwrap().unwrap(), agent.next().await.is_none())
        };

        let (said, ()) = tokio::join!(read, tell_busy(ours, retry_after));

        assert_eq!(said, (FromServer::Busy { retry_after }, true));
    }
}
