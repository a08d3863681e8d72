//! A slow link between two programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Carries what is sent to its port, at a pace, both ways. Goes on until it is dropped.
#[derive(Debug)]
pub struct SlowProxy {
    pub port: u16,
    pace: Arc<Pace>,
    _carrying: JoinSet<()>,
}

#[derive(Debug)]
struct Pace {
    bytes_per_second: AtomicU64,
    connections: AtomicU64,
}

impl SlowProxy {
    /// At first as fast as the loopback is, nearly.
    pub async fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let pace = Arc::new(Pace { bytes_per_second: AtomicU64::new(100_000_000), connections: AtomicU64::new(0) });
        let mut carrying = JoinSet::new();
        carrying.spawn(accept(listener, to, pace.clone()));
        Ok(Self { port, pace, _carrying: carrying })
    }

    /// Of each connection, each way, from now on.
    pub fn set_bytes_per_second(&self, bytes: u64) {
        self.pace.bytes_per_second.store(bytes.max(1), Ordering::Relaxed);
    }

    /// How many have been opened through it.
    pub fn connections(&self) -> u64 {
        self.pace.connections.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, to: u16, pace: Arc<Pace>) {
    let mut ways = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        pace.connections.fetch_add(1, Ordering::Relaxed);
        let Ok(far) = TcpStream::connect(("127.0.0.1", to)).await else { continue };
        let ((near_reads, near_writes), (far_reads, far_writes)) = (near.into_split(), far.into_split());
        ways.spawn(carry(near_reads, far_writes, pace.clone()));
        ways.spawn(carry(far_reads, near_writes, pace.clone()));
    }
}

/// In pieces of a tenth of a second.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, pace: Arc<Pace>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let rate = pace.bytes_per_second.load(Ordering::Relaxed);
        let piece = usize::try_from(rate / 10).unwrap_or(usize::MAX).clamp(1, buffer.len());
        let Ok(count @ 1..) = from.read(&mut buffer[..piece]).await else { return };
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        let nanos = 1_000_000_000 * u64::try_from(count).unwrap_or(u64::MAX) / rate;
        tokio::time::sleep(Duration::from_nanos(nanos)).await;
    }
}
