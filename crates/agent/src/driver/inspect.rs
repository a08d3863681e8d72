//! Live status: inspects the host, not memory.
//!
//! Promised: a status query runs no commands but those of the registered spec. The spec sent with it only says where
//! to look for a process that is not registered here. What it saw is passed to the machine of the process only if
//! that machine looks in the same place and has learned of no other life since.

use std::sync::Arc;

use proctor_host::{Host, MeasuredLife};
use proctor_model::{
    Code, Incarnation, Message, OperationId, Outcome, Phase, Probe, ProcessKey, Snapshot, Spec, Usage, messages,
};
use proctor_runtime::clock;
use proctor_supervise::{Event, Process};

use super::admission::{AdmissionGate, CommandPurpose};
use super::answers::PANICKED;
use super::execute::{VERSION_TIMEOUT, command_of, probe_or_known, version_from};
use super::instances::summary;
use super::limits::cgroup_name;
use super::{Driver, Input};

impl Driver {
    /// Answers a status query from a fresh probe. An unknown process is absent.
    pub(super) fn inspect(&mut self, operation: OperationId, key: ProcessKey, spec: Option<Arc<Spec>>) {
        if !self.operations.begin_status(operation) {
            return; // delivered again
        }
        let inspections = self.inspections_of(&key, spec);
        let host = self.host.clone();
        let failed = Box::new(Outcome::new(Code::CommandFailed, messages::because(PANICKED), false));
        let owed = self.workers.owed(Input::Inspected { operation, sightings: Vec::new(), outcome: failed });
        self.workers.spawn("status", async move {
            let mut seen = Vec::with_capacity(inspections.len());
            for inspection in inspections {
                seen.push(inspection.look(&host).await);
            }
            let (sightings, snapshots): (Vec<Option<Sighting>>, Vec<Snapshot>) = seen.into_iter().unzip();
            let mut outcome = Outcome::success(snapshots.iter().all(|snapshot| snapshot.managed));
            if let [only] = &snapshots[..] {
                outcome.snapshot = Some(only.clone());
            } else {
                outcome.snapshot = Some(summary(&(1..).zip(snapshots.clone()).collect::<Vec<_>>()));
                outcome.instances = snapshots;
            }
            let sightings = sightings.into_iter().flatten().collect();
            let outcome = Box::new(outcome.fitted());
            owed.send(Input::Inspected { operation, sightings, outcome }).await;
        });
    }

    /// Passes a life that a status query has seen to its machine. The result may be old when it arrives: a version
    /// command was waited for, and the process was restarted, or registered again, meanwhile.
    pub(super) fn take_sighting(&mut self, sighting: Sighting) {
        let Sighting { key, spec, known, life } = sighting;
        let is_news = |process: &Process| {
            let is_same = process.spec().identity == spec.identity && process.life() == known.as_ref();
            // The machine is notified of the exit of a life it knows anyway.
            is_same && (known.as_ref() == Some(&life) || self.host.is_alive(&life))
        };
        if self.processes.get(&key).is_some_and(is_news) {
            self.dispatch_event(&key, Event::Observed(Probe::Running(life)));
        }
    }

    /// One for each instance.
    fn inspections_of(&self, key: &ProcessKey, given: Option<Arc<Spec>>) -> Vec<StatusProbe> {
        let mut keys: Vec<(u32, ProcessKey)> = self
            .processes
            .instances_of(key)
            .filter_map(|process| Some((process.instance()?.number, process.key().clone())))
            .collect();
        keys.sort();
        if keys.is_empty() {
            keys.push((0, key.clone()));
        }
        keys.into_iter().map(|(_, key)| self.inspection_of(key, given.clone())).collect()
    }

    fn inspection_of(&self, key: ProcessKey, given: Option<Arc<Spec>>) -> StatusProbe {
        let process = self.processes.get(&key);
        let spec = process.map(|process| process.spec().clone()).or(given);
        let may_run = process.is_some_and(Process::is_registered);
        StatusProbe {
            gate: may_run.then(|| spec.clone()).flatten().map(|spec| self.gate(&key, spec, CommandPurpose::Other)),
            spec,
            known: process.and_then(|process| process.life().cloned()),
            shown: process.and_then(|process| process.shown().cloned()),
            since: process.and_then(Process::shown_since),
            launched: process.and_then(Process::launch_since),
            snapshot: process.map_or_else(bare_snapshot, |process| self.snapshot_of(process, Usage::default())),
            version: self.lives.last_version(&key).cloned(),
            environment: self.environment_of(&key),
            key,
        }
    }

    /// What is known about a process without a probe; `usage` is that of its current life.
    pub(super) fn snapshot_of(&self, process: &Process, usage: Usage) -> Snapshot {
        let life = process.shown();
        let version = life.and_then(|life| self.lives.version_of(process.key(), life));
        let mut snapshot = Snapshot {
            phase: process.phase(),
            managed: process.managed(),
            version: version.unwrap_or_default().to_owned(),
            registered_at: process.registered_at(),
            restarts: process.restarts(),
            health: process.health().to_owned(),
            next_run_at: self.schedules.next_run(process.key(), &self.host).unwrap_or(0),
            ..bare_snapshot()
        };
        snapshot.set_reason(process.reason());
        if let Some(life) = life {
            snapshot.pid = Some(life.pid);
            snapshot.started_at = self.host.started_at(life);
            snapshot.usage = usage;
        }
        snapshot
    }
}

/// A life that a status query has seen.
#[derive(Debug)]
pub(crate) struct Sighting {
    key: ProcessKey,
    /// By which it was looked for.
    spec: Arc<Spec>,
    /// The life that was known then.
    known: Option<Incarnation>,
    life: Incarnation,
}

