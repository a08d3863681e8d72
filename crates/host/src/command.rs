//! Running one command line to its end, or to the end of its time.
//!
//! Promised: the answer comes soon after the shell has exited or its time is over, whatever the
//! shell leaves behind; after a timeout nothing of the command's tree and session runs; a command
//! under reins is known to its caller before it does anything. Absent:
//! an end of the command when nobody waits any more. Dropped, this leaves the command alone: it
//! belongs to the host, not to the agent's life.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proctor_model::{BootId, CommandEnd, CommandResult, Exit, Incarnation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::blocking::Blocking;
use crate::cgroup::{Groups, Leaf};
use crate::fork::{Attach, Forked};
use crate::output::{Capture, OutputDirectory};
use crate::pidfd;
use crate::procfs::Stat;
use crate::reaper::{CHILDREN, Shell};
use crate::spawn::{self, Plan};
use crate::tree::{self, Member, Scope};
use crate::user::{self, Account};

const PREPARE_LIMIT: Duration = Duration::from_secs(10);
const TRIM_PERIOD: Duration = Duration::from_millis(200);
/// How long a killed shell may take to end; in uninterruptible sleep it takes for ever.
const DEATH_LIMIT: Duration = Duration::from_secs(5);
/// More than any op_timeout, and small enough to be added to any time.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A line for `/bin/sh -c`, and how it is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    pub line: String,
    pub user: String,
    pub directory: PathBuf,
    pub timeout: Duration,
    /// Added to the login-like environment.
    pub environment: Vec<(String, String)>,
    /// File stem of its capture: one per process and kind of command.
    pub output_name: String,
    /// Where what it starts is kept together, also what leaves its tree. Without a cgroup, or where
    /// it cannot be entered, the command runs all the same.
    pub leaf: Option<Leaf>,
}

/// How a caller holds a command that must be known before it runs.
#[derive(Debug)]
pub struct Reins {
    /// Hears who the command is, while it does nothing yet.
    pub begun: oneshot::Sender<Incarnation>,
    /// Lets it run. Dropped on the other side, the command never does.
    pub proceed: oneshot::Receiver<()>,
    /// Ends it with its tree and session.
    pub end: oneshot::Receiver<()>,
}

/// What the host gives to its commands.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) boot: BootId,
    pub(crate) blocking: Blocking,
    pub(crate) outputs: OutputDirectory,
    pub(crate) groups: Option<Arc<Groups>>,
}

pub(crate) async fn run(ground: &Ground, command: Command, reins: Option<Reins>) -> CommandEnd {
    let deadline = Instant::now() + command.timeout.min(TIMEOUT_MAX);
    let (hold, end) = match reins {
        Some(Reins { begun, proceed, end }) => (Some((begun, proceed)), Some(end)),
        None => (None, None),
    };
    let running = match start(ground, command, hold, deadline).await {
        Ok(running) => running,
        Err(result) => return CommandEnd { result, output: String::new() },
    };
    running.wait(deadline, end).await
}

/// Waits for the end of a command that another agent started, as [`run`] does for its own.
pub(crate) async fn rejoin(
    ended: impl Future<Output = Option<Exit>>,
    command: &Incarnation,
    time: Duration,
    end: oneshot::Receiver<()>,
) -> CommandEnd {
    tokio::pin!(ended);
    let result = tokio::select! {
        biased;
        exit = &mut ended => exit.map_or(CommandResult::Lost, CommandResult::Exited),
        () = wanted(Some(end)) => CommandResult::Cancelled,
        () = tokio::time::sleep(time.min(TIMEOUT_MAX)) => CommandResult::TimedOut,
    };
    if matches!(result, CommandResult::TimedOut | CommandResult::Cancelled) {
        let shell = Member { pid: command.pid, start_ticks: command.start_ticks };
        let _ = tokio::task::spawn_blocking(move || kill(shell)).await;
        if timeout(DEATH_LIMIT, ended).await.is_err() {
            tracing::warn!(pid = command.pid, "a command is still there after SIGKILL");
        }
    }
    CommandEnd { result, output: String::new() }
}

