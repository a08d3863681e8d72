//! Finds new processes without scanning all of them again.
//!
//! The kernel allocates pids cyclically and exposes the last one, so whatever was forked since is in one range of
//! that cycle, and a listing of `/proc` can begin there.
//!
//! Promised: while nothing is forked on the machine, a scan costs one read of a small file; what is found is a
//! process, not a thread.
//! Absent: certainty. If pids wrap around within one period some are missed, which is why all are listed from time to
//! time.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek};

const BUFFER_BYTES: usize = 32 * 1024;
const PIDS_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Scan {
    loadavg: Option<File>,
    proc: Option<OwnedFd>,
    /// Where in the list a pid is: this much after its number. Found out by listing all.
    offset: Option<u64>,
}

impl Scan {
    /// The last pid that was given out. None: the kernel does not say.
    pub(crate) fn newest(&mut self) -> Option<i32> {
        if self.loadavg.is_none() {
            self.loadavg = File::open("/proc/loadavg").ok();
        }
        let mut buffer = [0; 128];
        let length = self.loadavg.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(buffer.get(..length)?).ok()?;
        text.split_ascii_whitespace().nth(4)?.parse().ok()
    }

    /// All pids.
    pub(crate) fn all(&mut self) -> io::Result<Vec<i32>> {
        let entries = self.list(0)?;
        let steps = entries.iter().zip(entries.iter().skip(1));
        let mut offsets = steps.map(|((_, position), (pid, _))| offset(*position, *pid));
        let first = offsets.next().flatten();
        self.offset = first.filter(|first| offsets.all(|other| other == Some(*first)));
        Ok(entries.into_iter().map(|(pid, _)| pid).collect())
    }

    /// Pids that were given out after `before`, up to `newest`.
    pub(crate) fn since(&mut self, before: i32, newest: i32) -> io::Result<Vec<i32>> {
        let Some(offset) = self.offset else {
            return Ok(self.all()?.into_iter().filter(|pid| is_between(*pid, before, newest)).collect());
        };
        let position = |pid: i32| offset.saturating_add(u64::try_from(pid).unwrap_or(0));
        let mut entries = self.list(position(before.saturating_add(1)))?;
        if newest < before {
            entries.extend(self.list(position(1))?);
        }
        let mut pids: Vec<i32> = entries.into_iter().map(|(pid, _)| pid).collect();
        pids.retain(|pid| is_between(*pid, before, newest));
        pids.dedup();
        Ok(pids)
    }

    /// Pids and the positions after them, from a position of the list on.
    fn list(&mut self, position: u64) -> io::Result<Vec<(i32, u64)>> {
        if self.proc.is_none() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            self.proc = Some(openat(CWD, "/proc", flags, Mode::empty())?);
        }
        let Some(proc) = &self.proc else { return Ok(Vec::new()) };
        seek(proc, SeekFrom::Start(position))?;
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(proc, &mut buffer);
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok())
                && found.len() < PIDS_MAX
            {
                found.push((pid, entry.next_entry_cookie()));
            }
        }
        Ok(found)
    }
}

fn offset(position: u64, pid: i32) -> Option<u64> {
    position.checked_sub(u64::try_from(pid).ok()?)
}

/// Whether a pid is after one and up to another, in the circle.
fn is_between(pid: i32, before: i32, newest: i32) -> bool {
    if before <= newest { pid > before && pid <= newest } else { pid > before || pid <= newest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_come_round() {
        assert!(is_between(5, 4, 6) && is_between(6, 4, 6) && !is_between(4, 4, 6) && !is_between(7, 4, 6));
        assert!(is_between(32_000, 31_000, 300) && is_between(300, 31_000, 300) && !is_between(400, 31_000, 300));
        assert!(!is_between(5, 5, 5));
    }

    #[test]
    fn a_new_process_is_in_the_stretch_and_an_old_one_is_not() {
        let mut scan = Scan::default();
        let all = scan.all().unwrap();
        let before = scan.newest().unwrap();
        let mut child = std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();

        let newest = scan.newest().unwrap();
        let new = scan.since(before, newest).unwrap();

        child.kill().unwrap();
        child.wait().unwrap();
        let us = i32::try_from(std::process::id()).unwrap();
        assert!(all.contains(&us) && !new.contains(&us), "{new:?}");
        assert!(new.contains(&pid), "{pid} after {before} up to {newest}: {new:?}");
        assert!(scan.offset.is_some(), "this kernel lists pids in order");
    }

    #[test]
    fn without_an_order_all_are_listed_and_chosen() {
        let mut scan = Scan::default();
        scan.all().unwrap();
        scan.offset = None;
        let us = i32::try_from(std::process::id()).unwrap();

        assert!(scan.since(us - 1, us).unwrap().contains(&us));
        assert!(!scan.since(us, us + 1).unwrap().contains(&us));
    }
}
