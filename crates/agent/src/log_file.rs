//! The end of a log that a spec names, read without trust in whoever named it or can write beside it.
//!
//! Promised: the file is opened with the rights of the process's user; never a FIFO, device or socket, which are not
//! even opened; a link is followed only where root or that user has made it; what is read is inside the paths of the
//! host's policy, and at most [`LOG_BYTES_MAX`] bytes; nothing waits for a writer. Absent: a limit of time, so this
//! runs on a thread where it may hang; older files of a log that was rotated.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proctor_host::Host;
use proctor_model::{Identity, LOG_BYTES_MAX, LogPosition, LogQuery, LogState, LogTail, Namespace};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2, readlinkat};
use rustix::io::Errno;

use crate::policy::Policy;

/// A log that is a link to a link to … is no log.
const LINKS_MAX: usize = 8;
/// Of a directory; those after them are not looked at.
const ENTRIES_MAX: usize = 1000;
const EXTENSION: &str = "log";
/// The longest character of UTF-8, in bytes.
const CHARACTER_BYTES_MAX: usize = 4;

/// Whose log is read, and within which bounds.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    pub(crate) host: Host,
    pub(crate) identity: Identity,
    /// As [`path_of`] the identity.
    pub(crate) path: PathBuf,
    pub(crate) policy: Option<(Arc<Policy>, Namespace)>,
}

/// Why there is nothing to show.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    state: LogState,
    text: String,
}

impl Problem {
    fn new(state: LogState, text: impl Into<String>) -> Self {
        Self { state, text: text.into() }
    }

    fn of(error: &io::Error, user: &str) -> Self {
        let kind = error.kind();
        if matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory) {
            Self::new(LogState::Missing, "")
        } else if kind == ErrorKind::PermissionDenied {
            Self::new(LogState::Denied, format!("user '{user}' may not read it"))
        } else {
            Self::new(LogState::Unreadable, error.to_string())
        }
    }
}

/// What a path leads to.
#[derive(Debug)]
enum Found {
    File(File, Metadata),
    Directory,
}

/// Where the spec says that the log is; None: nowhere.
pub(crate) fn path_of(identity: &Identity) -> Option<PathBuf> {
    let path = identity.log_path.as_ref().filter(|path| !path.as_str().is_empty())?;
    // Component by component: a slash at the end would follow a link.
    Some(Path::new(identity.setup_path.as_str()).join(path.as_str()).components().collect())
}

impl LogFile {
    /// For people.
    pub(crate) fn path(&self) -> String {
        shown(&self.path)
    }

    /// May hang.
    pub(crate) fn read(&self, query: &LogQuery) -> LogTail {
        let user = self.identity.user.as_str();
        let found = self.host.user_id(user).and_then(|uid| self.host.as_user(user, || self.find(&self.path, uid)));
        let found = found.map_err(|text| Problem::new(LogState::Unreadable, text)).and_then(|found| found);
        let read = found.and_then(|(file, metadata, path)| {
            self.check_opened(&file)?;
            let tail = tail(&file, &metadata, query).map_err(|error| Problem::of(&error, user))?;
            Ok(LogTail { path: shown(&path), ..tail })
        });
        read.unwrap_or_else(|Problem { state, text }| LogTail::none(state, self.path(), text))
    }

    /// With the rights of the user, whose id is given.
    fn find(&self, path: &Path, uid: u32) -> Result<(File, Metadata, PathBuf), Problem> {
        let user = self.identity.user.as_str();
        let look = |path: &Path| {
            self.check_path(path)?;
            open_trusted(path, uid, user)
        };
        if let Found::File(file, metadata) = look(path)? {
            return Ok((file, metadata, path.to_owned()));
        }
        let named = path.join(format!("{}.{EXTENSION}", self.identity.proc_name));
        match look(&named) {
            Ok(Found::File(file, metadata)) => return Ok((file, metadata, named)),
            Ok(Found::Directory) | Err(Problem { state: LogState::Missing, .. }) => {}
            Err(problem) => return Err(problem),
        }
        let newest = newest_log(path).map_err(|error| Problem::of(&error, user))?;
        let none = || Problem::new(LogState::NotALog, format!("the directory holds no .{EXTENSION} file"));
        let newest = newest.ok_or_else(none)?;
        match look(&newest)? {
            Found::File(file, metadata) => Ok((file, metadata, newest)),
            Found::Directory => Err(none()),
        }
    }

    fn check_path(&self, path: &Path) -> Result<(), Problem> {
        let allows = |(policy, namespace): &(Arc<Policy>, Namespace)| policy.allows_file(namespace, path);
        if self.policy.as_ref().is_none_or(allows) { Ok(()) } else { Err(outside()) }
    }

    /// A link may have been changed since.
    fn check_opened(&self, file: &File) -> Result<(), Problem> {
        let Some((policy, namespace)) = &self.policy else { return Ok(()) };
        let real = std::fs::read_link(descriptor_path(file));
        if real.is_ok_and(|real| policy.allows_opened(namespace, &real)) { Ok(()) } else { Err(outside()) }
    }
}

