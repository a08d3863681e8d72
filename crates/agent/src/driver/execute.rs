//! Carries out the actions of the machines.

use std::sync::Arc;
use std::time::Duration;

use proctor_host::{Command, CommandHold, Exited, LeftoversResult};
use proctor_model::{
    CommandExit, CommandResult, Exit, Incarnation, Leftovers, Message, Probe, ProcessKey, ProcessSession, Spec,
    messages,
};
use proctor_supervise::{Action, CommandKind, Elder, Event, Notice, Process, Ticket, Time};
use tokio::sync::oneshot;

use super::admission::{AdmissionGate, CommandPurpose};
use super::answers::{PANICKED, spawn_owed};
use super::commands::CommandChannels;
use super::estates::{commands_of, lives, with_elders};
use super::limits::cgroup_name;
use super::slots::SlotQueue;
use super::{Driver, Input};

/// A version command that takes longer is not worth waiting for. Tests hold theirs back, on a machine that may be slow.
pub(super) const VERSION_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 5 });
pub(super) const VERSION_CHARS_MAX: usize = 256;
/// Leftovers are gone in seconds, or nobody can end them; this leaves enough time for other pending kills.
const CLEAR_LIMIT: Duration = Duration::from_secs(120);
/// A kill that waits longer for its turn is dropped: a little less than the machine waits for it, so that nothing is
/// killed after it was reported as not killed.
const KILL_TREE_LIMIT: Duration = Duration::from_secs(55);
/// Whoever wants to end a known life does not wait for its unresponsive pid file.
const KNOWN_LOOK_MAX: Duration = Duration::from_millis(500);

impl Driver {
    pub(super) fn execute(&mut self, key: ProcessKey, action: Action) {
        match action {
            Action::Probe { ticket, spec, known } => self.look(key, ticket, &spec, known),
            Action::Run { ticket, command, line, spec, timeout, operation } => {
                self.telemetry.metrics.command(command.as_str());
                let environment = self.environment_of(&key);
                let run = command_of(&key, command.as_str(), line.as_str(), &spec, timeout, environment);
                let queue = self.commands.slots.of(operation.map(|(_, expires)| expires.since(self.now())));
                let gate = self.gate(&key, spec, CommandPurpose::of(command, operation.is_some()));
                self.run_command(key, ticket, command, run, queue, gate);
            }
            Action::Proceed { ticket } => self.commands.proceed(&key, ticket),
            Action::KillCommand { ticket } => {
                tracing::info!(process = %key, "killing command");
                self.commands.kill(&key, ticket);
            }
            Action::RejoinCommand { ticket, command, kind, until } => self.rejoin(key, ticket, command, kind, until),
            Action::DetachCommand { ticket } => {
                if self.commands.leave(&key, ticket) {
                    tracing::info!(process = %key, "start command detached");
                }
            }
            Action::CheckHealth { ticket, line, spec, timeout } => {
                self.check_health(key, ticket, line.as_str(), spec, timeout)
            }
            // Forgotten in the same turn: nobody would be notified of its exit.
            Action::Watch(_) if !self.processes.contains(&key) => {}
            Action::Watch(life) => {
                self.remnants.set_stray(&key, !self.host.is_in_leaf(&life, &cgroup_name(&key)));
                self.query_version(&key, &life);
                self.tell_session(&key, &life);
                self.watch(key, life);
            }
            Action::KillTree(life) if self.spares(&key) => {
                let failed = self.forbidden(&key).map(|refusal| Message::from(refusal).into_text());
                self.dispatch_event(&key, Event::TreeKilled { life, failed });
            }
            Action::Signal(..) if self.spares(&key) => {}
            Action::Signal(life, signal) => match self.host.signal(&life, signal) {
                Ok(sent) => tracing::info!(process = %key, pid = life.pid, ?signal, sent, "signal"),
                Err(error) => tracing::warn!(process = %key, pid = life.pid, ?signal, %error, "cannot send signal"),
            },
            Action::KillTree(life) => self.kill_tree(key, life),
            Action::ClearLeftovers { ticket, elder, .. } if self.spares(&key) => {
                self.dispatch_event(&key, Event::LeftoversCleared { ticket, ended: 0, left: 0, elder });
            }
            Action::ClearLeftovers { ticket, remains, elder, grace } => {
                self.clear(key, ticket, remains, elder.as_deref(), grace)
            }
            Action::Begin { operation, kind } => tracing::info!(process = %key, %operation, %kind, "operation started"),
            Action::Finish { operation, outcome } => {
                let (code, message) = (outcome.code.name(), outcome.message.as_str());
                tracing::info!(process = %key, %operation, code, message, "operation finished");
                if operation.part > 0 {
                    return self.collect_instance_outcome(operation, *outcome);
                }
                self.answer(operation, *outcome);
            }
            Action::Notify(notice) => {
                if let Notice::Exited { .. } = &notice {
                    self.usage.limits.forget(&key, self.now());
                }
            }
        }
    }