/// Resolves when somebody asks for it; an asker that is gone never will.
async fn wanted(end: Option<oneshot::Receiver<()>>) {
    let asked = match end {
        Some(end) => end.await.is_ok(),
        None => false,
    };
    if !asked {
        std::future::pending().await
    }
}

/// Who hears of a command, and who lets it go.
type Hold = (oneshot::Sender<Incarnation>, oneshot::Receiver<()>);

async fn start(
    ground: &Ground,
    command: Command,
    hold: Option<Hold>,
    deadline: Instant,
) -> Result<Running, CommandResult> {
    let (user, directory) = (command.user.clone(), command.directory.clone());
    let silent = format!("user '{user}' or setup_path {} did not answer", directory.display());
    let name = format!("{user} in {}", directory.display());
    let limit = PREPARE_LIMIT.min(command.timeout);
    let (ours, theirs) = match hold.map(|hold| UnixStream::pair().map(|pair| (hold, pair))).transpose() {
        Ok(Some((hold, (ours, theirs)))) => (Some((hold, ours)), Some(theirs)),
        Ok(None) => (None, None),
        Err(error) => return Err(CommandResult::NotRun(format!("the command cannot be run: {error}"))),
    };
    let held = async {
        if let Some((hold, ours)) = ours {
            let _ = let_go(&ground.boot, hold, ours).await;
        }
    };
    // Until exec the child may hang (its directory may), and with it the thread that waits for it.
    // Who comes second to `passed`, the spawn or its deadline, has to kill it.
    let passed = Arc::new(AtomicBool::new(false));
    let spawn = {
        let (ground, passed) = (ground.clone(), Arc::clone(&passed));
        move |account: Result<Account, String>| {
            let running = Running::spawn(&ground, &command, &account?, theirs)?;
            if passed.swap(true, Ordering::SeqCst) {
                kill(running.shell);
            }
            Ok(running)
        }
    };
    // On one thread: a restart waits for the scheduler at every change of threads.
    let spawning = ground.blocking.run_then(&name, limit, move || prepare(&user, &directory), spawn).await;
    let Ok(mut following) = spawning else { return Err(CommandResult::NotRun(silent)) };
    let spawned = match timeout_at(deadline, async { tokio::join!(&mut following.work, held).0 }).await {
        Ok(spawned) => spawned,
        // It is there after all; who waits for it finds its time over.
        Err(_) if passed.swap(true, Ordering::SeqCst) => (&mut following.work).await,
        Err(_) => return Err(CommandResult::TimedOut),
    };
    match spawned {
        Ok(Some(Ok(running))) => Ok(running),
        Ok(Some(Err(reason))) => Err(CommandResult::NotRun(reason)),
        Ok(None) => Err(CommandResult::NotRun(silent)),
        Err(_) => Err(CommandResult::NotRun("the agent is ending".to_owned())),
    }
}

