//! The streams of many agents over one connection between a relay and a server.
//!
//! Promised: each stream has its own credit, so a peer that does not read one blocks no other; streams with
//! something to send take turns, a piece each; what a stream may hold is bounded both ways, by
//! [`STREAM_WINDOW_BYTES`] and [`STREAM_BUFFER_BYTES`]; a peer that exceeds its credit, uses streams that it has
//! not opened, or lets answers pile up, ends the connection. `Mux` does no IO and reads no clock; tasks use it
//! through `streams`.
//! Absent: who the agents are, and what the bytes mean, except heartbeats, which a relay sends in batches.

mod streams;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use bytes::{Bytes, BytesMut};

use crate::RelayFrame;
use crate::byte_counter::ByteCounter;
use crate::passage::{FrameEnds, beat_frame};

pub use streams::{MuxStream, Streams};

/// Received bytes of a stream that its owner has not read; also its initial credit.
pub const STREAM_WINDOW_BYTES: usize = 32 * 1024;
/// Bytes of a stream that wait to be sent.
pub const STREAM_BUFFER_BYTES: usize = 16 * 1024;
/// How much a stream sends per turn.
const TURN_BYTES_MAX: usize = 8 * 1024;
/// Control frames that wait to be sent, besides two per stream.
const CONTROL_SPARE: usize = 1024;

/// After one of these the connection ends: the peer violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MuxError {
    #[error("stream {stream} was not opened")]
    NotOpened { stream: u32 },
    #[error("expected stream {expected}, got {found}")]
    Number { found: u32, expected: u32 },
    #[error("stream {stream} has sent more than it had credit for")]
    Overrun { stream: u32 },
    #[error("stream {stream} was given more credit than there is")]
    Credit { stream: u32 },
    #[error("the peer does not take its answers")]
    Flooded,
}

/// One end of the connection, without the connection.
#[derive(Debug)]
pub(crate) struct Mux {
    streams: HashMap<u32, Stream>,
    /// Streams that may send, in turn.
    ready: VecDeque<u32>,
    /// Sent before data: openings, credit, ends.
    control: VecDeque<RelayFrame>,
    /// The number of the last stream.
    opened: u32,
    streams_max: usize,
    is_over: bool,
    beat: Bytes,
}

#[derive(Debug)]
struct Stream {
    /// The rest of a heartbeat, which is read first and costs no credit.
    beat: Bytes,
    /// Received but not read. Contiguous: a frame of one byte must not hold more than that byte.
    received: BytesMut,
    /// What the peer may still send.
    peer_credit: usize,
    /// Read, but not yet returned as credit.
    unreturned: usize,
    ends: FrameEnds,
    /// Where its reader checks whether the peer is alive.
    heard: Option<ByteCounter>,
    to_send: BytesMut,
    credit: usize,
    is_ready: bool,
    /// The peer has closed it: it sends and takes nothing more.
    is_ended: bool,
    /// Its owner here has closed it: what is in `to_send` still goes out.
    is_left: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Stream {
    fn new() -> Self {
        Self {
            beat: Bytes::new(),
            received: BytesMut::new(),
            peer_credit: STREAM_WINDOW_BYTES,
            unreturned: 0,
            ends: FrameEnds::default(),
            heard: None,
            to_send: BytesMut::new(),
            credit: STREAM_WINDOW_BYTES,
            is_ready: false,
            is_ended: false,
            is_left: false,
            reader: None,
            writer: None,
        }
    }

    fn has_to_read(&self) -> bool {
        !self.beat.is_empty() || !self.received.is_empty()
    }

    /// The next bytes to read.
    fn take(&mut self, bytes_max: usize) -> Bytes {
        if !self.beat.is_empty() {
            return self.beat.split_to(self.beat.len().min(bytes_max));
        }
        let piece = self.received.split_to(self.received.len().min(bytes_max)).freeze();
        self.unreturned += piece.len();
        if self.received.is_empty() {
            self.received = BytesMut::new();
        }
        piece
    }

    fn wake(&mut self) {
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }
}

/// The result of a read or write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Moved<T> {
    Done(T),
    /// Nothing to read, or no room to write.
    Later,
    /// The stream is closed.
    Never,
}

