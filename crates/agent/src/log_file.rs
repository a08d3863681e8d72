//! Reads the tail of a log named by a spec, without trusting whoever named it or can write next to it.
//!
//! Promised: the file is opened with the permissions of the process's user; a FIFO, device or socket is never opened;
//! a symlink, anywhere on the path, is followed only if root or that user created it, and then only by its text, so
//! magic links of /proc cannot bypass a directory; a directory, once found, is not looked up again; what is read is
//! inside the paths of the host's policy, and at most [`LOG_BYTES_MAX`] bytes; nothing waits for a writer.
//! Absent: a timeout, so this runs on a thread that may hang; older files of a rotated log.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proctor_host::Host;
use proctor_host::untrusted_path::{self, Found, WalkError};
use proctor_model::{Identity, LOG_BYTES_MAX, LogPosition, LogQuery, LogState, LogTail, Namespace};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::policy::Policy;

/// Of a directory; further entries are not considered.
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

/// Where the spec says the log is; None: nowhere.
pub(crate) fn path_of(identity: &Identity) -> Option<PathBuf> {
    let path = identity.log_path.as_ref().filter(|path| !path.as_str().is_empty())?;
    // Component by component: a slash at the end would follow a link.
    Some(Path::new(identity.setup_path.as_str()).join(path.as_str()).components().collect())
}

impl LogFile {
    /// For display.
    pub(crate) fn path(&self) -> String {
        shown(&self.path)
    }

    /// May hang.
    pub(crate) fn read(&self, query: &LogQuery) -> LogTail {
        let read = self.open().and_then(|(file, metadata, path)| {
            self.check_opened(&file)?;
            let user = self.identity.user.as_str();
            let tail = tail(&file, &metadata, query).map_err(|error| Problem::of(&error, user))?;
            Ok(LogTail { path: shown(&path), ..tail })
        });
        read.unwrap_or_else(|Problem { state, text }| LogTail::none(state, self.path(), text))
    }

    fn open(&self) -> Result<(File, Metadata, PathBuf), Problem> {
        let user = self.identity.user.as_str();
        let unreadable = |text| Problem::new(LogState::Unreadable, text);
        let rights = self.host.user(user).map_err(unreadable)?;
        rights.check("read logs").map_err(|text| Problem::new(LogState::Denied, text))?;
        let trusted = [0, rights.uid(), rustix::process::geteuid().as_raw()];
        rights.run(|| self.find(&LogSearch { trusted, user })).map_err(unreadable)?
    }

    /// With the rights of the user.
    fn find(&self, search: &LogSearch<'_>) -> Result<(File, Metadata, PathBuf), Problem> {
        self.check_path(&self.path)?;
        let found = search.find(None, &self.path)?;
        let Some(directory) = found.as_directory() else {
            let (file, metadata) = search.open(&found)?;
            return Ok((file, metadata, self.path.clone()));
        };
        let look = |name: &OsStr| {
            let path = self.path.join(name);
            self.check_path(&path)?;
            let found = search.find(Some(directory), Path::new(name))?;
            if found.as_directory().is_some() {
                return Ok(None);
            }
            let (file, metadata) = search.open(&found)?;
            Ok(Some((file, metadata, path)))
        };
        match look(OsStr::new(&format!("{}.{EXTENSION}", self.identity.proc_name))) {
            Ok(Some(named)) => return Ok(named),
            Ok(None) | Err(Problem { state: LogState::Missing, .. }) => {}
            Err(problem) => return Err(problem),
        }
        let newest = newest_log(directory).map_err(|error| Problem::of(&error.into(), search.user))?;
        let found = newest.map(|name| look(&name)).transpose()?.flatten();
        found.ok_or_else(|| Problem::new(LogState::NotALog, format!("the directory holds no .{EXTENSION} file")))
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

/// Who looks for a log.
struct LogSearch<'a> {
    /// Symlinks of others are refused: anyone who can write to a directory on the path would choose what root reads.
    trusted: [u32; 3],
    user: &'a str,
}

impl LogSearch<'_> {
    /// From a directory, or else from the root.
    fn find(&self, from: Option<BorrowedFd<'_>>, path: &Path) -> Result<Found, Problem> {
        untrusted_path::find_trusting(&self.trusted, from, path).map_err(|error| match error {
            WalkError::Io(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Problem::new(LogState::NotALog, "it leads through too many links")
            }
            WalkError::Io(error) => Problem::of(&error, self.user),
            WalkError::LinkOfAnother { name, .. } => {
                let (name, user) = (name.display(), self.user);
                let text = format!("'{name}' is a link that neither root nor user '{user}' has made");
                Problem::new(LogState::NotALog, text)
            }
        })
    }

    fn open(&self, found: &Found) -> Result<(File, Metadata), Problem> {
        if !found.metadata().is_file() {
            return Err(Problem::new(LogState::NotALog, "it is a FIFO, a socket or a device"));
        }
        found.open().map_err(|error| Problem::of(&error, self.user))
    }
}

/// The `.log` file of a directory that was written last.
fn newest_log(directory: BorrowedFd<'_>) -> rustix::io::Result<Option<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries = Dir::new(openat(directory, c".", flags, Mode::empty())?)?;
    let mut newest: Option<((i64, i64), OsString)> = None;
    for entry in entries.take(ENTRIES_MAX) {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if Path::new(name).extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        // Of a link itself: to follow one takes a look at its owner.
        let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let written = (stat.st_mtime, stat.st_mtime_nsec as i64);
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        if is_file && newest.as_ref().is_none_or(|(before, _)| *before < written) {
            newest = Some((written, name.to_owned()));
        }
    }
    Ok(newest.map(|(_, name)| name))
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

/// How many bytes that was; none if they are all one line.
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
pub(crate) mod tests;
