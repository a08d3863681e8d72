//! `spec.process_group`: limits that processes share.

use std::collections::HashSet;

use proctor_model::{FieldError, Namespace, Pool, PoolId, PoolLimits, Weight, messages};

use super::{KeyStyle, Result, hosts, meta, unrepeated};
use crate::api::fields::{Fields, each, flag, integer, parsed, percent};
use crate::api::json::Value;
use crate::control::{HostRef, POOLS_MAX};

/// Body of set_process_group_info.
#[derive(Debug)]
pub(in crate::api) struct PoolChange {
    pub(in crate::api) pools: Vec<Pool>,
    pub(in crate::api) hosts: Vec<HostRef>,
    pub(in crate::api) row_keys: Vec<String>,
}

pub(in crate::api) fn pool_change(params: &Value<'_>) -> Result<PoolChange> {
    let fields = Fields::of(params)?;
    let namespace = fields.required("meta", meta::namespace)?;
    let named = unrepeated(hosts(fields, KeyStyle::WithSupplier)?.hosts);
    let row_keys = named.iter().map(|host| host.row_key(namespace.as_str())).collect();
    let groups = |value| Fields::of(value)?.required("process_group", |groups| pools(groups, &namespace));
    let pools = fields.required("spec", groups)?;
    Ok(PoolChange { pools, hosts: named.into_iter().map(|host| host.host).collect(), row_keys })
}

fn pools(value: &Value<'_>, namespace: &Namespace) -> Result<Vec<Pool>> {
    if value.as_list().is_some_and(|groups| groups.len() > POOLS_MAX) {
        return Err(FieldError::new("", messages::too_many_groups(POOLS_MAX)));
    }
    let mut taken = HashSet::new();
    let pools = each(value, |group| {
        let fields = Fields::of(group)?;
        let id: PoolId = fields.required("id", parsed)?;
        if !taken.insert(id.clone()) {
            return Err(FieldError::new("id", messages::group_twice(id)));
        }
        let mut limits = fields.required("resource", limits)?;
        // Ours, so it may stand where the caller likes it best.
        limits.dry_run |= fields.optional("dry_run", flag)?.unwrap_or(false);
        Ok(Pool { namespace: namespace.clone(), id, limits })
    })?;
    if pools.is_empty() {
        return Err(FieldError::new("", messages::needs_a_group()));
    }
    Ok(pools)
}

fn limits(value: &Value<'_>) -> Result<PoolLimits> {
    let fields = Fields::of(value)?;
    Ok(PoolLimits {
        cpu: fields.required("cpu_pool_limit", percent)?,
        memory: fields.required("mem_pool_limit", percent)?,
        cpu_weight: fields.required("cpu_pool_weight", weight)?,
        memory_weight: fields.required("mem_pool_weight", weight)?,
        dry_run: fields.optional("dry_run", flag)?.unwrap_or(false),
    })
}

fn weight(value: &Value<'_>) -> Result<Weight> {
    match integer(value)? {
        0 => Ok(Weight::Usage),
        1 => Ok(Weight::UsageByLimit),
        other => Err(FieldError::new("", messages::neither_0_nor_1(other))),
    }
}
