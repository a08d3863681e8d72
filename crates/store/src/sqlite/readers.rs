//! A few read-only connections, so that no reader waits for the writer.
//!
//! Promised: each read sees one state of the store, with every write that had returned before the
//! read began. Absent: threads; reads run on the runtime's blocking threads.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::failure::Tried;
use super::meter::Meter;
use crate::{Result, StoreError};

/// Reads beyond this many wait; each connection has its own page cache.
const CONNECTIONS: usize = 4;

#[derive(Debug)]
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    /// One permit for each connection.
    free: Arc<Semaphore>,
    /// Reads on the caller's thread.
    is_simulated: bool,
    pub(super) meter: Meter,
}

impl Readers {
    pub(super) fn open(path: &Path) -> Tried<Self> {
        let idle = (0..CONNECTIONS).map(|_| super::connection::reader(path)).collect::<Tried<Vec<_>>>()?;
        Ok(Self {
            idle: Arc::new(Mutex::new(idle)),
            free: Arc::new(Semaphore::new(CONNECTIONS)),
            is_simulated: false,
            meter: Meter::default(),
        })
    }

    /// From now on, without other threads.
    pub(super) fn simulate(&mut self) {
        self.is_simulated = true;
    }

    pub(super) async fn run<T, F>(&self, what: &'static str, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Tried<T> + Send + 'static,
    {
        let begun = Instant::now();
        self.meter.count(what, begun, self.read(what, read).await)
    }

    async fn read<T, F>(&self, what: &'static str, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Tried<T> + Send + 'static,
    {
        let permit = Arc::clone(&self.free).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let idle = Arc::clone(&self.idle);
        let work = move || {
            let lent = PooledConnection::take(idle)?;
            let value = lent.in_snapshot(read).map_err(|failure| failure.of(what));
            drop(lent);
            drop(permit);
            value
        };
        if self.is_simulated {
            return work();
        }
        tokio::task::spawn_blocking(work).await.map_err(|error| StoreError::Failed { what, source: error.into() })?
    }
}

/// A connection that is returned when it is dropped, even by a panic.
struct PooledConnection {
    idle: Arc<Mutex<Vec<Connection>>>,
    connection: Option<Connection>,
}

impl PooledConnection {
    fn take(idle: Arc<Mutex<Vec<Connection>>>) -> Result<Self> {
        let connection = idle.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or(StoreError::Closed)?;
        Ok(Self { idle, connection: Some(connection) })
    }

    fn in_snapshot<T>(&self, read: impl FnOnce(&Connection) -> Tried<T>) -> Tried<T> {
        let connection = self.connection.as_ref().expect("it is taken out only by drop");
        let transaction = connection.unchecked_transaction()?;
        read(&transaction)
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
