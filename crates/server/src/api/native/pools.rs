//! Pools: limits that processes of one namespace on one host share.

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use proctor_model::{FieldError, Namespace, Pool, PoolLimits, Weight};
use proctor_store::PoolRecord;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{Body, Params, only};
use super::caller::Authenticated;
use super::hosts::{Chosen, parse_host};
use super::processes::rows;
use super::{ApiState, Result};
use crate::api::fields::{Fields, each, parsed, percent, text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolParams {
    namespace: Option<String>,
    host: Option<String>,
}

pub(super) async fn list(
    _: Authenticated,
    State(state): State<ApiState>,
    Params(params): Params<PoolParams>,
) -> Result<Json<Value>> {
    let namespace: Option<Namespace> = params.namespace.as_deref().map(str::parse).transpose()?;
    let host = params.host.as_deref().map(parse_host).transpose().map_err(|error| error.inside("host"))?;
    let hosts = host.map(|host| [host]);
    let records = state.control.pools(namespace.as_ref(), hosts.as_ref().map(<[_; 1]>::as_slice)).await?;
    let pools: Vec<Value> = records.into_iter().map(view).collect();
    Ok(Json(json!({ "pools": pools })))
}

fn view(PoolRecord { host, agent, pool }: PoolRecord) -> Value {
    json!({
        "host": host.to_string(),
        "agent": agent,
        "namespace": pool.namespace,
        "id": pool.id,
        "cpu": pool.limits.cpu,
        "memory": pool.limits.memory,
        "cpu_weight": pool.limits.cpu_weight,
        "memory_weight": pool.limits.memory_weight,
    })
}

pub(super) async fn set(_: Authenticated, State(state): State<ApiState>, Body(body): Body) -> Result<Json<Value>> {
    let body = only(&body, &["hosts", "all", "pools"])?;
    let pools = pools(body)?;
    let hosts = Chosen::of(body)?.where_enrolled(&state.control).await?;
    let outcomes = state.control.set_pools(&hosts, &pools).await?;
    Ok(rows(&hosts, outcomes))
}

fn pools(body: Fields<'_>) -> std::result::Result<Vec<Pool>, FieldError> {
    let pools = body.required("pools", |list| each(list, pool))?;
    if pools.is_empty() {
        return Err(FieldError::new("pools", "must not be empty"));
    }
    let mut seen = HashSet::new();
    for (index, pool) in pools.iter().enumerate() {
        if !seen.insert((&pool.namespace, &pool.id)) {
            let problem = format!("pool {} of {} is there twice", pool.id, pool.namespace);
            return Err(FieldError::new(format!("pools[{index}]"), problem));
        }
    }
    Ok(pools)
}

fn pool(value: &Value) -> std::result::Result<Pool, FieldError> {
    let pool = only(value, &["namespace", "id", "cpu", "memory", "cpu_weight", "memory_weight"])?;
    Ok(Pool {
        namespace: pool.required("namespace", parsed)?,
        id: pool.required("id", parsed)?,
        limits: PoolLimits {
            cpu: pool.required("cpu", percent)?,
            memory: pool.required("memory", percent)?,
            cpu_weight: pool.required("cpu_weight", weight)?,
            memory_weight: pool.required("memory_weight", weight)?,
        },
    })
}

fn weight(value: &Value) -> std::result::Result<Weight, FieldError> {
    match text(value)? {
        "usage" => Ok(Weight::Usage),
        "usage_by_limit" => Ok(Weight::UsageByLimit),
        other => Err(FieldError::new("", format!("'{other}' is neither usage nor usage_by_limit"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(change: impl Fn(&mut Value)) -> std::result::Result<Vec<Pool>, FieldError> {
        let mut pool = json!({
            "namespace": "demo", "id": "demo", "cpu": 20, "memory": 30.5,
            "cpu_weight": "usage", "memory_weight": "usage_by_limit",
        });
        change(&mut pool);
        pools(Fields::of(&json!({ "pools": [pool] }))?)
    }

    #[test]
    fn a_pool_has_limits_and_weights() {
        let pools = one(|_| {}).unwrap();

        assert_eq!(pools[0].limits.memory.get(), 30.5);
        assert_eq!(pools[0].limits.memory_weight, Weight::UsageByLimit);
    }

    #[test]
    fn a_bad_value_is_named_with_its_place() {
        assert_eq!(one(|pool| pool["cpu"] = json!(101)).unwrap_err().field, "pools[0].cpu");
        assert_eq!(one(|pool| pool["memory_weight"] = json!(1)).unwrap_err().field, "pools[0].memory_weight");
        assert_eq!(one(|pool| pool["id"] = json!("")).unwrap_err().field, "pools[0].id");
        assert_eq!(one(|pool| pool["cup"] = json!(1)).unwrap_err().field, "pools[0].cup");
    }
}
