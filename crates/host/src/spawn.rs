//! Starting a shell as another user: what happens between fork and exec.
//!
//! Promised: the child has its own session, the user's identity and groups, default signal
//! dispositions, an empty mask, umask 022 and no descriptor of ours but its three; a failure says
//! at which step; a child that is held runs nothing of the user's before it is let go, and vanishes if
//! the agent ends before. Absent: any allocation or lock in the child, which a fork of many threads forbids.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::descriptors;
use crate::fork::{self, Attach, Fork};
use crate::pidfd;
use crate::user::Account;

const SHELL: &str = "/bin/sh";
const SHELL_PATH: &CStr = c"/bin/sh";
const UMASK: libc::mode_t = 0o022;
const SIGNAL_MAX: libc::c_int = 64;
const SIGNAL_SET_BYTES: usize = 8;
/// Where close_range is missing, descriptors up to here are closed one by one; those of our own are
/// closed by exec in any case.
const DESCRIPTORS_CLOSED_MAX: libc::c_int = 4096;

/// What the child was doing when it failed; the child sends it with the error number.
const STEP_FORK: i32 = 0;
const STEP_SESSION: i32 = 1;
const STEP_IDENTITY: i32 = 2;
const STEP_DIRECTORY: i32 = 3;
const STEP_DESCRIPTORS: i32 = 4;
const STEP_EXEC: i32 = 5;

/// What a shell is started with.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) line: &'a str,
    pub(crate) directory: &'a Path,
    pub(crate) account: &'a Account,
    /// Whether the child must change its user.
    pub(crate) changes_user: bool,
    pub(crate) environment: &'a [(String, String)],
    /// Where both its outputs go; None: nowhere.
    pub(crate) output: Option<&'a File>,
    pub(crate) attach: Attach,
}

/// A shell that nobody has waited for yet.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
}

/// Everything that the child needs, made before the fork.
struct Prepared {
    // Both end with a null pointer and point into `_texts`.
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    _texts: Vec<CString>,
    directory: CString,
    identity: Option<(u32, u32, Vec<u32>)>,
    input: RawFd,
    output: RawFd,
    /// Says what failed, and hears when a held child may go on.
    report: RawFd,
    held: bool,
    /// The soft limit of open descriptors, where it is not ours.
    descriptors: Option<u64>,
}

/// Asked of a child that exists and waits: may it go on?
pub(crate) type MayGo<'a> = Box<dyn FnOnce(i32) -> bool + 'a>;

