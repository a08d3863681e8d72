//! From the JSON of the GSE families to the types of the model.
//!
//! Promised: the result is valid and complete, so that nothing of a request takes effect unless all of it is valid.
//! Liberal where clients differ: `monitor_policy` or `alive_monitor_policy`, `crontab_rule` or `crotab_rule`, null
//! and "" where there is a default, labels of any scalar type, unknown fields.

mod meta;
mod pools;
mod spec;
mod targets;

use std::collections::HashMap;

use proctor_model::{AgentId, FieldError, HostKey, Namespace, OperationKind, ProcessKey, TaskId, messages};
use proctor_store::ProcessQuery;

use crate::api::fields::{Fields, count, each, integer, parsed, text};
use crate::api::json::Value;
use crate::control::{GivenSpec, HostRef, SpecSource, SubmittedItem, SubmittedTarget};
pub(super) use pools::pool_change;
use proctor_store::RegisterMode;
use spec::Demand;
pub(in crate::api) use spec::lifetime;
pub(in crate::api) use targets::{Count, KeyStyle, NamedHost, address, address_ref, merge_repeated};
use targets::{Named, bounded, hosts, hosts_or_none, unrepeated};

type Result<T> = std::result::Result<T, FieldError>;

/// The most rows that one page of a listing has; the documents' number.
const PAGE_MAX: u64 = 1000;
const BATCH: &str = "proc_operate_req";

/// The eight operations by the number that GSE and JOB's operate_process give them.
pub(in crate::api) fn operation_kind(number: i64) -> Option<OperationKind> {
    match number {
        0 => Some(OperationKind::Start),
        1 => Some(OperationKind::Stop),
        2 => Some(OperationKind::Status),
        3 => Some(OperationKind::Manage),
        4 => Some(OperationKind::Release),
        7 => Some(OperationKind::Restart),
        8 => Some(OperationKind::Reload),
        9 => Some(OperationKind::Kill),
        _ => None,
    }
}

/// A process on hosts, with the key of each host's row.
#[derive(Debug)]
pub(in crate::api) struct Process {
    pub(in crate::api) key: ProcessKey,
    pub(in crate::api) hosts: Vec<HostRef>,
    pub(in crate::api) row_keys: Vec<String>,
}

/// Body of register_proc_info, and of update_proc_info where `mode` is an upsert.
pub(in crate::api) fn registration(params: &Value<'_>, mode: RegisterMode) -> Result<(Process, GivenSpec)> {
    let fields = Fields::of(params)?;
    let meta = fields.required("meta", meta::meta)?;
    let process = process(fields, meta.key)?;
    let demand = match mode {
        RegisterMode::Create => Demand::Registration,
        RegisterMode::Upsert => Demand::Update,
    };
    let spec = fields.required("spec", |value| spec::spec(value, meta.labels, demand))?;
    Ok((process, spec))
}

/// Body of unregister_proc_info.
pub(super) fn unregistration(params: &Value<'_>) -> Result<Process> {
    let fields = Fields::of(params)?;
    let meta = fields.required("meta", meta::meta)?;
    process(fields, meta.key)
}

fn process(fields: Fields<'_>, key: ProcessKey) -> Result<Process> {
    let what = written(&key);
    let named = unrepeated(hosts(fields, KeyStyle::WithSupplier)?.hosts);
    let row_keys = named.iter().map(|host| host.row_key(&what)).collect();
    Ok(Process { key, hosts: named.into_iter().map(|host| host.host).collect(), row_keys })
}

/// The part of a row key that names the process.
fn written(key: &ProcessKey) -> String {
    format!("{}:{}", key.namespace, key.name)
}

/// Body of operate_proc: what is registered is operated.
pub(in crate::api) fn operation_v1(params: &Value<'_>) -> Result<Vec<SubmittedItem>> {
    let fields = Fields::of(params)?;
    let meta = fields.required("meta", meta::meta)?;
    let kind = operation_kind(fields.required("op_type", integer)?);
    let (item, _) = item(fields, KeyStyle::WithSupplier, meta.key, kind, SpecSource::Registered)?;
    one(item)
}

