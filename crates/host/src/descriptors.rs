//! How many descriptors this program may have open: one and more for each process that it watches.
//!
//! Promised: ours is raised as far as we may; commands get the limit that we were started with,
//! because programs that use `select` or walk through all numbers suffer from a high one.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static STARTED_WITH: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit to the hard one. Once for the whole program; later calls change nothing.
pub(crate) fn raise() {
    STARTED_WITH.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile);
        if limit.current == limit.maximum {
            return None;
        }
        match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
            Ok(()) => limit.current,
            Err(error) => {
                tracing::warn!(%error, "the limit of open descriptors cannot be raised");
                None
            }
        }
    });
}

/// The soft limit for commands, where it is not our own.
pub(crate) fn for_commands() -> Option<u64> {
    STARTED_WITH.get().copied().flatten()
}
