//! What is deleted, and when: old tasks, events, audit entries, tombstones, tokens, nonces and specs, the oldest
//! upgrades, and remains of removed hosts after a crash.
//!
//! Promised: age is the time that servers ran on the store, measured by the monotonic clock and added up there, so no
//! reading of the wall clock ever deletes anything; deletion goes in small slices with pauses, so that others get the
//! store in between; an audit entry is removed only after it was archived and synced, and a broken chain is neither
//! archived nor removed; archive files are readable only by their owner, in a private directory.
//! Absent: returning space to the file system; SQLite reuses it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proctor_runtime::{chain, clock, private};
use proctor_store::{AuditAnchor, AuditEntry, AuditQuery, Prune, Uptime, audit};
use tokio::sync::watch;

use super::Control;

/// Whatever fails, the entries stay and the log says why.
type Archived<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Results of operations are readable for at least this long, whatever is configured; those of status queries, and of
/// operations that reached no host, unless less is configured.
pub const TASKS_KEPT_MIN: Duration = Duration::from_secs(24 * 3600);
/// Those of status queries only and of what reached no host, which are read right after they were requested.
pub const STATUS_TASKS_KEPT_MIN: Duration = Duration::from_secs(3600);
/// Tombstones, tokens and specs are kept for at least this long: the store notes their use once an hour, and an agent
/// that lost the answer to its enrolment repeats it with the same token.
pub const LEFTOVERS_KEPT_MIN: Duration = Duration::from_secs(2 * 3600);
/// How much of its uptime a server that crashes may lose.
const UPTIME_PERIOD: Duration = Duration::from_secs(60);
const PRUNE_PERIOD: Duration = Duration::from_secs(600);
/// After each slice, so that callers get the writer.
const SLICE_PAUSE: Duration = Duration::from_millis(20);
/// Agents whose progress is noted in one go.
const SLICE_AGENTS: usize = 1000;
/// Entries in one file of the archive: some megabytes.
const ARCHIVE_ENTRIES: u64 = 10_000;
/// Entries read at a time; each may name a thousand targets.
const ARCHIVE_PAGE: u32 = 200;

/// How long things are kept, in time that the server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// After they were finished; at least [`TASKS_KEPT_MIN`].
    pub tasks: Duration,
    /// Those that are status queries alone, and those of which nothing reached a host; at least [`STATUS_TASKS_KEPT_MIN`].
    pub status_tasks: Duration,
    pub events: Duration,
    /// Beyond this many, the oldest of the hosts that have most go before their time.
    pub events_max: u64,
    pub audit: Duration,
    /// Unregistered processes and deleted pools, with their history; at least [`LEFTOVERS_KEPT_MIN`], like the next two.
    pub tombstones: Duration,
    /// Tokens that expired or were used up: somebody may want to know why one no longer works.
    pub tokens: Duration,
    /// Specs that nothing refers to: they are often used again soon.
    pub specs: Duration,
    /// Where audit entries go that are removed; None: they stay.
    pub audit_archive: Option<PathBuf>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            tasks: Duration::from_secs(72 * 3600),
            status_tasks: TASKS_KEPT_MIN,
            events: Duration::from_secs(30 * 24 * 3600),
            events_max: 1_000_000,
            audit: Duration::from_secs(365 * 24 * 3600),
            tombstones: Duration::from_secs(30 * 24 * 3600),
            tokens: Duration::from_secs(7 * 24 * 3600),
            specs: Duration::from_secs(24 * 3600),
            audit_archive: None,
        }
    }
}

impl Control {
    /// Counts the uptime and deletes what is old, until shutdown.
    pub(super) async fn retain(self) {
        let (counted, uptime) = watch::channel(None);
        tokio::join!(self.count_uptime(counted), self.prune_nonces(uptime.clone()), self.prune_regularly(uptime));
    }

