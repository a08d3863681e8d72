//! Frames that pass through a relay, which inspects only heartbeats.
//!
//! Promised: however the bytes are split, every frame except a heartbeat leaves as it came, in order; only a few
//! bytes are held back; callers can ask where a frame ends, to insert another one there. Absent: the contents of
//! other frames.

use bytes::BytesMut;

use crate::{FromAgent, FromServer, encode_part};

const LENGTH_BYTES: usize = 4;

/// The frame of an agent's heartbeat.
pub fn beat_frame() -> Vec<u8> {
    frame(&encode_part(FromAgent::Beat))
}

/// The frame that answers it.
pub fn beat_reply_frame() -> Vec<u8> {
    frame(&encode_part(FromServer::Beat))
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a heartbeat has two bytes");
    [&length.to_be_bytes(), message].concat()
}

/// One direction of one agent's connection.
#[derive(Debug)]
pub struct FrameFilter {
    /// The frame that is filtered out.
    wanted: Vec<u8>,
    /// The beginning of a frame, while it may still be that one.
    held: Vec<u8>,
    /// Bytes of the current frame that are still to come.
    rest: u64,
    passed: u64,
}

impl FrameFilter {
    /// Filters out the frames that equal this one.
    pub fn new(wanted: Vec<u8>) -> Self {
        debug_assert!(wanted.len() >= LENGTH_BYTES);
        Self { wanted, held: Vec::new(), rest: 0, passed: 0 }
    }

    /// Whether a whole frame has passed, and nothing of the next.
    pub fn is_between_frames(&self) -> bool {
        self.rest == 0 && self.held.is_empty()
    }

    /// How many frames have begun to pass.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Passes bytes on; returns how many frames were filtered out.
    pub fn pass(&mut self, mut input: &[u8], output: &mut BytesMut) -> u32 {
        let mut taken = 0;
        while !input.is_empty() {
            if self.rest > 0 {
                let count = usize::try_from(self.rest).unwrap_or(usize::MAX).min(input.len());
                let (body, after) = input.split_at(count);
                output.extend_from_slice(body);
                self.rest -= count as u64;
                input = after;
                continue;
            }
            self.held.push(input[0]);
            input = &input[1..];
            let Some(length) = self.held.first_chunk::<LENGTH_BYTES>().map(|bytes| u32::from_be_bytes(*bytes)) else {
                continue;
            };
            if self.held == self.wanted {
                self.held.clear();
                taken += 1;
            } else if !self.wanted.starts_with(&self.held) {
                output.extend_from_slice(&self.held);
                self.rest = u64::from(length) + LENGTH_BYTES as u64 - self.held.len() as u64;
                self.held.clear();
                self.passed += 1;
            }
        }
        taken
    }
}

/// Finds the frame boundaries of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameEnds {
    length: [u8; LENGTH_BYTES],
    known: usize,
    rest: u64,
}

impl FrameEnds {
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, after)) = bytes.split_first() {
            if self.rest > 0 {
                let count = usize::try_from(self.rest).unwrap_or(usize::MAX).min(bytes.len());
                self.rest -= count as u64;
                bytes = &bytes[count..];
                continue;
            }
            self.length[self.known] = *first;
            self.known += 1;
            bytes = after;
            if self.known == LENGTH_BYTES {
                self.known = 0;
                self.rest = u32::from_be_bytes(self.length).into();
            }
        }
    }

    pub(crate) fn is_between_frames(&self) -> bool {
        self.known == 0 && self.rest == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_frame_but_a_heartbeat_passes_however_the_bytes_are_cut(
            bodies in prop::collection::vec(prop::collection::vec(0_u8..=0x1b, 0..6), 0..20),
            beats in prop::collection::vec(any::<bool>(), 20),
            cuts in prop::collection::vec(1_usize..7, 1..20),
        ) {
            let beat = beat_frame();
            let (mut input, mut expected, mut beaten) = (Vec::new(), Vec::new(), 0);
            for (body, is_after_beat) in bodies.iter().zip(beats) {
                if is_after_beat {
                    input.extend_from_slice(&beat);
                    beaten += 1;
                }
                let frame = frame(body);
                input.extend_from_slice(&frame);
                if frame == beat { beaten += 1 } else { expected.extend_from_slice(&frame) }
            }
            let mut ends = FrameEnds::default();
            let (mut filter, mut output, mut taken) = (FrameFilter::new(beat), BytesMut::new(), 0);
            let (mut rest, mut cuts) = (input.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                taken += filter.pass(piece, &mut output);
                ends.pass(piece);
                prop_assert_eq!(ends.is_between_frames(), filter.is_between_frames());
                rest = after;
            }
            prop_assert_eq!(output.as_ref(), expected.as_slice());
            prop_assert_eq!(taken, beaten);
            prop_assert!(filter.is_between_frames());
        }
    }

    #[test]
    fn a_frame_that_is_on_its_way_cannot_be_interrupted_by_another() {
        let (mut filter, mut output) = (FrameFilter::new(beat_reply_frame()), BytesMut::new());

        filter.pass(&[0, 0, 0, 3, 9], &mut output);
        assert!(!filter.is_between_frames());
        filter.pass(&[9, 9], &mut output);

        assert!(filter.is_between_frames());
        assert_eq!(filter.passed(), 1);
        assert_eq!(output.as_ref(), [0, 0, 0, 3, 9, 9, 9]);
    }
}
