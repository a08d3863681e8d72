//! The trial of a new program: the old one stays and watches.
//!
//! Promised: the agent's process is the same before, during and after an upgrade, so that whatever started it
//! (systemd, or nothing) does not notice, and its children stay its children. The new program runs as a child and
//! does everything an agent does; it gets the name of the old one only after it has proved itself, so that a power
//! failure, or a complete crash, at any earlier moment leaves the old one installed. A new program that exits, hangs,
//! cannot keep a session, or does not exit cleanly when asked is killed, and the old one continues on its own. The
//! new program never outlives the old one that watches it. Stopping the agent works at any moment: nothing is started
//! after that.
//! Absent: what an agent does; during a trial the old one does none of it. The new program's interaction with systemd
//! (readiness and watchdog) is not tested; the server watches the hosts of a ring before it begins the next one.
//!
//! Start at [`Trial::begin`], in the agent that has ended: it becomes the watcher, so that no thread of the agent,
//! and nothing it has open, is left while another one works. The watcher continues in [`Trial::run`].

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use proctor_model::{Message, UpgradeStep, messages};
use proctor_runtime::systemd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::program::Program;
use super::record::{Record, Records, Sign};

/// The new program has this variable during its trial; its value is the id of the upgrade.
pub(crate) const TRIAL_VARIABLE: &str = "PROCTOR_UPGRADE_TRIAL";
/// The subcommand by which the old program starts the new one; only for the old one.
pub const TRIAL_COMMAND: &str = "upgrade-trial";
/// The subcommand that watches a trial; only for this very program.
pub const WATCH_COMMAND: &str = "upgrade-watch";
/// Until the driver of the new program turns nothing on this host is supervised.
const STARTED_MAX: Duration = Duration::from_secs(15);
/// How long the driver of the new program may stall after that. Its watchers check it every ten seconds.
const PULSE_MAX: Duration = Duration::from_secs(30);
/// An agent that is asked to exit does so within this time, or is killed.
const END_MAX: Duration = Duration::from_secs(15);
/// Stopping a service may stop the new program a moment before the old one.
const STOP_MAX: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(50);
const REAP_PERIOD: Duration = Duration::from_secs(1);
const WATCHDOG_PERIOD: Duration = Duration::from_secs(10);

/// How a program of the agent is started.
#[derive(Clone, Copy)]
pub struct Startup<'a> {
    /// With the name of the program.
    pub arguments: &'a [OsString],
    /// What to log.
    pub log: &'a str,
    /// Flushes the log: the process is about to exec another program.
    pub flush: &'a dyn Fn(),
}

impl std::fmt::Debug for Startup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // An argument may be a join token.
        f.debug_struct("Startup").field("arguments", &self.arguments.len()).finish_non_exhaustive()
    }
}

/// A new program that is ready to be tried; the agent has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Trial {
    pub(crate) records: Records,
    pub(crate) record: Record,
    pub(crate) program: Program,
}

/// The result of a trial.
enum Verdict {
    Proved,
    Failed(Message),
    /// Somebody stopped the agent meanwhile.
    Stopped,
}

/// The upgrade that this program is on trial for, if it is.
pub(crate) fn upgrade_on_trial() -> Option<Uuid> {
    std::env::var(TRIAL_VARIABLE).ok()?.parse().ok()
}

/// The first word of [`TRIAL_COMMAND`]: becomes the new program, which dies with the process that watches it. Returns
/// only on failure.
pub fn become_trial(arguments: &[OsString]) -> ExitCode {
    let [parent, program, name, rest @ ..] = arguments else { return ExitCode::from(2) };
    let kill = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let is_child = rustix::process::getppid().is_some_and(|pid| *parent == *pid.as_raw_nonzero().to_string());
    if kill.is_err() || !is_child {
        return ExitCode::FAILURE; // who watches is gone already
    }
    let error = Command::new(program).arg0(name).args(rest).exec();
    // `eprintln!` would panic if nobody reads any more, and the exit code would be wrong.
    let _ = writeln!(std::io::stderr(), "proctor-agent: cannot run the new program: {error}");
    ExitCode::from(NOT_RUN)
}

const NOT_RUN: u8 = 126;

impl Trial {
    /// The version that is tried.
    pub fn version(&self) -> &str {
        &self.record.version
    }

    /// Becomes the program that watches the trial; whatever of the agent still runs ends with that, as in a crash.
    /// Returns only if somebody stopped the agent, or nothing can be started any more.
    pub async fn begin(self, startup: Startup<'_>, stop: &CancellationToken) -> Result<(), String> {
        if is_stopped_at_last(stop).await {
            self.wait_for_next_start();
            return Ok(());
        }
        let error = become_program(&self.program.again(), &self.watch_arguments(startup), startup.flush);
        Err(self.go_back(&messages::upgrade_not_started(error), startup))
    }

