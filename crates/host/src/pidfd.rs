//! One process behind a pidfd: opened first, verified afterwards.
//!
//! Promised: no operation ever uses a bare pid; a signal goes through a descriptor whose process was compared with
//! the wanted life after the descriptor was opened, so that a reused pid is never hit.
//! Absent: knowledge of pid files and names, see [`crate::probe`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use proctor_model::{BootId, Exit, Incarnation};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{fstat, fstatfs};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::procfs::{Stat, is_lack};
use crate::tree::ProcessRef;

/// File system type of pidfds since Linux 6.9, where an inode belongs to one process only.
const PIDFS_MAGIC: u64 = 0x5049_4446;
/// How often an exit is polled if it cannot be waited for.
const POLL_PERIOD: Duration = Duration::from_millis(100);
/// How long a foreign parent gets to collect the exit status of its child.
const FOREIGN_REAP_TRIES: u32 = 10;
const FOREIGN_REAP_PERIOD: Duration = Duration::from_millis(20);

/// Why a pid could not be opened.
#[derive(Debug)]
pub(crate) enum Refused {
    Gone,
    /// The number is that of a thread.
    Thread,
    Failed(io::Error),
}

#[derive(Debug)]
pub(crate) struct Process {
    fd: OwnedFd,
    pid: i32,
    pub(crate) stat: Stat,
}

impl Process {
    pub(crate) fn open(pid: i32) -> Result<Self, Refused> {
        let checked = Pid::from_raw(pid).filter(|_| pid > 0).ok_or(Refused::Gone)?;
        let fd = pidfd_open(checked, PidfdFlags::empty()).map_err(|errno| match errno {
            rustix::io::Errno::SRCH => Refused::Gone,
            // The number of a thread that leads no process; which of the two depends on the kernel.
            rustix::io::Errno::INVAL | rustix::io::Errno::NOENT => Refused::Thread,
            other => Refused::Failed(other.into()),
        })?;
        // Only what is read now belongs to the process behind the descriptor; and only if that has
        // not ended, else the pid may be another's already.
        let mut stat = read_stat(pid)?;
        if !stat.is_dead() && has_ended(fd.as_fd()) {
            // It ended just now and is a zombie, or it did long ago and the pid is another's.
            let alive = stat;
            stat = read_stat(pid)?;
            if !stat.is_dead() || stat.start_ticks != alive.start_ticks {
                return Err(Refused::Gone);
            }
        }
        Ok(Self { fd, pid, stat })
    }

    /// The process of that life, which may be a zombie. None: that life is over, or never existed here.
    pub(crate) fn of(life: &Incarnation, boot: &BootId) -> Result<Option<Self>, io::Error> {
        if life.boot != *boot {
            return Ok(None);
        }
        match Self::open(life.pid) {
            Ok(process) => Ok(Some(process).filter(|process| process.life(boot) == *life)),
            Err(Refused::Gone | Refused::Thread) => Ok(None),
            Err(Refused::Failed(source)) => Err(source),
        }
    }

    pub(crate) fn life(&self, boot: &BootId) -> Incarnation {
        life(ProcessRef { pid: self.pid, start_ticks: self.stat.start_ticks }, self.fd.as_fd(), boot)
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.stat.is_dead() && !has_ended(self.fd.as_fd())
    }

    /// False: gone.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<bool> {
        if !self.is_alive() {
            return Ok(false);
        }
        match rustix::process::pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

fn read_stat(pid: i32) -> Result<Stat, Refused> {
    Stat::of(pid).map_err(|error| if is_lack(&error) { Refused::Failed(error) } else { Refused::Gone })
}

/// The life of the process behind a pidfd, whose start time is known.
pub(crate) fn life(child: ProcessRef, fd: BorrowedFd<'_>, boot: &BootId) -> Incarnation {
    Incarnation { boot: boot.clone(), pid: child.pid, start_ticks: child.start_ticks, pidfd_inode: inode(fd) }
}

fn inode(fd: BorrowedFd<'_>) -> Option<u64> {
    let kind = fstatfs(fd).ok()?.f_type;
    (u64::try_from(kind).ok()? == PIDFS_MAGIC).then(|| fstat(fd).ok().map(|stat| stat.st_ino)).flatten()
}

pub(crate) fn has_ended(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(count) if count > 0)
}

/// Resolves when the process behind the pidfd has ended. Cancel-safe.
pub(crate) async fn ended(fd: BorrowedFd<'_>) {
    #[allow(unsafe_code, reason = "tokio leaves it to us that the descriptor stays open")]
    // SAFETY: `fd` is borrowed for longer than the registration lives, so that it stays open and
    // stays the same descriptor until the registration is dropped at the end of this function.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    let Ok(registered) = registered else {
        // No more room in epoll: polling is worse, but not wrong.
        while !has_ended(fd) {
            tokio::time::sleep(POLL_PERIOD).await;
        }
        return;
    };
    while !has_ended(fd) {
        match registered.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => tokio::time::sleep(POLL_PERIOD).await,
        }
    }
}

/// Collects the exit status of a child, which then is no longer a zombie. None: not our child.
pub(crate) fn reap(fd: BorrowedFd<'_>) -> Option<Exit> {
    loop {
        match waitid(WaitId::PidFd(fd), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(status) => return status.and_then(|status| exit_of(&status)),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Waits for a child that is about to end. None: not our child.
pub(crate) fn reap_at_end(fd: &OwnedFd) -> Option<Exit> {
    loop {
        match waitid(WaitId::PidFd(fd.as_fd()), WaitIdOptions::EXITED) {
            Ok(status) => return status.and_then(|status| exit_of(&status)),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

pub(crate) fn exit_of(status: &WaitIdStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// How an exited process that is not our child ended, if the kernel (6.15) tells.
pub(crate) async fn foreign_exit(fd: BorrowedFd<'_>) -> Option<Exit> {
    // The kernel knows only once the parent has collected it.
    for _ in 0..FOREIGN_REAP_TRIES {
        match recorded_exit(fd) {
            Ok(Some(exit)) => return Some(exit),
            Ok(None) => tokio::time::sleep(FOREIGN_REAP_PERIOD).await,
            Err(_) => return None,
        }
    }
    None
}

fn recorded_exit(fd: BorrowedFd<'_>) -> io::Result<Option<Exit>> {
    #[allow(unsafe_code, reason = "neither rustix nor nix has this ioctl")]
    // SAFETY: pidfd_info is a C struct of integers, for which zeroes are a value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = u64::from(libc::PIDFD_INFO_EXIT);
    #[allow(unsafe_code, reason = "neither rustix nor nix has this ioctl")]
    // SAFETY: the request carries the size of `info`, so the kernel writes no more than that, and
    // `info` outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    if result != 0 {
        let error = io::Error::last_os_error();
        // The process is gone for wait() but its record is not written yet.
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(None) } else { Err(error) };
    }
    if info.mask & u64::from(libc::PIDFD_INFO_EXIT) == 0 {
        return Ok(None);
    }
    let status = info.exit_code;
    Ok(if libc::WIFEXITED(status) {
        Some(Exit::Code(libc::WEXITSTATUS(status)))
    } else if libc::WIFSIGNALED(status) {
        Some(Exit::Signal(libc::WTERMSIG(status)))
    } else {
        None
    })
}
