//! What a peer asks for, read from its ClientHello, which is then put back: an enrolment is forwarded unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// Our ClientHello has a few hundred bytes.
const HELLO_BYTES_MAX: usize = 16 * 1024;

/// A stream whose first bytes were already read.
#[derive(Debug)]
pub(crate) struct PrefixedStream<S> {
    first: Bytes,
    stream: S,
}

impl<S> PrefixedStream<S> {
    /// What was read, and the stream behind it.
    pub(crate) fn into_parts(self) -> (Bytes, S) {
        (self.first, self.stream)
    }
}

/// The names of protocols that the peer offers, and the stream as it was.
pub(crate) async fn peek_alpn<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(Vec<Vec<u8>>, PrefixedStream<S>)> {
    let (mut acceptor, mut seen) = (Acceptor::default(), Vec::new());
    loop {
        let begun = seen.len();
        if begun >= HELLO_BYTES_MAX {
            return Err(io::Error::other("the peer's first message is too long"));
        }
        if stream.read_buf(&mut seen).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut new = &seen[begun..];
        while !new.is_empty() {
            if acceptor.read_tls(&mut new)? == 0 {
                break;
            }
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let names = hello.alpn().map(|names| names.map(<[u8]>::to_vec).collect()).unwrap_or_default();
                return Ok((names, PrefixedStream { first: seen.into(), stream }));
            }
            Err((error, _)) => return Err(io::Error::other(error)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefixedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.first.has_remaining() {
            let count = self.first.len().min(buf.remaining());
            buf.put_slice(&self.first.split_to(count));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefixedStream<S> {
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
    use std::sync::Arc;

    use proctor_wire::ALPN_ENROL;
    use tokio::io::AsyncWriteExt;
    use tokio_rustls::TlsConnector;

    use super::*;

    #[tokio::test]
    async fn the_names_are_read_and_every_byte_is_still_there() {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let config = proctor_pki::enrol_config(&"ab".repeat(32)).unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(proctor_pki::server_name(), near);
        let peeking = async {
            let (names, rewound) = peek_alpn(far).await.unwrap();
            (names, rewound.into_parts().0)
        };

        let (_, (names, first)) = tokio::join!(connecting, peeking);

        assert_eq!(names, [ALPN_ENROL.to_vec()]);
        assert_eq!(first[0], 22, "a TLS handshake");
        let length = usize::from(u16::from_be_bytes([first[3], first[4]]));
        assert_eq!(first.len(), length + 5);
    }

    #[tokio::test]
    async fn what_is_no_tls_is_refused_and_so_is_a_peer_that_goes_away() {
        for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &b""[..]] {
            let (mut near, far) = tokio::io::duplex(1024);
            near.write_all(words).await.unwrap();
            drop(near);

            assert!(peek_alpn(far).await.is_err());
        }
    }
}
