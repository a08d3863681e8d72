//! What the wall clock has said during this boot: it is set from time to time, and file times keep what it said
//! before.
//!
//! Promised: the earliest wall-clock time that any agent of this state directory has seen during this boot is known,
//! even after a restart of the agent.
//! Absent: what the clock said while no agent ran.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use proctor_model::BootId;
use proctor_runtime::{clock, private};
use rustix::time::{ClockId, clock_gettime};

use crate::procfs;

/// In the state directory: the boot, and the earliest time of it in Unix milliseconds.
const FILE: &str = "clock";
const BYTES_MAX: u64 = 256;
/// A smaller difference is drift, not a clock that was set.
pub(crate) const DRIFT_MILLIS_MAX: u64 = 2000;

#[derive(Debug)]
pub(crate) struct WallClock {
    path: PathBuf,
    boot: BootId,
    /// Unix milliseconds of the boot by the clock that was furthest behind.
    earliest: Mutex<i64>,
}

impl WallClock {
    pub(crate) fn open(state_dir: &Path, boot: BootId) -> Self {
        let path = state_dir.join(FILE);
        let known = read(&path, &boot);
        let clock = Self { path, boot, earliest: Mutex::new(known.unwrap_or(i64::MAX)) };
        clock.note(boot_millis());
        clock
    }

    /// When the boot was, by the current clock.
    pub(crate) fn note(&self, boot_millis: i64) {
        let mut earliest = self.earliest.lock();
        if boot_millis.saturating_add_unsigned(DRIFT_MILLIS_MAX) >= *earliest && *earliest != i64::MAX {
            return;
        }
        *earliest = boot_millis;
        let text = format!("{} {boot_millis}\n", self.boot.as_str());
        if let Err(error) = private::write(&self.path, &text) {
            tracing::warn!(%error, path = %self.path.display(), "cannot record boot time");
        }
    }

    /// Unix milliseconds of the boot by the clock that was furthest behind.
    pub(crate) fn earliest_boot_millis(&self) -> i64 {
        *self.earliest.lock()
    }
}

/// Unix milliseconds of the boot by the wall clock as it is set now.
pub(crate) fn boot_millis() -> i64 {
    clock::unix_millis().saturating_sub(millis(since_boot()))
}

pub(crate) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn read(path: &Path, boot: &BootId) -> Option<i64> {
    let text = procfs::read(path, BYTES_MAX).ok()?;
    let text = String::from_utf8(text).ok()?;
    let (of, millis) = text.trim().split_once(' ')?;
    (of == boot.as_str()).then(|| millis.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_of_a_boot_outlives_the_agent_and_ends_with_the_boot() {
        let directory = tempfile::tempdir().unwrap();
        let open = |boot: &str| WallClock::open(directory.path(), BootId::from(boot));
        let now = boot_millis();
        let is_now = |earliest: i64| earliest.abs_diff(now) < 60_000;

        let clock = open("a");
        let at_first = clock.earliest_boot_millis();
        clock.note(now - 3_600_000);
        clock.note(now + 3_600_000);

        assert!(is_now(at_first));
        assert_eq!(clock.earliest_boot_millis(), now - 3_600_000);
        assert_eq!(open("a").earliest_boot_millis(), now - 3_600_000);
        assert!(is_now(open("b").earliest_boot_millis()), "of another boot");
        std::fs::write(directory.path().join(FILE), "garbage").unwrap();
        assert!(is_now(open("b").earliest_boot_millis()));
    }
}
