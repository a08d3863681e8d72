//! Backups of the store: made while the server runs, and restored into a new store.
//!
//! Promised of a backup: it is one snapshot of the store, made by a reader that blocks no writer; its file is
//! private, appears complete or not at all, and never replaces another; secrets are in it only as the caller sealed
//! them, also in unused pages. Promised of a restored store: it was intact; its epochs (including the control
//! plane's) and generations are beyond anything that agents have seen from the server since the backup, so they
//! accept every assignment again, and of two copies of an agent the first to connect fences off the other. A backup
//! that does not fit on disk is refused before anything is written; what a killed one left behind is removed by the
//! next backup and at server start. Absent: ending the open targets (the caller knows what to say about them), and
//! any cipher.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::connection::{self, OlderSchema};
use super::failure::{Failure, Tried};
use super::health;
use crate::{Millis, Result, StoreError};

const BACK_UP: &str = "write a backup";
const RESTORE: &str = "be restored";
/// Why an upgrade of agents has ended.
const RESTORED: &str = "the store was restored from a backup";
/// Names of drafts: the name of the store, one of these, and an id.
const BACKUP: &str = ".backup-";
const RESTORING: &str = ".restore-";
const SIDE_FILES: [&str; 4] = ["", "-wal", "-shm", "-journal"];
/// Space that others may take meanwhile, and the side files of the draft.
const SLACK_BYTES: u64 = 4 * 1024 * 1024;
/// Generations and epochs of a restored store start at the second of the restore times this: far beyond what a
/// server hands out in that time, and small enough for every JSON parser.
const NUMBERS_PER_SECOND: i64 = 1_000_000;

/// Transforms the value of a secret with this name.
pub type ChangeSecret<'a> = dyn Fn(&str, &[u8]) -> std::result::Result<Vec<u8>, String> + Send + 'a;

/// Copies the store at `path` to the new file `to`, with every secret sealed and `note` stored as an additional
/// one.
pub(super) fn back_up(path: &Path, to: &Path, seal: &ChangeSecret<'_>, note: Option<(&str, &[u8])>) -> Result<()> {
    if to.exists() {
        return Err(failed(BACK_UP, format!("{} already exists", to.display())));
    }
    remove_drafts(path);
    let needed = copied_bytes(path).map_err(|failure| failure.of(BACK_UP))?;
    Room::of(path, to).check(needed, health::free_bytes).map_err(|problem| failed(BACK_UP, problem))?;
    // Beside the store, where its secrets are anyway; the backup itself never contains them.
    // SQLite would create it with the mode that the umask leaves; it accepts an existing empty file.
    let draft = Draft::create(path, BACKUP).map_err(|error| failed(BACK_UP, error))?;
    let copied = (|| -> Tried<()> {
        connection::copy_into(path, &draft.path)?;
        let copy = connection::open(&draft.path)?;
        copy.pragma_update(None, "secure_delete", true)?;
        copy.pragma_update(None, "journal_mode", "MEMORY")?;
        change_secrets(&copy, seal)?;
        if let Some((name, value)) = note {
            copy.execute("INSERT INTO secret (name, value) VALUES (?1, ?2)", (name, value))?;
        }
        Ok(())
    })();
    copied.map_err(|failure| failure.of(BACK_UP))?;
    copy_file(&draft.path, to).map_err(|error| failed(BACK_UP, format!("cannot create {}: {error}", to.display())))
}

/// The size of the copy: without unused pages.
fn copied_bytes(path: &Path) -> Tried<u64> {
    let store = connection::open(path)?;
    let read = |name: &str| -> Tried<i64> { Ok(store.pragma_query_value(None, name, |row| row.get(0))?) };
    Ok(((read("page_count")? - read("freelist_count")?) * read("page_size")?).max(0).cast_unsigned())
}

/// Where a backup needs space: for a draft beside the store, and for the copy.
struct Room {
    store: PathBuf,
    copy: PathBuf,
    is_shared: bool,
}

impl Room {
    fn of(store: &Path, copy: &Path) -> Self {
        let (store, copy) = (dir_of(store).to_owned(), dir_of(copy).to_owned());
        let device = |dir: &Path| std::fs::metadata(dir).ok().map(|dir| dir.dev());
        let is_shared = device(&store) == device(&copy);
        Self { store, copy, is_shared }
    }

