//! Opens paths chosen by somebody else: a spec names them, and others may be able to write to the directories on the
//! way.
//!
//! Promised: only a regular file is opened; anything else only gets a path handle, so no device or FIFO notices;
//! symlinks are resolved by their text, so the magic links of /proc (`root`, `cwd`, `fd/7`) cannot bypass a directory
//! that the caller may not enter; what was found is what is opened, whatever happens to the path afterwards.
//! Absent: permissions, since the caller acts with those of the spec's user ([`crate::rights`]); a timeout, see
//! [`crate::blocking`].

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat, openat2, readlinkat};
use rustix::io::Errno;

/// As the kernel's: a path with more links leads nowhere.
const LINKS_MAX: usize = 40;
/// Only a handle of what is there: to open a device may do something.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// What a path leads to, not yet opened for reading.
#[derive(Debug)]
pub struct Found {
    handle: File,
    metadata: Metadata,
}

#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A symlink on the way was created by somebody whom the caller does not trust.
    #[error("'{}' is a link of uid {owner}", .name.display())]
    LinkOfAnother { name: OsString, owner: u32 },
}

impl From<Errno> for WalkError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl Found {
    fn of(handle: OwnedFd) -> io::Result<Self> {
        let handle = File::from(handle);
        let metadata = handle.metadata()?;
        Ok(Self { handle, metadata })
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Of a directory: what is in it can be looked up.
    pub fn as_directory(&self) -> Option<BorrowedFd<'_>> {
        self.metadata.is_dir().then(|| self.handle.as_fd())
    }

    /// Opens a regular file. The kernel checks the thread's permissions again.
    pub fn open(&self) -> io::Result<(File, Metadata)> {
        if !self.metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, descriptor_path(&self.handle), flags, Mode::empty())?);
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }

    /// The path of what was found, without links.
    pub fn real_path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(descriptor_path(&self.handle))
    }
}

/// The name of an open file of this process.
pub(crate) fn descriptor_path(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// What an absolute path leads to, through symlinks of any owner.
pub fn find(path: &Path) -> io::Result<Found> {
    find_in(CWD, path, OFlags::empty())
}

/// As [`find`], but for a symlink at the end the symlink itself.
pub(crate) fn find_no_follow(path: &Path) -> io::Result<Found> {
    find_in(CWD, path, OFlags::NOFOLLOW)
}

/// Looks up a name in a directory that was found.
pub(crate) fn find_no_follow_in(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Found> {
    find_in(directory, Path::new(name), OFlags::NOFOLLOW)
}

fn find_in(from: BorrowedFd<'_>, path: &Path, follow: OFlags) -> io::Result<Found> {
    match openat2(from, path, HANDLE | follow, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        // Before Linux 5.6, or in a container that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let start = (from.as_raw_fd() != CWD.as_raw_fd()).then_some(from);
            let walked = Walk { trusted: None, follows_last: follow.is_empty() }.find(start, path);
            walked.map_err(|error| match error {
                WalkError::Io(error) => error,
                WalkError::LinkOfAnother { .. } => Errno::LOOP.into(),
            })
        }
        found => Found::of(found?),
    }
}

/// What a path leads to from a directory, or else from the root, through links that one of these users has made: who may
/// write to a directory on the way does not choose what is read.
pub fn find_trusting(owners: &[u32], from: Option<BorrowedFd<'_>>, path: &Path) -> Result<Found, WalkError> {
    Walk { trusted: Some(owners), follows_last: true }.find(from, path)
}

/// Walks a path, one name after the other.
struct Walk<'a> {
    /// None: symlinks of any owner are followed.
    trusted: Option<&'a [u32]>,
    follows_last: bool,
}

impl Walk<'_> {
    fn find(&self, from: Option<BorrowedFd<'_>>, path: &Path) -> Result<Found, WalkError> {
        let mut here = match from {
            Some(directory) => Found::of(directory.try_clone_to_owned()?)?,
            None => root()?,
        };
        let (mut names, mut links) = (names_reversed(path), 0);
        while let Some(name) = names.pop() {
            let next = Found::of(handle(here.handle.as_fd(), &name)?)?;
            let is_last = names.is_empty();
            if next.metadata.is_symlink() && (self.follows_last || !is_last) {
                links += 1;
                self.check_link(&name, next.metadata.uid(), links)?;
                // By its text: the links of /proc to what is open lead past directories that the user may not enter.
                let target = readlinkat(&next.handle, c"", Vec::new())?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                if target.is_absolute() {
                    here = root()?;
                }
                names.extend(names_reversed(target));
            } else if next.metadata.is_dir() || is_last {
                here = next;
            } else {
                return Err(Errno::NOTDIR.into());
            }
        }
        Ok(here)
    }

    fn check_link(&self, name: &OsStr, owner: u32, links: usize) -> Result<(), WalkError> {
        if self.trusted.is_some_and(|trusted| !trusted.contains(&owner)) {
            return Err(WalkError::LinkOfAnother { name: name.to_owned(), owner });
        }
        if links > LINKS_MAX { Err(Errno::LOOP.into()) } else { Ok(()) }
    }
}

