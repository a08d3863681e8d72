//! Processes summed up over all their hosts.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use proctor_api::{GroupPage, GroupQuery, GroupSort, PhaseCounts, ProcessFilter, ProcessGroup};
use proctor_model::ProcessKey;
use proctor_store::{Fleet, FleetFilter, FleetProcess, FleetSpec, ProcessQuery, SpecNumber};
use serde::{Deserialize, Serialize};

use super::body::{Params, page_limit};
use super::caller::Authenticated;
use super::overview::count_of;
use super::processes::wanted;
use super::visible::is_unhealthy;
use super::{ApiState, Result, cursor};
use crate::control::SeenFleet;

/// Registered processes, each once with totals over its hosts.
#[utoipa::path(get, path = "/processes/groups", operation_id = "process_groups", params(GroupQuery), tag = "processes",
               responses((status = 200, body = GroupPage)))]
pub(super) async fn groups(
    caller: Authenticated,
    State(state): State<ApiState>,
    Params(query): Params<GroupQuery>,
) -> Result<Json<GroupPage>> {
    let limit = page_limit(query.limit)? as usize;
    let after: Option<Ranked> = cursor::decode(query.after.as_deref())?;
    let (sort, wanted) = (query.sort.unwrap_or_default(), narrowed(&caller, &state, &query.filter()).await?);
    let answer = move |seen: &SeenFleet| page(&Found::of(seen, &wanted), sort, limit, after.as_ref());
    Ok(Json(state.border.fleet_work.run(&state.control, &caller.who, answer).await?))
}

fn page(found: &Found<'_>, sort: GroupSort, limit: usize, after: Option<&Ranked>) -> GroupPage {
    let mut groups: Vec<(Ranked, Sums<'_>)> = found.groups(sort);
    let total = groups.len() as u64;
    groups.retain(|(position, _)| after.is_none_or(|after| position.is_behind(after)));
    groups.sort_by(|(one, _), (other, _)| one.compare(other));
    let has_more = groups.len() > limit;
    groups.truncate(limit);
    let next = groups.last().filter(|_| has_more).map(|(position, _)| cursor::encode(position));
    let groups = groups.into_iter().map(|(position, sums)| sums.view(position.key.to_string())).collect();
    GroupPage { at_ms: found.seen.at, groups, total, next }
}

/// What is asked of the fleet, narrowed to what the caller may see.
pub(super) async fn narrowed(caller: &Authenticated, state: &ApiState, filter: &ProcessFilter) -> Result<ProcessQuery> {
    let (query, host) = wanted(filter)?;
    let hosts = host.map(|host| [host]);
    Ok(state.control.narrowed(&caller.who, query, hosts.as_ref().map(<[_; 1]>::as_slice)).await?)
}

/// The processes that match.
struct Found<'a> {
    seen: &'a SeenFleet,
    /// Into the fleet's processes.
    processes: Vec<u32>,
}

impl<'a> Found<'a> {
    fn of(seen: &'a SeenFleet, query: &ProcessQuery) -> Self {
        let filter = FleetFilter::new(&seen.fleet, query);
        let all = (0..).zip(&seen.fleet.processes);
        let processes = all.filter(|(_, process)| filter.holds(process)).map(|(index, _)| index).collect();
        Self { seen, processes }
    }

    fn fleet(&self) -> &Arc<Fleet> {
        &self.seen.fleet
    }

    fn processes(&self) -> impl Iterator<Item = &FleetProcess> {
        self.processes.iter().map(|index| &self.fleet().processes[*index as usize])
    }

    fn groups(&self, sort: GroupSort) -> Vec<(Ranked, Sums<'_>)> {
        let mut sums: BTreeMap<u32, Sums<'_>> = BTreeMap::new();
        for process in self.processes() {
            sums.entry(process.key).or_default().add(self.fleet(), process);
        }
        let mut groups = Vec::with_capacity(sums.len());
        for (key, sums) in sums {
            let key = self.fleet().keys[key as usize].clone();
            groups.push((Ranked { rank: sums.rank(sort), key }, sums));
        }
        groups
    }
}

/// A position in the list of groups.
#[derive(Debug, Serialize, Deserialize)]
struct Ranked {
    rank: f64,
    key: ProcessKey,
}

impl Ranked {
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        other.rank.total_cmp(&self.rank).then_with(|| self.key.cmp(&other.key))
    }

    fn is_behind(&self, other: &Self) -> bool {
        self.compare(other).is_gt()
    }
}

/// One process, summed over its hosts.
#[derive(Default)]
struct Sums<'a> {
    total: u64,
    phases: PhaseCounts,
    online: u64,
    unhealthy: u64,
    restarts: u64,
    cpu_max: f32,
    memory_max: f32,
    phase_since_max: i64,
    numbers: HashSet<SpecNumber>,
    specs: Vec<&'a FleetSpec>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, fleet: &'a Fleet, process: &'a FleetProcess) {
        self.total += 1;
        *count_of(&mut self.phases, process.phase) += 1;
        self.online += u64::from(fleet.host(process).online);
        self.unhealthy += u64::from(is_unhealthy(process));
        self.restarts += u64::from(process.restarts);
        self.cpu_max = self.cpu_max.max(process.cpu);
        self.memory_max = self.memory_max.max(process.memory);
        self.phase_since_max = self.phase_since_max.max(process.phase_since);
        if self.numbers.insert(process.spec) {
            self.specs.push(fleet.spec(process));
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "these counts are far below 2^53")]
    fn rank(&self, sort: GroupSort) -> f64 {
        match sort {
            GroupSort::Name => 0.0,
            GroupSort::Total => self.total as f64,
            GroupSort::Failed => self.phases.failed as f64,
            GroupSort::Restarts => self.restarts as f64,
            GroupSort::Cpu => f64::from(self.cpu_max),
            GroupSort::Memory => f64::from(self.memory_max),
        }
    }

    fn view(self, process: String) -> ProcessGroup {
        let first = self.specs.first();
        let lifetime = first.map(|spec| spec.lifetime);
        let has_one_lifetime = self.specs.iter().all(|spec| Some(spec.lifetime) == lifetime);
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        for (key, value) in first.into_iter().flat_map(|spec| spec.labels.iter()) {
            if self.specs.iter().all(|spec| spec.labels.get(key) == Some(value)) {
                labels.insert(key.to_owned(), value.to_owned());
            }
        }
        ProcessGroup {
            process,
            lifetime: lifetime.filter(|_| has_one_lifetime),
            total: self.total,
            phases: self.phases,
            online: self.online,
            unhealthy: self.unhealthy,
            restarts: self.restarts,
            specs: self.specs.len() as u64,
            cpu_percent_max: f64::from(self.cpu_max),
            memory_percent_max: f64::from(self.memory_max),
            phase_since_max: Some(self.phase_since_max).filter(|since| *since > 0),
            labels,
        }
    }
}
