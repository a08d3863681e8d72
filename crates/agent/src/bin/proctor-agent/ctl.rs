//! `proctor-agent ctl` and `proctor-agent doctor`, for the owner of the host.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use proctor_agent::doctor::{self, Verdict};
use proctor_agent::local::{self, LocalAnswer, LocalError, LocalProcess, LocalRequest};
use proctor_model::{OperationKind, Outcome, ProcessKey, Snapshot};
use serde::Serialize;

/// The agent answered, and the answer is no success.
const FAILED: u8 = 1;
/// There was no answer.
const NO_ANSWER: u8 = 2;

#[derive(Debug, Subcommand)]
pub(crate) enum Ctl {
    /// List the processes of this host
    Ps(OutputArguments),
    /// Show the current status of a process
    Status(ProcessArguments),
    /// Start a process and keep it alive
    Start(ProcessArguments),
    /// Stop a process and release it
    Stop(ProcessArguments),
    /// Restart a process
    Restart(ProcessArguments),
    /// Run a process's reload command
    Reload(ProcessArguments),
    /// Kill a process with its children and release it
    Kill(ProcessArguments),
    /// Keep a process alive from now on
    Manage(ProcessArguments),
    /// Stop keeping a process alive; it keeps running
    Release(ProcessArguments),
    /// Show the events that the server has not seen
    Events(ListArguments),
    /// Print what the agent counts, for Prometheus
    Metrics(MetricsArguments),
    /// Show what the ledger holds, and the last operations; needs no running agent
    Ledger(ListArguments),
}

