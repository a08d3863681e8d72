//! One process that is measured repeatedly, through files that stay open.
//!
//! Promised: a figure is always that of the process that was opened, never of another with a reused pid: the open
//! file of an exited process returns nothing, and what is read by pid (the CPU clock) counts only if that file still
//! answers afterwards.
//! Absent: sums over trees.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::procfs::{Pages, Stat, is_lack};
use crate::tree::ProcessRef;

const TEXT_BYTES_MAX: usize = 4096;
const FDS_COUNTED_MAX: usize = 65_536;
/// CPUCLOCK_SCHED of the kernel's encoding of the clocks of processes.
const CLOCK_OF_PROCESS: i32 = 2;

/// How many descriptors may be kept open.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    kept: Arc<AtomicUsize>,
    max: usize,
}

impl Slots {
    pub(crate) fn new(max: usize) -> Self {
        Self { kept: Arc::default(), max }
    }

    /// None: no slot is free, or it cannot be opened.
    pub(crate) fn keep(&self, open: impl FnOnce() -> io::Result<File>) -> Option<Kept> {
        if self.kept.fetch_add(1, Ordering::Relaxed) < self.max
            && let Ok(file) = open()
        {
            return Some(Kept { file, slots: self.clone() });
        }
        self.kept.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Whether there are descriptors for more than one per life.
    pub(crate) fn has_room_for_more(&self) -> bool {
        self.kept() < self.max / 4
    }

    pub(crate) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

/// A file that stays open.
#[derive(Debug)]
pub(crate) struct Kept {
    file: File,
    slots: Slots,
}

impl Kept {
    /// What the file says now, from its beginning.
    pub(crate) fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let length = self.file.read_at(buffer, 0)?;
        Ok(buffer.get(..length).unwrap_or_default())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.slots.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) member: ProcessRef,
    statm: Option<Kept>,
    /// Only of those that run now and then.
    stat: Option<Kept>,
    /// CPU time of the children that it has waited for.
    children_ticks: u64,
    /// Its own CPU time when that was read: a process that has not run since has waited for no child.
    own_nanos: Option<u64>,
}

impl Handle {
    /// None: no such process lives.
    pub(crate) fn open(member: ProcessRef, slots: &Slots) -> io::Result<Option<Self>> {
        let Some((directory, stat)) = look(member)? else { return Ok(None) };
        let statm = slots.keep(|| open_in(&directory, "statm"));
        let children_ticks = stat.children_ticks();
        Ok(Some(Self { member, statm, stat: None, children_ticks, own_nanos: None }))
    }

    /// CPU time of the process and of the children that it has waited for, in nanoseconds. It is this
    /// process's only if [`Self::pages`] answers afterwards.
    ///
    /// To read `stat` costs several times as much as all the rest of a sample, so it is read only when
    /// the process has run.
    pub(crate) fn cpu_nanos(&mut self, ticks_per_second: u64, slots: &Slots) -> u64 {
        let tick_nanos = 1_000_000_000 / ticks_per_second.max(1);
        let clock = clock_of(self.member.pid);
        let mut own_ticks = 0;
        if (clock.is_none() || clock != self.own_nanos)
            && let Some(stat) = self.read_stat(slots)
        {
            self.children_ticks = stat.children_ticks();
            self.own_nanos = clock;
            own_ticks = stat.user_ticks.saturating_add(stat.system_ticks);
        }
        let own = clock.unwrap_or_else(|| own_ticks.saturating_mul(tick_nanos));
        own.saturating_add(self.children_ticks.saturating_mul(tick_nanos))
    }

    fn read_stat(&mut self, slots: &Slots) -> Option<Stat> {
        if let Some(kept) = &self.stat {
            return Stat::parse(kept.read(&mut [0; TEXT_BYTES_MAX]).ok()?);
        }
        // Once it was read, the process is one that runs and will be read again.
        if self.own_nanos.is_some() && slots.has_room_for_more() {
            let (directory, stat) = look(self.member).ok()??;
            self.stat = slots.keep(|| open_in(&directory, "stat"));
            return Some(stat);
        }
        Stat::of(self.member.pid).ok().filter(|stat| stat.start_ticks == self.member.start_ticks)
    }

