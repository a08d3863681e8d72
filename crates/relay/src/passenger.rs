//! One agent between its own connection and its stream to the server.
//!
//! Promised: frames are forwarded unchanged and in order, both ways; a heartbeat is answered here and recorded for
//! the server, and the answer never falls inside another frame. An agent whose large frame is in transit, with its
//! heartbeats behind it, is answered as long as the frame moves, or is held back here because the path to the
//! server is slow. Before the server has welcomed the agent no heartbeat counts, and an agent that is not welcomed
//! in time is closed. A slow side holds back the other side of this agent and no other agent. It ends when either
//! side does; what the server said before it ended still reaches the agent.

use std::collections::HashSet;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use proctor_wire::{FrameFilter, MuxStream, beat_frame, beat_reply_frame, hang_up};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::greetings::Greeting;

/// Read at a time; an idle agent holds no more.
const READ_BYTES: usize = 4 * 1024;
/// An agent that does not take a few kilobytes for this long has stopped reading.
pub(crate) const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// The server's challenge and its welcome: then the greeting is over.
const GREETING_FRAMES: u64 = 2;
/// Heartbeats that are answered; an agent that sends more before it reads gets only these answers.
const UNANSWERED_MAX: u32 = 4;
/// While a frame moves, the agent hears from us at least this often: it gives a server up after three heartbeats of
/// three seconds.
const ANSWER_PERIOD: Duration = Duration::from_secs(2);

/// Agents of one upstream connection that have sent a heartbeat since the last report.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeartbeatSet(Arc<Mutex<HashSet<u32>>>);

impl HeartbeatSet {
    fn note(&self, stream: u32) {
        self.0.lock().insert(stream);
    }

    pub(crate) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.0.lock()).into_iter().collect()
    }
}

/// State shared by the two directions of an agent.
#[derive(Debug, Default)]
struct SharedState {
    is_welcomed: AtomicBool,
    unanswered: AtomicU32,
    is_beat: Notify,
}

impl SharedState {
    fn answer(&self, beats: u32) {
        self.unanswered.fetch_add(beats, Ordering::Relaxed);
        self.is_beat.notify_one();
    }

    fn is_welcomed(&self) -> bool {
        self.is_welcomed.load(Ordering::Relaxed)
    }

    /// Returns if the agent was not welcomed by then.
    async fn late(&self, welcome_by: Instant) {
        tokio::time::sleep_until(welcome_by).await;
        if self.is_welcomed() {
            std::future::pending::<()>().await;
        }
    }
}

/// Carries until either side ends. `greeting` is released when the server has welcomed the agent.
pub(crate) async fn carry<A>(
    agent: A,
    stream: MuxStream,
    heard: &HeartbeatSet,
    greeting: Greeting,
    welcome_by: Instant,
) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
{
    let (number, shared) = (stream.number(), SharedState::default());
    let (mut from_agent, mut to_agent) = tokio::io::split(agent);
    let (from_server, to_server) = tokio::io::split(stream);
    let is_said = tokio::select! {
        ended = up(&mut from_agent, to_server, &shared, || heard.note(number)) => return ended,
        ended = down(from_server, &mut to_agent, &shared, greeting) => ended,
        () = shared.late(welcome_by) => Err(io::Error::new(io::ErrorKind::TimedOut, "the server has not welcomed the agent")),
    };
    is_said?;
    Box::pin(hang_up(from_agent.unsplit(to_agent))).await;
    Ok(())
}

