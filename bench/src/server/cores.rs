//! CPU affinity.

use std::fs;

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two of the cores that this program may use: one for the server, one for its callers.
pub(super) fn two() -> Result<(usize, usize)> {
    let mine = sched_getaffinity(None)?;
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|core| mine.is_set(*core));
    allowed.next().zip(allowed.next()).context("this needs two cores")
}

/// Every thread of the process; later ones inherit it.
pub(super) fn pin(pid: u32, core: usize) -> Result<()> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let id: i32 = thread?.file_name().to_string_lossy().parse()?;
        sched_setaffinity(Pid::from_raw(id), &only(core))?;
    }
    Ok(())
}

/// The calling thread.
pub(super) fn pin_here(core: usize) -> Result<()> {
    Ok(sched_setaffinity(None, &only(core))?)
}

/// All threads of this program are on one core until this is dropped.
pub(super) struct Aside(CpuSet);

impl Aside {
    pub(super) fn on(core: usize) -> Result<Self> {
        let before = sched_getaffinity(None)?;
        pin(std::process::id(), core)?;
        Ok(Self(before))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let id = thread.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            let _ = sched_setaffinity(id, &self.0);
        }
    }
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}
