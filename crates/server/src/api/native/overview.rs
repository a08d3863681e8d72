//! The whole fleet at a glance: counted, ranked by what needs attention, and as a map.

use std::collections::{HashMap, HashSet};

use axum::Json;
use axum::extract::State;
use proctor_api::{
    AgentVersion, EndingCertificate, FleetMap, HostCounts, HostState, Overview, PhaseCounts, ProcessCounts, TaskCounts,
};
use proctor_model::{AgentId, Class, Phase};
use proctor_store::{Fleet, FleetFilter, FleetHost, FleetProcess, Health, ProcessQuery, RolloutState, TaskQuery};

use super::attention::{self, Agents};
use super::caller::Authenticated;
use super::{ApiState, Result};
use crate::control::{Caller, Control, SeenFleet, is_inside};

const TASKS_COUNTED_MAX: u32 = 1000;
const VERSIONS_MAX: usize = 50;
const CERTIFICATES_MAX: usize = 20;

/// How many hosts and processes there are in which state, and what needs attention.
#[utoipa::path(get, path = "/overview", operation_id = "overview", tag = "overview",
               responses((status = 200, body = Overview)))]
pub(super) async fn show(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<Overview>> {
    let tasks = tasks(&state.control, &caller.who).await?;
    let (control, who) = (state.control.clone(), caller.who.clone());
    let answer = move |seen: &SeenFleet| overview(seen, &control, &who, tasks);
    Ok(Json(state.border.fleet_work.run(&state.control, &caller.who, answer).await?))
}

fn overview(SeenFleet { fleet, at }: &SeenFleet, control: &Control, caller: &Caller, tasks: TaskCounts) -> Overview {
    let seen = Visible::new(fleet, caller, control);
    let agents = Agents::of(&seen, control, at / 1000);
    let attention = attention::ranked(&seen, &agents);
    let mut ending = agents.certificates_ending;
    ending.sort_by_key(|(_, expires_at)| *expires_at);
    let certificates_ending_total = ending.len();
    let certificate =
        |(host, expires_at): (&FleetHost, i64)| EndingCertificate { host: host.site.key.to_string(), expires_at };
    Overview {
        at_ms: *at,
        hosts: seen.count_hosts(),
        processes: seen.count_processes(),
        tasks,
        attention_total: attention.len(),
        attention: attention.into_iter().take(attention::LINES_MAX).collect(),
        agent_versions: versions(&seen),
        certificates_ending: ending.into_iter().take(CERTIFICATES_MAX).map(certificate).collect(),
        certificates_ending_total,
    }
}

/// One cell for each host, with the worst that is known of its processes.
#[utoipa::path(get, path = "/overview/map", operation_id = "fleet_map", tag = "overview",
               responses((status = 200, body = FleetMap)))]
pub(super) async fn map(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<FleetMap>> {
    let (control, who) = (state.control.clone(), caller.who.clone());
    let answer = move |seen: &SeenFleet| fleet_map(seen, &control, &who);
    Ok(Json(state.border.fleet_work.run(&state.control, &caller.who, answer).await?))
}

fn fleet_map(SeenFleet { fleet, at }: &SeenFleet, control: &Control, caller: &Caller) -> FleetMap {
    let seen = Visible::new(fleet, caller, control);
    let mut worst = vec![HostState::Empty; fleet.hosts.len()];
    for process in seen.processes() {
        let of_host = &mut worst[process.host as usize];
        *of_host = (*of_host).max(host_state(process.phase));
    }
    let mut map = FleetMap { at_ms: *at, hosts: Vec::new(), business: Vec::new(), worst: Vec::new() };
    for (host, worst) in fleet.hosts.iter().zip(worst).filter(|(host, _)| seen.has_host(host)) {
        map.hosts.push(host.site.key.to_string());
        map.business.push(host.site.business);
        map.worst.push(match host.online {
            true => worst,
            false if seen.is_unreachable(host) => HostState::Unreachable,
            false => HostState::Away,
        });
    }
    map
}

fn host_state(phase: Phase) -> HostState {
    match phase {
        Phase::Running => HostState::Running,
        Phase::Stopped => HostState::Stopped,
        Phase::Starting | Phase::Stopping | Phase::Waiting => HostState::Changing,
        Phase::Unknown => HostState::Unknown,
        Phase::Failed => HostState::Failed,
    }
}

/// What the caller may see of the fleet.
pub(super) struct Visible<'a> {
    pub(super) fleet: &'a Fleet,
    /// Into the fleet's processes.
    processes: Vec<u32>,
    caller: &'a Caller,
    /// Without a connection because the relays of their area have none.
    unreachable: HashSet<&'a AgentId>,
}

