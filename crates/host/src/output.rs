//! The output of commands: one file each, bounded in size, of which head and tail are kept.
//!
//! A file and not a pipe, because a daemon that a command leaves behind may inherit it: it must neither block on us
//! nor die of SIGPIPE when we exit; see docs/decisions/0021.
//!
//! Promised: a file is checked within [`PAUSE`] of a write, and within [`PAUSE_GROWING`] while it grows by
//! [`GROWING_BYTES`] between checks, and truncated if it exceeds [`FILE_BYTES_MAX`]; so it holds no more than that
//! plus what is written in between. A command's own file is truncated when the command exits. A file that is replaced
//! while a daemon still writes to it is truncated until the daemon exits, then removed.
//! Absent: truncated output, of which only the size is reported. While no agent runs nothing is truncated; the next
//! one starts with that. A single write of any size cannot be interrupted: the kernel lets nobody truncate in
//! between.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{OFlags, inotify};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

const HEAD_BYTES: usize = 4096;
const TAIL_BYTES: usize = 4096;
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const NAME_BYTES_MAX: usize = 128;
/// How many old captures of one name are kept while they are still being written to.
const OLD_MAX: u32 = 64;
/// Of a capture.
const MODE: u32 = 0o600;
/// Chooses the signal of a descriptor; libc does not name it for every target.
const F_SETSIG: libc::c_int = 10;
/// All files are checked this often, whatever the kernel reports.
const TRIM_PERIOD: Duration = Duration::from_secs(30);
/// The same, if the kernel does not report writes: inotify may be exhausted or forbidden.
const TRIM_PERIOD_UNWATCHED: Duration = Duration::from_secs(1);
/// Between a write and the check of its file: writes come in bursts.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// The same while a file grows fast: what writes 100 MB/s has written half a megabyte by then.
const PAUSE_GROWING: Duration = Duration::from_millis(5);
/// Growth between two checks that counts as fast. Daemons that merely log a lot stay below it.
const GROWING_BYTES: u64 = 128 * 1024;

/// The directory of all captures.
#[derive(Clone, Debug)]
pub(crate) struct OutputDirectory {
    path: PathBuf,
    /// Files of running commands: they are truncated by [`Capture::trim`], which keeps their head and tail.
    running: Arc<Mutex<HashMap<PathBuf, usize>>>,
}

impl OutputDirectory {
    pub(crate) fn make(state_dir: &Path) -> Result<Self, crate::Error> {
        let path = state_dir.join("output");
        let failed = |source| crate::Error::Directory { path: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(failed)?;
        Ok(Self { path, running: Arc::default() })
    }

    /// An empty capture; an old one with that name that is still being written to is set aside.
    pub(crate) fn open(&self, name: &str, owner: Option<u32>) -> io::Result<Capture> {
        let path = self.path.join(format!("{}.out", file_stem(name)));
        let file = match emptied(&path, owner)? {
            Some(file) => file,
            None => make(&path, owner)?,
        };
        *self.running.lock().entry(path.clone()).or_default() += 1;
        let running = Arc::clone(&self.running);
        Ok(Capture { file, path, running, head: Vec::new(), tail: Vec::new(), cut: 0, seen: 0 })
    }

    /// Removes the captures with these names, or sets them aside while they are being written to.
    pub(crate) fn remove(&self, names: &[String]) {
        for name in names {
            discard(&self.path.join(format!("{}.out", file_stem(name))));
        }
    }

    /// As [`Self::remove`], of all names but these.
    pub(crate) fn retain(&self, names: &HashSet<String>) {
        let stems: HashSet<String> = names.iter().map(|name| format!("{}.out", file_stem(name))).collect();
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let is_kept =
                entry.file_name().to_str().is_some_and(|name| !name.ends_with(".out") || stems.contains(name));
            if !is_kept {
                discard(&entry.path());
            }
        }
    }

