//! `content` of a finished row: what an operation did, or the state of a process.
//!
//! Promised: every finished row has content with exactly one element, failed rows too; `pid` is exactly -1 if the
//! process is not running; numbers and texts have the types that the Go clients decode.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::tz::Offset;
use proctor_model::{AgentId, OperationKind, Outcome, Snapshot};
use proctor_store::{Target, TaskItem, TaskView};
use serde::Serialize;

use super::family::SHOWS_META_NAME;
use super::language;

const DATE_TIME: &str = "%Y-%m-%d %H:%M:%S";
/// As in `Wed May 24 15:25:48 2017`.
const CTIME: &str = "%a %b %e %H:%M:%S %Y";

/// The content of one finished row.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Control { value: [Control<'a>; 1] },
    Status(Box<Status<'a>>),
}

#[derive(Debug, Serialize)]
pub(super) struct Control<'a> {
    #[serde(rename = "procName")]
    proc_name: &'a str,
    #[serde(rename = "setupPath")]
    setup_path: &'a str,
    #[serde(rename = "funcID")]
    func_id: &'a str,
    #[serde(rename = "instanceID")]
    instance_id: &'a str,
    /// The command's output; clients show it to users.
    result: Cow<'a, str>,
    #[serde(rename = "isAuto")]
    is_auto: bool,
    bk_agent_id: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct Status<'a> {
    ip: String,
    bk_agent_id: &'a str,
    /// The host's local time, in spite of its name.
    utctime: String,
    utctime2: String,
    timezone: i32,
    process: [Process<'a>; 1],
}

#[derive(Debug, Serialize)]
struct Process<'a> {
    procname: &'a str,
    instance: Vec<Instance<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Instance<'a> {
    process_name: &'a str,
    pid: i32,
    is_auto: bool,
    version: &'a str,
    health: &'a str,
    cmdline: &'a str,
    stat: &'a str,
    cpu_usage: f64,
    cpu_usage_ave: f64,
    phy_mem_usage: f64,
    /// In KiB.
    use_phy_mem: u64,
    #[serde(rename = "freeVMem")]
    free_vmem: &'static str,
    disk_size: i64,
    start_time: String,
    elapsed_time: u64,
    utime: String,
    stime: String,
    thread_count: u32,
    #[serde(rename = "register_time")]
    register_time: i64,
    #[serde(rename = "last_start_time")]
    last_start_time: i64,
    #[serde(rename = "report_time")]
    report_time: i64,
}

/// The content for `target`, which has `outcome`; `agent` is the id that callers know its agent by.
pub(super) fn content<'a>(
    task: &'a TaskView,
    target: &'a Target,
    agent: Option<&'a AgentId>,
    outcome: &'a Outcome,
) -> Content<'a> {
    let item = &task.items[target.item as usize];
    let bk_agent_id = agent.map_or("", AgentId::as_str);
    if item.kind == Some(OperationKind::Status) {
        Content::Status(Box::new(status(task, item, target, bk_agent_id, outcome)))
    } else {
        Content::Control { value: [control(item, bk_agent_id, outcome)] }
    }
}

fn control<'a>(item: &'a TaskItem, bk_agent_id: &'a str, outcome: &'a Outcome) -> Control<'a> {
    let spec = item.spec.as_deref();
    Control {
        proc_name: spec.map_or(item.key.name.as_str(), |spec| spec.identity.proc_name.as_str()),
        setup_path: spec.map_or("", |spec| spec.identity.setup_path.as_str()),
        func_id: spec.map_or("", |spec| &spec.ownership.func_id),
        instance_id: spec.map_or("", |spec| &spec.ownership.instance_id),
        result: if outcome.output.is_empty() {
            language::of_outcome(outcome).into()
        } else {
            (&*outcome.output).into()
        },
        is_auto: outcome.managed,
        bk_agent_id,
    }
}