impl<'a> Visible<'a> {
    fn new(fleet: &'a Fleet, caller: &'a Caller, control: &Control) -> Self {
        let query =
            ProcessQuery { places: Some(caller.permissions.places(Class::Read).clone()), ..ProcessQuery::default() };
        let filter = FleetFilter::new(fleet, &query);
        let all = (0..).zip(&fleet.processes);
        let processes = all.filter(|(_, process)| filter.holds(process)).map(|(index, _)| index).collect();
        let away = fleet.hosts.iter().filter(|host| !host.online && !host.is_revoked).map(|host| &host.site.agent);
        let unreachable = away.filter(|agent| control.unreachable_area(agent).is_some()).collect();
        Self { fleet, processes, caller, unreachable }
    }

    pub(super) fn is_unreachable(&self, host: &FleetHost) -> bool {
        self.unreachable.contains(&host.site.agent)
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = &'a FleetProcess> {
        self.processes.iter().map(|index| &self.fleet.processes[*index as usize])
    }

    fn has_host(&self, host: &FleetHost) -> bool {
        is_inside(self.caller.permissions.places(Class::Read), host)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &'a FleetHost> {
        self.fleet.hosts.iter().filter(|host| self.has_host(host))
    }

    fn count_hosts(&self) -> HostCounts {
        let mut counts = HostCounts::default();
        for host in self.hosts() {
            counts.total += 1;
            match (host.online, host.is_revoked) {
                (true, _) => counts.online += 1,
                (false, true) => counts.revoked += 1,
                (false, false) if self.is_unreachable(host) => counts.unreachable += 1,
                (false, false) => counts.away += 1,
            }
        }
        counts
    }

    fn count_processes(&self) -> ProcessCounts {
        let mut counts = ProcessCounts::default();
        for process in self.processes() {
            counts.total += 1;
            *count_of(&mut counts.phases, process.phase) += 1;
            counts.unhealthy += u64::from(is_unhealthy(process));
            counts.crash_looping += u64::from(process.is_crash_looping());
            counts.evicted += u64::from(process.evicted);
        }
        counts
    }
}

pub(super) fn is_unhealthy(process: &FleetProcess) -> bool {
    process.phase == Phase::Running && process.health == Health::Unhealthy
}

pub(super) fn count_of(counts: &mut PhaseCounts, phase: Phase) -> &mut u64 {
    match phase {
        Phase::Unknown => &mut counts.unknown,
        Phase::Stopped => &mut counts.stopped,
        Phase::Starting => &mut counts.starting,
        Phase::Running => &mut counts.running,
        Phase::Stopping => &mut counts.stopping,
        Phase::Waiting => &mut counts.waiting,
        Phase::Failed => &mut counts.failed,
    }
}

async fn tasks(control: &Control, caller: &Caller) -> Result<TaskCounts> {
    let query = TaskQuery { unfinished_only: true, limit: TASKS_COUNTED_MAX, ..TaskQuery::default() };
    let mut counts = TaskCounts::default();
    for task in control.tasks(caller, query).await? {
        match task.rollout.map(|rollout| rollout.state) {
            Some(RolloutState::Paused) => counts.paused += 1,
            _ => counts.running += 1,
        }
    }
    Ok(counts)
}

fn versions(seen: &Visible<'_>) -> Vec<AgentVersion> {
    let mut counted: HashMap<&str, u64> = HashMap::new();
    for host in seen.hosts() {
        *counted.entry(&host.agent_version).or_default() += 1;
    }
    let mut versions: Vec<AgentVersion> =
        counted.into_iter().map(|(version, hosts)| AgentVersion { version: version.to_owned(), hosts }).collect();
    versions.sort_by(|one, other| other.hosts.cmp(&one.hosts).then_with(|| one.version.cmp(&other.version)));
    versions.truncate(VERSIONS_MAX);
    versions
}
