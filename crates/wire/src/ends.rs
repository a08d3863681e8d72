//! The two ends of a session: messages in and out, over a link that may be slow.
//!
//! Promised: a peer is waited for as long as bytes move, however long a frame takes, and given up after the
//! caller's limit without a byte. Absent: the socket and TLS, which the caller provides.

use std::future::poll_fn;
use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::codec::Framed;

use crate::byte_counter::{ByteCounter, Counters};
use crate::codec::FrameLimit;
use crate::{FromServer, LinkMessage, MessageCodec, Skipped, SkippedItems, WireError};

/// A peer that accepts no byte for this long has stopped reading.
const WRITE_LIMIT: Duration = Duration::from_secs(15);

/// Of an idle connection, each way.
const BUFFER_BYTES: usize = 256;
/// Messages are buffered up to this size before they are written to the stream.
const UNSENT_BYTES_MAX: usize = 8 * 1024;

/// Why a peer is gone.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer is silent")]
    Silent,
    #[error("the peer does not read")]
    Stuck,
    #[error("the link broke")]
    Broken(#[from] WireError),
}

/// Why an agent has no session: [`Lost`] in words for agents, and what a server may answer instead of a welcome.
#[derive(Debug, thiserror::Error)]
pub enum NoSession {
    #[error("cannot connect")]
    Connect(#[from] std::io::Error),
    #[error("the server does not answer")]
    Silent,
    #[error("the server does not read")]
    Stuck,
    #[error("the server closed the connection")]
    Closed,
    #[error("the server is busy")]
    Busy(Duration),
    #[error("the server refused: {reason}")]
    Refused { reason: String, retry: bool },
    #[error("the link broke")]
    Broken(#[from] WireError),
}

impl From<Lost> for NoSession {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Closed => Self::Closed,
            Lost::Silent => Self::Silent,
            Lost::Stuck => Self::Stuck,
            Lost::Broken(error) => Self::Broken(error),
        }
    }
}

