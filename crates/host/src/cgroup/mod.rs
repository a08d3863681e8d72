//! Cgroups as a way to know what belongs to a process, whatever it forks.
//!
//! Promised: the chosen mechanism was tried with a real child at startup, and is logged; every process has a leaf
//! whose name outlives the agent; two agents on one machine have separate leaves; a leaf is never below the agent's
//! own cgroup if there is another parent; if no hierarchy is usable, everything still works by descent.
//! Absent: limits, weights and freezing (an agent that died would leave its processes frozen), and any use of
//! hierarchies that distribute the machine's resources.
//! Start at `hierarchy`; `mounts` decides where it may be.

mod hierarchy;
mod mounts;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::fork::{self, CgroupAttach};
use crate::procfs::{self, Stat};
use crate::tree::ProcessRef;
use hierarchy::{Hierarchy, open_to_write};
use mounts::{CgroupMounts, Mount};

const READABLE_CHARS_MAX: usize = 40;
const MOUNTS_BYTES_MAX: u64 = 4 * 1024 * 1024;
const REFUSALS_SAID_MAX: usize = 4;

/// The name of the cgroup that holds one managed process with everything it forks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leaf(String);

impl Leaf {
    /// The same key gives the same leaf, in every version of the agent.
    pub fn of(key: &str) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let readable: String = key.chars().map(plain).take(READABLE_CHARS_MAX).collect();
        Self(format!("{readable}-{:016x}", digest(key.as_bytes())))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How it is determined what belongs to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    CgroupV2,
    /// `hierarchy` is the controller, or `name=…`.
    CgroupV1 {
        hierarchy: String,
    },
    /// By unbroken descent; a process that escapes by a double fork is not known.
    Descendants,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracking {
    pub method: Method,
    /// For display: where the cgroups are and what they count, or why there are none.
    pub detail: String,
}

/// What may be used of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackingPreference {
    #[default]
    Best,
    CgroupV1,
    Descendants,
}

/// The cgroups of this agent.
#[derive(Debug)]
pub(crate) struct Groups {
    tree: Hierarchy,
    /// Of version 1, where CPU time is counted in a hierarchy of its own.
    cpu: Option<Hierarchy>,
}

/// The file that has the CPU time of a leaf, and how to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuFile {
    /// `cpu.stat`
    Stat(PathBuf),
    /// `cpuacct.usage`
    Nanoseconds(PathBuf),
}

/// Finds a parent for cgroups. Takes a few milliseconds.
pub(crate) fn find(state_dir: &Path, prefer: TrackingPreference) -> (Option<Groups>, Tracking) {
    let by_descent = |detail: String| (None, Tracking { method: Method::Descendants, detail });
    if prefer == TrackingPreference::Descendants {
        return by_descent("cgroups are not wanted".to_owned());
    }
    let text = |path: &str| {
        let text = procfs::read(Path::new(path), MOUNTS_BYTES_MAX).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    };
    let here = CgroupMounts {
        mounts: text("/proc/self/mountinfo"),
        ours: text("/proc/self/cgroup"),
        init: text("/proc/1/cgroup"),
    };
    choose(&here, &scope_of(state_dir), prefer, &try_out)
}

type Trial<'a> = &'a dyn Fn(&Hierarchy) -> io::Result<()>;

