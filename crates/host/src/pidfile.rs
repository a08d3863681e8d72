//! Reads pid files without trusting them: anybody may have written anything there.
//!
//! Promised: no FIFO or device is opened; neither a symlink at the end of the path nor a magic link of /proc on the
//! way is followed; no more than 64 bytes are read; every rejection says why and names the file, and quotes nothing
//! of it but a pid.
//! Absent: permissions, since the caller reads with those of the spec's user ([`crate::rights`]); a timeout (a
//! network file system may hang), see [`crate::blocking`]; and any knowledge of whether the pid is running, see
//! [`crate::probe`].

use std::ffi::OsStr;
use std::fs::FileType;
use std::io::{self, IoSliceMut, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use proctor_model::{Incarnation, Message, messages};

use crate::local_fs;
use crate::untrusted_path::{self, Found, descriptor_path};

const BYTES_MAX: usize = 64;
const DIGITS_MAX: usize = 10;
/// The kernel's own limit (PID_MAX_LIMIT); `kernel.pid_max` cannot be set above it.
const PID_MAX: u64 = 4_194_304;

/// The pid file of a process: `pid_path` itself, or a file in it if it is a directory. With its metadata.
pub(crate) fn locate(pid_path: &str, proc_name: &str) -> (PathBuf, io::Result<Found>) {
    let path = Path::new(pid_path);
    let found = untrusted_path::find_no_follow(path);
    let may_be_directory = |found: &Found| found.metadata().is_dir() || found.metadata().is_symlink();
    if !pid_path.ends_with('/') && !found.as_ref().is_ok_and(may_be_directory) {
        return (path.to_owned(), found);
    }
    let name = format!("{proc_name}.pid");
    let inside = path.join(&name);
    // A symlink to a directory stands for it.
    match untrusted_path::find(path) {
        Ok(directory) => match directory.as_directory() {
            Some(directory) => (inside, untrusted_path::find_no_follow_in(directory, OsStr::new(&name))),
            None if pid_path.ends_with('/') => (inside, Err(Errno::NOTDIR.into())),
            None => (path.to_owned(), found),
        },
        Err(error) if pid_path.ends_with('/') => (inside, Err(error)),
        Err(_) => (path.to_owned(), found),
    }
}

/// Why a pid file names no process, for display.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It says so itself, or cannot be trusted.
    Absent(Message),
    /// It names a dead process.
    Dead { pid: i32, reason: Message },
    /// It could not be read, which says nothing about the process.
    Unclear(Message),
    /// It is older than the process it names.
    Stale { life: Incarnation, reason: Message },
}

impl From<Message> for Refusal {
    fn from(reason: Message) -> Self {
        Self::Absent(reason)
    }
}

/// What a pid file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PidEntry {
    pub(crate) pid: i32,
    /// When it was written, in Unix milliseconds. None: by the clock of another host.
    pub(crate) written_millis: Option<i64>,
    /// Whether it is in memory, and so from this boot.
    pub(crate) is_in_memory: bool,
    /// Device and inode.
    pub(crate) file: (u64, u64),
}

/// The pid in a pid file that was [located](locate), or the reason for people why there is none. `may_own` says whether
/// a user may own such a file.
pub(crate) fn read(
    path: &Path,
    found: io::Result<Found>,
    may_own: impl FnOnce(u32) -> bool,
) -> Result<PidEntry, Refusal> {
    let shown = path.display();
    let refusal = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => Refusal::Absent(messages::no_pid_file(&shown)),
        // Says nothing about the process: an earlier version followed such links.
        Some(libc::ELOOP) => Refusal::Unclear(messages::pid_file_behind_links(&shown)),
        Some(libc::EACCES) => Refusal::Unclear(messages::pid_file_not_readable(&shown)),
        _ => Refusal::Unclear(messages::pid_file_cannot_be_opened(&shown, error)),
    };
    let found = found.map_err(refusal)?;
    let kind = found.metadata().file_type();
    if kind.is_symlink() {
        return Err(messages::pid_file_is_a_link(&shown).into());
    }
    if !kind.is_file() {
        return Err(messages::pid_file_not_regular(&shown, name_of(kind)).into());
    }
    let (file, metadata) = found.open().map_err(refusal)?;
    let unreadable = |error: io::Error| Refusal::Unclear(messages::pid_file_cannot_be_read(&shown, error));
    local_fs::learn(&file);
    if !may_own(metadata.uid()) {
        return Err(messages::pid_file_of_another_user(&shown, crate::user::name(metadata.uid())).into());
    }
    let written = metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000);
    let written_millis = (!local_fs::is_remote(&file)).then_some(written);
    let (is_in_memory, number) = (local_fs::is_memory(&file), (metadata.dev(), metadata.ino()));
    let mut text = Vec::with_capacity(BYTES_MAX);
    file.take(BYTES_MAX as u64).read_to_end(&mut text).map_err(unreadable)?;
    let pid = parse(&text).map_err(|problem| Refusal::Absent(problem(shown.to_string())))?;
    Ok(PidEntry { pid, written_millis, is_in_memory, file: number })
}

