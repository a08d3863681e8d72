//! What is written when, and done after it.
//!
//! Promised: before anything that cannot be undone (a command is let go, a signal, the outcome of an
//! operation) everything that has changed is on disk, in one transaction. Looks and commands that
//! are still held do nothing, and after a crash it is as if they had never been; so what changes
//! besides waits for company, at most [`FLUSH_PAUSE`], and so does what the server is told of it: a
//! restart is not held up by its own report. If the ledger cannot be written, operations are refused
//! with that reason, except stops, kills and changes of management, which its reserve remembers, and supervision
//! goes on from memory; but where not even the reserve has it no start command is let go, whoever wants it: an agent
//! that came back would not know of the process, and start a second one.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proctor_model::{CommandResult, OperationId, OperationKind, ProcessKey};
use proctor_runtime::clock;
use proctor_supervise::{Action, Elder, Event, Process, Ticket};
use proctor_wire::FromAgent;

use super::Driver;
use super::execute::ended_by;
use super::limits::cgroup_name;
use super::schedules::Clocks;
use super::usage::wall_clock;
use crate::ledger::CommitError;

/// What may wait is written and told after this.
const FLUSH_PAUSE: Duration = Duration::from_millis(20);
/// Without a change for this long, a storm is over.
const QUIET: Duration = Duration::from_secs(5);
/// A ledger that could not be written is tried again after this.
const LEDGER_PAUSE: Duration = Duration::from_secs(1);
const NOT_RECORDED: &str = "the agent cannot write its ledger (is its disk full?)";

/// Where everything that has changed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    Ledger,
    /// As far as it must not be forgotten.
    Reserve,
    Nowhere,
}

impl Driver {
    /// Writes and acts until the machines have nothing more to say.
    pub(super) fn finish_turn(&mut self) {
        let mut ended = false;
        if !self.dirty.is_empty() {
            self.quiet_at = Some(self.now() + QUIET);
        }
        while !self.dirty.is_empty() {
            let mut actions: Vec<(ProcessKey, Action)> = Vec::new();
            let touched = std::mem::take(&mut self.dirty);
            for key in &touched {
                self.collect(key, &mut actions);
            }
            if actions.iter().any(|(_, action)| action.is_irreversible()) {
                let recorded = self.commit();
                self.refuse_unrecorded(recorded, &mut actions);
            }
            ended |= actions.iter().any(|(_, action)| matches!(action, Action::Finish { .. }));
            for (key, action) in actions {
                self.execute(key, action);
            }
            let now = self.now();
            for key in touched {
                self.timers.set(&key, self.processes.get(&key).and_then(Process::poll_timeout));
                if let Some(process) = self.processes.get(&key) {
                    self.schedules.follow(process, self.seed, &Clocks::read(&self.host));
                    self.configs.follow(process, now);
                    self.limits.follow(process, now);
                }
                self.outbox.reports.touch(key);
            }
        }
        self.outbox.send_waiting();
        self.flush_in_time(ended);
    }

    /// Who learns of an outcome finds the state that it speaks of: that is told at once.
    fn flush_in_time(&mut self, at_once: bool) {
        let is_written = self.batch.is_empty() && self.unwritten_batch.is_none();
        let is_clean = is_written && !self.ledger.released().is_pending() && !self.outbox.has_unreported();
        let now = self.now();
        match self.flush_at {
            _ if is_clean => self.flush_at = None,
            Some(at) if at <= now => self.flush(),
            _ if at_once => self.flush(),
            None => self.flush_at = Some(now + FLUSH_PAUSE),
            Some(_) => {}
        }
    }

    fn flush(&mut self) {
        let written = self.commit() == Recorded::Ledger;
        if written {
            self.outbox.send_events();
        }
        self.report_changes();
        let pause = if written { FLUSH_PAUSE } else { LEDGER_PAUSE };
        self.flush_at = (!written || self.outbox.has_unreported()).then(|| self.now() + pause);
    }

    /// After a storm: its memory is not needed until the next one.
    pub(super) fn give_back_memory(&mut self) {
        if self.quiet_at.is_some_and(|at| at <= self.now()) {
            self.quiet_at = None;
            self.commands.shrink();
            self.outbox.events.shrink();
            self.ledger.shrink();
            proctor_host::memory::give_back();
        }
    }

