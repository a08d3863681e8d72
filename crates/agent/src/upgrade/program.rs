//! The program file of this agent, and the new one next to it.
//!
//! Promised: only the regular file that this program runs from is ever replaced, in a directory that only root and
//! the agent's own user can write to; the new program is next to it, complete and verified, before it gets the name
//! of the old one; the name always refers to one of the two. The replaced program stays as `NAME.previous`.
//! Absent: trust in the bytes, which come from a signed order.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use proctor_model::{Message, messages};
use proctor_runtime::private;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::ledger;

/// No agent is near this size.
pub(crate) const SIZE_MAX: u64 = 512 * 1024 * 1024;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
const SET_ID: u32 = 0o6000;
/// Where a file keeps capabilities.
const CAPABILITIES: &str = "security.capability";
/// At least so much of the mode; the rest is that of the old program.
const EXECUTABLE: u32 = 0o500;
const OURSELVES: &str = "/proc/self/exe";
/// The new program must report what it is within this time.
const CHECK_MAX: Duration = Duration::from_secs(20);
const CHECK_OUTPUT_BYTES_MAX: usize = 4096;
/// How long to wait for a program that seems to be still being written.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_RETRY: Duration = Duration::from_millis(20);
/// The subcommand by which a program reports what it is; older and newer versions answer it alike.
pub const CHECK_COMMAND: &str = "upgrade-check";

/// What a program reports about itself, as JSON. Fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCheck {
    pub version: String,
    /// Of the ledger that it writes.
    pub ledger_schema: u32,
    /// The oldest schema whose agents can continue with that ledger.
    pub ledger_oldest_reader: u32,
}

impl ProgramCheck {
    /// Of this program.
    pub fn ours() -> Self {
        Self {
            version: crate::version().to_owned(),
            ledger_schema: ledger::SCHEMA,
            ledger_oldest_reader: ledger::OLDEST_READER,
        }
    }
}

/// Why the fetched program cannot be tried.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unstaged {
    /// It is not what was ordered; it was removed.
    OtherBytes,
    Failed(Message),
}

impl Unstaged {
    pub(crate) fn into_reason(self) -> Message {
        match self {
            Self::OtherBytes => messages::upgrade_other_bytes(),
            Self::Failed(reason) => reason,
        }
    }
}

impl From<Message> for Unstaged {
    fn from(reason: Message) -> Self {
        Self::Failed(reason)
    }
}

/// Where this program's file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    /// The file that this program runs from, if it may be replaced.
    pub(crate) fn ours() -> Result<Self, Message> {
        let path = std::env::current_exe().map_err(|error| messages::upgrade_not_replaceable(OURSELVES, error))?;
        let refused = |problem: String| messages::upgrade_not_replaceable(path.display(), problem);
        check_replaceable(&path).map_err(refused)?;
        Ok(Self { path })
    }

    /// One that was found to be replaceable.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Turns what was fetched into the program to try: its bytes are those that were ordered, synced to disk, and it
    /// is executable by whoever may execute the old one.
    pub(crate) fn stage(&self, sha256: &str) -> Result<(), Unstaged> {
        let kept = |error: io::Error| messages::upgrade_not_kept(self.part().display(), error);
        let old = std::fs::symlink_metadata(&self.path).map_err(kept)?;
        stage(&self.part(), &self.staged(), sha256, &old)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.{suffix}"))
    }

    /// The new program, whole and checked.
    pub(crate) fn staged(&self) -> PathBuf {
        self.beside("upgrade")
    }

    /// What has been fetched of the new program.
    pub(crate) fn part(&self) -> PathBuf {
        self.beside("upgrade.part")
    }

    fn previous(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!("{name}.previous"))
    }

    /// Removes what upgrades left next to the program.
    pub(crate) fn clear(&self) {
        for path in [self.staged(), self.part()] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove leftover file of an upgrade");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Whether the name still leads to the program that runs.
    pub(crate) fn is_current(&self) -> bool {
        let (ours, there) = (std::fs::metadata(OURSELVES), std::fs::symlink_metadata(&self.path));
        matches!((ours, there), (Ok(ours), Ok(there)) if same(&ours, &there))
    }

    /// Gives the new program the name of the old one. After a failure the name leads to the old one.
    pub(crate) fn install(&self) -> io::Result<()> {
        if !self.is_current() {
            return Err(io::Error::other("somebody else has replaced it meanwhile"));
        }
        self.replace(sync_dir)
    }

    fn replace(&self, sync_dir: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        let previous = self.previous();
        match std::fs::remove_file(&previous) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        std::fs::hard_link(&self.path, &previous)?;
        std::fs::rename(self.staged(), &self.path)?;
        // What is not on disk is not installed: the old one continues, and must have its name.
        sync_dir(&self.path).inspect_err(|_| {
            if let Err(problem) = self.put_back() {
                tracing::error!(%problem, path = %self.path.display(), "cannot restore the previous program");
            }
        })
    }

    /// Undoes [`Self::install`].
    pub(crate) fn put_back(&self) -> io::Result<()> {
        std::fs::rename(self.previous(), &self.path)?;
        sync_dir(&self.path)
    }

    /// What to run to become the old program again: its name, or if that is gone, what runs now.
    pub(crate) fn again(&self) -> PathBuf {
        if self.is_current() { self.path.clone() } else { OURSELVES.into() }
    }
}

