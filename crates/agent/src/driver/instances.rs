//! Processes with several instances: one spec, N machines `name#1` to `name#N`.
//!
//! To the server they are one process: one target, one outcome, one observation. Each instance is supervised
//! separately. An operation is split into parts with their own ids, so that each part takes effect at most once; the
//! outcome of the whole is known when the last part has finished.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use proctor_model::{Code, Message, OperationId, Outcome, Phase, ProcessKey, Snapshot, Spec, messages};
use proctor_supervise::{Event, Instance, Process, Request};

use super::Driver;
use super::reports::UsageSource;

/// The environment variable that tells a command its instance.
const INSTANCE_VARIABLE: &str = "PROCTOR_INSTANCE";

impl Driver {
    pub(super) fn operate_instances(&mut self, key: &ProcessKey, request: Request) {
        let Request { operation, kind, spec: Some(spec), expires } = request else { return };
        if self.operations.is_split(operation) {
            return; // delivered again
        }
        let mut parts = BTreeMap::new();
        for number in 1..=spec.instances() {
            let part = operation.part(number);
            let outcome = self.ledger.outcome(part);
            if outcome.is_none() {
                let of_instance = match spec.instance(number) {
                    Ok(spec) => Arc::new(spec),
                    Err(error) => {
                        let message = messages::of_instance(number, error.message());
                        return self.finish(operation, Outcome::new(Code::CommandFailed, message, false));
                    }
                };
                let of_key = self.make_instance(key, number, &of_instance);
                let request = Request { operation: part, kind, spec: Some(of_instance), expires };
                self.dispatch_event(&of_key, Event::Requested(request));
            }
            parts.insert(number, outcome);
        }
        self.operations.split(operation, parts);
        self.finish_instances(operation);
    }

    /// The same for the instances that are registered, where an operation brings no spec.
    pub(super) fn operate_registered(&mut self, key: &ProcessKey, request: &Request) {
        let numbered = |process: &Process| Some((process.instance()?.number, process.key().clone()));
        let instances: Vec<(u32, ProcessKey)> = self.processes.instances_of(key).filter_map(numbered).collect();
        let mut parts = BTreeMap::new();
        for (number, of_key) in instances {
            let part = Request { operation: request.operation.part(number), ..request.clone() };
            // Delivered again after a restart of the agent, it may have ended for some.
            let outcome = self.ledger.outcome(part.operation);
            if outcome.is_none() {
                self.dispatch_event(&of_key, Event::Requested(part));
            }
            parts.insert(number, outcome);
        }
        self.operations.split(request.operation, parts);
        self.finish_instances(request.operation);
    }

    /// A part has ended; the whole ends with the last one. Without a gathering (the agent has just
    /// restarted) the ledger keeps the part until the operation is delivered again.
    pub(super) fn collect_instance_outcome(&mut self, part: OperationId, outcome: Outcome) {
        if self.operations.end_part(part, outcome) {
            self.finish_instances(part.whole());
        }
    }

    fn finish_instances(&mut self, whole: OperationId) {
        if let Some(parts) = self.operations.take_complete(whole) {
            self.finish(whole, joined(&parts));
        }
    }

    pub(super) fn assign_instances(&mut self, key: &ProcessKey, spec: &Arc<Spec>, managed: bool, registered_at: i64) {
        for number in 1..=spec.instances() {
            match spec.instance(number) {
                Ok(of_instance) => {
                    let of_instance = Arc::new(of_instance);
                    let is_new = !self.processes.contains(&key.instance(number));
                    let of_key = self.make_instance(key, number, &of_instance);
                    let managed = is_new && self.is_managed_on_assign(&of_key, managed, registered_at);
                    self.assign_spec(&of_key, of_instance, managed, registered_at);
                }
                Err(error) => tracing::error!(process = %key, number, %error, "cannot create instance"),
            }
        }
    }

    fn make_instance(&mut self, key: &ProcessKey, number: u32, spec: &Arc<Spec>) -> ProcessKey {
        let of_key = key.instance(number);
        if !self.processes.contains(&of_key) {
            let instance = Instance { of: key.name.clone(), number };
            let process = Process::new_instance(of_key.clone(), spec.clone(), instance, self.processes.seed());
            self.insert_new(process);
        }
        of_key
    }

    /// Releases what a registration no longer covers: all but the first `instances` of the process.
    pub(super) fn forget_others(&mut self, key: &ProcessKey, instances: u32) {
        let covered: HashSet<ProcessKey> = match instances {
            0 => HashSet::new(),
            1 => HashSet::from([key.clone()]),
            several => (1..=several).map(|number| key.instance(number)).collect(),
        };
        let mut others: Vec<ProcessKey> =
            self.processes.instances_of(key).map(|process| process.key().clone()).collect();
        others.extend(self.processes.get(key).map(|process| process.key().clone()));
        for other in others.into_iter().filter(|other| !covered.contains(other)) {
            self.dispatch_event(&other, Event::Unregistered);
        }
    }

