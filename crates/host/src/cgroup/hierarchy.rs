//! The agent's cgroups in one hierarchy: `proctor/<scope>/<leaf>` below some parent.
//!
//! Promised: a leaf is created on demand and removed together with whatever the process created in it, and the
//! directories above go with the last leaf, so nothing empty stays behind.
//! Absent: limits and weights; these cgroups only group and count.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::Timespec;

use super::Leaf;
use super::mounts::{ParentCgroup, path_in};
use crate::procfs;

const TOP: &str = "proctor";
/// Prefix of its scope's name for the cgroup of the agent itself, if it cannot be above.
const AGENT: &str = "agent.";
/// Another release may remove the directories above while a leaf is being created.
const MAKE_TRIES: usize = 8;
/// An exited process leaves its cgroup a moment after its exit is reported.
const REMOVE_TRIES: usize = 50;
const REMOVE_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// Cgroups that a process creates for itself in its leaf.
const NESTED_MAX: usize = 256;
const LEAVES_SWEPT_MAX: usize = 65_536;
const SCOPES_SWEPT_MAX: usize = 1024;
const FOREIGN_AGE_MIN: Duration = Duration::from_secs(600);
const PROCS_BYTES_MAX: u64 = 1024 * 1024;
const PATHS_BYTES_MAX: u64 = 16 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct Hierarchy {
    /// `…/proctor`
    top: PathBuf,
    /// `…/proctor/<scope>`
    scope: PathBuf,
    /// The scope as `/proc/<pid>/cgroup` names it.
    path: String,
    /// The line of `/proc/<pid>/cgroup`: a controller, `name=…`, or nothing for version 2.
    selector: String,
}

impl Hierarchy {
    pub(crate) fn at(parent: &ParentCgroup, selector: &str, scope: &str) -> Self {
        let top = parent.directory.join(TOP);
        Self {
            scope: top.join(scope),
            top,
            path: format!("{}/{TOP}/{scope}", parent.path.trim_end_matches('/')),
            selector: selector.to_owned(),
        }
    }

    pub(crate) fn scope(&self) -> &Path {
        &self.scope
    }

    pub(crate) fn selector(&self) -> &str {
        &self.selector
    }

    fn is_v2(&self) -> bool {
        self.selector.is_empty()
    }

    pub(crate) fn directory(&self, leaf: &Leaf) -> PathBuf {
        self.scope.join(leaf.as_str())
    }

    /// Creates the leaf if it does not exist.
    pub(crate) fn make(&self, leaf: &Leaf) -> io::Result<PathBuf> {
        let directory = self.directory(leaf);
        for _ in 0..MAKE_TRIES {
            match make_one(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.make_scope()?,
                made => return made.map(|()| directory),
            }
        }
        Err(io::Error::from(io::ErrorKind::NotFound))
    }

    fn make_scope(&self) -> io::Result<()> {
        make_one(&self.top)?;
        match make_one(&self.scope) {
            // Somebody has just removed what we created.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            made => made?,
        }
        if self.is_v2() {
            // For the exact memory of leaves; if it is unavailable, that is not a failure.
            for directory in [&self.top, &self.scope] {
                let _ = write(&directory.join("cgroup.subtree_control"), "+memory");
            }
        }
        Ok(())
    }

    /// Whether the process is now in the leaf, or in a cgroup created in it.
    pub(crate) fn holds(&self, leaf: &Leaf, pid: i32) -> bool {
        self.leaf_of(pid).is_some_and(|found| found == leaf.as_str())
    }

    /// Moves a process to where all of our cgroups are.
    pub(crate) fn move_out(&self, pid: i32) -> io::Result<()> {
        self.move_out_with(pid, write)
    }

