//! The agent programs that this server offers for upgrades.
//!
//! Promised: a build is a plain file directly in the download directory, an ELF program with the mark of an agent,
//! identified by its digest; its version and architecture are read from the file, which is never run. File and
//! directory are owned by root or the server's user and writable by nobody else; otherwise there is no build, and the
//! log says why. Once known, its bytes come from the file that was read then, whatever has its name now; if that file
//! was overwritten it is no longer known.
//! Absent: any way to add one over the network. Anyone who can write to that directory decides what agents can run;
//! fleet administrators choose among what is there.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use proctor_model::{AgentVersion, BUILD_MARK, VERSION_BYTES_MAX};
use proctor_pki::hex;
use rustix::fs::{Mode, OFlags};

const FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;
const FILES_MAX: usize = 64;
const NAME_CHARS_MAX: usize = 100;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const ELF: &[u8] = b"\x7fELF";
/// Where an ELF file says for which machine it is.
const MACHINE_AT: usize = 18;
/// How much of a file shows whether it is worth reading.
const HEAD_BYTES: u64 = 20;

/// A program that agents can become.
#[derive(Debug)]
pub struct Build {
    pub name: String,
    pub version: AgentVersion,
    pub arch: &'static str,
    /// In hexadecimal digits.
    pub sha256: String,
    pub size: u64,
    file: File,
    stamp: Stamp,
}

/// By these a file is known to be the same.
type Stamp = (u64, u64, u64, i64, i64);

/// A file as it was when it was read, and what it is.
type Known = (Stamp, Option<Arc<Build>>);

/// The builds of one server.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    dir: OnceLock<PathBuf>,
    /// With the files that are none.
    known: Mutex<HashMap<String, Known>>,
    /// One file at a time is in memory, whoever asks.
    reading: tokio::sync::Mutex<()>,
}

impl Builds {
    /// The directory that holds them; the first one counts.
    pub(crate) fn hold_in(&self, dir: PathBuf) {
        let _ = self.dir.set(dir);
    }

    /// All of them, by name.
    pub(crate) async fn list(self: &Arc<Self>) -> Vec<Arc<Build>> {
        let _turn = self.reading.lock().await;
        let builds = self.clone();
        tokio::task::spawn_blocking(move || builds.read_all()).await.unwrap_or_default()
    }

    /// The build with this digest, even if its file has been renamed or removed meanwhile.
    pub(crate) fn known(&self, sha256: &str) -> Option<Arc<Build>> {
        let known = self.known.lock();
        let mut builds = known.values().filter_map(|(_, build)| build.as_ref());
        builds.find(|build| build.sha256 == sha256 && build.is_intact()).cloned()
    }

    fn read_all(&self) -> Vec<Arc<Build>> {
        let Some(path) = self.dir.get() else { return Vec::new() };
        let dir = open_dir(path)
            .inspect_err(|problem| {
                tracing::warn!(path = %path.display(), problem, "no builds in download directory");
            })
            .unwrap_or_default();
        let names = if dir.is_some() { names(path) } else { Vec::new() };
        let builds = names.iter().filter_map(|name| self.read(dir.as_ref()?, name)).collect();
        // Files that are gone; an upgrade in progress continues with what it has.
        self.known.lock().retain(|name, (_, build)| names.contains(name) || build.as_ref().is_some_and(is_in_use));
        builds
    }

    fn read(&self, dir: &File, name: &str) -> Option<Arc<Build>> {
        let (file, stamp) = open(dir, name)?;
        if let Some((_, known)) = self.known.lock().get(name).filter(|(known, _)| *known == stamp) {
            return known.clone();
        }
        let build = describe(file, stamp, name)
            .inspect_err(|error| tracing::warn!(name, %error, "cannot read a file of the download directory"))
            .ok()
            .flatten()
            .map(Arc::new);
        let mut known = self.known.lock();
        let replaced = known.insert(name.to_owned(), (stamp, build.clone()));
        // An upgrade may be at it: it keeps its bytes under a name that no file has.
        if let Some((stamp, Some(old))) = replaced.filter(|(_, old)| old.as_ref().is_some_and(is_in_use)) {
            known.insert(format!("/{}", old.sha256), (stamp, Some(old)));
        }
        build
    }
}