    /// `free` returns the free bytes of a file system, if known.
    fn check(&self, needed: u64, free: impl Fn(&Path) -> Option<u64>) -> std::result::Result<(), String> {
        let directories = match self.is_shared {
            true => vec![(&self.store, 2 * needed, "a draft and the copy")],
            false => vec![(&self.store, needed, "a draft"), (&self.copy, needed, "the copy")],
        };
        for (dir, needed, what) in directories {
            let needed = needed + SLACK_BYTES;
            if let Some(free) = free(dir).filter(|free| *free < needed) {
                let mib = |bytes: u64| bytes.div_ceil(1024 * 1024);
                return Err(format!(
                    "{} has {} MiB free and {} MiB are needed, for {what}: make room, or write the copy to another disk",
                    dir.display(),
                    free / (1024 * 1024),
                    mib(needed)
                ));
            }
        }
        Ok(())
    }
}

/// Restores a backup into the new store `to`. The note is dropped.
pub(super) fn restore(from: &Path, to: &Path, open: &ChangeSecret<'_>, note: &str, now: Millis) -> Result<()> {
    if to.exists() {
        return Err(failed(RESTORE, format!("{} already exists, and a store is never replaced", to.display())));
    }
    remove_drafts(to);
    let draft = Draft::create(to, RESTORING).map_err(|error| failed(RESTORE, error))?;
    let copied = File::open(from).and_then(|mut source| fill(&mut source, &draft.file));
    copied.map_err(|error| failed(RESTORE, format!("cannot copy {}: {error}", from.display())))?;
    let checked = connection::open(&draft.path).and_then(|copy| check(&copy));
    checked.map_err(|failure| failure.of(RESTORE))?;
    // Migrated to this program's schema at a path where no server looks.
    let copy = connection::writer(&draft.path, None, OlderSchema::Migrate)?;
    let prepared = (|| -> Tried<()> {
        copy.execute("DELETE FROM secret WHERE name = ?1", [note])?;
        change_secrets(&copy, open)?;
        raise_numbers(&copy, now)?;
        // One file, without a log beside it.
        copy.pragma_update(None, "journal_mode", "DELETE")?;
        Ok(())
    })();
    drop(copy);
    prepared.map_err(|failure| failure.of(RESTORE))?;
    let moved = std::fs::rename(&draft.path, to).and_then(|()| sync_dir(to));
    moved.map_err(|error| failed(RESTORE, format!("cannot write {}: {error}", to.display())))
}

/// The value of a secret in a backup, without changing the file.
pub(super) fn note(from: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    if !from.exists() {
        return Err(failed(RESTORE, format!("there is no file {}", from.display())));
    }
    let read = (|| -> Tried<Option<Vec<u8>>> {
        let copy = connection::open_read_only(from)?;
        let mut statement = copy.prepare("SELECT value FROM secret WHERE name = ?1")?;
        let mut rows = statement.query([name])?;
        Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
    })();
    read.map_err(|failure| failure.of(RESTORE))
}

fn failed(what: &'static str, problem: String) -> StoreError {
    StoreError::Failed { what, source: problem.into() }
}

fn check(copy: &Connection) -> Tried<()> {
    let found: String = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(Failure::Damaged(format!("backup: {found}"))) }
}

fn change_secrets(copy: &Connection, change: &ChangeSecret<'_>) -> Tried<()> {
    let mut all = copy.prepare("SELECT name, value FROM secret")?;
    let all: Vec<(String, Vec<u8>)> =
        all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    for (name, value) in all {
        let changed = change(&name, &value).map_err(Failure::Argument)?;
        copy.execute("UPDATE secret SET value = ?2 WHERE name = ?1", (&name, changed))?;
    }
    Ok(())
}

/// Agents rely on epochs and generations only ever rising, across restores too.
fn raise_numbers(copy: &Connection, now: Millis) -> Tried<()> {
    let base = now / 1000 * NUMBERS_PER_SECOND;
    let newest: i64 = copy.query_row("SELECT newest FROM generation", [], |row| row.get(0))?;
    // Still rises if the clock went back.
    let by = (base - newest).max(NUMBERS_PER_SECOND);
    copy.execute("UPDATE process SET generation = generation + ?1", [by])?;
    copy.execute("UPDATE pool SET generation = generation + ?1", [by])?;
    copy.execute("UPDATE generation SET newest = newest + ?1", [by])?;
    copy.execute("UPDATE host SET epoch = max(epoch + ?2, ?1), online = 0", (base, NUMBERS_PER_SECOND))?;
    // Nobody knows any more what hosts were told since then, and what runs there.
    copy.execute(
        "UPDATE upgrade_host SET state = 'skipped', reason = ?1, phrase = NULL WHERE state IN ('waiting', 'upgrading')",
        [RESTORED],
    )?;
    copy.execute(
        "UPDATE upgrade SET state = 'cancelled', reason = ?1, phrase = NULL WHERE state IN ('running', 'paused')",
        [RESTORED],
    )?;
    // By the clock, so that two restores of the same backup differ.
    copy.execute("UPDATE control_plane SET epoch = max(epoch + 1, ?1)", [now / 1000])?;
    Ok(())
}

