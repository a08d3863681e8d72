//! The policy file on disk: who may have written it, and whether it has changed.
//!
//! Promised: a file that others can write is never obeyed; a change takes effect within about a second of the next
//! operation; if a file becomes invalid, or disappears, the last valid policy stays in force, and the log says so.
//! Absent: its own thread. The file belongs on a disk that does not hang, like `/etc`.

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proctor_supervise::Time;

use super::{Policy, PolicyError};
use crate::regular_file::{Stamp, open_regular};

const DEFAULT_PATH: &str = "/etc/proctor/policy.toml";
/// Thousands of rules fit.
const BYTES_MAX: u64 = 1024 * 1024;
const CHECK_PERIOD: Duration = Duration::from_secs(1);
const WRITABLE_BY_OTHERS: u32 = 0o022;

#[derive(Debug)]
pub(crate) struct PolicyFile {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// None: there is no policy, and everything is allowed.
    policy: Option<Arc<Policy>>,
    /// The file as it was when it was last read, or tried to be.
    stamp: Option<Stamp>,
    checked_at: Option<Time>,
}

impl PolicyFile {
    /// A file that was named must be there; the usual one may be absent.
    pub(crate) fn open(named: Option<&Path>) -> Result<Self, PolicyError> {
        let path = named.unwrap_or_else(|| Path::new(DEFAULT_PATH));
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (policy, stamp) = match read(&path) {
            Ok((policy, stamp)) => (Some(Arc::new(policy)), Some(stamp)),
            Err(error) if named.is_none() && is_absent(&error) => (None, None),
            Err(error) => return Err(error),
        };
        if policy.is_some() {
            tracing::info!(path = %path.display(), "host policy loaded");
        }
        Ok(Self { path, known: Mutex::new(Known { policy, stamp, checked_at: None }) })
    }

    /// Where the policy that is in force was read; None: there is none, and everything is allowed.
    pub(crate) fn in_force(&self) -> Option<&Path> {
        self.known.lock().policy.is_some().then_some(&self.path)
    }

    /// The policy that counts now; None allows everything.
    pub(crate) fn current(&self, now: Time) -> Option<Arc<Policy>> {
        let mut known = self.known.lock();
        if known.checked_at.is_none_or(|at| now.since(at) >= CHECK_PERIOD) {
            known.checked_at = Some(now);
            known.follow(&self.path);
        }
        known.policy.clone()
    }
}

impl Known {
    fn follow(&mut self, path: &Path) {
        let seen = std::fs::metadata(path).map(|metadata| Stamp::of(&metadata)).ok();
        if seen == self.stamp {
            return;
        }
        match read(path) {
            Ok((policy, stamp)) => {
                tracing::info!(path = %path.display(), "host policy reloaded");
                (self.policy, self.stamp) = (Some(Arc::new(policy)), Some(stamp));
            }
            Err(error) => {
                let error = proctor_runtime::chain(&error);
                tracing::error!(error, "cannot reload host policy; keeping the previous one");
                self.stamp = seen; // told once
            }
        }
    }
}

fn read(path: &Path) -> Result<(Policy, Stamp), PolicyError> {
    let failed = |source| PolicyError::Read { path: path.to_owned(), source };
    let (file, metadata) = open_regular(path).map_err(failed)?;
    check_trust(&metadata, rustix::process::geteuid().as_raw())
        .map_err(|problem| PolicyError::Untrusted { path: path.to_owned(), problem })?;
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {BYTES_MAX} bytes"))));
    }
    Ok((Policy::parse(path, &text)?, Stamp::of(&metadata)))
}

/// An agent that is not root obeys its own user, too.
fn check_trust(metadata: &Metadata, our_uid: u32) -> Result<(), String> {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != 0 && owner != our_uid {
        return Err(format!("it belongs to uid {owner}, and must belong to root"));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(format!("its mode {mode:04o} lets others than its owner write it (chmod go-w)"));
    }
    Ok(())
}

fn is_absent(error: &PolicyError) -> bool {
    matches!(error, PolicyError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
