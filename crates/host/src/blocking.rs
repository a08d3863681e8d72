//! File and name service work that may hang: on its own thread, with a timeout.
//!
//! Promised: a caller never waits longer than its timeout; work on something that hangs occupies one thread, however
//! often it is requested; a hanging mount does not delay other mounts, even if symlinks lead to it, and takes no more
//! than [`JOBS_PER_MOUNT_MAX`] threads ([`LONG_JOBS_PER_MOUNT_MAX`] for long work) plus [`HUNG_MAX`] abandoned ones;
//! many callers do not mean many threads, whether they wait or not.
//! Absent: cancelling hung work, which is impossible.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::mount_table::{MountTable, Mounts};

/// Concurrent jobs on one mount that have not been abandoned.
const JOBS_PER_MOUNT_MAX: usize = 16;
/// The same for long jobs: they must leave the disk and the cores to others.
const LONG_JOBS_PER_MOUNT_MAX: usize = 2;
/// A mount with this many hung jobs gets no new ones until some of them finish.
const HUNG_MAX: usize = 4;

/// The work did not finish within its limit, or earlier work with the same name or on the same mount hangs.
#[derive(Debug)]
pub(crate) struct TimedOut;

#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    hung: Arc<Mutex<HashSet<String>>>,
    /// For work that cannot hang.
    permits: Arc<Semaphore>,
    lanes: Arc<Mutex<MountPools>>,
}

/// Jobs in progress, by mount.
#[derive(Debug)]
struct MountPools {
    by_mount: HashMap<String, Arc<MountPool>>,
    mounts: MountTable,
    jobs_max: usize,
}

#[derive(Debug)]
struct MountPool {
    permits: Arc<Semaphore>,
    hung: AtomicUsize,
}

impl Default for Blocking {
    fn default() -> Self {
        Self::on(MountTable::of_this_process(), JOBS_PER_MOUNT_MAX)
    }
}

impl MountPools {
    /// An empty path is on no known mount.
    fn lane(&mut self, path: &Path) -> Arc<MountPool> {
        self.refresh();
        let (mount, jobs_max) = (self.mounts.mounts().holding(path).to_owned(), self.jobs_max);
        let fresh = || Arc::new(MountPool { permits: Arc::new(Semaphore::new(jobs_max)), hung: AtomicUsize::new(0) });
        Arc::clone(self.by_mount.entry(mount).or_insert_with(fresh))
    }

    fn refresh(&mut self) {
        if self.mounts.refresh() {
            let mounts = &self.mounts;
            self.by_mount.retain(|mount, lane| mounts.contains(mount) || lane.hung.load(Ordering::Relaxed) > 0);
        }
    }
}

impl Blocking {
    fn on(mounts: MountTable, jobs_max: usize) -> Self {
        Self {
            hung: Arc::default(),
            permits: Arc::new(Semaphore::new(jobs_max)),
            lanes: Arc::new(Mutex::new(MountPools { by_mount: HashMap::new(), mounts, jobs_max })),
        }
    }

    /// Threads separate from those of [`Self::default`].
    pub(crate) fn for_long_work() -> Self {
        Self::on(MountTable::of_this_process(), LONG_JOBS_PER_MOUNT_MAX)
    }

    /// The current mounts.
    pub(crate) fn mounts(&self) -> Mounts {
        let mut lanes = self.lanes.lock();
        lanes.refresh();
        lanes.mounts.mounts().clone()
    }

