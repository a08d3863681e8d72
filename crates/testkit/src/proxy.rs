//! A TCP proxy that a test can degrade: slow, late, silent, half-open, reset, doubled.
//!
//! Promised: what is carried keeps its order and loses nothing, as TCP promises, unless a fault says otherwise. A
//! change applies to open connections, too. Absent: loss and reordering of packets, which TCP hides; see
//! [`crate::NetworkNamespace`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Pieces in transit in one direction; beyond that, the sender waits.
const PIECES_MAX: usize = 256;
const PIECE_BYTES: usize = 64 * 1024;
const FAST: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToAgent,
}

/// The current faults of the link.
#[derive(Clone, Copy, Debug)]
struct Faults {
    bytes_per_second: u64,
    delay: Duration,
    jitter: Duration,
    /// Nothing gets through, and nobody is notified.
    holds_to_server: bool,
    holds_to_agent: bool,
    /// Connections up to this number carry nothing any more, for good.
    half_open_up_to: u64,
    /// Connections up to this number are reset.
    reset_up_to: u64,
    doubled: bool,
}

impl Faults {
    fn holds(&self, number: u64, direction: Direction) -> bool {
        let is_held = match direction {
            Direction::ToServer => self.holds_to_server,
            Direction::ToAgent => self.holds_to_agent,
        };
        is_held || number <= self.half_open_up_to
    }
}

/// Forwards what is sent to its port, both ways, until it is dropped. Initially nearly as fast as the loopback.
#[derive(Debug)]
pub struct FaultProxy {
    pub port: u16,
    faults: watch::Sender<Faults>,
    opened: Arc<AtomicU64>,
    _carrying: JoinSet<()>,
}

impl FaultProxy {
    pub async fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (faults, seen) = watch::channel(Faults {
            bytes_per_second: FAST,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            holds_to_server: false,
            holds_to_agent: false,
            half_open_up_to: 0,
            reset_up_to: 0,
            doubled: false,
        });
        let opened = Arc::new(AtomicU64::new(0));
        let mut carrying = JoinSet::new();
        carrying.spawn(accept(listener, to, opened.clone(), seen));
        Ok(Self { port, faults, opened, _carrying: carrying })
    }

    /// For each connection, each way, from now on.
    pub fn set_bytes_per_second(&self, bytes: u64) {
        self.faults.send_modify(|faults| faults.bytes_per_second = bytes.max(1));
    }

    /// Delays everything by `delay`, give or take `jitter`, each way.
    pub fn set_delay(&self, delay: Duration, jitter: Duration) {
        self.faults.send_modify(|faults| (faults.delay, faults.jitter) = (delay, jitter));
    }

    /// Nothing gets through in this direction until it is released; neither side is notified.
    pub fn hold(&self, direction: Direction, is_held: bool) {
        self.faults.send_modify(|faults| match direction {
            Direction::ToServer => faults.holds_to_server = is_held,
            Direction::ToAgent => faults.holds_to_agent = is_held,
        });
    }

    /// Existing connections carry nothing any more and are never closed by us; new ones work.
    pub fn make_half_open(&self) {
        let opened = self.connections();
        self.faults.send_modify(|faults| faults.half_open_up_to = opened);
    }

    /// Both ends of all connections get a RST.
    pub fn reset_all(&self) {
        let opened = self.connections();
        self.faults.send_modify(|faults| faults.reset_up_to = opened);
    }

    /// For each new connection, the server gets a second one with the same bytes.
    pub fn set_doubled(&self, is_doubled: bool) {
        self.faults.send_modify(|faults| faults.doubled = is_doubled);
    }

    /// How many have been opened through it.
    pub fn connections(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, to: u16, opened: Arc<AtomicU64>, faults: watch::Receiver<Faults>) {
    let mut carried = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let number = opened.fetch_add(1, Ordering::Relaxed) + 1;
        carried.spawn(carry_until_reset(near, to, number, faults.clone()));
        while carried.try_join_next().is_some() {}
    }
}

/// One connection, under its number.
async fn carry_until_reset(mut near: TcpStream, to: u16, number: u64, mut faults: watch::Receiver<Faults>) {
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let is_doubled = faults.borrow().doubled;
    let mut double = if is_doubled { TcpStream::connect(("127.0.0.1", to)).await.ok() } else { None };
    let is_reset = {
        let ((near_reads, near_writes), (far_reads, far_writes)) = (near.split(), far.split());
        let (double_reads, double_writes) = double.as_mut().map(TcpStream::split).unzip();
        let up = Way { number, direction: Direction::ToServer, faults: faults.clone() };
        let down = Way { number, direction: Direction::ToAgent, faults: faults.clone() };
        tokio::select! {
            _ = async {
                tokio::join!(
                    up.carry(near_reads, far_writes, double_writes),
                    down.carry(far_reads, near_writes, None),
                    discard(double_reads),
                )
            } => false,
            _ = faults.wait_for(|faults| faults.reset_up_to >= number) => true,
        }
    };
    if is_reset {
        let _ = (near.set_zero_linger(), far.set_zero_linger());
    }
}

async fn discard(from: Option<ReadHalf<'_>>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(1..) = from.read(&mut buffer).await {}
}

/// One direction of one connection.
struct Way {
    number: u64,
    direction: Direction,
    faults: watch::Receiver<Faults>,
}

impl Way {
    async fn carry(self, from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut double: Option<WriteHalf<'_>>) {
        let (pieces, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_MAX);
        let reading = self.read_pieces(from, pieces);
        let writing = async move {
            while let Some((due, piece)) = arriving.recv().await {
                tokio::time::sleep_until(due).await;
                self.until_released().await;
                if to.write_all(&piece).await.is_err() {
                    return;
                }
                if let Some(double) = &mut double {
                    let _ = double.write_all(&piece).await;
                }
            }
            // Nor is the other side notified of the end.
            self.until_released().await;
            let _ = to.shutdown().await;
            if let Some(double) = &mut double {
                let _ = double.shutdown().await;
            }
        };
        tokio::join!(reading, writing);
    }

    async fn until_released(&self) {
        let mut faults = self.faults.clone();
        let is_gone = faults.wait_for(|faults| !faults.holds(self.number, self.direction)).await.is_err();
        if is_gone {
            std::future::pending::<()>().await;
        }
    }

    /// In pieces of a tenth of a second, each with its arrival time.
    fn read_pieces<'a>(
        &self,
        mut from: ReadHalf<'a>,
        pieces: mpsc::Sender<(Instant, Vec<u8>)>,
    ) -> impl Future<Output = ()> + use<'a> {
        let faults = self.faults.clone();
        let mut draw = self.number;
        async move {
            let mut buffer = vec![0; PIECE_BYTES];
            let mut due = Instant::now();
            loop {
                let rate = faults.borrow().bytes_per_second;
                let piece = usize::try_from(rate / 10).unwrap_or(usize::MAX).clamp(1, buffer.len());
                let Ok(count @ 1..) = from.read(&mut buffer[..piece]).await else { return };
                let Faults { delay, jitter, .. } = *faults.borrow();
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let late =
                    delay.saturating_sub(jitter) + 2 * jitter * u32::from((draw >> 48) as u16) / u32::from(u16::MAX);
                due = due.max(Instant::now() + late);
                if pieces.send((due, buffer[..count].to_vec())).await.is_err() {
                    return;
                }
                let nanos = 1_000_000_000 * u64::try_from(count).unwrap_or(u64::MAX) / rate;
                tokio::time::sleep(Duration::from_nanos(nanos)).await;
            }
        }
    }
}
