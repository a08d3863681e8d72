//! The limit on open descriptors: an agent needs at least one per watched process, a server one per connection.
//!
//! Promised: our own limit is raised as far as allowed and needed; commands get the limits that we were started with,
//! because programs that use `select` or iterate over all descriptor numbers suffer from a high one.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for more processes than a host has pids by default.
const WANTED: u64 = 1 << 18;

static STARTED_WITH: OnceLock<Option<Rlimit>> = OnceLock::new();

/// Raises both limits, or the soft one to the hard one if we may not raise that. Once for the whole program; later
/// calls change nothing. Returns how many may be open now; None if there is no limit.
pub fn raise() -> Option<u64> {
    STARTED_WITH.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile);
        let ample = limit.maximum.map(|maximum| maximum.max(WANTED));
        let raised = [ample, limit.maximum].into_iter().filter(|raised| *raised != limit.current);
        let mut tried = raised.map(|raised| setrlimit(Resource::Nofile, Rlimit { current: raised, maximum: raised }));
        match tried.find(Result::is_ok) {
            Some(_) => Some(limit),
            None => {
                tracing::debug!(limit = ?limit.current, "cannot raise the descriptor limit");
                None
            }
        }
    });
    getrlimit(Resource::Nofile).current
}

/// Restores the limits that we were started with, for a program that replaces us by exec.
pub fn restore() {
    if let Some(limit) = for_commands()
        && let Err(error) = setrlimit(Resource::Nofile, limit)
    {
        tracing::debug!(%error, "cannot lower the descriptor limit again");
    }
}

/// The limits for commands, if they differ from our own.
pub(crate) fn for_commands() -> Option<Rlimit> {
    STARTED_WITH.get().cloned().flatten()
}
