//! File and name service work that may hang: on a thread of its own, with a limit.
//!
//! Promised: a caller waits no longer than its limit; work on something that hangs occupies one thread,
//! however often it is asked for; a mount that hangs holds up nothing on other mounts, and takes no more
//! than [`JOBS_PER_MOUNT_MAX`] threads; a crowd of callers does not become a crowd of threads. Absent: ending the hung
//! work, which nobody can.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;

use crate::procfs;

/// Work that is under way on one mount and has not been given up.
const JOBS_PER_MOUNT_MAX: usize = 16;
/// A mount on which so much hangs is not asked again before some of it has ended.
const HUNG_MAX: usize = 4;
/// How long the list of mounts is trusted, in seconds. A mount that is not known yet counts for the one above.
const MOUNTS_AGE_MAX: i64 = 5;
const MOUNTS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The work did not end within its limit, or earlier work of the same name or on the same mount hangs.
#[derive(Debug)]
pub(crate) struct TimedOut;

#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    hung: Arc<Mutex<HashSet<String>>>,
    /// For work that cannot hang.
    places: Arc<Semaphore>,
    lanes: Arc<Mutex<MountPools>>,
}

/// What is under way, by mount.
#[derive(Debug, Default)]
struct MountPools {
    by_mount: HashMap<String, Arc<MountPool>>,
    mounts: Vec<String>,
    /// When the mounts were read; None: they are given.
    read_at: Option<i64>,
}

#[derive(Debug)]
struct MountPool {
    places: Semaphore,
    hung: AtomicUsize,
}

impl Default for Blocking {
    fn default() -> Self {
        let lanes = MountPools { read_at: Some(i64::MIN), ..MountPools::default() };
        Self {
            hung: Arc::default(),
            places: Arc::new(Semaphore::new(JOBS_PER_MOUNT_MAX)),
            lanes: Arc::new(Mutex::new(lanes)),
        }
    }
}

impl MountPools {
    /// `name` is that of work, and has the path in it that may hang; names without one share a lane.
    fn lane(&mut self, name: &str) -> Arc<MountPool> {
        self.refresh();
        let path = name.find('/').and_then(|at| name.get(at..)).unwrap_or_default();
        let holds = |mount: &&String| Path::new(path).starts_with(mount);
        let mount = self.mounts.iter().filter(holds).max_by_key(|mount| mount.len()).cloned().unwrap_or_default();
        let fresh = || Arc::new(MountPool { places: Semaphore::new(JOBS_PER_MOUNT_MAX), hung: AtomicUsize::new(0) });
        Arc::clone(self.by_mount.entry(mount).or_insert_with(fresh))
    }

    fn refresh(&mut self) {
        let Some(read_at) = self.read_at else { return };
        let now = clock_gettime(ClockId::Boottime).tv_sec;
        if now.saturating_sub(read_at) < MOUNTS_AGE_MAX {
            return;
        }
        self.read_at = Some(now);
        // To list mounts asks none of them.
        let text = procfs::read(Path::new("/proc/self/mountinfo"), MOUNTS_BYTES_MAX).unwrap_or_default();
        self.mounts = mount_points(&String::from_utf8_lossy(&text));
        self.by_mount.retain(|mount, lane| self.mounts.contains(mount) || lane.hung.load(Ordering::Relaxed) > 0);
    }
}

/// From the text of `mountinfo`, where odd characters are written in octal.
fn mount_points(text: &str) -> Vec<String> {
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    let plain = |point: &str| {
        ["\\040", "\\011", "\\012", "\\134"]
            .iter()
            .zip([" ", "\t", "\n", "\\"])
            .fold(point.to_owned(), |point, (escaped, plain)| point.replace(escaped, plain))
    };
    points.map(plain).collect()
}

impl Blocking {
    /// Work that takes a while but cannot hang. None: it has panicked, or the program ends.
    pub(crate) async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let _place = self.places.acquire().await.ok()?;
        tokio::task::spawn_blocking(work).await.ok()
    }

    /// `name` says what may hang: work of one name is not begun again while earlier work hangs.
    pub(crate) async fn run<T, F>(&self, name: &str, limit: Duration, work: F) -> Result<T, TimedOut>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let lane = self.lanes.lock().lane(name);
        let is_hung = || self.hung.lock().contains(name) || lane.hung.load(Ordering::Relaxed) >= HUNG_MAX;
        if is_hung() {
            return Err(TimedOut);
        }
        let _place =
            tokio::time::timeout(limit, lane.places.acquire()).await.map_err(|_| TimedOut)?.map_err(|_| TimedOut)?;
        if is_hung() {
            return Err(TimedOut);
        }
        let stage = Arc::new(Mutex::new(Stage::Working));
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
            if *stage == Stage::Working {
                *stage = Stage::GivenUp;
                self.hung.lock().insert(name.to_owned());
                lane.hung.fetch_add(1, Ordering::Relaxed);
                return Err(TimedOut);
            }
        }
        work.await.map_err(|_| TimedOut)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    GivenUp,
    Over,
}

/// Takes the name off the hung ones when the work ends, also by a panic.
struct Mark {
    stage: Arc<Mutex<Stage>>,
    hung: Arc<Mutex<HashSet<String>>>,
    lane: Arc<MountPool>,
    name: String,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut stage = self.stage.lock();
        if std::mem::replace(&mut *stage, Stage::Over) == Stage::GivenUp {
            self.lane.hung.fetch_sub(1, Ordering::Relaxed);
        }
        self.hung.lock().remove(&self.name);
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
    fn on(mounts: &[&str]) -> Blocking {
        let mounts = mounts.iter().map(|mount| (*mount).to_owned()).collect();
        let lanes = MountPools { mounts, ..MountPools::default() };
        Blocking { lanes: Arc::new(Mutex::new(lanes)), ..Blocking::default() }
    }

    #[tokio::test]
    async fn a_mount_that_hangs_holds_up_no_other_and_is_soon_left_alone() {
        let blocking = on(&["/", "/nfs"]);
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

    #[test]
    fn mount_points_are_read_with_their_odd_characters() {
        let text = "36 35 98:0 / / rw,noatime - ext4 /dev/root rw\n\
                    37 36 0:5 / /mnt/my\\040disk rw - nfs host:/x rw\nshort\n";

        assert_eq!(mount_points(text), ["/", "/mnt/my disk"]);
    }
}
