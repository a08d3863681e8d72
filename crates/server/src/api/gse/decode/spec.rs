//! `spec`: what the process is.

use std::sync::Arc;

use proctor_model::{
    AbsolutePath, ConfigFile, Control, FieldError, HealthPolicy, Identity, Labels, Lifetime, Limits, Ownership,
    Percent, Period, Policy, Seconds, Spec, messages,
};

use super::Result;
use crate::api::fields::{Fields, count, each, integer, parsed, percent, seconds};
use crate::api::json::Value;
use crate::control::{GivenSpec, Omitted};

/// For what a spec is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// Complete by the documents' rules.
    Registration,
    /// What it omits stays as it is registered.
    Update,
    /// As an update, where the operation stores its spec.
    Operation { stores: bool },
}

impl Demand {
    /// One that is for a single stop, or for a look, needs no schedule.
    fn is_stored(self) -> bool {
        match self {
            Self::Registration | Self::Update => true,
            Self::Operation { stores } => stores,
        }
    }
}

pub(super) fn spec(value: &Value<'_>, labels: Option<Labels>, demand: Demand) -> Result<GivenSpec> {
    let fields = Fields::of(value)?;
    let limits = match demand {
        Demand::Registration => Some(fields.required("resource", limits)?),
        Demand::Update | Demand::Operation { .. } => fields.optional("resource", limits)?,
    };
    let omitted = Omitted { labels: labels.is_none(), limits: limits.is_none() };
    let policy_name = fields.name_of(["monitor_policy", "alive_monitor_policy"]);
    let policy = fields.required(policy_name, policy)?;
    if policy.lacks_schedule() && demand.is_stored() {
        return Err(FieldError::new("crontab_rule", messages::schedule_is_missing()).inside(policy_name));
    }
    let report_id = |value| Fields::of(value)?.optional("report_id", integer);
    let spec = Spec {
        identity: fields.required("identity", identity)?,
        control: fields.required("control", control)?,
        limits: limits.unwrap_or_default(),
        policy,
        ownership: Ownership::default(),
        report_id: fields.optional("warn_report_policy", report_id)?.flatten(),
        configmap: fields.optional("configmap", configmap)?.unwrap_or_default(),
        labels: labels.unwrap_or_default(),
    };
    Ok(GivenSpec { spec: Arc::new(spec.bounded()?), omitted })
}

fn identity(value: &Value<'_>) -> Result<Identity> {
    let fields = Fields::of(value)?;
    Ok(Identity {
        proc_name: fields.required("proc_name", parsed)?,
        setup_path: fields.required("setup_path", parsed)?,
        pid_path: fields.required("pid_path", parsed)?,
        config_path: fields.filled::<AbsolutePath>("config_path")?.map(Into::into),
        log_path: fields.filled::<AbsolutePath>("log_path")?.map(Into::into),
        user: fields.required("user", parsed)?,
        index_key: fields.text_or_empty("index_key")?,
    })
}

fn control(value: &Value<'_>) -> Result<Control> {
    let fields = Fields::of(value)?;
    Ok(Control {
        start: fields.filled("start_cmd")?,
        stop: fields.filled("stop_cmd")?,
        restart: fields.filled("restart_cmd")?,
        reload: fields.filled("reload_cmd")?,
        kill: fields.filled("kill_cmd")?,
        version: fields.filled("version_cmd")?,
        health: fields.filled("health_cmd")?,
    })
}

/// 0 is what clients without a limit send.
fn limits(value: &Value<'_>) -> Result<Limits> {
    let fields = Fields::of(value)?;
    let limit = |name| Ok(fields.optional(name, percent)?.filter(|limit: &Percent| limit.get() > 0.0));
    Ok(Limits {
        cpu: limit("cpu")?,
        memory: limit("mem")?,
        fd: fields.optional("fd", count)?,
        disk: fields.optional("disk", count)?,
        net: fields.optional("net", count)?,
    })
}

fn policy(value: &Value<'_>) -> Result<Policy> {
    let fields = Fields::of(value)?;
    let mut policy = Policy::new(fields.required("auto_type", lifetime)?);
    // Go clients send 0 for what they do not set. For the start check and the interval 0 is meaningful; for a stop or
    // a command it is not.
    let set = |name| Ok::<_, FieldError>(fields.optional(name, seconds)?.filter(|given: &Seconds| given.get() > 0));
    policy.start_check = fields.optional("start_check_secs", seconds)?.unwrap_or(policy.start_check);
    policy.stop_check = set("stop_check_secs")?.unwrap_or(policy.stop_check);
    policy.start_retries = fields.optional("start_retries", count)?.unwrap_or(policy.start_retries);
    policy.start_interval = fields.optional("start_interval", seconds)?.unwrap_or(policy.start_interval);
    policy.op_timeout = set("op_timeout")?.unwrap_or(policy.op_timeout);
    // All examples of the documents misspell it.
    policy.crontab_rule = match fields.filled("crontab_rule")? {
        Some(rule) => Some(rule),
        None => fields.filled("crotab_rule")?,
    };
    // Ours, in the words of JOB.
    policy.cycle = fields.optional("cycle_time", seconds)?.filter(|given: &Period| given.get() > 0);
    policy.instances = fields.optional("instance_num", count::<u32>)?.filter(|given| *given > 0).unwrap_or(1);
    policy.health = fields.optional("health_check", health)?.unwrap_or_default();
    Ok(policy)
}

/// Ours: the documents have a health command, but not when to run it.
fn health(value: &Value<'_>) -> Result<HealthPolicy> {
    let fields = Fields::of(value)?;
    let usual = HealthPolicy::default();
    let at_least_one = |name, usual: Seconds| match fields.optional(name, seconds)? {
        Some(given) if Seconds::get(given) == 0 => Err(FieldError::new(name, messages::must_be_at_least_1())),
        given => Ok(given.unwrap_or(usual)),
    };
    let failures = fields.optional("failures", count)?.unwrap_or(usual.failures);
    if failures == 0 {
        return Err(FieldError::new("failures", messages::must_be_at_least_1()));
    }
    Ok(HealthPolicy {
        interval: at_least_one("interval_secs", usual.interval)?,
        timeout: at_least_one("timeout_secs", usual.timeout)?,
        failures,
        grace: fields.optional("grace_secs", seconds)?.unwrap_or(usual.grace),
    })
}

pub(in crate::api) fn lifetime(value: &Value<'_>) -> Result<Lifetime> {
    match integer(value)? {
        0 => Ok(Lifetime::Periodic),
        1 => Ok(Lifetime::Resident),
        2 => Ok(Lifetime::Once),
        other => Err(FieldError::new("", messages::not_a_lifetime(other))),
    }
}

/// An entry without a path says nothing; the documents' example is one.
fn configmap(value: &Value<'_>) -> Result<Vec<ConfigFile>> {
    let entries = each(value, |entry| {
        let fields = Fields::of(entry)?;
        let md5 = fields.text_or_empty("md5")?;
        Ok(fields.filled::<AbsolutePath>("path")?.map(|path| ConfigFile { path, md5 }))
    })?;
    Ok(entries.into_iter().flatten().collect())
}
