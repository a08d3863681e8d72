//! The agent's durable memory.
//!
//! Durable: processes with all that decides about them, operations that began with their outcome,
//! pools, the newest generation seen. Rebuilt by looking: what runs. Hot: one transaction for each
//! turn of the driver.
//!
//! Two strengths of writing: what must survive the agent's own end only reaches the kernel; what
//! the server will rely on (operations, outcomes, generations) is synced to the disk. After a loss
//! of power the boot id differs and every process is dead, so nothing else is needed.
//!
//! A ledger that cannot be read is put aside, not deleted, and a new one begins: the server
//! assigns the processes again and their pid files tell what runs.

use std::path::{Path, PathBuf};
use std::sync::mpsc as std_mpsc;

use proctor_model::{BootId, OperationId, OperationKind, Outcome, Pool, ProcessKey};
use proctor_supervise::Record;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;

const SCHEMA: u32 = 1;
/// Operations that the server has acknowledged are remembered this long, against late repetitions.
const REMEMBERED_SECS: i64 = 7 * 24 * 3600;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("cannot open the ledger {path}")]
    Open { path: PathBuf, source: rusqlite::Error },
    #[error("the ledger {path} was written by a newer agent (schema {found}, this agent knows {SCHEMA})")]
    Newer { path: PathBuf, found: u32 },
    #[error("cannot put the damaged ledger {path} aside")]
    PutAside { path: PathBuf, source: std::io::Error },
    #[error("cannot write the ledger: {0}")]
    Write(String),
}

/// What the ledger knew when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) boot: Option<BootId>,
    pub(crate) generation: u64,
    pub(crate) processes: Vec<(ProcessKey, Record)>,
    /// Begun and without an outcome.
    pub(crate) unfinished: Vec<(OperationId, ProcessKey, OperationKind)>,
    /// Not acknowledged by the server yet.
    pub(crate) outcomes: Vec<(OperationId, Outcome)>,
    pub(crate) pools: Vec<Pool>,
}

/// Everything one turn of the driver changes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) now: i64,
    pub(crate) boot: Option<BootId>,
    pub(crate) generation: Option<u64>,
    pub(crate) processes: Vec<(ProcessKey, Record)>,
    pub(crate) forgotten: Vec<ProcessKey>,
    pub(crate) begun: Vec<(OperationId, ProcessKey, OperationKind)>,
    pub(crate) outcomes: Vec<(OperationId, Outcome)>,
    pub(crate) acknowledged: Vec<OperationId>,
    pub(crate) pools: Vec<Pool>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
            && self.forgotten.is_empty()
            && self.begun.is_empty()
            && self.outcomes.is_empty()
            && self.acknowledged.is_empty()
            && self.pools.is_empty()
            && self.generation.is_none()
            && self.boot.is_none()
    }

    fn must_be_synced(&self) -> bool {
        !self.begun.is_empty() || !self.outcomes.is_empty() || self.generation.is_some()
    }
}

enum Job {
    Commit(Box<Batch>, oneshot::Sender<Result<(), LedgerError>>),
    Outcome(OperationId, oneshot::Sender<Option<Outcome>>),
}

/// A handle to the ledger's thread.
#[derive(Debug)]
pub(crate) struct Ledger {
    jobs: std_mpsc::SyncSender<Job>,
}

impl Ledger {
    /// Opens or makes the ledger and starts its thread, which ends with the handle.
    pub(crate) fn open(path: &Path) -> Result<(Self, Memory), LedgerError> {
        let (connection, memory) = match open_and_read(path) {
            Ok(opened) => opened,
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(path = %path.display(), %error, cause, "the ledger cannot be used: it is put aside");
                put_aside(path)?;
                open_and_read(path)?
            }
        };
        let (jobs, queue) = std_mpsc::sync_channel(64);
        std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || serve(connection, &queue))
            .map_err(|error| LedgerError::Write(error.to_string()))?;
        Ok((Self { jobs }, memory))
    }

    /// Returns when the batch is written, as strongly as what it holds needs.
    pub(crate) async fn commit(&self, batch: Batch) -> Result<(), LedgerError> {
        let (answer, answered) = oneshot::channel();
        let gone = || LedgerError::Write("its thread has ended".into());
        self.jobs.send(Job::Commit(Box::new(batch), answer)).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    /// The outcome of an operation that ended earlier.
    pub(crate) async fn outcome(&self, operation: OperationId) -> Option<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job::Outcome(operation, answer)).ok()?;
        answered.await.ok().flatten()
    }
}