async fn up(
    mut agent: impl AsyncRead + Unpin,
    mut server: impl AsyncWrite + Unpin,
    shared: &SharedState,
    note: impl Fn(),
) -> io::Result<()> {
    let (mut read, mut passed) = (BytesMut::with_capacity(READ_BYTES), BytesMut::new());
    let (mut filter, mut answered_at) = (FrameFilter::new(beat_frame()), Instant::now());
    loop {
        read.clear();
        if agent.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
        let beats = filter.pass(&read, &mut passed);
        if beats > 0 && shared.is_welcomed() {
            note();
            shared.answer(beats);
            answered_at = Instant::now();
        } else if !filter.is_between_frames() && answered_at.elapsed() >= ANSWER_PERIOD {
            // The heartbeats are behind the frame.
            shared.answer(1);
            answered_at = Instant::now();
        }
        let mut writing = pin!(server.write_all(&passed));
        let written = loop {
            if let Ok(written) = tokio::time::timeout(ANSWER_PERIOD, &mut writing).await {
                break written;
            }
            // The agent is not read meanwhile, so its heartbeats wait with the rest.
            if shared.is_welcomed() {
                note();
                shared.answer(1);
                answered_at = Instant::now();
            }
        };
        if written.is_err() {
            // The stream is over. Its last messages may be in transit, and the other direction ends with them.
            return std::future::pending().await;
        }
        passed.clear();
    }
}