impl Mux {
    pub(crate) fn new(streams_max: usize) -> Self {
        Self {
            streams: HashMap::new(),
            ready: VecDeque::new(),
            control: VecDeque::new(),
            opened: 0,
            streams_max,
            is_over: false,
            beat: beat_frame().into(),
        }
    }

    /// Streams that somebody here uses.
    pub(crate) fn count(&self) -> usize {
        self.streams.values().filter(|stream| !stream.is_left).count()
    }

    /// The relay's side: a stream for an agent that has connected. None if there are too many.
    pub(crate) fn open(&mut self, certificate_der: Vec<u8>) -> Option<u32> {
        if self.is_over || self.streams.len() >= self.streams_max {
            return None;
        }
        let stream = self.opened.checked_add(1)?;
        self.opened = stream;
        self.streams.insert(stream, Stream::new());
        self.control.push_back(RelayFrame::Open { stream, certificate_der });
        Some(stream)
    }

    /// The server's side: the relay has opened a stream. False if there are too many: it was closed again.
    pub(crate) fn accept(&mut self, stream: u32) -> Result<bool, MuxError> {
        let expected = self.opened.saturating_add(1);
        if stream != expected {
            return Err(MuxError::Number { found: stream, expected });
        }
        self.check_control()?;
        self.opened = stream;
        if self.streams.len() >= self.streams_max {
            self.control.push_back(RelayFrame::Close { stream });
            return Ok(false);
        }
        self.streams.insert(stream, Stream::new());
        Ok(true)
    }

    /// Before anything of the peer is accepted: each of its frames adds at most one answer, whatever happens to its
    /// stream.
    fn check_control(&self) -> Result<(), MuxError> {
        let is_flooded = self.control.len() > CONTROL_SPARE + 2 * self.streams_max;
        if is_flooded { Err(MuxError::Flooded) } else { Ok(()) }
    }

    /// None for a stream that was already closed here: the peer does not know yet.
    fn known(&mut self, stream: u32) -> Result<Option<&mut Stream>, MuxError> {
        self.check_control()?;
        if stream == 0 || stream > self.opened {
            return Err(MuxError::NotOpened { stream });
        }
        Ok(self.streams.get_mut(&stream))
    }

    pub(crate) fn handle_data(&mut self, stream: u32, bytes: Vec<u8>) -> Result<(), MuxError> {
        let Some(found) = self.known(stream)? else { return Ok(()) };
        if found.is_left {
            return Ok(());
        }
        let Some(left) = found.peer_credit.checked_sub(bytes.len()).filter(|_| !found.is_ended) else {
            return Err(MuxError::Overrun { stream });
        };
        found.peer_credit = left;
        found.ends.pass(&bytes);
        found.received.extend_from_slice(&bytes);
        if let Some(waker) = found.reader.take() {
            waker.wake();
        }
        Ok(())
    }

    pub(crate) fn handle_credit(&mut self, stream: u32, bytes: u32) -> Result<(), MuxError> {
        let Some(found) = self.known(stream)? else { return Ok(()) };
        let credit = found.credit.saturating_add(bytes as usize);
        if credit > STREAM_WINDOW_BYTES {
            return Err(MuxError::Credit { stream });
        }
        found.credit = credit;
        self.make_ready(stream);
        Ok(())
    }

    pub(crate) fn handle_close(&mut self, stream: u32) -> Result<(), MuxError> {
        let Some(found) = self.known(stream)? else { return Ok(()) };
        found.is_ended = true;
        found.to_send = BytesMut::new();
        if found.is_left {
            self.streams.remove(&stream);
        } else {
            found.wake();
        }
        Ok(())
    }

    /// The agent of the stream has sent a heartbeat; or the relay holds it back, in the middle of a frame, because
    /// the connection is slow: it is alive all the same. This is recorded, and wakes nobody. A reader that wants
    /// heartbeats gets them as frames. Heartbeats may overtake the opening of their stream: that is no reason to
    /// end the others.
    pub(crate) fn handle_beat(&mut self, stream: u32) -> Result<(), MuxError> {
        if stream > self.opened {
            return Ok(());
        }
        let beat = self.beat.clone();
        let Some(found) = self.known(stream)? else { return Ok(()) };
        if let Some(heard) = &found.heard {
            heard.touch();
            if !heard.wants_beats() {
                return Ok(());
            }
        }
        if !found.has_to_read() && found.ends.is_between_frames() && !found.is_ended && !found.is_left {
            found.beat = beat;
            if let Some(waker) = found.reader.take() {
                waker.wake();
            }
        }
        Ok(())
    }

