//! Accounts of this host, by its own name service.
//!
//! Promised: what the host's NSS says, with the supplementary groups. Absent: a limit of time; NSS
//! may ask a network, so callers come here through [`crate::blocking`].

use std::ffi::CString;
use std::path::PathBuf;

use nix::unistd::{User, getgrouplist};

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
    /// The account, or the reason for people why there is none.
    pub(crate) fn find(name: &str) -> Result<Self, String> {
        let user = find(name)?;
        let text = CString::new(name).map_err(|_| absent(name))?;
        let groups = getgrouplist(&text, user.gid)
            .map_err(|errno| format!("the groups of user '{name}' cannot be looked up: {}", errno.desc()))?;
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

/// The user id, or the reason for people why there is none.
pub(crate) fn uid(name: &str) -> Result<u32, String> {
    if name == "root" {
        return Ok(0);
    }
    find(name).map(|user| user.uid.as_raw())
}

/// The name of a user id, for people.
pub(crate) fn name(uid: u32) -> String {
    User::from_uid(uid.into()).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}

fn find(name: &str) -> Result<User, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(absent(name)),
        Err(errno) => Err(format!("user '{name}' cannot be looked up: {}", errno.desc())),
    }
}

fn absent(name: &str) -> String {
    format!("user '{name}' does not exist on this host")
}
