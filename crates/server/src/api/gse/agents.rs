//! Whether agents are connected, and their details.

use std::collections::BTreeMap;

use proctor_model::{AgentId, HostKey, messages};
use proctor_runtime::clock;
use proctor_store::HostRecord;
use serde::Serialize;

use super::decode::{self, NamedHost};
use super::{Call, Result};
use crate::api::error::{ApiError, Problem};
use crate::control::{Control, HostRef};

/// Of the gateway's status codes, the two on which all its clients agree.
const RUNNING: i32 = 2;
const NOT_FOUND: i32 = -2;
/// In the row of an agent that is not known, where others are.
const AGENT_UNKNOWN: u32 = 1_011_003;
/// An agent, not a proxy.
const RUN_MODE: u8 = 1;

#[derive(Debug, Serialize)]
pub(in crate::api) struct Alive {
    ip: String,
    bk_cloud_id: u32,
    bk_agent_alive: u8,
}

#[derive(Debug, Serialize)]
pub(in crate::api) struct Info {
    ip: String,
    version: String,
    bk_cloud_id: u32,
    /// Every agent here is connected to the server itself.
    parent_ip: &'static str,
    parent_port: u16,
}

/// get_agent_status: `cloud:ip` → alive or not, live.
pub(in crate::api) async fn status(call: Call) -> Result<BTreeMap<String, Alive>> {
    let rows = resolved(&call).await?;
    let alive = |(named, record): (NamedHost, Option<HostRecord>)| {
        let is_alive = record.as_ref().is_some_and(|record| call.control.is_online(&record.agent));
        let (ip, bk_cloud_id) = address(&named, record.as_ref());
        (named.prefix(), Alive { ip, bk_cloud_id, bk_agent_alive: u8::from(is_alive) })
    };
    Ok(rows.into_iter().map(alive).collect())
}

/// get_agent_info: `cloud:ip` → version; empty for a host that has never enrolled.
pub(in crate::api) async fn info(call: Call) -> Result<BTreeMap<String, Info>> {
    let info = |(named, record): (NamedHost, Option<HostRecord>)| {
        let (ip, bk_cloud_id) = address(&named, record.as_ref());
        let version = record.map(|record| record.facts.agent_version).unwrap_or_default();
        (named.prefix(), Info { ip, version, bk_cloud_id, parent_ip: "", parent_port: 0 })
    };
    Ok(resolved(&call).await?.into_iter().map(info).collect())
}

/// As the caller wrote it, or as it is known.
fn address(named: &NamedHost, record: Option<&HostRecord>) -> (String, u32) {
    let key = named.host.key().or_else(|| record.map(|record| record.key));
    match (key, named.address()) {
        (Some(key), _) => (key.ip.to_string(), key.cloud),
        (None, Some((written, cloud))) => (written.to_owned(), cloud),
        (None, None) => (String::new(), 0),
    }
}

async fn resolved(call: &Call) -> Result<Vec<(NamedHost, Option<HostRecord>)>> {
    let named = call.params(decode::agent_query).await?;
    let refs: Vec<HostRef> = named.iter().map(|named| named.host.clone()).collect();
    let records = call.control.readable_hosts(&call.caller, &refs, None).await?;
    Ok(named.into_iter().zip(records).collect())
}

/// One element of list_agent_state.
#[derive(Clone, Debug, Serialize)]
pub(in crate::api) struct State {
    bk_agent_id: String,
    bk_cloud_id: u32,
    version: String,
    run_mode: u8,
    status_code: i32,
    /// Unix milliseconds: now for an agent that is connected, else when it was lost.
    report_time: i64,
}

/// One element of list_agent_info.
#[derive(Clone, Debug, Serialize)]
pub(in crate::api) struct WholeInfo {
    #[serde(flatten)]
    state: State,
    code: u32,
    message: &'static str,
    bk_host_ip: String,
    bk_os_type: String,
    bk_cpu_architecture: String,
    parent_ip: &'static str,
    parent_port: u16,
    /// The agent's own usage is not measured.
    cpu_rate: f64,
    mem_rate: f64,
    cpu_num: u32,
    mem_size: u64,
    /// Unix milliseconds of the present connection; 0 without one.
    start_time: i64,
    last_work_time: i64,
    /// Agents keep one connection, they do not call in cycles.
    conn_cycle_time: u32,
    status: &'static str,
    last_status_code: i32,
    last_status: &'static str,
    remark: &'static str,
}

/// cluster/list_agent_state.
pub(in crate::api) async fn states(call: Call) -> Result<Vec<State>> {
    list(&call, state).await
}

/// cluster/list_agent_info.
pub(in crate::api) async fn infos(call: Call) -> Result<Vec<WholeInfo>> {
    list(&call, whole_info).await
}

/// What is known about a requested agent.
struct Found<'a> {
    named: &'a NamedHost,
    record: Option<&'a HostRecord>,
    is_online: bool,
    now: i64,
}

