//! What the server knows about processes and pools: the last observations, not a live query.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use proctor_model::{
    AgentId, HostKey, Namespace, POOL_LABEL, Pool, PoolId, ProcessKey, ProcessName, Snapshot, Spec, Weight, messages,
};
use proctor_store::{HostLocation, PoolRecord, ProcessQuery, ProcessRecord};
use serde::{Serialize, Serializer};

use super::decode::{self, KeyStyle, NamedHost};
use super::{Call, Result};
use crate::api::language;
use crate::control::HostRef;

const RUNNING: u8 = 1;
const STOPPED: u8 = 2;

#[derive(Debug, Serialize)]
pub(in crate::api) struct Infos {
    proc_infos: Vec<Info>,
}

#[derive(Debug, Serialize)]
pub(in crate::api) struct Page {
    count: u64,
    proc_infos: Vec<Info>,
}

#[derive(Debug, Serialize)]
struct Info {
    meta: Meta,
    host: Host,
    #[serde(skip_serializing_if = "Option::is_none")]
    bk_agent_id: Option<String>,
    /// The expected state: running if it is managed.
    flag: u8,
    /// The actual state. A process that is not registered has no row, so 0 does not occur.
    status: u8,
    isauto: bool,
    message: String,
    pid: i32,
    version: String,
    /// Times in Unix seconds.
    register_time: i64,
    last_start_time: i64,
    report_time: i64,
    cpu_usage: f64,
    mem_usage: f64,
    /// Reserved in the documents, and not measured.
    fd: u64,
    disk: u64,
    net: u64,
}

#[derive(Debug, Serialize)]
struct Meta {
    namespace: Namespace,
    /// None, which is "", for what concerns a whole namespace.
    #[serde(serialize_with = "or_empty")]
    name: Option<ProcessName>,
    /// Those of the spec, which many rows share.
    #[serde(serialize_with = "labels")]
    labels: Option<Arc<Spec>>,
}

fn or_empty<S: Serializer>(name: &Option<ProcessName>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_ref().map_or("", ProcessName::as_str))
}

fn labels<S: Serializer>(spec: &Option<Arc<Spec>>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(spec.iter().flat_map(|spec| spec.labels.iter()))
}

#[derive(Debug, Serialize)]
struct Host {
    ip: IpAddr,
    bk_cloud_id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    bk_supplier_id: Option<u32>,
}

impl Host {
    fn with_supplier(host: &HostKey) -> Self {
        Self { bk_supplier_id: Some(host.supplier), ..Self::without_supplier(host) }
    }

    fn without_supplier(host: &HostKey) -> Self {
        Self { ip: host.ip, bk_cloud_id: host.cloud, bk_supplier_id: None }
    }
}

/// One process on the hosts that the caller names; hosts without it have no row.
pub(in crate::api) async fn of_hosts(call: Call, style: KeyStyle) -> Result<Infos> {
    let (key, named) = call.params(move |params| decode::status_query(params, style)).await?;
    let named = by_agent(&call, named, &key.namespace).await?;
    let ProcessKey { namespace, name } = key;
    let agents = Some(named.keys().cloned().collect());
    let query = ProcessQuery { namespace: Some(namespace), name: Some(name), agents, ..ProcessQuery::default() };
    let (_, records) = call.control.processes(&call.caller, query, None).await?;
    let row = |record: ProcessRecord| {
        let named = named.get(&record.agent).map(|(_, named)| named);
        let supplier = named.and_then(|named| supplier_of(&named.host)).unwrap_or(record.host.supplier);
        let host = HostKey { supplier, ..record.host };
        match style {
            KeyStyle::WithSupplier => info(record, Host::with_supplier(&host), None),
            KeyStyle::WithoutSupplier => {
                let id = named.and_then(NamedHost::id).map_or_else(|| record.known_as().to_string(), str::to_owned);
                info(record, Host::without_supplier(&host), Some(id))
            }
        }
    };
    Ok(Infos { proc_infos: records.into_iter().map(row).collect() })
}

/// All processes of a namespace, a page at a time.
pub(in crate::api) async fn of_namespace(call: Call) -> Result<Page> {
    let query = call.params(decode::listing).await?;
    let (count, records) = call.control.processes(&call.caller, query, None).await?;
    let row = |record: ProcessRecord| {
        let (host, agent) = (Host::with_supplier(&record.host), record.known_as().to_string());
        info(record, host, Some(agent))
    };
    Ok(Page { count, proc_infos: records.into_iter().map(row).collect() })
}

/// The enrolled ones among the hosts that the caller names, by their agent.
async fn by_agent(
    call: &Call,
    named: Vec<NamedHost>,
    namespace: &Namespace,
) -> Result<HashMap<AgentId, (HostLocation, NamedHost)>> {
    let refs: Vec<HostRef> = named.iter().map(|named| named.host.clone()).collect();
    let records = call.control.readable_sites(&call.caller, &refs, Some(namespace)).await?;
    let pairs = named.into_iter().zip(records);
    Ok(pairs.filter_map(|(named, record)| record.map(|site| (site.agent.clone(), (site, named)))).collect())
}

