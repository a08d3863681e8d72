//! Files as an account may see them: what a spec names is opened with the rights of the spec's user, so that
//! nobody learns through the agent what that user could not read.
//!
//! Promised: the kernel itself decides, with its groups and access lists, for every directory on the way; the
//! thread has its own rights again when the work is over, also after a panic. Absent: other accounts for an agent
//! that is not root, which then works with its own rights.

use std::io;

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::process::{geteuid, getgroups};
use rustix::thread::set_thread_groups;

use crate::user::Account;

/// Runs `work` on this thread with the rights of the account on files, and on nothing else. An error: the rights
/// could not be taken, and nothing was run. `work` must not start a process or a thread.
pub(crate) fn as_account<T>(account: &Account, work: impl FnOnce() -> T) -> io::Result<T> {
    if account.uid == 0 || !geteuid().is_root() {
        return Ok(work());
    }
    let _restore = Restore { groups: getgroups()? };
    let groups: Vec<_> = account.groups.iter().map(|gid| rustix::process::Gid::from_raw(*gid)).collect();
    set_thread_groups(&groups)?;
    setfsgid(Gid::from_raw(account.gid));
    // With it the kernel takes away the capabilities that make root read everything.
    setfsuid(Uid::from_raw(account.uid));
    // Neither call tells whether it worked; a number that is no user changes nothing and tells the present one.
    let (uid, gid) = (setfsuid(NOBODY_AT_ALL), setfsgid(Gid::from_raw(NOBODY_AT_ALL.as_raw())));
    if (uid.as_raw(), gid.as_raw()) != (account.uid, account.gid) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(work())
}

const NOBODY_AT_ALL: Uid = Uid::from_raw(u32::MAX);

/// Gives the thread back what it had.
struct Restore {
    groups: Vec<rustix::process::Gid>,
}

impl Drop for Restore {
    fn drop(&mut self) {
        setfsuid(Uid::from_raw(0));
        setfsgid(Gid::from_raw(rustix::process::getegid().as_raw()));
        // It was allowed to set them a moment ago.
        let _ = set_thread_groups(&self.groups);
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
        let groups = getgroups().unwrap();

        let panicked = std::panic::catch_unwind(|| as_account(&account(4242, &[4242]), || panic!("on purpose")));

        assert!(panicked.is_err());
        let fsuid = setfsuid(NOBODY_AT_ALL);
        assert_eq!((fsuid.as_raw(), getgroups().unwrap()), (geteuid().as_raw(), groups));
    }
}