/// An agent requested as `cloud:ip` is listed twice: under its real id, which is how a caller learns it, and under
/// the id as it was sent, by which some clients look up their result.
async fn list<T>(call: &Call, element: fn(&Found<'_>, String) -> T) -> Result<Vec<T>> {
    let rows = resolved(call).await?;
    if !rows.is_empty() && rows.iter().all(|(_, record)| record.is_none()) {
        return Err(ApiError::new(Problem::NoAgentFound, messages::no_agent_is_known()));
    }
    let now = clock::unix_millis();
    let elements = |(named, record): &(NamedHost, Option<HostRecord>)| {
        let record = record.as_ref();
        let is_online = record.is_some_and(|record| call.control.is_online(&record.agent));
        let found = Found { named, record, is_online, now };
        let real = match (&named.host, record) {
            (HostRef::Key(_), Some(record)) => Some(element(&found, record.known_as().to_string())),
            (HostRef::Key(_), None) | (HostRef::Agent(_) | HostRef::Unusable(_), _) => None,
        };
        real.into_iter().chain([element(&found, named.prefix())]).collect::<Vec<T>>()
    };
    Ok(rows.iter().flat_map(elements).collect())
}

/// Hosts as `cloud:ip`.
#[derive(Debug, Serialize)]
pub(in crate::api) struct Bound {
    success: Vec<String>,
    failed: Vec<String>,
}

/// proc/upgrade_to_agent_id: from now on the hosts answer to these ids too. A host that no agent serves,
/// and an id that is another host's, fail.
pub(in crate::api) async fn bind_ids(call: Call) -> Result<Bound> {
    let bindings = call.params(decode::id_bindings).await?;
    let is_usable: Vec<bool> = bindings.iter().map(|one| one.binding.is_some()).collect();
    let (names, bindings): (Vec<String>, Vec<_>) = bindings.into_iter().map(|one| (one.name, one.binding)).unzip();
    let bindings: Vec<(HostKey, AgentId)> = bindings.into_iter().flatten().collect();
    let targets: Vec<String> = bindings.iter().map(|(host, id)| format!("{host} is {id}")).collect();
    let work = |control: Control| async move { Ok(control.bind_agent_ids(&bindings).await?) };
    let told = |done: &Vec<bool>| {
        let succeeded = done.iter().filter(|is_bound| **is_bound).count();
        format!("{succeeded} of {} bound", done.len())
    };
    let done = call.control.administer(&call.caller, "upgrade_to_agent_id", targets, work, told).await?;
    // Texts of tasks that are kept show the previous ids.
    call.border.renditions.clear();
    let mut done = done.into_iter();
    let done = is_usable.into_iter().map(|is_usable| is_usable && done.next().unwrap_or(false));
    let (success, failed): (Vec<_>, Vec<_>) = names.into_iter().zip(done).partition(|(_, is_bound)| *is_bound);
    let names = |rows: Vec<(String, bool)>| rows.into_iter().map(|(name, _)| name).collect();
    Ok(Bound { success: names(success), failed: names(failed) })
}

fn state(found: &Found<'_>, bk_agent_id: String) -> State {
    let (_, bk_cloud_id) = address(found.named, found.record);
    State {
        bk_agent_id,
        bk_cloud_id,
        version: found.record.map(|record| record.facts.agent_version.clone()).unwrap_or_default(),
        run_mode: RUN_MODE,
        status_code: if found.is_online { RUNNING } else { NOT_FOUND },
        report_time: found.record.map_or(0, |record| found.seen_at(record)),
    }
}

fn whole_info(found: &Found<'_>, bk_agent_id: String) -> WholeInfo {
    let state = state(found, bk_agent_id);
    let (bk_host_ip, _) = address(found.named, found.record);
    let facts = found.record.map(|record| record.facts.clone()).unwrap_or_default();
    let (code, message) = match found.record {
        Some(_) => (0, "success"),
        None => (AGENT_UNKNOWN, "the agent is not known"),
    };
    // Of an agent that was never connected there is no last status.
    let was_there = found.record.is_some_and(|record| record.epoch > 0);
    let (last_status_code, last_status) = if was_there { (RUNNING, "running") } else { (NOT_FOUND, "not found") };
    WholeInfo {
        code,
        message,
        bk_host_ip,
        bk_os_type: facts.os,
        bk_cpu_architecture: facts.arch,
        parent_ip: "",
        parent_port: 0,
        cpu_rate: 0.0,
        mem_rate: 0.0,
        cpu_num: facts.cpus,
        mem_size: facts.memory_bytes,
        start_time: found.record.filter(|_| found.is_online).map_or(0, |record| record.presence_changed_at),
        last_work_time: state.report_time,
        conn_cycle_time: 0,
        status: if found.is_online { "running" } else { "not found" },
        last_status_code,
        last_status,
        remark: "",
        state,
    }
}

impl Found<'_> {
    fn seen_at(&self, record: &HostRecord) -> i64 {
        if self.is_online { self.now } else { record.presence_changed_at }
    }
}
