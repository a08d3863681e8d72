//! Closes a connection on which we sent the last message.
//!
//! Promised: a peer that reads gets it. A kernel that closes a socket with unread bytes resets the connection; then
//! what is still in transit is lost, and the peer's next write fails before it has read why. So we shut down our
//! direction, and read until the peer has shut down its own, within bounds. Absent: the message itself.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A peer that has read our last message closes; we wait no longer than this.
pub const HANG_UP_LIMIT: Duration = Duration::from_secs(2);
/// How much a peer may have sent before it read our last message.
const UNREAD_BYTES_MAX: usize = 1024 * 1024;
const READ_BYTES: usize = 1024;

/// Closes a stream to which everything was written.
pub async fn hang_up<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let closing = async {
        stream.shutdown().await?;
        let (mut unread, mut bytes) = ([0; READ_BYTES], 0);
        while bytes < UNREAD_BYTES_MAX {
            match stream.read(&mut unread).await? {
                0 => break,
                count => bytes += count,
            }
        }
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(HANG_UP_LIMIT, closing).await;
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn the_last_word_reaches_a_peer_whose_own_words_were_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut ours, _) = listener.accept().await.unwrap();
        peer.write_all(&[7; 10 * READ_BYTES]).await.unwrap();
        ours.peek(&mut [0]).await.unwrap();

        let last_word = async {
            ours.write_all(b"busy").await.unwrap();
            hang_up(ours).await;
        };
        let read = async {
            let mut said = Vec::new();
            peer.read_to_end(&mut said).await.map(|_| said)
        };
        let (said, ()) = tokio::join!(read, last_word);

        assert_eq!(said.expect("no reset"), b"busy");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_never_closes_is_not_waited_for() {
        let ((ours, _peer), begun) = (tokio::io::duplex(64), Instant::now());

        hang_up(ours).await;

        assert_eq!(begun.elapsed(), HANG_UP_LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_never_stops_is_not_read_without_end() {
        let ((ours, mut peer), begun) = (tokio::io::duplex(READ_BYTES), Instant::now());
        let endless = async {
            let mut sent = 0;
            while peer.write_all(&[7; READ_BYTES]).await.is_ok() {
                sent += READ_BYTES;
            }
            sent
        };

        let ((), sent) = tokio::join!(hang_up(ours), endless);

        assert!(sent <= UNREAD_BYTES_MAX + 2 * READ_BYTES && begun.elapsed() < HANG_UP_LIMIT, "{sent}");
    }
}
