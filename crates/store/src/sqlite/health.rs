//! Whether the file can be read and written.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rusqlite::Connection;

use super::failure::{Failure, Tried};
use crate::DiskSpace;

/// With less than this, most changes fail although a very small one may still fit into the log.
const FREE_BYTES_MIN: u64 = 1024 * 1024;

/// The header of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Queries SQLite, which may answer from its cache, and checks that the file is still at its path: writes to a
/// deleted file succeed, and are lost when the last descriptor is closed.
///
/// `file` was opened with the store. Opening and closing it here would release all locks that SQLite has on it in this
/// process: another program that closes the store would then delete the log under the server.
pub(super) fn read(connection: &Connection, file: &File, path: &Path) -> Tried<()> {
    let mut begins = [0; MAGIC.len()];
    let of = |found: Metadata| (found.dev(), found.ino());
    let there = std::fs::metadata(path).and_then(|found| Ok(of(found) == of(file.metadata()?)));
    let read = there.and_then(|is_same| file.read_exact_at(&mut begins, 0).map(|()| is_same));
    let is_same =
        read.map_err(|error| Failure::Damaged(format!("file: it cannot be read any more ({})", error.kind())))?;
    if !is_same {
        return Err(Failure::Damaged("file: another one is in its place".to_owned()));
    }
    if begins != *MAGIC {
        return Err(Failure::Damaged("file: it is no longer an SQLite file".to_owned()));
    }
    Ok(connection.query_row("SELECT count(*) FROM secret", [], |_| Ok(()))?)
}

/// Commits a page with its old contents.
pub(super) fn write(connection: &Connection, path: &Path) -> Tried<()> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", version)?;
    if disk_space(path).is_some_and(|space| space.free_bytes < FREE_BYTES_MIN) {
        return Err(Failure::Full);
    }
    Ok(())
}

/// None if the file system does not say.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    disk_space(path).map(|space| space.free_bytes)
}

/// None if the file system does not say.
pub(super) fn disk_space(path: &Path) -> Option<DiskSpace> {
    let file_system = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(file_system.f_frsize);
    Some(DiskSpace { free_bytes: bytes(file_system.f_bavail), total_bytes: bytes(file_system.f_blocks) })
}
