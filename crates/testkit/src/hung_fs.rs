//! A file system that hangs, like a network file system whose server is gone.

use std::path::PathBuf;
use std::process::{Child, Command};

use crate::eventually;

/// A FUSE mount whose server never answers. Dropping it unmounts it, and whoever waits for it gets an error.
#[derive(Debug)]
pub struct HungFileSystem {
    server: Child,
    directory: PathBuf,
}

impl HungFileSystem {
    /// Creates the directory and mounts there. None: FUSE cannot be mounted on this machine.
    pub async fn mount(directory: PathBuf) -> Option<Self> {
        std::fs::create_dir(&directory).expect("the directory can be made");
        let line = "exec 3<> /dev/fuse && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none \"$0\" \
                    && exec sleep 1000";
        let server = Command::new("/bin/sh").args(["-c", line]).arg(&directory).spawn().expect("there is a shell");
        let mut mounted = Self { server, directory };
        let is_there = eventually("the file system is there", || {
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            let is_mounted = mounts.contains(mounted.directory.to_str().unwrap_or_default());
            let has_failed = matches!(mounted.server.try_wait(), Ok(Some(_)) | Err(_));
            async move { (is_mounted || has_failed).then_some(is_mounted) }
        })
        .await;
        is_there.then_some(mounted)
    }
}

impl Drop for HungFileSystem {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.directory).stderr(std::process::Stdio::null()).status();
    }
}
