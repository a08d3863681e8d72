//! Whether agents are there.

use std::collections::BTreeMap;

use proctor_store::HostRecord;
use serde::Serialize;

use super::decode::{self, NamedHost};
use super::{Call, Result};
use crate::api::error::{ApiError, Problem};
use crate::control::HostRef;

/// Of the gateway's status codes, the two on which all its clients agree.
const RUNNING: i32 = 2;
const NOT_FOUND: i32 = -2;
/// An agent, not a proxy.
const RUN_MODE: u8 = 1;

#[derive(Debug, Serialize)]
pub(super) struct Alive {
    ip: String,
    bk_cloud_id: u32,
    bk_agent_alive: u8,
}

#[derive(Debug, Serialize)]
pub(super) struct Info {
    ip: String,
    version: String,
    bk_cloud_id: u32,
    /// Every agent here is connected to the server itself.
    parent_ip: &'static str,
    parent_port: u16,
}

/// get_agent_status: `cloud:ip` → alive or not, live.
pub(super) async fn status(call: Call) -> Result<BTreeMap<String, Alive>> {
    let rows = resolved(&call).await?;
    let alive = |(named, record): (NamedHost, Option<HostRecord>)| {
        let is_alive = record.as_ref().is_some_and(|record| call.control.is_connected(&record.agent));
        let (ip, bk_cloud_id) = address(&named, record.as_ref());
        (named.prefix, Alive { ip, bk_cloud_id, bk_agent_alive: u8::from(is_alive) })
    };
    Ok(rows.into_iter().map(alive).collect())
}

/// get_agent_info: `cloud:ip` → version; empty for a host that has never enrolled.
pub(super) async fn info(call: Call) -> Result<BTreeMap<String, Info>> {
    let info = |(named, record): (NamedHost, Option<HostRecord>)| {
        let (ip, bk_cloud_id) = address(&named, record.as_ref());
        let version = record.map(|record| record.facts.agent_version).unwrap_or_default();
        (named.prefix, Info { ip, version, bk_cloud_id, parent_ip: "", parent_port: 0 })
    };
    Ok(resolved(&call).await?.into_iter().map(info).collect())
}

/// As the caller wrote it, or as it is known.
fn address(named: &NamedHost, record: Option<&HostRecord>) -> (String, u32) {
    let key = match &named.host {
        HostRef::Key(key) => Some(*key),
        HostRef::Agent(_) => record.map(|record| record.key),
    };
    key.map_or_else(|| (String::new(), 0), |key| (key.ip.to_string(), key.cloud))
}

async fn resolved(call: &Call) -> Result<Vec<(NamedHost, Option<HostRecord>)>> {
    let named = decode::agent_query(&call.params)?;
    let refs: Vec<HostRef> = named.iter().map(|named| named.host.clone()).collect();
    let records = call.control.resolve(&refs).await?;
    Ok(named.into_iter().zip(records).collect())
}

/// One element of list_agent_state and list_agent_info; the second call's fields are a superset of
/// the first one's, so both get them all.
#[derive(Debug, Serialize)]
pub(super) struct Agent {
    bk_agent_id: String,
    bk_cloud_id: u32,
    bk_host_ip: String,
    bk_os_type: String,
    bk_cpu_architecture: String,
    version: String,
    run_mode: u8,
    status_code: i32,
    status: &'static str,
    cpu_num: u32,
    mem_size: u64,
    /// Unix milliseconds of the last change of presence.
    report_time: i64,
}

/// cluster/list_agent_state and cluster/list_agent_info.
pub(super) async fn list(call: Call) -> Result<Vec<Agent>> {
    let rows = resolved(&call).await?;
    if rows.iter().all(|(_, record)| record.is_none()) {
        return Err(ApiError::new(Problem::NoAgentFound, "none of the agents is known"));
    }
    let agent = |(named, record): (NamedHost, Option<HostRecord>)| {
        let is_alive = record.as_ref().is_some_and(|record| call.control.is_connected(&record.agent));
        let (bk_host_ip, bk_cloud_id) = address(&named, record.as_ref());
        let report_time = record.as_ref().map_or(0, |record| record.presence_changed_at);
        let facts = record.map(|record| record.facts).unwrap_or_default();
        Agent {
            bk_agent_id: named.prefix,
            bk_cloud_id,
            bk_host_ip,
            bk_os_type: facts.os,
            bk_cpu_architecture: facts.arch,
            version: facts.agent_version,
            run_mode: RUN_MODE,
            status_code: if is_alive { RUNNING } else { NOT_FOUND },
            status: if is_alive { "running" } else { "not found" },
            cpu_num: facts.cpus,
            mem_size: facts.memory_bytes,
            report_time,
        }
    };
    Ok(rows.into_iter().map(agent).collect())
}
