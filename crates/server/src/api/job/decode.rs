//! From the JSON of the JOB family to the types of the model.

use std::sync::Arc;

use proctor_model::{
    CommandLine, Control, FieldError, Identity, Labels, Lifetime, Limits, Namespace, OperationKind, Ownership, Percent,
    Period, Policy, ProcName, ProcessKey, ProcessName, Seconds, Spec, UserName, messages,
};

use crate::api::fields::{Fields, count, each, integer, number, parsed, seconds, text};
use crate::api::gse::decode::{Count, address, address_ref, lifetime, merge_repeated, operation_kind};
use crate::api::json::Value;
use crate::control::{GivenSpec, JobScope, Omitted, SpecSource, SubmittedItem, SubmittedTarget};

type Result<T> = std::result::Result<T, FieldError>;

/// The namespace of every process of this family.
const NAMESPACE: &str = "job";
const ACCOUNT: &str = "root";

const INFOS: &str = "process_infos";
const IPS: &str = "ip_list";
const CYCLE: &str = "cycle_time";

/// What operate_proc uses where its caller cannot say.
const SCRIPT_CPU: f64 = 50.0;
const SCRIPT_MEMORY: f64 = 30.0;
const SCRIPT_TIMEOUT: u32 = 10;
const SCRIPT_CHECK_END: u32 = 1;

/// What a call asks for, and under which scope.
#[derive(Debug)]
pub(in crate::api) struct JobCall {
    pub(in crate::api) scope: JobScope,
    pub(in crate::api) items: Vec<SubmittedItem>,
}

type MakeScope = fn(u64) -> JobScope;

/// How a call reads the fields of a process.
type Read = fn(Fields<'_>, OperationKind) -> Result<GivenSpec>;

/// Body of manage_proc, whose numbers are its own.
pub(in crate::api) fn manage_proc(params: &Value<'_>) -> Result<JobCall> {
    let kind = |value: &Value<'_>| match integer(value)? {
        1 => Ok(OperationKind::Manage),
        2 => Ok(OperationKind::Release),
        other => Err(FieldError::new("", messages::neither_manage_nor_release(other))),
    };
    call(params, kind, managed_spec)
}

/// Body of operate_process: every command is written out.
pub(in crate::api) fn operate_process(params: &Value<'_>) -> Result<JobCall> {
    call(params, kind, operated_spec)
}

/// Body of operate_proc: the commands are scripts of fixed names in setup_path.
pub(in crate::api) fn operate_proc(params: &Value<'_>) -> Result<JobCall> {
    call(params, kind, script_spec)
}

/// Body of get_proc_result.
pub(in crate::api) fn task_id(params: &Value<'_>) -> Result<String> {
    let fields = Fields::of(params)?;
    scope(fields)?;
    fields.required("bk_gse_taskid", |value| text(value).map(str::to_owned))
}

fn kind(value: &Value<'_>) -> Result<OperationKind> {
    let number = integer(value)?;
    operation_kind(number).ok_or_else(|| FieldError::new("", messages::not_an_op_type(number)))
}

/// A scope by type and id, else a business by bk_biz_id. Clients send both; the original looks at the scope
/// first.
fn scope(fields: Fields<'_>) -> Result<JobScope> {
    let id = |value| match integer(value)? {
        id if id > 0 => Ok(id.unsigned_abs()),
        id => Err(FieldError::new("", messages::must_be_positive(id))),
    };
    let scope_type = |value| match text(value)? {
        "biz" => Ok(JobScope::Business as MakeScope),
        "biz_set" => Ok(JobScope::BusinessSet as MakeScope),
        other => Err(FieldError::new("", messages::not_a_scope_type(other))),
    };
    let business = fields.optional("bk_biz_id", id)?;
    match (fields.optional("bk_scope_type", scope_type)?, business) {
        (Some(scope), _) => Ok(scope(fields.required("bk_scope_id", id)?)),
        (None, Some(business)) => Ok(JobScope::Business(business)),
        (None, None) => Err(FieldError::new("bk_biz_id", messages::scope_is_missing())),
    }
}