/// The supplier is no part of a host's identity: the caller gets back what it wrote.
fn supplier_of(host: &HostRef) -> Option<u32> {
    match host {
        HostRef::Key(key) => Some(key.supplier),
        HostRef::Agent(_) | HostRef::Unusable(_) => None,
    }
}

fn info(record: ProcessRecord, host: Host, bk_agent_id: Option<String>) -> Info {
    let message = message(&record);
    let snapshot = record.snapshot.unwrap_or_default();
    let ProcessKey { namespace, name } = record.key;
    Info {
        meta: Meta { namespace, name: Some(name), labels: Some(record.spec) },
        host,
        bk_agent_id,
        flag: if snapshot.managed { RUNNING } else { STOPPED },
        status: if snapshot.pid.is_some() { RUNNING } else { STOPPED },
        isauto: snapshot.managed,
        message,
        pid: snapshot.pid.unwrap_or(-1),
        version: snapshot.version,
        register_time: record.registered_at / 1000,
        last_start_time: snapshot.started_at,
        report_time: snapshot.reported_at,
        cpu_usage: snapshot.usage.cpu_percent,
        mem_usage: snapshot.usage.memory_percent,
        fd: snapshot.usage.fds,
        disk: 0,
        net: 0,
    }
}

/// For display: why the row says what it says.
fn message(record: &ProcessRecord) -> String {
    let state = match &record.snapshot {
        None => "registered, not observed yet".to_owned(),
        Some(Snapshot { phase, reason, .. }) if reason.is_empty() => phase.to_string(),
        Some(Snapshot { phase, reason, .. }) => format!("{phase}: {reason}"),
    };
    if record.online { state } else { format!("agent {} is not connected; last known: {state}", record.agent) }
}

#[derive(Debug, Serialize)]
pub(in crate::api) struct Groups {
    process_group_infos: Vec<Group>,
}

#[derive(Debug, Serialize)]
struct Group {
    meta: Meta,
    host: Host,
    bk_agent_id: String,
    id: String,
    resource: GroupResource,
    /// Ours: how many registered processes share it.
    members: usize,
    /// Ours: why it limits nothing; empty if it has members.
    message: String,
}

#[derive(Debug, Serialize)]
struct GroupResource {
    cpu_pool_limit: f64,
    mem_pool_limit: f64,
    cpu_pool_weight: u8,
    mem_pool_weight: u8,
    /// Ours; left out where it would surprise older clients.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

/// The pools of a namespace on the hosts that the caller names.
pub(in crate::api) async fn pools(call: Call) -> Result<Groups> {
    let (namespace, named) = call.params(decode::pool_query).await?;
    let named = by_agent(&call, named, &namespace).await?;
    let refs: Vec<HostRef> = named.keys().cloned().map(HostRef::Agent).collect();
    let records = call.control.pools(&call.caller, Some(&namespace), Some(&refs)).await?;
    let agents = records.iter().map(|record| record.agent.clone()).collect();
    let query = ProcessQuery { namespace: Some(namespace), agents: Some(agents), ..ProcessQuery::default() };
    let (_, processes) = call.control.processes(&call.caller, query, None).await?;
    let mut neighbours: HashMap<AgentId, Vec<Arc<Spec>>> = HashMap::new();
    for process in processes {
        neighbours.entry(process.agent).or_default().push(process.spec);
    }
    let group = |record: PoolRecord| {
        let site = named.get(&record.agent);
        let supplier = site.and_then(|(_, named)| supplier_of(&named.host));
        let Pool { namespace, id, .. } = &record.pool;
        let neighbours = neighbours.get(&record.agent).into_iter().flatten();
        let members = neighbours.filter(|spec| id.has_member(namespace, &spec.labels)).count();
        let message = if members == 0 { no_member(namespace, id) } else { String::new() };
        let host = HostKey { supplier: supplier.unwrap_or(record.host.supplier), ..record.host };
        let limits = record.pool.limits;
        Group {
            meta: Meta { namespace: record.pool.namespace, name: None, labels: None },
            host: Host::with_supplier(&host),
            bk_agent_id: site.map_or(&record.agent, |(site, _)| site.known_as()).to_string(),
            id: record.pool.id.into(),
            resource: GroupResource {
                cpu_pool_limit: limits.cpu.get(),
                mem_pool_limit: limits.memory.get(),
                cpu_pool_weight: weight(limits.cpu_weight),
                mem_pool_weight: weight(limits.memory_weight),
                dry_run: limits.dry_run,
            },
            members,
            message,
        }
    };
    Ok(Groups { process_group_infos: records.into_iter().map(group).collect() })
}

/// In the language of the caller.
fn no_member(namespace: &Namespace, id: &PoolId) -> String {
    let message = if id.as_str() == namespace.as_str() {
        messages::no_process_in_namespace(namespace)
    } else {
        messages::no_process_with_label(namespace, format_args!("{POOL_LABEL}={id}"))
    };
    language::of_message(&message)
}

fn weight(weight: Weight) -> u8 {
    match weight {
        Weight::Usage => 0,
        Weight::UsageByLimit => 1,
    }
}
