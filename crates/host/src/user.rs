//! Accounts of this host, by its own name service.
//!
//! Promised: what the host's NSS says, with the supplementary groups.
//! Absent: a timeout; NSS may query a network, so callers come here through [`crate::blocking`].

use std::collections::HashMap;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::{User, getgrouplist};
use parking_lot::Mutex;

/// Commands come in bursts, for few users.
const KEPT: Duration = Duration::from_secs(5);
const KEPT_MAX: usize = 256;
/// Known without a lookup.
pub(crate) const ROOT: &str = "root";

#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) home: PathBuf,
    pub(crate) shell: PathBuf,
}

impl Account {
    /// Without a lookup, and so without its groups, which root does not need.
    pub(crate) fn root() -> Self {
        let (name, home, shell) = (ROOT.to_owned(), PathBuf::from("/root"), PathBuf::from("/bin/sh"));
        Self { name, uid: 0, gid: 0, groups: Vec::new(), home, shell }
    }

    /// The account, or a human-readable reason why there is none.
    pub(crate) fn find(name: &str) -> Result<Self, String> {
        let user = find(name)?;
        let text = CString::new(name).map_err(|_| absent(name))?;
        let groups = getgrouplist(&text, user.gid)
            .map_err(|errno| format!("cannot look up the groups of user '{name}': {}", errno.desc()))?;
        Ok(Self {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(nix::unistd::Gid::as_raw).collect(),
            home: user.dir,
            shell: user.shell,
        })
    }
}

/// Accounts that were asked for a moment ago. Who is added to a group, or removed from the host, is noticed
/// when they are asked for again.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccountCache(Arc<Mutex<HashMap<String, CachedAccount>>>);

#[derive(Debug)]
struct CachedAccount {
    at: Instant,
    account: Arc<Account>,
}

impl AccountCache {
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Account>> {
        let known = self.0.lock();
        known.get(name).filter(|known| known.at.elapsed() < KEPT).map(|known| Arc::clone(&known.account))
    }

    /// As [`Account::find`], unless it was looked up recently.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Account>, String> {
        match self.known(name) {
            Some(account) => Ok(account),
            None => Ok(self.keep(name, Account::find(name)?)),
        }
    }

    /// `name` is what was asked for.
    pub(crate) fn keep(&self, name: &str, account: Account) -> Arc<Account> {
        let account = Arc::new(account);
        let mut known = self.0.lock();
        known.retain(|_, known| known.at.elapsed() < KEPT);
        if known.len() < KEPT_MAX {
            known.insert(name.to_owned(), CachedAccount { at: Instant::now(), account: Arc::clone(&account) });
        }
        account
    }
}

/// The name of a user id, for people.
pub(crate) fn name(uid: u32) -> String {
    User::from_uid(uid.into()).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// Only root can act as somebody else. The error says so for display; `what` cannot be done.
pub(crate) fn check_can_become(uid: u32, name: &str, what: &str) -> Result<(), String> {
    let us = rustix::process::geteuid().as_raw();
    if us == 0 || us == uid {
        return Ok(());
    }
    Err(format!("the agent runs as {} and cannot {what} as user '{name}'", self::name(us)))
}

fn find(name: &str) -> Result<User, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(absent(name)),
        Err(errno) => Err(format!("user '{name}' cannot be looked up: {}", errno.desc())),
    }
}

pub(crate) fn absent(name: &str) -> String {
    format!("user '{name}' does not exist on this host")
}