fn call(params: &Value<'_>, kind: impl FnOnce(&Value<'_>) -> Result<OperationKind>, spec: Read) -> Result<JobCall> {
    let fields = Fields::of(params)?;
    let scope = scope(fields)?;
    let kind = fields.required("op_type", kind)?;
    let mut count = Count::default();
    let infos = |value| each(value, |info| item(Fields::of(info)?, kind, spec, &mut count));
    let mut items = fields.required(INFOS, infos)?;
    if items.is_empty() {
        return Err(FieldError::new(INFOS, messages::needs_a_process()));
    }
    merge_repeated(&mut items, |item, index| format!("{INFOS}[{item}].{IPS}[{index}]"))?;
    items.retain(|item| !item.targets.is_empty());
    Ok(JobCall { scope, items })
}

fn item(fields: Fields<'_>, kind: OperationKind, spec: Read, targets_count: &mut Count) -> Result<SubmittedItem> {
    let spec = spec(fields, kind)?;
    let index = index_of(&spec.spec);
    let target = |value| {
        let host = Fields::of(value)?;
        let (written, ip) = host.required("ip", address)?;
        let cloud = host.required("bk_cloud_id", count::<u32>)?;
        let row_key = format!("{index}:{cloud}:{written}");
        Ok(SubmittedTarget { host: address_ref(written, cloud, 0, ip), row_key })
    };
    let targets = fields.required(IPS, |value| each(value, target))?;
    targets_count.add(targets.len())?;
    if targets.is_empty() {
        return Err(FieldError::new(IPS, messages::needs_a_host()));
    }
    let namespace: Namespace = NAMESPACE.parse().expect("the constant is a legal name");
    let key = ProcessKey::new(namespace, ProcessName::from_free_text(&index));
    Ok(SubmittedItem { key, kind: Some(kind), spec: SpecSource::Given(spec), targets })
}

/// What tells processes of one host apart: the value_key, else `setup_path/proc_name`.
fn index_of(spec: &Spec) -> String {
    let Identity { index_key, setup_path, proc_name, .. } = &spec.identity;
    if index_key.is_empty() {
        format!("{}/{proc_name}", setup_path.as_str().trim_end_matches('/'))
    } else {
        index_key.clone()
    }
}

/// Of manage_proc, where a process is periodic unless its type says otherwise.
fn managed_spec(fields: Fields<'_>, kind: OperationKind) -> Result<GivenSpec> {
    let lifetime = fields.optional("type", lifetime)?.unwrap_or(Lifetime::Periodic);
    explicit_spec(fields, lifetime, kind.stores_spec())
}

/// Of operate_process, where a process with a cycle is periodic unless its type says otherwise.
fn operated_spec(fields: Fields<'_>, kind: OperationKind) -> Result<GivenSpec> {
    let usual = if cycle(fields)?.is_some() { Lifetime::Periodic } else { Lifetime::Resident };
    let lifetime = fields.optional("type", lifetime)?.unwrap_or(usual);
    explicit_spec(fields, lifetime, kind.stores_spec())
}

fn explicit_spec(fields: Fields<'_>, lifetime: Lifetime, needs_schedule: bool) -> Result<GivenSpec> {
    let policy = explicit_policy(fields, lifetime)?;
    if policy.lacks_schedule() && needs_schedule {
        return Err(FieldError::new(CYCLE, messages::schedule_is_missing()));
    }
    let (cpu, memory) = (limit(fields, "cpu_lmt")?, limit(fields, "mem_lmt")?);
    let own = |limit: Option<Percent>| limit.filter(|limit| limit.get() > 0.0);
    let says = |name| fields.optional(name, |_| Ok(())).map(|given| given.is_some());
    // There are no labels in this family.
    let omitted = Omitted { labels: true, limits: !says("cpu_lmt")? && !says("mem_lmt")? };
    let contact = fields.text_or_empty("contact")?;
    let ownership = Ownership {
        contact: if contact.is_empty() { fields.text_or_empty("proc_owner")? } else { contact },
        func_id: fields.text_or_empty("func_id")?,
        instance_id: fields.text_or_empty("instance_id")?,
    };
    let spec = Spec {
        identity: identity(fields)?,
        control: Control {
            start: fields.filled("start_cmd")?,
            stop: fields.filled("stop_cmd")?,
            restart: fields.filled("restart_cmd")?,
            reload: fields.filled("reload_cmd")?,
            kill: fields.filled("kill_cmd")?,
            version: None,
            health: None,
        },
        limits: Limits { cpu: own(cpu), memory: own(memory), ..Limits::default() },
        policy,
        ownership,
        report_id: None,
        configmap: Vec::new(),
        labels: Labels::default(),
    };
    Ok(GivenSpec { spec: Arc::new(spec.bounded()?), omitted })
}

