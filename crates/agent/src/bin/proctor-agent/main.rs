//! `proctor-agent`, the program for every host: parses flags and starts the agent, or one of its subcommands (`ctl`,
//! `config`, `install`). The work itself is in the library; start at `proctor_agent::driver`.

mod config;
mod ctl;
mod install;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use proctor_agent::{AgentExit, Options, SpawnMethod, Startup, Tracking, Trial};
use proctor_model::AgentId;
use proctor_runtime::{LogSink, Tasks};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// A stderr that takes nothing holds up the end of the program for no longer.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// What is under way is on disk, and goes on at the next start.
const END_MAX: Duration = Duration::from_secs(5);

/// Supervises the processes of this host for a Proctor server.
#[derive(Debug, Parser)]
#[command(name = "proctor-agent", version = proctor_agent::version(), subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Configuration file, with a key for each flag [default: /etc/proctor/agent.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE", env = "PROCTOR_AGENT_CONFIG")]
    config: Option<PathBuf>,
    /// The server's link, or those of the relays of this host's cloud area
    #[arg(long, value_name = "HOST:PORT[,HOST:PORT]", env = "PROCTOR_SERVER", value_parser = proctor_agent::parse_links, required = true)]
    server: Option<String>,
    /// A join token of the server; needed only for the first start, and visible in `ps`: prefer --token-file
    #[arg(long, env = "PROCTOR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A file with the join token, for its owner alone; read where no token is given
    #[arg(long, value_name = "FILE", env = "PROCTOR_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Where the agent keeps its identity and its ledger
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "PROCTOR_STATE_DIR",
        default_value = "/var/lib/proctor-agent"
    )]
    state_dir: PathBuf,
    /// The address by which callers name this host [default: the one that reaches the server]
    #[arg(long, env = "PROCTOR_IP")]
    ip: Option<IpAddr>,
    /// The cloud area of this host
    #[arg(long, value_name = "N", env = "PROCTOR_CLOUD_ID", default_value_t = 0)]
    cloud_id: u32,
    /// The supplier of this host
    #[arg(long, value_name = "N", env = "PROCTOR_SUPPLIER_ID", default_value_t = 0)]
    supplier_id: u32,
    /// The id to enrol with [default: a new one]
    #[arg(long, value_name = "ID", env = "PROCTOR_AGENT_ID")]
    agent_id: Option<AgentId>,
    /// What the owner of this host allows [default: /etc/proctor/policy.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "PROCTOR_POLICY")]
    policy: Option<PathBuf>,
    /// How to know what belongs to a process
    #[arg(long, value_name = "HOW", env = "PROCTOR_TRACKING", default_value = "best")]
    tracking: TrackingArgument,
    /// How to make processes
    #[arg(long, value_name = "HOW", env = "PROCTOR_SPAWN", default_value = "shared-memory")]
    spawn: SpawnArgument,
    /// Serve Prometheus metrics here; the loopback only, for example 127.0.0.1:9311
    #[arg(long, value_name = "ADDRESS", env = "PROCTOR_AGENT_METRICS", value_parser = loopback)]
    metrics: Option<SocketAddr>,
    /// With the usage of each process
    #[arg(long, env = "PROCTOR_AGENT_METRICS_PROCESSES", requires = "metrics")]
    metrics_processes: bool,
    #[command(flatten)]
    traces: proctor_traces::TraceArguments,
    /// What to log, for example `info` or `proctor_agent=debug`
    #[arg(long, env = "PROCTOR_LOG", default_value = "info", value_parser = filter)]
    log: Targets,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Control the agent that runs on this host, with or without its server
    #[command(subcommand)]
    Ctl(ctl::Ctl),
    /// Examine the agent of this host: state directory, ledger, disk, certificate, clock, link
    Doctor(ctl::DoctorArguments),
    /// The configuration file of the agent
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Install this program as a service of this host, and start it
    Install(install::InstallArguments),
    /// Check that a file is signed by the authority that this host enrolled with
    Verify(ctl::VerifyArguments),
    /// Say what this program is, before an agent becomes it
    #[command(name = proctor_agent::CHECK_COMMAND, hide = true)]
    UpgradeCheck,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TrackingArgument {
    /// By cgroups where they can be used, by descent otherwise
    Best,
    /// By descent only
    Descent,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SpawnArgument {
    /// Without a copy of the agent's memory, where kernel and processor allow it
    SharedMemory,
    /// By a plain fork
    Fork,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "must be ADDRESS:PORT, such as 127.0.0.1:9311".to_owned())?;
    if address.ip().is_loopback() { Ok(address) } else { Err("must be an address of the loopback".to_owned()) }
}

fn filter(text: &str) -> Result<Targets, tracing_subscriber::filter::ParseError> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    parts.join(",").parse()
}

