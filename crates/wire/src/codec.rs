//! Frames: four bytes of length, big-endian, then one message.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BufMut, BytesMut};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tokio_util::codec::length_delimited::{LengthDelimitedCodec, LengthDelimitedCodecError};
use tokio_util::codec::{Decoder, Encoder};

use crate::value::Skipped;
use crate::{FromAgent, FromServer, LinkMessage, WireError};

/// Before each frame.
const LENGTH_BYTES: usize = 4;

/// The largest frame of a session, without its four bytes of length.
pub const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The largest frame of an enrolment, where the peer has proved nothing yet.
pub const FRAME_BYTES_MAX_ENROL: usize = 256 * 1024;

/// The largest frame between a relay and a server.
pub(crate) const FRAME_BYTES_MAX_RELAY: usize = 96 * 1024;

/// Maximum number of observations, assignments, pools, acknowledgements or cancels in one message. An item can be
/// two bytes on the wire and hundreds in memory, so the frame's size alone does not bound memory.
pub const ITEMS_MAX: usize = 16 * 1024;

/// A buffer that has grown beyond this is freed when it is empty.
const BUFFER_BYTES_KEPT: usize = 16 * 1024;

/// The agent's end: reads [`FromServer`], writes [`FromAgent`].
pub type AgentCodec = MessageCodec<FromServer, FromAgent>;

/// The server's end: reads [`FromAgent`], writes [`FromServer`].
pub type ServerCodec = MessageCodec<FromAgent, FromServer>;

/// One end of a link: yields `In` and takes `Out` or `&Out`. An error while encoding leaves the
/// stream as it was; an error while decoding ends it.
pub struct MessageCodec<In, Out> {
    frames: LengthDelimitedCodec,
    bytes_max: FrameLimit,
    /// The length of a frame was read, but the frame is incomplete.
    inside_frame: bool,
    skipped: SkippedItems,
    ends: PhantomData<fn(Out) -> In>,
}

/// The frame limit of a codec. It is raised once the peer has authenticated.
#[derive(Clone, Debug)]
pub(crate) struct FrameLimit(Arc<AtomicUsize>);

impl FrameLimit {
    fn new(bytes_max: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes_max)))
    }

    /// From the next frame on, as large as in any session.
    pub(crate) fn raise(&self) {
        self.0.store(FRAME_BYTES_MAX, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a codec has left out of its messages since it was last asked.
#[derive(Clone, Debug, Default)]
pub struct SkippedItems(Arc<Mutex<Option<Skipped>>>);

impl SkippedItems {
    /// What was left out since the last time.
    pub fn take(&self) -> Option<Skipped> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn add(&self, more: Skipped) {
        let mut skipped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match skipped.as_mut() {
            Some(skipped) => skipped.count += more.count,
            None => *skipped = Some(more),
        }
    }
}

impl<In, Out> MessageCodec<In, Out> {
    /// For a session.
    pub fn new() -> Self {
        Self::with_frame_bytes_max(FRAME_BYTES_MAX)
    }

    /// For an enrolment: the same, with small frames.
    pub fn enrolment() -> Self {
        Self::with_frame_bytes_max(FRAME_BYTES_MAX_ENROL)
    }

    /// For a relay and its server: many streams share the connection, so frames are short.
    pub fn relay() -> Self {
        Self::with_frame_bytes_max(FRAME_BYTES_MAX_RELAY)
    }

    fn with_frame_bytes_max(bytes_max: usize) -> Self {
        let frames =
            LengthDelimitedCodec::builder().length_field_length(LENGTH_BYTES).max_frame_length(bytes_max).new_codec();
        let bytes_max = FrameLimit::new(bytes_max);
        Self { frames, bytes_max, inside_frame: false, skipped: SkippedItems::default(), ends: PhantomData }
    }

    pub(crate) fn frame_limit(&self) -> FrameLimit {
        self.bytes_max.clone()
    }

    /// Where it reports what it left out of messages.
    pub fn skipped(&self) -> SkippedItems {
        self.skipped.clone()
    }

    /// The framing's own errors hide the one kind that we name.
    fn frame_error(&self, error: std::io::Error) -> WireError {
        if error.get_ref().is_some_and(|inner| inner.is::<LengthDelimitedCodecError>()) {
            WireError::FrameTooLarge { bytes_max: self.frames.max_frame_length() }
        } else {
            WireError::Io(error)
        }
    }
}

impl<In, Out> Default for MessageCodec<In, Out> {
    fn default() -> Self {
        Self::new()
    }
}

impl<In, Out> fmt::Debug for MessageCodec<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageCodec").field("frames", &self.frames).finish_non_exhaustive()
    }
}

