//! Copies of the store: made beside a running server, and turned into a store again.
//!
//! Promised of a copy: it is one state of the store, made by a reader that holds up no writer; its file is for its owner
//! alone, is there whole or not at all, and never replaces another; a secret stands in it only as the caller sealed it,
//! also in pages that are no longer used. Promised of a restored store: it was intact; its epochs and generations are
//! beyond all that agents have seen of the server since the copy was made, so that they take every assignment anew, and
//! of two copies of an agent the one that comes first fences the other. Absent: what ends the open targets (the
//! caller, who knows what to say about them), and any cipher.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::connection;
use super::failure::{Failure, Tried};
use crate::{Millis, Result, StoreError};

const BACK_UP: &str = "write a backup";
const RESTORE: &str = "be restored";
/// Generations and epochs of a restored store begin at the second of the restore times this: far beyond what a
/// server gives out in that time, and small enough for every reader of JSON.
const NUMBERS_PER_SECOND: i64 = 1_000_000;

/// Changes the value of a secret with this name.
pub type ChangeSecret<'a> = dyn Fn(&str, &[u8]) -> std::result::Result<Vec<u8>, String> + Send + 'a;

/// Copies the store in `path` to the new file `to`, with every secret sealed and `note` as a further one.
pub(super) fn back_up(path: &Path, to: &Path, seal: &ChangeSecret<'_>, note: Option<(&str, &[u8])>) -> Result<()> {
    if to.exists() {
        return Err(failed(BACK_UP, format!("{} is there already", to.display())));
    }
    // Beside the store, where its secrets are anyway; the copy itself never holds them.
    let draft = Draft::new(path, "backup");
    // SQLite would make it with the mode that the umask leaves; an empty file it takes as it is.
    drop(
        private_new(&draft.0)
            .map_err(|error| failed(BACK_UP, format!("cannot create {}: {error}", draft.0.display())))?,
    );
    let copied = (|| -> Tried<()> {
        connection::copy_into(path, &draft.0)?;
        let copy = connection::open(&draft.0)?;
        copy.pragma_update(None, "secure_delete", true)?;
        copy.pragma_update(None, "journal_mode", "MEMORY")?;
        change_secrets(&copy, seal)?;
        if let Some((name, value)) = note {
            copy.execute("INSERT INTO secret (name, value) VALUES (?1, ?2)", (name, value))?;
        }
        Ok(())
    })();
    copied.map_err(|failure| failure.of(BACK_UP))?;
    copy_file(&draft.0, to).map_err(|error| failed(BACK_UP, format!("cannot create {}: {error}", to.display())))
}

/// Makes a store in `to`, where there is none, from a backup. The note is left out.
pub(super) fn restore(from: &Path, to: &Path, open: &ChangeSecret<'_>, note: &str, now: Millis) -> Result<()> {
    if to.exists() {
        return Err(failed(RESTORE, format!("{} is there already, and a store is never replaced", to.display())));
    }
    let draft = Draft::new(to, "restore");
    copy_file(from, &draft.0).map_err(|error| failed(RESTORE, format!("cannot copy {}: {error}", from.display())))?;
    let checked = connection::open(&draft.0).and_then(|copy| check(&copy));
    checked.map_err(|failure| failure.of(RESTORE))?;
    // Brings it to this program's schema, in a place where no server looks.
    let copy = connection::writer(&draft.0, None, false)?;
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
    let moved = std::fs::rename(&draft.0, to).and_then(|()| sync_dir(to));
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

/// To the agents, epochs and generations only ever rise, also over a restore.
fn raise_numbers(copy: &Connection, now: Millis) -> Tried<()> {
    let base = now / 1000 * NUMBERS_PER_SECOND;
    let newest: i64 = copy.query_row("SELECT newest FROM generation", [], |row| row.get(0))?;
    // A clock that went back still leads up.
    let by = (base - newest).max(NUMBERS_PER_SECOND);
    copy.execute("UPDATE process SET generation = generation + ?1", [by])?;
    copy.execute("UPDATE pool SET generation = generation + ?1", [by])?;
    copy.execute("UPDATE generation SET newest = newest + ?1", [by])?;
    copy.execute("UPDATE host SET epoch = max(epoch + ?2, ?1), online = 0", (base, NUMBERS_PER_SECOND))?;
    Ok(())
}

/// A file in the making, which is gone unless it is moved away.
struct Draft(PathBuf);

impl Draft {
    fn new(beside: &Path, purpose: &str) -> Self {
        let mut name = beside.as_os_str().to_owned();
        name.push(format!(".{purpose}-{}", uuid::Uuid::new_v4().simple()));
        Self(name.into())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = self.0.as_os_str().to_owned();
            name.push(suffix);
            let _ = std::fs::remove_file(name);
        }
    }
}

/// A new file for its owner alone.
fn private_new(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// For its owner alone, synced, and never over another file.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = private_new(to)?;
    let copied = std::io::copy(&mut source, &mut target).and_then(|_| target.sync_all());
    if copied.is_err() {
        let _ = std::fs::remove_file(to);
    }
    copied.and_then(|()| sync_dir(to))
}

fn sync_dir(file: &Path) -> std::io::Result<()> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(dir)?.sync_all()
}