    /// Work that takes a while but cannot hang. None: it panicked, or the program is shutting down.
    pub(crate) async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let _permit = self.permits.acquire().await.ok()?;
        tokio::task::spawn_blocking(work).await.ok()
    }

    /// `name` says what may hang, with its path: work is not started again while earlier work of the same name hangs.
    /// Names without a path share a lane. Dropping this leaves the work and its permit alone.
    pub(crate) async fn run<T, F>(&self, name: &str, limit: Duration, work: F) -> Result<T, TimedOut>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let begun = Instant::now();
        let path = name.find('/').and_then(|at| name.get(at..)).unwrap_or_default();
        let lane = self.lanes.lock().lane(Path::new(path));
        let permit = self.enter(&lane, name, limit).await?;
        self.work_in(lane, permit, name, limit.saturating_sub(begun.elapsed()), work).await
    }

    /// As [`Self::run`], on a path that is not in the name. The limit is that of the work itself: other work on the
    /// same mount is waited for until it is done or abandoned.
    pub(crate) async fn run_in_turn<T, F>(
        &self,
        path: &Path,
        name: &str,
        limit: Duration,
        work: F,
    ) -> Result<T, TimedOut>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let lane = self.lanes.lock().lane(path);
        let permit = self.enter(&lane, name, Duration::MAX).await?;
        self.work_in(lane, permit, name, limit, work).await
    }

    async fn enter(
        &self,
        lane: &Arc<MountPool>,
        name: &str,
        limit: Duration,
    ) -> Result<OwnedSemaphorePermit, TimedOut> {
        let is_hung = || self.hung.lock().contains(name) || lane.hung.load(Ordering::Relaxed) >= HUNG_MAX;
        if is_hung() {
            return Err(TimedOut);
        }
        let permit = tokio::time::timeout(limit, Arc::clone(&lane.permits).acquire_owned());
        let permit = permit.await.map_err(|_| TimedOut)?.map_err(|_| TimedOut)?;
        if is_hung() { Err(TimedOut) } else { Ok(permit) }
    }

    async fn work_in<T, F>(
        &self,
        lane: Arc<MountPool>,
        permit: OwnedSemaphorePermit,
        name: &str,
        limit: Duration,
        work: F,
    ) -> Result<T, TimedOut>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let stage = Arc::new(Mutex::new(Stage::Working(permit)));
        let mark = Mark {
            stage: Arc::clone(&stage),
            hung: Arc::clone(&self.hung),
            lane: Arc::clone(&lane),
            name: name.to_owned(),
        };
        let mut work = tokio::task::spawn_blocking(move || {
            let _mark = mark;
            work()
        });
        if let Ok(answer) = tokio::time::timeout(limit, &mut work).await {
            return answer.map_err(|_| TimedOut);
        }
        {
            let mut stage = stage.lock();
            if matches!(*stage, Stage::Working(_)) {
                *stage = Stage::GivenUp;
                self.hung.lock().insert(name.to_owned());
                lane.hung.fetch_add(1, Ordering::Relaxed);
                return Err(TimedOut);
            }
        }
        work.await.map_err(|_| TimedOut)
    }
}

