//! What is written when, and what is done after it.
//!
//! Promised: before anything irreversible (releasing a command, a signal, the outcome of an operation), all changes
//! are on disk, in one transaction. Probes and commands still on hold have no effect, and after a crash it is as if
//! they had never happened; so other changes are batched for at most [`FLUSH_PAUSE`], and so are the reports about
//! them: a restart is not delayed by its own report. If the ledger cannot be written, operations are refused with
//! that reason, except stops, kills and changes of management, which its reserve remembers, and supervision continues
//! from memory. If the reserve cannot be written either, no start command is released, whoever asked: a restarted
//! agent would not know about the process, and would start a second one.

use std::collections::HashMap;
use std::time::Duration;

use proctor_model::{CommandResult, OperationId, OperationKind, ProcessKey, messages};
use proctor_runtime::clock;
use proctor_supervise::{Action, Elder, Event, Process, Ticket};
use proctor_wire::FromAgent;

use super::Driver;
use super::execute::ended_by;
use super::ledger_writer::{Recorded, Written};
use super::limits::cgroup_name;
use super::schedules::Clocks;
use super::usage::wall_clock;

/// Deferrable changes are written and reported after this.
const FLUSH_PAUSE: Duration = Duration::from_millis(20);
/// A ledger that could not be written is tried again after this.
const LEDGER_PAUSE: Duration = Duration::from_secs(1);
const NOT_RECORDED: &str = "the agent cannot write its ledger (is its disk full?)";

impl Driver {
    /// Writes and acts until the machines have nothing more to do.
    pub(super) fn finish_turn(&mut self) {
        let mut ended = false;
        while let Some(touched) = self.processes.take_touched(self.now()) {
            let mut actions: Vec<(ProcessKey, Action)> = Vec::new();
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
            let (now, clocks) = (self.now(), Clocks::read(&self.host));
            for key in touched {
                self.processes.set_timer(&key);
                if let Some(process) = self.processes.get(&key) {
                    self.schedules.follow(process, self.processes.seed(), &clocks);
                    self.configs.follow(process, now);
                    self.usage.limits.follow(process, now);
                }
                self.outbox.reports.touch(key);
            }
        }
        self.outbox.send_waiting();
        self.flush_in_time(ended);
    }