fn sync_dir(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Its owner can always make it writable, and rename what is in it.
fn check_owner(what: &str, metadata: &Metadata, us: u32) -> Result<(), String> {
    let owner = metadata.uid();
    if owner != 0 && owner != us {
        return Err(format!("{what} belongs to uid {owner}, and must belong to root or uid {us}"));
    }
    Ok(())
}

fn check_writers(what: &str, metadata: &Metadata) -> Result<(), String> {
    let mode = metadata.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(format!("others may write {what} (mode {mode:04o})"));
    }
    Ok(())
}

/// The problem, where the file must not be replaced.
fn check_replaceable(path: &Path) -> Result<(), String> {
    let unreadable = |error: io::Error| error.to_string();
    let file = std::fs::symlink_metadata(path).map_err(unreadable)?;
    if !file.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if !std::fs::metadata(OURSELVES).is_ok_and(|ours| same(&ours, &file)) {
        return Err("it is no longer the program that runs: restart the agent first".to_owned());
    }
    let dir = path.parent().ok_or("it has no directory")?;
    let us = rustix::process::geteuid().as_raw();
    check_owner("it", &file, us)?;
    check_writers("it", &file)?;
    check_rights(path, &file)?;
    let metadata = std::fs::symlink_metadata(dir).map_err(unreadable)?;
    check_owner("its directory", &metadata, us)?;
    check_writers("its directory", &metadata)?;
    for above in dir.ancestors().skip(1) {
        let metadata = std::fs::symlink_metadata(above).map_err(unreadable)?;
        check_above(&above.display().to_string(), &metadata, us)?;
    }
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)
        .map_err(|error| format!("its directory cannot be written: {error}"))
}

/// A program that gets rights from its file would lose them: the new file has none.
fn check_rights(path: &Path, metadata: &Metadata) -> Result<(), String> {
    let has_capabilities = match rustix::fs::lgetxattr(path, CAPABILITIES, &mut [0_u8; 64][..]) {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(_) => false,
    };
    if has_capabilities || metadata.mode() & SET_ID != 0 {
        return Err("it has file capabilities or a set-id bit, which the new program would not have".to_owned());
    }
    Ok(())
}

/// A directory above. In a sticky one others cannot rename what is not theirs, but its owner can.
fn check_above(what: &str, metadata: &Metadata, us: u32) -> Result<(), String> {
    check_owner(what, metadata, us)?;
    if metadata.mode() & STICKY == 0 { check_writers(what, metadata) } else { Ok(()) }
}

