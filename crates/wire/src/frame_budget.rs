//! Large frames of streams that share a budget of memory.
//!
//! Promised: a frame longer than `FREE_BYTES_MAX` passes only when its whole length fits into what the frames of
//! the other streams have left, and keeps its share until the next read after its end, when it has been decoded and
//! handled; until then nothing more of its stream is read. A small frame waits for no other. Dropping a stream in
//! the middle of a frame returns its share. Absent: whether a frame may be as long as it says: one that no session
//! allows passes, for the codec to refuse.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

use crate::FRAME_BYTES_MAX;

/// Frames up to this length cost nothing.
const FREE_BYTES_MAX: usize = 64 * 1024;
/// Read at a time: its buffer is zeroed first.
const READ_BYTES_MAX: usize = 16 * 1024;
/// Bytes per permit.
const UNIT_BYTES: usize = 1024;
const LENGTH_BYTES: usize = 4;

/// The budget shared by the large frames of some streams.
#[derive(Clone, Debug)]
pub struct FrameBudget {
    free: Arc<Semaphore>,
    units: usize,
}

impl FrameBudget {
    pub fn new(bytes: usize) -> Self {
        let units = bytes / UNIT_BYTES;
        Self { free: Arc::new(Semaphore::new(units)), units }
    }

    /// None for a frame that costs nothing.
    fn units_of(&self, frame_bytes: usize) -> Option<u32> {
        let is_charged = frame_bytes > FREE_BYTES_MAX && frame_bytes <= FRAME_BYTES_MAX;
        u32::try_from(frame_bytes.div_ceil(UNIT_BYTES).min(self.units)).ok().filter(|_| is_charged)
    }
}

/// A stream of frames, each with four bytes of length before it.
#[derive(Debug)]
pub struct Budgeted<S> {
    stream: S,
    budget: FrameBudget,
    free: PollSemaphore,
    position: Position,
    share: Option<OwnedSemaphorePermit>,
}

/// Where in a frame the reader is.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// This many bytes of its length are known, and none of them has passed.
    Length { bytes: [u8; LENGTH_BYTES], known: usize },
    /// The length has passed up to here.
    Begun { bytes: [u8; LENGTH_BYTES], passed: usize },
    /// This many bytes are still to come.
    Body { rest: u64 },
}

const BETWEEN: Position = Position::Length { bytes: [0; LENGTH_BYTES], known: 0 };