impl<In: LinkMessage, Out> Decoder for MessageCodec<In, Out> {
    type Item = In;
    type Error = WireError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<In>, WireError> {
        self.frames.set_max_frame_length(self.bytes_max.get());
        let before = src.len();
        let Some(frame) = self.frames.decode(src).map_err(|error| self.frame_error(error))? else {
            self.inside_frame |= src.len() < before;
            return Ok(None);
        };
        self.inside_frame = false;
        check_items(&frame)?;
        let mut skipped = None;
        let message = In::from_proto(In::Proto::decode(frame)?, &mut skipped)?;
        if let Some(signed) = message.signed() {
            check_parts(&signed.messages)?;
        }
        if let Some(skipped) = skipped {
            self.skipped.add(skipped);
        }
        give_back(src);
        Ok(Some(message))
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> Result<Option<In>, WireError> {
        match self.decode(src)? {
            Some(message) => Ok(Some(message)),
            None if self.inside_frame || !src.is_empty() => Err(WireError::Truncated),
            None => Ok(None),
        }
    }
}

impl<In, Out: LinkMessage> Encoder<Out> for MessageCodec<In, Out> {
    type Error = WireError;

    fn encode(&mut self, message: Out, dst: &mut BytesMut) -> Result<(), WireError> {
        self.frames.set_max_frame_length(self.bytes_max.get());
        let message = message.into_proto();
        let length = message.encoded_len();
        let too_large = || WireError::FrameTooLarge { bytes_max: self.frames.max_frame_length() };
        // Checked before encoding: an oversized message must not cost its size again.
        if length > self.frames.max_frame_length() {
            return Err(too_large());
        }
        give_back(dst);
        let begun = dst.len();
        dst.reserve(LENGTH_BYTES + length);
        dst.put_u32(u32::try_from(length).map_err(|_| too_large())?);
        message.encode_raw(dst);
        check_items(&dst[begun + LENGTH_BYTES..]).inspect_err(|_| dst.truncate(begun))?;
        Ok(())
    }
}

impl<In, Out: LinkMessage> Encoder<&Out> for MessageCodec<In, Out> {
    type Error = WireError;

    fn encode(&mut self, message: &Out, dst: &mut BytesMut) -> Result<(), WireError> {
        self.encode(message.clone(), dst)
    }
}

/// An idle connection does not keep the buffer of its largest frame.
fn give_back(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > BUFFER_BYTES_KEPT {
        *buffer = BytesMut::new();
    }
}

/// Counts the fields of the message inside the frame, where the lists are, before anything is allocated for them.
pub(crate) fn check_items(frame: &[u8]) -> Result<usize, WireError> {
    let mut items = 0;
    let mut outer = frame;
    while outer.has_remaining() {
        let (tag, wire_type) = decode_key(&mut outer)?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, tag, &mut outer, DecodeContext::default())?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut outer)?).unwrap_or(usize::MAX);
        let (mut message, rest) = outer.split_at_checked(length).ok_or(WireError::Truncated)?;
        outer = rest;
        while message.has_remaining() {
            items += 1;
            if items > ITEMS_MAX {
                return Err(WireError::TooManyItems { items_max: ITEMS_MAX });
            }
            let (tag, wire_type) = decode_key(&mut message)?;
            skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
        }
    }
    Ok(items)
}

/// The messages inside a signed one count together: each on its own could be as large as a frame allows.
fn check_parts(parts: &[Vec<u8>]) -> Result<(), WireError> {
    let mut items = 0;
    for part in parts {
        items += check_items(part)?;
        if items > ITEMS_MAX {
            return Err(WireError::TooManyItems { items_max: ITEMS_MAX });
        }
    }
    Ok(())
}
