//! The streams of a connection as its users see them: each reads and writes like a socket.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::{Moved, Mux, MuxError};
use crate::{Counters, RelayFrame};

/// The streams of one connection, for the tasks that use them and the one that carries them.
#[derive(Clone, Debug)]
pub struct Streams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    mux: Mutex<Mux>,
    /// There may be something to send.
    wake: Notify,
}

impl Streams {
    pub fn new(streams_max: usize) -> Self {
        Self(Arc::new(Shared { mux: Mutex::new(Mux::new(streams_max)), wake: Notify::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Mux> {
        self.0.mux.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.lock().count()
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// The relay's end. None where the connection has ended or carries as many as it may.
    pub fn open(&self, certificate_der: Vec<u8>) -> Option<MuxStream> {
        let number = self.lock().open(certificate_der)?;
        self.0.wake.notify_one();
        Some(MuxStream { streams: self.clone(), number })
    }

    /// The server's end. None where there are too many.
    pub fn accept(&self, number: u32) -> Result<Option<MuxStream>, MuxError> {
        let accepted = self.lock().accept(number)?;
        self.0.wake.notify_one();
        Ok(accepted.then(|| MuxStream { streams: self.clone(), number }))
    }

    /// Handles data, credit and ends; returns all other frames.
    pub fn handle(&self, frame: RelayFrame) -> Result<Option<RelayFrame>, MuxError> {
        let mut mux = self.lock();
        match frame {
            RelayFrame::Data { stream, bytes } => mux.handle_data(stream, bytes)?,
            RelayFrame::Credit { stream, bytes } => {
                mux.handle_credit(stream, bytes)?;
                drop(mux);
                self.0.wake.notify_one();
            }
            RelayFrame::Close { stream } => mux.handle_close(stream)?,
            other @ (RelayFrame::Hello { .. }
            | RelayFrame::Welcome { .. }
            | RelayFrame::Refused { .. }
            | RelayFrame::Open { .. }
            | RelayFrame::Beats { .. }
            | RelayFrame::Renew { .. }
            | RelayFrame::Renewed { .. }
            | RelayFrame::Authorities(_)
            | RelayFrame::Trusted(_)
            | RelayFrame::Unknown) => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// Heartbeats of this stream keep a reader with these counters from taking its peer for dead.
    pub fn note_beats(&self, number: u32, counters: &Counters) {
        self.lock().note_beats(number, counters.read.clone());
    }

    /// Heartbeats that a relay has sent in a batch.
    pub fn beat(&self, numbers: &[u32]) -> Result<(), MuxError> {
        let mut mux = self.lock();
        numbers.iter().try_for_each(|number| mux.handle_beat(*number))
    }

    pub fn poll_frame(&self) -> Option<RelayFrame> {
        self.lock().poll_frame()
    }

    /// Returns when there may be something to send.
    pub async fn woken(&self) {
        self.0.wake.notified().await;
    }

    /// Every stream ends.
    pub fn end(&self) {
        self.lock().end();
    }
}

/// One agent's bytes, as if it had its own connection.
#[derive(Debug)]
pub struct MuxStream {
    streams: Streams,
    number: u32,
}

impl MuxStream {
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for MuxStream {
    fn drop(&mut self) {
        self.streams.lock().leave(self.number);
        self.streams.0.wake.notify_one();
    }
}

impl AsyncRead for MuxStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut mux = self.streams.lock();
        match mux.read(self.number, buf.remaining()) {
            Moved::Done(bytes) => {
                let is_credit_due = !mux.control.is_empty();
                drop(mux);
                buf.put_slice(&bytes);
                if is_credit_due {
                    self.streams.0.wake.notify_one();
                }
                Poll::Ready(Ok(()))
            }
            Moved::Later => {
                if let Some(stream) = mux.streams.get_mut(&self.number) {
                    stream.reader = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            Moved::Never => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for MuxStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut mux = self.streams.lock();
        match mux.write(self.number, bytes) {
            Moved::Done(count) => {
                drop(mux);
                self.streams.0.wake.notify_one();
                Poll::Ready(Ok(count))
            }
            Moved::Later => {
                if let Some(stream) = mux.streams.get_mut(&self.number) {
                    stream.writer = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            Moved::Never => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