/// Starts the shell, or says for people why it cannot. Waits for the exec, not for the command.
/// With `may_go` the child is held until that has said yes.
pub(crate) fn spawn(plan: &Plan<'_>, may_go: Option<MayGo<'_>>) -> Result<Child, String> {
    let (null, (mut ours, theirs)) = open().map_err(|error| reason(STEP_FORK, &error, plan))?;
    let output = plan.output.map_or_else(|| null.as_raw_fd(), File::as_raw_fd);
    let prepared = prepare(plan, null.as_raw_fd(), output, theirs.as_raw_fd(), may_go.is_some())?;
    #[allow(unsafe_code, reason = "there is no other way to become another user in a cgroup")]
    // SAFETY: the child only runs `enter`, which makes plain system calls with values that were
    // made before the fork, neither allocates nor locks, and never returns.
    let forked = unsafe { fork::fork(&plan.attach) };
    let (pid, pidfd) = match forked {
        Ok(Fork::Parent { pid, pidfd }) => (pid, pidfd),
        Ok(Fork::Child) => enter(&prepared),
        Err(error) => return Err(reason(STEP_FORK, &error, plan)),
    };
    drop(theirs);
    if let Some(may_go) = may_go {
        if !may_go(pid) {
            drop(ours); // which ends it
            let _ = pidfd::reap_at_end(&pidfd);
            return Err("it was no longer wanted".to_owned());
        }
        let _ = ours.write_all(&[1]); // a child that is gone has said why
    }
    // Ends with the exec, which closes the other side.
    let mut failure = [0_u8; 8];
    if ours.read_exact(&mut failure).is_err() {
        return Ok(Child { pid, pidfd });
    }
    let _ = pidfd::reap_at_end(&pidfd);
    let [a, b, c, d, e, f, g, h] = failure;
    let (step, errno) = (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
    Err(reason(step, &io::Error::from_raw_os_error(errno), plan))
}

fn open() -> io::Result<(File, (UnixStream, UnixStream))> {
    Ok((File::open("/dev/null")?, UnixStream::pair()?))
}

fn prepare(plan: &Plan<'_>, input: RawFd, output: RawFd, report: RawFd, held: bool) -> Result<Prepared, String> {
    let text = |what: &str, bytes: Vec<u8>| CString::new(bytes).map_err(|_| format!("{what} contains a nul byte"));
    let directory = text("setup_path", plan.directory.as_os_str().as_bytes().to_vec())?;
    let mut texts = vec![
        text("the shell", b"sh".to_vec())?,
        text("the shell", b"-c".to_vec())?,
        text("the command", plan.line.as_bytes().to_vec())?,
    ];
    let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
    let login = login_environment(plan.account);
    variables.extend(login.into_iter().map(|(name, value)| (name.into(), value.to_owned())));
    variables.extend(plan.environment.iter().map(|(name, value)| (name.into(), value.into())));
    for (name, value) in variables {
        let mut variable = name.into_vec();
        variable.push(b'=');
        variable.extend(value.as_bytes());
        texts.push(text("the environment", variable)?);
    }
    let mut arguments: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
    let mut environment = arguments.split_off(3);
    arguments.push(std::ptr::null());
    environment.push(std::ptr::null());
    let identity = plan.changes_user.then(|| (plan.account.uid, plan.account.gid, plan.account.groups.clone()));
    let descriptors = descriptors::for_commands();
    Ok(Prepared {
        arguments,
        environment,
        _texts: texts,
        directory,
        identity,
        input,
        output,
        report,
        held,
        descriptors,
    })
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
fn enter(prepared: &Prepared) -> ! {
    let step = become_shell(prepared);
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let message = [step, errno];
    // SAFETY: the eight bytes of `message` are read; the descriptor was open before the fork.
    unsafe {
        libc::write(prepared.report, message.as_ptr().cast(), size_of_val(&message));
        libc::_exit(127)
    }
}

/// Returns only when it has failed: at which step.
#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn become_shell(prepared: &Prepared) -> i32 {
    // SAFETY: setsid and umask take no memory of ours.
    if unsafe { libc::setsid() } < 0 {
        return STEP_SESSION;
    }
    // SAFETY: as above.
    unsafe { libc::umask(UMASK) };
    // SAFETY: dup2 takes numbers. The descriptors are above 2: Rust's start-up sees to that those
    // three are open.
    let moved = unsafe {
        libc::dup2(prepared.input, 0) == 0 && libc::dup2(prepared.output, 1) == 1 && libc::dup2(prepared.output, 2) == 2
    };
    if !moved {
        return STEP_DESCRIPTORS;
    }
    reset_signals();
    // Before the user changes: who is not root may be unable to.
    close_descriptors(prepared.report);
    if let Some((uid, gid, groups)) = &prepared.identity {
        // By the kernel's own calls: libc's would look for the other threads of our parent.
        // SAFETY: `groups` lives in memory that the fork has copied, and its length is right.
        // Groups and gid go first, because afterwards we may not any more.
        let changed = unsafe {
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
                && libc::syscall(libc::SYS_setgid, *gid) == 0
                && libc::syscall(libc::SYS_setuid, *uid) == 0
        };
        if !changed {
            return STEP_IDENTITY;
        }
    }
    if let Some(soft) = prepared.descriptors {
        limit_descriptors(soft);
    }
    // As the user, so that the user's permissions decide.
    // SAFETY: `directory` is a C string that the fork has copied.
    if unsafe { libc::chdir(prepared.directory.as_ptr()) } != 0 {
        return STEP_DIRECTORY;
    }
    if prepared.held {
        wait_to_go(prepared.report);
    }
    // SAFETY: both lists end with a null pointer and point to C strings that the fork has copied.
    unsafe { libc::execve(SHELL_PATH.as_ptr(), prepared.arguments.as_ptr(), prepared.environment.as_ptr()) };
    STEP_EXEC
}

/// Returns when the agent says so; ends the child where the agent is gone or has changed its mind.
#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn wait_to_go(report: RawFd) {
    let mut byte = 0_u8;
    // SAFETY: `byte` is storage for the one byte that is asked for; no handler of ours is left that
    // could interrupt the call.
    unsafe {
        if libc::read(report, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }
    }
}