/// The file that the new program is fetched into, and how much of it is there already.
pub(crate) fn open_part(path: &Path, is_same_build: bool, size: u64) -> io::Result<(File, u64)> {
    if !is_same_build {
        return Ok((private::new_file(path)?, 0));
    }
    let mut file = private::file(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() != 1 || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Ok((private::new_file(path)?, 0));
    }
    let there = if metadata.len() > size { 0 } else { metadata.len() };
    file.set_len(there)?;
    file.seek(SeekFrom::Start(there))?;
    Ok((file, there))
}

pub(crate) fn append(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)
}

/// Whether a file has these bytes.
pub(crate) fn has_digest(path: &Path, sha256: &str) -> io::Result<bool> {
    let file = File::open(path)?;
    Ok(proctor_pki::hex(&proctor_pki::sha256_of(file)?) == sha256)
}

/// Whether this very program has these bytes.
pub(crate) fn is_running(sha256: &str) -> bool {
    has_digest(Path::new(OURSELVES), sha256).unwrap_or(false)
}

fn stage(part: &Path, staged: &Path, sha256: &str, old: &Metadata) -> Result<(), Unstaged> {
    let kept = |error: io::Error| messages::upgrade_not_kept(part.display(), error);
    if !has_digest(part, sha256).map_err(kept)? {
        let _ = std::fs::remove_file(part);
        return Err(Unstaged::OtherBytes);
    }
    let file = private::file(part).map_err(kept)?;
    // The owner first: a change of owner takes bits away.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid())).map_err(kept)?;
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o777 | EXECUTABLE)).map_err(kept)?;
    file.sync_all().map_err(kept)?;
    drop(file);
    std::fs::rename(part, staged).map_err(kept)?;
    Ok(sync_dir(staged).map_err(kept)?)
}

/// Runs the new program once so that it reports what it is. Blocks for a limited time.
pub(crate) fn check(staged: &Path, version: &str) -> Result<(), Message> {
    let failed = |problem: String| messages::upgrade_check_failed(problem);
    let text = ask(staged).map_err(failed)?;
    let said: ProgramCheck = serde_json::from_str(&text).map_err(|_| failed("it did not say what it is".to_owned()))?;
    if said.version != version {
        return Err(failed(format!("it is version {}, not {version}", said.version)));
    }
    if said.ledger_oldest_reader > ledger::SCHEMA {
        return Err(messages::upgrade_cannot_go_back(said.ledger_schema));
    }
    if said.ledger_schema < ledger::OLDEST_READER {
        let (theirs, needed) = (said.ledger_schema, ledger::OLDEST_READER);
        return Err(failed(format!("it cannot read this agent's ledger (schema {theirs}, and {needed} is needed)")));
    }
    Ok(())
}

fn ask(program: &Path) -> Result<String, String> {
    let mut child = spawn_check(program).map_err(|error| error.to_string())?;
    if !ends_within(&child, CHECK_MAX) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("it did not end within {} s", CHECK_MAX.as_secs()));
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let out = child.stdout.take().ok_or("its output is gone")?;
    let text = read_waiting(out).map_err(|error| error.to_string())?;
    if status.success() { Ok(text) } else { Err(format!("it ended with {status}")) }
}

fn spawn_check(program: &Path) -> io::Result<Child> {
    when_not_busy(|| {
        Command::new(program)
            .arg(CHECK_COMMAND)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .env_remove("NOTIFY_SOCKET")
            .spawn()
    })
}

/// A child that is just being started elsewhere in this process may hold a copy of the descriptor that the program was
/// written through: until it has become its own program, this one cannot be run.
fn when_not_busy<T>(mut spawn: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && begun.elapsed() < BUSY_MAX => {
                pause(BUSY_RETRY);
            }
            spawned => return spawned,
        }
    }
}

/// On a thread that may wait.
fn pause(time: Duration) {
    if let Ok(time) = Timespec::try_from(time) {
        let _ = poll(&mut [], Some(&time));
    }
}