fn status<'a>(
    task: &'a TaskView,
    item: &'a TaskItem,
    target: &'a Target,
    bk_agent_id: &'a str,
    outcome: &'a Outcome,
) -> Status<'a> {
    let snapshot = outcome.snapshot.as_ref();
    let name = shown_name(&task.family, item);
    // Without a probe of the host there is no time of its own; the task's is the closest.
    let reported_at = snapshot.map(|snapshot| snapshot.reported_at).filter(|at| *at > 0);
    let at = reported_at.unwrap_or(task.created_at / 1000);
    let offset = snapshot.map_or(0, |snapshot| snapshot.utc_offset_secs);
    Status {
        ip: target.host.map(|host| host.ip.to_string()).unwrap_or_default(),
        bk_agent_id,
        utctime: written(DATE_TIME, at, offset),
        utctime2: written(DATE_TIME, at, 0),
        timezone: offset / 3600,
        process: [Process { procname: name, instance: instances(name, outcome) }],
    }
}

/// The newer dialects show the name of the meta data, the older ones that of the executable.
fn shown_name<'a>(family: &str, item: &'a TaskItem) -> &'a str {
    match &item.spec {
        Some(spec) if !SHOWS_META_NAME.contains(&family) => spec.identity.proc_name.as_str(),
        Some(_) | None => item.key.name.as_str(),
    }
}

/// One per instance; one with pid -1 for a process that was never seen.
fn instances<'a>(name: &'a str, outcome: &'a Outcome) -> Vec<Instance<'a>> {
    static UNSEEN: std::sync::LazyLock<Snapshot> = std::sync::LazyLock::new(Snapshot::default);
    match (&outcome.instances[..], &outcome.snapshot) {
        ([], None) => vec![Instance { is_auto: outcome.managed, ..instance(name, &UNSEEN) }],
        ([], Some(snapshot)) => vec![instance(name, snapshot)],
        (several, _) => several.iter().map(|snapshot| instance(name, snapshot)).collect(),
    }
}

fn instance<'a>(name: &'a str, snapshot: &'a Snapshot) -> Instance<'a> {
    let usage = &snapshot.usage;
    let start_time = match snapshot.pid {
        Some(_) if snapshot.started_at > 0 => written(CTIME, snapshot.started_at, snapshot.utc_offset_secs),
        Some(_) | None => String::new(),
    };
    Instance {
        process_name: name,
        pid: snapshot.pid.unwrap_or(-1),
        is_auto: snapshot.managed,
        version: &snapshot.version,
        health: &snapshot.health,
        cmdline: &usage.command_line,
        stat: &usage.state,
        cpu_usage: usage.cpu_percent,
        cpu_usage_ave: usage.cpu_percent_average,
        phy_mem_usage: usage.memory_percent,
        use_phy_mem: usage.memory_bytes / 1024,
        free_vmem: "0",
        disk_size: -1,
        start_time,
        elapsed_time: usage.elapsed_secs,
        utime: usage.user_ticks.to_string(),
        stime: usage.system_ticks.to_string(),
        thread_count: usage.threads,
        register_time: snapshot.registered_at,
        last_start_time: snapshot.started_at,
        report_time: snapshot.reported_at,
    }
}

/// Unix seconds as a clock with this offset shows them; empty for a time that no calendar has.
fn written(format: &str, seconds: i64, offset_secs: i32) -> String {
    let offset = Offset::from_seconds(offset_secs).unwrap_or(Offset::UTC);
    Timestamp::from_second(seconds).map(|at| offset.to_datetime(at).strftime(format).to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_host_sees_them() {
        assert_eq!(written(DATE_TIME, 1_522_806_980, 8 * 3600), "2018-04-04 09:56:20");
        assert_eq!(written(DATE_TIME, 1_522_806_980, 0), "2018-04-04 01:56:20");
        assert_eq!(written(CTIME, 1_495_610_748, 8 * 3600), "Wed May 24 15:25:48 2017");
        assert_eq!(written(DATE_TIME, i64::MAX, 0), "");
    }

    #[test]
    fn a_process_that_nobody_has_seen_has_pid_minus_one() {
        let outcome = Outcome::success(false);

        let json = serde_json::to_value(&instances("x", &outcome)[0]).unwrap();

        assert_eq!(json["pid"], -1);
        assert_eq!(json["isAuto"], false);
        assert_eq!(json["diskSize"], -1);
        assert_eq!(json["freeVMem"], "0");
        assert_eq!(json["utime"], "0");
        assert_eq!(json["report_time"], 0);
        assert_eq!(json.as_object().unwrap().len(), 21);
    }
}