impl NoSession {
    /// For an answer other than the expected one.
    pub fn answered(answer: FromServer) -> Self {
        match answer {
            FromServer::Refused { reason, retry } => Self::Refused { reason, retry },
            FromServer::Busy { retry_after } => Self::Busy(retry_after),
            FromServer::Enrolled { .. }
            | FromServer::RelayEnrolled { .. }
            | FromServer::Challenge { .. }
            | FromServer::Welcome { .. }
            | FromServer::Operate { .. }
            | FromServer::Acknowledge { .. }
            | FromServer::Cancel { .. }
            | FromServer::Assign { .. }
            | FromServer::AssignPools { .. }
            | FromServer::Registered(_)
            | FromServer::Beat
            | FromServer::Renewed { .. }
            | FromServer::Authorities(_)
            | FromServer::EventsSeen { .. }
            | FromServer::QueryUsage { .. }
            | FromServer::QueryLog { .. }
            | FromServer::Ping { .. }
            | FromServer::Pace { .. }
            | FromServer::Signed(_)
            | FromServer::Upgrade(_)
            | FromServer::BuildPart { .. }
            | FromServer::Unreadable { .. }
            | FromServer::Unknown => Self::Closed,
        }
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Incoming<S, In, Out> {
    frames: SplitStream<Framed<S, MessageCodec<In, Out>>>,
    skipped: SkippedItems,
    frame_limit: FrameLimit,
    read: ByteCounter,
}

/// The sending half.
#[derive(Debug)]
pub struct Outgoing<S, In, Out> {
    frames: SplitSink<Framed<S, MessageCodec<In, Out>>, Out>,
    written: ByteCounter,
    /// What comes from the peer, where that is enough to wait on.
    heard: Option<ByteCounter>,
}

/// Messages over a stream. The buffers of an idle connection are small: there are tens of thousands.
pub fn framed<S, In, Out>(stream: S, codec: MessageCodec<In, Out>) -> Framed<S, MessageCodec<In, Out>>
where
    S: AsyncRead + AsyncWrite,
{
    let mut frames = Framed::with_capacity(stream, codec, BUFFER_BYTES);
    frames.set_backpressure_boundary(UNSENT_BYTES_MAX);
    frames
}

/// Both ends of a connection whose bytes are counted.
pub fn ends<S, In, Out>(
    frames: Framed<S, MessageCodec<In, Out>>,
    counters: Counters,
) -> (Outgoing<S, In, Out>, Incoming<S, In, Out>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    In: LinkMessage,
    Out: LinkMessage,
{
    let (skipped, frame_limit) = (frames.codec().skipped(), frames.codec().frame_limit());
    let (sink, stream) = frames.split();
    let incoming = Incoming { frames: stream, skipped, frame_limit, read: counters.read };
    (Outgoing { frames: sink, written: counters.written, heard: None }, incoming)
}

/// The stream of both halves, after everything was flushed. None if they belong to different streams.
pub fn rejoin<S, In, Out>(outgoing: Outgoing<S, In, Out>, incoming: Incoming<S, In, Out>) -> Option<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
    In: LinkMessage,
    Out: LinkMessage,
{
    outgoing.frames.reunite(incoming.frames).ok().map(Framed::into_inner)
}

impl<S, In, Out> Incoming<S, In, Out>
where
    S: AsyncRead + AsyncWrite + Unpin,
    In: LinkMessage,
    Out: LinkMessage,
{
    /// Items left out of messages since the last call.
    pub fn take_skipped(&self) -> Option<Skipped> {
        self.skipped.take()
    }

    /// Whether heartbeats recorded by a relay are delivered as messages, too.
    pub fn want_beats(&self, wanted: bool) {
        self.read.want_beats(wanted);
    }

    /// The peer has authenticated: from its next frame on, frames may be as large as in any session, both ways.
    pub fn allow_session_frames(&self) {
        self.frame_limit.raise();
    }

    /// The next message, however long it takes. Sets no timer: for callers that have their own.
    pub async fn next_whenever(&mut self) -> Result<In, Lost> {
        Ok(self.frames.next().await.ok_or(Lost::Closed)??)
    }

    /// The next message of a peer that sends bytes at least every `limit`. While waiting, `meanwhile` is called
    /// every `period` to decide whether to continue; it is told whether bytes arrived in that time.
    pub async fn next(
        &mut self,
        limit: Duration,
        period: Duration,
        mut meanwhile: impl FnMut(bool) -> bool,
    ) -> Result<In, Lost> {
        let begun = Instant::now();
        let (mut asked_at, mut bytes) = (begun, self.read.bytes());
        loop {
            let wake_at = self.read.idle_at(begun, limit).min(asked_at + period);
            if let Ok(next) = tokio::time::timeout_at(wake_at, self.frames.next()).await {
                return Ok(next.ok_or(Lost::Closed)??);
            }
            let now = Instant::now();
            if self.read.idle_at(begun, limit) <= now {
                return Err(Lost::Silent);
            }
            if asked_at + period <= now {
                let moved = std::mem::replace(&mut bytes, self.read.bytes()) != bytes;
                asked_at = now;
                if !meanwhile(moved) {
                    return Err(Lost::Silent);
                }
            }
        }
    }
}

impl<S, In, Out> Outgoing<S, In, Out>
where
    S: AsyncRead + AsyncWrite + Unpin,
    In: LinkMessage,
    Out: LinkMessage,
{
    /// For a peer behind a relay, which shares one connection among many: a peer that is heard from is waited for,
    /// however long nothing can be sent to it. The relay closes peers that do not read.
    pub fn wait_while_heard(&mut self, incoming: &Incoming<S, In, Out>) {
        self.heard = Some(incoming.read.clone());
    }

    /// Needs a flush afterwards. An error of the codec concerns only this message; the stream is intact.
    pub async fn feed(&mut self, message: Out) -> Result<(), Lost> {
        let frames = &mut self.frames;
        let feeding = async move {
            frames.feed(message).await?;
            // A split stream holds back one message, and would report it only with the next one.
            poll_fn(|context| frames.poll_ready_unpin(context)).await
        };
        let fed = self.written.wait(self.heard.as_ref(), WRITE_LIMIT, feeding).await;
        Ok(fed.ok_or(Lost::Stuck)??)
    }

    pub async fn flush(&mut self) -> Result<(), Lost> {
        let flushed = self.written.wait(self.heard.as_ref(), WRITE_LIMIT, self.frames.flush()).await;
        Ok(flushed.ok_or(Lost::Stuck)??)
    }

    pub async fn send(&mut self, message: Out) -> Result<(), Lost> {
        self.feed(message).await?;
        self.flush().await
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use prost::encoding::{WireType, encode_key, encode_varint};

    use super::*;
    use crate::{Counted, FRAME_BYTES_MAX_ENROL, FromAgent, ServerCodec};

    /// A frame of this length, of an unknown kind.
    async fn send(peer: &mut tokio::io::DuplexStream, bytes: usize) {
        use tokio::io::AsyncWriteExt;
        // In field 2000 a message, in its field 1 the rest.
        let mut head = BytesMut::new();
        head.put_u32(u32::try_from(bytes).unwrap());
        encode_key(2000, WireType::LengthDelimited, &mut head);
        encode_varint((bytes - 5) as u64, &mut head);
        encode_key(1, WireType::LengthDelimited, &mut head);
        encode_varint((bytes - 9) as u64, &mut head);
        peer.write_all(&head).await.unwrap();
        peer.write_all(&vec![0; bytes - 9]).await.unwrap();
    }

    #[tokio::test]
    async fn frames_are_small_until_the_peer_is_known() {
        let ask = async |is_known: bool| {
            let (near, mut far) = tokio::io::duplex(4 * FRAME_BYTES_MAX_ENROL);
            let near = Counted::new(near);
            let counters = near.counters();
            let (_out, mut incoming): (Outgoing<_, FromAgent, FromServer>, _) =
                ends(framed(near, ServerCodec::enrolment()), counters);
            if is_known {
                incoming.allow_session_frames();
            }
            send(&mut far, FRAME_BYTES_MAX_ENROL + 1).await;
            incoming.next(Duration::from_secs(60), Duration::from_secs(60), |_| true).await
        };

        assert!(matches!(ask(false).await, Err(Lost::Broken(WireError::FrameTooLarge { .. }))));
        assert!(matches!(ask(true).await, Ok(FromAgent::Unknown)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_waited_for_only_where_a_relay_is_heard() {
        let send = async |is_relayed: bool, is_heard: bool| {
            let (near, far) = tokio::io::duplex(64);
            let near = Counted::new(near);
            let counters = near.counters();
            let heard = counters.read.clone();
            let (mut out, incoming): (Outgoing<_, FromAgent, FromServer>, _) =
                ends(framed(near, ServerCodec::new()), counters);
            if is_relayed {
                out.wait_while_heard(&incoming);
            }
            let hear = async {
                loop {
                    tokio::time::sleep(WRITE_LIMIT / 5).await;
                    if is_heard {
                        heard.touch();
                    }
                }
            };
            let large = FromServer::Renewed { certificate_pem: "x".repeat(10_000) };
            let sent = tokio::select! {
                sent = out.send(large) => Some(sent),
                () = hear => None,
                () = tokio::time::sleep(10 * WRITE_LIMIT) => None,
            };
            drop(far);
            sent
        };

        assert!(matches!(send(false, true).await, Some(Err(Lost::Stuck))));
        assert!(matches!(send(true, false).await, Some(Err(Lost::Stuck))));
        assert!(send(true, true).await.is_none(), "it still waits");
    }
}