fn choose(
    here: &CgroupMounts,
    scope: &str,
    prefer: TrackingPreference,
    try_out: Trial<'_>,
) -> (Option<Groups>, Tracking) {
    let mut refusals = Vec::new();
    let mut settle = |selector: &str, mount: &Mount| {
        here.parents(selector, mount).into_iter().find_map(|parent| {
            let hierarchy = Hierarchy::at(&parent, selector, scope);
            match try_out(&hierarchy) {
                Ok(()) => Some((hierarchy, parent.is_own)),
                Err(error) => {
                    refusals.push(format!("{}: {error}", parent.directory.display()));
                    None
                }
            }
        })
    };
    let v2 = if prefer == TrackingPreference::Best { here.v2() } else { Vec::new() };
    let found = v2.iter().find_map(|mount| settle("", mount));
    let found = found.or_else(|| here.v1_trees().iter().find_map(|(name, mount)| settle(name, mount)));
    let Some((tree, is_own)) = found else {
        refusals.truncate(REFUSALS_SAID_MAX);
        let detail =
            if refusals.is_empty() { "there is no cgroup hierarchy to use".to_owned() } else { refusals.join("; ") };
        return (None, Tracking { method: Method::Descendants, detail });
    };

    let cpu = match tree.selector() {
        "" | "cpuacct" => None,
        _ => here.v1_cpu().and_then(|mount| settle("cpuacct", &mount)).map(|(hierarchy, _)| hierarchy),
    };
    let mut detail = tree.scope().display().to_string();
    if let Some(cpu) = &cpu {
        detail = format!("{detail}, CPU by {}", cpu.scope().display());
    }
    if is_own {
        detail.push_str("; below the agent's own cgroup, so what kills that kills the processes");
    }
    let method = match tree.selector() {
        "" => Method::CgroupV2,
        hierarchy => Method::CgroupV1 { hierarchy: hierarchy.to_owned() },
    };
    (Some(Groups { tree, cpu }), Tracking { method, detail })
}

/// Creates a leaf, puts a child into it, and removes everything again, including what earlier runs left empty.
fn try_out(hierarchy: &Hierarchy) -> io::Result<()> {
    let leaf = Leaf::of(&format!("try {}", std::process::id()));
    let tried = hierarchy.make(&leaf).and_then(|_| {
        let attach = attach_to(hierarchy, None, &leaf)?;
        match fork::try_attach(&attach, |pid| hierarchy.holds(&leaf, pid))? {
            true => Ok(()),
            false => Err(io::Error::other("a child does not get into a cgroup")),
        }
    });
    let _ = hierarchy.remove(&leaf);
    hierarchy.sweep();
    tried
}

fn attach_to(tree: &Hierarchy, cpu: Option<&Hierarchy>, leaf: &Leaf) -> io::Result<CgroupAttach> {
    if tree.selector().is_empty() {
        let open = |directory: &Path| -> io::Result<CgroupAttach> {
            let procs = open_to_write(&directory.join("cgroup.procs"))?;
            Ok(CgroupAttach::Into { directory: fs::File::open(directory)?.into(), procs })
        };
        // Usually it exists from an earlier run.
        return open(&tree.directory(leaf)).or_else(|_| open(&tree.make(leaf)?));
    }
    let directory = tree.make(leaf)?;
    let mut files = vec![open_to_write(&directory.join("tasks"))?];
    // Without it CPU time is counted by members.
    files.extend(cpu.and_then(|cpu| open_to_write(&cpu.make(leaf).ok()?.join("tasks")).ok()));
    Ok(CgroupAttach::Tasks(files))
}

impl Groups {
    /// How a child gets into a leaf, which is created if necessary.
    pub(crate) fn attach(&self, leaf: &Leaf) -> CgroupAttach {
        attach_to(&self.tree, self.cpu.as_ref(), leaf).unwrap_or_else(|error| {
            tracing::warn!(%error, leaf = leaf.as_str(), "command runs outside its cgroup");
            CgroupAttach::Nowhere
        })
    }

    /// Moves the agent out of one of its own leaves, if a command of a process started it. The leaf would never be
    /// empty, and the agent's usage would count for that process.
    pub(crate) fn leave(&self) {
        let us = i32::try_from(std::process::id()).unwrap_or_default();
        for hierarchy in std::iter::once(&self.tree).chain(&self.cpu) {
            let Some(leaf) = hierarchy.leaf_of(us) else { continue };
            match hierarchy.move_out(us) {
                Ok(()) => tracing::info!(leaf, "moved the agent out of a process's cgroup"),
                Err(error) => tracing::warn!(leaf, %error, "cannot move the agent out of a process's cgroup"),
            }
        }
    }

    pub(crate) fn holds(&self, leaf: &Leaf, pid: i32) -> bool {
        self.tree.holds(leaf, pid)
    }