    /// None: it has exited.
    pub(crate) fn pages(&self) -> io::Result<Option<Pages>> {
        let mut buffer = [0; 256];
        if let Some(kept) = &self.statm {
            return match kept.read(&mut buffer) {
                Ok(text) => Ok(Pages::parse(text)),
                Err(error) if is_lack(&error) => Err(error),
                Err(_) => Ok(None),
            };
        }
        let pid = self.member.pid;
        let length = File::open(format!("/proc/{pid}/statm")).and_then(|file| file.read_at(&mut buffer, 0));
        // Afterwards: who is the same process now was so all the time.
        match length.and_then(|length| Ok((length, Stat::of(pid)?))) {
            Ok((length, stat)) if stat.start_ticks == self.member.start_ticks => {
                Ok(Pages::parse(buffer.get(..length).unwrap_or_default()))
            }
            Err(error) if is_lack(&error) => Err(error),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// How many descriptors it has open. It is this process's only if [`Self::pages`] answers
    /// afterwards.
    pub(crate) fn descriptors(&self) -> Option<u64> {
        let path = format!("/proc/{}/fd", self.member.pid);
        let path = Path::new(&path);
        // Linux 6.2 and later count them for us; others give no size.
        match std::fs::metadata(path).ok()?.len() {
            0 => u64::try_from(std::fs::read_dir(path).ok()?.take(FDS_COUNTED_MAX).count()).ok(),
            count => Some(count),
        }
    }
}

/// The directory of a living process: through it, everything is of one process.
fn look(member: ProcessRef) -> io::Result<Option<(OwnedFd, Stat)>> {
    let found = (|| -> io::Result<Option<(OwnedFd, Stat)>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, format!("/proc/{}", member.pid), flags, Mode::empty())?;
        let mut buffer = [0; TEXT_BYTES_MAX];
        let length = open_in(&directory, "stat")?.read_at(&mut buffer, 0)?;
        let stat = Stat::parse(buffer.get(..length).unwrap_or_default());
        let stat = stat.filter(|stat| stat.start_ticks == member.start_ticks && !stat.is_dead());
        Ok(stat.map(|stat| (directory, stat)))
    })();
    match found {
        Err(error) if is_lack(&error) => Err(error),
        Err(_) => Ok(None),
        found => found,
    }
}

fn open_in(directory: &OwnedFd, name: &str) -> io::Result<File> {
    Ok(openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// CPU time of all threads of a process, ended ones included.
fn clock_of(pid: i32) -> Option<u64> {
    let clock = (!pid).wrapping_shl(3) | CLOCK_OF_PROCESS;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[allow(unsafe_code, reason = "rustix takes no clocks of other processes")]
    // SAFETY: the kernel writes one timespec to `time`, which outlives the call; a number that is
    // no clock is refused.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    (result == 0).then(|| seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_is_not_shared_and_a_zombie_has_none() {
        assert_eq!(Pages::parse(b"100 30 10 1 0 5 0\n"), Some(Pages { resident: 30, private: 20 }));
        assert_eq!(Pages::parse(b"100 3 10 1 0 5 0\n"), Some(Pages { resident: 3, private: 0 }));
        for text in ["0 0 0 0 0 0 0\n", "", "1", "1 2", "x 2 3", "-1 2 3"] {
            assert_eq!(Pages::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_clock_of_a_process_runs_and_no_process_has_none() {
        let ours = i32::try_from(std::process::id()).unwrap();

        let first = clock_of(ours).unwrap();
        while clock_of(ours).unwrap() == first {}

        assert_eq!(clock_of(i32::MAX >> 3), None);
    }

    #[test]
    fn without_a_slot_a_process_is_measured_all_the_same() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let member = ProcessRef { pid, start_ticks: Stat::of(pid).unwrap().start_ticks };
        let earlier = ProcessRef { start_ticks: member.start_ticks - 1, ..member };
        let none = Slots::new(0);

        let handle = Handle::open(member, &none).unwrap().unwrap();
        let other = Handle { member: earlier, ..Handle::open(member, &none).unwrap().unwrap() };

        assert!(handle.pages().unwrap().is_some_and(|pages| pages.private > 0));
        assert!(handle.descriptors().is_some_and(|count| count > 2));
        assert_eq!(other.pages().unwrap(), None, "another life of that pid");
        assert!(Handle::open(earlier, &none).unwrap().is_none());
        assert_eq!(none.kept(), 0);
    }

    #[test]
    fn no_more_descriptors_are_kept_than_there_are_slots() {
        let slots = Slots::new(1);
        let open = || File::open("/dev/null");

        let first = slots.keep(open);
        let second = slots.keep(open);
        drop(first);
        let third = slots.keep(open);

        assert!(second.is_none() && third.is_some());
        assert_eq!(slots.kept(), 1);
    }
}
