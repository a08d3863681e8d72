//! `proctor-agent config`, and the configuration file of the agent.
//!
//! Promised: flags and environment override the file; an invalid file starts nothing. A join token is a secret for
//! one start and has no key; `token_file` has one. SIGHUP applies `log`, and logs what needs a restart.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Subcommand};
use proctor_config::{ConfigError, Layers, Program, Setting};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;

use super::Arguments;

/// Of the command line, the configuration file or the environment.
const USAGE: u8 = 2;

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration file; lists every mistake and exits with 2
    Check,
    /// Show every setting, and where its value comes from
    Show,
}

/// The arguments, with what the file adds to them.
pub(crate) fn parse(arguments: &[OsString]) -> Result<(Arguments, Layers), ExitCode> {
    match read(arguments) {
        Ok(read) => Ok(read),
        Err(ConfigError::Usage(error)) => error.exit(),
        Err(error) => {
            for line in proctor_runtime::chain(&error).lines() {
                eprintln!("proctor-agent: {line}");
            }
            Err(ExitCode::from(USAGE))
        }
    }
}

pub(crate) fn read(arguments: &[OsString]) -> Result<(Arguments, Layers), ConfigError> {
    let usage = |error| ConfigError::Usage(Box::new(error));
    let program = Program {
        command: Arguments::command(),
        subcommand: &[],
        with: &[],
        without: &["token"],
        file: "config",
        default_file: proctor_config::system_file("agent.toml"),
    };
    let layers = Layers::read(&program, arguments)?;
    let arguments = Arguments::from_arg_matches(&layers.matches).map_err(usage)?;
    Ok((arguments, layers))
}

pub(crate) fn run(command: ConfigCommand, layers: &Layers) -> ExitCode {
    let text = match (command, &layers.file) {
        (ConfigCommand::Check, Some(file)) => format!("{}: no mistakes\n", file.display()),
        (ConfigCommand::Check, None) => "there is no configuration file\n".to_owned(),
        (ConfigCommand::Show, _) => {
            let width = layers.settings.iter().map(|setting| setting.key.len()).max().unwrap_or(0);
            let line = |Setting { key, value, source }: &Setting| {
                format!("{key:width$}  {}  ({source})\n", value.as_deref().unwrap_or("-"))
            };
            layers.settings.iter().map(line).collect()
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// After each SIGHUP, `set_log` gets what to log, and the log says what needs a restart.
pub(crate) async fn reload_on_hang_up(
    arguments: Vec<OsString>,
    settings: Vec<Setting>,
    set_log: impl Fn(Targets),
) -> Infallible {
    let Ok(mut hang_up) = signal(SignalKind::hangup()) else { return std::future::pending().await };
    loop {
        if hang_up.recv().await.is_none() {
            return std::future::pending().await;
        }
        match read(&arguments) {
            Ok((parsed, layers)) => {
                let restart: Vec<String> =
                    differing(&settings, &layers.settings).into_iter().filter(|key| key != "log").collect();
                set_log(parsed.log);
                tracing::info!(restart = restart.join(","), "configuration reloaded");
            }
            Err(error) => {
                let error = proctor_runtime::chain(&error);
                tracing::error!(error, "configuration not reloaded, keeping the previous one");
            }
        }
    }
}

/// The keys whose values differ.
fn differing(old: &[Setting], new: &[Setting]) -> Vec<String> {
    let is_old = |setting: &&Setting| old.iter().any(|old| old.key == setting.key && old.value == setting.value);
    new.iter().filter(|setting| !is_old(setting)).map(|setting| setting.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/deb/agent/agent.toml");

    #[test]
    fn a_token_for_one_start_goes_before_the_token_file_of_the_packaged_configuration() {
        let line = ["proctor-agent", "--config", PACKAGED, "--server", "s:9077", "--token", "PT1.x"];

        let (arguments, layers) = read(&line.map(OsString::from)).unwrap();

        assert_eq!(arguments.token.as_deref(), Some("PT1.x"));
        assert_eq!(arguments.state_dir, std::path::Path::new("/var/lib/proctor-agent"));
        let of = |key: &str| layers.settings.iter().find(|setting| setting.key == key).unwrap().source.to_string();
        assert!(of("token_file").starts_with("file, line"), "{}", of("token_file"));
    }
}
