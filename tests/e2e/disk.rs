//! A small file system that a test can fill.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// As long as the test runs.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// None if this machine does not permit it.
    pub(crate) fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m,mode=0700", "proctor-test"]).arg(&path);
        mount.status().is_ok_and(|status| status.success()).then_some(Self { path })
    }

    pub(crate) fn fill(&self) {
        let mut file = File::create(self.path.join("filler")).unwrap();
        while file.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    }

    pub(crate) fn free(&self) {
        std::fs::remove_file(self.path.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
