//! The log, on stderr.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use proctor_runtime::LogSink;
use tracing_subscriber::EnvFilter;

use crate::args::{Command, LogFormat, Logging};

/// Limits how long a blocked stderr can delay the exit of the program.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Where a service logs; a command writes to stderr directly.
static SINK: OnceLock<LogSink> = OnceLock::new();

/// Replaces the filter of a service.
type ChangeFilter = Box<dyn Fn(EnvFilter) -> Result<()> + Send + Sync>;
static CHANGE: OnceLock<ChangeFilter> = OnceLock::new();

const SERVER_FILTER: &str = "info";

/// Prints a message for people on stderr, in order with the log. A service neither fails nor waits if that cannot
/// be written.
pub(crate) fn note(text: &str) {
    match SINK.get() {
        Some(sink) => sink.line(text),
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Flushes the queue when it is dropped, at the end of the program.
#[derive(Debug)]
pub(crate) struct Log(LogSink);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush_within(FLUSH_MAX);
    }
}

/// A server logs what it does; a command should only report trouble, and only once: an untrusted certificate is
/// reported by the command itself.
pub(crate) fn start(logging: &Logging, command: &Command) -> Result<Log> {
    let default = if matches!(command, Command::Server(_) | Command::Relay(_)) {
        SERVER_FILTER
    } else {
        "warn,rustls_platform_verifier=off"
    };
    let filter = parsed(logging.log.as_deref(), default)?;
    let sink = LogSink::stderr().context("cannot start the thread that writes the log")?;
    if command.is_service() {
        sink.take_panics();
        let _ = SINK.set(sink.clone());
    }
    let lines = sink.clone();
    // The subscriber's own diagnostics would use a macro that panics.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    let builder = builder.with_writer(move || lines.clone());
    match logging.log_format {
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = CHANGE.set(Box::new(move |filter| Ok(handle.reload(filter)?)));
            builder.init();
        }
        LogFormat::Text => {
            let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let builder = builder.with_ansi(!no_colour && io::stderr().is_terminal()).with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = CHANGE.set(Box::new(move |filter| Ok(handle.reload(filter)?)));
            builder.init();
        }
    }
    Ok(Log(sink))
}

/// The log filter of a service; a mistake is reported before anything changes.
pub(crate) fn service_filter(filter: Option<&str>) -> Result<EnvFilter> {
    parsed(filter, SERVER_FILTER)
}

/// Applies the filter.
pub(crate) fn change(filter: EnvFilter) -> Result<()> {
    CHANGE.get().map_or(Ok(()), |change| change(filter))
}

fn parsed(filter: Option<&str>, default: &str) -> Result<EnvFilter> {
    let filter = filter.filter(|filter| !filter.trim().is_empty()).unwrap_or(default);
    EnvFilter::try_new(filter).with_context(|| format!("'{filter}' is not a filter for the log"))
}
