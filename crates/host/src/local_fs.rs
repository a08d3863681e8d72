//! File systems that depend on nothing else: those on local disks, and in memory.
//!
//! Promised: a mount counts as local only after its file system was checked once, on a thread that may hang; after
//! that the answer is cached.
//! Absent: file systems that may be stacked on others (overlays) or are served by programs; and, before Linux 6.8,
//! those without a device, whose mounts have no unique name.

use std::os::fd::AsFd;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Statx, StatxFlags, fstatfs, statx};

/// What [`kind`] needs to be told.
pub(crate) const WANTED: StatxFlags = StatxFlags::from_bits_retain(MOUNT_ID_UNIQUE);
/// STATX_MNT_ID_UNIQUE of the kernel.
const MOUNT_ID_UNIQUE: u32 = 0x4000;
const DISKS: [u64; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010];
/// NFS, SMB (three), FUSE, 9p, Ceph, Lustre, GFS2, OCFS2 and AFS.
const REMOTE: [u64; 11] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x6573_5546,
    0x0102_1997,
    0x00C3_6400,
    0x0BD0_0BD0,
    0x0116_1970,
    0x7461_636F,
    0x5346_414F,
];
const MEMORY: u64 = 0x0102_1994;
/// More mounts than this are not worth remembering.
const KNOWN_MAX: usize = 64;

/// Where a file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Disk,
    Memory,
}

/// A mount name that is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mount {
    Unique(u64),
    Device(u32, u32),
}

static KNOWN: Mutex<Vec<(Mount, Kind)>> = Mutex::new(Vec::new());

/// None: not known to be local.
pub(crate) fn kind(stat: &Statx) -> Option<Kind> {
    let mount = mount(stat)?;
    KNOWN.lock().iter().find(|(known, _)| *known == mount).map(|(_, kind)| *kind)
}

/// Queries the file system of an open file. May hang.
pub(crate) fn learn(file: impl AsFd) {
    let Ok(stat) = statx(&file, c"", AtFlags::EMPTY_PATH, WANTED) else { return };
    let Some(mount) = mount(&stat).filter(|_| kind(&stat).is_none()) else { return };
    let magic = fstatfs(&file).ok().and_then(|system| u64::try_from(system.f_type).ok());
    let kind = match magic {
        Some(MEMORY) => Kind::Memory,
        Some(magic) if DISKS.contains(&magic) => Kind::Disk,
        Some(_) | None => return,
    };
    let mut known = KNOWN.lock();
    if known.len() < KNOWN_MAX {
        known.push((mount, kind));
    }
}

/// Whether the times of an open file may be those of another host's clock. May hang.
pub(crate) fn is_remote(file: impl AsFd) -> bool {
    // Some magic numbers look negative: the kernel's type is signed.
    let magic = |kind: i64| u64::try_from(kind & 0xFFFF_FFFF).ok();
    fstatfs(&file).ok().and_then(|system| magic(system.f_type)).is_none_or(|magic| REMOTE.contains(&magic))
}

/// Whether an open file lies in memory, where nothing outlives the boot. May hang.
pub(crate) fn is_memory(file: impl AsFd) -> bool {
    fstatfs(&file).ok().and_then(|system| u64::try_from(system.f_type).ok()) == Some(MEMORY)
}

fn mount(stat: &Statx) -> Option<Mount> {
    if stat.stx_mask & MOUNT_ID_UNIQUE != 0 {
        return Some(Mount::Unique(stat.stx_mnt_id));
    }
    // Without its own device the number is reused by another mount once this one is gone.
    (stat.stx_dev_major != 0).then_some(Mount::Device(stat.stx_dev_major, stat.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_known_once_it_was_asked_and_proc_never_is() {
        let (file, proc) = (tempfile::tempfile().unwrap(), std::fs::File::open("/proc/self/stat").unwrap());
        let kind_of = |file: &std::fs::File| kind(&statx(file, c"", AtFlags::EMPTY_PATH, WANTED).unwrap());
        let is_local = fstatfs(&file).is_ok_and(|system| {
            u64::try_from(system.f_type).is_ok_and(|magic| magic == MEMORY || DISKS.contains(&magic))
        });

        assert_eq!(kind_of(&file), None);
        learn(&file);
        learn(&proc);

        assert_eq!(kind_of(&proc), None);
        if is_local {
            assert!(kind_of(&file).is_some());
        } else {
            proctor_testkit::skip("the directory for temporary files is not on a local file system");
        }
    }
}