#[derive(Debug)]
enum Stage {
    /// Holds its permit until it ends or is abandoned, whether anybody waits or not.
    Working(#[allow(dead_code, reason = "held, not read")] OwnedSemaphorePermit),
    GivenUp,
    Over,
}

/// Removes the name from the hung ones when the work ends, even by a panic.
struct Mark {
    stage: Arc<Mutex<Stage>>,
    hung: Arc<Mutex<HashSet<String>>>,
    lane: Arc<MountPool>,
    name: String,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut stage = self.stage.lock();
        if matches!(std::mem::replace(&mut *stage, Stage::Over), Stage::GivenUp) {
            self.lane.hung.fetch_sub(1, Ordering::Relaxed);
            self.hung.lock().remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn work_that_hangs_is_given_up_and_not_begun_again_until_it_ends() {
        let blocking = Blocking::default();
        let (release, hanging) = mpsc::channel::<()>();

        let first = blocking.run("nfs", Duration::from_millis(10), move || hanging.recv().is_ok()).await;
        let second = blocking.run("nfs", Duration::from_secs(60), || true).await;
        let other = blocking.run("disk", Duration::from_secs(60), || true).await;

        assert!(first.is_err() && second.is_err());
        assert!(other.unwrap());
        release.send(()).unwrap();
        while blocking.run("nfs", Duration::from_secs(60), || true).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_mount_that_hangs_holds_up_no_other_and_is_soon_left_alone() {
        let blocking = Blocking::on(MountTable::given(&[("/", "ext4"), ("/nfs", "nfs")]), JOBS_PER_MOUNT_MAX);
        let (release, hanging) = mpsc::channel::<()>();
        let hanging = Arc::new(Mutex::new(hanging));
        let hang = || {
            let hanging = Arc::clone(&hanging);
            move || hanging.lock().recv().is_ok()
        };

        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..JOBS_PER_MOUNT_MAX {
            let (blocking, hang) = (blocking.clone(), hang());
            let limit = Duration::from_millis(if number < HUNG_MAX { 10 } else { 500 });
            waiting.spawn(async move { blocking.run(&format!("/nfs/{number}"), limit, hang).await.is_err() });
        }
        let disk = blocking.run("/nfs-is-not-this", Duration::from_secs(60), || true).await;
        assert!(disk.unwrap(), "another mount answers");
        assert!(waiting.join_all().await.into_iter().all(|is_err| is_err));
        let refused = blocking.run("root in /nfs", Duration::from_secs(60), || panic!("it must not begin")).await;
        assert!(refused.is_err());

        drop(release);
        while blocking.run("/nfs/again", Duration::from_secs(60), || true).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn work_behind_a_link_counts_for_the_mount_that_the_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let nfs = dir.path().join("nfs");
        let blocking =
            Blocking::on(MountTable::given(&[("/", "ext4"), (nfs.to_str().unwrap(), "nfs")]), JOBS_PER_MOUNT_MAX);
        let (release, hanging) = mpsc::channel::<()>();
        let hanging = Arc::new(Mutex::new(hanging));
        for number in 0..HUNG_MAX {
            let link = dir.path().join(format!("link{number}"));
            std::os::unix::fs::symlink(nfs.join("data"), &link).unwrap();
            let (name, hanging) = (link.join("app").display().to_string(), Arc::clone(&hanging));
            let hang = move || hanging.lock().recv().is_ok();
            assert!(blocking.run(&name, Duration::from_millis(10), hang).await.is_err());
        }

        let beside =
            blocking.run(&dir.path().join("app").display().to_string(), Duration::from_secs(60), || true).await;
        let behind = blocking.run(&nfs.join("other").display().to_string(), Duration::from_secs(60), || true).await;

        assert!(beside.unwrap(), "the mount of the links answers");
        assert!(behind.is_err());
        drop(release);
    }

    #[tokio::test]
    async fn long_work_waits_for_its_turn_and_not_for_a_mount_that_hangs() {
        let mounts = MountTable::given(&[("/", "ext4"), ("/nfs", "nfs")]);
        let blocking = Blocking::on(mounts, LONG_JOBS_PER_MOUNT_MAX);
        let (release, hanging) = mpsc::channel::<()>();
        let hanging = Arc::new(Mutex::new(hanging));
        let mut waiting = tokio::task::JoinSet::new();
        for number in 0..HUNG_MAX + 4 {
            let (blocking, hanging) = (blocking.clone(), Arc::clone(&hanging));
            waiting.spawn(async move {
                let (path, limit) = (format!("/nfs/{number}"), Duration::from_millis(10));
                let hang = move || hanging.lock().recv().is_ok();
                blocking.run_in_turn(Path::new(&path), &path, limit, hang).await.is_err()
            });
        }
        assert!(waiting.join_all().await.into_iter().all(|is_err| is_err), "nobody waits for ever");

        // More than there are threads, of a limit that would be over long before the last one's turn.
        let (open, closed) = mpsc::channel::<()>();
        let closed = Arc::new(Mutex::new(closed));
        let mut on_disk = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (blocking, closed) = (blocking.clone(), Arc::clone(&closed));
            on_disk.spawn(async move {
                let (path, limit) = (format!("/data/{number}"), Duration::from_secs(60));
                blocking
                    .run_in_turn(Path::new(&path), &path, limit, move || closed.lock().recv().is_err())
                    .await
                    .is_ok()
            });
        }
        let lane = blocking.lanes.lock().lane(Path::new("/data"));
        while lane.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        drop(open);
        assert!(on_disk.join_all().await.into_iter().all(|is_ok| is_ok));
        drop(release);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_keeps_its_permit_until_it_ends() {
        let blocking = Blocking::on(MountTable::given(&[("/", "ext4")]), JOBS_PER_MOUNT_MAX);
        let (release, hanging) = mpsc::channel::<()>();
        let hanging = Arc::new(Mutex::new(hanging));
        for number in 0..JOBS_PER_MOUNT_MAX {
            let hanging = Arc::clone(&hanging);
            let name = format!("/{number}");
            let work = blocking.run(&name, Duration::from_secs(60), move || hanging.lock().recv().is_ok());
            assert!(tokio::time::timeout(Duration::from_millis(1), work).await.is_err(), "its caller goes away");
        }

        let more = blocking.run("/more", Duration::from_millis(10), || panic!("it must not begin")).await;

        assert!(more.is_err());
        drop(release);
        assert!(blocking.run("/more", Duration::from_secs(60), || true).await.unwrap());
    }
}