async fn down(
    mut server: impl AsyncRead + Unpin,
    mut agent: impl AsyncWrite + Unpin,
    shared: &SharedState,
    greeting: Greeting,
) -> io::Result<()> {
    let (mut read, mut passed) = (BytesMut::with_capacity(READ_BYTES), BytesMut::new());
    let mut filter = FrameFilter::new(beat_reply_frame());
    let (reply, mut greeting) = (beat_reply_frame(), Some(greeting));
    loop {
        read.clear();
        let count = tokio::select! {
            count = server.read_buf(&mut read) => Some(count?),
            () = shared.is_beat.notified() => None,
        };
        filter.pass(&read, &mut passed);
        if filter.passed() >= GREETING_FRAMES && filter.is_between_frames() {
            shared.is_welcomed.store(true, Ordering::Relaxed);
            greeting.take();
            for _ in 0..shared.unanswered.swap(0, Ordering::Relaxed).min(UNANSWERED_MAX) {
                passed.extend_from_slice(&reply);
            }
        }
        let writing = async {
            agent.write_all(&passed).await?;
            agent.flush().await
        };
        tokio::time::timeout(WRITE_LIMIT, writing).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        passed.clear();
        if count == Some(0) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use proctor_wire::{RelayFrame, Streams};

    use super::*;
    use crate::greetings::Greetings;

    const WELCOME_LIMIT: Duration = Duration::from_secs(9);

    fn soon() -> Instant {
        Instant::now() + WELCOME_LIMIT
    }

    struct TestLink {
        agent: tokio::io::DuplexStream,
        server: Streams,
        heard: HeartbeatSet,
        greetings: Greetings,
    }

    impl TestLink {
        /// The server says this.
        fn server_sends(&self, bytes: &[u8]) {
            self.server.handle(RelayFrame::Data { stream: 1, bytes: bytes.to_vec() }).unwrap();
        }

        /// The server has welcomed the agent, which knows it.
        async fn welcomed(&mut self) {
            self.server_sends(&[frame(b"challenge"), frame(b"welcome")].concat());
            self.agent.read_exact(&mut [0; 13 + 11]).await.unwrap();
        }

        /// All data that went to the server, which reads it, after at least so much.
        async fn sent(&self, bytes_min: usize) -> Vec<u8> {
            let mut all = Vec::new();
            while all.len() < bytes_min {
                match self.server.poll_frame() {
                    Some(RelayFrame::Data { stream, bytes }) => {
                        let count = u32::try_from(bytes.len()).unwrap();
                        self.server.handle(RelayFrame::Credit { stream, bytes: count }).unwrap();
                        all.extend(bytes);
                    }
                    Some(_) => {}
                    None => self.server.woken().await,
                }
            }
            all
        }
    }

    fn frame(body: &[u8]) -> Vec<u8> {
        [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], body].concat()
    }

    /// Runs `work` as agent and server of one passenger.
    async fn with_link<T>(work: impl AsyncFnOnce(&mut TestLink) -> T) -> T {
        let (agent, relayed) = tokio::io::duplex(64 * 1024);
        let (streams, heard, greetings) = (Streams::new(4), HeartbeatSet::default(), Greetings::default());
        let stream = streams.open(Vec::new()).unwrap();
        let greeting = greetings.begin("key").await.unwrap();
        let mut link = TestLink { agent, server: streams, heard: heard.clone(), greetings };
        tokio::select! {
            result = work(&mut link) => result,
            ended = carry(relayed, stream, &heard, greeting, soon()) => panic!("it ended: {ended:?}"),
        }
    }

    #[tokio::test]
    async fn heartbeats_are_answered_and_noted_and_all_else_passes() {
        with_link(async |link| {
            link.welcomed().await;
            let outcome = frame(b"an outcome");
            link.agent.write_all(&[beat_frame(), outcome.clone(), beat_frame()].concat()).await.unwrap();

            assert_eq!(link.sent(outcome.len()).await, outcome);
            let mut answer = [0; 6];
            link.agent.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer.to_vec(), beat_reply_frame());
            assert_eq!(link.heard.take(), [1]);
            assert!(link.heard.take().is_empty());
        })
        .await;
    }

    #[tokio::test]
    async fn heartbeats_before_the_welcome_count_for_nothing() {
        with_link(async |link| {
            let hello = frame(b"hello");
            link.agent.write_all(&[beat_frame(), beat_frame(), hello.clone()].concat()).await.unwrap();
            assert_eq!(link.sent(hello.len()).await, hello);
            assert!(link.heard.take().is_empty(), "the server may not know the stream yet");

            link.server_sends(&[frame(b"challenge"), frame(b"welcome"), frame(b"x")].concat());
            let mut came = [0; 13 + 11 + 5];
            link.agent.read_exact(&mut came).await.unwrap();

            assert_eq!(came.to_vec(), [frame(b"challenge"), frame(b"welcome"), frame(b"x")].concat());
        })
        .await;
    }

    #[tokio::test]
    async fn an_answer_waits_for_the_end_of_the_frame_that_is_on_its_way() {
        with_link(async |link| {
            link.welcomed().await;
            let command = frame(&[7; 100]);
            link.server_sends(&command[..50]);
            let mut half = [0; 50];
            link.agent.read_exact(&mut half).await.unwrap();
            link.agent.write_all(&[beat_frame(), frame(b"x")].concat()).await.unwrap();
            link.sent(5).await;
            link.server_sends(&command[50..]);

            let mut rest = vec![0; 54 + 6];
            link.agent.read_exact(&mut rest).await.unwrap();

            assert_eq!(rest[..54], command[50..]);
            assert_eq!(rest[54..], beat_reply_frame());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_hears_from_us_while_its_large_frame_moves_slowly() {
        with_link(async |link| {
            link.welcomed().await;
            let large = frame(&[7; 64 * 1024]);
            let (mut answers, begun) = (0, Instant::now());
            for piece in large.chunks(1024) {
                link.agent.write_all(piece).await.unwrap();
                link.sent(piece.len()).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                let mut answer = [0; 6];
                while let Ok(read) = tokio::time::timeout(Duration::ZERO, link.agent.read_exact(&mut answer)).await {
                    read.unwrap();
                    assert_eq!(answer.to_vec(), beat_reply_frame());
                    answers += 1;
                }
            }

            let periods = begun.elapsed().as_secs() / ANSWER_PERIOD.as_secs();
            assert!((periods - 2..=periods).contains(&answers), "{answers} answers in {periods} periods");
            assert!(link.heard.take().is_empty(), "the server sees its bytes");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_stops_inside_a_frame_hears_nothing() {
        with_link(async |link| {
            link.welcomed().await;
            link.agent.write_all(&frame(&[7; 1024])[..100]).await.unwrap();
            link.sent(100).await;

            let answer = tokio::time::timeout(10 * ANSWER_PERIOD, link.agent.read_u8()).await;

            assert!(answer.is_err());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_hears_from_us_while_the_way_to_the_server_is_blocked() {
        with_link(async |link| {
            link.welcomed().await;
            let large = frame(&[7; 256 * 1024]);
            let (mut from_us, mut to_us) = tokio::io::split(&mut link.agent);
            let write = async {
                to_us.write_all(&large).await.unwrap();
                std::future::pending::<()>().await;
            };
            let listen = async {
                let mut answer = [0; 6];
                for _ in 0..20 {
                    from_us.read_exact(&mut answer).await.unwrap();
                    assert_eq!(answer.to_vec(), beat_reply_frame());
                }
            };

            let begun = Instant::now();
            tokio::select! {
                () = listen => {}
                () = write => unreachable!("nobody takes it"),
                () = tokio::time::sleep(100 * ANSWER_PERIOD) => panic!("it was not answered"),
            }

            assert!(begun.elapsed() <= 21 * ANSWER_PERIOD, "{:?}", begun.elapsed());
            assert_eq!(link.heard.take(), [1], "the server knows that it is there");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_words_of_the_server_reach_an_agent_that_speaks_itself() {
        for _ in 0..50 {
            let (mut agent, relayed) = tokio::io::duplex(64 * 1024);
            let streams = Streams::new(4);
            let stream = streams.open(Vec::new()).unwrap();
            let greeting = Greetings::default().begin("key").await.unwrap();
            agent.write_all(&frame(&[7; 32 * 1024])).await.unwrap();
            streams.handle(RelayFrame::Data { stream: 1, bytes: frame(b"busy") }).unwrap();
            streams.handle(RelayFrame::Close { stream: 1 }).unwrap();

            let (heard, mut said) = (HeartbeatSet::default(), Vec::new());
            let read = async {
                agent.read_to_end(&mut said).await.unwrap();
                // It is still being read, so its kernel sees no reset.
                agent.write_all(&[7; 128 * 1024]).await.unwrap();
                drop(agent);
            };
            let (ended, ()) = tokio::join!(carry(relayed, stream, &heard, greeting, soon()), read);

            ended.unwrap();
            assert_eq!(said, frame(b"busy"));
        }
    }

    #[tokio::test]
    async fn the_greeting_is_over_with_the_second_frame_of_the_server() {
        with_link(async |link| {
            link.server_sends(&frame(b"challenge"));
            link.agent.read_exact(&mut [0; 13]).await.unwrap();
            assert_eq!(link.greetings.under_way(), 1);
            link.server_sends(&frame(b"welcome"));
            link.agent.read_exact(&mut [0; 11]).await.unwrap();

            assert_eq!(link.greetings.under_way(), 0);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_is_not_welcomed_in_time_ends_and_gives_its_turn_back() {
        let (_agent, relayed) = tokio::io::duplex(1024);
        let (streams, greetings) = (Streams::new(4), Greetings::default());
        let stream = streams.open(Vec::new()).unwrap();
        let greeting = greetings.begin("key").await.unwrap();
        streams.handle(RelayFrame::Data { stream: 1, bytes: frame(b"challenge") }).unwrap();

        let begun = Instant::now();
        let ended = carry(relayed, stream, &HeartbeatSet::default(), greeting, soon()).await;

        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), WELCOME_LIMIT.as_secs());
        assert_eq!((greetings.under_way(), streams.count()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_connection_to_the_server_ends_the_agents() {
        let (mut agent, relayed) = tokio::io::duplex(1024);
        let streams = Streams::new(4);
        let stream = streams.open(Vec::new()).unwrap();
        let greeting = Greetings::default().begin("key").await.unwrap();

        streams.end();
        carry(relayed, stream, &HeartbeatSet::default(), greeting, soon()).await.unwrap();

        assert_eq!(agent.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