    fn watch_arguments(&self, Startup { arguments, log, .. }: Startup<'_>) -> Vec<OsString> {
        let name = arguments.first().cloned().unwrap_or_else(|| self.program.path().into());
        let (state_dir, program) = (self.records.dir().into(), self.program.path().into());
        let ours = [name, WATCH_COMMAND.into(), state_dir, program, self.record.to_json().into(), log.into()];
        ours.into_iter().chain(arguments.iter().cloned()).collect()
    }

    /// What follows [`WATCH_COMMAND`]: the trial, what to log, and the arguments of the agent.
    pub fn of_arguments(words: &[OsString]) -> Option<(Self, &str, &[OsString])> {
        let [state_dir, program, record, log, arguments @ ..] = words else { return None };
        let record = Record::of_json(record.to_str()?).ok()?;
        let (records, program) = (Records::new(state_dir.as_ref()), Program::at(program.into()));
        Some((Self { records, record, program }, log.to_str()?, arguments))
    }

    /// Tries the new program and becomes it, or the old one again. Returns only if somebody stopped the agent, or
    /// nothing can be started any more. Must be on the main thread, whose end the new program does not survive.
    pub async fn run(self, startup: Startup<'_>, stop: &CancellationToken) -> Result<(), String> {
        if let Err(error) = self.records.clear_heartbeats() {
            return Err(self.go_back(&messages::upgrade_not_started(error), startup));
        }
        let mut child = match self.start(startup.arguments) {
            Ok(child) => child,
            Err(error) => return Err(self.go_back(&messages::upgrade_not_started(error), startup)),
        };
        tracing::info!(version = self.record.version, pid = child.id(), "trial of new version started");
        match self.judge(&mut child, stop).await {
            Verdict::Proved => Err(self.go_on(startup)),
            Verdict::Failed(reason) => Err(self.go_back(&reason, startup)),
            Verdict::Stopped => {
                self.wait_for_next_start();
                Ok(())
            }
        }
    }

    /// What comes of the trial; the child has ended then.
    async fn judge(&self, child: &mut Child, stop: &CancellationToken) -> Verdict {
        let watched = tokio::select! {
            biased;
            () = stop.cancelled() => Verdict::Stopped,
            verdict = self.watch(child) => verdict,
        };
        let verdict = match watched {
            Verdict::Proved => match end(child).await {
                Some(status) if status.success() => Verdict::Proved,
                Some(status) => Verdict::Failed(messages::upgrade_ended(how(status))),
                None => Verdict::Failed(messages::upgrade_ended("it did not end when it was asked to")),
            },
            Verdict::Failed(reason) => {
                kill(child);
                Verdict::Failed(reason)
            }
            Verdict::Stopped => {
                systemd::notify("STOPPING=1");
                end(child).await;
                Verdict::Stopped
            }
        };
        if is_stopped_at_last(stop).await { Verdict::Stopped } else { verdict }
    }

    /// The server orders it again; an interrupted trial says nothing about the new program.
    fn wait_for_next_start(&self) {
        systemd::notify("STOPPING=1");
        let trials = self.record.trials.saturating_sub(1);
        self.save(&Record { step: UpgradeStep::Fetching, trials, ..self.record.clone() });
    }

    fn start(&self, arguments: &[OsString]) -> std::io::Result<Child> {
        let name = arguments.first().cloned().unwrap_or_else(|| self.program.path().into());
        Command::new("/proc/self/exe")
            .arg(TRIAL_COMMAND)
            .arg(std::process::id().to_string())
            .arg(self.program.staged())
            .arg(name)
            .args(arguments.get(1..).unwrap_or_default())
            .env(TRIAL_VARIABLE, self.record.upgrade.to_string())
            // It is not the service that systemd knows, yet.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .spawn()
    }