fn outside() -> Problem {
    Problem::new(LogState::Forbidden, "the log is outside the paths that the host's policy allows")
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn descriptor_path(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Links of others are refused: who may write to the directory of a log would choose what root reads.
fn open_trusted(path: &Path, uid: u32, user: &str) -> Result<Found, Problem> {
    let failed = |error: Errno| Problem::of(&error.into(), user);
    let us = rustix::process::geteuid().as_raw();
    let mut path = path.to_owned();
    for _ in 0..=LINKS_MAX {
        // Only a handle of what is there: to open a device may do something.
        let place = handle(&path).map_err(failed)?;
        let stat = fstat(&place).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = openat(CWD, descriptor_path(&place), flags, Mode::empty()).map_err(failed)?;
                let file = File::from(file);
                let metadata = file.metadata().map_err(|error| Problem::of(&error, user))?;
                return Ok(Found::File(file, metadata));
            }
            FileType::Directory => return Ok(Found::Directory),
            FileType::Symlink if [0, uid, us].contains(&stat.st_uid) => {
                let target = readlinkat(&place, c"", Vec::new()).map_err(failed)?;
                path = path.parent().unwrap_or_else(|| Path::new("/")).join(OsStr::from_bytes(target.as_bytes()));
            }
            FileType::Symlink => {
                let text = format!("it is a link that neither root nor user '{user}' has made");
                return Err(Problem::new(LogState::NotALog, text));
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                return Err(Problem::new(LogState::NotALog, "it is a FIFO, a socket or a device"));
            }
        }
    }
    Err(Problem::new(LogState::NotALog, format!("it leads through more than {LINKS_MAX} links")))
}

/// Never through the descriptors that /proc shows of this program: they lead past directories that the user may not enter.
fn handle(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
        // An old kernel, or a filter of system calls that does not know it.
        Err(Errno::NOSYS | Errno::PERM) if !path.starts_with("/proc") => open(path, flags, Mode::empty()),
        opened => opened,
    }
}

/// The `.log` file of a directory that was written last.
fn newest_log(directory: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest: Option<((i64, i64), PathBuf)> = None;
    for entry in std::fs::read_dir(directory)?.take(ENTRIES_MAX) {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        // Of a link itself: to follow one takes a look at its owner.
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let written = (metadata.mtime(), metadata.mtime_nsec());
        if metadata.is_file() && newest.as_ref().is_none_or(|(before, _)| *before < written) {
            newest = Some((written, path));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

fn tail(file: &File, metadata: &Metadata, query: &LogQuery) -> io::Result<LogTail> {
    let (size, id) = (metadata.len(), metadata.ino() ^ metadata.dev().rotate_left(32));
    let floor = size.saturating_sub(LOG_BYTES_MAX as u64);
    let asked = query.since.filter(|since| since.file == id && since.offset <= size).map(|since| since.offset);
    let mut start = asked.map_or(floor, |offset| offset.max(floor));
    let mut bytes = read_between(file, start, size)?;
    bytes.truncate(bytes.len() - unfinished_character(&bytes));
    let end = start + bytes.len() as u64;
    // The first line is whole only at the start of the file, or where the last answer ended.
    if start > 0 && asked != Some(start) {
        start += drop_first_line(&mut bytes);
    }
    if asked.is_none() {
        keep_last_lines(&mut bytes, query.lines);
    }
    Ok(LogTail {
        state: LogState::Read,
        bytes,
        end: LogPosition { file: id, offset: end },
        size,
        modified_at: metadata.mtime(),
        restarted: query.since.is_some() && asked.is_none(),
        skipped: asked.map_or(0, |offset| start - offset),
        ..LogTail::default()
    })
}

/// Fewer where the file has been truncated meanwhile.
fn read_between(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(end - start).unwrap_or(LOG_BYTES_MAX).min(LOG_BYTES_MAX);
    let (mut bytes, mut filled) = (vec![0; length], 0);
    while filled < length {
        match file.read_at(&mut bytes[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// How many bytes at the end begin a character that is not written yet.
fn unfinished_character(bytes: &[u8]) -> usize {
    let last = &bytes[bytes.len().saturating_sub(CHARACTER_BYTES_MAX - 1)..];
    // From the first byte on that begins a character.
    let Some(begin) = last.iter().rposition(|byte| *byte >= 0xC0) else { return 0 };
    match std::str::from_utf8(&last[begin..]) {
        Err(error) if error.error_len().is_none() => last.len() - begin,
        Ok(_) | Err(_) => 0,
    }
}

/// How many bytes that were; none where they are all one line.
fn drop_first_line(bytes: &mut Vec<u8>) -> u64 {
    let Some(newline) = bytes.iter().position(|byte| *byte == b'\n').filter(|at| at + 1 < bytes.len()) else {
        return 0;
    };
    bytes.drain(..=newline);
    newline as u64 + 1
}

fn keep_last_lines(bytes: &mut Vec<u8>, lines: u32) {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let breaks = text.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    let before = usize::try_from(lines).ok().and_then(|lines| breaks.into_iter().nth(lines.checked_sub(1)?));
    if let Some(at) = before {
        bytes.drain(..=at);
    }
}

#[cfg(test)]
mod tests;
