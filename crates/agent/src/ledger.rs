//! The agent's durable memory.
//!
//! Durable: processes with everything that decides about them, begun operations with their outcomes, pools, the
//! newest generation seen, the generation of each process and pool (`held`), events that the server has not seen
//! (bounded), leftovers of forgotten processes; and, if the ledger cannot be written, what is owed to it (`reserve`).
//! Rebuilt by probing: what is running. Hot: one transaction per turn of the driver, on the driver's own thread,
//! which waits for it in any case.
//!
//! There are two levels of durability: what must survive the agent only reaches the kernel; what the server relies on
//! (operations, outcomes, generations) is synced to disk. After a power loss the boot id differs and every process is
//! dead, so nothing else is needed. The last events before it may be lost; `spool` makes sure that their numbers are
//! not reused.
//!
//! What somebody stopped on this host is also kept next to it (`released`): the server may not know yet.
//!
//! A row that cannot be parsed is skipped, and the server assigns everything again. A ledger that cannot be read at
//! all is set aside, not deleted, and a new one begins; pid files show what is running.

mod events;
mod held;
mod released;
mod reserve;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use proctor_model::{BootId, Event, OperationId, OperationKind, Outcome, Pool, ProcessKey};
use proctor_runtime::private;
use proctor_supervise::{Elder, Record};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, params};

use crate::spool::SPOOLED_MAX;
pub(crate) use held::{Held, HeldName};
pub(crate) use released::Released;

/// Step `n` leads from schema `n` to `n + 1`; steps are only ever added.
const STEPS: [&str; 4] = [
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
     CREATE TABLE process (
         namespace TEXT NOT NULL, name TEXT NOT NULL, record TEXT NOT NULL,
         PRIMARY KEY (namespace, name)) STRICT, WITHOUT ROWID;
     CREATE TABLE operation (
         id TEXT PRIMARY KEY, process TEXT NOT NULL, kind TEXT NOT NULL, outcome TEXT,
         acknowledged INTEGER NOT NULL DEFAULT 0, changed_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
     CREATE INDEX operation_open ON operation (acknowledged, changed_at);
     CREATE TABLE pool (
         namespace TEXT NOT NULL, id TEXT NOT NULL, pool TEXT NOT NULL,
         PRIMARY KEY (namespace, id)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE event (sequence INTEGER PRIMARY KEY, event TEXT NOT NULL) STRICT;",
    "CREATE TABLE estate (
         namespace TEXT NOT NULL, name TEXT NOT NULL, elder TEXT NOT NULL,
         PRIMARY KEY (namespace, name)) STRICT, WITHOUT ROWID;",
    "CREATE TABLE held (
         kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL,
         PRIMARY KEY (kind, namespace, name)) STRICT, WITHOUT ROWID;",
];
pub(crate) const SCHEMA: u32 = STEPS.len() as u32;
/// To an agent that has seen this generation the server assigns everything that came later, and says what was
/// unregistered since. One that has seen 0 knows of nothing, and is not told what is no longer there.
const ALL_AGAIN: u64 = 1;
/// Agents from this schema on can go on with what this one writes: steps since only added tables.
pub(crate) const OLDEST_READER: u32 = 1;
/// The number of the newest reserve of which the ledger has everything.
const RESERVE_TAKEN: &str = "reserve_taken";
/// Operations that the server has acknowledged are remembered this long, against late repetitions.
const REMEMBERED_SECS: i64 = 7 * 24 * 3600;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("cannot open the ledger {path}")]
    Open { path: PathBuf, source: rusqlite::Error },
    #[error("the ledger {path} was written by a newer agent (schema {found}, this agent knows {SCHEMA})")]
    Newer { path: PathBuf, found: u32 },
    #[error("cannot open the ledger {path} as a private file")]
    Private { path: PathBuf, source: std::io::Error },
    #[error("cannot move the damaged ledger {path} aside")]
    PutAside { path: PathBuf, source: std::io::Error },
    #[error("cannot write the ledger: {0}")]
    Write(String),
}