    /// Whoever gets an outcome must find the state it refers to: that is reported at once.
    fn flush_in_time(&mut self, at_once: bool) {
        let is_clean = !self.ledger.is_pending() && !self.outbox.has_unreported();
        let now = self.now();
        match self.ledger.flush_at {
            _ if is_clean => self.ledger.flush_at = None,
            Some(at) if at <= now => self.flush(),
            _ if at_once => self.flush(),
            None => self.ledger.flush_at = Some(now + FLUSH_PAUSE),
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
        self.ledger.flush_at = (!written || self.outbox.has_unreported()).then(|| self.now() + pause);
    }

    /// After a storm: its memory is not needed until the next one.
    pub(super) fn give_back_memory(&mut self) {
        if self.processes.take_quiet(self.now()) {
            self.commands.shrink();
            self.outbox.events.shrink();
            self.ledger.shrink();
            proctor_host::memory::give_back();
        }
    }

    /// What cannot be recorded must not happen: operations that would begin now are refused, before any of them takes
    /// effect. Supervision, and operations that began earlier, continue. So do stops and kills: what fills the disk
    /// must be stoppable. They are written when there is space again.
    fn refuse_unrecorded(&mut self, recorded: Recorded, actions: &mut Vec<(ProcessKey, Action)>) {
        if recorded == Recorded::Ledger {
            return;
        }
        let is_launching = |key: &ProcessKey| self.processes.get(key).is_some_and(Process::is_launching);
        let Unrecorded { refused, held } = take_unrecorded(recorded, actions, is_launching);
        for (key, operation) in refused {
            self.telemetry.metrics.refused();
            self.dispatch_event(&key, Event::Refused { operation, reason: messages::ledger_not_written() });
        }
        for (key, ticket) in held {
            self.withdraw_start(&key, ticket);
        }
    }

    /// A held start command is not released. Supervision retries, an operation fails.
    fn withdraw_start(&mut self, key: &ProcessKey, ticket: Ticket) {
        tracing::error!(process = %key, "not started: neither the ledger nor its reserve can be written");
        self.commands.leave(key, ticket);
        let is_operated = self.processes.get(key).is_some_and(Process::is_operated);
        let result =
            if is_operated { CommandResult::NotStarted(NOT_RECORDED.to_owned()) } else { CommandResult::NoSlot };
        self.dispatch_event(key, Event::CommandEnded { ticket, end: ended_by(result), alive_at: None });
    }

    /// Takes what a machine wants written, reported and done.
    fn collect(&mut self, key: &ProcessKey, actions: &mut Vec<(ProcessKey, Action)>) {
        let Some(process) = self.processes.get_mut(key) else { return };
        let record = process.take_record().cloned();
        if process.managed() && process.released_registration().is_none() && !self.ledger.released().is_empty() {
            self.ledger.released().remove(key);
        }
        let first = actions.len();
        while let Some(action) = process.poll_action() {
            match &action {
                Action::Begin { operation, kind } => self.ledger.batch.begun.push((*operation, key.clone(), *kind)),
                Action::Finish { operation, outcome } => {
                    self.ledger.batch.outcomes.push((*operation, (**outcome).clone()))
                }
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
            self.ledger.batch.put(key.clone(), record);
        }
    }

    fn forget(&mut self, key: &ProcessKey) {
        self.keep_estate(key);
        self.processes.remove(key);
        // If it lives on, it is still no part of another one.
        let elders = self.remnants.estate(key).into_iter().flat_map(Elder::all);
        self.host.set_lives(&cgroup_name(key), None, elders.filter_map(|elder| elder.life.as_ref()));
        self.schedules.forget(key);
        self.configs.forget(key);
        self.admission.pid_files.forget(key);
        self.usage.forget(key, self.now());
        self.ledger.released().remove(key);
        self.remnants.set_stray(key, false);
        self.outbox.reports.forget(key);
        self.lives.forget(key);
        self.ledger.batch.forget(key.clone());
        self.set_registration_deferred(key, false);
        self.remove_outputs(key);
    }

    pub(super) fn commit(&mut self) -> Recorded {
        let begun = self.host.now();
        let written = self.ledger.write(clock::unix_millis() / 1000, self.registrations.has_deferred());
        let Some(Written { recorded, generation }) = written else { return Recorded::Ledger };
        let took = self.host.now().saturating_sub(begun);
        self.telemetry.metrics.committed(took, recorded == Recorded::Ledger);
        if let Some(generation) = generation {
            self.registrations.note_written(generation);
            self.outbox.send(FromAgent::Seen { generation });
        }
        recorded
    }
}

/// What must not be done because it is not recorded.
#[derive(Debug, Default, PartialEq, Eq)]
struct Unrecorded {
    refused: Vec<(ProcessKey, OperationId)>,
    /// Start commands that are not released.
    held: Vec<(ProcessKey, Ticket)>,
}

/// Removes from the pending actions everything that belongs to operations which begin now: up to their end, if that
/// is included, or to the start of the next operation.
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

/// What was deferred is not lost on a clean shutdown.
impl Drop for Driver {
    fn drop(&mut self) {
        self.commit();
        self.usage.write_all(wall_clock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proctor_model::{BootId, Code, Incarnation, Message, Outcome, Signal, TaskId};

    #[test]
    fn a_kill_that_follows_a_refused_operation_in_the_same_turn_is_carried_out() {
        let key: ProcessKey = "ns/p".parse().unwrap();
        let operation = |index| OperationId::first(TaskId::from_uuid(uuid::Uuid::nil()), index);
        let life = Incarnation { boot: BootId::from("boot"), pid: 7, start_ticks: 7, pidfd_inode: None };
        let outcome = Box::new(Outcome::new(Code::Cancelled, Message::foreign("cancelled"), true));
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