    /// A known life counts as running as long as it is alive, whatever became of its pid file.
    fn look(&mut self, key: ProcessKey, ticket: Ticket, spec: &Spec, known: Option<Incarnation>) {
        if let Some(look) = self.host.probe_now(&spec.identity, known.as_ref()) {
            return self.dispatch_event(&key, Event::Probed { ticket, look });
        }
        let (host, identity) = (self.host.clone(), spec.identity.clone());
        let unclear = Probe::Unclear { reason: messages::because(PANICKED), named: None };
        let owed = self.workers.owed(Input::Machine(key.clone(), Event::Probed { ticket, look: unclear }));
        // Others wait for what the pid file says: after a restart it may name a new life.
        let is_ending = self.processes.get(&key).is_some_and(Process::is_ending);
        self.workers.spawn("look", async move {
            let mut looking = Box::pin(probe_or_known(&host, &key, &identity, known.clone()));
            let answer = |look| Input::Machine(key.clone(), Event::Probed { ticket, look });
            if !is_ending {
                return owed.send(answer(looking.await)).await;
            }
            let soon = tokio::time::timeout(KNOWN_LOOK_MAX, &mut looking).await;
            match (soon, known.filter(|known| host.is_alive(known))) {
                (Ok(look), _) => owed.send(answer(look)).await,
                (Err(_), None) => owed.send(answer(looking.await)).await,
                (Err(_), Some(known)) => {
                    owed.send(answer(Probe::Running(known))).await;
                    // To its end: the probe itself finds out that its mount hangs.
                    looking.await;
                }
            }
        });
    }

    fn run_command(
        &mut self,
        key: ProcessKey,
        ticket: Ticket,
        command: CommandKind,
        run: Command,
        queue: SlotQueue,
        gate: AdmissionGate,
    ) {
        let (host, inbox) = (self.host.clone(), self.workers.inbox().clone());
        let channels = self.commands.begin(key.clone(), ticket);
        let owed = self.workers.owed(ended_unseen(key.clone(), ticket));
        self.remnants.leaves.used(key.clone());
        if matches!(command, CommandKind::Start | CommandKind::Restart) {
            self.remnants.set_stray(&key, true);
        }
        tracing::info!(process = %key, command = command.as_str(), "command started");
        self.workers.spawn("command", async move {
            let CommandChannels { held, mut end, left_alone } = channels;
            let (begun, is_begun) = oneshot::channel();
            let begun_key = key.clone();
            let told = async move {
                if let Ok(command) = is_begun.await {
                    let input = Input::Machine(begun_key, Event::CommandBegun { ticket, command });
                    let _ = inbox.send(input).await;
                }
            };
            let admitted = Box::pin(async { tokio::join!(gate.open(), queue.wait()) });
            let admitted = tokio::select! {
                biased;
                Ok(()) = &mut end => (Err(ended_by(CommandResult::Cancelled)), None),
                admitted = admitted => admitted,
            };
            let end = match admitted {
                (Err(refused), _) => Some((refused, None)),
                (Ok(()), None) => Some((ended_by(CommandResult::NoSlot), None)),
                (Ok(()), Some(slot)) => {
                    let running = Box::pin(host.run_held(run, CommandHold { begun, held, end }));
                    let running = slot.hold_during(async { tokio::join!(running, told).0 });
                    left_alone.run_until_cancelled(running).await
                }
            };
            let Some((end, alive_at)) = end else { return };
            tracing::info!(process = %key, command = command.as_str(), result = ?end.result, "command exited");
            let alive_at = alive_at.map(Time::since_boot);
            owed.send(Input::Machine(key, Event::CommandEnded { ticket, end, alive_at })).await;
        });
    }