    /// In version 2 a cgroup other than the root that has enabled controllers accepts no processes: then the agent
    /// gets one next to the scope, which is not a leaf of any process and is swept when it is empty.
    fn move_out_with(&self, pid: i32, write: impl Fn(&Path, &str) -> io::Result<()>) -> io::Result<()> {
        let parent = self.top.parent().unwrap_or(&self.top);
        match write(&parent.join("cgroup.procs"), &pid.to_string()) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let name = self.scope.file_name().unwrap_or_default().to_string_lossy();
                let beside = self.top.join(format!("{AGENT}{name}"));
                make_one(&beside)?;
                write(&beside.join("cgroup.procs"), &pid.to_string())
            }
            moved => moved,
        }
    }

    /// The name of the leaf that a process is in.
    pub(crate) fn leaf_of(&self, pid: i32) -> Option<String> {
        let text = procfs::read(Path::new(&format!("/proc/{pid}/cgroup")), PATHS_BYTES_MAX).ok()?;
        let text = String::from_utf8_lossy(&text);
        let below = path_in(&text, &self.selector)?.strip_prefix(&self.path)?.strip_prefix('/')?;
        below.split('/').next().map(str::to_owned)
    }

    /// Pids of the processes in a leaf. A pid may be reused once its process exits.
    pub(crate) fn pids(&self, leaf: &Leaf) -> io::Result<Vec<i32>> {
        let mut found = Vec::new();
        for directory in nested(&self.directory(leaf)) {
            match procfs::read(&directory.join("cgroup.procs"), PROCS_BYTES_MAX) {
                Ok(text) => {
                    let text = String::from_utf8_lossy(&text);
                    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Whether a leaf has members, from one small file in version 2; a missing leaf has none.
    pub(crate) fn is_populated(&self, leaf: &Leaf) -> Option<bool> {
        if !self.is_v2() {
            return None;
        }
        match procfs::read(&self.directory(leaf).join("cgroup.events"), PROCS_BYTES_MAX) {
            Ok(text) => Some(!String::from_utf8_lossy(&text).lines().any(|line| line == "populated 0")),
            Err(error) => is_gone(&error).then_some(false),
        }
    }

    /// Removes a leaf without members. False: it has some, and stays.
    pub(crate) fn remove(&self, leaf: &Leaf) -> io::Result<bool> {
        let directory = self.directory(leaf);
        for _ in 0..REMOVE_TRIES {
            let mut inner_first = nested(&directory);
            inner_first.reverse();
            let removed = inner_first.iter().try_for_each(fs::remove_dir);
            match removed {
                Ok(()) => return Ok(self.remove_scope()),
                Err(error) if is_gone(&error) => return Ok(self.remove_scope()),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    if !self.pids(leaf)?.is_empty() {
                        return Ok(false);
                    }
                    let _ = rustix::thread::nanosleep(&REMOVE_PERIOD);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Removes what is above, if that was the last leaf. Always true.
    fn remove_scope(&self) -> bool {
        let _ = fs::remove_dir(&self.scope).and_then(|()| fs::remove_dir(&self.top));
        true
    }

    /// Removes every leaf that an earlier run of the agent left empty, and those left by agents that may never come
    /// back.
    pub(crate) fn sweep(&self) {
        let foreign = directories(&self.top).filter(|scope| *scope != self.scope && is_old(scope));
        for scope in foreign.take(SCOPES_SWEPT_MAX) {
            sweep_scope(&scope);
        }
        sweep_scope(&self.scope);
        let _ = fs::remove_dir(&self.top);
    }

    pub(crate) fn file(&self, leaf: &Leaf, name: &str) -> Option<PathBuf> {
        let path = self.directory(leaf).join(name);
        path.exists().then_some(path)
    }
}

fn sweep_scope(scope: &Path) {
    for leaf in directories(scope).take(LEAVES_SWEPT_MAX) {
        // One with members refuses.
        let _ = fs::remove_dir(leaf);
    }
    let _ = fs::remove_dir(scope);
}

/// Nobody is about to put its first process into it.
fn is_old(directory: &Path) -> bool {
    let changed = fs::metadata(directory).and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age >= FOREIGN_AGE_MIN))
}

fn directories(parent: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// A directory and those below it, parents first.
fn nested(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    let mut next = 0;
    while let Some(parent) = found.get(next)
        && found.len() < NESTED_MAX
    {
        next += 1;
        if !has_no_directories(parent) {
            found.extend(directories(parent).take(NESTED_MAX));
        }
    }
    found
}

/// Mostly a leaf has none, and need not be listed: the kernel counts them as links of the directory.
fn has_no_directories(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.nlink() == 2)
}

fn make_one(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    io::Write::write_all(&mut open_to_write(path)?, text.as_bytes())
}

/// Never creates a file: on anything but a cgroup file system that would appear to work.
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_CLOEXEC).open(path)
}

/// The directory or file does not exist, or was removed while we had it open.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn an_agent_that_may_not_be_above_its_cgroups_gets_one_beside_them() {
        let root = tempfile::tempdir().unwrap();
        let parent = ParentCgroup { directory: root.path().to_owned(), path: "/a".to_owned(), is_own: false };
        let hierarchy = Hierarchy::at(&parent, "", "s");
        hierarchy.make(&Leaf::of("x")).unwrap();
        let written = RefCell::new(Vec::new());
        let write = |path: &Path, _: &str| {
            written.borrow_mut().push(path.strip_prefix(root.path()).unwrap().to_owned());
            match path.parent() == Some(root.path()) {
                true => Err(io::Error::from_raw_os_error(libc::EBUSY)),
                false => Ok(()),
            }
        };

        hierarchy.move_out_with(7, write).unwrap();

        let written: Vec<String> = written.into_inner().iter().map(|path| path.display().to_string()).collect();
        assert_eq!(written, ["cgroup.procs", "proctor/agent.s/cgroup.procs"]);
        assert!(root.path().join("proctor/agent.s").is_dir());
    }

    #[test]
    fn another_reason_not_to_leave_a_cgroup_is_told() {
        let parent = ParentCgroup { directory: "/nowhere".into(), path: "/a".to_owned(), is_own: false };
        let refuse = |_: &Path, _: &str| Err(io::Error::from_raw_os_error(libc::EACCES));

        let refused = Hierarchy::at(&parent, "", "s").move_out_with(7, refuse).unwrap_err();

        assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    }
}
