//! For the fuzz targets only (`fuzz/`): access to otherwise private parsers.
//!
//! Promised: every function is a thin call of what the product itself runs.
//! Absent: stability.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::pidfile::{self, Refusal};
use crate::usage::Units;
use crate::{procfs, sampler, untrusted_path};

// It is private to `cgroup` and touches no files, so it is the same here.
#[allow(clippy::duplicate_mod, reason = "a door for fuzzing must not change what is private")]
#[path = "cgroup/mounts.rs"]
mod mounts;

/// The pid in a pid file of any owner, or why there is none.
pub fn pid_file(path: &Path) -> Result<i32, String> {
    let found = untrusted_path::find_no_follow(path);
    pidfile::read(path, found, |_| true).map(|entry| entry.pid).map_err(|refusal| match refusal {
        Refusal::Absent(reason)
        | Refusal::Dead { pid: _, reason }
        | Refusal::Unclear(reason)
        | Refusal::Stale { life: _, reason } => reason.into_text(),
    })
}

/// What `/proc/<pid>/stat` says, with what is made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub name: String,
    pub state: char,
    pub is_kernel_thread: bool,
    pub ticks: u64,
    pub since_boot: Duration,
}

pub fn stat(text: &[u8]) -> Option<Stat> {
    let stat = procfs::Stat::parse(text)?;
    Some(Stat {
        state: stat.state,
        is_kernel_thread: stat.is_kernel_thread(),
        ticks: stat.ticks(),
        since_boot: Units { ticks_per_second: 100, page_bytes: 4096 }.since_boot(stat.start_ticks),
        name: stat.name,
    })
}

/// A parent for cgroups of ours in the hierarchy that `selector` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentCgroup {
    pub selector: String,
    pub directory: PathBuf,
    pub path: String,
    pub is_own: bool,
}

/// From the texts of mountinfo and of `/proc/<pid>/cgroup` of us and of the first process.
pub fn cgroup_parents(mounts: &str, ours: &str, init: &str) -> Vec<ParentCgroup> {
    let here = mounts::CgroupMounts { mounts: mounts.to_owned(), ours: ours.to_owned(), init: init.to_owned() };
    let v2 = here.v2().into_iter().map(|mount| (String::new(), mount));
    let cpu = here.v1_cpu().into_iter().map(|mount| ("cpuacct".to_owned(), mount));
    let hierarchies = v2.chain(here.v1_trees()).chain(cpu);
    hierarchies
        .flat_map(|(selector, mount)| {
            here.parents(&selector, &mount).into_iter().map(move |parent| ParentCgroup {
                selector: selector.clone(),
                directory: parent.directory,
                path: parent.path,
                is_own: parent.is_own,
            })
        })
        .collect()
}

/// The path in one hierarchy, from the text of `/proc/<pid>/cgroup`.
pub fn cgroup_path<'a>(text: &'a str, selector: &str) -> Option<&'a str> {
    mounts::path_in(text, selector)
}

/// What the other texts of `/proc` and of a leaf cgroup say, each read on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// statm: resident and private pages.
    pub pages: Option<(u64, u64)>,
    /// status: the effective user.
    pub owner: Option<u32>,
    /// cmdline.
    pub arguments: Vec<String>,
    /// meminfo: bytes of the machine.
    pub memory: Option<u64>,
    /// memory.stat: bytes of a leaf.
    pub leaf_memory: Option<u64>,
    /// cpu.stat: nanoseconds of a leaf.
    pub leaf_cpu: Option<u64>,
    /// The list of CPUs.
    pub cpus: Option<u32>,
}

pub fn numbers(text: &[u8]) -> Numbers {
    let lossy = String::from_utf8_lossy(text);
    Numbers {
        pages: procfs::Pages::parse(text).map(|pages| (pages.resident, pages.private)),
        owner: procfs::parse_owner(text),
        arguments: procfs::parse_arguments(text),
        memory: procfs::parse_memory(text),
        leaf_memory: sampler::leaf_memory(&lossy),
        leaf_cpu: sampler::leaf_cpu(&lossy),
        cpus: sampler::cpu_count(&lossy),
    }
}