    /// However long a deletion takes: what is kept for minutes is measured by it, too.
    async fn count_uptime(&self, uptime: watch::Sender<Option<Uptime>>) {
        let mut period = tokio::time::interval(UPTIME_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut counted = Instant::now();
        loop {
            period.tick().await;
            let now = Instant::now();
            match self.inner.store.advance_uptime(now - counted).await {
                Ok(ms) => {
                    counted = now;
                    uptime.send_replace(Some(ms));
                }
                Err(error) => tracing::warn!(error = %chain(&error), "cannot store uptime, retention paused"),
            }
        }
    }

    async fn prune_regularly(&self, mut uptime: watch::Receiver<Option<Uptime>>) {
        let mut pruned: Option<Instant> = None;
        while uptime.changed().await.is_ok() {
            let Some(ms) = *uptime.borrow_and_update() else { continue };
            let now = Instant::now();
            if pruned.is_none_or(|last| now - last >= PRUNE_PERIOD) {
                let retention = self.inner.retention.lock().clone();
                self.prune(&retention, ms).await;
                pruned = Some(now);
            }
        }
    }

    /// With every count of the uptime: they are many, and count for minutes.
    async fn prune_nonces(&self, mut uptime: watch::Receiver<Option<Uptime>>) {
        while uptime.changed().await.is_ok() {
            self.prune_all("nonces", Prune::Nonces { now: clock::unix_millis() }).await;
        }
    }

    /// Deletes everything that is old at this uptime.
    pub async fn prune(&self, retention: &Retention, uptime: Uptime) {
        let before = |kept: Duration| uptime - Uptime::try_from(kept.as_millis()).unwrap_or(Uptime::MAX / 2);
        for seen in self.inner.sessions.seen_generations().chunks(SLICE_AGENTS) {
            if let Err(error) = self.inner.store.note_generations(seen).await {
                tracing::warn!(error = %chain(&error), "cannot record agent generations, keeping tombstones");
                break;
            }
            tokio::time::sleep(SLICE_PAUSE).await;
        }
        let (keep, now) = (retention.events_max, clock::unix_millis());
        let of_leftovers = |kept: Duration| before(kept.max(LEFTOVERS_KEPT_MIN));
        for (what, prune) in [
            ("tasks", Prune::Tasks { before: before(retention.tasks.max(TASKS_KEPT_MIN)) }),
            ("status queries", Prune::BriefTasks { before: before(retention.status_tasks.max(STATUS_TASKS_KEPT_MIN)) }),
            ("events", Prune::Events { before: before(retention.events), keep }),
            ("removed hosts", Prune::RemovedHosts),
            ("upgrades", Prune::Upgrades),
            ("tombstones", Prune::Tombstones { before: of_leftovers(retention.tombstones) }),
            ("tokens", Prune::Tokens { before: of_leftovers(retention.tokens), now }),
            ("specs", Prune::Specs { before: of_leftovers(retention.specs) }),
        ] {
            self.prune_all(what, prune).await;
        }
        if let Some(dir) = &retention.audit_archive
            && let Err(error) = self.archive_audit(dir, before(retention.audit)).await
        {
            tracing::error!(error = %chain(&*error), dir = %dir.display(), "cannot archive audit entries, keeping them");
        }
    }

    async fn prune_all(&self, what: &'static str, prune: Prune) {
        let mut rows = 0;
        loop {
            match self.inner.store.prune(prune).await {
                Ok(0) => break,
                Ok(deleted) => rows += deleted,
                Err(error) => {
                    tracing::warn!(what, error = %chain(&error), "cannot delete old rows, retrying later");
                    break;
                }
            }
            tokio::time::sleep(SLICE_PAUSE).await;
        }
        if rows > 0 && matches!(prune, Prune::Nonces { .. }) {
            tracing::debug!(what, rows, "old rows deleted");
        } else if rows > 0 {
            tracing::info!(what, rows, "old rows deleted");
        }
    }

    /// Moves whole blocks of entries that were written before to files. A block has the same entries
    /// whenever it is written, so one that was written before a crash is simply written again.
    async fn archive_audit(&self, dir: &Path, before: Uptime) -> Archived<()> {
        let old = self.inner.store.audit_before(before).await?;
        loop {
            let anchor = self.inner.store.audit_anchor().await?;
            let last = (anchor.seq / ARCHIVE_ENTRIES + 1) * ARCHIVE_ENTRIES;
            if last > old {
                return Ok(());
            }
            let dir = dir.to_owned();
            let created = move || Archive::create(&dir, anchor.seq + 1, last);
            let mut file = tokio::task::spawn_blocking(created).await??;
            let mut newest = anchor;
            while newest.seq < last {
                let entries = self.audit_page(newest, last).await?;
                let end = entries.last().map(|entry| AuditAnchor { seq: entry.seq, hash: entry.hash });
                file = tokio::task::spawn_blocking(move || file.append(&entries)).await??;
                newest = end.ok_or("audit entries are missing")?;
            }
            let path = tokio::task::spawn_blocking(move || file.finish()).await??;
            self.prune_all("audit", Prune::Audit { through: last }).await;
            tracing::info!(path = %path.display(), last, "audit entries archived");
            if self.inner.store.audit_anchor().await?.seq < last {
                return Err("cannot delete archived audit entries".into());
            }
        }
    }

    /// The entries that follow, if they continue the chain.
    async fn audit_page(&self, after: AuditAnchor, last: u64) -> Archived<Vec<AuditEntry>> {
        let limit = u32::try_from(last - after.seq).unwrap_or(u32::MAX).min(ARCHIVE_PAGE);
        let query = AuditQuery { after: after.seq, limit, ..AuditQuery::default() };
        let entries = self.inner.store.audit(&query).await?;
        audit::verify_after(after, &entries)?;
        Ok(entries)
    }
}

/// A file of the archive, under another name until it is whole.
#[derive(Debug)]
struct Archive {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl Archive {
    /// In a directory that is private, or can be made so.
    fn create(dir: &Path, first: u64, last: u64) -> Archived<Self> {
        private::dir(dir)?;
        let path = dir.join(format!("audit-{first:012}-{last:012}.jsonl"));
        let temporary = path.with_extension("tmp");
        let file = private::new_file(&temporary)?;
        Ok(Self { file, temporary, path })
    }

    fn append(mut self, entries: &[AuditEntry]) -> std::io::Result<Self> {
        for entry in entries {
            self.file.write_all((entry.to_line() + "\n").as_bytes())?;
        }
        Ok(self)
    }

    /// Once this returns, the file survives a power loss.
    fn finish(self) -> std::io::Result<PathBuf> {
        self.file.sync_all()?;
        std::fs::rename(&self.temporary, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        Ok(self.path)
    }
}
