//! Runs one command line until it exits or times out.
//!
//! Promised: the result comes soon after the shell has exited or timed out, whatever the shell leaves behind; after a
//! timeout nothing of the command's tree and session is running; a held command is known to its caller before it does
//! anything, and is ended on request at any stage; other known processes that it started are spared.
//! Absent: killing the command when nobody waits for it any more. Dropping this leaves the command alone: it belongs
//! to the host, not to the agent's life.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proctor_model::{BootId, CommandExit, CommandResult, Exit, Incarnation};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::blocking::Blocking;
use crate::cgroup::{Groups, Leaf};
use crate::fork::{CgroupAttach, Forked};
use crate::killer::{self, Killer};
use crate::leftovers;
use crate::output::{self, Capture, OutputDirectory};
use crate::pidfd;
use crate::procfs::Stat;
use crate::reaper::{CHILDREN, Shell};
use crate::release::HeldCommand;
use crate::rights;
use crate::spawn::{SpawnPlan, SpawnedChild, Spawner};
use crate::tree::ProcessRef;
use crate::user::{self, Account, AccountCache};
use crate::wall_clock;

const PREPARE_LIMIT: Duration = Duration::from_secs(10);
/// How long killing a command with its tree may wait behind other kills.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// The same for a kill outside the queue, when there may be no thread for it.
const KILL_AT_ONCE_LIMIT: Duration = Duration::from_secs(5);
/// How long a killed shell may take to exit; in uninterruptible sleep it takes forever.
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
    /// Keeps what it starts together, including what leaves its tree. Without a cgroup, or if it cannot be entered,
    /// the command runs anyway.
    pub leaf: Option<Leaf>,
}

/// How a caller holds a command that must be known before it runs.
#[derive(Debug)]
pub struct CommandHold {
    /// Gets the command's identity while it does nothing yet.
    pub begun: oneshot::Sender<Incarnation>,
    /// Releases it. If the other side is dropped, the command never runs.
    pub held: HeldCommand,
    /// Kills it with its tree and session.
    pub end: oneshot::Receiver<()>,
}

/// What the host gives to its commands.
#[derive(Clone, Debug)]
pub(crate) struct CommandContext {
    pub(crate) boot: BootId,
    pub(crate) killer: Killer,
    /// Distinguishes what this agent started from what others did.
    pub(crate) mark: String,
    pub(crate) blocking: Blocking,
    pub(crate) accounts: AccountCache,
    pub(crate) outputs: OutputDirectory,
    pub(crate) groups: Option<Arc<Groups>>,
    pub(crate) spawner: Spawner,
}

/// The second value is when the shell was last known to hold its pid, in time since boot: read before it was reaped.
pub(crate) async fn run(
    context: &CommandContext,
    command: Command,
    hold: Option<CommandHold>,
) -> (CommandExit, Option<Duration>) {
    let deadline = Instant::now() + command.timeout.min(TIMEOUT_MAX);
    let (hold, mut end) = match hold {
        Some(CommandHold { begun, held, end }) => (Some((begun, held)), Some(end)),
        None => (None, None),
    };
    let running = match start(context, command, hold, deadline, &mut end).await {
        Ok(running) => running,
        Err(result) => return (CommandExit { result, output: String::new() }, None),
    };
    running.wait(deadline, &mut end).await
}

/// Waits for the exit of a command that another agent started, as [`run`] does for its own.
pub(crate) async fn rejoin(
    killer: &Killer,
    ended: impl Future<Output = Option<Exit>>,
    command: &Incarnation,
    leaf: &Leaf,
    time: Duration,
    end: oneshot::Receiver<()>,
) -> CommandExit {
    tokio::pin!(ended);
    let mut end = Some(end);
    let result = tokio::select! {
        biased;
        exit = &mut ended => exit.map_or(CommandResult::ExitUnknown, CommandResult::Exited),
        () = wanted(&mut end) => CommandResult::Cancelled,
        () = tokio::time::sleep(time.min(TIMEOUT_MAX)) => CommandResult::TimedOut,
    };
    if matches!(result, CommandResult::TimedOut | CommandResult::Cancelled) {
        kill(killer, ProcessRef::of(command), Some(leaf)).await;
        if timeout(DEATH_LIMIT, ended).await.is_err() {
            tracing::warn!(pid = command.pid, "command survived SIGKILL");
        }
    }
    CommandExit { result, output: String::new() }
}

/// Resolves when somebody requests it; if the requester is gone, never. Cancel-safe.
async fn wanted(end: &mut Option<oneshot::Receiver<()>>) {
    let asked = match end {
        Some(end) => end.await.is_ok(),
        None => false,
    };
    *end = None; // it says nothing more
    if !asked {
        std::future::pending().await
    }
}

