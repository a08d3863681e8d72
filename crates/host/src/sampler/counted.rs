//! What the kernel has counted for a leaf cgroup.
//!
//! Promised: exact CPU time, including processes that came and went; memory as anonymous, shared and kernel memory,
//! without page cache and what the kernel would reclaim.
//! Absent: figures if a controller is missing or descriptors are scarce; then members are summed up.

use std::path::{Path, PathBuf};

use super::handle::{Kept, Slots};
use crate::cgroup::{CpuFile, Groups, Leaf};
use crate::procfs;

const TEXT_BYTES_MAX: usize = 4096;
const MEMORY_BYTES_MAX: u64 = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) leaf: Leaf,
    cpu: Option<(CpuFile, Kept)>,
    memory: Option<PathBuf>,
}

impl Counted {
    pub(crate) fn open(groups: &Groups, leaf: &Leaf, slots: &Slots) -> Self {
        // Opened for every sample it would cost more than the clocks of some members.
        let cpu = groups.cpu_file(leaf).filter(|_| slots.has_room_for_more()).and_then(|file| {
            let kept = slots.keep(|| std::fs::File::open(file.path()))?;
            Some((file, kept))
        });
        Self { leaf: leaf.clone(), cpu, memory: groups.memory_file(leaf) }
    }

    pub(crate) fn has_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    pub(crate) fn cpu_nanos(&self) -> Option<u64> {
        let (file, kept) = self.cpu.as_ref()?;
        file.parse(kept.read(&mut [0; TEXT_BYTES_MAX]).ok()?)
    }

    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        let text = procfs::read(self.memory.as_deref()?, MEMORY_BYTES_MAX).ok()?;
        memory(std::str::from_utf8(&text).ok()?)
    }
}

impl CpuFile {
    fn path(&self) -> &Path {
        match self {
            Self::Stat(path) | Self::Nanoseconds(path) => path,
        }
    }

    fn parse(&self, text: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(text).ok()?;
        match self {
            Self::Stat(_) => cpu(text),
            Self::Nanoseconds(_) => text.trim().parse().ok(),
        }
    }
}

/// Nanoseconds of CPU time by the `cpu.stat` of a leaf (version 2).
pub(crate) fn cpu(text: &str) -> Option<u64> {
    field(text, "usage_usec")?.checked_mul(1000)
}

/// What belongs to a leaf by its `memory.stat` (version 2).
pub(crate) fn memory(text: &str) -> Option<u64> {
    let (anonymous, shared) = (field(text, "anon")?, field(text, "shmem").unwrap_or(0));
    let kernel = match field(text, "kernel") {
        // Names of files and the like are a cache too.
        Some(kernel) => kernel.saturating_sub(field(text, "slab_reclaimable").unwrap_or(0)),
        // Before Linux 5.18 there is no sum.
        None => ["kernel_stack", "pagetables", "percpu", "slab_unreclaimable"]
            .iter()
            .filter_map(|name| field(text, name))
            .fold(0, u64::saturating_add),
    };
    Some(anonymous.saturating_add(shared).saturating_add(kernel))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_is_not_memory_of_a_leaf() {
        let text = "anon 100\nfile 9999\nkernel 50\nkernel_stack 1\nshmem 20\nslab_reclaimable 30\n";
        let old = "anon 100\nfile 9999\nkernel_stack 16\nshmem 20\nslab_reclaimable 30\nslab_unreclaimable 4\n";

        assert_eq!(memory(text), Some(100 + 20 + 50 - 30));
        assert_eq!(memory(old), Some(100 + 20 + 16 + 4));
        assert_eq!(memory("file 1\nanon_thp 3\n"), None);
    }

    #[test]
    fn cpu_time_is_read_in_both_forms() {
        let (stat, nanoseconds) = (CpuFile::Stat(PathBuf::new()), CpuFile::Nanoseconds(PathBuf::new()));

        assert_eq!(stat.parse(b"usage_usec 1234\nuser_usec 1\n"), Some(1_234_000));
        assert_eq!(nanoseconds.parse(b"5678\n"), Some(5678));
        assert_eq!((stat.parse(b"5678\n"), nanoseconds.parse(b"")), (None, None));
    }
}