    /// Truncates what daemons have written, forever: soon after a write, if the kernel reports writes.
    pub(crate) async fn trim_for_ever(self) {
        let writes = watch_writes(&self.path).inspect_err(|error| {
            tracing::warn!(%error, "cannot watch captures; looking at all of them every {TRIM_PERIOD_UNWATCHED:?}");
        });
        let writes = writes.ok();
        let period = if writes.is_some() { TRIM_PERIOD } else { TRIM_PERIOD_UNWATCHED };
        let mut looked_at = None;
        let mut written = None;
        let mut sizes = HashMap::new();
        loop {
            let directory = self.clone();
            let looked = tokio::task::spawn_blocking(move || match written {
                Some(paths) => directory.trim_these(paths, &sizes),
                None => directory.trim(&sizes),
            });
            let CaptureCheck { pause, sizes: seen } = looked.await.unwrap_or_default();
            sizes = seen;
            tokio::time::sleep(pause).await; // writes come in crowds
            let all_at = *looked_at.get_or_insert_with(|| Instant::now() + period);
            let wrote = async {
                match &writes {
                    Some(writes) => writes.readable().await.map(drop),
                    None => std::future::pending().await,
                }
            };
            let is_written = tokio::time::timeout_at(all_at, wrote).await.is_ok();
            let heard = writes.as_ref().filter(|_| is_written).and_then(written_to);
            written = heard.map(|names| names.into_iter().map(|name| self.path.join(name)).collect());
            if written.is_none() {
                looked_at = None;
            }
        }
    }

    fn trim(&self, sizes: &HashMap<PathBuf, u64>) -> CaptureCheck {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return CaptureCheck::default() };
        self.trim_these(entries.flatten().map(|entry| entry.path()).collect(), sizes)
    }

    /// `sizes` is what the previous check has seen.
    fn trim_these(&self, paths: Vec<PathBuf>, sizes: &HashMap<PathBuf, u64>) -> CaptureCheck {
        let mut looked = CaptureCheck::default();
        for path in paths {
            if self.running.lock().contains_key(&path) {
                continue;
            }
            let options = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
            let Ok(file) = options else { continue };
            if path.extension().is_some_and(|extension| extension == "old") && !is_open_elsewhere(&file) {
                let _ = std::fs::remove_file(&path);
                continue;
            }
            let Ok(metadata) = file.metadata() else { continue };
            let len = metadata.len();
            let is_cut = metadata.is_file() && len > FILE_BYTES_MAX && file.set_len(0).is_ok();
            let before = sizes.get(&path).copied().unwrap_or_default();
            if is_cut || len.saturating_sub(before) >= GROWING_BYTES {
                looked.pause = PAUSE_GROWING;
            }
            looked.sizes.insert(path, if is_cut { 0 } else { len });
        }
        looked
    }
}

/// The result of a check.
#[derive(Debug)]
struct CaptureCheck {
    /// Until the next one.
    pause: Duration,
    sizes: HashMap<PathBuf, u64>,
}

impl Default for CaptureCheck {
    fn default() -> Self {
        Self { pause: PAUSE, sizes: HashMap::new() }
    }
}

/// Gets every write to a file in the directory.
fn watch_writes(directory: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watch, directory, inotify::WatchFlags::MODIFY)?;
    #[allow(unsafe_code, reason = "tokio leaves it to us that the descriptor stays open")]
    // SAFETY: the registration owns the descriptor and nobody else has it, so that it stays open and the same
    // for as long as it is registered.
    unsafe {
        Ok(AsyncFd::register_with_interest(watch, Interest::READABLE)?)
    }
}

/// The files written to since the last time; None: the kernel has lost count, and all have to be checked.
fn written_to(writes: &AsyncFd<OwnedFd>) -> Option<HashSet<OsString>> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(writes.get_ref(), &mut buffer);
    let (mut names, mut has_lost) = (HashSet::new(), false);
    while let Ok(event) = events.next() {
        has_lost |= event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
        names.extend(event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned()));
    }
    // Nothing is left to read; the next write makes it readable again.
    let _ = writes.try_io(Interest::READABLE, |_| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    (!has_lost).then_some(names)
}

fn discard(path: &Path) {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path);
    let discarded = match file {
        Ok(file) if is_open_elsewhere(&file) => put_aside(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    if let Err(error) = discarded {
        tracing::debug!(%error, path = %path.display(), "a capture is not removed");
    }
}

/// It is still being written to: unlinked, it would grow unnoticed. If too many are set aside already it stays, and
/// the next command of its name runs without a capture.
fn put_aside(path: &Path) -> io::Result<()> {
    let free = (0..OLD_MAX).map(|number| path.with_extension(format!("{number}.old"))).find(|path| !path.exists());
    let crowded = || io::Error::other(format!("{OLD_MAX} earlier captures of its name are still written to"));
    std::fs::rename(path, free.ok_or_else(crowded)?)
}

fn make(path: &Path, owner: Option<u32>) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(true)
        .mode(MODE)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)?;
    if let Some(uid) = owner {
        // Scripts write to /dev/stderr, which opens the file again, as their user.
        std::os::unix::fs::fchown(&file, Some(uid), None)?;
    }
    Ok(file)
}

