//! What somebody on this host has stopped, killed or released, beside the ledger.
//!
//! Promised: an agent that loses its ledger before the server has heard of it does not manage such a process again
//! because the server says so, as long as that registration stands. Absent: a bound that is never reached; beyond
//! [`RELEASED_MAX`] processes no more are kept, and the log says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proctor_model::ProcessKey;
use proctor_runtime::private;

const RELEASED_MAX: usize = 10_000;
const BYTES_MAX: u64 = 8 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Released {
    path: PathBuf,
    /// With the time of the registration, in Unix seconds.
    of: BTreeMap<ProcessKey, i64>,
}

impl Released {
    pub(super) fn open(ledger: &Path) -> Self {
        let path = ledger.with_extension("released");
        let of = read(&path).unwrap_or_else(|error| {
            tracing::error!(%error, path = %path.display(), "what was stopped on this host cannot be read");
            BTreeMap::new()
        });
        Self { path, of }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether the process of this registration was stopped or released by somebody on this host.
    pub(crate) fn holds(&self, key: &ProcessKey, registered_at: i64) -> bool {
        self.of.get(key) == Some(&registered_at)
    }

    pub(crate) fn add(&mut self, key: ProcessKey, registered_at: i64) {
        if self.of.len() >= RELEASED_MAX && !self.of.contains_key(&key) {
            tracing::error!(process = %key, "{RELEASED_MAX} processes were stopped on this host: one more is not kept");
            return;
        }
        if self.of.insert(key, registered_at) != Some(registered_at) {
            self.write();
        }
    }

    /// It is managed again, or the server knows.
    pub(crate) fn remove(&mut self, key: &ProcessKey) {
        if self.of.remove(key).is_some() {
            self.write();
        }
    }

    fn write(&self) {
        let of: Vec<(&ProcessKey, i64)> = self.of.iter().map(|(key, registered_at)| (key, *registered_at)).collect();
        let text = serde_json::to_string(&of).expect("keys are strings");
        if let Err(error) = private::write(&self.path, &text) {
            tracing::error!(%error, path = %self.path.display(), "what was stopped on this host is kept in the ledger alone");
        }
    }
}

fn read(path: &Path) -> std::io::Result<BTreeMap<ProcessKey, i64>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let of: Vec<(ProcessKey, i64)> = serde_json::from_reader(std::io::Read::take(file, BYTES_MAX))?;
    Ok(of.into_iter().take(RELEASED_MAX).collect())
}
