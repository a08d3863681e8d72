//! The log, on stderr.

use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::args::{Command, LogFormat, Logging};

/// A server says what it does; whoever types a command wants to hear only of trouble, and once: a
/// certificate that is not believed is told by the command itself.
pub(crate) fn start(logging: &Logging, command: &Command) -> Result<()> {
    let default = if matches!(command, Command::Server(_)) { "info" } else { "warn,rustls_platform_verifier=off" };
    let filter = logging.log.as_deref().filter(|filter| !filter.trim().is_empty()).unwrap_or(default);
    let filter = EnvFilter::try_new(filter).with_context(|| format!("'{filter}' is not a filter for the log"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match logging.log_format {
        LogFormat::Json => builder.json().init(),
        LogFormat::Text => {
            let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            builder.with_ansi(!no_colour && io::stderr().is_terminal()).init();
        }
    }
    Ok(())
}
