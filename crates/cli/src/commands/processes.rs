//! Processes: `ps`, `show`, `register`, `unregister`.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use proctor_client::{LIMIT_MAX, ProcessQuery, ProcessView, ShowQuery};
use proctor_model::{HostKey, Lifetime, Phase};
use proctor_runtime::clock;
use serde_json::{Value, json};

use super::{CommandEnd, Session};
use crate::args::{ChosenProcess, PsArgs, RegisterArgs, ShowArgs};
use crate::output::{self, CellStyle, TextTable, ago, moment, or_dash, plain, printable, yes_no};

const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(super) async fn ps(session: &Session, args: PsArgs) -> Result<CommandEnd> {
    let query = ProcessQuery {
        namespace: args.namespace,
        host: args.host,
        business: args.business,
        selector: args.selector,
        phase: args.phase,
        sort: args.sort.map(Into::into),
        limit: Some(LIMIT_MAX),
        ..Default::default()
    };
    let fetch = async || session.client.all_processes(&query).try_collect::<Vec<ProcessView>>().await;
    session.list(args.watch, fetch, |processes| table(processes, clock::unix_millis())).await
}

pub(super) fn table(processes: &[ProcessView], now: i64) -> TextTable {
    let headers = [
        "PROCESS",
        "HOST",
        "PHASE",
        "MANAGED",
        "PID",
        "CPU%",
        "MEM%",
        "UP",
        "RESTARTS",
        "VERSION",
        "AGENT",
        "BUSINESS",
        "LIFETIME",
        "GENERATION",
        "REASON",
    ];
    let mut table = TextTable::new(&headers).right(&[4, 5, 6, 7, 8, 13]).only_wide(&[10, 11, 12, 13]);
    for process in processes {
        let up = if process.pid.is_some() { ago(process.started_at, now) } else { "-".into() };
        table.row([
            plain(&process.process),
            plain(&process.host),
            phase(process.phase, process.online),
            plain(yes_no(process.managed)),
            plain(process.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
            plain(format!("{:.1}", process.cpu_percent)),
            plain(format!("{:.1}", process.memory_percent)),
            plain(up),
            plain(process.restarts),
            plain(or_dash(process.version.clone())),
            plain(&process.agent),
            plain(or_dash(process.business.map(|id| id.to_string()).unwrap_or_default())),
            plain(lifetime(process.lifetime)),
            plain(process.generation),
            plain(or_dash(process.reason.clone())),
        ]);
    }
    table
}

fn lifetime(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::Resident => "resident",
        Lifetime::Periodic => "periodic",
        Lifetime::Once => "once",
    }
}

/// If a host's agent is not connected, only its past state is known.
pub(super) fn phase(phase: Phase, online: bool) -> (String, CellStyle) {
    if !online {
        return (format!("offline ({phase})"), CellStyle::Warning);
    }
    let style = match phase {
        Phase::Running => CellStyle::Good,
        Phase::Starting | Phase::Stopping | Phase::Waiting => CellStyle::Warning,
        Phase::Failed => CellStyle::Bad,
        Phase::Unknown | Phase::Stopped => CellStyle::Plain,
    };
    (phase.to_string(), style)
}

pub(super) async fn show(session: &Session, args: ShowArgs) -> Result<CommandEnd> {
    let processes = session
        .client
        .process(&args.process, &ShowQuery { limit: Some(LIMIT_MAX), ..ShowQuery::default() })
        .await?
        .processes;
    let text = described(&processes)?;
    output::print_or(session.output, &processes, || text)?;
    Ok(CommandEnd::Success)
}

/// Every stored field, one per line; hosts with the same spec share it.
fn described(processes: &[ProcessView]) -> Result<String> {
    let mut text = String::new();
    let mut shown: Vec<&ProcessView> = Vec::new();
    for process in processes {
        if shown.iter().any(|other| other.spec == process.spec) {
            continue;
        }
        shown.push(process);
        let alike: Vec<&ProcessView> = processes.iter().filter(|other| other.spec == process.spec).collect();
        text += &format!("{}{}\n", if text.is_empty() { "" } else { "\n" }, process.process);
        for host in alike {
            let (phase, _) = phase(host.phase, host.online);
            let registered = moment(host.registered_at.unwrap_or_default());
            text += &format!(
                "  on {} (agent {}): {phase}, managed: {}, generation {}, registered {registered}\n",
                host.host,
                host.agent,
                yes_no(host.managed),
                host.generation,
            );
        }
        let mut fields = Vec::new();
        flatten("", &serde_json::to_value(&process.spec).context("cannot show the spec")?, &mut fields);
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in fields {
            text += &format!("  {name:width$}  {}\n", printable(&value).replace('\n', "\n    "));
        }
    }
    Ok(text)
}

/// `policy.start_retries`, `labels.x`, `configmap[0].path`; `-` if not set.
fn flatten(name: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    let dotted = |field: &str| if name.is_empty() { field.to_owned() } else { format!("{name}.{field}") };
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (field, value) in object {
                flatten(&dotted(field), value, fields);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (index, value) in list.iter().enumerate() {
                flatten(&format!("{name}[{index}]"), value, fields);
            }
        }
        Value::String(text) => fields.push((name.to_owned(), or_dash(text.clone()))),
        Value::Number(_) | Value::Bool(_) => fields.push((name.to_owned(), value.to_string())),
        Value::Null | Value::Object(_) | Value::Array(_) => fields.push((name.to_owned(), "-".into())),
    }
}