/// The old capture, empty again, if it is as a new one would be: a new one costs several times as much.
/// While somebody still writes to it, it gets another name: unlinked, it would grow without anybody
/// seeing it.
fn emptied(path: &Path, owner: Option<u32>) -> io::Result<Option<File>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = match OpenOptions::new().read(true).append(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return std::fs::remove_file(path).map(|()| None),
    };
    if is_open_elsewhere(&file) {
        put_aside(path)?;
        return Ok(None);
    }
    let metadata = file.metadata()?;
    let uid = owner.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let is_as_new = metadata.is_file() && metadata.uid() == uid && metadata.mode() & 0o7777 == MODE;
    if !is_as_new || rustix::fs::fcntl_setfl(&file, OFlags::APPEND).is_err() {
        return std::fs::remove_file(path).map(|()| None);
    }
    if metadata.len() > 0 {
        file.set_len(0)?;
    }
    Ok(Some(file))
}

/// Whether another descriptor of that file is open anywhere: only then a write lease is refused.
/// Where leases do not work at all the answer is yes.
fn is_open_elsewhere(file: &File) -> bool {
    let fcntl = |command, value: libc::c_int| {
        #[allow(unsafe_code, reason = "neither rustix nor nix has leases")]
        // SAFETY: the descriptor is open, and the commands below take one number.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
        result == 0
    };
    // Who opens the file while we have the lease makes the kernel send us a signal: SIGIO, which
    // would end us, or one that is ignored by default.
    let leased = fcntl(F_SETSIG, libc::SIGURG) && fcntl(libc::F_SETLEASE, libc::F_WRLCK);
    if leased {
        fcntl(libc::F_SETLEASE, libc::F_UNLCK);
    }
    !leased
}

/// A name that is safe in a directory; odd or long ones get a hash, so that they stay different.
fn file_stem(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+');
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.') && name.chars().all(is_plain) {
        return name.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(NAME_BYTES_MAX).collect();
    format!("_{plain}-{:016x}", hasher.finish())
}

/// What one command prints.
#[derive(Debug)]
pub(crate) struct Capture {
    file: File,
    path: PathBuf,
    running: Arc<Mutex<HashMap<PathBuf, usize>>>,
    /// The first and last bytes of what was truncated, if anything was.
    head: Vec<u8>,
    tail: Vec<u8>,
    cut: u64,
    /// Its size at the last check.
    seen: u64,
}

impl Capture {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Truncates the file if it exceeds its bound. Writers append, so they continue at its start. Returns how long to
    /// wait until the next time.
    pub(crate) fn trim(&mut self) -> Duration {
        let len = self.len();
        let before = std::mem::replace(&mut self.seen, len);
        if len <= FILE_BYTES_MAX {
            let is_growing = len.saturating_sub(before) >= GROWING_BYTES;
            return if is_growing { PAUSE_GROWING } else { PAUSE };
        }
        if self.cut == 0 {
            self.head = self.read(0, HEAD_BYTES);
        }
        self.tail = self.read(len.saturating_sub(TAIL_BYTES as u64), TAIL_BYTES);
        if self.file.set_len(0).is_ok() {
            self.cut += len;
            self.seen = 0;
        }
        PAUSE_GROWING
    }

    /// What is shown of it when its command has exited.
    pub(crate) fn into_text(mut self) -> String {
        self.trim();
        self.text()
    }

    fn text(&self) -> String {
        let len = self.len();
        let total = self.cut + len;
        if self.cut == 0 && len <= (HEAD_BYTES + TAIL_BYTES) as u64 {
            return printable(&self.read(0, HEAD_BYTES + TAIL_BYTES));
        }
        let head = if self.cut == 0 { self.read(0, HEAD_BYTES) } else { self.head.clone() };
        let mut tail = self.tail.clone();
        tail.extend(self.read(len.saturating_sub(TAIL_BYTES as u64), TAIL_BYTES));
        tail.drain(..tail.len().saturating_sub(TAIL_BYTES));
        let left_out = total.saturating_sub((head.len() + tail.len()) as u64);
        format!("{}\n... {left_out} bytes left out ...\n{}", printable(&head), printable(&tail))
    }

    fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read(&self, from: u64, bytes_max: usize) -> Vec<u8> {
        let mut bytes = vec![0; bytes_max];
        let mut filled = 0;
        while filled < bytes_max {
            match self.file.read_at(&mut bytes[filled..], from + filled as u64) {
                Ok(0) | Err(_) => break,
                Ok(count) => filled += count,
            }
        }
        bytes.truncate(filled);
        bytes
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let mut running = self.running.lock();
        if let Some(count) = running.get_mut(&self.path) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.path);
            }
        }
    }
}

/// Text that does nothing to a terminal, a log or a JSON document.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    text.chars()
        .map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn directory() -> (tempfile::TempDir, OutputDirectory) {
        let root = tempfile::tempdir().unwrap();
        let directory = OutputDirectory::make(root.path()).unwrap();
        (root, directory)
    }

    #[test]
    fn head_and_tail_survive_any_number_of_cuts() {
        let (_root, directory) = directory();
        let mut capture = directory.open("x", None).unwrap();
        let mut writer = capture.file().try_clone().unwrap();

        writer.write_all(b"first").unwrap();
        for _ in 0..5 {
            writer.write_all(&vec![b'.'; 1024 * 1024]).unwrap();
            capture.trim();
        }
        writer.write_all(b"last").unwrap();
        let text = capture.text();

        assert!(text.starts_with("first...") && text.ends_with("...last"), "{text}");
        let left_out = 5 + 5 * 1024 * 1024 + 4 - HEAD_BYTES - TAIL_BYTES;
        assert!(text.contains(&format!("\n... {left_out} bytes left out ...\n")), "{text}");
    }

    #[test]
    fn control_characters_and_broken_text_are_replaced() {
        assert_eq!(printable(b"a\0b\x1b[1m\tc\r\nd\xff"), "a\u{fffd}b\u{fffd}[1m\tc\nd\u{fffd}");
    }

    #[test]
    fn a_name_never_leaves_the_directory_and_different_names_stay_different() {
        assert_eq!(file_stem("start-1"), "start-1");
        for odd in ["../../etc/passwd", "", ".", "a/b", "a\0b", &"x".repeat(999)] {
            let stem = file_stem(odd);
            assert!(!stem.contains(['/', '\0']) && !stem.starts_with('.') && stem.len() < 200, "{stem}");
        }
        assert_ne!(file_stem("a/b"), file_stem("a_b"));
    }

    #[test]
    fn an_old_capture_is_used_again_if_it_is_as_a_new_one() {
        let (root, directory) = directory();
        let inode = |capture: &Capture| capture.file().metadata().unwrap().ino();
        let first = directory.open("x", None).unwrap();
        (&mut first.file()).write_all(b"old").unwrap();
        let first_inode = inode(&first);
        drop(first);

        let second = directory.open("x", None).unwrap();
        assert_eq!((inode(&second), second.text().as_str()), (first_inode, ""));
        drop(second);
        std::fs::set_permissions(root.path().join("output/x.out"), Permissions::from_mode(0o666)).unwrap();
        let third = directory.open("x", None).unwrap();

        assert_eq!(third.file().metadata().unwrap().mode() & 0o7777, MODE);
        assert_eq!(std::fs::read_dir(root.path().join("output")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_still_written_to_is_kept_bounded_and_removed_later() {
        let (root, directory) = directory();
        let first = directory.open("x", None).unwrap();
        (&mut first.file()).write_all(&vec![b'.'; 2 * 1024 * 1024]).unwrap();

        let second = directory.open("x", None).unwrap();
        assert_eq!(directory.trim(&HashMap::new()).pause, PAUSE_GROWING);

        assert_eq!((first.len(), second.len()), (0, 0));
        assert_eq!(std::fs::read_dir(root.path().join("output")).unwrap().count(), 2);
        drop(first);
        directory.trim(&HashMap::new());
        assert_eq!(std::fs::read_dir(root.path().join("output")).unwrap().count(), 1);
    }

    /// Slower where the machine is; what counts is how often it is looked at beside it.
    #[tokio::test]
    async fn what_a_daemon_writes_at_a_hundred_megabytes_a_second_stays_small() {
        const BYTES_MAX: u64 = 64 << 20;
        let (_root, directory) = directory();
        let capture = directory.open("x", None).unwrap();
        let mut writer = capture.file().try_clone().unwrap();
        drop(capture); // its command has ended, and the daemon writes on
        let trimming = directory.clone().trim_for_ever();
        let writing = tokio::task::spawn_blocking(move || {
            let (block, mut last, mut largest, mut cuts) = (vec![b'.'; 1 << 20], 0, 0, 0);
            for _ in 0..300 {
                writer.write_all(&block).unwrap();
                let len = writer.metadata().unwrap().len();
                largest = largest.max(len);
                cuts += u32::from(len <= last);
                last = len;
                let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 });
            }
            (largest, cuts)
        });

        let (largest, cuts) = tokio::select! {
            () = trimming => unreachable!("it trims for ever"),
            ended = writing => ended.unwrap(),
        };

        assert!(largest < BYTES_MAX && cuts > 0, "{largest} bytes, {cuts} cuts");
    }

    #[test]
    fn a_file_is_looked_at_soon_again_while_it_grows_fast_and_no_longer() {
        let (_root, directory) = directory();
        let capture = directory.open("x", None).unwrap();
        let mut daemon = capture.file().try_clone().unwrap();
        drop(capture);
        let none = directory.trim(&HashMap::new());
        daemon.write_all(&vec![b'.'; 128 * 1024]).unwrap();

        let growing = directory.trim(&none.sizes);
        daemon.write_all(b"a line").unwrap();
        let calm = directory.trim(&growing.sizes);

        assert_eq!([none.pause, growing.pause, calm.pause], [PAUSE, PAUSE_GROWING, PAUSE]);
    }

    #[test]
    fn the_capture_of_a_command_that_has_ended_is_within_its_bound() {
        let (root, directory) = directory();
        let capture = directory.open("x", None).unwrap();
        (&mut capture.file()).write_all(b"first").unwrap();
        (&mut capture.file()).write_all(&vec![b'.'; 8 << 20]).unwrap();
        (&mut capture.file()).write_all(b"last").unwrap();

        let text = capture.into_text();

        assert!(text.starts_with("first...") && text.ends_with("...last"), "{text}");
        assert!(std::fs::metadata(root.path().join("output/x.out")).unwrap().len() <= FILE_BYTES_MAX);
    }

    #[test]
    fn the_capture_of_a_command_that_runs_is_cut_by_its_command_alone() {
        let (_root, directory) = directory();
        let mut capture = directory.open("x", None).unwrap();
        (&mut capture.file()).write_all(b"first").unwrap();
        (&mut capture.file()).write_all(&vec![b'.'; 2 * 1024 * 1024]).unwrap();

        assert_eq!(directory.trim(&HashMap::new()).sizes.len(), 0);
        assert_eq!(capture.trim(), PAUSE_GROWING);
        assert!(capture.text().starts_with("first"));
        (&mut capture.file()).write_all(&vec![b'.'; 2 * 1024 * 1024]).unwrap();
        let file = capture.file().try_clone().unwrap();
        drop(capture);

        directory.trim(&HashMap::new());
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn captures_of_forgotten_names_go_and_what_is_written_to_is_put_aside() {
        let (root, directory) = directory();
        let names = || {
            let entries = std::fs::read_dir(root.path().join("output")).unwrap().flatten();
            let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        for name in ["a.start", "b.start", "c.start"] {
            directory.open(name, None).unwrap();
        }
        let daemon = OpenOptions::new().append(true).open(root.path().join("output/c.start.out")).unwrap();

        directory.remove(&["b.start".to_owned(), "none".to_owned()]);
        assert_eq!(names(), ["a.start.out", "c.start.out"]);
        directory.retain(&["a.start".to_owned()].into());
        assert_eq!(names(), ["a.start.out", "c.start.0.old"]);
        drop(daemon);
        directory.trim(&HashMap::new());
        assert_eq!(names(), ["a.start.out"]);
    }

    #[test]
    fn a_capture_that_is_written_to_is_not_unlinked_however_many_are_put_aside() {
        let (root, directory) = directory();
        let path = root.path().join("output/x.out");
        let mut daemons = Vec::new();
        for _ in 0..OLD_MAX {
            directory.open("x", None).unwrap();
            daemons.push(OpenOptions::new().append(true).open(&path).unwrap());
        }
        directory.open("x", None).unwrap();
        let last = OpenOptions::new().append(true).open(&path).unwrap();

        let refused = directory.open("x", None).unwrap_err();
        directory.remove(&["x".to_owned()]);

        assert!(refused.to_string().contains("64 earlier captures"), "{refused}");
        assert_eq!(last.metadata().unwrap().nlink(), 1, "it is still seen, and bounded");
        drop(daemons);
        directory.trim(&HashMap::new());
        directory.open("x", None).unwrap();
    }
}