fn main() -> ExitCode {
    proctor_host::memory::use_one_heap();
    let typed: Vec<OsString> = std::env::args_os().collect();
    if typed.get(1).is_some_and(|word| word == proctor_agent::TRIAL_COMMAND) {
        return proctor_agent::become_trial(&typed[2..]);
    }
    if typed.get(1).is_some_and(|word| word == proctor_agent::WATCH_COMMAND) {
        return watch(&typed[2..]);
    }
    let (mut arguments, layers) = match config::parse(&typed) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    match arguments.command.take() {
        Some(Command::Config(command)) => return config::run(command, &layers),
        Some(Command::Ctl(command)) => return ctl::run(&arguments.state_dir, command),
        Some(Command::Doctor(options)) => {
            return ctl::doctor(&arguments.state_dir, arguments.server.as_deref(), &options);
        }
        Some(Command::Install(options)) => return install::run(&arguments.state_dir, &options),
        Some(Command::Verify(options)) => return ctl::verify(&arguments.state_dir, &options),
        Some(Command::UpgradeCheck) => return ctl::upgrade_check(),
        None => {}
    }
    let Ok((log, handle)) = start_log(arguments.log.clone()) else { return ExitCode::FAILURE };
    let (filter, set_log) = (arguments.log.to_string(), move |filter| drop(handle.reload(filter)));
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ended(&log, Err(format!("cannot start: {error}"))),
    };
    let result = runtime.block_on(async {
        let (stop, _signals) = stop_signals();
        let served = tokio::select! {
            result = serve(arguments, &stop) => result?,
            never = config::reload_on_hang_up(typed.clone(), layers.settings, set_log) => match never {},
        };
        let Some(trial) = served else { return Ok(()) };
        let flush = || log.flush_within(FLUSH_MAX);
        trial.begin(Startup { arguments: &typed, log: &filter, flush: &flush }, &stop).await
    });
    runtime.shutdown_background(); // what hangs in a file system must not keep us from ending
    ended(&log, result)
}

/// What this process is while a new version is on trial.
fn watch(words: &[OsString]) -> ExitCode {
    let Some((trial, filter_text, arguments)) = Trial::of_arguments(words) else { return ExitCode::from(2) };
    let Ok((log, _)) = start_log(filter(filter_text).unwrap_or_default()) else { return ExitCode::FAILURE };
    let result = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async {
            let (stop, _signals) = stop_signals();
            // Who wants the agent to read its configuration must not end it.
            let _hang_up = signal(SignalKind::hangup());
            let flush = || log.flush_within(FLUSH_MAX);
            trial.run(Startup { arguments, log: filter_text, flush: &flush }, &stop).await
        }),
        Err(error) => Err(format!("cannot watch a trial: {error}")),
    };
    ended(&log, result)
}

fn start_log(filter: Targets) -> std::io::Result<(LogSink, reload::Handle<Targets, impl tracing::Subscriber>)> {
    let log = LogSink::stderr()?;
    log.take_panics();
    let (has_colours, sink) = (std::io::stderr().is_terminal(), log.clone());
    // What the layer itself has to say it would print with a macro that panics.
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false);
    let lines = lines.with_writer(move || sink.clone()).with_ansi(has_colours);
    let (filter, handle) = reload::Layer::new(filter);
    tracing_subscriber::registry().with(lines).with(filter).init();
    Ok((log, handle))
}

/// Cancelled when somebody stops the agent. Of the whole program: what comes while nobody waits for it is not lost.
fn stop_signals() -> (CancellationToken, Tasks) {
    let (stop, signals) = (CancellationToken::new(), Tasks::default());
    let (requested, cancelled) = (proctor_runtime::stop_requested(), stop.clone());
    signals.spawn("stop signals", async move {
        requested.await;
        cancelled.cancel();
    });
    (stop, signals)
}

/// Says the last word.
fn ended(log: &LogSink, result: Result<(), String>) -> ExitCode {
    if let Err(problem) = &result {
        log.line(&format!("proctor-agent: {problem}"));
    }
    log.flush_within(FLUSH_MAX);
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a new version to try, if there is one.
async fn serve(arguments: Arguments, stop: &CancellationToken) -> Result<Option<Box<Trial>>, String> {
    let tasks = Tasks::default();
    let tracing = arguments.traces.start("proctor-agent", proctor_agent::version());
    let tracing = tracing.map_err(|error| error.to_string())?;
    let options = Options {
        server: arguments.server.ok_or("--server is missing")?,
        token: match (arguments.token, arguments.token_file) {
            (Some(token), _) => Some(token),
            (None, Some(path)) if !proctor_agent::is_enrolled(&arguments.state_dir) => Some(read_token(&path)?),
            (None, _) => None,
        },
        state_dir: arguments.state_dir,
        ip: arguments.ip,
        cloud: arguments.cloud_id,
        supplier: arguments.supplier_id,
        agent_id: arguments.agent_id,
        policy: arguments.policy,
        metrics: arguments.metrics,
        metrics_processes: arguments.metrics_processes,
        tracking: match arguments.tracking {
            TrackingArgument::Best => Tracking::Best,
            TrackingArgument::Descent => Tracking::Descent,
        },
        spawn: match arguments.spawn {
            SpawnArgument::SharedMemory => SpawnMethod::SharedMemory,
            SpawnArgument::Fork => SpawnMethod::Fork,
        },
        traces: tracing.traces.clone(),
        is_program: true,
    };
    let mut running = Box::pin(proctor_agent::run(options, tasks.clone()));
    let result = tokio::select! {
        biased;
        () = stop.cancelled() => {
            tasks.shutdown().cancel();
            // It says goodbye to the server. Whatever becomes of that, the agent was stopped.
            let _ = tokio::time::timeout(END_MAX, &mut running).await;
            Ok(AgentExit::Stopped)
        }
        result = &mut running => result.map_err(|error| proctor_runtime::chain(&error)),
        failed = tasks.failed() => Err(failed.to_string()),
    };
    drop(running);
    // systemd must not take the end of this version for the end of the service.
    if !matches!(result, Ok(AgentExit::Upgrade(_))) {
        proctor_runtime::systemd::notify("STOPPING=1");
    }
    tasks.end(END_MAX).await;
    match result? {
        AgentExit::Stopped => Ok(None),
        AgentExit::Upgrade(trial) => Ok(Some(trial)),
    }
}

/// Not needed, and so not asked for, once the host has enrolled.
fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot read the join token from {}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}
