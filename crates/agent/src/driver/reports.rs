//! Reports to the server: outcomes at once, process changes in batches, and the usage of all processes periodically.

use std::collections::{HashMap, HashSet};

use proctor_host::{Host, MeasuredLife};
use proctor_model::{OperationId, OperationKind, Outcome, Phase, ProcessKey, Snapshot, Usage};
use proctor_supervise::Process;
use proctor_wire::FromAgent;

use super::limits::cgroup_name;
use super::{Driver, Input};

/// Observations per frame, and roughly how many bytes: what is more urgent waits until a frame is out.
const OBSERVATIONS_MAX: usize = 500;
const OBSERVATION_BYTES_MAX: usize = 8 * 1024;
/// The size of an observation without its texts.
const OBSERVATION_BYTES: usize = 160;

/// Who knows what processes use.
pub(super) trait UsageSource {
    fn of(&self, process: &Process) -> Usage;
}

impl UsageSource for HashMap<ProcessKey, Usage> {
    fn of(&self, process: &Process) -> Usage {
        self.get(process.key()).cloned().unwrap_or_default()
    }
}

/// For a few that have changed: measured now, without their children.
impl UsageSource for Host {
    fn of(&self, process: &Process) -> Usage {
        measured_of(process).and_then(|of| self.usage_alone(&of)).unwrap_or_default()
    }
}

/// What is shown as the process, with everything charged to it: the same as for limits.
fn measured_of(process: &Process) -> Option<MeasuredLife> {
    let life = process.shown()?.clone();
    Some(MeasuredLife { life, leaf: cgroup_name(process.key()), since: process.shown_since() })
}

