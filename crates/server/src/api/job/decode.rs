//! From the JSON of the JOB family to the words of the model.

use std::sync::Arc;

use proctor_model::{
    CommandLine, Control, FieldError, HostKey, Identity, Labels, Lifetime, Limits, Namespace, OperationKind, Ownership,
    Percent, Policy, ProcName, ProcessKey, ProcessName, Seconds, Spec, UserName,
};

use crate::api::fields::{Fields, count, each, integer, number, parsed, seconds, text};
use crate::api::gse::decode::{Taken, address, lifetime, operation_kind, take, within_bounds};
use crate::api::json::Value;
use crate::control::{HostRef, SpecSource, SubmittedItem, SubmittedTarget};

type Result<T> = std::result::Result<T, FieldError>;

/// The namespace of every process of this family.
const NAMESPACE: &str = "job";
const ACCOUNT: &str = "root";

/// What operate_proc uses where its caller cannot say.
const SCRIPT_CPU: f64 = 50.0;
const SCRIPT_MEMORY: f64 = 30.0;
const SCRIPT_TIMEOUT: u32 = 10;
const SCRIPT_CHECK_END: u32 = 1;

/// Body of manage_proc, whose numbers are its own.
pub(in crate::api) fn manage_proc(params: &Value<'_>) -> Result<Vec<SubmittedItem>> {
    let kind = |value: &Value<'_>| match integer(value)? {
        1 => Ok(OperationKind::Manage),
        2 => Ok(OperationKind::Release),
        other => Err(FieldError::new("", format!("{other} is neither 1 (manage) nor 2 (release)"))),
    };
    items(params, kind, explicit_spec)
}

/// Body of operate_process: every command is written out.
pub(in crate::api) fn operate_process(params: &Value<'_>) -> Result<Vec<SubmittedItem>> {
    items(params, kind, explicit_spec)
}

/// Body of operate_proc: the commands are scripts of fixed names in setup_path.
pub(in crate::api) fn operate_proc(params: &Value<'_>) -> Result<Vec<SubmittedItem>> {
    items(params, kind, script_spec)
}

/// Body of get_proc_result.
pub(in crate::api) fn task_id(params: &Value<'_>) -> Result<String> {
    let fields = Fields::of(params)?;
    scope(fields)?;
    fields.required("bk_gse_taskid", |value| text(value).map(str::to_owned))
}

fn kind(value: &Value<'_>) -> Result<OperationKind> {
    let number = integer(value)?;
    operation_kind(number).ok_or_else(|| FieldError::new("", format!("{number} is none of 0, 1, 2, 3, 4, 7, 8, 9")))
}

/// A business by bk_biz_id, or a scope by type and id.
fn scope(fields: Fields<'_>) -> Result<()> {
    let id = |value| match integer(value)? {
        id if id > 0 => Ok(()),
        id => Err(FieldError::new("", format!("{id} must be greater than 0"))),
    };
    if fields.optional("bk_biz_id", id)?.is_some() {
        return Ok(());
    }
    let scope_type = |value| match text(value)? {
        "biz" | "biz_set" => Ok(()),
        other => Err(FieldError::new("", format!("'{other}' is neither biz nor biz_set"))),
    };
    let Some(()) = fields.optional("bk_scope_type", scope_type)? else {
        return Err(FieldError::new("bk_biz_id", "is missing, and so is bk_scope_type"));
    };
    fields.required("bk_scope_id", id)
}

