//! Starting a shell as another user: what happens between fork and exec.
//!
//! Promised: the child has its own session, the user's identity and groups, default signal
//! dispositions, an empty mask, umask 022 and no descriptor of ours but its three; a failure says
//! at which step. Absent: any allocation or lock in the child, which a fork of many threads forbids.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::user::Account;

const SHELL: &str = "/bin/sh";
const UMASK: libc::mode_t = 0o022;
const SIGNAL_MAX: libc::c_int = 64;
const SIGNAL_SET_BYTES: usize = 8;
/// Where close_range is missing, descriptors up to here are marked one by one.
const DESCRIPTORS_MARKED_MAX: libc::c_int = 4096;

/// The standard library brings only an error number from the child to us. The step travels in its
/// upper half; exec itself and fork, whose numbers the library makes, have none there.
const STEP_SHIFT: u32 = 16;
const STEP_SESSION: i32 = 1;
const STEP_IDENTITY: i32 = 2;
const STEP_DIRECTORY: i32 = 3;

/// What a shell is started with.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) line: &'a str,
    pub(crate) directory: &'a Path,
    pub(crate) account: &'a Account,
    /// Whether the child must change its user.
    pub(crate) changes_user: bool,
    pub(crate) environment: &'a [(String, String)],
}

/// Starts the shell, or says for people why it cannot. Waits for the exec, not for the command.
pub(crate) fn spawn(plan: &Plan<'_>, output: (Stdio, Stdio)) -> Result<Child, String> {
    let directory = CString::new(plan.directory.as_os_str().as_bytes())
        .map_err(|_| "setup_path contains a NUL character".to_owned())?;
    let identity = plan.changes_user.then(|| (plan.account.uid, plan.account.gid, plan.account.groups.clone()));

    let mut command = Command::new(SHELL);
    command.arg("-c").arg(plan.line).env_clear().envs(login_environment(plan.account));
    command.envs(plan.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(output.0).stderr(output.1);
    let in_child = move || enter(identity.as_ref(), &directory);
    #[allow(unsafe_code, reason = "there is no other place to become another user")]
    // SAFETY: `enter` only makes async-signal-safe system calls with values that were made before
    // the fork; it neither allocates nor locks, also not when it fails.
    unsafe {
        command.pre_exec(in_child);
    }
    command.spawn().map_err(|error| reason(&error, plan))
}

fn login_environment(account: &Account) -> [(&'static str, &OsStr); 6] {
    let shell = account.shell.as_os_str();
    let has_login = !shell.is_empty() && !["nologin", "false"].iter().any(|name| account.shell.ends_with(name));
    let path = if account.uid == 0 {
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    } else {
        "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    };
    [
        ("HOME", account.home.as_os_str()),
        ("USER", OsStr::new(&account.name)),
        ("LOGNAME", OsStr::new(&account.name)),
        // Accounts of services have no shell to log in with, and what reads SHELL wants to run it.
        ("SHELL", if has_login { shell } else { OsStr::new(SHELL) }),
        ("PATH", OsStr::new(path)),
        ("LANG", OsStr::new("C.UTF-8")),
    ]
}

/// Runs in the child, between fork and exec.
#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn enter(identity: Option<&(u32, u32, Vec<u32>)>, directory: &CString) -> io::Result<()> {
    // SAFETY: setsid and umask take no memory of ours.
    if unsafe { libc::setsid() } < 0 {
        return Err(at(STEP_SESSION));
    }
    // SAFETY: as above.
    unsafe { libc::umask(UMASK) };
    reset_signals();
    // Before the user changes: who is not root may be unable to.
    hide_descriptors();
    if let Some((uid, gid, groups)) = identity {
        // SAFETY: `groups` lives in memory that the fork has copied, and its length is right.
        // Groups and gid go first, because afterwards we may not any more.
        let changed = unsafe {
            libc::setgroups(groups.len(), groups.as_ptr()) == 0 && libc::setgid(*gid) == 0 && libc::setuid(*uid) == 0
        };
        if !changed {
            return Err(at(STEP_IDENTITY));
        }
    }
    // As the user, so that the user's permissions decide.
    // SAFETY: `directory` is a C string that the fork has copied.
    if unsafe { libc::chdir(directory.as_ptr()) } != 0 {
        return Err(at(STEP_DIRECTORY));
    }
    Ok(())
}

#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn reset_signals() {
    // Not by libc, which refuses the two signals that it keeps for itself; those are inherited too.
    let default = [0_u64; 8];
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: the kernel reads an action from `default`, which is larger than one; all zeroes
        // are the default disposition. Numbers that cannot be set are refused.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0_usize, SIGNAL_SET_BYTES) };
    }
    // SAFETY: a zeroed set is storage for sigemptyset, and both outlive the calls.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Marks everything but the three standard descriptors to be closed by exec. Closed at once, the
/// descriptor through which the standard library reports a failure would be closed too.
#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn hide_descriptors() {
    // SAFETY: the call takes three numbers.
    let hidden = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if hidden == 0 {
        return;
    }
    for descriptor in 3..DESCRIPTORS_MARKED_MAX {
        // SAFETY: numbers that are no descriptor are refused.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

fn at(step: i32) -> io::Error {
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    io::Error::from_raw_os_error((step << STEP_SHIFT) | errno)
}

fn reason(error: &io::Error, plan: &Plan<'_>) -> String {
    let Some(raw) = error.raw_os_error() else {
        return format!("the command cannot be run: {error}");
    };
    let (step, errno) = (raw >> STEP_SHIFT, raw & ((1 << STEP_SHIFT) - 1));
    let said = io::Error::from_raw_os_error(errno);
    let (user, directory) = (&plan.account.name, plan.directory.display());
    match (step, errno) {
        (STEP_SESSION, _) => format!("the command gets no session of its own: {said}"),
        // Of the user after its change, or of us at the fork; the limit strikes at either place.
        (STEP_IDENTITY | 0, libc::EAGAIN) => format!("user '{user}' or this host may have no more processes"),
        (STEP_IDENTITY, _) => format!("the agent cannot become user '{user}': {said}"),
        (STEP_DIRECTORY, libc::ENOENT) => format!("setup_path {directory} does not exist"),
        (STEP_DIRECTORY, libc::ENOTDIR) => format!("setup_path {directory} is not a directory"),
        (STEP_DIRECTORY, libc::EACCES) => format!("user '{user}' may not enter setup_path {directory}"),
        (STEP_DIRECTORY, _) => format!("setup_path {directory} cannot be entered: {said}"),
        (_, libc::ENOMEM) => "this host has no memory for another process".to_owned(),
        (_, libc::EMFILE | libc::ENFILE) => "the agent has no more file descriptors".to_owned(),
        (_, libc::ENOENT) => format!("{SHELL} does not exist"),
        (_, libc::EACCES) => format!("user '{user}' may not run {SHELL}"),
        (_, libc::E2BIG) => "the command or its environment is too long".to_owned(),
        (_, _) => format!("{SHELL} cannot be run: {said}"),
    }
}
