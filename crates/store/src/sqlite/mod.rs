//! The store in one SQLite file, for a control plane of one server.
//!
//! Promised: what [`Store`](crate::Store) promises, on a file held exclusively by this process. Writes go through
//! one thread that commits pending calls together (`writer`); reads never wait for it (`readers`). Dropping the
//! store finishes queued writes, ends the thread and releases the file.
//! Absent: a clock, caches between calls, and sharing the file with a second server.
//! Start at `store` (the traits), then the file of an area.

mod access;
mod apps;
mod audit;
mod backup;
mod businesses;
mod column;
mod connection;
mod enrolment;
mod events;
mod failure;
mod fleet;
mod followers;
mod health;
mod host_state;
mod hosts;
mod identity;
mod meter;
mod nonces;
mod outcomes;
mod pools;
mod process_filter;
mod process_order;
mod processes;
mod readers;
mod registrations;
mod relays;
mod retention;
mod rollouts;
mod store;
mod tasks;
mod upgrades;
mod users;
mod webhooks;
mod where_clause;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub use self::backup::ChangeSecret;
use self::connection::{Lock, OlderSchema};
use self::readers::Readers;
use self::writer::Writer;
use crate::{Millis, Result, StoreError};

#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    writer: Writer,
    readers: Readers,
    /// Open as long as the others have it open: see `health`.
    file: Arc<File>,
}

impl SqliteStore {
    /// Opens the file, creating it (mode 0600) if it is not there, and brings it to this program's
    /// schema. Fails while another process has it open, and if a newer program wrote it.
    pub async fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, None, Sharing::Alone).await
    }

    /// Opens the file while a server may hold it: for tools that add an app or a token. Fails if the file has an
    /// older schema, because the server of that version would not understand it afterwards.
    pub async fn open_beside(path: &Path) -> Result<Self> {
        Self::open_with(path, None, Sharing::Beside(OlderSchema::Refuse)).await
    }

    /// As [`Self::open_beside`], but migrates the file of a stopped server to this program's schema.
    pub async fn open_beside_migrating(path: &Path) -> Result<Self> {
        Self::open_with(path, None, Sharing::Beside(OlderSchema::Migrate)).await
    }

    /// As [`Self::open`], with a bound on the file: a write beyond `pages_max` pages (of 4 KiB in
    /// a new file) answers [`StoreError::Full`], as on a full disk.
    pub async fn open_bounded(path: &Path, pages_max: u32) -> Result<Self> {
        Self::open_with(path, Some(pages_max), Sharing::Alone).await
    }

    /// As [`Self::open_beside`], but every write after the next `left` answers [`StoreError::Closed`]. For tests of
    /// what a server leaves behind when it is killed between two writes.
    pub async fn open_dying(path: &Path, left: Arc<AtomicU64>) -> Result<Self> {
        let mut store = Self::open_beside(path).await?;
        store.writer.die_after(left);
        Ok(store)
    }

    /// As [`Self::open_dying`], for a simulation: nothing runs on other threads, and a write takes `latency` by the
    /// runtime's clock. Absent: shared commits.
    pub async fn open_simulated(path: &Path, left: Arc<AtomicU64>, latency: Duration) -> Result<Self> {
        let mut store = Self::open_beside(path).await?;
        let connection = connection::writer(path, None, OlderSchema::Served)?;
        store.writer = Writer::simulated(connection, latency);
        store.writer.die_after(left);
        store.readers.simulate();
        Ok(store)
    }

    /// Copies the store at `path` to a new private file, even while a server has it open. `seal` transforms every
    /// secret in the copy, and `note` is stored among them. Blocks.
    pub fn back_up(path: &Path, to: &Path, seal: &ChangeSecret<'_>, note: Option<(&str, &[u8])>) -> Result<()> {
        backup::back_up(path, to, seal, note)
    }

    /// Restores a backup into the new store `to`: `open` undoes the seal, and `note` is dropped. Epochs and
    /// generations rise above all that were handed out until `now`. Blocks.
    pub fn restore(from: &Path, to: &Path, open: &ChangeSecret<'_>, note: &str, now: Millis) -> Result<()> {
        backup::restore(from, to, open, note, now)
    }

    /// Removes what killed backups and restores left beside this file. Blocks.
    pub fn remove_drafts(path: &Path) {
        backup::remove_drafts(path);
    }

    /// A secret as stored in a backup. Blocks.
    pub fn secret_of_backup(from: &Path, name: &str) -> Result<Option<Vec<u8>>> {
        backup::note(from, name)
    }

    async fn open_with(path: &Path, pages_max: Option<u32>, sharing: Sharing) -> Result<Self> {
        const WHAT: &str = "open its file";
        let path = path.to_owned();
        let lock = Lock::open(&path)?;
        let taken = match sharing {
            Sharing::Alone => Some(lock.take().await?),
            Sharing::Beside(_) => lock.try_take().ok(),
        };
        let open = move || {
            let older = match sharing {
                Sharing::Alone => OlderSchema::Migrate,
                Sharing::Beside(older) if taken.is_some() => older,
                Sharing::Beside(_) => OlderSchema::Served,
            };
            let is_server = matches!(sharing, Sharing::Alone);
            if is_server {
                backup::remove_drafts(&path);
            }
            let connection = connection::writer(&path, pages_max, older)?;
            // No server can start while a tool migrates; afterwards it can.
            let lock = taken.filter(|_| is_server);
            let readers = Readers::open(&path).map_err(|failure| failure.of(WHAT))?;
            let file = File::open(&path).map_err(|source| StoreError::Failed { what: WHAT, source: source.into() })?;
            Ok(Self { path, writer: Writer::start(connection, lock)?, readers, file: Arc::new(file) })
        };
        tokio::task::spawn_blocking(open)
            .await
            .map_err(|error| StoreError::Failed { what: WHAT, source: error.into() })?
    }
}

/// Whether this process is the file's server.
#[derive(Clone, Copy, Debug)]
enum Sharing {
    Alone,
    /// Also says what to do with an older schema while no server runs.
    Beside(OlderSchema),
}