fn is_in_use(build: &Arc<Build>) -> bool {
    Arc::strong_count(build) > 1
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with('.') && name.len() <= NAME_CHARS_MAX);
    names.sort();
    names.truncate(FILES_MAX);
    names
}

/// None if there is no such directory; the problem if others could put something there.
fn open_dir(path: &Path) -> Result<Option<File>, String> {
    let dir = match rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(dir) => File::from(dir),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let metadata = dir.metadata().map_err(|error| error.to_string())?;
    check_writers(&metadata, rustix::process::geteuid().as_raw())?;
    Ok(Some(dir))
}

/// The problem if anyone but root and this server's user could write it.
fn check_writers(metadata: &Metadata, us: u32) -> Result<(), String> {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != 0 && owner != us {
        return Err(format!("it belongs to uid {owner}, and must belong to root or uid {us}"));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(format!("others may write it (mode {mode:04o}): chmod go-w"));
    }
    Ok(())
}

fn open(dir: &File, name: &str) -> Option<(File, Stamp)> {
    // Not what a symlink leads to, only what an administrator put there; and a pipe must not block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?);
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return None;
    }
    if let Err(problem) = check_writers(&metadata, rustix::process::geteuid().as_raw()) {
        tracing::warn!(name, problem, "file in download directory is not a build");
        return None;
    }
    Some((file, stamp(&metadata)))
}

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// None for a file that is no agent.
fn describe(file: File, stamp: Stamp, name: &str) -> std::io::Result<Option<Build>> {
    let mut content = Vec::new();
    (&file).take(HEAD_BYTES).read_to_end(&mut content)?;
    if arch(&content).is_none() {
        return Ok(None);
    }
    (&file).take(FILE_BYTES_MAX - HEAD_BYTES).read_to_end(&mut content)?;
    let Some((arch, version)) = arch(&content).zip(version(&content)) else { return Ok(None) };
    let sha256 = hex(&proctor_pki::sha256_of(content.as_slice())?);
    Ok(Some(Build { name: name.to_owned(), version, arch, sha256, size: content.len() as u64, file, stamp }))
}

/// As `std::env::consts::ARCH` names it.
fn arch(content: &[u8]) -> Option<&'static str> {
    if !content.starts_with(ELF) {
        return None;
    }
    let machine: [u8; 2] = content.get(MACHINE_AT..MACHINE_AT + 2)?.try_into().ok()?;
    match u16::from_le_bytes(machine) {
        62 => Some("x86_64"),
        183 => Some("aarch64"),
        243 => Some("riscv64"),
        258 => Some("loongarch64"),
        _ => None,
    }
}

/// What follows the first mark that has a version behind it.
fn version(content: &[u8]) -> Option<AgentVersion> {
    let mark = BUILD_MARK.as_bytes();
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| *byte == mark[0]) {
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix(mark) {
            let text = &after[..after.len().min(VERSION_BYTES_MAX)];
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            let version = std::str::from_utf8(&text[..end]).ok().and_then(|text| text.parse().ok());
            if version.is_some() {
                return version;
            }
        }
        rest = &rest[1..];
    }
    None
}

impl Build {
    /// Its file has not been written since it was read.
    fn is_intact(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| stamp(&metadata) == self.stamp)
    }

    /// At most `length` bytes from there; fewer at the end. Blocks.
    pub(crate) fn part(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(left)];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// The content of a build.
