//! The client side of the control socket, and direct reads of the ledger file.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde::Serialize;

use super::socket::short;
use super::{LocalAnswer, LocalRequest, SOCKET};

const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    #[error("no agent answers at {path}: is it running, and is this its --state-dir?")]
    Connect { path: PathBuf, source: std::io::Error },
    #[error("the agent's answer cannot be read")]
    Io(#[from] std::io::Error),
    #[error("the agent's answer cannot be parsed: is it from another version?")]
    Answer(#[from] serde_json::Error),
    #[error("{0}")]
    Refused(String),
    #[error("cannot read the ledger {path}")]
    Ledger { path: PathBuf, source: rusqlite::Error },
}

/// Asks the agent that uses this state directory, and waits for its answer.
pub fn ask(state_dir: &Path, request: &LocalRequest) -> Result<LocalAnswer, LocalError> {
    let path = state_dir.join(SOCKET);
    let failed = |source| LocalError::Connect { path: path.clone(), source };
    let (_dir, name) = short(&path).map_err(failed)?;
    let mut stream = UnixStream::connect(name).map_err(failed)?;
    stream.set_write_timeout(Some(SEND_TIMEOUT))?;
    // An operation takes its time; everything else is at hand, or the agent hangs.
    if !matches!(request, LocalRequest::Operate { .. }) {
        stream.set_read_timeout(Some(SEND_TIMEOUT))?;
    }
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer)?;
    match serde_json::from_str(&answer)? {
        LocalAnswer::Refused { reason } => Err(LocalError::Refused(reason)),
        answer @ (LocalAnswer::About(_)
        | LocalAnswer::Processes { .. }
        | LocalAnswer::Outcome { .. }
        | LocalAnswer::Events { .. }
        | LocalAnswer::Metrics { .. }) => Ok(answer),
    }
}

/// The contents of the ledger, read alongside an agent that may be running or dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recorded {
    pub path: PathBuf,
    pub bytes: u64,
    pub processes: u64,
    /// Operations that began and have no outcome.
    pub unfinished: u64,
    /// Outcomes that the server has not acknowledged.
    pub unacknowledged: u64,
    /// Events that the server has not seen.
    pub events: u64,
    /// What SQLite reports about the file; `ok` is good.
    pub check: String,
    /// The newest first.
    pub operations: Vec<RecordedOperation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedOperation {
    pub id: String,
    /// Empty if it ended before it began.
    pub process: String,
    pub kind: String,
    /// None: not ended.
    pub code: Option<u32>,
    pub message: String,
    /// Unix seconds.
    pub changed_at: i64,
}

/// The ledger of this state directory, with its last `limit` operations.
pub fn recorded(state_dir: &Path, limit: usize) -> Result<Recorded, LocalError> {
    let path = state_dir.join("ledger.db");
    read(&path, limit).map_err(|source| LocalError::Ledger { path, source })
}

fn read(path: &Path, limit: usize) -> rusqlite::Result<Recorded> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned);
    let mut statement = connection.prepare(
        "SELECT id, process, kind, json_extract(outcome, '$.code'), json_extract(outcome, '$.message'), changed_at
         FROM operation ORDER BY changed_at DESC, id DESC LIMIT ?1",
    )?;
    let operations = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
        let process: String = row.get(1)?;
        let key: Option<proctor_model::ProcessKey> = serde_json::from_str(&process).ok();
        Ok(RecordedOperation {
            id: row.get(0)?,
            process: key.map(|key| key.to_string()).unwrap_or_default(),
            kind: row.get(2)?,
            code: row.get(3)?,
            message: row.get::<_, Option<String>>(4)?.unwrap_or_default(),
            changed_at: row.get(5)?,
        })
    })?;
    Ok(Recorded {
        path: path.to_owned(),
        bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
        processes: count("SELECT count(*) FROM process")?,
        unfinished: count("SELECT count(*) FROM operation WHERE outcome IS NULL")?,
        unacknowledged: count("SELECT count(*) FROM operation WHERE outcome IS NOT NULL AND NOT acknowledged")?,
        events: count("SELECT count(*) FROM event")?,
        check: connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?,
        operations: operations.collect::<rusqlite::Result<_>>()?,
    })
}
