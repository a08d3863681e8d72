//! One connection to a NATS server, with one subscription.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::protocol::{Said, greeting, parse};

const OPEN_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Receiver {
    socket: OwnedReadHalf,
    buffer: BytesMut,
    /// Room for one read.
    read_bytes: usize,
}

/// Returns once the server knows the subscription. One read takes at least `read_bytes` where they are there.
pub(super) async fn open(server: SocketAddr, subject: &str, read_bytes: usize) -> Result<(Receiver, OwnedWriteHalf)> {
    let opened = async {
        let socket = TcpStream::connect(server).await?;
        socket.set_nodelay(true)?;
        let (read, mut write) = socket.into_split();
        let mut receiver = Receiver { socket: read, buffer: BytesMut::new(), read_bytes };
        write.write_all(&greeting(subject)).await?;
        while !receiver.next(|said| matches!(said, Said::Pong)).await? {}
        Ok((receiver, write))
    };
    tokio::time::timeout(OPEN_WITHIN, opened).await?
}

impl Receiver {
    /// What `take` makes of the next thing that the server says.
    pub(super) async fn next<T>(&mut self, take: impl FnOnce(Said<'_>) -> T) -> Result<T> {
        loop {
            if let Some((said, taken)) = parse(&self.buffer)? {
                let result = take(said);
                self.buffer.advance(taken);
                return Ok(result);
            }
            self.buffer.reserve(self.read_bytes);
            let read = self.socket.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the NATS server closed a connection");
        }
    }
}