/// Who is notified of a command, and who releases it.
type Hold = (oneshot::Sender<Incarnation>, HeldCommand);

async fn start(
    context: &CommandContext,
    command: Command,
    hold: Option<Hold>,
    deadline: Instant,
    end: &mut Option<oneshot::Receiver<()>>,
) -> Result<Running, CommandResult> {
    let account = tokio::select! {
        biased;
        () = wanted(end) => return Err(CommandResult::Cancelled),
        account = account(context, &command) => account?,
    };
    let lacking = |error: std::io::Error| CommandResult::NotStarted(format!("the command cannot be run: {error}"));
    let pair = hold.as_ref().map(|_| UnixStream::pair()).transpose().map_err(lacking)?;
    let (ours, theirs) = pair.unzip();
    let (running, child) = Running::spawn(context, &command, &account, theirs).map_err(CommandResult::NotStarted)?;
    if let Some(((begun, held), ours)) = hold.zip(ours) {
        held.hold(ours);
        let _ = begun.send(running.life(&context.boot));
    }
    // Until its exec the child may hang, because its directory may.
    let result = tokio::select! {
        biased;
        () = wanted(end) => CommandResult::Cancelled,
        executed = child.wait_for_exec() => match executed {
            Ok(()) => return Ok(running),
            Err(reason) => {
                running.reap().await; // it has ended, or is about to
                return Err(CommandResult::NotStarted(reason));
            }
        },
        () = tokio::time::sleep_until(deadline) => CommandResult::TimedOut,
    };
    running.kill().await;
    Err(result)
}

/// The account that the command runs as, if it can run at all. If that is not cached it is looked up on a thread,
/// because the name service and the directory's file system may hang.
async fn account(context: &CommandContext, command: &Command) -> Result<Arc<Account>, CommandResult> {
    let (user, directory) = (&command.user, &command.directory);
    if let Some(account) = context.accounts.known(user).filter(|_| is_cached_directory(directory)) {
        return Ok(account);
    }
    let work = {
        let (user, directory) = (user.clone(), directory.clone());
        move || prepare(&user, &directory)
    };
    let name = format!("{user} in {}", directory.display());
    let not_run = CommandResult::NotStarted;
    match context.blocking.run(&name, PREPARE_LIMIT.min(command.timeout), work).await {
        Ok(account) => Ok(context.accounts.keep(user, account.map_err(not_run)?)),
        Err(_) => Err(not_run(format!("user '{user}' or setup_path {} did not answer", directory.display()))),
    }
}

/// Whether it is a directory, as far as the kernel knows without asking its file system.
fn is_cached_directory(path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED).is_ok()
}