/// What can be found wrong before anything is started.
fn prepare(user: &str, directory: &Path) -> Result<Account, String> {
    let account = Account::find(user)?;
    let us = rustix::process::geteuid().as_raw();
    if us != 0 && us != account.uid {
        return Err(format!("the agent runs as {} and cannot run commands as user '{user}'", user::name(us)));
    }
    let shown = directory.display();
    match std::fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(account),
        Ok(_) => Err(format!("setup_path {shown} is not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!("setup_path {shown} does not exist")),
        Err(error) => Err(format!("setup_path {shown} cannot be entered: {error}")),
    }
}

struct Running {
    fd: OwnedFd,
    shell: Member,
    capture: Option<Capture>,
    /// Keeps the reaper away from the shell.
    _owned: Shell,
}

impl Running {
    fn spawn(ground: &Ground, command: &Command, account: &Account, hold: Option<UnixStream>) -> Result<Self, String> {
        let changes_user = rustix::process::geteuid().as_raw() != account.uid;
        let capture = ground.outputs.open(&command.output_name, changes_user.then_some(account.uid));
        let capture = match capture {
            Ok(capture) => Some(capture),
            Err(error) => {
                // A full disk must not keep anybody from stopping a process.
                tracing::warn!(%error, name = command.output_name, "a command runs without capture of its output");
                None
            }
        };
        let attach = match (&ground.groups, &command.leaf) {
            (Some(groups), Some(leaf)) => groups.attach(leaf),
            (None, _) | (_, None) => Attach::Nowhere,
        };
        let plan = Plan {
            line: &command.line,
            directory: &command.directory,
            account,
            changes_user,
            environment: &command.environment,
            output: capture.as_ref().map(Capture::file),
            attach,
        };

        let spawning = CHILDREN.spawning();
        let Forked { pid, pidfd } = spawn::spawn(&plan, hold)?;
        let owned = spawning.started(pid);
        // Nobody has waited for it, so what the pid means is still this child.
        match Stat::of(pid) {
            Ok(stat) => {
                let shell = Member { pid, start_ticks: stat.start_ticks };
                Ok(Self { fd: pidfd, shell, capture, _owned: owned })
            }
            Err(error) => {
                // Not to be waited for, so not to be left running.
                let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
                let _ = pidfd::reap_at_end(&pidfd);
                Err(format!("the command cannot be watched: {error}"))
            }
        }
    }

    async fn wait(self, deadline: Instant, end: Option<oneshot::Receiver<()>>) -> CommandEnd {
        let Self { fd, shell, mut capture, _owned } = self;
        let result = tokio::select! {
            biased;
            () = pidfd::ended(fd.as_fd()) => match pidfd::reap(fd.as_fd()) {
                Some(exit) => {
                    CHILDREN.remember(shell.pid, shell.start_ticks, exit);
                    CommandResult::Exited(exit)
                }
                None => CommandResult::NotRun("the end of the command was lost".to_owned()),
            },
            () = wanted(end) => CommandResult::Cancelled,
            () = tokio::time::sleep_until(deadline) => CommandResult::TimedOut,
            never = trim_for_ever(capture.as_mut()) => match never {},
        };
        if matches!(result, CommandResult::TimedOut | CommandResult::Cancelled) {
            let _ = tokio::task::spawn_blocking(move || kill(shell)).await;
            if timeout(DEATH_LIMIT, pidfd::ended(fd.as_fd())).await.is_ok() {
                let _ = pidfd::reap(fd.as_fd());
            }
        }
        let output = capture.as_ref().map_or_else(|| "(output was not captured)".to_owned(), Capture::text);
        CommandEnd { result, output }
    }
}

/// Tells who the held command is, and lets it go when its caller says so. Without a word it ends.
async fn let_go(boot: &BootId, (begun, proceed): Hold, held: UnixStream) -> Option<()> {
    held.set_nonblocking(true).ok()?;
    let mut held = tokio::net::UnixStream::from_std(held).ok()?;
    let pid = held.read_i32_le().await.ok()?;
    // Nobody has waited for it, so what the pid means is still this child.
    let process = pidfd::Process::open(pid).ok()?;
    begun.send(process.life(boot)).ok()?;
    proceed.await.ok()?;
    held.write_u8(1).await.ok()
}

/// Keeps the output of a running command bounded.
async fn trim_for_ever(mut capture: Option<&mut Capture>) -> Infallible {
    loop {
        tokio::time::sleep(TRIM_PERIOD).await;
        if let Some(capture) = &mut capture {
            capture.trim();
        }
    }
}

fn kill(shell: Member) {
    if let Err(error) = tree::kill(shell, Scope::TreeAndSession, Vec::new) {
        tracing::warn!(%error, pid = shell.pid, "a command cannot be killed");
    }
}
