//! Starts a shell as another user: what happens between fork and exec.
//!
//! Promised: the child has its own session, the user's identity and groups, default signal dispositions, an empty
//! mask, umask 022 and none of our descriptors but its three; a failure says at which step; a held child runs nothing
//! of the user's before it is released, and exits if the agent dies first.
//! Absent: any allocation, lock or write to our memory in the child, which may share it; and waiting: a child may
//! hang before its exec, and we continue.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;

use crate::descriptors;
use crate::fork::{self, CgroupAttach, Child, Forked, SharedWithChild, SpawnMethod};
use crate::syscall::{self, Answer};
use crate::user::Account;

const SHELL: &str = "/bin/sh";
const SHELL_PATH: &CStr = c"/bin/sh";
const UMASK: usize = 0o022;
const SIGNAL_MAX: usize = 64;
const SIGNAL_SET_BYTES: usize = 8;
/// Where close_range is missing, descriptors up to here are closed one by one; those of our own are
/// closed by exec in any case.
const DESCRIPTORS_CLOSED_MAX: usize = 4096;

/// What the child was doing when it failed. It sends the number with the error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Step {
    Fork,
    Session,
    Identity,
    Directory,
    Descriptors,
    Exec,
    Hold,
}

impl Step {
    const SENT: [Self; 6] = [Self::Session, Self::Identity, Self::Directory, Self::Descriptors, Self::Exec, Self::Hold];

    fn from_number(number: i32) -> Option<Self> {
        Self::SENT.into_iter().find(|step| *step as i32 == number)
    }
}

/// What a shell is started with.
#[derive(Debug)]
pub(crate) struct SpawnPlan<'a> {
    pub(crate) line: &'a str,
    pub(crate) directory: &'a Path,
    pub(crate) account: &'a Account,
    /// Whether the child must change its user.
    pub(crate) changes_user: bool,
    pub(crate) environment: &'a [(String, String)],
    /// Where both its outputs go; None: nowhere.
    pub(crate) output: Option<&'a File>,
    pub(crate) attach: CgroupAttach,
}

/// Everything that the child needs, made before the fork.
#[derive(Debug)]
struct Prepared {
    // Both are addresses in `_texts` and end with a null pointer.
    arguments: Vec<usize>,
    environment: Vec<usize>,
    _texts: Vec<CString>,
    directory: CString,
    identity: Option<(u32, u32, Vec<u32>)>,
    input: RawFd,
    output: RawFd,
    /// Says what failed.
    report: RawFd,
    /// Signals when the child may continue.
    hold: Option<RawFd>,
    /// The limits of open descriptors, where they are not ours.
    descriptors: Option<libc::rlimit64>,
}

/// Creates children. Clones are cheap and share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spawner {
    method: SpawnMethod,
    abandoned: Arc<AbandonedChildren>,
}

/// A child that has not called exec yet.
#[derive(Debug)]
pub(crate) struct SpawnedChild {
    /// None: it has called exec or ended.
    unfinished: Option<Unfinished>,
    user: String,
    directory: PathBuf,
    abandoned: Arc<AbandonedChildren>,
}

/// The child's exec or exit closes the other side of `report`; until then it uses `memory`.
#[derive(Debug)]
struct Unfinished<Stream = tokio::net::UnixStream> {
    report: Stream,
    memory: SharedWithChild,
}

/// Children that nobody waits for any more, with the memory they use.
#[derive(Debug, Default)]
struct AbandonedChildren(Mutex<Vec<Unfinished<UnixStream>>>);

impl Spawner {
    pub(crate) fn new(method: SpawnMethod) -> Self {
        Self { method, abandoned: Arc::default() }
    }