#[cfg(test)]
pub(crate) fn sample(machine: u16, version: &str) -> Vec<u8> {
    let mut content = [ELF, &[2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0], &machine.to_le_bytes()].concat();
    // The mark alone, as in a program that only looks for it.
    content.extend_from_slice(&[b"xx", BUILD_MARK.as_bytes(), b"\x01\x02"].concat());
    content.extend_from_slice(&[BUILD_MARK.as_bytes(), version.as_bytes(), b"\0more"].concat());
    content
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Seek;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::FileType;

    use super::*;

    #[tokio::test]
    async fn builds_are_known_by_what_they_are_and_keep_their_bytes_while_they_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let _ = std::fs::remove_file(dir.path().join(name));
            std::fs::write(dir.path().join(name), content).unwrap();
        };
        let content = sample(62, "1.2.3");
        write("agent", &content);
        write("agent-arm", &sample(183, "1.2.4-rc.1"));
        write("other-machine", &sample(8, "1.2.3"));
        write("no-version", &sample(62, "one"));
        write("text", b"proctor");
        std::os::unix::fs::symlink(dir.path().join("agent"), dir.path().join("link")).unwrap();
        let builds = Arc::new(Builds::default());
        assert!(builds.list().await.is_empty());
        builds.hold_in(dir.path().to_owned());

        let found = builds.list().await;

        let told: Vec<_> = found.iter().map(|b| (b.name.as_str(), b.version.as_str(), b.arch)).collect();
        assert_eq!(told, [("agent", "1.2.3", "x86_64"), ("agent-arm", "1.2.4-rc.1", "aarch64")]);
        let old = builds.known(&found[0].sha256).unwrap();
        drop(found);
        write("agent", &sample(62, "1.2.5"));
        assert_eq!(builds.list().await[0].version.as_str(), "1.2.5");
        assert_eq!(builds.known(&old.sha256).unwrap().part(0, 1 << 20).unwrap(), content);
        assert_eq!(old.part(old.size - 2, 100).unwrap(), b"re");
        assert_eq!(old.part(old.size + 7, 100).unwrap(), b"");
        let gone = old.sha256.clone();
        drop(old);
        builds.list().await;
        assert!(builds.known(&gone).is_none(), "nobody uses it");
    }

    #[tokio::test]
    async fn a_build_whose_file_was_written_again_is_no_longer_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent");
        std::fs::write(&path, sample(62, "1.2.3")).unwrap();
        let builds = Arc::new(Builds::default());
        builds.hold_in(dir.path().to_owned());
        let old = builds.list().await.remove(0);
        assert!(builds.known(&old.sha256).is_some());

        std::fs::write(&path, sample(62, "1.2.30")).unwrap();

        assert!(builds.known(&old.sha256).is_none());
        assert_eq!(builds.list().await[0].version.as_str(), "1.2.30");
        assert!(builds.known(&old.sha256).is_none(), "also while somebody uses it");
    }

    #[tokio::test]
    async fn what_others_could_have_written_is_no_build() {
        let dir = tempfile::tempdir().unwrap();
        let set_mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for (name, mode) in [("group", 0o664), ("mine", 0o644), ("world", 0o646)] {
            std::fs::write(dir.path().join(name), sample(62, "1.2.3")).unwrap();
            set_mode(&dir.path().join(name), mode);
        }
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let builds = Arc::new(Builds::default());
        builds.hold_in(dir.path().to_owned());
        let found = async || builds.list().await.iter().map(|build| build.name.clone()).collect::<Vec<_>>();

        assert_eq!(found().await, ["mine"]);
        for open in [0o777, 0o1777, 0o770] {
            set_mode(dir.path(), open);
            assert_eq!(found().await, [""; 0], "{open:o}");
        }
        set_mode(dir.path(), 0o755);
        assert_eq!(found().await, ["mine"]);
    }

    #[test]
    fn a_directory_or_file_of_somebody_else_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let owner = 12_345;
        let us = rustix::process::geteuid().as_raw();
        check_writers(&dir.path().metadata().unwrap(), us).unwrap();

        let problem = if us == 0 {
            std::os::unix::fs::chown(dir.path(), Some(owner), None).unwrap();
            check_writers(&dir.path().metadata().unwrap(), us)
        } else {
            check_writers(&dir.path().metadata().unwrap(), owner)
        };

        assert!(problem.unwrap_err().contains("must belong to root"));
    }

    #[test]
    fn a_large_file_that_is_no_program_is_not_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(FILE_BYTES_MAX).unwrap();

        assert!(describe(file.try_clone().unwrap(), stamp(&file.metadata().unwrap()), "disk image").unwrap().is_none());

        assert_eq!(file.stream_position().unwrap(), HEAD_BYTES);
    }
}
