//! What all benchmarks share.

use std::path::PathBuf;

use anyhow::Result;

use crate::figures::Table;
use crate::peers::Kind;
use crate::worker::Worker;

#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) worker: Worker,
    pub(crate) peers: PathBuf,
    only: Vec<Kind>,
    /// Holds the worker.
    _dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(peers: PathBuf, only: Vec<Kind>) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("pbw").tempdir()?;
        let peers = std::path::absolute(peers)?;
        Ok(Self { worker: Worker::build(dir.path())?, peers, only, _dir: dir })
    }

    /// Who takes part; those that cannot are noted.
    pub(crate) fn kinds(&self, table: &mut Table) -> Vec<Kind> {
        self.present(Kind::ALL.into_iter(), table)
    }

    /// As [`Self::kinds`], including those that differ only when idle.
    pub(crate) fn kinds_at_rest(&self, table: &mut Table) -> Vec<Kind> {
        self.present(Kind::at_rest(), table)
    }

    fn present(&self, kinds: impl Iterator<Item = Kind>, table: &mut Table) -> Vec<Kind> {
        let wanted = kinds.filter(|kind| self.only.is_empty() || self.only.contains(kind));
        let (absent, present): (Vec<Kind>, Vec<Kind>) = wanted.partition(|kind| kind.absence(&self.peers).is_some());
        table.notes.extend(absent.into_iter().filter_map(|kind| kind.absence(&self.peers)));
        present
    }
}