    /// Starts the shell, or returns a human-readable reason why it cannot. In a tokio runtime; does not wait; the
    /// shell belongs to nobody until its pidfd is waited for. A held child runs nothing before it gets a byte through
    /// `hold`.
    pub(crate) fn spawn(
        &self,
        plan: SpawnPlan<'_>,
        hold: Option<UnixStream>,
    ) -> Result<(Forked, SpawnedChild), String> {
        self.abandoned.free_finished();
        let SpawnPlan { account, directory, .. } = plan;
        let failed = |error: &io::Error| reason(Step::Fork, error, &account.name, directory);
        let (null, report, theirs) = open().map_err(|error| failed(&error))?;
        let output = plan.output.map_or_else(|| null.as_raw_fd(), File::as_raw_fd);
        let held = hold.as_ref().map(UnixStream::as_raw_fd);
        let prepared = Box::new(prepare(&plan, null.as_raw_fd(), output, theirs.as_raw_fd(), held)?);
        #[allow(unsafe_code, reason = "there is no other way to become another user in a cgroup")]
        // SAFETY: the child only runs `prepared`, which makes raw system calls with values that were made
        // before the fork, neither allocates, locks nor panics, and never returns. `Unfinished` keeps the
        // shared memory until the child's end of `report` is closed, and the kernel takes our memory from a
        // child before it closes its descriptors.
        let forked = unsafe { fork::fork_to_exec(self.method, plan.attach, prepared) };
        let (forked, memory) = forked.map_err(|error| failed(&error))?;
        let (user, directory, abandoned) = (account.name.clone(), directory.to_owned(), Arc::clone(&self.abandoned));
        Ok((forked, SpawnedChild { unfinished: Some(Unfinished { report, memory }), user, directory, abandoned }))
    }
}

