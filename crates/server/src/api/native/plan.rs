//! What an operation would do, with the current state of each process.
//!
//! Phases and presence come from the fleet in memory, so they may be a few seconds old, and are shown only for
//! processes that the caller may read.

use std::collections::{HashMap, HashSet};

use proctor_api::{Plan, PlannedTarget, Refusal};
use proctor_model::{Class, HostKey, Phase, ProcessKey};
use proctor_store::{FleetFilter, ProcessQuery};

use super::localized::localized;
use super::{ApiState, Result};
use crate::control::{Caller, Planned, SeenFleet};

pub(super) async fn view(state: &ApiState, caller: &Caller, planned: Vec<Planned>) -> Result<Plan> {
    if caller.require_anywhere(Class::Read).is_err() {
        return Ok(plan(planned, &Observed::default()));
    }
    let who = caller.clone();
    let answer = move |seen: &SeenFleet| {
        let observed = Observed::of(seen, &who, &planned);
        plan(planned, &observed)
    };
    Ok(state.border.fleet_work.run(&state.control, caller, answer).await?)
}

fn plan(planned: Vec<Planned>, observed: &Observed) -> Plan {
    let targets: Vec<PlannedTarget> = planned.into_iter().filter_map(|planned| target(planned, observed)).collect();
    let refused = targets.iter().filter(|target| target.refused.is_some()).count();
    Plan { total: targets.len(), refused, targets }
}

fn target(planned: Planned, observed: &Observed) -> Option<PlannedTarget> {
    let Planned { target, key, kind, outcome, note } = planned;
    let (phase, online) = target.host.as_ref().and_then(|host| observed.get(&key, host)).unzip();
    Some(PlannedTarget {
        host: target.host.map_or(target.row_key, |host| host.to_string()),
        process: key.to_string(),
        operation: kind?,
        phase,
        online,
        refused: outcome.map(|outcome| Refusal {
            code: outcome.code.number(),
            name: outcome.code.name().to_owned(),
            localized: localized(&outcome.message),
        }),
        note: note.as_ref().map(localized).unwrap_or_default(),
    })
}

/// The phase of each planned process that the caller may read, and whether its host is connected.
#[derive(Default)]
struct Observed {
    by_key: HashMap<ProcessKey, HashMap<HostKey, (Phase, bool)>>,
}

impl Observed {
    fn of(SeenFleet { fleet, .. }: &SeenFleet, caller: &Caller, planned: &[Planned]) -> Self {
        let mut by_key: HashMap<ProcessKey, HashMap<HostKey, (Phase, bool)>> = HashMap::new();
        let wanted: HashSet<&ProcessKey> = planned.iter().map(|planned| &planned.key).collect();
        let scopes = Some(caller.permissions.scopes(Class::Read).clone());
        let query = ProcessQuery { scopes, ..ProcessQuery::default() };
        let filter = FleetFilter::new(fleet, &query);
        let is_wanted: Vec<bool> = fleet.keys.iter().map(|key| wanted.contains(key)).collect();
        for process in fleet.processes.iter().filter(|process| is_wanted[process.key as usize]) {
            if filter.holds(process) {
                let host = fleet.host(process);
                let hosts = by_key.entry(fleet.key(process).clone()).or_default();
                hosts.insert(host.site.key, (process.phase, host.online));
            }
        }
        Self { by_key }
    }

    fn get(&self, key: &ProcessKey, host: &HostKey) -> Option<(Phase, bool)> {
        self.by_key.get(key)?.get(host).copied()
    }
}