fn serve(mut connection: Connection, queue: &std_mpsc::Receiver<Job>) {
    while let Ok(job) = queue.recv() {
        match job {
            Job::Commit(batch, answer) => {
                let result = commit(&mut connection, &batch).map_err(|error| LedgerError::Write(error.to_string()));
                let _ = answer.send(result);
            }
            Job::Outcome(operation, answer) => {
                let _ = answer.send(outcome_of(&connection, operation));
            }
        }
    }
}

fn put_aside(path: &Path) -> Result<(), LedgerError> {
    let failed = |source| LedgerError::PutAside { path: path.to_owned(), source };
    for suffix in ["", "-wal", "-shm"] {
        let file = PathBuf::from(format!("{}{suffix}", path.display()));
        match std::fs::rename(&file, format!("{}.damaged{suffix}", path.display())) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

fn open_and_read(path: &Path) -> Result<(Connection, Memory), LedgerError> {
    let failed = |source| LedgerError::Open { path: path.to_owned(), source };
    let connection = Connection::open(path).map_err(failed)?;
    let found: u32 = prepare(&connection).map_err(failed)?;
    if found > SCHEMA {
        return Err(LedgerError::Newer { path: path.to_owned(), found });
    }
    let memory = read(&connection).map_err(failed)?;
    Ok((connection, memory))
}

/// Makes the tables where they are missing and returns the schema's number.
fn prepare(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A small cache: the agent reads its ledger once, at start.
    connection.pragma_update(None, "cache_size", -256)?;
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == 0 {
        connection.execute_batch(
            "BEGIN;
             CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS process (
                 namespace TEXT NOT NULL, name TEXT NOT NULL, record TEXT NOT NULL,
                 PRIMARY KEY (namespace, name)) STRICT, WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS operation (
                 id TEXT PRIMARY KEY, process TEXT NOT NULL, kind TEXT NOT NULL, outcome TEXT,
                 acknowledged INTEGER NOT NULL DEFAULT 0, changed_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
             CREATE INDEX IF NOT EXISTS operation_open ON operation (acknowledged, changed_at);
             CREATE TABLE IF NOT EXISTS pool (
                 namespace TEXT NOT NULL, id TEXT NOT NULL, pool TEXT NOT NULL,
                 PRIMARY KEY (namespace, id)) STRICT, WITHOUT ROWID;
             PRAGMA user_version = 1;
             COMMIT;",
        )?;
    }
    Ok(found)
}

fn read(connection: &Connection) -> rusqlite::Result<Memory> {
    let fact = |name: &str| -> rusqlite::Result<Option<String>> {
        connection.query_row("SELECT value FROM fact WHERE name = ?1", [name], |row| row.get(0)).optional()
    };
    let mut memory = Memory {
        boot: fact("boot")?.map(BootId),
        generation: fact("generation")?.and_then(|text| text.parse().ok()).unwrap_or(0),
        ..Memory::default()
    };
    let mut processes = connection.prepare("SELECT namespace, name, record FROM process")?;
    let mut rows = processes.query([])?;
    while let Some(row) = rows.next()? {
        let key = ProcessKey::new(parse_text(row, 0)?, parse_text(row, 1)?);
        memory.processes.push((key, parse_json(row, 2)?));
    }
    let mut operations = connection
        .prepare("SELECT id, process, kind, outcome FROM operation WHERE acknowledged = 0 ORDER BY changed_at, id")?;
    let mut rows = operations.query([])?;
    while let Some(row) = rows.next()? {
        let id: OperationId = parse_text(row, 0)?;
        if row.get_ref(3)? == rusqlite::types::ValueRef::Null {
            memory.unfinished.push((id, parse_json(row, 1)?, parse_text(row, 2)?));
        } else {
            memory.outcomes.push((id, parse_json(row, 3)?));
        }
    }
    let mut pools = connection.prepare("SELECT pool FROM pool")?;
    let mut rows = pools.query([])?;
    while let Some(row) = rows.next()? {
        memory.pools.push(parse_json(row, 0)?);
    }
    Ok(memory)
}

fn parse_text<T>(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let text: String = row.get(column)?;
    text.parse().map_err(|error: T::Err| damaged(column, Box::new(error)))
}

fn parse_json<T: serde::de::DeserializeOwned>(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| damaged(column, Box::new(error)))
}

fn damaged(column: usize, error: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error)
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our records have only string keys and finite numbers")
}

fn outcome_of(connection: &Connection, operation: OperationId) -> Option<Outcome> {
    let query = "SELECT outcome FROM operation WHERE id = ?1 AND outcome IS NOT NULL";
    let text: String = connection
        .prepare_cached(query)
        .and_then(|mut statement| statement.query_row([operation.to_string()], |row| row.get(0)))
        .ok()?;
    serde_json::from_str(&text).ok()
}

fn commit(connection: &mut Connection, batch: &Batch) -> rusqlite::Result<()> {
    let strength = if batch.must_be_synced() { "FULL" } else { "NORMAL" };
    connection.pragma_update(None, "synchronous", strength)?;
    let transaction = connection.transaction()?;
    write_facts(&transaction, batch)?;
    write_processes(&transaction, batch)?;
    write_operations(&transaction, batch)?;
    transaction.commit()
}

fn write_facts(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    let facts = [
        ("boot", batch.boot.as_ref().map(|boot| boot.0.clone())),
        ("generation", batch.generation.map(|generation| generation.to_string())),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            connection
                .prepare_cached("INSERT OR REPLACE INTO fact (name, value) VALUES (?1, ?2)")?
                .execute(params![name, value])?;
        }
    }
    for pool in &batch.pools {
        connection
            .prepare_cached("INSERT OR REPLACE INTO pool (namespace, id, pool) VALUES (?1, ?2, ?3)")?
            .execute(params![pool.namespace.as_str(), pool.id.as_str(), json(pool)])?;
    }
    Ok(())
}