    /// Waits for a command of the agent before this one.
    fn rejoin(&mut self, key: ProcessKey, ticket: Ticket, command: Incarnation, kind: CommandKind, until: Time) {
        let (host, time) = (self.host.clone(), until.since(self.now()));
        let owed = self.workers.owed(ended_unseen(key.clone(), ticket));
        let CommandChannels { end, left_alone, .. } = self.commands.begin(key.clone(), ticket);
        tracing::info!(process = %key, command = kind.as_str(), pid = command.pid, "waiting for inherited command");
        self.workers.spawn("rejoin", async move {
            let (leaf, now) = (cgroup_name(&key), Time::since_boot(host.now()));
            // It is not our child: who reaps it does not tell us.
            let alive_at = host.is_alive(&command).then_some(now);
            let rejoined = host.rejoin(&command, &leaf, time, end);
            let Some(end) = left_alone.run_until_cancelled(rejoined).await else { return };
            tracing::info!(process = %key, command = kind.as_str(), result = ?end.result, "inherited command exited");
            owed.send(Input::Machine(key, Event::CommandEnded { ticket, end, alive_at })).await;
        });
    }

    fn check_health(&self, key: ProcessKey, ticket: Ticket, line: &str, spec: Arc<Spec>, timeout: Duration) {
        let run = command_of(&key, "health", line, &spec, timeout, self.environment_of(&key));
        let (host, queue) = (self.host.clone(), self.commands.slots.checks());
        let gate = self.gate(&key, spec, CommandPurpose::Other);
        let unasked = Event::HealthChecked { ticket, end: ended_by(CommandResult::NoSlot) };
        let owed = self.workers.owed(Input::Machine(key.clone(), unasked));
        self.workers.spawn("health", async move {
            let end = match gate.open().await {
                Ok(()) => queue.run(&host, run).await,
                // A process is not unhealthy because its health may not be checked.
                Err(_) => ended_by(CommandResult::NoSlot),
            };
            owed.send(Input::Machine(key, Event::HealthChecked { ticket, end })).await;
        });
    }

    /// Removes the cgroups of stopped processes; one that still holds something stays.
    pub(super) fn remove_idle_cgroups(&self) {
        let is_busy = |key: &ProcessKey| self.processes.get(key).is_some_and(Process::is_busy);
        let resting = self.remnants.leaves.of(|key| !is_busy(key));
        if resting.is_empty() {
            return;
        }
        let (host, inbox) = (self.host.clone(), self.workers.inbox().clone());
        self.workers.spawn("release leaves", async move {
            for leaf in resting {
                if host.release_leaf(&cgroup_name(&leaf.key)).await.unwrap_or(false) {
                    let _ = inbox.send(Input::LeafReleased(leaf)).await;
                }
            }
        });
    }

    /// Receives the exits of all watched lives: without it nothing is kept alive.
    pub(super) fn watch_exits(&self) {
        let (ends, tasks, inbox) =
            (self.lives.exits.clone(), self.workers.tasks().clone(), self.workers.inbox().clone());
        self.workers.tasks().spawn_critical("ends", async move {
            let tell = |mut over: Exited<ProcessKey>| match (over.exit_now(), inbox.try_reserve()) {
                (exit @ Some(_), Ok(room)) => room.send(ended(over, exit)),
                (exit, _) => {
                    // This exit is not reported a second time.
                    let alive_at = Some(Time::since_boot(over.alive_at));
                    let lost = Event::Exited { life: over.life.clone(), exit: None, alive_at };
                    spawn_owed(&inbox, &tasks, "end", Input::Machine(over.name.clone(), lost), async move {
                        let exit = if exit.is_some() { exit } else { over.exit().await };
                        ended(over, exit)
                    });
                }
            };
            ends.tell(tell).await;
        });
    }

    /// A process that its start command has put into the background is in the session of that command.
    fn tell_session(&mut self, key: &ProcessKey, life: &Incarnation) {
        let sessions = self.processes.get(key).map(Process::sessions).unwrap_or_default();
        let is_shared =
            |session: &&ProcessSession| session.leader != life.pid && self.host.is_in_session(life, session);
        if let Some(session) = sessions.iter().find(is_shared).copied() {
            self.dispatch_event(key, Event::SharesSession { life: life.clone(), session });
        }
    }

    fn watch(&self, key: ProcessKey, life: Incarnation) {
        let Err((key, life)) = self.lives.exits.watch(key, life) else { return };
        let host = self.host.clone();
        // If a life is there anyway, the probe that follows finds it.
        let lost = Event::Exited { life: life.clone(), exit: None, alive_at: None };
        let owed = self.workers.owed(Input::Machine(key.clone(), lost));
        self.workers.spawn("watch", async move {
            let exit = host.ended(life.clone()).await;
            owed.send(Input::Machine(key, Event::Exited { life, exit, alive_at: None })).await;
        });
    }