    /// Heartbeats of the stream are recorded here too.
    pub(crate) fn note_beats(&mut self, stream: u32, heard: ByteCounter) {
        if let Some(found) = self.streams.get_mut(&stream) {
            found.heard = Some(heard);
        }
    }

    /// The connection is over: all streams end.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        self.control.clear();
        self.ready.clear();
        self.streams.retain(|_, stream| !stream.is_left);
        for stream in self.streams.values_mut() {
            stream.to_send = BytesMut::new();
            stream.wake();
        }
    }

    pub(crate) fn read(&mut self, stream: u32, bytes_max: usize) -> Moved<Bytes> {
        let Some(found) = self.streams.get_mut(&stream) else { return Moved::Never };
        if !found.has_to_read() {
            return if found.is_ended || self.is_over { Moved::Never } else { Moved::Later };
        }
        let piece = found.take(bytes_max);
        if found.unreturned >= STREAM_WINDOW_BYTES / 2 && !found.is_ended && !self.is_over {
            let bytes = std::mem::take(&mut found.unreturned);
            found.peer_credit += bytes;
            let bytes = u32::try_from(bytes).expect("a window is small");
            self.control.push_back(RelayFrame::Credit { stream, bytes });
        }
        Moved::Done(piece)
    }

    /// Takes as many bytes as there is room for.
    pub(crate) fn write(&mut self, stream: u32, bytes: &[u8]) -> Moved<usize> {
        let is_over = self.is_over;
        let Some(found) = self.streams.get_mut(&stream).filter(|found| !found.is_ended && !is_over) else {
            return Moved::Never;
        };
        let room = STREAM_BUFFER_BYTES.saturating_sub(found.to_send.len());
        if room == 0 {
            return Moved::Later;
        }
        let count = room.min(bytes.len());
        found.to_send.extend_from_slice(&bytes[..count]);
        self.make_ready(stream);
        Moved::Done(count)
    }

    /// Its owner here is done with it. What was written is sent as far as there is credit.
    pub(crate) fn leave(&mut self, stream: u32) {
        let Some(found) = self.streams.get_mut(&stream) else { return };
        if found.is_ended || self.is_over {
            self.streams.remove(&stream);
            return;
        }
        found.is_left = true;
        (found.beat, found.received) = (Bytes::new(), BytesMut::new());
        found.to_send.truncate(found.credit);
        if found.to_send.is_empty() {
            self.streams.remove(&stream);
            self.control.push_back(RelayFrame::Close { stream });
        }
    }

    fn make_ready(&mut self, stream: u32) {
        let Some(found) = self.streams.get_mut(&stream) else { return };
        if !found.is_ready && found.credit > 0 && !found.to_send.is_empty() {
            found.is_ready = true;
            self.ready.push_back(stream);
        }
    }

    /// What to send next: control first, then a piece of the stream whose turn it is.
    pub(crate) fn poll_frame(&mut self) -> Option<RelayFrame> {
        if let Some(frame) = self.control.pop_front() {
            return Some(frame);
        }
        while let Some(stream) = self.ready.pop_front() {
            let Some(found) = self.streams.get_mut(&stream) else { continue };
            found.is_ready = false;
            let count = found.to_send.len().min(found.credit).min(TURN_BYTES_MAX);
            if count == 0 {
                continue;
            }
            let bytes = found.to_send.split_to(count).to_vec();
            found.credit -= count;
            if found.to_send.is_empty() {
                found.to_send = BytesMut::new();
                if found.is_left {
                    self.streams.remove(&stream);
                    self.control.push_back(RelayFrame::Close { stream });
                    return Some(RelayFrame::Data { stream, bytes });
                }
            }
            if let Some(waker) = found.writer.take() {
                waker.wake();
            }
            self.make_ready(stream);
            return Some(RelayFrame::Data { stream, bytes });
        }
        None
    }
}
