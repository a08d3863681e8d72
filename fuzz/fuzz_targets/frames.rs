//! The link: any bytes, in any pieces. Three bytes say how, the rest is the stream.
//!
//! What is decoded does not depend on how it is split, survives encoding and decoding again, and never takes more
//! memory than [`HEAP_BYTES_MAX`].

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, BytesMut};
use libfuzzer_sys::fuzz_target;
use proctor_wire::{FRAME_BYTES_MAX, FromAgent, FromServer, LinkMessage, MessageCodec, WireError};
use tokio_util::codec::{Decoder, Encoder};

/// The buffer of one frame, its message in the form of prost, and the message itself.
const HEAP_BYTES_MAX: usize = 6 * FRAME_BYTES_MAX;
/// A repeated body is as long as this at most: enough for more items than are allowed.
const REPEATED_BYTES_MAX: usize = 512 * 1024;

fuzz_target!(|data: &[u8]| {
    let Some(([how, pieces, repeat], stream)) = data.split_first_chunk::<3>().map(|(head, rest)| (*head, rest)) else {
        return;
    };
    let stream = match how & 2 {
        0 => stream.to_vec(),
        _ => framed(stream, repeat),
    };
    let is_enrolment = how & 4 != 0;
    match how & 1 {
        0 => check::<FromAgent, FromServer>(&stream, pieces, is_enrolment),
        _ => check::<FromServer, FromAgent>(&stream, pieces, is_enrolment),
    }
});

/// One frame of the body, or of the body many times: lists of many small items.
fn framed(body: &[u8], repeat: u8) -> Vec<u8> {
    let times = match repeat {
        0..=239 => 1,
        240..=253 => usize::from(repeat - 238),
        254 => 5000,
        255 => 20_000,
    };
    let body = body.repeat(times.min(REPEATED_BYTES_MAX / body.len().max(1)).max(1));
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.put_u32(u32::try_from(body.len()).expect("a body is small"));
    frame.extend(body);
    frame
}

fn codec<In, Out>(is_enrolment: bool) -> MessageCodec<In, Out> {
    if is_enrolment { MessageCodec::enrolment() } else { MessageCodec::new() }
}

fn check<In, Out>(stream: &[u8], pieces: u8, is_enrolment: bool)
where
    In: LinkMessage + PartialEq + Debug,
    Out: LinkMessage,
{
    let (whole, end) = decoded::<In, Out>(stream, stream.len().max(1), is_enrolment);
    // Many pieces of a long stream take long and show nothing new.
    let piece = (usize::from(pieces) + 1).max(stream.len() / 4096);
    let (pieced, pieced_end) = decoded::<In, Out>(stream, piece, is_enrolment);
    assert_eq!(whole, pieced);
    assert_eq!(end.map(|error| error.to_string()), pieced_end.map(|error| error.to_string()));

    for message in whole {
        let _ = format!("{message:?}");
        let mut bytes = BytesMut::new();
        // Its other end; the session's, because a canonical form may be longer.
        let mut sender = codec::<Out, In>(false);
        sender.encode(&message, &mut bytes).unwrap_or_else(|error| panic!("{message:?}: {error}"));
        let again = codec::<In, Out>(false).decode(&mut bytes);
        let again = again.unwrap_or_else(|error| panic!("{message:?}: {error:?}"));
        assert_eq!(again, Some(message));
        assert!(bytes.is_empty());
    }
}

/// All messages up to the end of the stream or an error.
fn decoded<In: LinkMessage, Out>(stream: &[u8], piece: usize, is_enrolment: bool) -> (Vec<In>, Option<WireError>) {
    let mut codec = codec::<In, Out>(is_enrolment);
    let mut buffer = BytesMut::new();
    let mut messages = Vec::new();
    for bytes in stream.chunks(piece) {
        buffer.extend_from_slice(bytes);
        loop {
            let before = heap_begin();
            let decoded = codec.decode(&mut buffer);
            let grown = heap_peak().saturating_sub(before);
            assert!(grown <= HEAP_BYTES_MAX, "{grown} bytes of memory for {} of stream", stream.len());
            match decoded {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    match codec.decode_eof(&mut buffer) {
        Ok(None) => (messages, None),
        Ok(Some(_)) => panic!("a whole message was left in the buffer"),
        Err(error) => (messages, Some(error)),
    }
}

static HEAP: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// What is in use now, from where the peak is measured.
fn heap_begin() -> usize {
    let now = HEAP.load(Ordering::Relaxed);
    PEAK.store(now, Ordering::Relaxed);
    now
}

fn heap_peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// The system's allocator, counted.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = HEAP.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `dealloc`, and the memory came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
