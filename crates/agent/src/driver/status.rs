//! Live status: a look at the host, not at memory.

use std::sync::Arc;

use proctor_model::{Incarnation, Look, OperationId, Outcome, ProcessKey, Snapshot, Spec};
use proctor_runtime::clock;
use proctor_supervise::Process;

use super::act::{VERSION_TIMEOUT, command_of, look_or_known, version_from};
use super::{Driver, Input};

impl Driver {
    /// Answers a status query from a fresh look. A process that is not known here is absent.
    pub(super) fn inspect(&mut self, operation: OperationId, key: ProcessKey, spec: Option<Arc<Spec>>) {
        if !self.inspecting.insert(operation) {
            return; // delivered again
        }
        let process = self.processes.get(&key);
        let spec = process.map(|process| process.spec().clone()).or(spec);
        let known = process.and_then(|process| process.life().cloned());
        let snapshot = process.map_or_else(bare_snapshot, |process| self.snapshot_of(process));
        let version = self.versions.get(&key).cloned();
        let (host, inbox) = (self.host.clone(), self.inbox.clone());
        self.tasks.spawn("status", async move {
            let inspection = Inspection { host: &host, key: &key, version, snapshot };
            let (look, snapshot) = match &spec {
                Some(spec) => inspection.look(spec, known).await,
                None => {
                    let reason = "the process is not registered on this host".to_owned();
                    (Look::Absent(reason.clone()), Snapshot { reason, ..inspection.snapshot })
                }
            };
            let mut outcome = Outcome::success(snapshot.managed);
            outcome.snapshot = Some(snapshot);
            let outcome = Box::new(outcome);
            let _ = inbox.send(Input::Inspected { operation, key, look, outcome }).await;
        });
    }

    /// What is known of a process without a look.
    pub(super) fn snapshot_of(&self, process: &Process) -> Snapshot {
        let life = process.life();
        let version = life.and_then(|life| self.versions.get(process.key()).filter(|(of, _)| of == life));
        let mut snapshot = Snapshot {
            phase: process.phase(),
            managed: process.managed(),
            version: version.map(|(_, version)| version.clone()).unwrap_or_default(),
            registered_at: process.registered_at(),
            restarts: process.restarts(),
            reason: process.reason().to_owned(),
            health: process.health().to_owned(),
            next_run_at: self.schedules.next_run(process.key()).unwrap_or(0),
            ..bare_snapshot()
        };
        if let Some(life) = life {
            fill_life(&mut snapshot, &self.host, life);
        }
        snapshot
    }
}

struct Inspection<'a> {
    host: &'a proctor_host::Host,
    key: &'a ProcessKey,
    /// The version of a life that was asked already.
    version: Option<(Incarnation, String)>,
    snapshot: Snapshot,
}

impl Inspection<'_> {
    async fn look(self, spec: &Spec, known: Option<Incarnation>) -> (Look, Snapshot) {
        let mut snapshot = self.snapshot;
        let look = look_or_known(self.host, &spec.identity, known).await;
        match &look {
            Look::Running(life) => {
                fill_life(&mut snapshot, self.host, life);
                snapshot.phase = proctor_model::Phase::Running;
                snapshot.reason.clear();
                snapshot.version = match self.version {
                    Some((of, version)) if of == *life => version,
                    Some(_) | None => ask_version(self.host, self.key, spec).await,
                };
            }
            Look::Absent(reason) | Look::Dead { reason, .. } => {
                snapshot.pid = None;
                snapshot.usage = proctor_model::Usage::default();
                snapshot.reason = reason.clone();
            }
        }
        (look, snapshot)
    }
}

async fn ask_version(host: &proctor_host::Host, key: &ProcessKey, spec: &Spec) -> String {
    match &spec.control.version {
        // A name of its own: another ask may be under way.
        Some(line) => {
            version_from(host.run(command_of(key, "version-now", line.as_str(), spec, VERSION_TIMEOUT)).await)
        }
        None => String::new(),
    }
}

fn fill_life(snapshot: &mut Snapshot, host: &proctor_host::Host, life: &Incarnation) {
    snapshot.pid = Some(life.pid);
    snapshot.started_at = host.started_at(life);
    snapshot.usage = host.usage(life).unwrap_or_default();
}

fn bare_snapshot() -> Snapshot {
    let now = clock::unix_millis() / 1000;
    let offset = jiff::Timestamp::from_second(now)
        .map(|time| jiff::tz::TimeZone::system().to_offset(time).seconds())
        .unwrap_or(0);
    Snapshot { phase: proctor_model::Phase::Stopped, reported_at: now, utc_offset_secs: offset, ..Snapshot::default() }
}