    /// Ends what an earlier life has left behind. Usually that is nothing, and known at once.
    fn clear(
        &mut self,
        key: ProcessKey,
        ticket: Ticket,
        remains: Option<Leftovers>,
        elder: Option<&Elder>,
        grace: Duration,
    ) {
        let elders: Vec<&Elder> = elder.into_iter().flat_map(Elder::all).collect();
        let since = remains.as_ref().map_or(u64::MAX, |remains| remains.since);
        let spared = commands_of(&self.host, &elders, since);
        // What is older than a living one may belong to it.
        let over = elders.iter().position(|elder| lives(&self.host, elder)).unwrap_or(elders.len());
        let elder = Elder::of(elders.iter().skip(over).map(|elder| (*elder).clone())).map(Box::new);
        let remains = with_elders(remains, elders.into_iter().take(over));
        let remains = remains.map(|remains| Leftovers { spared, ..remains });
        // What has left the leaf is searched for if somebody waits for the answer, or if the last life itself had
        // left it: that reads all environments.
        let is_asked = self.processes.get(&key).is_some_and(|process| process.operations().next().is_some());
        let is_searched = is_asked || self.remnants.is_stray(&key);
        let may_be_there =
            |remains: &Leftovers| is_searched || !remains.launched || !self.host.is_leaf_empty(&cgroup_name(&key));
        let Some(remains) = remains.filter(may_be_there) else {
            return self.dispatch_event(&key, Event::LeftoversCleared { ticket, ended: 0, left: 0, elder });
        };
        let host = self.host.clone();
        let unknown = Event::LeftoversNotCleared { ticket, reason: PANICKED.to_owned() };
        let owed = self.workers.owed(Input::Machine(key.clone(), unknown));
        self.workers.spawn("clear", async move {
            let (leaf, late) = (cgroup_name(&key), "it did not end in time");
            let cleared = tokio::time::timeout(CLEAR_LIMIT, host.clear_leftovers(&leaf, &remains, grace));
            let event = match cleared.await {
                Err(_) => {
                    tracing::warn!(process = %key, "search for leftover processes timed out");
                    Event::LeftoversNotCleared { ticket, reason: late.to_owned() }
                }
                Ok(Ok(LeftoversResult { ended, left })) => {
                    if ended > 0 {
                        tracing::warn!(process = %key, ended, left, "leftover processes killed");
                    }
                    Event::LeftoversCleared { ticket, ended, left, elder }
                }
                Ok(Err(error)) => {
                    tracing::warn!(process = %key, %error, "cannot kill leftover processes");
                    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
                    Event::LeftoversNotCleared { ticket, reason: format!("{error}{cause}") }
                }
            };
            owed.send(Input::Machine(key, event)).await;
        });
    }

    fn kill_tree(&self, key: ProcessKey, life: Incarnation) {
        let host = self.host.clone();
        let unknown = Event::TreeKilled { life: life.clone(), failed: Some(PANICKED.to_owned()) };
        let owed = self.workers.owed(Input::Machine(key.clone(), unknown));
        let process = self.processes.get(&key);
        let launched = process.and_then(Process::since);
        let since = launched.unwrap_or(life.start_ticks);
        let elder = process.and_then(Process::elder).filter(|_| launched.is_some());
        let elders: Vec<&Elder> = elder.into_iter().flat_map(Elder::all).collect();
        let spared = commands_of(&self.host, &elders, since);
        self.workers.spawn("kill tree", async move {
            let leaf = cgroup_name(&key);
            let kill = host.kill_tree_in(&life, &leaf, since, spared);
            let failed = match tokio::time::timeout(KILL_TREE_LIMIT, kill).await {
                Ok(Ok(killed)) => {
                    tracing::info!(process = %key, pid = life.pid, killed, "process tree killed");
                    None
                }
                Ok(Err(error)) => Some(proctor_runtime::chain(&error)),
                Err(_) => Some("it did not get its turn".to_owned()),
            };
            if let Some(error) = &failed {
                tracing::warn!(process = %key, pid = life.pid, error, "cannot kill process tree");
            }
            owed.send(Input::Machine(key, Event::TreeKilled { life, failed })).await;
        });
    }