#[derive(Debug, Args)]
pub(crate) struct OutputArguments {
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProcessArguments {
    /// NAMESPACE/NAME
    process: ProcessKey,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// How many, the newest
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArguments {
    /// With the usage of each process
    #[arg(long)]
    processes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Such as a new proctor-agent
    file: PathBuf,
    /// Of the file, as the server gives it: /download/FILE.sig
    signature: PathBuf,
}

pub(crate) fn run(state_dir: &Path, command: Ctl) -> ExitCode {
    match carry_out(state_dir, command) {
        Ok(code) => code,
        Err(error @ LocalError::Refused(_)) => {
            eprintln!("proctor-agent: {error}");
            ExitCode::from(FAILED)
        }
        Err(error) => {
            eprintln!("proctor-agent: {}", proctor_runtime::chain(&error));
            ExitCode::from(NO_ANSWER)
        }
    }
}

fn carry_out(state_dir: &Path, command: Ctl) -> Result<ExitCode, LocalError> {
    use OperationKind::{Kill, Manage, Release, Reload, Restart, Start, Status, Stop};
    let (kind, arguments) = match command {
        Ctl::Ps(arguments) => return list(state_dir, arguments.json),
        Ctl::Events(arguments) => return events(state_dir, &arguments),
        Ctl::Ledger(arguments) => return ledger(state_dir, &arguments),
        Ctl::Metrics(arguments) => return metrics(state_dir, &arguments),
        Ctl::Status(arguments) => (Status, arguments),
        Ctl::Start(arguments) => (Start, arguments),
        Ctl::Stop(arguments) => (Stop, arguments),
        Ctl::Restart(arguments) => (Restart, arguments),
        Ctl::Reload(arguments) => (Reload, arguments),
        Ctl::Kill(arguments) => (Kill, arguments),
        Ctl::Manage(arguments) => (Manage, arguments),
        Ctl::Release(arguments) => (Release, arguments),
    };
    let request = LocalRequest::Operate { process: arguments.process.clone(), operation: kind };
    let LocalAnswer::Outcome { outcome } = local::ask(state_dir, &request)? else { return Ok(unexpected()) };
    if arguments.json {
        print_json(&outcome)?;
    } else {
        write(&told(&arguments.process, kind, &outcome))?;
    }
    Ok(if outcome.code.is_success() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn list(state_dir: &Path, json: bool) -> Result<ExitCode, LocalError> {
    let LocalAnswer::Processes { processes } = local::ask(state_dir, &LocalRequest::List)? else {
        return Ok(unexpected());
    };
    if json {
        print_json(&processes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["PROCESS", "PHASE", "MANAGED", "PID", "RESTARTS", "HEALTH", "REASON"].map(str::to_owned)];
    rows.extend(processes.iter().map(|LocalProcess { process, snapshot }| {
        let Snapshot { phase, managed, pid, restarts, health, reason, .. } = snapshot;
        [
            process.clone(),
            phase.to_string(),
            if *managed { "yes" } else { "no" }.to_owned(),
            pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            restarts.to_string(),
            or_dash(health),
            or_dash(reason),
        ]
    }));
    write(&table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

fn events(state_dir: &Path, arguments: &ListArguments) -> Result<ExitCode, LocalError> {
    let request = LocalRequest::Events { limit: arguments.limit };
    let LocalAnswer::Events { events, waiting } = local::ask(state_dir, &request)? else { return Ok(unexpected()) };
    if arguments.json {
        print_json(&events)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![["TIME", "TYPE", "CONTENT"].map(str::to_owned)];
    rows.extend(events.iter().map(|event| [moment(event.at / 1000), event.kind.to_string(), line(&event.content)]));
    write(&table(&rows))?;
    eprintln!("{} of {waiting} events that the server has not seen", events.len());
    Ok(ExitCode::SUCCESS)
}

fn metrics(state_dir: &Path, arguments: &MetricsArguments) -> Result<ExitCode, LocalError> {
    let request = LocalRequest::Metrics { processes: arguments.processes };
    let LocalAnswer::Metrics { text } = local::ask(state_dir, &request)? else { return Ok(unexpected()) };
    write(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn ledger(state_dir: &Path, arguments: &ListArguments) -> Result<ExitCode, LocalError> {
    let recorded = local::recorded(state_dir, arguments.limit)?;
    if arguments.json {
        print_json(&recorded)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!(
        "{} ({} KiB): {} processes, {} unfinished operations, {} outcomes and {} events that the server has not seen\n",
        recorded.path.display(),
        recorded.bytes / 1024,
        recorded.processes,
        recorded.unfinished,
        recorded.unacknowledged,
        recorded.events
    );
    let mut rows = vec![["TIME", "OPERATION", "PROCESS", "CODE", "MESSAGE"].map(str::to_owned)];
    rows.extend(recorded.operations.iter().map(|operation| {
        let code = operation.code.map_or_else(|| "under way".to_owned(), |code| code.to_string());
        let (kind, process) = (or_dash(&operation.kind), or_dash(&operation.process));
        [moment(operation.changed_at), kind, process, code, line(&operation.message)]
    }));
    text.push_str(&table(&rows));
    write(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn doctor(state_dir: &Path, server: Option<&str>, arguments: &DoctorArguments) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("proctor-agent: cannot start: {error}");
            return ExitCode::from(NO_ANSWER);
        }
    };
    let findings = runtime.block_on(doctor::examine(state_dir, server));
    runtime.shutdown_background(); // a resolver that hangs must not keep us
    let is_bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    let rows: Vec<[String; 3]> = findings
        .iter()
        .map(|finding| {
            let verdict = match finding.verdict {
                Verdict::Good => "ok",
                Verdict::Warning => "warning",
                Verdict::Bad => "BAD",
            };
            [verdict.to_owned(), finding.about.to_owned(), line(&finding.text)]
        })
        .collect();
    let written = if arguments.json { print_json(&findings) } else { write(&table(&rows)).map_err(Into::into) };
    match written {
        Ok(()) if is_bad => ExitCode::from(FAILED),
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(NO_ANSWER),
    }
}

pub(crate) fn verify(state_dir: &Path, arguments: &VerifyArguments) -> ExitCode {
    match proctor_agent::verify_file(state_dir, &arguments.file, &arguments.signature) {
        Ok(()) => {
            eprintln!("{} is signed by the authority of this host.", arguments.file.display());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("proctor-agent: {problem}");
            ExitCode::from(FAILED)
        }
    }
}

fn told(process: &ProcessKey, kind: OperationKind, outcome: &Outcome) -> String {
    let mut text = format!("{process} {kind}: {} ({})\n", line(&outcome.message), outcome.code.number());
    let shown = if outcome.instances.is_empty() { outcome.snapshot.as_slice() } else { &outcome.instances[..] };
    for snapshot in shown {
        let pid = snapshot.pid.map_or_else(|| "no pid".to_owned(), |pid| format!("pid {pid}"));
        let managed = if snapshot.managed { "managed" } else { "not managed" };
        text.push_str(&format!("  {}, {pid}, {managed}", snapshot.phase));
        for (name, value) in [("version", &snapshot.version), ("health", &snapshot.health), ("", &snapshot.reason)] {
            if !value.is_empty() {
                text.push_str(&format!(", {name}{}{}", if name.is_empty() { "" } else { " " }, line(value)));
            }
        }
        text.push('\n');
    }
    if !outcome.output.is_empty() {
        // Written by a command of any user, read on a terminal of root.
        let is_harmless = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
        text.extend(outcome.output.trim_end().chars().filter(is_harmless));
        text.push('\n');
    }
    text
}

/// One line, for the agent that wants to become this program.
pub(crate) fn upgrade_check() -> ExitCode {
    let text = serde_json::to_string(&proctor_agent::ProgramCheck::ours()).unwrap_or_default();
    match write(&format!("{text}\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FAILED),
    }
}

fn unexpected() -> ExitCode {
    eprintln!("proctor-agent: unexpected answer from the agent: is it another version?");
    ExitCode::from(NO_ANSWER)
}

fn print_json(data: &impl Serialize) -> Result<(), LocalError> {
    let mut text = serde_json::to_string_pretty(data)?;
    text.push('\n');
    Ok(write(&text)?)
}

/// A reader that has seen enough is no error.
fn write(text: &str) -> std::io::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn moment(unix_seconds: i64) -> String {
    jiff::Timestamp::from_second(unix_seconds).map_or_else(|_| "-".to_owned(), |time| time.to_string())
}

/// On one line, without what could steer a terminal.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

fn or_dash(text: &str) -> String {
    let text = line(text);
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Columns as wide as their widest cell, but the last.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column + 1 == N {
            true => cell.clone(),
            false => format!("{cell:width$}"),
        });
        text.push_str(&cells.collect::<Vec<_>>().join("  "));
        text.push('\n');
    }
    text
}
