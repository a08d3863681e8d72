//! What somebody on this host has stopped, killed or released, kept next to the ledger.
//!
//! Promised: an agent that loses its ledger before the server knows does not manage such a process again on the
//! server's word, as long as that registration stands. Additions are on disk when the call returns, all in one write;
//! removals go with the next commit of the ledger.
//! Absent: an unlimited number; beyond [`RELEASED_MAX`] processes no more are kept, and the log says so.

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
    /// Whether something was removed that the file still has.
    is_pending: bool,
}

impl Released {
    pub(super) fn open(ledger: &Path) -> Self {
        let path = ledger.with_extension("released");
        let of = read(&path).unwrap_or_else(|error| {
            tracing::error!(%error, path = %path.display(), "cannot read list of locally stopped processes");
            BTreeMap::new()
        });
        Self { path, of, is_pending: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether the process of this registration was stopped or released by somebody on this host.
    pub(crate) fn holds(&self, key: &ProcessKey, registered_at: i64) -> bool {
        self.of.get(key) == Some(&registered_at)
    }

    /// One write, however many there are.
    pub(crate) fn add(&mut self, released: impl IntoIterator<Item = (ProcessKey, i64)>) {
        let mut is_changed = false;
        for (key, registered_at) in released {
            if self.of.len() >= RELEASED_MAX && !self.of.contains_key(&key) {
                tracing::error!(process = %key, "{RELEASED_MAX} processes were stopped on this host: one more is not recorded");
                continue;
            }
            is_changed |= self.of.insert(key, registered_at) != Some(registered_at);
        }
        if is_changed {
            self.write();
        }
    }

    /// It is managed again, or the server knows.
    pub(crate) fn remove(&mut self, key: &ProcessKey) {
        self.is_pending |= self.of.remove(key).is_some();
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Writes the removals.
    pub(super) fn flush(&mut self) {
        if self.is_pending {
            self.write();
        }
    }

    fn write(&mut self) {
        self.is_pending = false;
        let of: Vec<(&ProcessKey, i64)> = self.of.iter().map(|(key, registered_at)| (key, *registered_at)).collect();
        let text = serde_json::to_string(&of).expect("keys are strings");
        if let Err(error) = private::write(&self.path, &text) {
            tracing::error!(%error, path = %self.path.display(), "cannot write list of locally stopped processes; kept in the ledger only");
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn keys(count: usize) -> impl Iterator<Item = ProcessKey> {
        (0..count).map(|number| format!("ns/p{number}").parse().unwrap())
    }

    #[test]
    fn many_are_added_in_one_write_and_removed_in_one() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger.db");
        let inode = || std::fs::metadata(dir.path().join("ledger.released")).unwrap().ino();
        let mut released = Released::open(&ledger);

        released.add(keys(1000).map(|key| (key, 1)));
        let added = inode();
        released.add(keys(1000).map(|key| (key, 1)));
        keys(1000).for_each(|key| released.remove(&key));
        assert_eq!(inode(), added, "nothing is written for what is there, nor for each that is removed");
        assert_eq!(Released::open(&ledger).of.len(), 1000);
        released.flush();

        assert!(!released.is_pending() && Released::open(&ledger).is_empty());
    }
}