/// What the ledger knew when it was opened.
#[derive(Debug, Default)]
pub(crate) struct LedgerState {
    pub(crate) boot: Option<BootId>,
    pub(crate) generation: u64,
    pub(crate) held: Held,
    pub(crate) processes: Vec<(ProcessKey, Record)>,
    /// Of forgotten processes.
    pub(crate) estates: BTreeMap<ProcessKey, Elder>,
    /// Begun and without an outcome.
    pub(crate) unfinished: Vec<(OperationId, ProcessKey, OperationKind)>,
    /// Not acknowledged by the server yet.
    pub(crate) outcomes: Vec<(OperationId, Outcome)>,
    pub(crate) pools: Vec<Pool>,
    /// Not seen by the server yet, oldest first.
    pub(crate) events: Vec<Event>,
    /// The number of the next event; 0 before the first.
    pub(crate) next_event: u64,
    /// Events that had to give way and of which no event has told yet.
    pub(crate) events_dropped: u64,
    /// What is known, but not by the ledger: to be written with the first batch.
    pub(crate) owed: LedgerBatch,
}

/// Everything one turn of the driver changes.
#[derive(Debug, Default)]
pub(crate) struct LedgerBatch {
    pub(crate) now: i64,
    pub(crate) boot: Option<BootId>,
    pub(crate) generation: Option<u64>,
    /// The generations of what was assigned; none where it is no longer registered.
    pub(crate) held: BTreeMap<HeldName, Option<u64>>,
    /// A registration waits in one of the records.
    pub(crate) is_registering: bool,
    pub(crate) processes: BTreeMap<ProcessKey, Record>,
    pub(crate) forgotten: BTreeSet<ProcessKey>,
    /// With which of the batches that were added each of these came, if it was not there from the first.
    pub(crate) changed: HashMap<ProcessKey, u64>,
    pub(crate) added: u64,
    /// What is left of forgotten processes; None: nothing any more.
    pub(crate) estates: BTreeMap<ProcessKey, Option<Elder>>,
    pub(crate) begun: Vec<(OperationId, ProcessKey, OperationKind)>,
    pub(crate) outcomes: Vec<(OperationId, Outcome)>,
    pub(crate) acknowledged: Vec<OperationId>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) events: Vec<Event>,
    /// The server has every event up to this one.
    pub(crate) events_seen: Option<u64>,
}

impl LedgerBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
            && self.forgotten.is_empty()
            && self.estates.is_empty()
            && self.begun.is_empty()
            && self.outcomes.is_empty()
            && self.acknowledged.is_empty()
            && self.pools.is_empty()
            && self.events.is_empty()
            && self.events_seen.is_none()
            && self.generation.is_none()
            && self.held.is_empty()
            && self.boot.is_none()
    }

    pub(crate) fn put(&mut self, key: ProcessKey, record: Record) {
        self.forgotten.remove(&key);
        self.processes.insert(key, record);
    }

    pub(crate) fn forget(&mut self, key: ProcessKey) {
        self.processes.remove(&key);
        self.forgotten.insert(key);
    }

    /// Later is more.
    fn last_change(&self, key: &ProcessKey) -> u64 {
        self.changed.get(key).copied().unwrap_or(0)
    }

    /// Adds a later batch to one that is still owed.
    pub(crate) fn append(&mut self, later: Self) {
        if !self.processes.is_empty() || !self.forgotten.is_empty() {
            self.added += 1;
            let changed = later.processes.keys().chain(&later.forgotten);
            self.changed.extend(changed.map(|key| (key.clone(), self.added)));
        }
        self.boot = later.boot.or_else(|| self.boot.take());
        self.generation = self.generation.max(later.generation);
        self.held.extend(later.held);
        later.processes.into_iter().for_each(|(key, record)| self.put(key, record));
        later.forgotten.into_iter().for_each(|key| self.forget(key));
        self.estates.extend(later.estates);
        self.begun.extend(later.begun);
        self.outcomes.extend(later.outcomes);
        self.acknowledged.extend(later.acknowledged);
        self.pools.extend(later.pools);
        self.events.extend(later.events);
        // The spool counts what gives way; a ledger that stays unwritable must not collect the heap.
        self.events.drain(..self.events.len().saturating_sub(SPOOLED_MAX));
        self.events_seen = self.events_seen.max(later.events_seen);
    }

    fn must_be_synced(&self) -> bool {
        !self.begun.is_empty() || !self.outcomes.is_empty() || self.generation.is_some()
    }
}