    async fn watch(&self, child: &mut Child) -> Verdict {
        let deadline = Duration::from_secs(self.record.health_deadline_secs);
        let begun = Instant::now();
        let (mut reaped_at, mut fed_at) = (begun, None::<Instant>);
        let mut pulse = (Vec::new(), begun);
        loop {
            // What it showed before it exited counts for nothing.
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Verdict::Failed(messages::upgrade_ended(how(status))),
                Err(error) => return Verdict::Failed(messages::upgrade_ended(error)),
            }
            let sign = self.records.shown(self.record.upgrade);
            if sign == Some(Sign::Proved) {
                return Verdict::Proved;
            }
            if sign.is_none() && begun.elapsed() >= STARTED_MAX.min(deadline) {
                return Verdict::Failed(messages::upgrade_hung(STARTED_MAX.min(deadline).as_secs()));
            }
            let shown = self.records.pulse();
            if sign.is_none() || shown != pulse.0 {
                pulse = (shown, Instant::now());
            }
            if pulse.1.elapsed() >= PULSE_MAX {
                return Verdict::Failed(messages::upgrade_hung(PULSE_MAX.as_secs()));
            }
            if begun.elapsed() >= deadline {
                return Verdict::Failed(messages::upgrade_unproved(deadline.as_secs()));
            }
            if reaped_at.elapsed() >= REAP_PERIOD {
                reaped_at = Instant::now();
                // What the old agent started stays its child.
                proctor_host::reap_orphans();
            }
            if fed_at.is_none_or(|at| at.elapsed() >= WATCHDOG_PERIOD) {
                fed_at = Some(Instant::now());
                systemd::notify(&format!("WATCHDOG=1\nSTATUS=version {} is on trial", self.record.version));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn save(&self, record: &Record) {
        if let Err(error) = self.records.save(record) {
            tracing::error!(%error, "cannot record the end of the trial");
        }
    }

    /// Becomes the old program again; returns why that failed.
    fn go_back(&self, reason: &Message, startup: Startup<'_>) -> String {
        tracing::error!(version = self.record.version, %reason, "upgrade failed, keeping the old version");
        self.save(&self.record.clone().failed(reason));
        self.program.clear();
        let old = self.program.again();
        let error = become_program(&old, startup.arguments, startup.flush);
        format!("cannot start {} again: {error}", old.display())
    }

    /// Becomes the new program; returns why nothing could be started.
    fn go_on(&self, startup: Startup<'_>) -> String {
        let path = self.program.path();
        if let Err(error) = self.program.install() {
            return self.go_back(&messages::upgrade_not_installed(path.display(), error), startup);
        }
        tracing::info!(version = self.record.version, "new version passed its trial");
        let error = become_program(path, startup.arguments, startup.flush);
        if let Err(problem) = self.program.put_back() {
            tracing::error!(%problem, path = %path.display(), "cannot restore the previous program");
        }
        self.go_back(&messages::upgrade_not_installed(path.display(), error), startup)
    }
}

/// Returns only on failure.
fn become_program(program: &Path, arguments: &[OsString], flush: &dyn Fn()) -> std::io::Error {
    proctor_host::descriptors::restore();
    flush();
    let name = arguments.first().cloned().unwrap_or_else(|| program.into());
    Command::new(program).arg0(name).args(arguments.get(1..).unwrap_or_default()).env_remove(TRIAL_VARIABLE).exec()
}

fn how(status: ExitStatus) -> String {
    if status.code() == Some(i32::from(NOT_RUN)) { "it cannot be run".to_owned() } else { status.to_string() }
}

/// Asks it to exit, as systemd would, and kills it if it does not; returns how it exited on its own.
async fn end(child: &mut Child) -> Option<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It is our child and was not waited for, so this pid belongs to nobody else.
    let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(process) = process {
        let _ = pidfd_send_signal(process, Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < END_MAX {
            match child.try_wait() {
                Ok(None) => tokio::time::sleep(POLL).await,
                Ok(status) => return status,
                Err(_) => break,
            }
        }
    }
    kill(child);
    None
}

fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Whether somebody stops the agent, now or in a moment, or did so before; a later stop ends this process, so that no
/// stop is lost between here and the program that it becomes.
async fn is_stopped_at_last(stop: &CancellationToken) -> bool {
    proctor_host::stop_signals::restore_default();
    tokio::time::timeout(STOP_MAX, stop.cancelled()).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upgrade::record;

    struct World {
        dir: tempfile::TempDir,
        trial: Trial,
        stop: CancellationToken,
    }

    fn world() -> World {
        let dir = tempfile::tempdir().unwrap();
        let trial = Trial {
            records: Records::new(dir.path()),
            record: Record { step: UpgradeStep::Trying, trials: 1, health_deadline_secs: 3600, ..record::sample() },
            program: Program::at(dir.path().join("agent")),
        };
        World { dir, trial, stop: CancellationToken::new() }
    }

    impl World {
        /// A program that proves itself at once, and ends as it is told.
        fn start(&self, at_term: &str) -> Child {
            let proof = format!("{} proved", self.trial.record.upgrade);
            let script = format!(
                "trap '{at_term}' TERM; echo {proof} > {}/upgrade-proof; while :; do sleep 0.01; done",
                self.dir.path().display()
            );
            Command::new("/bin/sh").args(["-c", &script]).spawn().unwrap()
        }

        async fn judge(&self, child: &mut Child) -> Result<(), String> {
            let verdict = self.trial.judge(child, &self.stop).await;
            assert!(child.try_wait().unwrap().is_some(), "it has ended");
            match verdict {
                Verdict::Proved => Ok(()),
                Verdict::Failed(reason) => Err(reason.to_string()),
                Verdict::Stopped => Err("stopped".to_owned()),
            }
        }
    }

    #[tokio::test]
    async fn a_program_that_proved_itself_must_also_end_well() {
        let world = world();
        assert_eq!(world.judge(&mut world.start("exit 0")).await, Ok(()));
        world.trial.records.clear_heartbeats().unwrap();

        let failed = world.judge(&mut world.start("exit 4")).await.unwrap_err();

        assert!(failed.contains("exit status: 4"), "{failed}");
    }

    #[tokio::test]
    async fn a_program_that_died_after_its_proof_has_failed() {
        let world = world();
        world.trial.records.show(world.trial.record.upgrade, Sign::Proved).unwrap();
        let mut child = Command::new("/bin/sh").args(["-c", "kill -9 $$"]).spawn().unwrap();

        let failed = world.judge(&mut child).await.unwrap_err();

        assert!(failed.contains("signal"), "{failed}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_stands_still_after_its_start_has_failed_long_before_its_deadline() {
        let world = world();
        let (records, upgrade, begun) = (&world.trial.records, world.trial.record.upgrade, Instant::now());
        let mut child = Command::new("/bin/sh").args(["-c", "exec sleep 1000"]).spawn().unwrap();
        records.show(upgrade, Sign::Started).unwrap();
        let (beats, between) = (10, PULSE_MAX * 9 / 10);
        let beat = async {
            for turns in 0..beats {
                records.beat(upgrade, turns).unwrap();
                tokio::time::sleep(between).await;
            }
        };

        let ((), verdict) = futures::future::join(beat, world.judge(&mut child)).await;

        assert_eq!(verdict, Err(messages::upgrade_hung(PULSE_MAX.as_secs()).to_string()));
        let lived = between * 9 + PULSE_MAX;
        assert!(begun.elapsed() >= lived && begun.elapsed() < lived + PULSE_MAX, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn who_stops_the_agent_stops_it_whatever_the_new_program_did() {
        let world = world();
        let stops_soon = async {
            tokio::time::sleep(STOP_MAX / 4).await;
            world.stop.cancel();
        };
        let mut ended = Command::new("/bin/true").spawn().unwrap();
        // As systemd does that tells both of them: the new one is gone first.
        let ((), verdict) = futures::future::join(stops_soon, world.judge(&mut ended)).await;
        assert_eq!(verdict, Err("stopped".to_owned()));

        let verdict = world.judge(&mut world.start("exit 0")).await;

        assert_eq!(verdict, Err("stopped".to_owned()));
    }

    #[tokio::test]
    async fn an_agent_that_was_stopped_before_its_trial_starts_nothing() {
        let world = world();
        world.stop.cancel();
        let flush = || panic!("it must not become another program");
        let startup = Startup { arguments: &[], log: "info", flush: &flush };
        let records = world.trial.records.clone();
        records.show(world.trial.record.upgrade, Sign::Started).unwrap();

        let upgrade = world.trial.record.upgrade;
        world.trial.begin(startup, &world.stop).await.unwrap();

        let kept = records.load().unwrap();
        assert_eq!((kept.step, kept.trials), (UpgradeStep::Fetching, 0), "it is ordered again, and was not tried");
        assert_eq!(records.shown(upgrade), Some(Sign::Started), "nothing was begun");
    }

    #[tokio::test]
    async fn a_stop_after_the_last_look_ends_the_process_and_is_not_lost() {
        use tokio::signal::unix::{SignalKind, signal};
        let _handler = signal(SignalKind::terminate()).unwrap();
        let is_handled = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (Signal::TERM.as_raw() - 1) != 0
        };
        assert!(is_handled());

        assert!(!is_stopped_at_last(&CancellationToken::new()).await);

        assert!(!is_handled());
    }

    #[test]
    fn the_program_that_watches_knows_the_trial_from_its_arguments() {
        let world = world();
        let typed = ["proctor-agent", "--server", "a:1"].map(OsString::from);
        let startup = Startup { arguments: &typed, log: "info,proctor_agent=debug", flush: &|| {} };

        let words = world.trial.watch_arguments(startup);

        assert_eq!(words[..2], ["proctor-agent", WATCH_COMMAND].map(OsString::from));
        let (trial, log, arguments) = Trial::of_arguments(&words[2..]).unwrap();
        assert_eq!((&trial, log, arguments), (&world.trial, startup.log, startup.arguments));
        assert_eq!(Trial::of_arguments(&words[3..]), None);
    }
}
