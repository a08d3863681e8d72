//! What the machine itself takes for the same bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::cores;

/// A table without an index in a file of its own, with the durability of the server's store.
pub(super) struct BareStore(Connection);

impl BareStore {
    pub(super) fn new(path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
        connection.execute_batch("CREATE TABLE bare (id INTEGER PRIMARY KEY, x TEXT)")?;
        Ok(Self(connection))
    }

    /// One transaction with these rows; the log is checkpointed afterwards, as the server does.
    pub(super) fn write<'r>(&self, rows: impl Iterator<Item = &'r str>) -> Result<Duration> {
        let begun = Instant::now();
        self.0.execute_batch("BEGIN IMMEDIATE")?;
        let mut statement = self.0.prepare_cached("INSERT INTO bare (x) VALUES (?1)")?;
        for row in rows {
            statement.execute([row])?;
        }
        self.0.execute_batch("COMMIT")?;
        let took = begun.elapsed();
        self.0.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
        Ok(took)
    }

    /// The first so many rows, each found by its number.
    pub(super) fn read(&self, rows: usize) -> Result<Duration> {
        let begun = Instant::now();
        let mut statement = self.0.prepare_cached("SELECT x FROM bare WHERE id = ?1")?;
        let mut bytes = 0;
        for id in 1..=i64::try_from(rows)? {
            bytes += statement.query_row([id], |row| row.get_ref(0)?.as_str().map(str::len).map_err(Into::into))?;
        }
        std::hint::black_box(bytes);
        Ok(begun.elapsed())
    }
}

/// `serde_json` writes the answer, which it has read before.
pub(super) fn json(answer: &[u8]) -> Result<Duration> {
    let value: Value = serde_json::from_slice(answer)?;
    let mut samples = Vec::new();
    for _ in 0..11 {
        let begun = Instant::now();
        std::hint::black_box(serde_json::to_vec(&value)?);
        samples.push(begun.elapsed());
    }
    Ok(crate::figures::quantile(&samples, 0.5))
}

/// Sends one answer to every request, from one thread on one core.
pub(super) struct BareServer {
    pub(super) address: SocketAddr,
    thread: JoinHandle<Result<Duration>>,
}

impl BareServer {
    pub(super) fn start(core: usize, answer: Bytes) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let thread = std::thread::spawn(move || {
            cores::pin_here(core)?;
            let (stream, _) = listener.accept()?;
            serve(stream, &answer)?;
            let used = clock_gettime(ClockId::ThreadCPUTime);
            Ok(Duration::new(used.tv_sec.cast_unsigned(), u32::try_from(used.tv_nsec)?))
        });
        Ok(Self { address, thread })
    }

    /// After its caller has gone: the CPU time that it used.
    pub(super) fn end(self) -> Result<Duration> {
        self.thread.join().ok().context("the bare server panicked")?
    }
}

/// What comes before an answer of so many bytes.
pub(super) fn head(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")
}

/// Requests have no body here and come one at a time.
fn serve(mut stream: TcpStream, answer: &[u8]) -> Result<()> {
    stream.set_nodelay(true)?;
    let head = head(answer.len());
    let mut request = Vec::new();
    loop {
        while !request.ends_with(b"\r\n\r\n") {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            request.extend_from_slice(&piece[..read]);
        }
        request.clear();
        stream.write_all(head.as_bytes())?;
        stream.write_all(answer)?;
    }
}
