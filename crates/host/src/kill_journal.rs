//! An on-disk journal of processes about to be frozen and killed: an agent that dies in between must not leave any of
//! them stopped forever.
//!
//! Promised: entries survive the agent, and need no disk space that was not allocated at startup.
//! Absent: fsync. After a power loss there is nothing left to kill.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use proctor_model::BootId;
use rustix::fs::{FallocateFlags, fallocate};

use crate::tree::ProcessRef;

const NAME: &str = "killing";
/// Room for about ten thousand processes; more are killed anyway.
const BYTES_MAX: usize = 256 * 1024;
const END: &str = "end\n";

#[derive(Debug)]
pub(crate) struct Journal {
    /// None: it cannot be written here.
    file: Option<File>,
    boot: BootId,
}

impl Journal {
    pub(crate) fn open(state_dir: &Path, boot: BootId) -> Self {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(state_dir.join(NAME));
        let file = opened.inspect_err(|error| {
            tracing::warn!(%error, "no kill journal: a crash during a kill would leave processes stopped");
        });
        let file = file.ok();
        if let Some(file) = &file {
            // If the file system cannot preallocate, it allocates when writing.
            let _ = fallocate(file, FallocateFlags::empty(), 0, BYTES_MAX as u64);
        }
        Self { file, boot }
    }

    /// Replaces what was written before.
    pub(crate) fn write(&self, members: impl IntoIterator<Item = ProcessRef>) {
        let mut text = format!("{}\n", self.boot.as_str());
        for ProcessRef { pid, start_ticks } in members {
            let _ = writeln!(text, "{pid} {start_ticks}");
            if text.len() >= BYTES_MAX - 64 {
                break;
            }
        }
        text.push_str(END);
        self.put(&text);
    }

    pub(crate) fn clear(&self) {
        self.put(END);
    }

    /// Processes that were about to be killed when the last agent died, during this boot.
    pub(crate) fn read(&self) -> Vec<ProcessRef> {
        let Some(file) = &self.file else { return Vec::new() };
        let mut bytes = vec![0; BYTES_MAX];
        let Ok(length) = file.read_at(&mut bytes, 0) else { return Vec::new() };
        let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default());
        let mut lines = text.lines();
        if lines.next() != Some(self.boot.as_str()) {
            return Vec::new();
        }
        lines.map_while(parse).collect()
    }

    fn put(&self, text: &str) {
        if let Some(file) = &self.file
            && let Err(error) = file.write_all_at(text.as_bytes(), 0)
        {
            tracing::warn!(%error, "cannot write kill journal");
        }
    }
}

fn parse(line: &str) -> Option<ProcessRef> {
    let (pid, start_ticks) = line.split_once(' ')?;
    Some(ProcessRef { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_last_is_read_on_the_same_boot_only() {
        let directory = tempfile::tempdir().unwrap();
        let journal = |boot: &str| Journal::open(directory.path(), BootId::from(boot));
        let member = |pid| ProcessRef { pid, start_ticks: 7 };

        assert_eq!(journal("a").read(), []);
        journal("a").write([member(1), member(2), member(3)]);
        journal("a").write([member(4)]);

        assert_eq!(journal("a").read(), [member(4)]);
        assert_eq!(journal("b").read(), []);
        journal("a").clear();
        assert_eq!(journal("a").read(), []);
    }

    #[test]
    fn more_than_there_is_room_for_is_cut() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path(), BootId::from("a"));

        journal.write((1..100_000).map(|pid| ProcessRef { pid, start_ticks: u64::MAX }));

        let read = journal.read().len();
        assert!((5000..100_000).contains(&read), "{read}");
        assert!(std::fs::metadata(directory.path().join(NAME)).unwrap().len() <= BYTES_MAX as u64);
    }
}