/// What is in a pipe now. Its writer has exited, but its children may hold the other end forever.
fn read_waiting(mut out: ChildStdout) -> io::Result<String> {
    rustix::io::ioctl_fionbio(&out, true)?;
    let mut bytes = vec![0; CHECK_OUTPUT_BYTES_MAX];
    let mut length = 0;
    while length < bytes.len() {
        match out.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Whether an uncollected child exits within this time.
fn ends_within(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return false };
    let begun = Instant::now();
    loop {
        let Ok(left) = Timespec::try_from(limit.saturating_sub(begun.elapsed())) else { return false };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("new");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn said(version: &str, oldest: u32) -> String {
        let check = ProgramCheck { version: version.into(), ledger_schema: 9, ledger_oldest_reader: oldest };
        format!("#!/bin/sh\necho '{}'\n", serde_json::to_string(&check).unwrap())
    }

    #[test]
    fn a_program_that_is_another_version_or_closes_the_way_back_or_says_nothing_fails_its_check() {
        let dir = tempfile::tempdir().unwrap();
        let answer = |text: &str| check(&script(dir.path(), text), "1.2.3").map_err(|error| error.to_string());

        answer(&said("1.2.3", ledger::SCHEMA)).unwrap();
        assert!(answer(&said("1.2.4", 1)).unwrap_err().contains("it is version 1.2.4, not 1.2.3"));
        assert!(answer(&said("1.2.3", ledger::SCHEMA + 1)).unwrap_err().contains("no way back"));
        let old = said("1.2.3", 1).replace("\"ledger_schema\":9", "\"ledger_schema\":0");
        assert!(answer(&old).unwrap_err().contains("cannot read this agent's ledger"));
        assert!(answer("#!/bin/sh\nexit 3\n").unwrap_err().contains("exit status: 3"));
        assert!(answer("#!/bin/sh\n").unwrap_err().contains("did not say what it is"));
        assert!(check(&dir.path().join("absent"), "1.2.3").is_err());
    }

    #[test]
    fn a_part_is_continued_only_for_the_same_build_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (part, other) = (dir.path().join(".agent.upgrade.part"), dir.path().join("other"));
        let (file, there) = open_part(&part, false, 10).unwrap();
        append(&file, b"half").unwrap();
        assert_eq!(there, 0);

        assert_eq!(open_part(&part, true, 10).unwrap().1, 4);
        assert_eq!(open_part(&part, true, 3).unwrap().1, 0, "longer than the build");
        std::fs::write(&other, "theirs").unwrap();
        std::fs::remove_file(&part).unwrap();
        std::fs::hard_link(&other, &part).unwrap();
        let (file, there) = open_part(&part, true, 10).unwrap();
        append(&file, b"ours").unwrap();

        assert_eq!((there, std::fs::read_to_string(&other).unwrap().as_str()), (0, "theirs"));
        std::fs::remove_file(&part).unwrap();
        std::os::unix::fs::symlink(&other, &part).unwrap();
        open_part(&part, true, 10).unwrap_err();
        open_part(&part, false, 10).unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "theirs");
    }

    #[test]
    fn other_bytes_than_those_ordered_are_thrown_away() {
        let dir = tempfile::tempdir().unwrap();
        let (part, staged) = (dir.path().join("part"), dir.path().join("staged"));
        let sha256 = proctor_pki::hex(&proctor_pki::sha256_of(&b"program"[..]).unwrap());
        let old = std::fs::metadata(script(dir.path(), "old")).unwrap();
        std::fs::write(&part, "other").unwrap();

        assert_eq!(stage(&part, &staged, &sha256, &old).unwrap_err(), Unstaged::OtherBytes);
        assert!(!part.exists() && !staged.exists());
        std::fs::write(&part, "program").unwrap();
        stage(&part, &staged, &sha256, &old).unwrap();

        assert_eq!(std::fs::metadata(&staged).unwrap().mode() & 0o777, 0o755);
        assert!(!part.exists());
    }

    #[test]
    fn a_check_does_not_wait_for_what_the_program_leaves_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (said, begun) = (said("1.2.3", 1), Instant::now());
        // Holds the other end of the pipe for longer than the test has.
        let program = script(dir.path(), &format!("{said}sleep 1000 &\necho $! > {}/pid\n", dir.path().display()));

        check(&program, "1.2.3").unwrap();

        let pid: i32 = std::fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
        let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL);
        assert!(begun.elapsed() < Duration::from_secs(500));
    }

    #[test]
    fn a_program_that_is_still_open_for_writing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), &said("1.2.3", 1));
        let mut writer = Some(File::options().append(true).open(&program).unwrap());
        let mut tries = 0;

        let child = when_not_busy(|| {
            tries += 1;
            if tries == 3 {
                writer = None;
            }
            Command::new(&program).stdout(Stdio::null()).spawn()
        });

        assert!(child.unwrap().wait().unwrap().success());
        assert!(tries >= 3 && writer.is_none());
        let other = when_not_busy(|| Err::<(), _>(io::ErrorKind::NotFound.into())).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_directory_that_cannot_be_synced_has_the_old_program_under_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let program = Program::at(dir.path().join("agent"));
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        std::fs::write(program.path(), "old").unwrap();
        std::fs::write(program.staged(), "new").unwrap();

        let failed = program.replace(|_| Err(io::Error::other("the disk is broken"))).unwrap_err();

        assert_eq!((failed.to_string().as_str(), text(program.path()).as_str()), ("the disk is broken", "old"));
        std::fs::write(program.staged(), "new").unwrap();
        program.replace(sync_dir).unwrap();
        assert_eq!((text(program.path()).as_str(), text(&program.previous()).as_str()), ("new", "old"));
    }

    #[test]
    fn a_sticky_directory_above_must_belong_to_us_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let us = rustix::process::geteuid().as_raw();
        let above = |mode: u32, us: u32| {
            std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            check_above("above", &std::fs::metadata(dir.path()).unwrap(), us)
        };

        above(0o1777, us).unwrap();
        assert!(above(0o777, us).unwrap_err().contains("others may write above"));
        if us != 0 {
            assert!(above(0o1777, us + 1).unwrap_err().contains("must belong to root"));
        } else {
            std::os::unix::fs::chown(dir.path(), Some(12_345), None).unwrap();
            assert!(above(0o1777, us).unwrap_err().contains("belongs to uid 12345"));
        }
    }

    #[test]
    fn a_program_that_has_rights_from_its_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "x");
        let check = || check_rights(&path, &std::fs::symlink_metadata(&path).unwrap());
        check().unwrap();

        for mode in [0o4755, 0o2755] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(check().unwrap_err().contains("set-id"), "{mode:o}");
        }

        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        // CAP_NET_BIND_SERVICE, permitted and effective; only root may write it, and not on every file system.
        let capability = [0x0200_0001_u32, 1 << 10, 0, 0, 0].map(u32::to_le_bytes).concat();
        if rustix::fs::setxattr(&path, CAPABILITIES, &capability, rustix::fs::XattrFlags::empty()).is_ok() {
            assert!(check().unwrap_err().contains("file capabilities"));
        }
    }

    #[test]
    fn only_the_program_that_runs_is_replaced_and_only_in_a_safe_place() {
        let ours = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();

        assert!(check_replaceable(&link).unwrap_err().contains("not a regular file"));
        assert!(check_replaceable(&script(dir.path(), "x")).unwrap_err().contains("no longer the program that runs"));
        let copy = dir.path().join("same");
        if std::fs::hard_link(&ours, &copy).is_ok() {
            check_replaceable(&copy).unwrap();
            std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
            assert!(check_replaceable(&copy).unwrap_err().contains("others may write its directory"));
        }
    }
}