/// Body of operate_proc_v2: the spec comes with the call.
pub(in crate::api) fn operation_v2(params: &Value<'_>) -> Result<Vec<SubmittedItem>> {
    one(operation_with_spec(params)?.0)
}

/// A request of one item: a target that is there twice is one target.
fn one(item: SubmittedItem) -> Result<Vec<SubmittedItem>> {
    let mut items = vec![item];
    merge_repeated(&mut items, |_, index| format!("[{index}]"))?;
    Ok(items)
}

/// Body of operate_proc_multi.
pub(in crate::api) fn batch(params: &Value<'_>) -> Result<Vec<SubmittedItem>> {
    let mut count = Count::default();
    let operation = |value| {
        let (item, list) = operation_with_spec(value)?;
        count.add(item.targets.len())?;
        Ok((item, list))
    };
    let items = Fields::of(params)?.required(BATCH, |value| each(value, operation))?;
    if items.is_empty() {
        return Err(FieldError::new(BATCH, messages::needs_an_operation()));
    }
    let (mut items, lists): (Vec<SubmittedItem>, Vec<&str>) = items.into_iter().unzip();
    merge_repeated(&mut items, |item, index| format!("{BATCH}[{item}].{}[{index}]", lists[item]))?;
    // One whose targets are all in others has nothing left to say.
    items.retain(|item| !item.targets.is_empty());
    Ok(items)
}

/// With the field that names its hosts.
fn operation_with_spec(value: &Value<'_>) -> Result<(SubmittedItem, &'static str)> {
    let fields = Fields::of(value)?;
    let meta = fields.required("meta", meta::meta)?;
    let kind = operation_kind(fields.required("op_type", integer)?);
    let stores = kind.is_some_and(OperationKind::stores_spec);
    let labels = meta.labels;
    let read = |value| spec::spec(value, labels, Demand::Operation { stores });
    let spec = match kind {
        // Its rows end with 832 whatever the spec is.
        None => SpecSource::Registered,
        // A status query needs no spec; many clients fill it with zeroes. A complete one lets the agent look for an
        // unregistered process.
        Some(OperationKind::Status) => match fields.required("spec", read) {
            Ok(spec) => SpecSource::Given(spec),
            Err(_) => SpecSource::Registered,
        },
        Some(_) => SpecSource::Given(fields.required("spec", read)?),
    };
    item(fields, KeyStyle::WithoutSupplier, meta.key, kind, spec)
}

fn item(
    fields: Fields<'_>,
    style: KeyStyle,
    key: ProcessKey,
    kind: Option<OperationKind>,
    spec: SpecSource,
) -> Result<(SubmittedItem, &'static str)> {
    let what = written(&key);
    let Named { field, hosts } = hosts(fields, style)?;
    let target = |host: NamedHost| SubmittedTarget { row_key: host.row_key(&what), host: host.host };
    Ok((SubmittedItem { key, kind, spec, targets: hosts.into_iter().map(target).collect() }, field))
}

/// Body of the result calls.
pub(super) fn task_id(params: &Value<'_>) -> Result<String> {
    Fields::of(params)?.required("task_id", |value| text(value).map(str::to_owned))
}

/// An id that is not of our form was never issued.
pub(in crate::api) fn known_form(text: &str) -> Option<TaskId> {
    text.trim().parse().ok()
}

/// Body of get_proc_status and get_proc_status_v2. A host that is named twice is one host here.
pub(super) fn status_query(params: &Value<'_>, style: KeyStyle) -> Result<(ProcessKey, Vec<NamedHost>)> {
    let fields = Fields::of(params)?;
    let meta = fields.required("meta", meta::meta)?;
    Ok((meta.key, hosts_or_none(fields, style)?.hosts))
}