fn root() -> io::Result<Found> {
    Found::of(open("/", HANDLE | OFlags::DIRECTORY, Mode::empty())?)
}

fn handle(directory: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = HANDLE | OFlags::NOFOLLOW;
    // As a directory first: a file system that is mounted on demand is mounted for nothing less.
    match openat(directory, name, flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => openat(directory, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// The last name first.
fn names_reversed(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn walk(path: &Path) -> io::Result<Found> {
        Walk { trusted: None, follows_last: true }.find(None, path).map_err(|error| match error {
            WalkError::Io(error) => error,
            WalkError::LinkOfAnother { .. } => panic!("nobody is distrusted"),
        })
    }

    /// With and without the kernel's help.
    fn both(path: &Path) -> [io::Result<Found>; 2] {
        [find(path), walk(path)]
    }

    #[test]
    fn links_are_followed_and_what_was_found_is_opened_although_the_path_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::fs::write(at("real/file"), "31415").unwrap();
        symlink("real", at("way")).unwrap();
        symlink(at("way/file"), at("link")).unwrap();

        for found in both(&at("link")).into_iter().chain(both(&at("way/../real/./file"))) {
            let found = found.unwrap();
            assert_eq!(found.real_path().unwrap(), at("real/file").canonicalize().unwrap());
            let (file, metadata) = found.open().unwrap();
            assert_eq!((io::read_to_string(file).unwrap().as_str(), metadata.len()), ("31415", 5));
        }
        let found = find(&at("link")).unwrap();
        std::fs::rename(at("real/file"), at("real/old")).unwrap();
        std::fs::write(at("real/file"), "other").unwrap();
        assert_eq!(io::read_to_string(found.open().unwrap().0).unwrap(), "31415");
        assert!(find_no_follow(&at("link")).unwrap().metadata().is_symlink());
        for missing in both(&at("none")).into_iter().chain(both(&at("real/file/x"))) {
            let kind = missing.unwrap_err().kind();
            assert!(matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory), "{kind}");
        }
    }

    #[test]
    fn the_magic_links_of_proc_lead_past_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("gone")).unwrap();
        std::fs::write(dir.path().join("file"), "31415").unwrap();
        let open = File::open(dir.path()).unwrap();
        let removed = File::open(dir.path().join("gone")).unwrap();
        std::fs::remove_dir(dir.path().join("gone")).unwrap();
        let past = PathBuf::from(descriptor_path(&open)).join("file");
        assert!(past.exists() && Path::new(&descriptor_path(&removed)).exists(), "the kernel itself follows them");

        assert_eq!(find(&past).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(find(Path::new("/proc/self/cwd/file")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(walk(Path::new(&descriptor_path(&removed))).is_err(), "its text names nothing");
        assert_eq!(walk(&past).unwrap().real_path().unwrap(), dir.path().canonicalize().unwrap().join("file"));
    }

    #[test]
    fn a_fifo_is_found_and_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();

        for found in both(&path) {
            assert_eq!(found.unwrap().open().unwrap_err().to_string(), "it is not a regular file");
        }
    }

    #[test]
    fn a_link_counts_where_it_was_made_by_somebody_who_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let us = rustix::process::geteuid().as_raw();

        assert!(find_trusting(&[0, us], None, &link).is_ok());
        if us != 0 {
            return proctor_testkit::skip("only root makes links of others");
        }
        lchown(&link, Some(4242), Some(4242)).unwrap();
        let refused = find_trusting(&[0], None, &link).unwrap_err();
        assert!(matches!(refused, WalkError::LinkOfAnother { owner: 4242, .. }), "{refused}");
        assert!(find_trusting(&[0], None, &file).is_ok() && find(&link).is_ok());
    }

    #[test]
    fn a_path_that_leads_in_a_circle_ends() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink(&link, &link).unwrap();

        for found in both(&link) {
            assert_eq!(found.unwrap_err().raw_os_error(), Some(libc::ELOOP));
        }
    }
}