fn write_processes(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for (key, record) in &batch.processes {
        connection
            .prepare_cached("INSERT OR REPLACE INTO process (namespace, name, record) VALUES (?1, ?2, ?3)")?
            .execute(params![key.namespace.as_str(), key.name.as_str(), json(record)])?;
    }
    for key in &batch.forgotten {
        connection
            .prepare_cached("DELETE FROM process WHERE namespace = ?1 AND name = ?2")?
            .execute(params![key.namespace.as_str(), key.name.as_str()])?;
    }
    Ok(())
}

fn write_operations(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for (operation, key, kind) in &batch.begun {
        connection
            .prepare_cached("INSERT OR IGNORE INTO operation (id, process, kind, changed_at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![operation.to_string(), json(key), kind.as_str(), batch.now])?;
    }
    for (operation, outcome) in &batch.outcomes {
        connection
            .prepare_cached(
                "INSERT INTO operation (id, process, kind, outcome, changed_at) VALUES (?1, '', '', ?2, ?3)
                 ON CONFLICT (id) DO UPDATE SET outcome = ?2, changed_at = ?3 WHERE outcome IS NULL",
            )?
            .execute(params![operation.to_string(), json(outcome), batch.now])?;
    }
    for operation in &batch.acknowledged {
        connection
            .prepare_cached("UPDATE operation SET acknowledged = 1, changed_at = ?2 WHERE id = ?1")?
            .execute(params![operation.to_string(), batch.now])?;
    }
    if !batch.acknowledged.is_empty() {
        connection
            .prepare_cached("DELETE FROM operation WHERE acknowledged = 1 AND changed_at < ?1")?
            .execute([batch.now - REMEMBERED_SECS])?;
    }
    Ok(())
}