impl<S> Budgeted<S> {
    pub fn new(stream: S, budget: FrameBudget) -> Self {
        let free = PollSemaphore::new(budget.free.clone());
        Self { stream, budget, free, position: BETWEEN, share: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Budgeted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        loop {
            match this.position {
                Position::Length { mut bytes, known } if known < LENGTH_BYTES => {
                    if known == 0 {
                        this.share = None;
                    }
                    let mut length = ReadBuf::new(&mut bytes[known..]);
                    ready!(Pin::new(&mut this.stream).poll_read(cx, &mut length))?;
                    let read = length.filled().len();
                    if read == 0 {
                        // The end; a partial length is no frame.
                        buf.put_slice(&bytes[..known.min(buf.remaining())]);
                        this.position = BETWEEN;
                        return Poll::Ready(Ok(()));
                    }
                    this.position = Position::Length { bytes, known: known + read };
                }
                Position::Length { bytes, .. } => {
                    let frame_bytes = usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX);
                    if let Some(units) = this.budget.units_of(frame_bytes) {
                        this.share = ready!(this.free.poll_acquire_many(cx, units));
                    }
                    this.position = Position::Begun { bytes, passed: 0 };
                }
                Position::Begun { bytes, passed } => {
                    let count = buf.remaining().min(LENGTH_BYTES - passed);
                    buf.put_slice(&bytes[passed..passed + count]);
                    this.position = match passed + count {
                        LENGTH_BYTES => Position::Body { rest: u32::from_be_bytes(bytes).into() },
                        passed => Position::Begun { bytes, passed },
                    };
                    return Poll::Ready(Ok(()));
                }
                Position::Body { rest: 0 } => this.position = BETWEEN,
                Position::Body { rest } => {
                    let count = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.remaining()).min(READ_BYTES_MAX);
                    let mut body = ReadBuf::new(buf.initialize_unfilled_to(count));
                    ready!(Pin::new(&mut this.stream).poll_read(cx, &mut body))?;
                    let read = body.filled().len();
                    buf.advance(read);
                    this.position = Position::Body { rest: rest - read as u64 };
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Budgeted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    const LARGE: usize = 2 * FREE_BYTES_MAX;

    fn stream(budget: &FrameBudget) -> (Budgeted<DuplexStream>, DuplexStream) {
        let (near, far) = tokio::io::duplex(4 * LARGE);
        (Budgeted::new(near, budget.clone()), far)
    }

    fn frame(bytes: usize) -> Vec<u8> {
        let body: Vec<u8> = (0..bytes).map(|index| u8::try_from(index % 251).unwrap()).collect();
        [&u32::try_from(bytes).unwrap().to_be_bytes()[..], &body].concat()
    }

    /// What can be read now.
    fn readable(stream: &mut Budgeted<DuplexStream>) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let mut piece = [0; 5000];
            match stream.read(&mut piece).now_or_never() {
                Some(Ok(count)) if count > 0 => all.extend_from_slice(&piece[..count]),
                Some(_) | None => return all,
            }
        }
    }

    #[tokio::test]
    async fn frames_pass_as_they_are_however_they_come() {
        let budget = FrameBudget::new(LARGE);
        let (mut near, mut far) = stream(&budget);
        let sent = [frame(0), frame(3), frame(LARGE), frame(1), vec![0, 0]].concat();

        let mut read = Vec::new();
        for piece in sent.chunks(7001).flat_map(|chunk| <[&[u8]; 2]>::from(chunk.split_at(chunk.len().min(2)))) {
            far.write_all(piece).await.unwrap();
            read.extend(readable(&mut near));
        }
        drop(far);
        read.extend(readable(&mut near));

        assert_eq!(read, sent);
        assert_eq!(budget.free.available_permits(), budget.units, "all is given back");
    }

    #[tokio::test]
    async fn a_large_frame_waits_for_its_share_and_a_small_one_does_not() {
        let budget = FrameBudget::new(LARGE + FREE_BYTES_MAX);
        let ((mut one, mut to_one), (mut two, mut to_two)) = (stream(&budget), stream(&budget));
        to_one.write_all(&frame(LARGE)[..100]).await.unwrap();
        assert_eq!(readable(&mut one).len(), 100);

        to_two.write_all(&[frame(FREE_BYTES_MAX), frame(LARGE)].concat()).await.unwrap();
        assert_eq!(readable(&mut two), frame(FREE_BYTES_MAX), "not even the length of the second");
        to_one.write_all(&frame(LARGE)[100..]).await.unwrap();
        assert_eq!(readable(&mut one), frame(LARGE)[100..]);

        assert_eq!(readable(&mut two), frame(LARGE));
    }

    #[tokio::test]
    async fn whoever_leaves_in_the_middle_of_a_frame_gives_its_share_back() {
        let budget = FrameBudget::new(LARGE);
        let ((mut one, mut to_one), (mut two, mut to_two)) = (stream(&budget), stream(&budget));
        to_one.write_all(&frame(LARGE)[..100]).await.unwrap();
        to_two.write_all(&frame(LARGE)).await.unwrap();
        assert_eq!((readable(&mut one).len(), readable(&mut two).len()), (100, 0));

        drop(one);

        assert_eq!(readable(&mut two), frame(LARGE));
    }

    #[tokio::test]
    async fn a_frame_that_no_session_allows_is_left_to_the_codec() {
        let (mut near, mut far) = stream(&FrameBudget::new(LARGE));

        far.write_all(&u32::MAX.to_be_bytes()).await.unwrap();

        assert_eq!(readable(&mut near), u32::MAX.to_be_bytes());
    }
}
