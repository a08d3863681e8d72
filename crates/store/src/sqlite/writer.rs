//! The writer thread.
//!
//! Promised: calls run one after another; a call that fails leaves nothing behind; a call is answered only after
//! its commit; calls that wait together share one commit and so one sync. Absent: retries. A panic inside a job
//! ends the thread, and every later call answers [`StoreError::Closed`]: what the job did half is not known to be
//! sound.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::failure::{Failure, Tried};
use super::meter::Meter;
use crate::{Result, StoreError};

/// Beyond this, callers wait: a slow disk must not fill the heap with a queue.
const JOBS_QUEUED_MAX: usize = 1024;
/// One commit holds at most this many jobs, so that the first of them does not wait long.
const JOBS_PER_COMMIT_MAX: usize = 256;

/// After this many changed rows the log is checkpointed, so that readers search little of it.
const CHANGES_PER_CHECKPOINT: u64 = 5000;

#[derive(Debug)]
pub(super) struct Writer {
    /// None only while dropping.
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    /// How many more writes succeed; None: no limit.
    left: Option<Arc<AtomicU64>>,
    /// Used instead of the thread if time is simulated.
    simulated: Option<Simulated>,
    pub(super) meter: Meter,
}

/// Writes on the caller's thread, each in its own commit, so that the same calls have the same effects in the same
/// order.
#[derive(Debug)]
struct Simulated {
    connection: Mutex<Connection>,
    /// Of the disk, after the commit: a caller that is killed meanwhile has written without knowing it.
    latency: Duration,
}

