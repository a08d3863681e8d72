//! Whether bytes move: on a slow link a frame may take minutes, and a peer that is sending or receiving one is not
//! gone.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A stream that records when bytes moved. It belongs below TLS, next to the socket: a TLS record is read as a
/// whole or not at all.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    read: ByteCounter,
    written: ByteCounter,
}

/// How many bytes have gone one way, and when the last did.
#[derive(Clone, Debug)]
pub(crate) struct ByteCounter(Arc<Count>);

#[derive(Debug)]
struct Count {
    bytes: AtomicU64,
    /// In milliseconds after `since`.
    last: AtomicU64,
    since: Instant,
    /// Its reader wants to see every heartbeat.
    wants_beats: AtomicBool,
}

impl Default for ByteCounter {
    fn default() -> Self {
        let (bytes, last, wants_beats) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(Count { bytes, last, since: Instant::now(), wants_beats }))
    }
}

impl ByteCounter {
    fn add(&self, bytes: usize) {
        if bytes > 0 {
            self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.touch();
        }
    }

    /// The peer is known to be alive although no byte arrived.
    pub(crate) fn touch(&self) {
        let after = u64::try_from(self.0.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last.store(after, Ordering::Relaxed);
    }

    pub(crate) fn want_beats(&self, wanted: bool) {
        self.0.wants_beats.store(wanted, Ordering::Relaxed);
    }

    pub(crate) fn wants_beats(&self) -> bool {
        self.0.wants_beats.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// When somebody who has waited since `begun` has waited for `limit` without a byte.
    pub(crate) fn idle_at(&self, begun: Instant, limit: Duration) -> Instant {
        let last = self.0.since + Duration::from_millis(self.0.last.load(Ordering::Relaxed));
        last.max(begun) + limit
    }

    /// Waits for `work` as long as bytes move, here or where `also` counts them. None: no byte for `limit`.
    pub(crate) async fn wait<T>(
        &self,
        also: Option<&Self>,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        let begun = Instant::now();
        let idle_at = || {
            let here = self.idle_at(begun, limit);
            also.map_or(here, |also| here.max(also.idle_at(begun, limit)))
        };
        loop {
            if let Ok(done) = tokio::time::timeout_at(idle_at(), &mut work).await {
                return Some(done);
            }
            if idle_at() <= Instant::now() {
                return None;
            }
        }
    }
}

impl<S> Counted<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, read: ByteCounter::default(), written: ByteCounter::default() }
    }

    pub fn counters(&self) -> Counters {
        Counters { read: self.read.clone(), written: self.written.clone() }
    }
}

/// Both ways of one stream.
#[derive(Clone, Debug)]
pub struct Counters {
    pub(crate) read: ByteCounter,
    pub(crate) written: ByteCounter,
}

impl Counters {
    /// Returns when no byte has moved for `limit`, either way.
    pub async fn idle(&self, limit: Duration) {
        let begun = Instant::now();
        loop {
            let idle_at = self.read.idle_at(begun, limit).max(self.written.idle_at(begun, limit));
            if idle_at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(idle_at).await;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.read.add(buf.filled().len().saturating_sub(before));
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written.add(written(&polled));
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written.add(written(&polled));
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn written(polled: &Poll<io::Result<usize>>) -> usize {
    match polled {
        Poll::Ready(Ok(count)) => *count,
        Poll::Ready(Err(_)) | Poll::Pending => 0,
    }
}