/// A batch that could not be written: it is given back, because it is still owed.
#[derive(Debug)]
pub(crate) struct CommitError {
    pub(crate) error: LedgerError,
    /// Whether the reserve has it, as far as it must not be forgotten.
    pub(crate) is_reserved: bool,
    pub(crate) batch: Box<LedgerBatch>,
}

impl LedgerError {
    /// Whether the file itself is at fault: damaged, or of a newer agent.
    fn means_unusable(&self) -> bool {
        match self {
            Self::Newer { .. } => true,
            Self::Open { source, .. } => is_of_the_file(source),
            Self::Private { .. } | Self::PutAside { .. } | Self::Write(_) => false,
        }
    }
}

/// Whether another disk, or more room, would not help: the content is not what it should be.
fn is_of_the_file(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(
            rusqlite::ErrorCode::DatabaseCorrupt
            | rusqlite::ErrorCode::NotADatabase
            | rusqlite::ErrorCode::TypeMismatch
            | rusqlite::ErrorCode::ConstraintViolation
            // What we ask for has no error of its own: a table or column that is not there.
            | rusqlite::ErrorCode::Unknown,
        )
        | None => true,
        Some(_) => false,
    }
}

/// The open ledger. Its owner waits for every write, so it must not share its thread with others.
#[derive(Debug)]
pub(crate) struct Ledger {
    connection: Connection,
    spooled: events::Spooled,
    reserve: reserve::Reserve,
    released: Released,
    /// Whether what is written now is synced to the disk.
    is_synced: bool,
}

impl Ledger {
    /// Opens or makes the ledger; one that cannot be used is put aside.
    #[cfg(test)]
    pub(crate) fn open(path: &Path) -> Result<(Self, LedgerState), LedgerError> {
        Self::open_as(path, false)
    }

