//! The byte stream of one agent: its own connection, or carried by a relay.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use proctor_wire::{Budgeted, Counted, Counters, MuxStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection that TLS protects up to the peer.
pub(super) type Direct = TlsStream<Counted<TcpStream>>;

#[derive(Debug)]
pub(super) enum Connection {
    Direct(Box<Direct>),
    Relayed(Counted<Budgeted<MuxStream>>),
}

impl Connection {
    pub(super) fn counters(&self) -> Counters {
        match self {
            Self::Direct(tls) => tls.get_ref().0.counters(),
            Self::Relayed(stream) => stream.counters(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(tls) => Pin::new(tls.as_mut()).poll_read(cx, buf),
            Self::Relayed(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Direct(tls) => Pin::new(tls.as_mut()).poll_write(cx, bytes),
            Self::Relayed(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
            Self::Relayed(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(tls) => Pin::new(tls.as_mut()).poll_shutdown(cx),
            Self::Relayed(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
