//! Private files and directories, whatever the umask and whatever existed before.
//!
//! Promised: a directory that somebody else owns or may write is refused with advice; one that others may only read
//! is closed to them. Absent: checks of parent directories.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    #[error("cannot use the directory {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} is not a directory")]
    NoDirectory { path: PathBuf },
    #[error(
        "the directory {path} belongs to uid {owner}, not to uid {us} that runs this: chown it, or use another one"
    )]
    Owner { path: PathBuf, owner: u32, us: u32 },
    #[error("the directory {path} may be written by others (mode {mode:04o}): check what is in it, then chmod 700 it")]
    Writable { path: PathBuf, mode: u32 },
}

/// Creates the directory, or uses the existing one if it is ours alone.
pub fn dir(path: &Path) -> Result<(), PrivateError> {
    let failed = |source| PrivateError::Io { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path).map_err(failed)?;
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_dir() {
        return Err(PrivateError::NoDirectory { path: path.to_owned() });
    }
    let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != us {
        return Err(PrivateError::Owner { path: path.to_owned(), owner, us });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(PrivateError::Writable { path: path.to_owned(), mode });
    }
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(DIRECTORY)).map_err(failed)?;
        tracing::info!(path = %path.display(), "directory closed to others (mode 0700)");
    }
    Ok(())
}

/// Opens the file for reading and writing, creates it if absent, and closes it to others. Does not follow a link.
pub fn file(path: &Path) -> io::Result<File> {
    let file = options().read(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(FILE))?;
    }
    Ok(file)
}

/// A new file for writing. Whatever existed under this name is removed: it may have another mode, or be a link.
pub fn new_file(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    options().create_new(true).open(path)
}

/// Atomic and durable: written beside, synced, renamed, and the directory synced.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = new_file(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(FILE).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_directory_is_private_and_one_that_others_may_read_is_closed() {
        let root = tempfile::tempdir().unwrap();
        let (new, old) = (root.path().join("a/b"), root.path().join("old"));
        std::fs::create_dir(&old).unwrap();
        set_mode(&old, 0o755);

        dir(&new).unwrap();
        dir(&old).unwrap();

        assert_eq!((mode(&new), mode(&old)), (0o700, 0o700));
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused_and_left_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        for open in [0o777, 0o1777, 0o770, 0o702] {
            set_mode(root.path(), open);

            let error = dir(root.path()).unwrap_err();

            assert!(matches!(error, PrivateError::Writable { mode, .. } if mode == open), "{error}");
            assert_eq!(mode(root.path()), open);
        }
        set_mode(root.path(), 0o700);
    }

    #[test]
    fn a_file_is_private_whatever_it_was_before_and_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("ledger.db");
        std::fs::write(&path, "kept").unwrap();
        set_mode(&path, 0o644);
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        std::os::unix::fs::symlink(&path, root.path().join("key.new")).unwrap();

        file(&path).unwrap();
        file(&link).unwrap_err();
        write(&root.path().join("key.pem"), "secret").unwrap();

        assert_eq!((mode(&path), std::fs::read_to_string(&path).unwrap()), (0o600, "kept".to_owned()));
        assert_eq!(mode(&root.path().join("key.pem")), 0o600);
    }
}