/// What can be found wrong before anything is started.
fn prepare(user: &str, directory: &Path) -> Result<Account, String> {
    let account = Account::find(user)?;
    user::check_can_become(account.uid, user, "run commands")?;
    let shown = directory.display();
    // Whoever named it learns no more about it than the user could see.
    match rights::as_account(&account, || std::fs::metadata(directory)).flatten() {
        Ok(metadata) if metadata.is_dir() => Ok(account),
        Ok(_) => Err(format!("setup_path {shown} is not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!("setup_path {shown} does not exist")),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(format!("user '{user}' may not enter setup_path {shown}"))
        }
        Err(error) => Err(format!("setup_path {shown} cannot be entered: {error}")),
    }
}

struct Running {
    fd: OwnedFd,
    shell: ProcessRef,
    killer: Killer,
    leaf: Option<Leaf>,
    capture: Option<Capture>,
    /// Keeps the reaper away from the shell.
    _owned: Shell,
}

impl Running {
    fn spawn(
        context: &CommandContext,
        command: &Command,
        account: &Account,
        hold: Option<UnixStream>,
    ) -> Result<(Self, SpawnedChild), String> {
        let changes_user = rustix::process::geteuid().as_raw() != account.uid;
        let capture = context.outputs.open(&command.output_name, changes_user.then_some(account.uid));
        let capture = match capture {
            Ok(capture) => Some(capture),
            Err(error) => {
                // A full disk must not keep anybody from stopping a process.
                tracing::warn!(%error, name = command.output_name, "command runs without output capture");
                None
            }
        };
        let attach = match (&context.groups, &command.leaf) {
            (Some(groups), Some(leaf)) => groups.attach(leaf),
            (None, _) | (_, None) => CgroupAttach::Nowhere,
        };
        let mut environment = command.environment.clone();
        if let Some(leaf) = &command.leaf {
            environment.push((leftovers::MARK.to_owned(), leftovers::mark(&context.mark, leaf)));
            environment.push((leftovers::LAUNCH.to_owned(), leftovers::launch_now()));
        }
        let plan = SpawnPlan {
            line: &command.line,
            directory: &command.directory,
            account,
            changes_user,
            environment: &environment,
            output: capture.as_ref().map(Capture::file),
            attach,
        };

        let spawning = CHILDREN.spawning();
        let (Forked { pid, pidfd }, child) = context.spawner.spawn(plan, hold)?;
        let owned = spawning.started(pid);
        // Nobody has waited for it, so the pid still refers to this child.
        match Stat::of(pid) {
            Ok(stat) => {
                let shell = ProcessRef { pid, start_ticks: stat.start_ticks };
                Ok((
                    Self {
                        fd: pidfd,
                        shell,
                        killer: context.killer.clone(),
                        leaf: command.leaf.clone(),
                        capture,
                        _owned: owned,
                    },
                    child,
                ))
            }
            Err(error) => {
                // It cannot be waited for, so it must not be left running. The reaper collects it.
                let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL);
                Err(format!("the command cannot be watched: {error}"))
            }
        }
    }

    fn life(&self, boot: &BootId) -> Incarnation {
        pidfd::life(self.shell, self.fd.as_fd(), boot)
    }

    async fn kill(&self) {
        kill(&self.killer, self.shell, self.leaf.as_ref()).await;
        self.reap().await;
    }

    async fn reap(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.fd, rustix::process::Signal::KILL);
        if timeout(DEATH_LIMIT, pidfd::ended(self.fd.as_fd())).await.is_ok() {
            let _ = pidfd::reap(self.fd.as_fd());
        }
    }

    async fn wait(
        mut self,
        deadline: Instant,
        end: &mut Option<oneshot::Receiver<()>>,
    ) -> (CommandExit, Option<Duration>) {
        let result = tokio::select! {
            biased;
            () = pidfd::ended(self.fd.as_fd()) => None,
            () = wanted(end) => Some(CommandResult::Cancelled),
            () = tokio::time::sleep_until(deadline) => Some(CommandResult::TimedOut),
            never = trim_for_ever(self.capture.as_mut()) => match never {},
        };
        // Nobody has reaped it yet: the pid is its own.
        let alive_at = wall_clock::since_boot();
        let (result, is_ours) = match result {
            None => match pidfd::reap(self.fd.as_fd()) {
                Some(exit) => {
                    CHILDREN.remember(self.shell.pid, self.shell.start_ticks, exit);
                    (CommandResult::Exited(exit), true)
                }
                None => (CommandResult::ExitUnknown, false), // somebody else has waited for it
            },
            Some(killed) => {
                self.kill().await;
                (killed, true)
            }
        };
        let output = self.capture.take().map_or_else(|| "(output was not captured)".to_owned(), Capture::into_text);
        (CommandExit { result, output }, is_ours.then_some(alive_at))
    }
}

/// Keeps the output of a running command bounded.
async fn trim_for_ever(mut capture: Option<&mut Capture>) -> Infallible {
    let Some(capture) = &mut capture else { return std::future::pending().await };
    let mut pause = output::PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        pause = capture.trim();
    }
}

async fn kill(killer: &Killer, shell: ProcessRef, leaf: Option<&Leaf>) {
    match timeout(KILL_LIMIT, killer.kill(killer.session_of(shell, leaf))).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, pid = shell.pid, "cannot kill command"),
        Err(_) => {
            tracing::warn!(pid = shell.pid, "tree kill is stuck, killing the command without freezing it");
            if timeout(KILL_AT_ONCE_LIMIT, killer.kill_at_once(killer.session_of(shell, leaf))).await.is_err() {
                tracing::warn!(pid = shell.pid, "cannot kill the command's process tree, killing its shell only");
            }
        }
    }
    // Even if nothing could be listed.
    let _ = killer::signal(shell, rustix::process::Signal::KILL);
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_command_is_killed_with_its_tree_also_while_kills_are_stuck() {
        let mut child = std::process::Command::new("/bin/sh");
        child.args(["-c", "setsid sleep 1000 & echo $!; sleep 1000 & echo $!; wait"]);
        let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap().parse::<i32>().unwrap();
        let others = [next(), next()];
        while Stat::of(others[0]).unwrap().session != others[0] {
            std::thread::yield_now();
        }
        let pid = i32::try_from(child.id()).unwrap();
        let shell = ProcessRef { pid, start_ticks: Stat::of(pid).unwrap().start_ticks };

        kill(&Killer::stuck(), shell, None).await;

        let exit = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&exit), Some(libc::SIGKILL));
        let begun = std::time::Instant::now();
        while others.iter().any(|pid| Stat::of(*pid).is_ok_and(|stat| !stat.is_dead())) {
            assert!(begun.elapsed() < Duration::from_secs(60), "something of the command lives on");
            std::thread::yield_now();
        }
    }
}
