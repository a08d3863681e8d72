//! Starting a shell as another user: what happens between fork and exec.
//!
//! Promised: the child has its own session, the user's identity and groups, default signal
//! dispositions, an empty mask, umask 022 and no descriptor of ours but its three; a failure says
//! at which step; a child that is held runs nothing of the user's before it is let go, and vanishes if
//! the agent ends before. Absent: any allocation or lock in the child, which a fork of many threads forbids.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::descriptors;
use crate::fork::{self, Attach, Child, Forked};
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
const STEP_HOLD: i32 = 6;

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
    /// Says what failed.
    report: RawFd,
    /// Tells who the child is, and hears when it may go on.
    hold: Option<RawFd>,
    /// The limits of open descriptors, where they are not ours.
    descriptors: Option<libc::rlimit>,
}

/// Starts the shell, or says for people why it cannot. Waits for the exec, not for the command; the
/// shell is nobody's until its pidfd is waited for. A child that is held sends its pid (four bytes, the
/// lowest first) by `hold` and runs nothing before it gets a byte from there.
pub(crate) fn spawn(plan: &Plan<'_>, hold: Option<UnixStream>) -> Result<Forked, String> {
    let (null, (mut ours, theirs)) = open().map_err(|error| reason(STEP_FORK, &error, plan))?;
    let output = plan.output.map_or_else(|| null.as_raw_fd(), File::as_raw_fd);
    let held = hold.as_ref().map(UnixStream::as_raw_fd);
    let prepared = prepare(plan, null.as_raw_fd(), output, theirs.as_raw_fd(), held)?;
    #[allow(unsafe_code, reason = "there is no other way to become another user in a cgroup")]
    // SAFETY: the child only runs `prepared`, which makes plain system calls with values that were
    // made before the fork, neither allocates nor locks, and never returns.
    let forked = unsafe { fork::fork_to_exec(&plan.attach, &prepared) };
    let forked = forked.map_err(|error| reason(STEP_FORK, &error, plan))?;
    drop((theirs, hold));
    // Ends with the exec, which closes the other side.
    let mut failure = [0_u8; 8];
    if ours.read_exact(&mut failure).is_err() {
        return Ok(forked);
    }
    let _ = pidfd::reap_at_end(&forked.pidfd);
    let [a, b, c, d, e, f, g, h] = failure;
    let (step, errno) = (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
    Err(reason(step, &io::Error::from_raw_os_error(errno), plan))
}

fn open() -> io::Result<(File, (UnixStream, UnixStream))> {
    Ok((File::open("/dev/null")?, UnixStream::pair()?))
}

fn prepare(
    plan: &Plan<'_>,
    input: RawFd,
    output: RawFd,
    report: RawFd,
    hold: Option<RawFd>,
) -> Result<Prepared, String> {
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
    let descriptors = descriptors::for_commands().map(|limit| libc::rlimit {
        rlim_cur: limit.current.unwrap_or(libc::RLIM_INFINITY),
        rlim_max: limit.maximum.unwrap_or(libc::RLIM_INFINITY),
    });
    Ok(Prepared {
        arguments,
        environment,
        _texts: texts,
        directory,
        identity,
        input,
        output,
        report,
        hold,
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
impl Child for Prepared {
    #[allow(unsafe_code, reason = "only plain system calls may be made here")]
    fn run(&self) -> ! {
        let step = become_shell(self);
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let message = [step, errno];
        // SAFETY: the eight bytes of `message` are read; the descriptor was open before the fork.
        unsafe {
            libc::write(self.report, message.as_ptr().cast(), size_of_val(&message));
            libc::_exit(127)
        }
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
    close_descriptors(prepared.report, prepared.hold.unwrap_or(prepared.report));
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
    if let Some(limit) = &prepared.descriptors {
        // SAFETY: the limit was made before the fork. A failure leaves the higher one, which does no
        // harm by itself.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) };
    }
    // As the user, so that the user's permissions decide.
    // SAFETY: `directory` is a C string that the fork has copied.
    if unsafe { libc::chdir(prepared.directory.as_ptr()) } != 0 {
        return STEP_DIRECTORY;
    }
    if prepared.hold.is_some_and(|hold| !may_go(hold)) {
        return STEP_HOLD;
    }
    // SAFETY: both lists end with a null pointer and point to C strings that the fork has copied.
    unsafe { libc::execve(SHELL_PATH.as_ptr(), prepared.arguments.as_ptr(), prepared.environment.as_ptr()) };
    STEP_EXEC
}

/// Tells who we are and waits. False: the agent is gone or has changed its mind.
#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn may_go(hold: RawFd) -> bool {
    let mut byte = 0_u8;
    // SAFETY: `pid` and `byte` are storage for what is written and asked for; no handler of ours is
    // left that could interrupt the calls.
    unsafe {
        let pid = libc::getpid().to_le_bytes();
        libc::write(hold, pid.as_ptr().cast(), pid.len()) > 0 && libc::read(hold, (&raw mut byte).cast(), 1) == 1
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

/// Closes everything but the three standard descriptors and two others. Not only at exec: a child
/// that hangs on its directory must not hold what others wait for.
#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn close_descriptors(one: RawFd, other: RawFd) {
    let (low, high) = (one.min(other), one.max(other));
    let close_from_to = |first: RawFd, last: u32| match u32::try_from(first) {
        // SAFETY: the call takes three numbers; nothing in this process uses what it closes.
        Ok(first) if first <= last => unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) == 0 },
        Ok(_) | Err(_) => true,
    };
    let below = |kept: RawFd| u32::try_from(kept - 1).unwrap_or(0);
    if close_from_to(3, below(low)) && close_from_to(low + 1, below(high)) && close_from_to(high + 1, u32::MAX) {
        return;
    }
    for descriptor in (3..DESCRIPTORS_CLOSED_MAX).filter(|descriptor| ![one, other].contains(descriptor)) {
        // SAFETY: numbers that are no descriptor are refused.
        unsafe { libc::close(descriptor) };
    }
}

fn reason(step: i32, error: &io::Error, plan: &Plan<'_>) -> String {
    let said = error;
    let errno = error.raw_os_error().unwrap_or(0);
    let (user, directory) = (&plan.account.name, plan.directory.display());
    match (step, errno) {
        (STEP_HOLD, _) => "it was no longer wanted".to_owned(),
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