/// What to probe, and what is known about it.
struct StatusProbe {
    key: ProcessKey,
    spec: Option<Arc<Spec>>,
    /// None where no command may run.
    gate: Option<AdmissionGate>,
    known: Option<Incarnation>,
    /// That life, or the scheduled run in progress.
    shown: Option<Incarnation>,
    /// When what is shown was launched.
    since: Option<u64>,
    /// When the start command in progress began: its process may be there without being known yet.
    launched: Option<u64>,
    snapshot: Snapshot,
    /// The version of a life that was asked already.
    version: Option<(Incarnation, String)>,
    environment: Vec<(String, String)>,
}

impl StatusProbe {
    async fn look(self, host: &Host) -> (Option<Sighting>, Snapshot) {
        let Self { key, spec, gate, known, shown, since, launched, mut snapshot, version, environment } = self;
        let Some(spec) = spec else {
            snapshot.set_reason(messages::process_not_registered(&key));
            return (None, snapshot);
        };
        let look = match host.probe_now(&spec.identity, known.as_ref()) {
            Some(look) => look,
            None => probe_or_known(host, &key, &spec.identity, known.clone()).await,
        };
        match &look {
            Probe::Running(life) => {
                snapshot.pid = Some(life.pid);
                snapshot.started_at = host.started_at(life);
                let since = if shown.as_ref() == Some(life) { since } else { launched };
                let of = MeasuredLife { life: life.clone(), leaf: cgroup_name(&key), since };
                snapshot.usage = host.usage(of).await.unwrap_or_default();
                // Before the machine knows about it, as everywhere else.
                if known.is_some() || snapshot.phase != Phase::Starting {
                    snapshot.phase = Phase::Running;
                }
                snapshot.set_reason(Message::default());
                snapshot.version = match (version, gate) {
                    (Some((of, version)), _) if of == *life => version,
                    (Some(_) | None, Some(gate)) => ask_version(host, gate, &key, &spec, environment).await,
                    (Some(_) | None, None) => String::new(),
                };
            }
            Probe::Absent(_) | Probe::Dead { .. } | Probe::Unclear { .. }
                if shown.as_ref().is_some_and(|shown| host.is_alive(shown)) =>
            {
                if let Some(life) = shown {
                    let of = MeasuredLife { life, leaf: cgroup_name(&key), since };
                    snapshot.usage = host.usage(of).await.unwrap_or_default();
                }
            }
            Probe::Absent(reason) | Probe::Dead { reason, .. } | Probe::Unclear { reason, .. } => {
                snapshot.pid = None;
                snapshot.usage = Usage::default();
                snapshot.set_reason(reason.clone());
                if matches!(look, Probe::Unclear { .. }) {
                    snapshot.phase = Phase::Unknown;
                }
            }
        }
        let sighting = match look {
            Probe::Running(life) => Some(Sighting { key, spec, known, life }),
            Probe::Absent(_) | Probe::Dead { .. } | Probe::Unclear { .. } => None,
        };
        (sighting, snapshot)
    }
}

async fn ask_version(
    host: &Host,
    gate: AdmissionGate,
    key: &ProcessKey,
    spec: &Spec,
    environment: Vec<(String, String)>,
) -> String {
    let Some(line) = &spec.control.version else { return String::new() };
    if gate.open().await.is_err() {
        return String::new();
    }
    // Its own name: another query may be in progress.
    let command = command_of(key, "version-now", line.as_str(), spec, VERSION_TIMEOUT, environment);
    version_from(host.run(command).await)
}

fn bare_snapshot() -> Snapshot {
    let now = clock::unix_millis() / 1000;
    let offset = jiff::Timestamp::from_second(now)
        .map(|time| jiff::tz::TimeZone::system().to_offset(time).seconds())
        .unwrap_or(0);
    Snapshot { phase: Phase::Stopped, reported_at: now, utc_offset_secs: offset, ..Snapshot::default() }
}

#[cfg(test)]
mod tests {
    use proctor_runtime::Tasks;

    use super::*;

    #[tokio::test]
    async fn a_process_that_its_machine_does_not_know_yet_is_starting() {
        let (dir, tasks) = (tempfile::TempDir::new().unwrap(), Tasks::default());
        let host = Host::new(proctor_host::Options::new(dir.path().join("state")), &tasks).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid_path = dir.path().join("p.pid");
        std::fs::write(&pid_path, child.id().to_string()).unwrap();
        let spec = proctor_model::samples::spec(|spec| {
            spec.identity.proc_name = "sleep".parse().unwrap();
            spec.identity.pid_path = pid_path.to_str().unwrap().parse().unwrap();
        });
        let probe = |phase, known: Option<Incarnation>| StatusProbe {
            key: "ns/p".parse().unwrap(),
            spec: Some(spec.clone()),
            gate: None,
            shown: known.clone(),
            known,
            since: None,
            launched: None,
            snapshot: Snapshot { phase, ..bare_snapshot() },
            version: None,
            environment: Vec::new(),
        };

        let (seen, starting) = probe(Phase::Starting, None).look(&host).await;
        let life = seen.expect("it runs").life;
        let (_, known) = probe(Phase::Starting, Some(life)).look(&host).await;
        let (_, found) = probe(Phase::Stopped, None).look(&host).await;
        child.kill().unwrap();
        child.wait().unwrap();

        assert_eq!([starting.phase, known.phase, found.phase], [Phase::Starting, Phase::Running, Phase::Running]);
        assert_eq!(starting.pid, i32::try_from(child.id()).ok());
        assert!(tasks.end(std::time::Duration::from_secs(60)).await);
    }
}