impl Writer {
    /// The lock is released when the thread has ended, after its last commit.
    pub(super) fn start(connection: Connection, lock: Option<File>) -> Result<Self> {
        let (jobs, queue) = mpsc::channel(JOBS_QUEUED_MAX);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                write_all(&connection, queue);
                checkpoint(&connection, "TRUNCATE");
                drop(connection);
                drop(lock);
            })
            .map_err(|source| StoreError::Failed { what: "start its writer", source: source.into() })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), left: None, simulated: None, meter: Meter::default() })
    }

    /// Without a thread: a write waits for `latency` by the caller's runtime clock.
    pub(super) fn simulated(connection: Connection, latency: Duration) -> Self {
        let simulated = Some(Simulated { connection: Mutex::new(connection), latency });
        Self { jobs: None, thread: None, left: None, simulated, meter: Meter::default() }
    }

    /// Every write after the next `left` answers [`StoreError::Closed`], as if the process had died there.
    pub(super) fn die_after(&mut self, left: Arc<AtomicU64>) {
        self.left = Some(left);
    }

    /// Runs `work` on the writer thread and returns after its commit. If the caller is dropped, the work is done
    /// nevertheless.
    pub(super) async fn run<T, F>(&self, what: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Tried<T> + Send + 'static,
    {
        let begun = Instant::now();
        self.meter.count(what, begun, self.queue(what, work).await)
    }

    /// Jobs waiting for the thread.
    pub(super) fn queued(&self) -> u64 {
        self.jobs.as_ref().map_or(0, |jobs| (jobs.max_capacity() - jobs.capacity()) as u64)
    }

    async fn queue<T, F>(&self, what: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Tried<T> + Send + 'static,
    {
        if let Some(left) = &self.left {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .map_err(|_| StoreError::Closed)?;
        }
        let (reply, answer) = oneshot::channel();
        let call = Call { what, work: Some(work), result: None, reply };
        if let Some(Simulated { connection, latency }) = &self.simulated {
            commit_alone(&connection.lock().unwrap_or_else(PoisonError::into_inner), Box::new(call));
            tokio::time::sleep(*latency).await;
            return answer.await.map_err(|_| StoreError::Closed)?;
        }
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        jobs.send(Box::new(call)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Writer {
    /// Returns when the thread has ended.
    pub(super) async fn closed(&self) {
        match &self.jobs {
            Some(jobs) => jobs.closed().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Writer {
    /// Waits for the thread to end: whoever opens the file next must find it unlocked.
    fn drop(&mut self) {
        self.jobs = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("store writer panicked");
        }
    }
}

/// A call in the queue, with the types of its work and answer hidden.
trait Job: Send {
    fn run(&mut self, connection: &Connection) -> Tried<()>;
    fn answer(self: Box<Self>, committed: &Tried<()>);
}

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

struct Call<T, F> {
    what: &'static str,
    work: Option<F>,
    result: Option<Tried<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Tried<T> + Send,
{
    fn run(&mut self, connection: &Connection) -> Tried<()> {
        let work = self.work.take().expect("a job is run once");
        let result = work(connection);
        let ended = result.as_ref().map(|_| ()).map_err(Failure::clone);
        self.result = Some(result);
        ended
    }

    fn answer(self: Box<Self>, committed: &Tried<()>) {
        let result = match (self.result, committed) {
            (Some(Ok(value)), Ok(())) => Ok(value),
            (Some(Err(own)), _) => Err(own.of(self.what)),
            (_, Err(shared)) => Err(shared.clone().of(self.what)),
            (None, Ok(())) => Err(StoreError::Closed),
        };
        // The caller may be gone; the work is done all the same.
        let _ = self.reply.send(result);
    }
}

/// Ends when every sender is gone and the queue is empty.
fn write_all(connection: &Connection, mut queue: mpsc::Receiver<Box<dyn Job>>) {
    let mut checkpointed = connection.total_changes();
    while let Some(first) = queue.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < JOBS_PER_COMMIT_MAX {
            let Ok(next) = queue.try_recv() else { break };
            batch.push(next);
        }
        let committed = commit(connection, &mut batch);
        for job in batch {
            job.answer(&committed);
        }
        let changes = connection.total_changes();
        if changes - checkpointed >= CHANGES_PER_CHECKPOINT {
            checkpoint(connection, "PASSIVE");
            checkpointed = changes;
        }
    }
}

/// Commits are already durable in the log, so nobody waits for this.
fn checkpoint(connection: &Connection, mode: &str) {
    if let Err(error) = connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())) {
        tracing::warn!(%error, "WAL checkpoint failed; the WAL keeps growing");
    }
}

fn commit_alone(connection: &Connection, job: Box<dyn Job>) {
    let mut batch = vec![job];
    let committed = commit(connection, &mut batch);
    batch.into_iter().for_each(|job| job.answer(&committed));
}

/// One transaction, one wait for the disk.
fn commit(connection: &Connection, batch: &mut [Box<dyn Job>]) -> Tried<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let committed = run_jobs(connection, batch).and_then(|()| Ok(connection.execute_batch("COMMIT")?));
    if committed.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    committed
}

/// A single job needs no savepoint: its failure rolls back the transaction. That saves a large one, such as a task
/// for every host, a copy of each page that it changes.
fn run_jobs(connection: &Connection, batch: &mut [Box<dyn Job>]) -> Tried<()> {
    if let [job] = batch {
        return job.run(connection);
    }
    for job in batch {
        connection.prepare_cached("SAVEPOINT job")?.execute([])?;
        let ended = job.run(connection);
        // On a full disk SQLite rolls back the whole transaction; then the jobs before this one are lost as well,
        // and those after it must not run outside of one.
        if connection.is_autocommit() {
            return Err(ended.err().unwrap_or_else(|| Failure::Damaged("transaction: it ended inside a job".into())));
        }
        if ended.is_err() {
            connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
        }
        connection.prepare_cached("RELEASE job")?.execute([])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (x INTEGER UNIQUE) STRICT").unwrap();
        Writer::start(connection, None).unwrap()
    }

    fn insert(connection: &Connection, x: i64) -> Tried<()> {
        connection.execute("INSERT INTO t VALUES (?1)", [x])?;
        Ok(())
    }

    #[tokio::test]
    async fn a_failing_job_is_undone_alone_though_it_shares_a_commit() {
        let writer = writer();
        // Holds the thread until all three jobs wait, so that they share one batch.
        let (open, gate) = std::sync::mpsc::channel();
        let held = writer.run("wait", move |_| {
            gate.recv().expect("the test opens the gate");
            Ok(())
        });
        let good = writer.run("insert 1", |c| insert(c, 1));
        let bad = writer.run("insert 2 and 2", |c| insert(c, 2).and_then(|()| insert(c, 2)));
        let last = writer.run("insert 3", |c| insert(c, 3));
        let opener = async { open.send(()).unwrap() };

        let (_, good, bad, last, ()) = tokio::join!(held, good, bad, last, opener);

        let sum: i64 =
            writer.run("add up", |c| Ok(c.query_row("SELECT sum(x) FROM t", [], |row| row.get(0))?)).await.unwrap();
        assert!(good.is_ok() && last.is_ok());
        assert_eq!(bad.unwrap_err().to_string(), "the store cannot insert 2 and 2");
        assert_eq!(sum, 4);
    }

    #[tokio::test]
    async fn a_failing_job_is_undone_when_it_is_alone() {
        let writer = writer();

        let bad = writer.run("insert 2 and 2", |c| insert(c, 2).and_then(|()| insert(c, 2))).await;
        let good = writer.run("insert 3", |c| insert(c, 3)).await;

        let sum: i64 =
            writer.run("add up", |c| Ok(c.query_row("SELECT sum(x) FROM t", [], |row| row.get(0))?)).await.unwrap();
        assert_eq!(bad.unwrap_err().to_string(), "the store cannot insert 2 and 2");
        assert!(good.is_ok());
        assert_eq!(sum, 3);
    }

    #[tokio::test]
    async fn after_a_panic_every_call_says_that_the_store_is_closed() {
        let writer = writer();

        let first = writer.run("panic", |_| -> Tried<()> { panic!("a test wants it") }).await;
        let second = writer.run("insert", |c| insert(c, 1)).await;

        assert!(matches!(first, Err(StoreError::Closed)));
        assert!(matches!(second, Err(StoreError::Closed)));
        writer.closed().await;
    }
}