/// The part of a process that is worth its own report.
type ReportedState = (Phase, bool, Option<i32>, u32, &'static str);

/// Processes that may have changed, and what was last sent to the server about each.
#[derive(Debug, Default)]
pub(super) struct Reports {
    touched: HashSet<ProcessKey>,
    told: HashMap<ProcessKey, ReportedState>,
    /// Whether everything is being measured.
    measuring: bool,
}

impl Reports {
    pub(super) fn touch(&mut self, key: ProcessKey) {
        self.touched.insert(key);
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.touched.is_empty()
    }

    /// What was sent about it no longer counts.
    pub(super) fn forget(&mut self, key: &ProcessKey) {
        self.told.remove(key);
    }

    pub(super) fn forget_all(&mut self) {
        self.told.clear();
    }

    /// True: the server does not know this yet.
    fn is_new(&mut self, process: &Process) -> bool {
        let pid = process.shown().map(|life| life.pid);
        // A rollout waits for the first good answer of the health command.
        let reported = (process.phase(), process.managed(), pid, process.restarts(), process.health());
        self.told.insert(process.key().clone(), reported) != Some(reported)
    }
}

impl Driver {
    pub(super) fn finish(&mut self, operation: OperationId, outcome: Outcome) {
        let outcome = outcome.fitted();
        self.ledger.batch.outcomes.push((operation, outcome.clone()));
        if operation.part > 0 {
            return self.collect_instance_outcome(operation, outcome);
        }
        self.answer(operation, outcome);
    }

    /// Resends the outcome of a redelivered operation. Others may have finished since: it says whether the process is
    /// managed now. False: it has not finished.
    pub(super) fn tell_known_outcome(&mut self, operation: OperationId, key: &ProcessKey, kind: OperationKind) -> bool {
        let managed = self.processes.get(key).map(Process::managed);
        let now = |outcome: Outcome| Outcome { managed: managed.unwrap_or(outcome.managed), ..outcome };
        if let Some(outcome) = self.outbox.outcome(&operation).cloned() {
            // The present link has carried it, or will.
            self.outbox.send(FromAgent::Outcome { operation, outcome: now(outcome) });
            return true;
        }
        let known = if kind == OperationKind::Status { None } else { self.ledger.outcome(operation) };
        let Some(outcome) = known else { return false };
        self.outbox.put(operation, now(outcome));
        true
    }

    /// Reports the processes that have changed since they were last reported.
    pub(super) fn report_changes(&mut self) {
        let touched = std::mem::take(&mut self.outbox.reports.touched);
        if !self.outbox.is_connected() {
            return;
        }
        let processes = touched.iter().filter_map(|key| self.processes.get(key));
        let changed: Vec<&Process> = processes.filter(|process| self.outbox.reports.is_new(process)).collect();
        self.host.note_command_lines(changed.iter().filter_map(|process| process.shown()));
        let observations = changed.into_iter().map(|process| self.observation_of(process, &self.host)).collect();
        self.send_observations(observations);
    }

    /// Measures everything that runs, off this thread, then records it and reports everything to the server.
    pub(super) fn measure_all(&mut self) {
        if std::mem::replace(&mut self.outbox.reports.measuring, true) {
            return;
        }
        let running = self.processes.all().filter_map(|process| Some((process.key().clone(), measured_of(process)?)));
        let (keys, lives): (Vec<ProcessKey>, Vec<MeasuredLife>) = running.unzip();
        let host = self.host.clone();
        let owed = self.workers.owed(Input::Measured(HashMap::new()));
        self.workers.spawn("measure", async move {
            let usages = host.usages(lives).await;
            let measured = keys.into_iter().zip(usages).filter_map(|(key, usage)| Some((key, usage?)));
            owed.send(Input::Measured(measured.collect())).await;
        });
    }

    /// On a new session. A server that is up to date gets nothing now, and usage with the next report.
    pub(super) fn begin_reports(&mut self, is_state_known: bool) {
        if is_state_known && self.registrations.held.is_as_greeted(self.observed_hash()) {
            for process in self.processes.all() {
                self.outbox.reports.is_new(process);
            }
            return;
        }
        self.report_all(&HashMap::new());
        self.measure_all();
    }

    pub(super) fn report_all(&mut self, measured: &HashMap<ProcessKey, Usage>) {
        self.outbox.reports.measuring = false;
        if self.outbox.is_connected() {
            let all = self.reported().map(|process| self.observation_of(process, measured)).collect();
            self.send_observations(all);
        }
    }

    /// One for each registration.
    pub(super) fn reported(&self) -> impl Iterator<Item = &Process> {
        self.processes.all().filter(|process| process.instance().is_none_or(|one| one.number == 1))
    }

    fn send_observations(&mut self, mut observations: Vec<(ProcessKey, Snapshot)>) {
        while !observations.is_empty() {
            let rest = observations.split_off(fitting(&observations));
            self.outbox.send(FromAgent::Observed { observations });
            observations = rest;
        }
    }
}

/// How many of them, at least one, go into one frame.
fn fitting(observations: &[(ProcessKey, Snapshot)]) -> usize {
    let mut bytes = 0;
    let fits = |observation: &&(ProcessKey, Snapshot)| {
        bytes += bytes_of(observation);
        bytes <= OBSERVATION_BYTES_MAX
    };
    observations.iter().take(OBSERVATIONS_MAX).take_while(fits).count().max(1)
}

fn bytes_of((key, snapshot): &(ProcessKey, Snapshot)) -> usize {
    let Usage { state, command_line, .. } = &snapshot.usage;
    let texts = [key.namespace.as_str(), key.name.as_str(), &snapshot.version, &snapshot.health, state, command_line];
    // The reason goes as text, and once more with its arguments.
    OBSERVATION_BYTES + texts.iter().map(|text| text.len()).sum::<usize>() + 3 * snapshot.reason.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(command_line_bytes: usize) -> (ProcessKey, Snapshot) {
        let usage = Usage { command_line: "x".repeat(command_line_bytes), ..Usage::default() };
        ("web/nginx".parse().unwrap(), Snapshot { usage, ..Snapshot::default() })
    }

    #[test]
    fn a_frame_of_observations_is_bounded_by_bytes_and_takes_one_at_least() {
        let small = vec![observation(20); 2 * OBSERVATIONS_MAX];
        let large = vec![observation(OBSERVATION_BYTES_MAX); 2];

        let count = fitting(&small);

        assert!((20..60).contains(&count), "{count}");
        let frame = proctor_wire::encode_part(FromAgent::Observed { observations: small[..count].to_vec() });
        assert!(frame.len() <= OBSERVATION_BYTES_MAX, "{}", frame.len());
        assert_eq!(fitting(&large), 1);
    }
}
