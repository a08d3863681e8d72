//! Which mount a path is on, determined without touching a file system that may hang.
//!
//! Promised: symlinks are followed as far as they are on local file systems; mounts and unmounts are seen at the next
//! lookup; listing the mounts touches none of them.
//! Absent: symlinks on other file systems, and on overlays, which may be stacked on others: what is behind them is
//! attributed to the mount that holds the symlink.

use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::procfs;

const PATH: &str = "/proc/self/mountinfo";
const BYTES_MAX: u64 = 4 * 1024 * 1024;
/// As the kernel's: a path with more links leads nowhere.
const LINKS_MAX: usize = 40;
/// Names on the way to one file, those of links included: what is deeper counts for the mount so far.
const NAMES_MAX: usize = 1024;
/// File systems that depend on nothing else.
const LOCAL: [&str; 8] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ramfs"];

#[derive(Debug)]
pub(crate) struct MountTable {
    mounts: Mounts,
    /// Tells of changes; None: the mounts are given, or the kernel does not list them.
    changes: Option<File>,
}

/// The mounts of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Mounts(Arc<[Mount]>);

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: String,
    is_local: bool,
}

impl MountTable {
    pub(crate) fn of_this_process() -> Self {
        let changes =
            File::open(PATH).inspect_err(|error| tracing::warn!(%error, PATH, "cannot read mount table")).ok();
        Self { mounts: read(), changes }
    }

    #[cfg(test)]
    pub(crate) fn given(mounts: &[(&str, &str)]) -> Self {
        let mount = |(point, kind): &(&str, &str)| Mount { point: (*point).to_owned(), is_local: LOCAL.contains(kind) };
        Self { mounts: Mounts(mounts.iter().map(mount).collect()), changes: None }
    }

    /// Whether anything has changed.
    pub(crate) fn refresh(&mut self) -> bool {
        let Some(file) = &self.changes else { return false };
        let mut asked = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::PRI)];
        let is_changed = poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|changed| changed > 0);
        if is_changed {
            self.mounts = read();
        }
        is_changed
    }

    pub(crate) fn contains(&self, point: &str) -> bool {
        self.mounts.0.iter().any(|mount| mount.point == point)
    }

    pub(crate) fn mounts(&self) -> &Mounts {
        &self.mounts
    }
}

impl Mounts {
    /// The mount that has to answer for a path; empty if none is known to hold it. Touches only local file systems.
    pub(crate) fn holding(&self, path: &Path) -> &str {
        let mut real = PathBuf::new();
        let mut rest = parts(path);
        let (mut links, mut names) = (0, 0);
        while let Some(part) = rest.pop() {
            names += 1;
            if names > NAMES_MAX {
                break;
            }
            if part == ".." {
                real.pop();
                continue;
            }
            real.push(part);
            // What is beyond a file system that may hang is not our concern.
            let Some(Mount { is_local: true, .. }) = self.mount_of(&real) else { break };
            match std::fs::read_link(&real) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    real.pop();
                    rest.extend(parts(&target));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Ok(_) | Err(_) => {}
            }
        }
        self.mount_of(&real).map_or("", |mount| &mount.point)
    }

    fn mount_of(&self, real: &Path) -> Option<&Mount> {
        // Of several mounts on one point the last one is on top.
        self.0.iter().filter(|mount| real.starts_with(&mount.point)).max_by_key(|mount| mount.point.len())
    }
}

/// The components of a path, the first one last. An absolute one starts over.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |part: Component<'_>| (part != Component::CurDir).then(|| part.as_os_str().to_owned());
    path.components().rev().filter_map(part).collect()
}

fn read() -> Mounts {
    let text = procfs::read(Path::new(PATH), BYTES_MAX).unwrap_or_default();
    Mounts(mounts(&String::from_utf8_lossy(&text)).into())
}

/// From the text of `mountinfo`, where odd characters are written in octal.
fn mounts(text: &str) -> Vec<Mount> {
    let plain = |point: &str| {
        ["\\040", "\\011", "\\012", "\\134"]
            .iter()
            .zip([" ", "\t", "\n", "\\"])
            .fold(point.to_owned(), |point, (escaped, plain)| point.replace(escaped, plain))
    };
    let mount = |line: &str| {
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default();
        Some(Mount { point: plain(line.split(' ').nth(4)?), is_local: LOCAL.contains(&kind) })
    };
    text.lines().filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn mounts_are_read_with_their_odd_characters_and_kinds() {
        let text = "36 35 98:0 / / rw,noatime - ext4 /dev/root rw\n\
                    37 36 0:5 / /mnt/my\\040disk rw shared:3 - nfs host:/x rw\nshort\n";

        let mount = |point: &str, is_local| Mount { point: point.to_owned(), is_local };
        assert_eq!(mounts(text), [mount("/", true), mount("/mnt/my disk", false)]);
    }

    #[test]
    fn links_are_followed_until_a_file_system_that_may_hang() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("a")).unwrap();
        symlink(at("nfs/x"), at("away")).unwrap();
        symlink("../away/y", at("a/relative")).unwrap();
        symlink(at("loop"), at("loop")).unwrap();
        std::fs::create_dir(at("nfs")).unwrap();
        symlink(at("a"), at("nfs/back")).unwrap();
        let nfs = at("nfs").to_str().unwrap().to_owned();
        let table = MountTable::given(&[("/", "ext4"), (&nfs, "nfs")]);

        for (path, mount) in [
            (at("a/not/yet"), "/"),
            (at("nfs-is-not-this"), "/"),
            (at("nfs/x"), nfs.as_str()),
            (at("away"), nfs.as_str()),
            (at("a/relative/z"), nfs.as_str()),
            (at("nfs/back"), nfs.as_str()),
            (at("loop/x"), "/"),
            (PathBuf::new(), ""),
        ] {
            assert_eq!(table.mounts().holding(&path), mount, "{}", path.display());
        }
    }
}
