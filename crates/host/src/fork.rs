//! Creates a child process, optionally inside a cgroup from its first instruction.
//!
//! Promised: the child comes with a pidfd, is in its cgroup before it can fork, and none of our signal handlers runs
//! in it.
//! Absent: anything that libc does around its own fork, so the child may only make raw system calls; and waiting for
//! the child, which is up to the caller.
//!
//! A child that is about to exec shares our memory until then, if kernel and CPU allow it: copying the memory, only
//! for exec to throw it away, would cost more than everything else. We continue meanwhile; whatever the child uses is
//! [`SharedWithChild`].

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::syscall;

const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// Enough for a few system calls, even in an unoptimised build.
const STACK_BYTES: usize = 64 * 1024;

/// How a child is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpawnMethod {
    /// It shares the agent's memory until its exec, if kernel and CPU allow it; otherwise as `Fork`.
    #[default]
    SharedMemory,
    /// It gets a copy of the agent's memory.
    Fork,
}

/// How a child gets into its cgroup.
#[derive(Debug, Default)]
pub(crate) enum CgroupAttach {
    #[default]
    Nowhere,
    /// Made inside of it. A write to `cgroup.procs` would wait for a grace period of the kernel,
    /// which takes longer than a whole fork and exec (8 ms against 1.4 ms here).
    Into { directory: OwnedFd, procs: File },
    /// Writes itself to `tasks` of each: without that wait, because it moves one thread only.
    Tasks(Vec<File>),
}

/// The kernel's `struct clone_args`, which not every libc has.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

impl CloneArguments {
    fn new(pidfd: &mut RawFd, attach: &CgroupAttach) -> Self {
        let (flags, cgroup) = match attach {
            CgroupAttach::Into { directory, .. } => (CLONE_INTO_CGROUP, directory.as_raw_fd()),
            CgroupAttach::Nowhere | CgroupAttach::Tasks(_) => (0, 0),
        };
        Self {
            flags: CLONE_PIDFD | flags,
            pidfd: std::ptr::from_mut(pidfd).expose_provenance() as u64,
            exit_signal: libc::SIGCHLD as u64,
            cgroup: u64::try_from(cgroup).unwrap_or_default(),
            ..Self::default()
        }
    }
}

#[derive(Debug)]
pub(crate) struct Forked {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
}

enum Fork {
    Child,
    Parent(Forked),
}

/// What a child does: exec or exit.
pub(crate) trait Child: Send + std::fmt::Debug {
    fn run(&self) -> !;
}

/// What a child may still use of our memory. Must be kept until it has called exec or exited.
#[derive(Debug)]
pub(crate) struct SharedWithChild {
    _setup: Box<ChildSetup>,
    _stack: Vec<u128>,
}

#[derive(Debug)]
struct ChildSetup {
    attach: CgroupAttach,
    child: Box<dyn Child>,
}

/// Forks a child that runs `child` and nothing else. It may still be running that when this returns.
///
/// # Safety
///
/// `child` makes system calls by [`syscall`] only, writes to no memory but its own stack, does not panic,
/// and ends by exec or exit. The [`SharedWithChild`] is not dropped before that.
#[allow(unsafe_code, reason = "a fork is nothing else")]
pub(crate) unsafe fn fork_to_exec(
    method: SpawnMethod,
    attach: CgroupAttach,
    child: Box<dyn Child>,
) -> io::Result<(Forked, SharedWithChild)> {
    let setup = Box::new(ChildSetup { attach, child });
    let mut stack = Vec::new();
    if method == SpawnMethod::SharedMemory {
        let masked = BlockedSignals::new();
        // SAFETY: passed on to our caller.
        let cloned = unsafe { clone_sharing_memory(&setup, &mut stack) };
        masked.restore();
        match cloned {
            Some(Err(error)) if is_refused(&error) => {}
            Some(forked) => return Ok((forked?, SharedWithChild { _setup: setup, _stack: stack })),
            None => {}
        }
    }
    // SAFETY: passed on to our caller.
    match unsafe { fork(&setup.attach) }? {
        Fork::Child => setup.child.run(),
        Fork::Parent(forked) => Ok((forked, SharedWithChild { _setup: setup, _stack: stack })),
    }
}

/// None: not supported on this CPU.
#[cfg(not(target_arch = "x86_64"))]
#[allow(unsafe_code, reason = "as the one that does something")]
unsafe fn clone_sharing_memory(_setup: &ChildSetup, _stack: &mut Vec<u128>) -> Option<io::Result<Forked>> {
    None
}

