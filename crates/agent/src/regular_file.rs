//! Regular files that belong to others: opened without blocking, recognised when they change.
//!
//! Promised: a pipe, a device or a directory is an error and never blocks; what is reported about a file is about the
//! one that was opened.
//! Absent: a timeout. A mount may hang, so callers read such files on a thread where that does no harm.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// What changes when a file is written, replaced, or given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Also detects a new owner or mode, and a modification time that was set back.
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Unix seconds of its last change.
    pub(crate) fn changed_at(&self) -> i64 {
        self.changed.0
    }
}

pub(crate) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    // Without O_NONBLOCK the opening of a pipe waits for its writer.
    let file = File::from(open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok((file, metadata))
}
