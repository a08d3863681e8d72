//! Whether bytes move: on a slow link a frame may take minutes, and a peer that is sending one is not gone.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that counts its bytes.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    read: Counter,
    written: Counter,
}

/// How many bytes have gone one way.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits for `work` as long as bytes move. None: for `limit` none did. `moved` is called whenever a limit
    /// was over and some had.
    pub async fn wait<T>(&self, limit: Duration, work: impl Future<Output = T>, mut moved: impl FnMut()) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let before = self.get();
            match tokio::time::timeout(limit, &mut work).await {
                Ok(done) => return Some(done),
                Err(_) if self.get() == before => return None,
                Err(_) => moved(),
            }
        }
    }
}

impl<S> Counted<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, read: Counter::default(), written: Counter::default() }
    }

    /// What was read, and what was written.
    pub fn counters(&self) -> (Counter, Counter) {
        (self.read.clone(), self.written.clone())
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
        if let Poll::Ready(Ok(count)) = &polled {
            self.written.add(*count);
        }
        polled
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
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// 64 kbit/s, in pieces of a second; `bytes` in all, and then silence.
    async fn slow(mut link: DuplexStream, bytes: usize) {
        let piece = vec![0; 8 * 1024];
        for _ in 0..bytes / piece.len() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            link.write_all(&piece).await.unwrap();
        }
        std::future::pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_mebibyte_at_64_kbit_a_second_gets_through_and_silence_does_not() {
        const MEBIBYTE: usize = 1024 * 1024;
        let limit = Duration::from_secs(15);
        for (sent, is_heard) in [(MEBIBYTE, true), (MEBIBYTE / 2, false)] {
            let (ours, theirs) = tokio::io::duplex(1024);
            let mut stream = Counted::new(ours);
            let (read, _) = stream.counters();
            let mut frame = vec![0; MEBIBYTE];
            let mut moves = 0;
            let begun = tokio::time::Instant::now();

            let heard = tokio::select! {
                heard = read.wait(limit, stream.read_exact(&mut frame), || moves += 1) => heard,
                () = slow(theirs, sent) => unreachable!("it is pending"),
            };

            assert_eq!(heard.is_some(), is_heard);
            assert!(moves > 3, "{moves}");
            let took = begun.elapsed();
            assert!(took >= Duration::from_secs(64) && took <= Duration::from_secs(140), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_is_waited_for_and_one_that_does_not_read_is_not() {
        for reads in [true, false] {
            let (ours, mut theirs) = tokio::io::duplex(4096);
            let mut stream = Counted::new(ours);
            let (_, written) = stream.counters();
            let reading = async {
                let mut piece = vec![0; 4096];
                if !reads {
                    std::future::pending::<()>().await;
                }
                loop {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    theirs.read_exact(&mut piece).await.unwrap();
                }
            };

            let sent = tokio::select! {
                sent = written.wait(Duration::from_secs(15), stream.write_all(&[0; 64 * 1024]), || {}) => sent,
                () = reading => unreachable!("it reads for ever"),
            };

            assert_eq!(sent.is_some(), reads);
        }
    }
}