/// Forks a child with its own stack in our memory.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "no library can clone into a cgroup, nor with a stack and a pidfd")]
unsafe fn clone_sharing_memory(setup: &ChildSetup, stack: &mut Vec<u128>) -> Option<io::Result<Forked>> {
    stack.reserve_exact(STACK_BYTES / size_of::<u128>());
    let mut pidfd: RawFd = -1;
    let mut arguments = CloneArguments {
        stack: stack.as_mut_ptr().expose_provenance() as u64,
        stack_size: STACK_BYTES as u64,
        ..CloneArguments::new(&mut pidfd, &setup.attach)
    };
    arguments.flags |= CLONE_VM;
    let result: i64;
    // SAFETY: the kernel reads `arguments`, whose size it is told, and writes a descriptor to
    // `pidfd`, both before it returns. The child begins at the top of `stack`, which is aligned as the
    // ABI wants it and which nobody else uses; it never comes back from `run_child`. What it borrows
    // is kept by our caller until the child has left our memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") &raw mut arguments,
            in("rsi") size_of::<CloneArguments>(),
            in("r12") &raw const *setup,
            in("r13") run_child as extern "C" fn(*const ChildSetup) -> !,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    Some(match i32::try_from(result) {
        // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
        Ok(pid) if pid > 0 => Ok(Forked { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
        Ok(error) => Err(io::Error::from_raw_os_error(-error)),
        Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    })
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the other end of a pointer")]
extern "C" fn run_child(setup: *const ChildSetup) -> ! {
    // SAFETY: `clone_sharing_memory` passes it, and it is kept until the child no longer uses it.
    let setup = unsafe { &*setup };
    if let CgroupAttach::Tasks(files) = &setup.attach {
        write_zero(files);
    }
    setup.child.run()
}

/// Forks.
///
/// # Safety
///
/// Where the answer is [`Fork::Child`], only async-signal-safe system calls may follow, none of
/// libc's that concern all threads (`setuid` and its like), and the end must be exec or `_exit`.
#[allow(unsafe_code, reason = "a fork is nothing else")]
unsafe fn fork(attach: &CgroupAttach) -> io::Result<Fork> {
    let masked = BlockedSignals::new();
    // SAFETY: passed on to our caller.
    let forked = unsafe { fork_masked(attach) };
    if !matches!(forked, Ok(Fork::Child)) {
        // The child sets its own mask, after it has taken our handlers away.
        masked.restore();
    }
    forked
}

#[allow(unsafe_code, reason = "a fork is nothing else")]
unsafe fn fork_masked(attach: &CgroupAttach) -> io::Result<Fork> {
    // SAFETY: passed on to our caller.
    match unsafe { clone(attach) } {
        Err(error) if is_refused(&error) => {}
        Ok(Fork::Child) => {
            if let CgroupAttach::Tasks(files) = attach {
                write_zero(files);
            }
            return Ok(Fork::Child);
        }
        forked => return forked,
    }
    // An older kernel, a filter of system calls, or a cgroup that takes nobody in.
    // SAFETY: our caller accepts the rules for what follows in the child.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        match attach {
            CgroupAttach::Nowhere => {}
            CgroupAttach::Into { procs, .. } => write_zero(std::slice::from_ref(procs)),
            CgroupAttach::Tasks(files) => write_zero(files),
        }
        return Ok(Fork::Child);
    }
    let opened = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH);
    match opened.and_then(|child| pidfd_open(child, PidfdFlags::empty())) {
        Ok(pidfd) => Ok(Fork::Parent(Forked { pid, pidfd })),
        Err(errno) => {
            // Not to be watched, so not to be left running. The pid is its own until we wait.
            // SAFETY: both calls take numbers, and the status is not asked for.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
            Err(errno.into())
        }
    }
}

#[allow(unsafe_code, reason = "neither rustix nor nix can clone into a cgroup")]
unsafe fn clone(attach: &CgroupAttach) -> io::Result<Fork> {
    let mut pidfd: RawFd = -1;
    let mut arguments = CloneArguments::new(&mut pidfd, attach);
    // SAFETY: without CLONE_VM this is a fork: the child has a copy of this stack. The kernel reads
    // `arguments`, whose size it is told, and writes a descriptor to `pidfd`; both outlive the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<CloneArguments>()) };
    match i32::try_from(pid) {
        Ok(0) => Ok(Fork::Child),
        Ok(pid) if pid > 0 && pidfd >= 0 => {
            // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
            Ok(Fork::Parent(Forked { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }))
        }
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Everything except a lack of memory, processes or descriptors, which would affect any other fork too.
fn is_refused(error: &io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE))
}

/// Runs in the child. A failure is no reason not to start: without a cgroup it is tracked by descent.
#[allow(unsafe_code, reason = "only plain system calls may be made here")]
fn write_zero(files: &[File]) {
    for file in files {
        let descriptor = usize::try_from(file.as_raw_fd()).unwrap_or(usize::MAX);
        // SAFETY: one byte of a constant is read, and the descriptor is open.
        let _ = unsafe { syscall::call(libc::SYS_write, [descriptor, b"0".as_ptr().expose_provenance(), 1, 0]) };
    }
}

/// Blocks all signals of this thread.
struct BlockedSignals {
    before: libc::sigset_t,
}

#[allow(unsafe_code, reason = "neither rustix nor our features of nix have masks")]
impl BlockedSignals {
    fn new() -> Self {
        // SAFETY: a zeroed set is storage for sigfillset and pthread_sigmask, and outlives both.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }

    fn restore(self) {
        // SAFETY: `before` was filled by the kernel and outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Whether children can be created inside a cgroup; they exit at once.
pub(crate) fn try_attach(attach: &CgroupAttach, is_inside: impl Fn(i32) -> bool) -> io::Result<bool> {
    let (reader, writer) = io::pipe()?;
    #[allow(unsafe_code, reason = "see fork")]
    // SAFETY: the child only closes, reads and exits.
    let forked = unsafe { fork(attach) }?;
    let Fork::Parent(Forked { pid, pidfd }) = forked else {
        let mut byte = 0_u8;
        #[allow(unsafe_code, reason = "only plain system calls may be made here")]
        // SAFETY: plain system calls; `byte` is storage for the one byte that is asked for.
        unsafe {
            libc::close(writer.as_raw_fd());
            libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::_exit(0)
        }
    };
    // It writes to its cgroup, where it does, before it waits for us; both ends of that are short.
    let is_in = (0..TRIES).any(|_| is_inside(pid) || !pause());
    drop(writer);
    let _ = crate::pidfd::reap_at_end(&pidfd);
    Ok(is_in)
}

const TRIES: usize = 50;

/// Waits a little; always true.
fn pause() -> bool {
    let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 });
    true
}