    /// What cannot be remembered must not happen: operations that would begin now are refused,
    /// before anything of them is done. Supervision, and operations that began earlier, go on. So do a
    /// stop and a kill: what fills the disk must be stoppable. They are written when there is room again.
    fn refuse_unrecorded(&mut self, recorded: Recorded, actions: &mut Vec<(ProcessKey, Action)>) {
        if recorded == Recorded::Ledger {
            return;
        }
        let is_launching = |key: &ProcessKey| self.processes.get(key).is_some_and(Process::is_launching);
        let Unrecorded { refused, held } = take_unrecorded(recorded, actions, is_launching);
        for (key, operation) in refused {
            self.metrics.refused();
            let reason = format!("{NOT_RECORDED}; until then it only stops and kills");
            self.dispatch_event(&key, Event::Refused { operation, reason });
        }
        for (key, ticket) in held {
            self.withdraw_start(&key, ticket);
        }
    }

    /// A start command that is held is not let go. Supervision tries again, an operation fails.
    fn withdraw_start(&mut self, key: &ProcessKey, ticket: Ticket) {
        tracing::error!(process = %key, "not started: neither the ledger nor its reserve can be written");
        self.commands.leave(key, ticket);
        let is_operated = self.processes.get(key).is_some_and(Process::is_operated);
        let result =
            if is_operated { CommandResult::NotStarted(NOT_RECORDED.to_owned()) } else { CommandResult::NoSlot };
        self.dispatch_event(key, Event::CommandEnded { ticket, end: ended_by(result) });
    }

    /// Takes what a machine wants written, told and done.
    fn collect(&mut self, key: &ProcessKey, actions: &mut Vec<(ProcessKey, Action)>) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let record = process.take_record().cloned();
        if process.managed() && process.released_registration().is_none() && !self.ledger.released().is_empty() {
            self.ledger.released().remove(key);
        }
        let first = actions.len();
        while let Some(action) = process.poll_action() {
            match &action {
                Action::Begin { operation, kind } => self.batch.begun.push((*operation, key.clone(), *kind)),
                Action::Finish { operation, outcome } => self.batch.outcomes.push((*operation, (**outcome).clone())),
                Action::Probe { .. }
                | Action::Proceed { .. }
                | Action::KillCommand { .. }
                | Action::RejoinCommand { .. }
                | Action::DetachCommand { .. }
                | Action::ClearLeftovers { .. }
                | Action::CheckHealth { .. }
                | Action::Run { .. }
                | Action::Watch(_)
                | Action::Signal(..)
                | Action::KillTree(_)
                | Action::Notify(_) => {}
            }
            actions.push((key.clone(), action));
        }
        for (key, action) in &actions[first..] {
            if let Action::Notify(notice) = action {
                self.publish_notice(key, notice);
            }
        }
        if self.processes.get(key).is_some_and(Process::can_be_dropped) {
            self.forget(key);
        } else if let Some(record) = record {
            self.batch.put(key.clone(), record);
        }
    }

    fn forget(&mut self, key: &ProcessKey) {
        self.keep_estate(key);
        self.processes.remove(key);
        // If it lives on, it is still no part of another one.
        let elders = self.estates.get(key).into_iter().flat_map(Elder::all);
        self.host.set_lives(&cgroup_name(key), None, elders.filter_map(|elder| elder.life.as_ref()));
        self.schedules.forget(key);
        self.configs.forget(key);
        self.pid_files.forget(key);
        self.limits.forget(key, self.now());
        self.history.forget(key);
        self.keeper.remove(key.clone());
        self.ledger.released().remove(key);
        self.versions.remove(key);
        self.strays.remove(key);
        self.outbox.reports.forget(key);
        self.ends.forget(key);
        self.batch.forget(key.clone());
        self.set_registration_deferred(key, false);
        self.remove_outputs(key);
    }

    pub(super) fn commit(&mut self) -> Recorded {
        if self.batch.is_empty() && self.unwritten_batch.is_none() {
            self.ledger.flush_released();
            return Recorded::Ledger;
        }
        let mut batch = self.unwritten_batch.take().unwrap_or_default();
        batch.append(std::mem::take(&mut self.batch));
        batch.now = clock::unix_millis() / 1000;
        batch.is_registering = !self.registering.is_empty();
        let generation = batch.generation;
        let begun = self.host.now();
        let written = self.ledger.commit(batch);
        self.metrics.committed(self.host.now().saturating_sub(begun), written.is_ok());
        match written {
            Ok(()) => {
                if let Some(generation) = generation {
                    self.seen_generation.store(generation, Ordering::Release);
                    self.outbox.send(FromAgent::Seen { generation });
                }
                Recorded::Ledger
            }
            Err(CommitError { error, is_reserved, batch }) => {
                tracing::error!(%error, is_reserved, "cannot write ledger; supervision continues from memory");
                self.unwritten_batch = Some(batch);
                if is_reserved { Recorded::Reserve } else { Recorded::Nowhere }
            }
        }
    }
}

