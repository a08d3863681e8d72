//! Files as an account may see them: what a spec names is opened with the permissions of the spec's user, so that
//! nobody learns through the agent what that user could not read.
//!
//! Promised: the kernel itself decides, with the user's groups and ACLs, for every directory on the path, and so do
//! file systems that check the effective user, such as FUSE; no capability of root is in effect; the thread gets its
//! own identity back when the work is done, even after a panic.
//! Absent: other accounts for an agent that is not root, which then uses its own permissions.

use std::io;
use std::sync::Arc;

use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::user::{self, Account};

/// The permissions of a user on this host.
#[derive(Clone, Debug)]
pub struct UserRights(Arc<Account>);

impl UserRights {
    pub(crate) fn of(account: Arc<Account>) -> Self {
        Self(account)
    }

    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Whether this agent can do something as the user. An error says in words for people why not: an agent that is not
    /// root would do it with its own rights. `what` is "read logs", for example.
    pub fn check(&self, what: &str) -> Result<(), String> {
        user::check_can_become(self.0.uid, &self.0.name, what)
    }

    /// Runs `work` on this thread with these permissions. An error is a human-readable reason why they could not be
    /// assumed. `work` must not start a process or a thread.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, String> {
        let failed = |error| format!("cannot assume the rights of user '{}': {error}", self.0.name);
        as_account(&self.0, work).map_err(failed)
    }
}

/// Runs `work` on this thread as the account. An error: its identity could not be assumed, and nothing was run.
/// `work` must not start a process or a thread.
pub(crate) fn as_account<T>(account: &Account, work: impl FnOnce() -> T) -> io::Result<T> {
    if account.uid == 0 || !geteuid().is_root() {
        return Ok(work());
    }
    let _restore = Restore { gid: getegid(), groups: getgroups()? };
    let groups: Vec<_> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    set_thread_groups(&groups)?;
    // The real and saved ids stay: they allow switching back, and no other process may signal or trace this one.
    set_thread_res_gid(None, Gid::from_raw(account.gid), None)?;
    // With it the kernel clears all effective capabilities.
    set_thread_res_uid(None, Uid::from_raw(account.uid), None)?;
    Ok(work())
}

/// Restores the thread's identity.
struct Restore {
    gid: Gid,
    groups: Vec<Gid>,
}

impl Drop for Restore {
    fn drop(&mut self) {
        // The user first: the capabilities that the rest takes come back with it.
        let restored =
            set_thread_res_uid(None, Uid::ROOT, None).and_then(|()| set_thread_res_gid(None, self.gid, None));
        // Where this is not allowed, they could not be changed before either.
        let _ = set_thread_groups(&self.groups);
        if restored.is_err() {
            // Other work would run on this thread as somebody else. The agent is started again and adopts what runs.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::Path;

    use super::*;

    fn account(uid: u32, groups: &[u32]) -> Account {
        Account {
            name: format!("uid {uid}"),
            uid,
            gid: uid,
            groups: groups.to_vec(),
            home: "/".into(),
            shell: "/bin/sh".into(),
        }
    }

    fn read(account: &Account, path: &Path) -> io::Result<String> {
        as_account(account, || std::fs::read_to_string(path))?
    }

    #[test]
    fn a_file_is_read_by_whom_its_mode_and_its_directories_allow_and_root_reads_on() {
        if !geteuid().is_root() {
            return proctor_testkit::skip("only root takes the rights of others");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let secret_dir = dir.path().join("dir");
        std::fs::create_dir(&secret_dir).unwrap();
        std::fs::set_permissions(&secret_dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        let file = |name: &str, mode: u32, owner: (u32, u32)| {
            let path = dir.path().join(name);
            std::fs::write(&path, "31415").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(owner.0), Some(owner.1)).unwrap();
            path
        };
        let (open, roots) = (file("open", 0o644, (0, 0)), file("roots", 0o600, (0, 0)));
        let (own, of_group) = (file("own", 0o600, (4242, 0)), file("group", 0o640, (0, 4343)));
        let hidden = file("dir/hidden", 0o644, (0, 0));
        let (user, member) = (account(4242, &[4242]), account(4242, &[4242, 4343]));

        for path in [&open, &own] {
            assert_eq!(read(&user, path).unwrap(), "31415", "{}", path.display());
        }
        for path in [&roots, &of_group, &hidden] {
            let refused = read(&user, path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{}", path.display());
        }
        assert_eq!(read(&member, &of_group).unwrap(), "31415");
        for path in [&open, &roots, &own, &of_group, &hidden] {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "31415", "the thread is root again");
            assert_eq!(read(&account(0, &[]), path).unwrap(), "31415");
        }
    }

    #[test]
    fn a_panic_leaves_no_thread_with_the_rights_of_somebody_else() {
        let before = (ids(), getgroups().unwrap());

        let panicked = std::panic::catch_unwind(|| as_account(&account(4242, &[4242]), || panic!("on purpose")));

        assert!(panicked.is_err());
        assert_eq!((ids(), getgroups().unwrap()), before);
    }

    /// The lines of the kernel about this thread's ids and effective capabilities.
    fn ids() -> [String; 3] {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        ["Uid:", "Gid:", "CapEff:"].map(|name| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
        })
    }

    #[test]
    fn the_effective_user_is_the_account_without_capabilities_and_root_has_them_again() {
        if !geteuid().is_root() {
            return proctor_testkit::skip("only root takes the rights of others");
        }
        let before = ids();

        let meanwhile = as_account(&account(4242, &[4242]), ids).unwrap();

        assert_eq!(meanwhile, ["0 4242 0 4242", "0 4242 0 4242", "0000000000000000"]);
        assert_eq!(ids(), before);
    }

    #[test]
    fn an_open_handle_is_opened_anew_with_the_rights_of_the_account() {
        use std::os::fd::AsRawFd;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "31415").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let handle = format!("/proc/self/fd/{}", file.as_raw_fd());

        assert_eq!(read(&account(4242, &[4242]), Path::new(&handle)).unwrap(), "31415");
    }
}
