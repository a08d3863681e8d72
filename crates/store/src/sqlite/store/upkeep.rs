//! Health, retention and sizes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use proctor_model::AgentId;

use crate::sqlite::{SqliteStore, health, nonces, retention};
use crate::{DiskSpace, OperationStats, Prune, Result, StoreStats, TableSize, UpkeepStore, Uptime};

#[async_trait]
impl UpkeepStore for SqliteStore {
    async fn closed(&self) {
        self.writer.closed().await;
    }

    fn stats(&self) -> StoreStats {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        // Some read first and then write.
        let mut operations: BTreeMap<&str, OperationStats> = BTreeMap::new();
        for one in self.readers.meter.operations().into_iter().chain(self.writer.meter.operations()) {
            operations.entry(one.what).and_modify(|known| known.add(&one)).or_insert(one);
        }
        StoreStats {
            reads: self.readers.meter.latency(),
            writes: self.writer.meter.latency(),
            operations: operations.into_values().collect(),
            writes_queued: self.writer.queued(),
            file_bytes: size(&self.path),
            log_bytes: size(Path::new(&log)),
            free_bytes: health::disk_space(&self.path).map(|space| space.free_bytes),
        }
    }

    async fn check_readable(&self) -> Result<()> {
        let (file, path) = (self.file.clone(), self.path.clone());
        self.readers.run("be read", move |c| health::read(c, &file, &path)).await
    }

    async fn check_writable(&self) -> Result<()> {
        let path = self.path.clone();
        self.writer.run("be written", move |c| health::write(c, &path)).await
    }

    async fn advance_uptime(&self, by: Duration) -> Result<Uptime> {
        let by = Uptime::try_from(by.as_millis()).unwrap_or(Uptime::MAX / 2);
        self.writer.run("count the uptime", move |c| retention::advance(c, by)).await
    }

    async fn note_generations(&self, seen: &[(AgentId, u64)]) -> Result<()> {
        let seen = seen.to_vec();
        self.writer.run("note what agents know", move |c| retention::note_generations(c, &seen)).await
    }

    async fn prune(&self, what: Prune) -> Result<u64> {
        const WHAT: &str = "delete what is old";
        match what {
            Prune::Specs { before } => {
                let unused = self.readers.run(WHAT, move |c| retention::unused_specs(c, before)).await?;
                let mut deleted = 0;
                for slice in unused.chunks(retention::SLICE_SPECS).map(<[i64]>::to_vec) {
                    deleted += self.writer.run(WHAT, move |c| retention::delete_specs(c, &slice, before)).await?;
                }
                Ok(deleted)
            }
            Prune::Nonces { now } => {
                let old = self.readers.run(WHAT, move |c| nonces::old(c, now)).await?;
                match old.is_empty() {
                    true => Ok(0),
                    false => self.writer.run(WHAT, move |c| nonces::delete(c, &old, now)).await,
                }
            }
            Prune::Tasks { .. }
            | Prune::BriefTasks { .. }
            | Prune::Events { .. }
            | Prune::RemovedHosts
            | Prune::Upgrades
            | Prune::Tombstones { .. }
            | Prune::Tokens { .. }
            | Prune::Audit { .. } => self.writer.run(WHAT, move |c| retention::prune(c, what)).await,
        }
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        let path = self.path.clone();
        self.readers.run("ask for free space", move |_| Ok(health::disk_space(&path))).await
    }

    async fn sizes(&self) -> Result<Vec<TableSize>> {
        self.readers.run("measure its tables", retention::sizes).await
    }
}