pub(super) async fn register(session: &Session, args: RegisterArgs) -> Result<CommandEnd> {
    let mut body = read_body(&args.file)?;
    if !args.hosts.is_empty() {
        replace_hosts(&mut body, &args.hosts)?;
    }
    let rows = if args.update {
        session.client.register_or_update(&body).await?
    } else {
        session.client.register(&body).await?
    };
    session.print_rows(&rows)
}

/// JSON or TOML, told apart by the file name or, failing that, by the first character.
pub(super) fn read_body(path: &Path) -> Result<Value> {
    let text = read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_toml = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => true,
        Some("json") => false,
        Some(_) | None => !text.trim_start().starts_with('{'),
    };
    if is_toml {
        toml::from_str(&text).with_context(|| format!("{} is not well-formed TOML", path.display()))
    } else {
        serde_json::from_str(&text).with_context(|| format!("{} is not well-formed JSON", path.display()))
    }
}

pub(super) fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// `agent_id_list` accepts both common forms, and takes precedence over `hosts`.
fn replace_hosts(body: &mut Value, hosts: &[String]) -> Result<()> {
    let Some(body) = body.as_object_mut() else { bail!("the file must hold meta, hosts and spec") };
    let ids: Vec<String> =
        hosts.iter().map(|host| host.parse::<HostKey>().map_or_else(|_| host.clone(), |key| key.to_string())).collect();
    body.remove("hosts");
    body.insert("agent_id_list".into(), json!(ids));
    Ok(())
}

pub(super) async fn unregister(session: &Session, args: ChosenProcess) -> Result<CommandEnd> {
    let rows = session.client.unregister(&args.process, &args.hosts.get()).await?;
    session.print_rows(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(host: &str, start: &str) -> ProcessView {
        serde_json::from_value(json!({
            "process": "demo/x", "host": host, "agent": "a-1", "online": host != "0:10.0.0.9",
            "phase": "running", "managed": true, "pid": 42, "cpu_percent": 1.25, "memory_percent": 0.5,
            "started_at": 40, "restarts": 0, "version": "1.0\nbuilt today", "reason": "", "lifetime": "resident",
            "generation": 3, "registered_at": 30,
            "spec": {
                "identity": { "proc_name": "x", "setup_path": "/opt/x", "pid_path": "/run/x.pid", "config_path": null,
                              "log_path": null, "user": "root", "index_key": "" },
                "control": { "start": start, "stop": null, "restart": null, "reload": null, "kill": null,
                             "version": null, "health": null },
                "limits": { "cpu": 10.0, "memory": null, "fd": 100, "disk": null, "net": null },
                "policy": { "lifetime": "resident", "start_check": 5, "stop_check": 5, "start_retries": 4,
                            "start_interval": 10, "op_timeout": 60, "crontab_rule": null, "cycle": null,
                            "instances": 1, "start_check_end": null },
                "ownership": { "contact": "", "func_id": "", "instance_id": "" },
                "report_id": null,
                "configmap": [{ "path": "/etc/x.conf", "md5": "abc" }],
                "labels": { "team": "进程" },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_process_is_one_line_and_offline_is_said() {
        let text = table(&[process("0:10.0.0.1", "a"), process("0:10.0.0.9", "a")], 100_000).to_text();

        let lines: Vec<&str> = text.lines().collect();
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words, ["demo/x", "0:10.0.0.1", "running", "yes", "42", "1.2", "0.5", "1m0s", "0", "1.0", "-"]);
        assert!(lines[2].contains("offline (running)"), "{text}");
    }

    #[test]
    fn every_field_is_shown_and_equal_specs_once() {
        let text =
            described(&[process("0:10.0.0.1", "a"), process("0:10.0.0.2", "a"), process("0:10.0.0.3", "b")]).unwrap();

        assert_eq!(text.matches("identity.proc_name").count(), 2, "{text}");
        for field in ["control.start ", "control.health ", "limits.disk ", "configmap[0].md5 ", "labels.team "] {
            assert!(text.contains(field), "{field} is missing:\n{text}");
        }
    }

    #[test]
    fn hosts_on_the_command_line_replace_those_of_the_file() {
        let mut body = json!({ "hosts": [{ "ip": "10.0.0.9" }], "meta": {} });

        replace_hosts(&mut body, &["10.0.0.1".into(), "3:10.0.0.2".into(), "a-1".into()]).unwrap();

        assert_eq!(body, json!({ "agent_id_list": ["0:10.0.0.1", "3:10.0.0.2", "a-1"], "meta": {} }));
    }

    #[test]
    fn files_are_json_or_toml() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.toml", "[meta]\nname = 'x'"),
            ("b.json", "{\"meta\":{\"name\":\"x\"}}"),
            ("c", " {\"meta\":{\"name\":\"x\"}}"),
        ] {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();

            assert_eq!(read_body(&path).unwrap(), json!({ "meta": { "name": "x" } }), "{name}");
        }
    }
}