/// The paths and the name are required by the original even where its document calls them optional.
fn identity(fields: Fields<'_>) -> Result<Identity> {
    let root: UserName = ACCOUNT.parse().expect("the constant is a legal name");
    Ok(Identity {
        setup_path: fields.required("setup_path", parsed)?,
        proc_name: fields.required("proc_name", parsed)?,
        pid_path: fields.required("pid_path", parsed)?,
        config_path: fields.filled("cfg_path")?,
        log_path: fields.filled("log_path")?,
        user: fields.filled("account")?.unwrap_or(root),
        index_key: fields.text_or_empty("value_key")?,
    })
}

fn cycle(fields: Fields<'_>) -> Result<Option<Period>> {
    Ok(fields.optional(CYCLE, seconds)?.filter(|given: &Period| given.get() > 0))
}

fn explicit_policy(fields: Fields<'_>, lifetime: Lifetime) -> Result<Policy> {
    let mut policy = Policy::new(lifetime);
    let set = |name| Ok::<_, FieldError>(fields.optional(name, seconds)?.filter(|given: &Seconds| given.get() > 0));
    // Absent is the default; 0 is meant, as with the other families' start_check_secs.
    policy.start_check = fields.optional("start_check_begin_time", seconds)?.unwrap_or(policy.start_check);
    policy.start_check_end = fields.optional("start_check_end_time", seconds)?;
    policy.op_timeout = set("op_timeout")?.unwrap_or(policy.op_timeout);
    policy.cycle = cycle(fields)?;
    policy.instances = fields.optional("instance_num", count::<u32>)?.filter(|given| *given > 0).unwrap_or(1);
    Ok(policy)
}

/// Outside 0..100 the original takes no limit.
fn limit(fields: Fields<'_>, name: &str) -> Result<Option<Percent>> {
    Ok(fields.optional(name, number)?.and_then(|limit| Percent::try_from(limit).ok()))
}

/// The conventions of the original: `./start.sh NAME &` and so on, in setup_path.
fn script_spec(fields: Fields<'_>, _: OperationKind) -> Result<GivenSpec> {
    let identity = Identity { index_key: String::new(), ..identity(fields)? };
    let extension = fields.optional("cmd_shell_ext", extension)?.unwrap_or(Extension::Sh);
    let mut policy = Policy::new(Lifetime::Resident);
    policy.op_timeout = Seconds::try_from(SCRIPT_TIMEOUT)?;
    policy.start_check_end = Some(Seconds::try_from(SCRIPT_CHECK_END)?);
    let limit = |name, default| Ok::<_, FieldError>(limit(fields, name)?.unwrap_or(Percent::try_from(default)?));
    let own = |limit: Percent| Some(limit).filter(|limit| limit.get() > 0.0);
    let script = |action| script(action, &identity.proc_name, extension).map(Some);
    let spec = Spec {
        control: Control {
            start: script("start")?,
            stop: script("stop")?,
            restart: script("restart")?,
            reload: script("reload")?,
            ..Control::default()
        },
        limits: Limits {
            cpu: own(limit("cpu_lmt", SCRIPT_CPU)?),
            memory: own(limit("mem_lmt", SCRIPT_MEMORY)?),
            ..Limits::default()
        },
        policy,
        ownership: Ownership::default(),
        report_id: None,
        configmap: Vec::new(),
        labels: Labels::default(),
        identity,
    };
    Ok(GivenSpec { spec: Arc::new(spec.bounded()?), omitted: Omitted { labels: true, limits: false } })
}

#[derive(Clone, Copy, Debug)]
enum Extension {
    Sh,
    Other(&'static str),
}

fn extension(value: &Value<'_>) -> Result<Extension> {
    match text(value)? {
        "" | "sh" => Ok(Extension::Sh),
        "bat" => Ok(Extension::Other("bat")),
        "ps1" => Ok(Extension::Other("ps1")),
        other => Err(FieldError::new("", messages::not_a_script_type(other))),
    }
}

/// In the background as the original has it: scripts of this convention may stay in front of
/// their process. The name is a caller's text and the line is a shell's, hence the quotes.
fn script(action: &str, proc_name: &ProcName, extension: Extension) -> Result<CommandLine> {
    let name = quoted(proc_name.as_str());
    let line = match extension {
        Extension::Sh => format!("./{action}.sh {name} &"),
        Extension::Other(extension) => format!("{action}.{extension} {name}"),
    };
    line.parse()
}

fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+');
    if text.bytes().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests;
