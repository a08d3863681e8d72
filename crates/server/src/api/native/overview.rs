//! The whole fleet at a glance: counts, what needs attention, and a map.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use axum::Json;
use axum::extract::State;
use proctor_api::{
    AgentVersion, CloudHosts, EndingCertificate, FleetMap, HostCounts, HostState, HostStatus, Overview, PhaseCounts,
    ProcessCounts, TaskCounts,
};
use proctor_model::{Class, Phase};
use proctor_store::{FleetHost, FleetProcess, RolloutState, TaskQuery};

use super::attention;
use super::caller::Authenticated;
use super::visible::{Visible, is_unhealthy};
use super::{ApiState, Result};
use crate::control::{Caller, Control, SeenFleet};

const TASKS_COUNTED_MAX: u32 = 1000;
const VERSIONS_MAX: usize = 50;
const CLOUDS_MAX: usize = 50;
const CERTIFICATES_MAX: usize = 20;

/// How many hosts and processes there are in which state, and what needs attention.
#[utoipa::path(get, path = "/overview", operation_id = "overview", tag = "overview",
               responses((status = 200, body = Overview)))]
pub(super) async fn show(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<Overview>> {
    let tasks = tasks(&state.control, &caller.who).await?;
    let (control, who) = (state.control.clone(), caller.who.clone());
    let answer = move |seen: &SeenFleet| overview(seen, &control, &who, tasks);
    let mut overview = state.border.fleet_work.run(&state.control, &caller.who, answer).await?;
    overview.earlier = state.border.trend.earlier(caller.who.permissions.scopes(Class::Read), overview.at_ms);
    Ok(Json(overview))
}

fn overview(seen: &SeenFleet, control: &Control, caller: &Caller, tasks: TaskCounts) -> Overview {
    let seen = Visible::new(seen, caller, control);
    let processes = seen.processes();
    let attention = attention::ranked(&seen, &processes);
    let ends = |host| seen.certificate_ends(host).map(|expires_at| (host, expires_at));
    let mut ending: Vec<(&FleetHost, i64)> = seen.hosts().filter_map(ends).collect();
    ending.sort_by_key(|(_, expires_at)| *expires_at);
    let certificates_ending_total = ending.len();
    let certificate =
        |(host, expires_at): (&FleetHost, i64)| EndingCertificate { host: host.site.key.to_string(), expires_at };
    let (clouds, clouds_total) = count_clouds(&seen);
    Overview {
        at_ms: seen.at,
        hosts: count_hosts(&seen, seen.hosts()),
        clouds,
        clouds_total,
        processes: count_processes(&seen, &processes),
        earlier: None,
        tasks,
        attention_total: attention.len(),
        attention: attention.into_iter().take(attention::LINES_MAX).collect(),
        agent_versions: versions(&seen),
        certificates_ending: ending.into_iter().take(CERTIFICATES_MAX).map(certificate).collect(),
        certificates_ending_total,
    }
}

/// One cell per host, with the worst known state of its processes.
#[utoipa::path(get, path = "/overview/map", operation_id = "fleet_map", tag = "overview",
               responses((status = 200, body = FleetMap)))]
pub(super) async fn map(caller: Authenticated, State(state): State<ApiState>) -> Result<Json<FleetMap>> {
    let (control, who) = (state.control.clone(), caller.who.clone());
    let answer = move |seen: &SeenFleet| fleet_map(seen, &control, &who);
    Ok(Json(state.border.fleet_work.run(&state.control, &caller.who, answer).await?))
}

fn fleet_map(seen: &SeenFleet, control: &Control, caller: &Caller) -> FleetMap {
    let seen = Visible::new(seen, caller, control);
    let fleet = seen.fleet;
    let mut worst = vec![HostState::Empty; fleet.hosts.len()];
    for process in seen.processes() {
        let of_host = &mut worst[process.host as usize];
        *of_host = (*of_host).max(host_state(process.phase));
    }
    let mut map = FleetMap { at_ms: seen.at, hosts: Vec::new(), business: Vec::new(), worst: Vec::new() };
    for (host, worst) in fleet.hosts.iter().zip(worst).filter(|(host, _)| seen.has_host(host)) {
        map.hosts.push(host.site.key.to_string());
        map.business.push(host.site.business);
        map.worst.push(match seen.status(host) {
            HostStatus::Online => worst,
            HostStatus::Away | HostStatus::Revoked => HostState::Away,
            HostStatus::Unreachable => HostState::Unreachable,
            HostStatus::Cordoned => HostState::Cordoned,
            HostStatus::AwaitsApproval => HostState::AwaitsApproval,
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

fn count_hosts<'a>(seen: &Visible<'_>, hosts: impl Iterator<Item = &'a FleetHost>) -> HostCounts {
    let mut counts = HostCounts::default();
    for host in hosts {
        counts.total += 1;
        *match seen.status(host) {
            HostStatus::Online => &mut counts.online,
            HostStatus::Away => &mut counts.away,
            HostStatus::Unreachable => &mut counts.unreachable,
            HostStatus::Revoked => &mut counts.revoked,
            HostStatus::Cordoned => &mut counts.cordoned,
            HostStatus::AwaitsApproval => &mut counts.awaits_approval,
        } += 1;
    }
    counts
}

/// By number of the area, and how many there are.
fn count_clouds(seen: &Visible<'_>) -> (Vec<CloudHosts>, usize) {
    let mut by_cloud: BTreeMap<u32, Vec<&FleetHost>> = BTreeMap::new();
    for host in seen.hosts() {
        by_cloud.entry(host.site.key.cloud).or_default().push(host);
    }
    let total = by_cloud.len();
    let mut clouds: Vec<(u32, Vec<&FleetHost>)> = by_cloud.into_iter().collect();
    clouds.sort_by_key(|(_, hosts)| Reverse(hosts.len()));
    clouds.truncate(CLOUDS_MAX);
    clouds.sort_by_key(|(cloud, _)| *cloud);
    let counted =
        clouds.into_iter().map(|(cloud, hosts)| CloudHosts { cloud, hosts: count_hosts(seen, hosts.into_iter()) });
    (counted.collect(), total)
}

fn count_processes(seen: &Visible<'_>, processes: &[&FleetProcess]) -> ProcessCounts {
    let mut counts = ProcessCounts { total: processes.len() as u64, ..ProcessCounts::default() };
    for process in processes {
        if seen.is_cordoned(seen.fleet.host(process)) {
            counts.cordoned += 1;
            continue;
        }
        *count_of(&mut counts.phases, process.phase) += 1;
        counts.unhealthy += u64::from(is_unhealthy(process));
        counts.crash_looping += u64::from(process.is_crash_looping());
        counts.evicted += u64::from(process.evicted);
    }
    counts
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