/// Body of sync_proc_status; 0, what Go clients send for nothing, is the default limit.
pub(super) fn listing(params: &Value<'_>) -> Result<ProcessQuery> {
    let fields = Fields::of(params)?;
    let namespace: Namespace = fields.required("meta", meta::namespace)?;
    let page = |value| {
        let page = Fields::of(value)?;
        let limit = page.optional("limit", count::<u64>)?.filter(|limit| *limit > 0).unwrap_or(PAGE_MAX);
        if limit > PAGE_MAX {
            return Err(FieldError::new("limit", messages::more_than(limit, PAGE_MAX)));
        }
        Ok((page.optional("start", count::<u64>)?.unwrap_or(0), limit))
    };
    let (offset, limit) = fields.optional("page", page)?.unwrap_or((0, PAGE_MAX));
    Ok(ProcessQuery { namespace: Some(namespace), offset, limit: Some(limit), ..ProcessQuery::default() })
}

/// Body of get_process_group_info.
pub(super) fn pool_query(params: &Value<'_>) -> Result<(Namespace, Vec<NamedHost>)> {
    let fields = Fields::of(params)?;
    Ok((fields.required("meta", meta::namespace)?, hosts_or_none(fields, KeyStyle::WithSupplier)?.hosts))
}

/// Body of the agent queries. One that is asked for twice is there once.
pub(super) fn agent_query(params: &Value<'_>) -> Result<Vec<NamedHost>> {
    Ok(unrepeated(hosts_or_none(Fields::of(params)?, KeyStyle::WithoutSupplier)?.hosts))
}

/// What proc/upgrade_to_agent_id is to do with one host.
#[derive(Debug)]
pub(super) struct IdBinding {
    /// `cloud:ip` as it was written.
    pub(super) name: String,
    /// None where the address or the id can be none.
    pub(super) binding: Option<(HostKey, AgentId)>,
}

/// Body of proc/upgrade_to_agent_id. A host that is there twice with one id is one host.
pub(super) fn id_bindings(params: &Value<'_>) -> Result<Vec<IdBinding>> {
    let mut taken: HashMap<String, (usize, String)> = HashMap::new();
    let mut index = 0..;
    let binding = |value: &Value<'_>| {
        let fields = Fields::of(value)?;
        let (written, ip) = fields.required("ip", address)?;
        let cloud = fields.required("bk_cloud_id", count::<u32>)?;
        let id = fields.required("bk_agent_id", text)?;
        let (name, index) = (format!("{cloud}:{written}"), index.next().unwrap_or_default());
        if let Some((first, other)) = taken.get(&name) {
            let problem = messages::target_with_another_agent(&name, format_args!("hosts[{first}]"));
            return if other == id { Ok(None) } else { Err(FieldError::new("", problem)) };
        }
        taken.insert(name.clone(), (index, id.to_owned()));
        let host = ip.map(|ip| HostKey::new(cloud, 0, ip));
        Ok(Some(IdBinding { name, binding: host.zip(id.parse().ok()) }))
    };
    let bindings = Fields::of(params)?.required("hosts", |hosts| each(bounded(hosts)?, binding))?;
    if bindings.is_empty() {
        return Err(FieldError::new("hosts", messages::needs_a_host()));
    }
    Ok(bindings.into_iter().flatten().collect())
}

/// Body of task/get_task_state: without ids, all agents of the task.
pub(super) fn task_state_query(params: &Value<'_>) -> Result<(String, Option<Vec<NamedHost>>)> {
    let fields = Fields::of(params)?;
    let id = task_id(params)?;
    let is_filled = |ids: &Value<'_>| Ok(ids.as_list().is_none_or(|ids| !ids.is_empty()));
    let has_ids = fields.optional("agent_id_list", is_filled)?.unwrap_or(false);
    let named = has_ids.then(|| hosts(fields, KeyStyle::WithoutSupplier)).transpose()?;
    Ok((id, named.map(|named| unrepeated(named.hosts))))
}

/// A single namespace or name, for the other modules here.
fn name<T: std::str::FromStr<Err = FieldError>>(fields: Fields<'_>, field: &str) -> Result<T> {
    fields.required(field, parsed)
}

#[cfg(test)]
mod tests;