    /// What the server gets: one instance stands for all of them.
    pub(super) fn observation_of(&self, process: &Process, usages: &dyn UsageSource) -> (ProcessKey, Snapshot) {
        let Some(instance) = process.instance() else {
            return (process.key().clone(), self.snapshot_of(process, usages.of(process)));
        };
        let key = ProcessKey::new(process.key().namespace.clone(), instance.of.clone());
        let numbered =
            |process: &Process| Some((process.instance()?.number, self.snapshot_of(process, usages.of(process))));
        let mut all: Vec<(u32, Snapshot)> = self.processes.instances_of(&key).filter_map(numbered).collect();
        all.sort_by_key(|(number, _)| *number);
        (key, summary(&all))
    }

    /// What every command of a process finds in its environment; the only instance is the first.
    pub(super) fn environment_of(&self, key: &ProcessKey) -> Vec<(String, String)> {
        let instance = self.processes.get(key).and_then(Process::instance);
        vec![(INSTANCE_VARIABLE.to_owned(), instance.map_or(1, |instance| instance.number).to_string())]
    }
}

/// One result for all parts: a failure if there is one. "Runs already" and "not running" count only if all parts
/// agree: otherwise the rest has reached the goal, and so has the whole.
fn joined(parts: &[(u32, Outcome)]) -> Outcome {
    let is_moot = |code| matches!(code, Code::AlreadyRunning | Code::NotRunning);
    let failed = parts.iter().find(|(_, outcome)| !outcome.code.is_success() && !is_moot(outcome.code));
    let succeeded = parts.iter().find(|(_, outcome)| outcome.code.is_success());
    let Some((_, word)) = failed.or(succeeded).or_else(|| parts.first()) else {
        return Outcome::new(Code::CommandFailed, messages::no_instances(), false);
    };
    let said = |text: fn(&Outcome) -> &str| {
        let lines = parts.iter().filter(|(_, outcome)| !text(outcome).is_empty());
        lines.map(|(number, outcome)| format!("instance {number}: {}", text(outcome))).collect::<Vec<_>>().join("\n")
    };
    let told = || {
        let lines = parts.iter().filter(|(_, outcome)| !outcome.message.is_empty());
        lines.map(|(number, outcome)| messages::of_instance(number, outcome.message.clone())).collect::<Vec<_>>()
    };
    let message = if word.code.is_success() { word.message.clone() } else { lines(&told()) };
    Outcome {
        code: word.code,
        message,
        output: said(|outcome| &outcome.output),
        managed: parts.iter().all(|(_, outcome)| outcome.managed),
        snapshot: None,
        instances: Vec::new(),
    }
}

/// One below the other. They are put together two by two, so that a message stays shallow.
fn lines(all: &[Message]) -> Message {
    match all {
        [] => Message::default(),
        [only] => only.clone(),
        several => {
            let (first, second) = several.split_at(several.len() / 2);
            messages::two_lines(lines(first), lines(second))
        }
    }
}

/// The state of all instances as one: the first that is not well speaks.
pub(super) fn summary(all: &[(u32, Snapshot)]) -> Snapshot {
    let ill = all.iter().find(|(_, snapshot)| snapshot.phase != Phase::Running);
    let Some((number, word)) = ill.or_else(|| all.first()) else { return Snapshot::default() };
    let mut summary = word.clone();
    summary.managed = all.iter().all(|(_, snapshot)| snapshot.managed);
    summary.restarts = all.iter().map(|(_, snapshot)| snapshot.restarts).sum();
    summary.usage.cpu_percent = all.iter().map(|(_, snapshot)| snapshot.usage.cpu_percent).sum();
    summary.usage.memory_percent = all.iter().map(|(_, snapshot)| snapshot.usage.memory_percent).sum();
    summary.usage.fds = all.iter().map(|(_, snapshot)| snapshot.usage.fds).sum();
    if !summary.reason.is_empty() {
        summary.set_reason(messages::reason_of_instance(number, word.reason()));
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(code: Code) -> Outcome {
        Outcome::new(code, Message::foreign(code.name()), true)
    }

    #[test]
    fn a_failure_of_one_instance_is_the_failure_of_all() {
        let parts = [(1, outcome(Code::Success)), (2, outcome(Code::CheckFailed))];

        let whole = joined(&parts);

        assert_eq!(whole.code, Code::CheckFailed);
        assert!(whole.message.contains("instance 2: check_failed"), "{}", whole.message);
    }

    #[test]
    fn who_runs_already_does_not_spoil_the_start_of_the_others() {
        let mixed = [(1, outcome(Code::AlreadyRunning)), (2, outcome(Code::Success))];
        let all = [(1, outcome(Code::AlreadyRunning)), (2, outcome(Code::AlreadyRunning))];

        assert_eq!(joined(&mixed).code, Code::Success);
        assert_eq!(joined(&all).code, Code::AlreadyRunning);
    }
}