impl SpawnedChild {
    /// Waits for the exec; the error is a human-readable reason why there is none.
    pub(crate) async fn wait_for_exec(mut self) -> Result<(), String> {
        let mut told = Vec::with_capacity(8);
        if let Some(Unfinished { report, .. }) = &mut self.unfinished {
            // To its end, also after a reported failure: until then the child uses our memory.
            let _ = report.read_to_end(&mut told).await;
        }
        self.unfinished = None;
        let Ok([a, b, c, d, e, f, g, h]) = <[u8; 8]>::try_from(told) else { return Ok(()) };
        let (step, errno) = (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
        let step = Step::from_number(step).unwrap_or(Step::Exec);
        Err(reason(step, &io::Error::from_raw_os_error(errno), &self.user, &self.directory))
    }
}

impl Drop for SpawnedChild {
    fn drop(&mut self) {
        let Some(Unfinished { report, memory }) = self.unfinished.take() else { return };
        match report.into_std() {
            Ok(report) => self.abandoned.0.lock().push(Unfinished { report, memory }),
            Err(_) => std::mem::forget(memory), // the child may still use it, and cannot be asked any more
        }
    }
}

impl AbandonedChildren {
    fn free_finished(&self) {
        let has_finished = |report: &mut UnixStream| {
            let mut told = [0; 16];
            // The report of a failure, if there is one, then the end.
            matches!(report.read(&mut told), Ok(0)) || matches!(report.read(&mut told), Ok(0))
        };
        self.0.lock().retain_mut(|child| !has_finished(&mut child.report));
    }
}

impl Drop for AbandonedChildren {
    /// Leaks what children still use.
    fn drop(&mut self) {
        self.free_finished();
        std::mem::forget(std::mem::take(&mut *self.0.lock()));
    }
}

fn open() -> io::Result<(File, tokio::net::UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((File::open("/dev/null")?, tokio::net::UnixStream::from_std(ours)?, theirs))
}

fn prepare(
    plan: &SpawnPlan<'_>,
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
    let mut arguments: Vec<usize> = texts.iter().map(|text| text.as_ptr().expose_provenance()).collect();
    let mut environment = arguments.split_off(3);
    arguments.push(0);
    environment.push(0);
    let identity = plan.changes_user.then(|| (plan.account.uid, plan.account.gid, plan.account.groups.clone()));
    let descriptors = descriptors::for_commands().map(|limit| libc::rlimit64 {
        rlim_cur: limit.current.unwrap_or(libc::RLIM64_INFINITY),
        rlim_max: limit.maximum.unwrap_or(libc::RLIM64_INFINITY),
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
    fn run(&self) -> ! {
        let (step, errno) = match exec_shell(self) {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        let message = [step as i32, errno];
        let text = message.as_ptr().expose_provenance();
        #[allow(unsafe_code, reason = "the kernel's own interface")]
        // SAFETY: the eight bytes of `message` are read; the descriptor was open before the fork.
        let _ = unsafe { syscall::call(libc::SYS_write, [number(self.report), text, size_of_val(&message), 0]) };
        syscall::exit(127)
    }
}

/// Returns only when it has failed: at which step, and with which error.
#[allow(unsafe_code, reason = "the kernel's own interface")]
fn exec_shell(prepared: &Prepared) -> Result<Infallible, (Step, i32)> {
    let at = |step: Step| move |errno: i32| (step, errno);
    syscall::numbers(libc::SYS_setsid, [0; 4]).map_err(at(Step::Session))?;
    let _ = syscall::numbers(libc::SYS_umask, [UMASK, 0, 0, 0]);
    // The descriptors are above 2: Rust's start-up sees to that those three are open.
    for (from, to) in [(prepared.input, 0), (prepared.output, 1), (prepared.output, 2)] {
        syscall::numbers(libc::SYS_dup3, [number(from), to, 0, 0]).map_err(at(Step::Descriptors))?;
    }
    reset_signals();
    // Before the user changes: without root it may be impossible.
    close_descriptors(number(prepared.report), number(prepared.hold.unwrap_or(prepared.report)));
    // As ourselves: who waits shares our memory, and has no business with it as another user.
    if prepared.hold.is_some_and(|hold| !may_go(hold)) {
        return Err((Step::Hold, 0));
    }
    if let Some((uid, gid, groups)) = &prepared.identity {
        let list = groups.as_ptr().expose_provenance();
        // Of this process alone: libc's calls would look for the other threads of our parent. Groups
        // and gid go first, because afterwards we may not any more.
        // SAFETY: `groups` lives until the exec, and its length is right.
        unsafe { syscall::call(libc::SYS_setgroups, [groups.len(), list, 0, 0]) }.map_err(at(Step::Identity))?;
        syscall::numbers(libc::SYS_setgid, [*gid as usize, 0, 0, 0]).map_err(at(Step::Identity))?;
        syscall::numbers(libc::SYS_setuid, [*uid as usize, 0, 0, 0]).map_err(at(Step::Identity))?;
    }
    if let Some(limit) = &prepared.descriptors {
        let limit = (&raw const *limit).expose_provenance();
        // SAFETY: the limit was made before the fork, in the kernel's own form. A failure leaves the
        // higher one, which does no harm by itself.
        let _ = unsafe { syscall::call(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, limit, 0]) };
    }
    // As the user, so that the user's permissions decide.
    let directory = prepared.directory.as_ptr().expose_provenance();
    // SAFETY: `directory` is a C string that lives until the exec.
    unsafe { syscall::call(libc::SYS_chdir, [directory, 0, 0, 0]) }.map_err(at(Step::Directory))?;
    let (path, arguments) = (SHELL_PATH.as_ptr().expose_provenance(), prepared.arguments.as_ptr().expose_provenance());
    let environment = prepared.environment.as_ptr().expose_provenance();
    // SAFETY: both lists end with a null pointer and point to C strings that live until the exec.
    let errno = unsafe { syscall::call(libc::SYS_execve, [path, arguments, environment, 0]) };
    Err((Step::Exec, errno.err().unwrap_or(0)))
}

/// Waits for the release. False: the agent is gone or has changed its mind.
fn may_go(hold: RawFd) -> bool {
    let mut byte = 0_u8;
    let place = (&raw mut byte).expose_provenance();
    #[allow(unsafe_code, reason = "the kernel's own interface")]
    // SAFETY: `byte` is storage for the one byte that is asked for; no handler of ours is left that
    // could interrupt the call.
    let read = unsafe { syscall::call(libc::SYS_read, [number(hold), place, 1, 0]) };
    read == Ok(1)
}

fn reset_signals() {
    // The kernel reads an action from here, which is smaller; all zeroes are the default disposition,
    // and a set without signals.
    let nothing = [0_u64; 8];
    let none = nothing.as_ptr().expose_provenance();
    #[allow(unsafe_code, reason = "the kernel's own interface")]
    // SAFETY: `nothing` outlives the calls. Numbers that cannot be set are refused.
    unsafe {
        for signal in 1..=SIGNAL_MAX {
            let _ = syscall::call(libc::SYS_rt_sigaction, [signal, none, 0, SIGNAL_SET_BYTES]);
        }
        let _ = syscall::call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, none, 0, SIGNAL_SET_BYTES]);
    }
}

/// Closes everything but the three standard descriptors and two others. Not only at exec: a child
/// that hangs on its directory must not hold what others wait for.
fn close_descriptors(one: usize, other: usize) {
    let (low, high) = (one.min(other), one.max(other));
    let close = |first: usize, last: usize| -> Answer {
        if first > last { Ok(0) } else { syscall::numbers(libc::SYS_close_range, [first, last, 0, 0]) }
    };
    let ranges = [(3, low.wrapping_sub(1)), (low.wrapping_add(1), high.wrapping_sub(1))];
    let are_closed = ranges.iter().all(|(first, last)| close(*first, *last).is_ok());
    if are_closed && close(high.wrapping_add(1), u32::MAX as usize).is_ok() {
        return;
    }
    for descriptor in (3..DESCRIPTORS_CLOSED_MAX).filter(|descriptor| *descriptor != one && *descriptor != other) {
        let _ = syscall::numbers(libc::SYS_close, [descriptor, 0, 0, 0]);
    }
}

/// As the kernel takes it.
fn number(descriptor: RawFd) -> usize {
    usize::try_from(descriptor).unwrap_or(usize::MAX)
}

fn reason(step: Step, error: &io::Error, user: &str, directory: &Path) -> String {
    let said = error;
    let errno = error.raw_os_error().unwrap_or(0);
    let directory = directory.display();
    match (step, errno) {
        (Step::Hold, _) => "it was no longer wanted".to_owned(),
        (Step::Session, _) => format!("cannot start a new session for the command: {said}"),
        // Of us at the fork, or of the user when it is changed or at the exec: the limit strikes at
        // any of these places.
        (Step::Fork | Step::Identity | Step::Exec, libc::EAGAIN) => {
            format!("user '{user}' or this host may have no more processes")
        }
        (Step::Identity, _) => format!("the agent cannot become user '{user}': {said}"),
        (Step::Directory, libc::ENOENT) => format!("setup_path {directory} does not exist"),
        (Step::Directory, libc::ENOTDIR) => format!("setup_path {directory} is not a directory"),
        (Step::Directory, libc::EACCES) => format!("user '{user}' may not enter setup_path {directory}"),
        (Step::Directory, _) => format!("setup_path {directory} cannot be entered: {said}"),
        (_, libc::ENOMEM) => "this host has no memory for another process".to_owned(),
        (_, libc::EMFILE | libc::ENFILE) => "the agent has no more file descriptors".to_owned(),
        (Step::Fork, _) => format!("the command cannot be run: {said}"),
        (Step::Descriptors, _) => format!("no descriptor for the output: {said}"),
        (_, libc::ENOENT) => format!("{SHELL} does not exist"),
        (_, libc::EACCES) => format!("user '{user}' may not run {SHELL}"),
        (_, libc::E2BIG) => "the command or its environment is too long".to_owned(),
        (_, _) => format!("{SHELL} cannot be run: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_of_an_abandoned_child_is_kept_until_the_child_has_ended() {
        for method in [SpawnMethod::SharedMemory, SpawnMethod::Fork] {
            let spawner = Spawner::new(method);
            let account = Account::find("root").unwrap();
            let plan = SpawnPlan {
                line: "true",
                directory: Path::new("/"),
                account: &account,
                changes_user: false,
                environment: &[],
                output: None,
                attach: CgroupAttach::Nowhere,
            };
            let (ours, theirs) = UnixStream::pair().unwrap();

            let (forked, child) = spawner.spawn(plan, Some(theirs)).unwrap();
            drop(child);
            spawner.abandoned.free_finished();
            assert_eq!(spawner.abandoned.0.lock().len(), 1, "the held child uses it");
            drop(ours);
            crate::pidfd::reap_at_end(&forked.pidfd).unwrap();
            spawner.abandoned.free_finished();

            assert!(spawner.abandoned.0.lock().is_empty());
        }
    }

    #[test]
    fn every_step_that_a_child_sends_is_understood() {
        for step in Step::SENT {
            assert_eq!(Step::from_number(step as i32), Some(step));
        }
        assert_eq!(Step::from_number(99), None);
    }
}