    pub(crate) fn leaf_of(&self, pid: i32) -> Option<Leaf> {
        self.tree.leaf_of(pid).map(Leaf)
    }

    /// The members of a leaf. Each was in it while it was the process that is named.
    ///
    /// They are killed one by one and not by `cgroup.kill`: Linux 6.18 kills every child that is cloned into
    /// a cgroup which was ever killed so, and the next life is such a child.
    pub(crate) fn members(&self, leaf: &Leaf) -> io::Result<Vec<ProcessRef>> {
        self.members_among(leaf, start_of)
    }

    /// As [`Self::members`], for those whose start time was known before.
    pub(crate) fn members_among(
        &self,
        leaf: &Leaf,
        known_start: impl Fn(i32) -> Option<u64>,
    ) -> io::Result<Vec<ProcessRef>> {
        let members = self.tree.pids(leaf)?.into_iter().filter_map(|pid| {
            let start_ticks = known_start(pid)?;
            let is_member = self.tree.holds(leaf, pid) && start_of(pid) == Some(start_ticks);
            is_member.then_some(ProcessRef { pid, start_ticks })
        });
        Ok(members.collect())
    }

    /// Whether the leaf is empty. Cheap: cgroup files never hang.
    pub(crate) fn is_empty(&self, leaf: &Leaf) -> bool {
        if self.tree.is_populated(leaf) == Some(false) {
            return true;
        }
        let is_dead = |pid: &i32| Stat::of(*pid).is_ok_and(|stat| stat.is_dead());
        self.tree.pids(leaf).is_ok_and(|pids| pids.iter().all(is_dead))
    }

    /// Whether something in the leaf began before.
    pub(crate) fn has_older(&self, leaf: &Leaf, since: u64) -> bool {
        self.members(leaf).is_ok_and(|members| members.iter().any(|member| member.start_ticks < since))
    }

    /// False: the leaf has members, and stays.
    pub(crate) fn release(&self, leaf: &Leaf) -> io::Result<bool> {
        let is_empty = self.tree.remove(leaf)?;
        if let Some(cpu) = self.cpu.as_ref().filter(|_| is_empty) {
            let _ = cpu.remove(leaf);
        }
        Ok(is_empty)
    }

    pub(crate) fn cpu_file(&self, leaf: &Leaf) -> Option<CpuFile> {
        match (&self.cpu, self.tree.selector()) {
            (Some(cpu), _) => cpu.file(leaf, "cpuacct.usage").map(CpuFile::Nanoseconds),
            (None, "cpuacct") => self.tree.file(leaf, "cpuacct.usage").map(CpuFile::Nanoseconds),
            (None, "") => self.tree.file(leaf, "cpu.stat").map(CpuFile::Stat),
            (None, _) => None,
        }
    }

    /// `cpu.stat` above all leaves, where the kernel sums up only on request.
    pub(crate) fn scope_cpu_file(&self) -> Option<PathBuf> {
        self.tree.selector().is_empty().then(|| self.tree.scope().join("cpu.stat"))
    }

    /// `memory.stat` of version 2, where memory is counted.
    pub(crate) fn memory_file(&self, leaf: &Leaf) -> Option<PathBuf> {
        self.tree.selector().is_empty().then(|| self.tree.file(leaf, "memory.stat")).flatten()
    }
}

/// Of a process that lives.
fn start_of(pid: i32) -> Option<u64> {
    Stat::of(pid).ok().filter(|stat| !stat.is_dead()).map(|stat| stat.start_ticks)
}

/// The same for every run of one agent, and unique on this machine, even in containers that see the same paths and
/// hierarchies.
pub(crate) fn scope_of(state_dir: &Path) -> String {
    let path = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    let inode = fs::metadata(&path).map_or((0, 0), |metadata| (metadata.dev(), metadata.ino()));
    let mut text = path.as_os_str().as_bytes().to_vec();
    text.extend(inode.0.to_le_bytes().into_iter().chain(inode.1.to_le_bytes()));
    format!("{:016x}", digest(&text))
}

/// FNV-1a: names must not change with a library version.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