/// Lowers the soft limit again; a failure leaves the higher one, which does no harm by itself.
#[allow(unsafe_code, reason = "setrlimit in a forked child")]
fn limit_descriptors(soft: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a limit that lives on this stack.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = soft.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
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

/// Closes everything but the three standard descriptors and the one that reports a failure. Not
/// only at exec: a child that hangs on its directory must not hold what others wait for.
#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn close_descriptors(kept: RawFd) {
    let Ok(keep) = u32::try_from(kept) else { return };
    // SAFETY: the calls take three numbers each; nothing in this process uses what they close.
    let closed = unsafe {
        (keep <= 3 || libc::syscall(libc::SYS_close_range, 3_u32, keep - 1, 0_u32) == 0)
            && libc::syscall(libc::SYS_close_range, keep + 1, u32::MAX, 0_u32) == 0
    };
    if closed {
        return;
    }
    for descriptor in (3..DESCRIPTORS_CLOSED_MAX).filter(|descriptor| *descriptor != kept) {
        // SAFETY: numbers that are no descriptor are refused.
        unsafe { libc::close(descriptor) };
    }
}

fn reason(step: i32, error: &io::Error, plan: &Plan<'_>) -> String {
    let said = error;
    let errno = error.raw_os_error().unwrap_or(0);
    let (user, directory) = (&plan.account.name, plan.directory.display());
    match (step, errno) {
        (STEP_SESSION, _) => format!("the command gets no session of its own: {said}"),
        // Of us at the fork, or of the user when it is changed or at the exec: the limit strikes at
        // any of these places.
        (STEP_FORK | STEP_IDENTITY | STEP_EXEC, libc::EAGAIN) => {
            format!("user '{user}' or this host may have no more processes")
        }
        (STEP_IDENTITY, _) => format!("the agent cannot become user '{user}': {said}"),
        (STEP_DIRECTORY, libc::ENOENT) => format!("setup_path {directory} does not exist"),
        (STEP_DIRECTORY, libc::ENOTDIR) => format!("setup_path {directory} is not a directory"),
        (STEP_DIRECTORY, libc::EACCES) => format!("user '{user}' may not enter setup_path {directory}"),
        (STEP_DIRECTORY, _) => format!("setup_path {directory} cannot be entered: {said}"),
        (_, libc::ENOMEM) => "this host has no memory for another process".to_owned(),
        (_, libc::EMFILE | libc::ENFILE) => "the agent has no more file descriptors".to_owned(),
        (STEP_FORK, _) => format!("the command cannot be run: {said}"),
        (STEP_DESCRIPTORS, _) => format!("no descriptor for the output: {said}"),
        (_, libc::ENOENT) => format!("{SHELL} does not exist"),
        (_, libc::EACCES) => format!("user '{user}' may not run {SHELL}"),
        (_, libc::E2BIG) => "the command or its environment is too long".to_owned(),
        (_, _) => format!("{SHELL} cannot be run: {said}"),
    }
}
