//! The program file of this agent, and the new one beside it.
//!
//! Promised: only a regular file that this program runs from is ever replaced, in a directory that nobody but root and
//! the agent's own user can write; the new program is beside it, whole and checked, before it has the name of the old
//! one; the name always leads to one of the two. What was replaced stays as `NAME.previous`. Absent: trust in the bytes,
//! which come from an order that was signed.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use proctor_model::{Message, messages};
use proctor_runtime::private;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::ledger;

/// No agent is near this size.
pub(crate) const SIZE_MAX: u64 = 512 * 1024 * 1024;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// At least so much of the mode; the rest is that of the old program.
const EXECUTABLE: u32 = 0o500;
const OURSELVES: &str = "/proc/self/exe";
/// The new program says what it is within this time.
const CHECK_MAX: Duration = Duration::from_secs(20);
const CHECK_OUTPUT_BYTES_MAX: u64 = 4096;
/// The sub-command by which a program says what it is; older and newer versions answer it alike.
pub const CHECK_COMMAND: &str = "upgrade-check";

/// What a program says of itself, as JSON. Fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCheck {
    pub version: String,
    /// Of the ledger that it writes.
    pub ledger_schema: u32,
    /// The oldest schema whose agents can go on with that ledger.
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

/// Where this program's file is.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    /// The file that this program runs from, if it may be replaced.
    pub(crate) fn ours() -> Result<Self, Message> {
        let path = std::env::current_exe().map_err(|error| messages::upgrade_not_replaceable(OURSELVES, error))?;
        let refused = |problem: String| messages::upgrade_not_replaceable(path.display(), problem);
        check_place(&path).map_err(refused)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes what was fetched the program to try: its bytes are those that were ordered, on the disk, and it may be run by
    /// whoever may run the old one.
    pub(crate) fn stage(&self, sha256: &str) -> Result<(), Message> {
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

    /// What has come of the new program.
    pub(crate) fn part(&self) -> PathBuf {
        self.beside("upgrade.part")
    }

    fn previous(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!("{name}.previous"))
    }

    /// Removes what upgrades left beside the program.
    pub(crate) fn clear(&self) {
        for path in [self.staged(), self.part()] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove what an upgrade left");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Whether the name still leads to the program that runs.
    pub(crate) fn is_in_place(&self) -> bool {
        let (ours, there) = (std::fs::metadata(OURSELVES), std::fs::symlink_metadata(&self.path));
        matches!((ours, there), (Ok(ours), Ok(there)) if same(&ours, &there))
    }

    /// Gives the new program the name of the old one. After a failure the name leads to the old one.
    pub(crate) fn install(&self) -> io::Result<()> {
        if !self.is_in_place() {
            return Err(io::Error::other("somebody else has replaced it meanwhile"));
        }
        let previous = self.previous();
        match std::fs::remove_file(&previous) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        std::fs::hard_link(&self.path, &previous)?;
        std::fs::rename(self.staged(), &self.path)?;
        sync_dir(&self.path)
    }

    /// Undoes [`Self::install`].
    pub(crate) fn put_back(&self) -> io::Result<()> {
        std::fs::rename(self.previous(), &self.path)?;
        sync_dir(&self.path)
    }

    /// What to run to be the old program again: its name, or where that is gone, what runs now.
    pub(crate) fn again(&self) -> PathBuf {
        if self.is_in_place() { self.path.clone() } else { OURSELVES.into() }
    }
}

fn sync_dir(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn check_owner(what: &str, metadata: &Metadata) -> Result<(), String> {
    let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != 0 && owner != us {
        return Err(format!("{what} belongs to uid {owner}, and must belong to root or uid {us}"));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(format!("others may write {what} (mode {mode:04o})"));
    }
    Ok(())
}

/// The problem, where the file must not be replaced.
fn check_place(path: &Path) -> Result<(), String> {
    let unreadable = |error: io::Error| error.to_string();
    let file = std::fs::symlink_metadata(path).map_err(unreadable)?;
    if !file.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if !std::fs::metadata(OURSELVES).is_ok_and(|ours| same(&ours, &file)) {
        return Err("it is no longer the program that runs: restart the agent first".to_owned());
    }
    let dir = path.parent().ok_or("it has no directory")?;
    check_owner("it", &file)?;
    check_owner("its directory", &std::fs::symlink_metadata(dir).map_err(unreadable)?)?;
    for above in dir.ancestors().skip(1) {
        let metadata = std::fs::symlink_metadata(above).map_err(unreadable)?;
        // In a sticky directory others cannot rename what is not theirs.
        if metadata.mode() & STICKY == 0 {
            check_owner(&above.display().to_string(), &metadata)?;
        }
    }
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)
        .map_err(|error| format!("its directory cannot be written: {error}"))
}

/// The file into which the new program comes, and how much of it is there already.
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

fn stage(part: &Path, staged: &Path, sha256: &str, old: &Metadata) -> Result<(), Message> {
    let kept = |error: io::Error| messages::upgrade_not_kept(part.display(), error);
    if !has_digest(part, sha256).map_err(kept)? {
        let _ = std::fs::remove_file(part);
        return Err(messages::upgrade_other_bytes());
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
    sync_dir(staged).map_err(kept)
}

/// Runs the new program once and lets it say what it is. Blocks for a limited time.
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
    Ok(())
}

fn ask(program: &Path) -> Result<String, String> {
    let mut child = Command::new(program)
        .arg(CHECK_COMMAND)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env_remove("NOTIFY_SOCKET")
        .spawn()
        .map_err(|error| error.to_string())?;
    if !ends_within(&child, CHECK_MAX) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("it did not end within {} s", CHECK_MAX.as_secs()));
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let mut text = String::new();
    let out = child.stdout.take().ok_or("its output is gone")?;
    out.take(CHECK_OUTPUT_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if status.success() { Ok(text) } else { Err(format!("it ended with {status}")) }
}

/// Whether a child that nobody has waited for ends in this time.
fn ends_within(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return false };
    let Ok(limit) = Timespec::try_from(limit) else { return false };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
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

        assert_eq!(stage(&part, &staged, &sha256, &old).unwrap_err(), messages::upgrade_other_bytes());
        assert!(!part.exists() && !staged.exists());
        std::fs::write(&part, "program").unwrap();
        stage(&part, &staged, &sha256, &old).unwrap();

        assert_eq!(std::fs::metadata(&staged).unwrap().mode() & 0o777, 0o755);
        assert!(!part.exists());
    }

    #[test]
    fn only_the_program_that_runs_is_replaced_and_only_in_a_safe_place() {
        let ours = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();

        assert!(check_place(&link).unwrap_err().contains("not a regular file"));
        assert!(check_place(&script(dir.path(), "x")).unwrap_err().contains("no longer the program that runs"));
        let copy = dir.path().join("same");
        if std::fs::hard_link(&ours, &copy).is_ok() {
            check_place(&copy).unwrap();
            std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
            assert!(check_place(&copy).unwrap_err().contains("others may write its directory"));
        }
    }
}