    /// A program on trial refuses a ledger that it cannot use: the old version may go on with it.
    pub(crate) fn open_as(path: &Path, is_on_trial: bool) -> Result<(Self, LedgerState), LedgerError> {
        let (connection, mut memory) = match open_and_read(path) {
            Ok(opened) => opened,
            // A full disk, or one that cannot be read just now, is no reason to forget anything.
            Err(error) if is_on_trial || !error.means_unusable() => return Err(error),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(path = %path.display(), %error, cause, "ledger unusable, moved aside");
                put_aside(path)?;
                open_and_read(path)?
            }
        };
        let taken = number_fact(&connection, RESERVE_TAKEN)
            .map_err(|source| LedgerError::Open { path: path.to_owned(), source })?;
        let mut reserve = reserve::Reserve::open(path);
        reserve.apply(taken, &mut memory);
        let (spooled, released) = (events::Spooled::default(), Released::open(path));
        Ok((Self { connection, spooled, reserve, released, is_synced: true }, memory))
    }

    /// Returns when the batch is written, as strongly as what it holds needs. One that cannot be is in the
    /// reserve, as far as it must not be forgotten; it must hold everything that is owed.
    pub(crate) fn commit(&mut self, batch: Box<LedgerBatch>) -> Result<(), CommitError> {
        let written = self
            .set_synced(batch.must_be_synced())
            .and_then(|()| commit(&mut self.connection, &batch, &mut self.spooled, self.reserve.number()));
        match written {
            Ok(()) => {
                self.reserve.clear();
                self.released.flush();
                Ok(())
            }
            Err(error) => {
                self.spooled.forget();
                let is_reserved = self.reserve.write(&batch);
                Err(CommitError { error: LedgerError::Write(error.to_string()), is_reserved, batch })
            }
        }
    }

    /// Of its file, without the log.
    pub(crate) fn bytes(&self) -> u64 {
        let path = self.connection.path();
        path.and_then(|path| std::fs::metadata(path).ok()).map_or(0, |file| file.len())
    }

    fn set_synced(&mut self, synced: bool) -> rusqlite::Result<()> {
        if synced != self.is_synced {
            self.connection.pragma_update(None, "synchronous", if synced { "FULL" } else { "NORMAL" })?;
            self.is_synced = synced;
        }
        Ok(())
    }

    /// Holds no more memory than it needs.
    pub(crate) fn shrink(&self) {
        let _ = self.connection.execute_batch("PRAGMA shrink_memory");
    }

    /// What somebody on this host has stopped or released; outlives the loss of the ledger.
    pub(crate) fn released(&mut self) -> &mut Released {
        &mut self.released
    }

    /// Where there is nothing else to write.
    pub(crate) fn flush_released(&mut self) {
        self.released.flush();
    }

    /// The outcome of an operation that ended earlier.
    pub(crate) fn outcome(&self, operation: OperationId) -> Option<Outcome> {
        outcome_of(&self.connection, operation)
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

fn open_and_read(path: &Path) -> Result<(Connection, LedgerState), LedgerError> {
    make_private(path).map_err(|source| LedgerError::Private { path: path.to_owned(), source })?;
    let failed = |source| LedgerError::Open { path: path.to_owned(), source };
    let mut connection = Connection::open(path).map_err(failed)?;
    let found = configure(&connection).map_err(failed)?;
    // A newer agent says how old an agent may be that still understands what it wrote.
    if found > SCHEMA && number_fact(&connection, "oldest_reader").map_err(failed)? > u64::from(SCHEMA) {
        return Err(LedgerError::Newer { path: path.to_owned(), found });
    }
    migrate(&mut connection, found).map_err(failed)?;
    let memory = read(&connection).map_err(failed)?;
    Ok((connection, memory))
}

/// SQLite gives new side files the mode of the ledger; old ones may have another.
fn make_private(path: &Path) -> std::io::Result<()> {
    private::file(path)?;
    for suffix in ["-wal", "-shm"] {
        let mut side = path.as_os_str().to_owned();
        side.push(suffix);
        let side = PathBuf::from(side);
        if side.exists() {
            private::file(&side)?;
        }
    }
    Ok(())
}

/// Sets how the file is used and returns its schema's number; 0 for a new file.
fn configure(connection: &Connection) -> rusqlite::Result<u32> {
    // The files of the log stay when it is closed: on a full disk they could not be made anew.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Room for a storm of changes to a thousand processes, given back when it is over ([`Ledger::shrink`]): with less, the
    // same pages are read and written again and again.
    connection.pragma_update(None, "cache_size", -2048)?;
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn migrate(connection: &mut Connection, found: u32) -> rusqlite::Result<()> {
    for (schema, step) in (1_u32..).zip(STEPS).skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", schema)?;
        set_fact(&transaction, "oldest_reader", &OLDEST_READER.to_string())?;
        transaction.commit()?;
    }
    Ok(())
}

fn read(connection: &Connection) -> rusqlite::Result<LedgerState> {
    let mut memory = LedgerState {
        boot: fact(connection, "boot")?.map(BootId::from),
        generation: number_fact(connection, "generation")?,
        ..LedgerState::default()
    };
    let mut skipped = 0;
    let mut processes = connection.prepare("SELECT namespace, name, record FROM process")?;
    let mut rows = processes.query([])?;
    while let Some(row) = rows.next()? {
        let key = || Ok(ProcessKey::new(parse_text(row, 0)?, parse_text(row, 1)?));
        let process = key().and_then(|key| Ok((key, parse_json(row, 2)?)));
        memory.processes.extend(readable(process, "process", &mut skipped)?);
    }
    let mut estates = connection.prepare("SELECT namespace, name, elder FROM estate")?;
    let mut rows = estates.query([])?;
    while let Some(row) = rows.next()? {
        let key = || Ok(ProcessKey::new(parse_text(row, 0)?, parse_text(row, 1)?));
        let estate = key().and_then(|key| Ok((key, parse_json(row, 2)?)));
        memory.estates.extend(readable(estate, "estate", &mut 0)?);
    }
    let mut pools = connection.prepare("SELECT pool FROM pool")?;
    let mut rows = pools.query([])?;
    while let Some(row) = rows.next()? {
        memory.pools.extend(readable(parse_json(row, 0), "pool", &mut skipped)?);
    }
    memory.held = held::read(connection)?;
    if skipped > 0 {
        memory.generation = 0; // the server assigns everything again
    }
    let mut operations = connection
        .prepare("SELECT id, process, kind, outcome FROM operation WHERE acknowledged = 0 ORDER BY changed_at, id")?;
    let mut rows = operations.query([])?;
    while let Some(row) = rows.next()? {
        if row.get_ref(3)? == rusqlite::types::ValueRef::Null {
            let unfinished = parse_text(row, 0).and_then(|id| Ok((id, parse_json(row, 1)?, parse_text(row, 2)?)));
            memory.unfinished.extend(readable(unfinished, "operation", &mut skipped)?);
        } else {
            let outcome = parse_text(row, 0).and_then(|id| Ok((id, parse_json(row, 3)?)));
            memory.outcomes.extend(readable(outcome, "outcome", &mut skipped)?);
        }
    }
    events::read(connection, &mut memory)?;
    Ok(memory)
}

/// A row whose text cannot be understood costs that row. It stays, for an agent that can.
fn readable<T>(row: rusqlite::Result<T>, what: &str, skipped: &mut usize) -> rusqlite::Result<Option<T>> {
    match row {
        Ok(row) => Ok(Some(row)),
        Err(error @ rusqlite::Error::FromSqlConversionFailure(..)) => {
            tracing::error!(%error, what, "skipped unreadable ledger row");
            *skipped += 1;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn fact(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare_cached("SELECT value FROM fact WHERE name = ?1")?;
    statement.query_row([name], |row| row.get(0)).optional()
}

fn number_fact(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    Ok(fact(connection, name)?.and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn set_fact(connection: &Connection, name: &str, value: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO fact (name, value) VALUES (?1, ?2)")?
        .execute(params![name, value])?;
    Ok(())
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

fn commit(
    connection: &mut Connection,
    batch: &LedgerBatch,
    spooled: &mut events::Spooled,
    reserve: Option<u64>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    if let Some(number) = reserve {
        set_fact(&transaction, RESERVE_TAKEN, &number.to_string())?;
    }
    write_facts(&transaction, batch)?;
    held::write(&transaction, &batch.held)?;
    write_processes(&transaction, batch)?;
    write_operations(&transaction, batch)?;
    events::write(&transaction, batch, spooled)?;
    transaction.commit()
}

fn write_facts(connection: &Connection, batch: &LedgerBatch) -> rusqlite::Result<()> {
    // An older agent that comes back does not know of registrations that wait.
    let generation = batch.generation.map(|it| if batch.is_registering { it.min(ALL_AGAIN) } else { it });
    let facts = [
        ("boot", batch.boot.as_ref().map(|boot| boot.as_str().to_owned())),
        ("generation", generation.map(|generation| generation.to_string())),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            set_fact(connection, name, &value)?;
        }
    }
    for pool in &batch.pools {
        connection
            .prepare_cached("INSERT OR REPLACE INTO pool (namespace, id, pool) VALUES (?1, ?2, ?3)")?
            .execute(params![pool.namespace.as_str(), pool.id.as_str(), json(pool)])?;
    }
    Ok(())
}

fn write_processes(connection: &Connection, batch: &LedgerBatch) -> rusqlite::Result<()> {
    for (key, record) in &batch.processes {
        connection
            .prepare_cached(
                "INSERT INTO process (namespace, name, record) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET record = excluded.record",
            )?
            .execute(params![key.namespace.as_str(), key.name.as_str(), json(record)])?;
    }
    for key in &batch.forgotten {
        connection
            .prepare_cached("DELETE FROM process WHERE namespace = ?1 AND name = ?2")?
            .execute(params![key.namespace.as_str(), key.name.as_str()])?;
    }
    for (key, elder) in &batch.estates {
        connection
            .prepare_cached("DELETE FROM estate WHERE namespace = ?1 AND name = ?2")?
            .execute(params![key.namespace.as_str(), key.name.as_str()])?;
        if let Some(elder) = elder {
            connection
                .prepare_cached("INSERT INTO estate (namespace, name, elder) VALUES (?1, ?2, ?3)")?
                .execute(params![key.namespace.as_str(), key.name.as_str(), json(elder)])?;
        }
    }
    Ok(())
}

fn write_operations(connection: &Connection, batch: &LedgerBatch) -> rusqlite::Result<()> {
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
        // The parts of an operation, one for each instance, have ids that continue its own with '/'.
        connection
            .prepare_cached(
                "UPDATE operation SET acknowledged = 1, changed_at = ?2
                 WHERE id = ?1 OR (id >= ?1 || '/' AND id < ?1 || '0')",
            )?
            .execute(params![operation.to_string(), batch.now])?;
    }
    if !batch.acknowledged.is_empty() {
        connection
            .prepare_cached("DELETE FROM operation WHERE acknowledged = 1 AND changed_at < ?1")?
            .execute([batch.now - REMEMBERED_SECS])?;
    }
    Ok(())
}