/// A file under construction, removed unless it is moved to its final path. Its lock is held while somebody works
/// on it.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn create(beside: &Path, purpose: &str) -> std::result::Result<Self, String> {
        let mut name = beside.as_os_str().to_owned();
        name.push(format!("{purpose}{}", uuid::Uuid::new_v4().simple()));
        let path = PathBuf::from(name);
        let cannot = |error: std::io::Error| format!("cannot create {}: {error}", path.display());
        let file = private_new(&path).map_err(cannot)?;
        file.lock().map_err(cannot)?;
        Ok(Self { path, file })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        remove_draft(&self.path);
    }
}

fn remove_draft(path: &Path) {
    for suffix in SIDE_FILES {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = std::fs::remove_file(name);
    }
}

/// Removes what killed programs left beside the store: drafts that nobody works on.
pub(super) fn remove_drafts(store: &Path) {
    let Some(name) = store.file_name().and_then(OsStr::to_str) else { return };
    for entry in std::fs::read_dir(dir_of(store)).into_iter().flatten().flatten() {
        let path = entry.path();
        let draft = entry
            .file_name()
            .to_str()
            .and_then(|entry| entry.strip_prefix(name))
            .and_then(|rest| [BACKUP, RESTORING].iter().find_map(|purpose| rest.strip_prefix(*purpose)))
            .map(str::to_owned);
        // The side files have suffixes, and are removed with their draft.
        let is_draft = draft.is_some_and(|id| uuid::Uuid::try_parse(&id).is_ok());
        let is_left = || File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if is_draft && is_left() {
            remove_draft(&path);
        }
    }
}

/// A new private file.
fn private_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Private, synced, and never over an existing file.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut source = File::open(from)?;
    let target = private_new(to)?;
    let copied = fill(&mut source, &target);
    if copied.is_err() {
        let _ = std::fs::remove_file(to);
    }
    copied.and_then(|()| sync_dir(to))
}

fn fill(source: &mut File, mut target: &File) -> std::io::Result<()> {
    std::io::copy(source, &mut target)?;
    target.sync_all()
}

fn sync_dir(file: &Path) -> std::io::Result<()> {
    File::open(dir_of(file))?.sync_all()
}

fn dir_of(file: &Path) -> &Path {
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn a_backup_without_room_says_how_much_it_needs_and_where() {
        let (store, copy) = (PathBuf::from("/store"), PathBuf::from("/copy"));
        let apart = Room { store: store.clone(), copy: copy.clone(), is_shared: false };
        let shared = Room { store, copy, is_shared: true };
        let free = |store: u64, copy: u64| move |dir: &Path| Some(if dir.ends_with("store") { store } else { copy });

        assert_eq!(apart.check(10 * MIB, free(20 * MIB, 20 * MIB)), Ok(()));
        assert_eq!(apart.check(10 * MIB, |_| None), Ok(()), "a file system that does not say is tried");
        let full = apart.check(10 * MIB, free(20 * MIB, 5 * MIB)).unwrap_err();
        assert!(full.starts_with("/copy has 5 MiB free and 14 MiB are needed, for the copy"), "{full}");
        let full = apart.check(10 * MIB, free(5 * MIB, 20 * MIB)).unwrap_err();
        assert!(full.starts_with("/store has 5 MiB free and 14 MiB are needed, for a draft"), "{full}");
        let full = shared.check(10 * MIB, free(20 * MIB, 20 * MIB)).unwrap_err();
        assert!(full.starts_with("/store has 20 MiB free and 24 MiB are needed, for a draft and the copy"), "{full}");
        assert_eq!(shared.check(10 * MIB, free(24 * MIB, 0)), Ok(()));
    }
}