/// What must not be done because it is not recorded.
#[derive(Debug, Default, PartialEq, Eq)]
struct Unrecorded {
    refused: Vec<(ProcessKey, OperationId)>,
    /// Start commands that are not let go.
    held: Vec<(ProcessKey, Ticket)>,
}

/// Takes from what is to be done everything that belongs to operations which begin now: up to their end, where that is
/// among it, or to the beginning of the next operation.
fn take_unrecorded(
    recorded: Recorded,
    actions: &mut Vec<(ProcessKey, Action)>,
    is_launching: impl Fn(&ProcessKey) -> bool,
) -> Unrecorded {
    let mut taken = Unrecorded::default();
    // The operation of a process that is being refused.
    let mut refusing: HashMap<ProcessKey, OperationId> = HashMap::new();
    actions.retain(|(key, action)| match action {
        Action::Proceed { ticket } if recorded == Recorded::Nowhere && is_launching(key) => {
            taken.held.push((key.clone(), *ticket));
            false
        }
        Action::Begin { kind: OperationKind::Stop | OperationKind::Kill, .. } => {
            refusing.remove(key);
            true
        }
        Action::Begin { operation, .. } => {
            taken.refused.push((key.clone(), *operation));
            refusing.insert(key.clone(), *operation);
            false
        }
        Action::Finish { operation, .. } => {
            if refusing.get(key) == Some(operation) {
                refusing.remove(key);
            }
            true
        }
        Action::Run { .. } | Action::Signal(..) | Action::KillTree(_) | Action::ClearLeftovers { .. } => {
            !refusing.contains_key(key)
        }
        Action::Probe { .. }
        | Action::Proceed { .. }
        | Action::KillCommand { .. }
        | Action::RejoinCommand { .. }
        | Action::DetachCommand { .. }
        | Action::CheckHealth { .. }
        | Action::Watch(_)
        | Action::Notify(_) => true,
    });
    taken
}

/// What was put off is not lost with the agent's orderly end.
impl Drop for Driver {
    fn drop(&mut self) {
        self.commit();
        self.keeper.write_all(&mut self.history, wall_clock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proctor_model::{BootId, Code, Incarnation, Outcome, Signal, TaskId};

    #[test]
    fn a_kill_that_follows_a_refused_operation_in_the_same_turn_is_carried_out() {
        let key: ProcessKey = "ns/p".parse().unwrap();
        let operation = |index| OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
        let life = Incarnation { boot: BootId::from("boot"), pid: 7, start_ticks: 7, pidfd_inode: None };
        let outcome = Box::new(Outcome::new(Code::Cancelled, "cancelled", true));
        let restart = Action::Begin { operation: operation(0), kind: OperationKind::Restart };
        let kill = Action::Begin { operation: operation(1), kind: OperationKind::Kill };
        let start = Action::Begin { operation: operation(2), kind: OperationKind::Start };
        let wanted = [
            Action::Finish { operation: operation(0), outcome: outcome.clone() },
            kill,
            Action::KillTree(life.clone()),
            Action::Finish { operation: operation(1), outcome },
        ];
        let mut actions: Vec<(ProcessKey, Action)> = [restart, Action::Signal(life.clone(), Signal::Terminate)]
            .into_iter()
            .chain(wanted.clone())
            .chain([start, Action::Signal(life, Signal::Terminate)])
            .map(|action| (key.clone(), action))
            .collect();

        let taken = take_unrecorded(Recorded::Reserve, &mut actions, |_| false);

        assert_eq!(actions, wanted.map(|action| (key.clone(), action)));
        assert_eq!(taken.refused, [(key.clone(), operation(0)), (key, operation(2))]);
    }
}