    /// The process is no longer known, and nobody will ask for the output of its commands.
    pub(super) fn remove_outputs(&self, key: &ProcessKey) {
        let (host, names) = (self.host.clone(), output_names(key).collect());
        self.workers.spawn("remove outputs", async move { host.remove_outputs(names).await });
    }

    /// Removes command output of processes that were forgotten while no agent ran.
    pub(super) fn sweep_outputs(&self) {
        let names = self.processes.all().flat_map(|process| output_names(process.key())).collect();
        let host = self.host.clone();
        self.workers.spawn("sweep outputs", async move { host.retain_outputs(names).await });
    }

    /// Asks a life of a registered process for its version: once, and again when its command has changed.
    pub(super) fn query_version(&self, key: &ProcessKey, life: &Incarnation) {
        let process = self.processes.get(key).filter(|process| process.is_registered());
        let Some(spec) = process.map(|process| process.spec().clone()) else { return };
        let Some(line) = spec.control.version.clone() else { return };
        let command = command_of(key, "version", line.as_str(), &spec, VERSION_TIMEOUT, self.environment_of(key));
        let (host, inbox) = (self.host.clone(), self.workers.inbox().clone());
        let (key, life, queue) = (key.clone(), life.clone(), self.commands.slots.checks());
        let gate = self.gate(&key, spec, CommandPurpose::Other);
        self.workers.spawn("version", async move {
            if gate.open().await.is_err() {
                return;
            }
            let version = version_from(queue.run(&host, command).await);
            let _ = inbox.send(Input::Version { key, life, line, version }).await;
        });
    }
}

pub(super) async fn probe_or_known(
    host: &proctor_host::Host,
    key: &ProcessKey,
    identity: &proctor_model::Identity,
    known: Option<Incarnation>,
) -> Probe {
    match (host.look(&cgroup_name(key), identity, known.as_ref()).await, known) {
        (Probe::Absent(_) | Probe::Dead { .. } | Probe::Unclear { .. }, Some(known)) if host.is_alive(&known) => {
            Probe::Running(known)
        }
        (look, _) => look,
    }
}

fn ended(over: Exited<ProcessKey>, exit: Option<Exit>) -> Input {
    let Exited { name, life, alive_at, .. } = over;
    Input::Machine(name, Event::Exited { life, exit, alive_at: Some(Time::since_boot(alive_at)) })
}

/// Nobody has seen how the command ended, nor whether it did.
fn ended_unseen(key: ProcessKey, ticket: Ticket) -> Input {
    Input::Machine(key, Event::CommandEnded { ticket, end: ended_by(CommandResult::ExitUnknown), alive_at: None })
}

pub(super) fn ended_by(result: CommandResult) -> CommandExit {
    CommandExit { result, output: String::new() }
}

pub(super) fn version_from(end: CommandExit) -> String {
    match end.result {
        CommandResult::Exited(_) => end.output.trim().chars().take(VERSION_CHARS_MAX).collect(),
        CommandResult::TimedOut
        | CommandResult::Cancelled
        | CommandResult::ExitUnknown
        | CommandResult::NotStarted(_)
        | CommandResult::NoSlot => String::new(),
    }
}

pub(super) fn command_of(
    key: &ProcessKey,
    name: &str,
    line: &str,
    spec: &Spec,
    timeout: Duration,
    environment: Vec<(String, String)>,
) -> Command {
    Command {
        line: line.to_owned(),
        user: spec.identity.user.as_str().to_owned(),
        directory: spec.identity.setup_path.as_str().into(),
        timeout,
        environment,
        output_name: output_name(key, name),
        leaf: Some(cgroup_name(key)),
    }
}

/// All commands of a process that have an output.
const COMMANDS: [&str; 8] = ["start", "stop", "restart", "reload", "kill", "health", "version", "version-now"];

/// The names of everything that commands of a process may print to.
fn output_names(key: &ProcessKey) -> impl Iterator<Item = String> {
    COMMANDS.into_iter().map(|command| output_name(key, command))
}

/// One file for each process and command, whatever characters its name has.
fn output_name(key: &ProcessKey, command: &str) -> String {
    let readable: String =
        key.to_string().chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(60).collect();
    let digest = blake3::hash(format!("{}\0{}", key.namespace, key.name).as_bytes()).to_hex();
    format!("{readable}.{}.{command}", &digest.as_str()[..12])
}