/// The pid in a pid file that lies in the kernel's memory, on a file system of this host: nothing here waits
/// for a disk or a network. None: it takes more to find out, [`read`] at least.
pub(crate) fn read_cached(path: &Path) -> Option<i32> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::CACHED | ResolveFlags::NO_MAGICLINKS;
    let place = openat2(CWD, path, flags, Mode::empty(), resolve).ok()?;
    let wanted = StatxFlags::TYPE | StatxFlags::UID | local_fs::WANTED;
    let stat = statx(&place, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()) == rustix::fs::FileType::RegularFile;
    let is_ours = stat.stx_uid == 0 || stat.stx_uid == rustix::process::geteuid().as_raw();
    // Only now: opening a file may mean asking another host.
    let kind = local_fs::kind(&stat).filter(|_| is_file && is_ours)?;
    let file = openat(CWD, descriptor_path(&place), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        .ok()?;
    let flags = match kind {
        local_fs::Kind::Disk => ReadWriteFlags::NOWAIT,
        local_fs::Kind::Memory => ReadWriteFlags::empty(),
    };
    let mut text = [0; BYTES_MAX];
    let length = preadv2(&file, &mut [IoSliceMut::new(&mut text)], 0, flags).ok()?;
    parse(text.get(..length)?).ok()
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "FIFO"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

/// What is wrong with a file, once its path is known.
type Problem = fn(String) -> Message;

fn parse(text: &[u8]) -> Result<i32, Problem> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let line = lines.next().unwrap_or_default();
    if line.len() == BYTES_MAX {
        return Err(messages::pid_file_has_no_pid_line);
    }
    let line = line.trim_ascii();
    if line.is_empty() {
        return Err(messages::pid_file_is_empty);
    }
    if line.len() > DIGITS_MAX || !line.iter().all(u8::is_ascii_digit) {
        return Err(messages::pid_file_has_no_pid);
    }
    let number = line.iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    if number == u64::from(std::process::id()) {
        return Err(|path| messages::pid_file_holds_own_pid(path, std::process::id()));
    }
    match i32::try_from(number) {
        Ok(0) => Err(messages::pid_file_holds_0),
        Ok(1) => Err(messages::pid_file_holds_1),
        Ok(pid) if number <= PID_MAX => Ok(pid),
        Ok(_) | Err(_) => Err(messages::pid_file_holds_too_much),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_pid_whatever_follows() {
        for text in ["4242", "4242\n", "4242\r\n", "  4242  \n", "4242\n1\n", "4242\nabc", "0004242\n"] {
            assert_eq!(parse(text.as_bytes()).ok(), Some(4242), "{text:?}");
        }
    }

    #[test]
    fn content_that_is_no_pid_of_a_process_is_refused() {
        let own = std::process::id().to_string();
        let digits = "4".repeat(64);
        let spaced = format!("42{}43", " ".repeat(80));
        let hostile: [&[u8]; 20] = [
            b"",
            b"\n",
            b" \r\n",
            b"\n4242\n",
            b"abc",
            b"-1",
            b"+7",
            b"0",
            b"00",
            b"1",
            b"0x1f",
            b"42 43",
            b"42\0",
            b"\xff\xfe4\x002\x00",
            b"\xef\xbb\xbf42",
            b"2147483648",
            b"99999999999",
            own.as_bytes(),
            &digits.as_bytes()[..BYTES_MAX],
            &spaced.as_bytes()[..BYTES_MAX],
        ];
        for text in hostile {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_file_in_memory_is_read_at_once_and_what_is_not_plain_is_left_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, link, odd) = (dir.path().join("a.pid"), dir.path().join("b.pid"), dir.path().join("c.pid"));
        std::fs::write(&plain, "4242\n").unwrap();
        std::fs::write(&odd, "x\n").unwrap();
        std::os::unix::fs::symlink(&plain, &link).unwrap();

        assert_eq!(read_cached(&plain), None, "nobody has asked its file system");
        assert_eq!(read(&plain, untrusted_path::find_no_follow(&plain), |_| true).unwrap().pid, 4242);
        // Not every file system is one of this host.
        assert!(matches!(read_cached(&plain), Some(4242) | None));
        for other in [&link, &odd, &dir.path().to_owned(), &dir.path().join("none")] {
            assert_eq!(read_cached(other), None, "{}", other.display());
        }
    }

    #[test]
    fn a_refusal_quotes_nothing_of_the_file() {
        let long = "root:$6$hush".repeat(9);
        for text in ["root:$6$hush:19000:0:99999:7:::\n", "hush", "31415926535897", "3141592653", &long[..BYTES_MAX]] {
            let problem = parse(text.as_bytes()).unwrap_err()("/run/p.pid".to_owned());

            assert!(!problem.contains("hush") && !problem.contains("314"), "{problem}");
        }
    }
}