fn items(
    params: &Value<'_>,
    kind: impl FnOnce(&Value<'_>) -> Result<OperationKind>,
    spec: fn(Fields<'_>) -> Result<Spec>,
) -> Result<Vec<SubmittedItem>> {
    let fields = Fields::of(params)?;
    scope(fields)?;
    let kind = fields.required("op_type", kind)?;
    let mut taken = Taken::new();
    let infos = |value| each(value, |info| item(Fields::of(info)?, kind, spec, &mut taken));
    let items = fields.required("process_infos", infos)?;
    if items.is_empty() {
        return Err(FieldError::new("process_infos", "must hold at least one process"));
    }
    Ok(items)
}

/// `taken` holds the targets of the whole request: each may be there once, however its address is
/// written.
fn item(
    fields: Fields<'_>,
    kind: OperationKind,
    spec: fn(Fields<'_>) -> Result<Spec>,
    taken: &mut Taken,
) -> Result<SubmittedItem> {
    let spec = spec(fields)?;
    let index: Arc<str> = index_of(&spec).into();
    let target = |value| {
        let host = Fields::of(value)?;
        let (written, ip) = host.required("ip", address)?;
        let cloud = host.required("bk_cloud_id", count::<u32>)?;
        let host = HostRef::Key(HostKey::new(cloud, 0, ip));
        let row_key = format!("{index}:{cloud}:{written}");
        if !take(taken, &index, &host) {
            return Err(FieldError::new("", format!("target {row_key} is named twice")));
        }
        Ok(SubmittedTarget { host, row_key })
    };
    let targets = fields.required("ip_list", |value| each(value, target))?;
    within_bounds(taken.len())?;
    if targets.is_empty() {
        return Err(FieldError::new("ip_list", "must name at least one host"));
    }
    let namespace: Namespace = NAMESPACE.parse().expect("the constant is a legal name");
    let key = ProcessKey::new(namespace, ProcessName::from_free_text(&index));
    Ok(SubmittedItem { key, kind: Some(kind), spec: SpecSource::Given(Arc::new(spec)), targets })
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

fn explicit_spec(fields: Fields<'_>) -> Result<Spec> {
    let limit = |name| Ok(limit(fields, name)?.filter(|limit: &Percent| limit.get() > 0.0));
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
        limits: Limits { cpu: limit("cpu_lmt")?, memory: limit("mem_lmt")?, ..Limits::default() },
        policy: explicit_policy(fields)?,
        ownership,
        report_id: None,
        configmap: Vec::new(),
        labels: Labels::default(),
    };
    spec.bounded()
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

fn explicit_policy(fields: Fields<'_>) -> Result<Policy> {
    let mut policy = Policy::new(fields.optional("type", lifetime)?.unwrap_or(Lifetime::Periodic));
    let set = |name| Ok::<_, FieldError>(fields.optional(name, seconds)?.filter(|given: &Seconds| given.get() > 0));
    // Absent is the default; 0 is meant, as with the other families' start_check_secs.
    policy.start_check = fields.optional("start_check_begin_time", seconds)?.unwrap_or(policy.start_check);
    policy.start_check_end = fields.optional("start_check_end_time", seconds)?;
    policy.op_timeout = set("op_timeout")?.unwrap_or(policy.op_timeout);
    policy.cycle = set("cycle_time")?;
    policy.instances = fields.optional("instance_num", count::<u32>)?.filter(|given| *given > 0).unwrap_or(1);
    Ok(policy)
}

/// Outside 0..100 the original takes no limit.
fn limit(fields: Fields<'_>, name: &str) -> Result<Option<Percent>> {
    Ok(fields.optional(name, number)?.and_then(|limit| Percent::try_from(limit).ok()))
}

/// The conventions of the original: `./start.sh NAME &` and so on, in setup_path.
fn script_spec(fields: Fields<'_>) -> Result<Spec> {
    let identity = Identity { index_key: String::new(), ..identity(fields)? };
    let extension = fields.optional("cmd_shell_ext", extension)?.unwrap_or(Extension::Sh);
    let mut policy = Policy::new(Lifetime::Resident);
    policy.op_timeout = Seconds::try_from(SCRIPT_TIMEOUT)?;
    policy.start_check_end = Some(Seconds::try_from(SCRIPT_CHECK_END)?);
    let limit = |name, default| Ok::<_, FieldError>(limit(fields, name)?.unwrap_or(Percent::try_from(default)?));
    let own = |limit: Percent| Some(limit).filter(|limit| limit.get() > 0.0);
    let script = |action| script(action, &identity.proc_name, extension).map(Some);
    Ok(Spec {
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
    })
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
        other => Err(FieldError::new("", format!("'{other}' is none of sh, bat, ps1"))),
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
